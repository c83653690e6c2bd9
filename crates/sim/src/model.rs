// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Textbook go-back-N: one fixed timeout, an acknowledgement for each message, nothing else. The baseline that the
//! engine must reach.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;

use crate::link::Link;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Message(u64),
    Acknowledgement(u64),
    Timeout(u64),
}

struct Model<'l> {
    link: &'l Link,
    rng: Rng,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    now_ns: u64,
    /// When each direction of the wire becomes idle.
    free_ns: [u64; 2],
    /// Oldest unacknowledged message.
    base: u64,
    /// Next message to send.
    next: u64,
    /// Next message that the receiver accepts.
    expected: u64,
    /// Number of the current timer; earlier ones are stopped.
    timer: u64,
}

/// Messages delivered within the link's duration.
#[must_use]
pub fn delivered(link: &Link, window: u64, timeout_ns: u64, seed: u64) -> u64 {
    let (events, rng) = (BinaryHeap::new(), Rng::with_seed(seed));
    let mut model = Model { link, rng, events, now_ns: 0, free_ns: [0; 2], base: 0, next: 0, expected: 0, timer: 0 };
    model.fill(window, timeout_ns);
    while let Some(Reverse((time, event))) = model.events.pop() {
        if time > link.duration_ns {
            break;
        }
        model.now_ns = time;
        match event {
            Event::Message(number) => {
                model.expected += u64::from(number == model.expected);
                let answer = Event::Acknowledgement(model.expected);
                model.transmit(1, answer, link.short_bytes);
            }
            Event::Acknowledgement(number) if number > model.base => {
                model.base = number;
                model.next = model.next.max(number);
                model.start_timer(timeout_ns);
            }
            Event::Timeout(timer) if timer == model.timer => {
                model.next = model.base;
                model.start_timer(timeout_ns);
            }
            Event::Acknowledgement(_) | Event::Timeout(_) => {}
        }
        model.fill(window, timeout_ns);
    }
    model.expected
}

impl Model<'_> {
    fn fill(&mut self, window: u64, timeout_ns: u64) {
        if self.next == self.base {
            self.start_timer(timeout_ns);
        }
        while self.next < self.base + window {
            self.transmit(0, Event::Message(self.next), self.link.frame_bytes);
            self.next += 1;
        }
    }

    /// The timeout runs from when the wire becomes idle.
    fn start_timer(&mut self, timeout_ns: u64) {
        self.timer += 1;
        let start_ns = self.now_ns.max(self.free_ns[0]);
        self.events.push(Reverse((start_ns + timeout_ns, Event::Timeout(self.timer))));
    }

    fn transmit(&mut self, direction: usize, event: Event, bytes: u64) {
        let free_ns = &mut self.free_ns[direction];
        *free_ns = self.now_ns.max(*free_ns) + self.link.time_ns(bytes);
        if self.rng.f64() >= self.link.loss {
            self.events.push(Reverse((*free_ns + self.link.delay_ns, event)));
        }
    }
}
