// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The earliest of many deadlines: a binary heap that knows where each slot stands.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::time::Instant;

/// At most one deadline for each slot.
#[derive(Debug)]
pub(crate) struct Deadlines {
    heap: Vec<(Instant, u16)>,
    /// Where a slot stands in the heap.
    places: Box<[u16]>,
}

const NOWHERE: u16 = u16::MAX;

impl Deadlines {
    /// For slots below `capacity`.
    pub fn new(capacity: u16) -> Self {
        Self {
            heap: Vec::with_capacity(usize::from(capacity)),
            places: vec![NOWHERE; usize::from(capacity)].into_boxed_slice(),
        }
    }

    #[inline]
    pub fn earliest(&self) -> Instant {
        self.heap.first().map_or(Instant::NEVER, |entry| entry.0)
    }

    /// The slot whose deadline is the earliest.
    pub fn first(&self) -> Option<(Instant, u16)> {
        self.heap.first().copied()
    }

    /// Wakes the slot at `deadline` or before. A later deadline than the present one is not noted: the slot
    /// wakes early, and says then what it really wants. So most PDUs, which only put timers off, cost nothing.
    #[inline]
    pub fn wake_by(&mut self, slot: u16, deadline: Instant) {
        if deadline == Instant::NEVER {
            return;
        }
        let place = self.places[usize::from(slot)];
        if place == NOWHERE {
            self.heap.push((deadline, slot));
            self.places[usize::from(slot)] = (self.heap.len() - 1) as u16;
            self.rise(self.heap.len() - 1);
        } else if deadline < self.heap[usize::from(place)].0 {
            self.heap[usize::from(place)].0 = deadline;
            self.rise(usize::from(place));
        }
    }

    /// Takes the slot whose deadline is the earliest, if that has come.
    pub fn pop(&mut self, now: Instant) -> Option<u16> {
        let (deadline, slot) = *self.heap.first()?;
        (deadline <= now).then(|| {
            self.remove(slot);
            slot
        })
    }

    pub fn remove(&mut self, slot: u16) {
        let place = usize::from(core::mem::replace(&mut self.places[usize::from(slot)], NOWHERE));
        if place == usize::from(NOWHERE) {
            return;
        }
        self.heap.swap_remove(place);
        if let Some((_, moved)) = self.heap.get(place) {
            self.places[usize::from(*moved)] = place as u16;
            self.sink(place);
            self.rise(place);
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= self.heap[place].0 {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child].0) else { break };
            if self.heap[place].0 <= self.heap[child].0 {
                break;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.places[usize::from(self.heap[place].1)] = place as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// Proves that the heap pops what a plain search would, in order of time.
        #[test]
        fn it_pops_in_order(operations in prop::collection::vec((0u16..20, 0u64..100, 0u8..4), 0..200)) {
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
