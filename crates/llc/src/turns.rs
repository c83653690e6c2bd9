// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose turn it is: slots in order of arrival, each at most once.

use alloc::boxed::Box;
use alloc::vec;

/// A list of slots, linked through an array: nothing is allocated after set-up.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The slot behind each slot; itself if it is the last, `ABSENT` if it is not in the list.
    next: Box<[u16]>,
    first: u16,
    last: u16,
}

const ABSENT: u16 = u16::MAX;

impl Turns {
    /// For slots below `capacity`.
    pub fn new(capacity: u16) -> Self {
        Self { next: vec![ABSENT; usize::from(capacity)].into_boxed_slice(), first: ABSENT, last: ABSENT }
    }

    #[inline]
    pub fn first(&self) -> Option<u16> {
        if self.first == ABSENT { None } else { Some(self.first) }
    }

    /// Does nothing if the slot already waits.
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

    /// The first slot goes behind all others.
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
    fn slots_take_turns_and_wait_only_once() {
        let mut turns = Turns::new(4);
        [2, 0, 2, 3].into_iter().for_each(|slot| turns.push(slot));
        turns.rotate();
        assert_eq!([turns.pop(), turns.pop(), turns.pop(), turns.pop()], [Some(0), Some(3), Some(2), None]);
        turns.push(1);
        turns.rotate();
        assert_eq!([turns.pop(), turns.pop()], [Some(1), None]);
    }
}
