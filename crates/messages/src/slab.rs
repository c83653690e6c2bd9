// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slab whose keys carry a generation, so that a stale key from a peer is recognised.

/// Key of an entry: its index (low 32 bits) and its slot's generation. The four highest bits are always 0.
pub(crate) type Key = u64;

const GENERATIONS: u32 = 1 << 28;

/// A slab of unbounded size; callers bound it.
pub(crate) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline(always)]
    pub fn add(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.1 = Some(value);
        key(entry.0, index)
    }

    #[inline]
    pub fn get(&mut self, key: Key) -> Option<&mut T> {
        let (generation, value) = self.entries.get_mut(key as u32 as usize)?;
        if u64::from(*generation) == key >> 32 { value.as_mut() } else { None }
    }

    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.vacate(key)?.take()
    }

    /// Drops an entry in place.
    #[inline(always)]
    pub fn free(&mut self, key: Key) {
        if let Some(value) = self.vacate(key) {
            *value = None;
        }
    }

    /// Frees an entry's slot; the caller takes the value out.
    #[inline]
    fn vacate(&mut self, key: Key) -> Option<&mut Option<T>> {
        let (generation, value) = self.entries.get_mut(key as u32 as usize)?;
        if u64::from(*generation) != key >> 32 || value.is_none() {
            return None;
        }
        *generation = (*generation + 1) % GENERATIONS;
        self.free.push(key as u32);
        Some(value)
    }

    /// Keys of the entries for which `predicate` holds, in order of index.
    pub fn keys_where(&self, mut predicate: impl FnMut(&T) -> bool) -> Vec<Key> {
        let selected = |(index, (generation, value)): (u32, &(u32, Option<T>))| {
            value.as_ref().is_some_and(&mut predicate).then(|| key(*generation, index))
        };
        (0..).zip(&self.entries).filter_map(selected).collect()
    }
}

fn key(generation: u32, index: u32) -> Key {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_is_recognised_and_its_slot_reused() {
        let mut slab = Slab::new();
        let first = slab.add('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.add('c');
        assert!(slab.get(first).is_none() && slab.remove(first).is_none());
        assert_eq!((slab.get(second).copied(), slab.len()), (Some('c'), 1));
        assert_eq!(slab.get(1 << 40 | 7), None);
    }
}
