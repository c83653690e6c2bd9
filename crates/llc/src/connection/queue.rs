// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's tokens from `send` until they are handed back.

use alloc::boxed::Box;

/// A ring under absolute, wrapping indices; its capacity is a power of two. `T` is never cloned.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    slots: Box<[Option<T>]>,
    /// All before it were handed back.
    drained: u32,
}

impl<T> Queue<T> {
    pub fn new(capacity: u16) -> Self {
        Self { slots: (0..capacity).map(|_| None).collect(), drained: 0 }
    }

    #[inline]
    pub fn has_room(&self, queued: u32) -> bool {
        self.room(queued) > 0
    }

    /// Tokens that there is room for.
    #[inline]
    pub fn room(&self, queued: u32) -> usize {
        self.slots.len() - queued.wrapping_sub(self.drained) as usize
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

    /// The oldest token, with its index, if it lies before `end`.
    #[inline]
    pub fn drain(&mut self, end: u32) -> Option<(u32, T)> {
        if self.drained == end {
            return None;
        }
        let index = self.drained;
        self.drained = index.wrapping_add(1);
        let slot = self.slot(index);
        self.slots[slot].take().map(|token| (index, token))
    }

    pub fn is_drained(&self, end: u32) -> bool {
        self.drained == end
    }

    #[inline]
    fn slot(&self, index: u32) -> usize {
        index as usize & (self.slots.len() - 1)
    }
}
