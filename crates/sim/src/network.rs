// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wires, with rate, delay and faults.

use std::collections::VecDeque;

use barewire_llc::Mac;
use barewire_llc::extension::{CHECK, Extra};
use fastrand::Rng;

use crate::scenario::{Faults, Scenario};

/// A frame: addresses, LLC PDU and trailing bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    pub source: Mac,
    pub destination: Mac,
    pub bytes: Vec<u8>,
    pub trailer: Vec<u8>,
    /// Bytes on the wire, preamble and gap included.
    pub wire_bytes: u64,
    /// An extended station's check detects the damage.
    pub is_damaged: bool,
}

impl Frame {
    /// A station's frame, with its extension before the information field, or as trailer if there is none.
    pub fn new(
        source: Mac,
        destination: Mac,
        header: &[u8],
        extra: Extra,
        information: Option<&[u8]>,
        wire_bytes: u64,
    ) -> Self {
        let extension = extension(extra);
        let (bytes, trailer) = match information {
            Some(information) => ([header, &extension, information].concat(), Vec::new()),
            None => (header.to_vec(), extension),
        };
        Self { source, destination, bytes, trailer, wire_bytes, is_damaged: false }
    }
}

/// A station's extension of a PDU. Its check is not computed: the simulation marks damaged frames instead.
pub fn extension(extra: Extra) -> Vec<u8> {
    if extra.is_none() { Vec::new() } else { [&[0; CHECK], extra.as_bytes()].concat() }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Wire {
    rate_bit_s: u64,
    delay_ns: u64,
    queue_frames: usize,
    /// When the last queued frame is transmitted.
    free_ns: u64,
    /// When each queued frame is transmitted.
    queue: VecDeque<u64>,
    /// Lower bound of the next arrival: without faults a wire keeps the order.
    last_arrival_ns: u64,
    is_down_until_ns: u64,
    /// Frames being reordered, and how many more frames overtake each.
    overtaken: Vec<(Frame, u8)>,
    /// Late duplicates, and after how many more frames each arrives.
    late: Vec<(Frame, u16)>,
    is_extended: bool,
}

/// Wire bytes of a minimum frame: 60, FCS, preamble and gap.
pub const SHORT_FRAME: u64 = 84;
/// How many frames later a late duplicate arrives: up to several cycles of N(S), and into later connections.
const LATE_AFTER_FRAMES: std::ops::RangeInclusive<u16> = 1..=1000;

impl Wire {
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            rate_bit_s: scenario.rate_bit_s,
            delay_ns: scenario.delay_ns,
            queue_frames: scenario.queue_frames,
            free_ns: 0,
            queue: VecDeque::new(),
            last_arrival_ns: 0,
            is_down_until_ns: 0,
            overtaken: Vec::new(),
            late: Vec::new(),
            is_extended: scenario.station.connection.is_extended,
        }
    }

    pub fn take_down(&mut self, until_ns: u64) {
        self.is_down_until_ns = until_ns;
    }

    /// Sends a frame; calls `arrive` with the time of each arrival.
    pub fn send(
        &mut self,
        mut frame: Frame,
        now_ns: u64,
        faults: &Faults,
        rng: &mut Rng,
        arrive: &mut impl FnMut(u64, Frame),
    ) {
        while self.queue.front().is_some_and(|left| *left <= now_ns) {
            self.queue.pop_front();
        }
        if self.queue.len() >= self.queue_frames {
            return;
        }
        self.free_ns = self.free_ns.max(now_ns) + frame.wire_bytes * 8 * 1_000_000_000 / self.rate_bit_s;
        self.queue.push_back(self.free_ns);
        if now_ns < self.is_down_until_ns || rng.f64() < faults.loss {
            return;
        }
        if rng.f64() < faults.undetected_corruption {
            damage(&mut frame.bytes, rng);
            frame.is_damaged = self.is_extended;
        }
        // Between stations without the extension, unnumbered PDUs are not overtaken: LLC assumes a medium that keeps
        // the order, and would take a late I PDU of the previous connection for one of the current. Type 3 detects
        // duplicates by a single bit, so its datagrams are never reordered.
        let is_numbered = frame.bytes.get(2).is_some_and(|control| control & 3 != 3);
        let can_be_reordered = is_numbered || self.is_extended && !is_datagram(&frame);
        if !can_be_reordered {
            for (overtaken, _) in std::mem::take(&mut self.overtaken) {
                self.deliver(overtaken, faults, rng, arrive);
            }
        }
        if faults.late_duplication > 0.0 {
            self.duplicate_late(&frame, can_be_reordered, faults, rng, arrive);
        }
        let is_duplicated = rng.f64() < faults.duplication;
        if can_be_reordered && rng.f64() < faults.reordering {
            let reorder_distance = rng.u8(1..=faults.reorder_distance);
            if is_duplicated {
                self.deliver(frame.clone(), faults, rng, arrive);
            }
            self.overtaken.push((frame, reorder_distance));
            return;
        }
        if is_duplicated {
            self.deliver(frame.clone(), faults, rng, arrive);
        }
        self.deliver(frame, faults, rng, arrive);
        let mut index = 0;
        while index < self.overtaken.len() {
            self.overtaken[index].1 -= 1;
            if self.overtaken[index].1 == 0 {
                let (overtaken, _) = self.overtaken.remove(index);
                self.deliver(overtaken, faults, rng, arrive);
            } else {
                index += 1;
            }
        }
    }

    /// Ends all faults: delivers the frames being reordered, and discards late duplicates.
    pub fn release(&mut self, now_ns: u64, rng: &mut Rng, arrive: &mut impl FnMut(u64, Frame)) {
        self.is_down_until_ns = 0;
        self.free_ns = self.free_ns.max(now_ns);
        for (overtaken, _) in std::mem::take(&mut self.overtaken) {
            self.deliver(overtaken, &Faults::default(), rng, arrive);
        }
        self.late.clear();
    }

    /// Delivers due late duplicates, and with some probability stores a copy of this frame as one.
    fn duplicate_late(
        &mut self,
        frame: &Frame,
        can_be_reordered: bool,
        faults: &Faults,
        rng: &mut Rng,
        arrive: &mut impl FnMut(u64, Frame),
    ) {
        self.late.iter_mut().for_each(|(_, left)| *left -= 1);
        for (late, _) in self.late.extract_if(.., |(_, left)| *left == 0).collect::<Vec<_>>() {
            self.deliver(late, faults, rng, arrive);
        }
        if can_be_reordered && rng.f64() < faults.late_duplication {
            self.late.push((frame.clone(), rng.u16(LATE_AFTER_FRAMES)));
        }
    }

    fn deliver(&mut self, frame: Frame, faults: &Faults, rng: &mut Rng, arrive: &mut impl FnMut(u64, Frame)) {
        let jitter = if faults.jitter_ns == 0 { 0 } else { rng.u64(..faults.jitter_ns) };
        self.last_arrival_ns = self.last_arrival_ns.max(self.free_ns + self.delay_ns + jitter);
        arrive(self.last_arrival_ns, frame);
    }
}

/// Whether a frame carries an acknowledged datagram or its acknowledgement.
fn is_datagram(frame: &Frame) -> bool {
    frame.bytes.get(2).is_some_and(|control| control & 0x6f == 0x67)
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.usize(1..=3) {
        match rng.u8(..8) {
            0 => bytes.truncate(rng.usize(..=bytes.len())),
            1 => bytes.push(rng.u8(..)),
            _ => {
                let index = rng.usize(..=bytes.len().min(5));
                if let Some(byte) = bytes.get_mut(index) {
                    *byte ^= 1 << rng.u8(..8);
                }
            }
        }
    }
}
