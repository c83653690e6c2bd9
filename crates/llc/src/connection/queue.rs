// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Send queue: the user's tokens from `send` until they are returned.

use alloc::boxed::Box;

/// A ring buffer with absolute, wrapping indices; the capacity is a power of two. `T` is never cloned.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    slots: Box<[Option<T>]>,
    /// Index of the first token that was not returned.
    returned: u32,
}

impl<T> Queue<T> {
    pub fn new(capacity: u16) -> Self {
        Self { slots: (0..capacity).map(|_| None).collect(), returned: 0 }
    }

    #[inline]
    pub fn has_room(&self, queued: u32) -> bool {
        self.room(queued) > 0
    }

    /// Number of free slots.
    #[inline]
    pub fn room(&self, queued: u32) -> usize {
        self.slots.len() - queued.wrapping_sub(self.returned) as usize
    }

    #[inline]
    pub fn put(&mut self, index: u32, token: T) {
        let slot = self.slot(index);
        self.slots[slot] = Some(token);
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.slots[self.slot(index)].as_ref()
    }

    /// Removes the oldest token and its index if that is before `end`.
    #[inline]
    pub fn drain(&mut self, end: u32) -> Option<(u32, T)> {
        if self.returned == end {
            return None;
        }
        let index = self.returned;
        self.returned = index.wrapping_add(1);
        let slot = self.slot(index);
        self.slots[slot].take().map(|token| (index, token))
    }

    pub fn is_empty_before(&self, end: u32) -> bool {
        self.returned == end
    }

    #[inline]
    fn slot(&self, index: u32) -> usize {
        index as usize & (self.slots.len() - 1)
    }
}
