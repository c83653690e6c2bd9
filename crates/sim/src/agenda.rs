// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of a world, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of events. Events of equal time leave in the order in which they were scheduled.
pub struct Agenda<E> {
    /// By time, then by key: sequence number in the high 32 bits, slot in the low 32.
    order: BinaryHeap<Reverse<(u64, u64)>>,
    slots: Vec<Option<E>>,
    free_slots: Vec<usize>,
    sequence: u64,
}

impl<E> Agenda<E> {
    pub fn new() -> Self {
        Self { order: BinaryHeap::new(), slots: Vec::new(), free_slots: Vec::new(), sequence: 0 }
    }

    pub fn schedule(&mut self, time_ns: u64, event: E) {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.sequence += 1;
        self.order.push(Reverse((time_ns, self.sequence << 32 | slot as u64)));
    }

    /// The next event and its time.
    pub fn next(&mut self) -> Option<(u64, E)> {
        let Reverse((time_ns, key)) = self.order.pop()?;
        let slot = key as u32 as usize;
        self.free_slots.push(slot);
        Some((time_ns, self.slots[slot].take().expect("a scheduled slot holds its event")))
    }
}
