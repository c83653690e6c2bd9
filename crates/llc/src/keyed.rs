// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which slot belongs to which pair of service access points.

use alloc::boxed::Box;
use alloc::vec;

use crate::address::{Lsap, Mac};

/// A local service access point, a station, and a service access point there, in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    #[inline]
    pub fn new(local: Lsap, mac: Mac, remote: Lsap) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([local.byte(), remote.byte(), a, b, c, d, e, f]))
    }
}

/// A hash table of fixed size: open addressing, linear probing, at most half full. `seed` keeps strangers
/// from choosing addresses that collide.
#[derive(Debug)]
pub(crate) struct Keyed {
    entries: Box<[Option<(Key, u16)>]>,
    seed: u64,
}

impl Keyed {
    /// For at most `capacity` keys.
    pub fn new(capacity: u16, seed: u64) -> Self {
        let size = (2 * usize::from(capacity)).next_power_of_two();
        Self { entries: vec![None; size].into_boxed_slice(), seed: seed | 1 }
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<u16> {
        let mut place = self.home(key);
        loop {
            match self.entries[place] {
                Some((found, slot)) if found == key => return Some(slot),
                Some(_) => place = self.after(place),
                None => return None,
            }
        }
    }

    /// The key must not be there, and fewer than the capacity must be.
    pub fn insert(&mut self, key: Key, slot: u16) {
        let mut place = self.home(key);
        while self.entries[place].is_some() {
            place = self.after(place);
        }
        self.entries[place] = Some((key, slot));
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
        // Entries after the hole move into it unless they would leave the way from their home.
        let mut place = self.after(hole);
        while let Some((other, _)) = self.entries[place] {
            let from_home = place.wrapping_sub(self.home(other)) & self.mask();
            let from_hole = place.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.entries[hole] = self.entries[place];
                hole = place;
            }
            place = self.after(place);
        }
        self.entries[hole] = None;
    }

    #[inline]
    fn home(&self, key: Key) -> usize {
        let mixed = (key.0 ^ self.seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ self.seed << 1);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) as usize >> 16 & self.mask()
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & self.mask()
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
        /// Proves that the table is a map: the same operations on it and on a `BTreeMap` agree.
        #[test]
        fn it_agrees_with_an_ordered_map(seed: u64, operations in prop::collection::vec((0u8..40, any::<bool>()), 0..300)) {
            let (mut keyed, mut model) = (Keyed::new(40, seed), BTreeMap::new());
            for (number, insert) in operations {
                let key = Key(u64::from(number));
                if insert && !model.contains_key(&number) {
                    keyed.insert(key, u16::from(number) + 7);
                    model.insert(number, u16::from(number) + 7);
                } else if !insert {
                    keyed.remove(key);
                    model.remove(&number);
                }
                for other in 0..40 {
                    prop_assert_eq!(keyed.get(Key(u64::from(other))), model.get(&other).copied());
                }
            }
        }
    }
}
