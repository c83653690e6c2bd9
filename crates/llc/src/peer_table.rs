// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hash table from pairs of service access points to slots.

use alloc::boxed::Box;
use alloc::vec;

use crate::address::{Lsap, Mac};

/// Local service access point, remote station and remote service access point, packed into 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    #[inline]
    pub fn new(local: Lsap, mac: Mac, remote: Lsap) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([local.byte(), remote.byte(), a, b, c, d, e, f]))
    }
}

/// A fixed-size hash table with open addressing and linear probing, at most half full. The secret `seed` prevents peers
/// from choosing colliding addresses.
#[derive(Debug)]
pub(crate) struct PeerTable {
    entries: Box<[Option<(Key, u16)>]>,
    seed: u64,
}

impl PeerTable {
    /// A table for at most `capacity` keys.
    pub fn new(capacity: u16, seed: u64) -> Self {
        let size = (2 * usize::from(capacity)).next_power_of_two();
        Self { entries: vec![None; size].into_boxed_slice(), seed: seed | 1 }
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<u16> {
        let mut index = self.home(key);
        loop {
            match self.entries[index] {
                Some((found, slot)) if found == key => return Some(slot),
                Some(_) => index = self.after(index),
                None => return None,
            }
        }
    }

    /// The key must be absent and the table not full.
    pub fn insert(&mut self, key: Key, slot: u16) {
        let mut index = self.home(key);
        while self.entries[index].is_some() {
            index = self.after(index);
        }
        self.entries[index] = Some((key, slot));
    }

    pub fn remove(&mut self, key: Key) {
        let mut hole = self.home(key);
        loop {
            match self.entries[hole] {
                Some((found, _)) if found == key => break,
                Some(_) => hole = self.after(hole),
                None => return,
            }
        }
        // Backward-shift deletion: a later entry fills the hole unless its home bucket lies after the hole.
        let mut index = self.after(hole);
        while let Some((other, _)) = self.entries[index] {
            let from_home = index.wrapping_sub(self.home(other)) & self.mask();
            let from_hole = index.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.entries[hole] = self.entries[index];
                hole = index;
            }
            index = self.after(index);
        }
        self.entries[hole] = None;
    }

    #[inline]
    fn home(&self, key: Key) -> usize {
        let mixed = (key.0 ^ self.seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ self.seed << 1);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) as usize >> 16 & self.mask()
    }

    #[inline]
    fn after(&self, index: usize) -> usize {
        (index + 1) & self.mask()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.entries.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// Compares the table with a `BTreeMap` under the same operations.
        #[test]
        fn table_agrees_with_btree_map(seed: u64, operations in prop::collection::vec((0u8..40, any::<bool>()), 0..300)) {
            let (mut table, mut model) = (PeerTable::new(40, seed), BTreeMap::new());
            for (number, insert) in operations {
                let key = Key(u64::from(number));
                if insert && !model.contains_key(&number) {
                    table.insert(key, u16::from(number) + 7);
                    model.insert(number, u16::from(number) + 7);
                } else if !insert {
                    table.remove(key);
                    model.remove(&number);
                }
                for other in 0..40 {
                    prop_assert_eq!(table.get(Key(u64::from(other))), model.get(&other).copied());
                }
            }
        }
    }
}
