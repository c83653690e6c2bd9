// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network between ranks, with rate, delay and faults.

use std::collections::VecDeque;

use barewire_link::{ETHERNET_HEADER_BYTES, MINIMUM_FRAME_BYTES};
use fastrand::Rng;

use super::labelled::{LabelledPath, LabelledPaths};
use super::link::{DEVICES, UDP};
use super::scenario::{Faults, Scenario};

/// Preamble, FCS and gap.
const WIRE_BYTES: u64 = 24;

/// A rank's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub rank: usize,
    pub device: usize,
}

impl End {
    fn index(self) -> usize {
        self.rank * DEVICES + self.device
    }
}

/// From where to where a frame goes, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    pub from: End,
    pub to: End,
    pub rate_bit_s: u64,
    pub delay_ns: u64,
    /// The label of its frame, 0 without.
    pub label: u16,
    /// Whether its frame was sent in one piece with others.
    pub is_in_batch: bool,
}

/// All links and the switch between them.
pub struct Network {
    pub faults: Faults,
    rng: Rng,
    devices: usize,
    queue_frames: usize,
    /// Whether short frames are padded.
    pads: bool,
    /// Output queue of each device.
    egress: Vec<Egress>,
    /// For each ordered pair of devices, and path between them: lower bound of the next arrival, unless reordered.
    last_arrivals_ns: Vec<u64>,
    /// The paths of labelled frames.
    labelled: Option<LabelledPaths>,
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
        let devices = scenario.ranks() * DEVICES;
        let paths = 1 + scenario.labelled.as_ref().map_or(0, |labelled| labelled.paths.len());
        Self {
            faults: scenario.faults,
            devices,
            queue_frames: scenario.queue_frames,
            pads: rng.bool(),
            egress: (0..devices).map(|_| Egress::default()).collect(),
            last_arrivals_ns: vec![0; devices * devices * paths],
            labelled: scenario.labelled.clone(),
            rng,
        }
    }

    /// Transmits a frame; calls `arrive` with the time of each arrival.
    pub fn transmit(&mut self, lane: &Lane, mut frame: Vec<u8>, now_ns: u64, arrive: &mut impl FnMut(u64, Vec<u8>)) {
        let egress = &mut self.egress[lane.from.index()];
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
        egress.free_ns = egress.free_ns.max(now_ns) + bits * 1_000_000_000 / lane.rate_bit_s;
        egress.queue.push_back(egress.free_ns);
        let left_ns = egress.free_ns;
        if self.path(lane).is_some_and(|path| path.is_dead(left_ns)) {
            return;
        }
        if self.happens(self.faults.loss) {
            return;
        }
        if self.happens(self.faults.corruption) {
            if lane.to.device == UDP {
                // Its checksum is wrong.
                return;
            }
            damage(&mut frame, &mut self.rng);
        }
        if self.happens(self.faults.duplication) {
            self.deliver(lane, frame.clone(), left_ns, arrive);
        }
        self.deliver(lane, frame, left_ns, arrive);
    }

    pub fn stop_faults(&mut self) {
        self.faults = Faults::default();
    }

    fn deliver(&mut self, lane: &Lane, frame: Vec<u8>, left_ns: u64, arrive: &mut impl FnMut(u64, Vec<u8>)) {
        if self.happens(self.faults.reordering) {
            return arrive(left_ns + lane.delay_ns + self.rng.u64(..self.faults.reorder_delay_ns), frame);
        }
        let path_ns = self.path(lane).map_or(0, |path| path.delay_ns);
        let number = self.labelled.as_ref().map_or(0, |labelled| labelled.number(lane.label));
        let jitter = if self.faults.jitter_ns == 0 { 0 } else { self.rng.u64(..self.faults.jitter_ns) };
        let pair = lane.from.index() * self.devices + lane.to.index();
        let last_ns = &mut self.last_arrivals_ns[number * self.devices * self.devices + pair];
        *last_ns = (*last_ns).max(left_ns + lane.delay_ns + path_ns + jitter);
        arrive(*last_ns, frame);
    }

    fn path(&self, lane: &Lane) -> Option<&LabelledPath> {
        let labelled = self.labelled.as_ref()?;
        labelled.paths.get(labelled.number(lane.label).checked_sub(1)?)
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
