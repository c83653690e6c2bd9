// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The users' memory, which they own: what is sent from it, and where in it messages go.

use std::{ptr, slice};

use barewire_copy::copy_nonoverlapping;

/// A contiguous piece of a user's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins; of a send it is only read. Anything, of no bytes.
    pub address: *mut u8,
    /// How long it is.
    pub bytes: usize,
}

impl Part {
    /// What is to be sent.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }

    /// Where a message is to go.
    #[must_use]
    pub const fn into(bytes: &mut [u8]) -> Self {
        Self { address: bytes.as_mut_ptr(), bytes: bytes.len() }
    }
}

/// Parts in their order, as if they were one.
enum Parts {
    One(Part),
    Many(Box<[Part]>),
}

impl Parts {
    #[inline]
    fn new(parts: &[Part]) -> Self {
        match *parts {
            [] => Self::One(Part { address: ptr::null_mut(), bytes: 0 }),
            [part] => Self::One(part),
            _ => Self::Many(parts.into()),
        }
    }

    #[inline]
    fn all(&self) -> &[Part] {
        match self {
            Self::One(part) => slice::from_ref(part),
            Self::Many(parts) => parts,
        }
    }

    #[inline]
    fn bytes(&self) -> u64 {
        match self {
            Self::One(part) => part.bytes as u64,
            Self::Many(parts) => parts.iter().map(|part| part.bytes as u64).sum(),
        }
    }

    /// What lies from `offset` on, part by part; none is empty.
    #[inline]
    fn from(&self, mut offset: u64) -> impl Iterator<Item = Part> {
        self.all().iter().filter_map(move |part| {
            let skipped = offset.min(part.bytes as u64) as usize;
            offset -= skipped as u64;
            let address = part.address.wrapping_add(skipped);
            (skipped < part.bytes).then_some(Part { address, bytes: part.bytes - skipped })
        })
    }
}

/// Memory to send from.
pub(crate) struct Origin {
    parts: Parts,
    /// Where they lie, if it is a copy.
    _kept: Option<Vec<u8>>,
}

// SAFETY: the memory is only read, and whoever lent it promised that it stays valid and unchanged, for any thread.
unsafe impl Send for Origin {}

impl Origin {
    /// # Safety
    /// All parts must be valid to be read, and unchanged, for as long as this is used.
    #[inline]
    pub unsafe fn new(parts: &[Part]) -> Self {
        Self { parts: Parts::new(parts), _kept: None }
    }

    /// A copy, which stays where it is wherever this goes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let kept = bytes.to_vec();
        Self { parts: Parts::new(&[Part::of(&kept)]), _kept: Some(kept) }
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.parts.bytes()
    }

    /// The rest of the part that `offset` lies in.
    #[inline]
    pub fn contiguous(&self, offset: u64) -> &[u8] {
        match self.parts.from(offset).next() {
            // SAFETY: a part, or its end; the promise of `new` holds while this is borrowed.
            Some(part) => unsafe { slice::from_raw_parts(part.address, part.bytes) },
            None => &[],
        }
    }

    /// Copies what lies from `offset` on; fewer bytes than `into` has if there are no more.
    pub fn copy(&self, offset: u64, into: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < into.len() {
            let part = self.contiguous(offset + copied as u64);
            let bytes = part.len().min(into.len() - copied);
            if bytes == 0 {
                break;
            }
            barewire_copy::copy(&part[..bytes], &mut into[copied..copied + bytes]);
            copied += bytes;
        }
        copied
    }
}

/// Memory that a message goes into.
pub(crate) struct Target(Parts);

// SAFETY: whoever lent the memory promised that nothing else uses it meanwhile, on any thread.
unsafe impl Send for Target {}

impl Target {
    /// # Safety
    /// All parts must be valid to be written, disjoint, and used by nothing else, for as long as this is used.
    #[inline]
    pub unsafe fn new(parts: &[Part]) -> Self {
        Self(Parts::new(parts))
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The rest of the part that `offset` lies in; `None` at the end.
    pub fn part_at(&self, offset: u64) -> Option<Part> {
        self.0.from(offset).next()
    }

    /// `bytes` of it from `offset` on, of which it must have so many: for one message of several. What was split off
    /// may not be written through this any more.
    pub fn split(&self, offset: u64, mut bytes: u64) -> Self {
        let parts: Vec<Part> = self
            .0
            .from(offset)
            .map_while(|part| {
                let taken = (part.bytes as u64).min(bytes);
                bytes -= taken;
                (taken > 0).then_some(Part { bytes: taken as usize, ..part })
            })
            .collect();
        Self(Parts::new(&parts))
    }

    /// Puts bytes at their place; what lies behind the end is left out.
    #[inline]
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if let (Parts::One(part), 0) = (&self.0, offset) {
            // SAFETY: as much as fits the part, which is valid for it; nothing else uses it, so the two do not overlap.
            unsafe { copy_nonoverlapping(bytes.as_ptr(), part.address, bytes.len().min(part.bytes)) };
        } else {
            self.write_parts(offset, bytes);
        }
    }

    fn write_parts(&mut self, offset: u64, mut bytes: &[u8]) {
        for part in self.0.from(offset) {
            let (here, rest) = bytes.split_at(bytes.len().min(part.bytes));
            // SAFETY: as of `write`.
            unsafe { copy_nonoverlapping(here.as_ptr(), part.address, here.len()) };
            bytes = rest;
            if bytes.is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_written_as_if_they_were_one() {
        let data: Vec<u8> = (0..20).collect();
        let parts = [Part::of(&data[..3]), Part::of(&[]), Part::of(&data[3..4]), Part::of(&data[4..])];
        // SAFETY: `data` outlives the origin and does not change.
        let origin = unsafe { Origin::new(&parts) };
        for offset in 0..=20 {
            let mut copy = [0; 7];
            let copied = origin.copy(offset as u64, &mut copy);
            assert_eq!(copy[..copied], data[offset..20.min(offset + 7)]);
        }
        let mut memory = [0; 20];
        let (a, b) = memory.split_at_mut(5);
        // SAFETY: two disjoint parts of `memory`, which is not looked at before the last use of the target.
        let mut target = unsafe { Target::new(&[Part::into(a), Part::into(b)]) };
        target.write(15, &data[15..]);
        target.write(4, &data[4..15]);
        target.write(0, &data[..4]);
        target.write(18, &[18, 19, 77, 78]);
        let mut part = target.split(3, 4);
        assert_eq!(part.bytes(), 4);
        part.write(1, &[40, 50, 60, 70]);
        assert_eq!(memory[..8], [0, 1, 2, 3, 40, 50, 60, 7]);
        assert_eq!(memory[8..], data[8..]);
    }
}
