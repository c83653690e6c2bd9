// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network between ranks, with rate, delay and faults.

use std::collections::VecDeque;

use barewire_link::{ETHERNET_HEADER_BYTES, MINIMUM_FRAME_BYTES};
use fastrand::Rng;

use super::scenario::{Faults, Scenario};

/// Preamble, FCS and gap.
const WIRE_BYTES: u64 = 24;

/// All links and the switch between them.
pub struct Network {
    pub faults: Faults,
    rng: Rng,
    ranks: usize,
    rate_bit_s: u64,
    delay_ns: u64,
    queue_frames: usize,
    /// Whether short frames are padded.
    pads: bool,
    /// Output queue of each rank.
    egress: Vec<Egress>,
    /// For each ordered pair of ranks: lower bound of the next arrival, unless reordered.
    last_arrivals_ns: Vec<u64>,
}

#[derive(Default)]
struct Egress {
    /// When the last queued frame is transmitted.
    free_ns: u64,
    /// When each queued frame is transmitted.
    queue: VecDeque<u64>,
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
            egress: (0..ranks).map(|_| Egress::default()).collect(),
            last_arrivals_ns: vec![0; ranks * ranks],
            rng,
        }
    }

    /// Transmits a frame; calls `arrive` with the time of each arrival.
    pub fn transmit(
        &mut self,
        from: usize,
        to: usize,
        mut frame: Vec<u8>,
        now_ns: u64,
        arrive: &mut impl FnMut(u64, Vec<u8>),
    ) {
        let egress = &mut self.egress[from];
        while egress.queue.front().is_some_and(|left| *left <= now_ns) {
            egress.queue.pop_front();
        }
        if egress.queue.len() >= self.queue_frames {
            return;
        }
        if self.pads && frame.len() < MINIMUM_FRAME_BYTES {
            frame.resize(MINIMUM_FRAME_BYTES, 0);
        }
        let bits = (frame.len().max(MINIMUM_FRAME_BYTES) as u64 + WIRE_BYTES) * 8;
        egress.free_ns = egress.free_ns.max(now_ns) + bits * 1_000_000_000 / self.rate_bit_s;
        egress.queue.push_back(egress.free_ns);
        let left_ns = egress.free_ns;
        if self.happens(self.faults.loss) {
            return;
        }
        if self.happens(self.faults.corruption) {
            damage(&mut frame, &mut self.rng);
        }
        let path = from * self.ranks + to;
        if self.happens(self.faults.duplication) {
            self.deliver(path, frame.clone(), left_ns, arrive);
        }
        self.deliver(path, frame, left_ns, arrive);
    }

    pub fn stop_faults(&mut self) {
        self.faults = Faults::default();
    }

    fn deliver(&mut self, path: usize, frame: Vec<u8>, left_ns: u64, arrive: &mut impl FnMut(u64, Vec<u8>)) {
        if self.happens(self.faults.reordering) {
            return arrive(left_ns + self.delay_ns + self.rng.u64(..self.faults.reorder_delay_ns), frame);
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

/// Damages a frame after its destination address: flips bits, or truncates it.
fn damage(frame: &mut Vec<u8>, rng: &mut Rng) {
    if rng.u8(..8) == 0 {
        return frame.truncate(rng.usize(ETHERNET_HEADER_BYTES..=frame.len()));
    }
    for _ in 0..rng.usize(1..=3) {
        let index = rng.usize(6..frame.len());
        frame[index] ^= 1 << rng.u8(..8);
    }
}
