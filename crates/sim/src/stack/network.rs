// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens to frames between two ranks.

use std::collections::VecDeque;

use barewire_link::{ETHERNET_HEADER_BYTES, MINIMUM_FRAME_BYTES};
use fastrand::Rng;

use super::scenario::{Faults, Scenario};

/// Preamble, gap and frame check sequence.
const WIRE_BYTES: u64 = 24;

/// All links and the switch between them.
pub struct Network {
    pub faults: Faults,
    rng: Rng,
    ranks: usize,
    rate_bit_s: u64,
    delay_ns: u64,
    queue_frames: usize,
    /// Whether frames arrive as Ethernet pads them.
    pads: bool,
    /// What waits to leave each rank.
    leaving: Vec<Leaving>,
    /// From each rank to each: no frame arrives before it, unless it is late.
    last_arrivals_ns: Vec<u64>,
}

#[derive(Default)]
struct Leaving {
    /// When the last frame will have left.
    free_ns: u64,
    /// When each frame that waits or is being sent will have left.
    waiting: VecDeque<u64>,
}

impl Network {
    pub fn new(scenario: &Scenario, mut rng: Rng) -> Self {
        let ranks = scenario.ranks();
        Self {
            faults: scenario.faults,
            ranks,
            rate_bit_s: scenario.rate_bit_s,
            delay_ns: scenario.delay_ns,
            queue_frames: scenario.queue_frames,
            pads: rng.bool(),
            leaving: (0..ranks).map(|_| Leaving::default()).collect(),
            last_arrivals_ns: vec![0; ranks * ranks],
            rng,
        }
    }

    /// Carries a frame; what arrives and when is handed to `arrive`.
    pub fn carry(
        &mut self,
        from: usize,
        to: usize,
        mut frame: Vec<u8>,
        now_ns: u64,
        arrive: &mut impl FnMut(u64, Vec<u8>),
    ) {
        let leaving = &mut self.leaving[from];
        while leaving.waiting.front().is_some_and(|left| *left <= now_ns) {
            leaving.waiting.pop_front();
        }
        if leaving.waiting.len() >= self.queue_frames {
            return;
        }
        if self.pads && frame.len() < MINIMUM_FRAME_BYTES {
            frame.resize(MINIMUM_FRAME_BYTES, 0);
        }
        let bits = (frame.len().max(MINIMUM_FRAME_BYTES) as u64 + WIRE_BYTES) * 8;
        leaving.free_ns = leaving.free_ns.max(now_ns) + bits * 1_000_000_000 / self.rate_bit_s;
        leaving.waiting.push_back(leaving.free_ns);
        let left_ns = leaving.free_ns;
        if self.happens(self.faults.loss) {
            return;
        }
        if self.happens(self.faults.corruption) {
            damage(&mut frame, &mut self.rng);
        }
        let path = from * self.ranks + to;
        if self.happens(self.faults.repetition) {
            self.deliver(path, frame.clone(), left_ns, arrive);
        }
        self.deliver(path, frame, left_ns, arrive);
    }

    /// Faults stop.
    pub fn quiet(&mut self) {
        self.faults = Faults::default();
    }

    fn deliver(&mut self, path: usize, frame: Vec<u8>, left_ns: u64, arrive: &mut impl FnMut(u64, Vec<u8>)) {
        if self.happens(self.faults.reordering) {
            return arrive(left_ns + self.delay_ns + self.rng.u64(..self.faults.lateness_ns), frame);
        }
        let jitter = if self.faults.jitter_ns == 0 { 0 } else { self.rng.u64(..self.faults.jitter_ns) };
        let last_ns = &mut self.last_arrivals_ns[path];
        *last_ns = (*last_ns).max(left_ns + self.delay_ns + jitter);
        arrive(*last_ns, frame);
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.f64() < probability
    }
}

/// Damages what lies behind the destination: flips bits, or cuts the end.
fn damage(frame: &mut Vec<u8>, rng: &mut Rng) {
    if rng.u8(..8) == 0 {
        return frame.truncate(rng.usize(ETHERNET_HEADER_BYTES..=frame.len()));
    }
    for _ in 0..rng.usize(1..=3) {
        let place = rng.usize(6..frame.len());
        frame[place] ^= 1 << rng.u8(..8);
    }
}
