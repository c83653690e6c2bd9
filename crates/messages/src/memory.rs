// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User buffers: gather lists to send from, and scatter lists to receive into.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::{ptr, slice};

use barewire_copy::copy_nonoverlapping;

/// A contiguous part of a user buffer, as an iovec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Start address; sends only read from it. Any value if `bytes` is 0.
    pub address: *mut u8,
    /// Length in bytes.
    pub bytes: usize,
}

impl Part {
    /// A part to send from.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }

    /// A part to receive into.
    #[must_use]
    pub const fn into(bytes: &mut [u8]) -> Self {
        Self { address: bytes.as_mut_ptr(), bytes: bytes.len() }
    }
}

/// A list of parts, addressed as one contiguous range.
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

    /// The parts from `offset` on, without empty ones.
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

/// A gather list: memory to send from.
pub(crate) struct Origin {
    parts: Parts,
    /// Owns the bytes that `parts` point into, if they were copied.
    _owner: Option<Copied>,
}

/// Total bytes of all live copies.
pub(crate) type CopiedBytes = Arc<AtomicUsize>;

/// A copied buffer; `total` counts it until it is dropped.
struct Copied {
    bytes: Vec<u8>,
    total: CopiedBytes,
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes.len(), Relaxed);
    }
}

// SAFETY: the memory is only read, and its owner promised that it stays valid and unchanged, for any thread.
unsafe impl Send for Origin {}

impl Origin {
    /// # Safety
    /// All parts must be valid for reads and unchanged for as long as this is used.
    #[inline]
    pub unsafe fn new(parts: &[Part]) -> Self {
        Self { parts: Parts::new(parts), _owner: None }
    }

    /// Copies `bytes`; the copy's address is stable when the `Origin` moves.
    pub fn copy_of(bytes: &[u8], total: &CopiedBytes) -> Self {
        Self::copied(bytes.to_vec(), total)
    }

    /// As [`copy_of`](Self::copy_of), of a copy that exists.
    pub fn copied(bytes: Vec<u8>, total: &CopiedBytes) -> Self {
        total.fetch_add(bytes.len(), Relaxed);
        let owner = Copied { bytes, total: Arc::clone(total) };
        Self { parts: Parts::new(&[Part::of(&owner.bytes)]), _owner: Some(owner) }
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.parts.bytes()
    }

    /// The rest of the part that contains `offset`.
    #[inline]
    pub fn contiguous(&self, offset: u64) -> &[u8] {
        match self.parts.from(offset).next() {
            // A region may be the whole address space, which no slice can be.
            Some(part) if !part.address.is_null() => {
                let bytes = part.bytes.min(isize::MAX as usize);
                // SAFETY: lies in a part; the promise of `new` holds while this is borrowed.
                unsafe { slice::from_raw_parts(part.address, bytes) }
            }
            _ => &[],
        }
    }

