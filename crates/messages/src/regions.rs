// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that peers may read and write: registered under a key, and checked before a byte of it is touched.

use std::collections::HashMap;

use thiserror::Error;

use crate::memory::{Origin, Part, Target};
use crate::slab::{Key, Slab};

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Under which it is registered.
    pub key: u64,
    /// From its beginning.
    pub offset: u64,
}

/// What peers may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read it, also as a result of an atomic operation.
    pub read: bool,
    /// Write to it; atomic operations that change it.
    pub write: bool,
}

impl Access {
    /// Both.
    pub const ALL: Self = Self { read: true, write: true };

    fn allows(self, wanted: Self) -> bool {
        (self.read || !wanted.read) && (self.write || !wanted.write)
    }
}

/// Why a peer refused to have its memory read or written; none of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Nothing is registered there under this key, or no longer.
    #[error("the peer has no memory registered under this key")]
    Key,
    /// Some of it would lie behind the end.
    #[error("the peer's registered memory ends before that")]
    Range,
    /// Not for this purpose.
    #[error("the peer's memory is not registered for this kind of access")]
    Access,
    /// Its elements have no such operation, or bytes are missing from the last one.
    #[error("the peer knows no such atomic operation")]
    Operation,
    /// It was taken back meanwhile: what was under way is partly done.
    #[error("the peer has deregistered the memory meanwhile; some of it may have been accessed")]
    Deregistered,
    /// The peer does not know who asks.
    #[error("the peer opens its memory to those whom it has in its address vector, or who have the job's token")]
    UnknownPeer,
}

impl Refusal {
    const ALL: [Self; 6] =
        [Self::Key, Self::Range, Self::Access, Self::Operation, Self::Deregistered, Self::UnknownPeer];

    /// Its number in a head, from 1.
    pub(crate) fn number(self) -> u8 {
        self as u8 + 1
    }

    pub(crate) fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }
}

/// Registered memory.
pub(crate) struct Region {
    access: Access,
    bytes: u64,
    /// To be read from.
    pub origin: Origin,
    /// To be written to.
    pub target: Target,
}

/// All of it.
pub(crate) struct Regions {
    entries: Slab<Region>,
    by_key: HashMap<u64, Key>,
    /// Chosen for whoever has no wish of his own.
    next_key: u64,
}

impl Regions {
    pub fn new() -> Self {
        // Far from where users begin to count.
        Self { entries: Slab::new(), by_key: HashMap::new(), next_key: 1 << 63 }
    }

    /// The key that memory is registered under; `None` if that is taken.
    ///
    /// # Safety
    /// All parts must be valid to be read and written until this is deregistered.
    pub unsafe fn register(&mut self, parts: &[Part], access: Access, key: Option<u64>) -> Option<u64> {
        let key = key.unwrap_or_else(|| {
            while self.by_key.contains_key(&self.next_key) {
                self.next_key = self.next_key.wrapping_add(1);
            }
            self.next_key
        });
        if self.by_key.contains_key(&key) {
            return None;
        }
        // SAFETY: the caller's promise. Both describe the same memory, and are used one after the other, by one thread.
        let (origin, target) = unsafe { (Origin::new(parts), Target::new(parts)) };
        let entry = self.entries.add(Region { access, bytes: origin.bytes(), origin, target });
        self.by_key.insert(key, entry);
        Some(key)
    }

    /// Forgets memory: nobody touches it from now on.
    pub fn deregister(&mut self, key: u64) -> Option<Key> {
        let entry = self.by_key.remove(&key)?;
        self.entries.remove(entry);
        Some(entry)
    }

    /// The memory in which `bytes` may be accessed from `at` on.
    #[inline]
    pub fn find(&mut self, at: Remote, bytes: u64, access: Access) -> Result<Key, Refusal> {
        let entry = *self.by_key.get(&at.key).ok_or(Refusal::Key)?;
        let region = self.entries.get(entry).ok_or(Refusal::Key)?;
        if !region.access.allows(access) {
            return Err(Refusal::Access);
        }
        at.offset.checked_add(bytes).filter(|end| *end <= region.bytes).ok_or(Refusal::Range)?;
        Ok(entry)
    }

    #[inline]
    pub fn get(&mut self, entry: Key) -> Option<&mut Region> {
        self.entries.get(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_registered_is_found_and_only_for_its_purpose() {
        let mut memory = [0; 10];
        let parts = [Part::into(&mut memory)];
        let mut regions = Regions::new();
        let only_read = Access { read: true, write: false };
        // SAFETY: nobody accesses it.
        let (mine, yours) = unsafe {
            (
                regions.register(&parts, only_read, Some(7)).unwrap(),
                regions.register(&parts, Access::ALL, None).unwrap(),
            )
        };
        // SAFETY: as above.
        assert_eq!((mine, unsafe { regions.register(&parts, Access::ALL, Some(7)) }), (7, None));
        let at = |key, offset| Remote { key, offset };
        assert!(regions.find(at(7, 10), 0, only_read).is_ok() && regions.find(at(yours, 3), 7, Access::ALL).is_ok());
        assert_eq!(regions.find(at(7, 0), 1, Access::ALL), Err(Refusal::Access));
        assert_eq!(regions.find(at(8, 0), 1, only_read), Err(Refusal::Key));
        for (offset, bytes) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(regions.find(at(7, offset), bytes, only_read), Err(Refusal::Range), "{offset} {bytes}");
        }
        assert!(regions.deregister(7).is_some() && regions.deregister(7).is_none());
        assert_eq!(regions.find(at(7, 0), 1, only_read), Err(Refusal::Key));
    }

    #[test]
    fn numbers_name_refusals() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::numbered(refusal.number()), Some(refusal));
        }
        assert_eq!((Refusal::numbered(0), Refusal::numbered(7)), (None, None));
    }
}
