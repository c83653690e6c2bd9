// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A binary heap of deadlines, indexed by slot.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::time::Instant;

/// At most one deadline for each slot.
#[derive(Debug)]
pub(crate) struct Deadlines {
    heap: Vec<(Instant, u16)>,
    /// Heap position of each slot, or `ABSENT`.
    positions: Box<[u16]>,
}

const ABSENT: u16 = u16::MAX;

impl Deadlines {
    /// For slots below `capacity`.
    pub fn new(capacity: u16) -> Self {
        Self {
            heap: Vec::with_capacity(usize::from(capacity)),
            positions: vec![ABSENT; usize::from(capacity)].into_boxed_slice(),
        }
    }

    #[inline]
    pub fn earliest(&self) -> Instant {
        self.heap.first().map_or(Instant::NEVER, |entry| entry.0)
    }

    /// The earliest deadline and its slot.
    pub fn first(&self) -> Option<(Instant, u16)> {
        self.heap.first().copied()
    }

    /// Schedules the slot at `deadline` or earlier. A deadline later than the scheduled one is ignored: the slot
    /// wakes early and reschedules itself. Most PDUs only postpone timers and so leave the heap unchanged.
    #[inline]
    pub fn wake_by(&mut self, slot: u16, deadline: Instant) {
        if deadline == Instant::NEVER {
            return;
        }
        let position = self.positions[usize::from(slot)];
        if position == ABSENT {
            self.heap.push((deadline, slot));
            self.positions[usize::from(slot)] = (self.heap.len() - 1) as u16;
            self.rise(self.heap.len() - 1);
        } else if deadline < self.heap[usize::from(position)].0 {
            self.heap[usize::from(position)].0 = deadline;
            self.rise(usize::from(position));
        }
    }

    /// Removes and returns the slot with the earliest deadline if that has passed.
    pub fn pop(&mut self, now: Instant) -> Option<u16> {
        let (deadline, slot) = *self.heap.first()?;
        (deadline <= now).then(|| {
            self.remove(slot);
            slot
        })
    }

    pub fn remove(&mut self, slot: u16) {
        let position = usize::from(core::mem::replace(&mut self.positions[usize::from(slot)], ABSENT));
        if position == usize::from(ABSENT) {
            return;
        }
        self.heap.swap_remove(position);
        if let Some((_, moved)) = self.heap.get(position) {
            self.positions[usize::from(*moved)] = position as u16;
            self.sink(position);
            self.rise(position);
        }
    }

    fn rise(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].0 <= self.heap[position].0 {
                break;
            }
            self.swap(position, parent);
            position = parent;
        }
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let children = 2 * position + 1..(2 * position + 3).min(self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child].0) else { break };
            if self.heap[position].0 <= self.heap[child].0 {
                break;
            }
            self.swap(position, child);
            position = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for position in [a, b] {
            self.positions[usize::from(self.heap[position].1)] = position as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// Compares the heap with a linear search.
        #[test]
        fn slots_pop_in_order_of_deadline(operations in prop::collection::vec((0u16..20, 0u64..100, 0u8..4), 0..200)) {
            let (mut deadlines, mut model) = (Deadlines::new(20), BTreeMap::<u16, u64>::new());
            for (slot, time, operation) in operations {
                match operation {
                    0 => {
                        deadlines.remove(slot);
                        model.remove(&slot);
                    }
                    1 => {
                        let popped = deadlines.pop(Instant::from_nanos(time));
                        let due = model.values().min().is_some_and(|earliest| *earliest <= time);
                        prop_assert_eq!(popped.is_some(), due);
                        if let Some(slot) = popped {
                            let removed = model.remove(&slot);
                            prop_assert!(model.values().all(|other| Some(*other) >= removed));
                        }
                    }
                    _ => {
                        deadlines.wake_by(slot, Instant::from_nanos(time));
                        let entry = model.entry(slot).or_insert(time);
                        *entry = time.min(*entry);
                    }
                }
                let earliest = model.values().min().map_or(Instant::NEVER, |time| Instant::from_nanos(*time));
                prop_assert_eq!(deadlines.earliest(), earliest);
            }
        }
    }
}