    /// Copies from `offset` on into `into`; returns the number of bytes, which is smaller if the parts end before.
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

/// A scatter list: memory that a message is received into.
pub(crate) struct Target(Parts);

// SAFETY: the memory's owner promised that nothing else uses it meanwhile, on any thread.
unsafe impl Send for Target {}

impl Target {
    /// # Safety
    /// All parts must be valid for writes, disjoint, and used by nothing else for as long as this is used.
    #[inline]
    pub unsafe fn new(parts: &[Part]) -> Self {
        Self(Parts::new(parts))
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The rest of the part that contains `offset`; `None` at the end.
    pub fn part_at(&self, offset: u64) -> Option<Part> {
        self.0.from(offset).next()
    }

    /// The `bytes` from `offset` on, which must exist, as a target of their own: one message of a multi-receive. They
    /// must not be written through `self` any more.
    pub fn split(&self, offset: u64, mut bytes: u64) -> Self {
        if let Parts::One(part) = &self.0 {
            let address = part.address.wrapping_add(offset as usize);
            let rest = part.bytes.saturating_sub(offset as usize);
            return Self(Parts::One(Part { address, bytes: rest.min(bytes as usize) }));
        }
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

    /// Writes `bytes` at `offset`; what exceeds the end is dropped.
    #[inline]
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if let (Parts::One(part), 0) = (&self.0, offset) {
            // SAFETY: bounded by the part, which is valid; nothing else uses it, so the two do not overlap.
            unsafe { copy_nonoverlapping(bytes.as_ptr(), part.address, bytes.len().min(part.bytes)) };
        } else {
            self.write_parts(offset, bytes);
        }
    }

    /// Updates an element of 4 or 8 bytes atomically with respect to other threads of this process. Returns the
    /// previous value; `None` if the element has another length, is not aligned, or spans two parts.
    pub fn update(&mut self, offset: u64, bytes: usize, change: impl Fn(&mut [u8])) -> Option<[u8; 8]> {
        let Part { address, .. } = self.part_at(offset).filter(|part| part.bytes >= bytes)?;
        let mut before = [0; 8];
        match bytes {
            4 if address.cast::<AtomicU32>().is_aligned() => {
                // SAFETY: aligned, and inside a part, which is valid; concurrent accesses are atomic.
                let element = unsafe { AtomicU32::from_ptr(address.cast()) };
                let update = |value: u32| updated(value.to_ne_bytes(), &change).map(u32::from_ne_bytes);
                let value = element.fetch_update(SeqCst, SeqCst, update).unwrap_or_else(|same| same);
                before[..4].copy_from_slice(&value.to_ne_bytes());
            }
            8 if address.cast::<AtomicU64>().is_aligned() => {
                // SAFETY: as above.
                let element = unsafe { AtomicU64::from_ptr(address.cast()) };
                let update = |value: u64| updated(value.to_ne_bytes(), &change).map(u64::from_ne_bytes);
                before = element.fetch_update(SeqCst, SeqCst, update).unwrap_or_else(|same| same).to_ne_bytes();
            }
            _ => return None,
        }
        Some(before)
    }

    fn write_parts(&mut self, offset: u64, mut bytes: &[u8]) {
        for part in self.0.from(offset) {
            let (here, rest) = bytes.split_at(bytes.len().min(part.bytes));
            // SAFETY: as in `write`.
            unsafe { copy_nonoverlapping(here.as_ptr(), part.address, here.len()) };
            bytes = rest;
            if bytes.is_empty() {
                break;
            }
        }
    }
}

/// Applies `change` to a copy. `None` if the value stays the same: then nothing is stored, as the memory may be
/// read-only.
fn updated<const N: usize>(element: [u8; N], change: impl Fn(&mut [u8])) -> Option<[u8; N]> {
    let mut after = element;
    change(&mut after);
    (after != element).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves that no update is lost between a peer's operation and another thread's atomic instruction.
    #[test]
    fn an_aligned_element_is_updated_atomically() {
        const TIMES: u64 = 100_000;
        let counter = AtomicU64::new(0);
        let memory = Part { address: counter.as_ptr().cast(), bytes: 8 };
        // SAFETY: the counter outlives the target, and all accesses to it are atomic.
        let mut target = unsafe { Target::new(&[memory]) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    counter.fetch_add(1, SeqCst);
                }
            });
            for _ in 0..TIMES {
                let add = |bytes: &mut [u8]| {
                    let value = u64::from_ne_bytes(bytes.try_into().unwrap());
                    bytes.copy_from_slice(&(value + (1 << 32)).to_ne_bytes());
                };
                target.update(0, 8, add).unwrap();
            }
        });
        assert_eq!(counter.into_inner(), TIMES + (TIMES << 32));
    }

    #[test]
    fn an_unaligned_element_or_one_of_another_length_is_not_updated() {
        let mut memory = [0_u64; 2];
        let address = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: inside `memory`, which is not accessed before the last use of the target.
        let mut target = unsafe { Target::new(&[Part { address, bytes: 16 }]) };
        let fill = |bytes: &mut [u8]| bytes.fill(1);
        for (offset, bytes) in [(1, 8), (4, 8), (2, 4), (0, 2), (0, 16), (12, 8), (16, 4)] {
            assert_eq!(target.update(offset, bytes, fill), None, "{bytes} at {offset}");
        }
        assert!(target.update(12, 4, fill).is_some() && target.update(0, 8, fill).is_some());
        assert_eq!(memory.map(u64::to_ne_bytes), [[1; 8], [0, 0, 0, 0, 1, 1, 1, 1]]);
    }

    #[test]
    fn parts_are_read_and_written_as_one_range() {
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
        // SAFETY: two disjoint parts of `memory`, which is not accessed before the last use of the target.
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
