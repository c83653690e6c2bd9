// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registered memory: looked up by key, with bounds and access rights checked before a byte is accessed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::memory::{Origin, Part, Target};
use crate::slab::{Key, Slab};

/// An address in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The key under which the region is registered.
    pub key: u64,
    /// Offset from the region's beginning, in bytes.
    pub offset: u64,
}

/// Access rights of peers to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Remote reads, and atomic operations that fetch.
    pub read: bool,
    /// Remote writes, and atomic operations that update.
    pub write: bool,
}

impl Access {
    /// Reads and writes.
    pub const ALL: Self = Self { read: true, write: true };

    fn allows(self, wanted: Self) -> bool {
        (self.read || !wanted.read) && (self.write || !wanted.write)
    }
}

/// Why a peer refused an access. Nothing was accessed, except for [`Deregistered`](Self::Deregistered).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No memory is registered under this key, or it no longer is.
    #[error("the peer has no memory registered under this key")]
    Key,
    /// The access exceeds the region.
    #[error("the access exceeds the peer's registered memory")]
    Range,
    /// The region's access rights do not include this access.
    #[error("the peer's memory is not registered for this kind of access")]
    Access,
    /// The type does not support the operation, or the length is not a multiple of the element's, or too long.
    #[error("the peer does not support this atomic operation")]
    Operation,
    /// The memory was deregistered during the access, which may have taken effect in part.
    #[error("the peer deregistered the memory during the access, which may have taken effect in part")]
    Deregistered,
}

impl Refusal {
    const ALL: [Self; 5] = [Self::Key, Self::Range, Self::Access, Self::Operation, Self::Deregistered];

    /// Its number in a header, from 1.
    pub(crate) fn number(self) -> u8 {
        self as u8 + 1
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }
}

/// Counts peers' permitted accesses to memory. Several messengers may count the accesses to the same memory together.
#[derive(Debug, Default)]
pub struct AccessCounts {
    written: AtomicU64,
    read: AtomicU64,
}

impl AccessCounts {
    /// Remote writes, and atomic operations that update.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Remote reads, and atomic operations that fetch.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

/// A registered region.
pub(crate) struct Region {
    access: Access,
    bytes: u64,
    /// For reads.
    pub origin: Origin,
    /// For writes.
    pub target: Target,
    counts: Option<Arc<AccessCounts>>,
}

impl Region {
    /// Counts an access that was executed.
    #[inline]
    pub fn count(&self, access: Access) {
        if let Some(counts) = &self.counts {
            counts.written.fetch_add(u64::from(access.write), Ordering::Relaxed);
            counts.read.fetch_add(u64::from(access.read), Ordering::Relaxed);
        }
    }
}

/// All registered regions.
pub(crate) struct Regions {
    entries: Slab<Region>,
    by_key: HashMap<u64, Key>,
    /// The next key for a registration without one.
    next_key: u64,
}

impl Regions {
    pub fn new() -> Self {
        // Far from the keys that users choose.
        Self { entries: Slab::new(), by_key: HashMap::new(), next_key: 1 << 63 }
    }

    /// Registers memory, and returns its key; `None` if the key is taken.
    ///
    /// # Safety
    /// All parts must be valid for reads and writes until the region is deregistered.
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
        // SAFETY: the caller's promise. Both describe the same memory; one thread uses them one after the other.
        let (origin, target) = unsafe { (Origin::new(parts), Target::new(parts)) };
        let entry = self.entries.add(Region { access, bytes: origin.bytes(), origin, target, counts: None });
        self.by_key.insert(key, entry);
        Some(key)
    }

    /// Counts accesses to a region from now on; `None` if there is no such key.
    pub fn count_accesses(&mut self, key: u64, counts: Arc<AccessCounts>) -> Option<()> {
        let region = self.entries.get(*self.by_key.get(&key)?)?;
        region.counts = Some(counts);
        Some(())
    }

    /// Removes a region; it is not accessed any more.
    pub fn deregister(&mut self, key: u64) -> Option<Key> {
        let entry = self.by_key.remove(&key)?;
        self.entries.remove(entry);
        Some(entry)
    }

    /// Looks up the region in which `bytes` from `at` on may be accessed.
    #[inline]
    pub fn find(&mut self, at: RemoteAddress, bytes: u64, access: Access) -> Result<Key, Refusal> {
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
    fn lookups_check_key_bounds_and_rights() {
        let mut memory = [0; 10];
        let parts = [Part::into(&mut memory)];
        let mut regions = Regions::new();
        let read_only = Access { read: true, write: false };
        // SAFETY: nothing accesses it.
        let (read_key, other_key) = unsafe {
            (
                regions.register(&parts, read_only, Some(7)).unwrap(),
                regions.register(&parts, Access::ALL, None).unwrap(),
            )
        };
        // SAFETY: as above.
        assert_eq!((read_key, unsafe { regions.register(&parts, Access::ALL, Some(7)) }), (7, None));
        let at = |key, offset| RemoteAddress { key, offset };
        assert!(
            regions.find(at(7, 10), 0, read_only).is_ok() && regions.find(at(other_key, 3), 7, Access::ALL).is_ok()
        );
        assert_eq!(regions.find(at(7, 0), 1, Access::ALL), Err(Refusal::Access));
        assert_eq!(regions.find(at(8, 0), 1, read_only), Err(Refusal::Key));
        for (offset, bytes) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(regions.find(at(7, offset), bytes, read_only), Err(Refusal::Range), "{offset} {bytes}");
        }
        assert!(regions.deregister(7).is_some() && regions.deregister(7).is_none());
        assert_eq!(regions.find(at(7, 0), 1, read_only), Err(Refusal::Key));
    }

    #[test]
    fn refusals_round_trip_through_numbers() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_number(refusal.number()), Some(refusal));
        }
        assert_eq!((Refusal::from_number(0), Refusal::from_number(7)), (None, None));
    }
}
