// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFO queue of slots, each queued at most once.

use alloc::boxed::Box;
use alloc::vec;

/// A list of slots linked through an array, without allocation after construction.
#[derive(Debug)]
pub(crate) struct SlotQueue {
    /// Successor of each slot: itself if it is the last, `ABSENT` if it is not queued.
    next: Box<[u16]>,
    first: u16,
    last: u16,
}

const ABSENT: u16 = u16::MAX;

impl SlotQueue {
    /// For slots below `capacity`.
    pub fn new(capacity: u16) -> Self {
        Self { next: vec![ABSENT; usize::from(capacity)].into_boxed_slice(), first: ABSENT, last: ABSENT }
    }

    #[inline]
    pub fn first(&self) -> Option<u16> {
        if self.first == ABSENT { None } else { Some(self.first) }
    }

    /// Does nothing if the slot is already queued.
    #[inline]
    pub fn push(&mut self, slot: u16) {
        if self.next[usize::from(slot)] != ABSENT {
            return;
        }
        self.next[usize::from(slot)] = slot;
        if self.first == ABSENT {
            self.first = slot;
        } else {
            self.next[usize::from(self.last)] = slot;
        }
        self.last = slot;
    }

    #[inline]
    pub fn pop(&mut self) -> Option<u16> {
        let slot = self.first()?;
        let next = core::mem::replace(&mut self.next[usize::from(slot)], ABSENT);
        if next == slot {
            (self.first, self.last) = (ABSENT, ABSENT);
        } else {
            self.first = next;
        }
        Some(slot)
    }

    /// Moves the first slot to the end.
    #[inline]
    pub fn rotate(&mut self) {
        if self.first != self.last {
            let slot = self.pop();
            slot.into_iter().for_each(|slot| self.push(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_in_order_and_are_queued_once() {
        let mut queue = SlotQueue::new(4);
        [2, 0, 2, 3].into_iter().for_each(|slot| queue.push(slot));
        queue.rotate();
        assert_eq!([queue.pop(), queue.pop(), queue.pop(), queue.pop()], [Some(0), Some(3), Some(2), None]);
        queue.push(1);
        queue.rotate();
        assert_eq!([queue.pop(), queue.pop()], [Some(1), None]);
    }
}
