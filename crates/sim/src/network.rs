// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wires and the bridge: where frames take time and come to harm.

use std::collections::VecDeque;

use barewire_llc::Mac;
use fastrand::Rng;

use crate::checks::ROUND_OCTET;
use crate::scenario::{Faults, Scenario};

/// A frame: addresses and LLC bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    pub source: Mac,
    pub destination: Mac,
    pub bytes: Vec<u8>,
    /// Bytes that it takes on the wire, preamble and gap included.
    pub wire_bytes: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Wire {
    rate_bit_s: u64,
    delay_ns: u64,
    queue_frames: usize,
    /// When the last frame will have left.
    free_ns: u64,
    /// When each frame that waits or is being sent will have left.
    waiting: VecDeque<u64>,
    /// No frame arrives before it: a wire does not reorder by itself.
    last_arrival_ns: u64,
    is_down_until_ns: u64,
    /// Frames that later ones overtake, and how many more do.
    held: Vec<(Frame, u8)>,
    /// Copies of I PDUs that arrive once more, long after; and the number that the wire must have seen by then.
    late: Vec<(Frame, u16)>,
}

/// Bytes on a wire of a frame without data: 60, check sequence, preamble, gap.
pub const SHORT_FRAME: u64 = 84;
const I_HEADER_BYTES: usize = 4;

impl Wire {
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            rate_bit_s: scenario.rate_bit_s,
            delay_ns: scenario.delay_ns,
            queue_frames: scenario.queue_frames,
            free_ns: 0,
            waiting: VecDeque::new(),
            last_arrival_ns: 0,
            is_down_until_ns: 0,
            held: Vec::new(),
            late: Vec::new(),
        }
    }

    pub fn take_down(&mut self, until_ns: u64) {
        self.is_down_until_ns = until_ns;
    }

    /// Sends a frame; what arrives and when is handed to `arrive`.
    pub fn send(
        &mut self,
        mut frame: Frame,
        now_ns: u64,
        faults: &Faults,
        rng: &mut Rng,
        arrive: &mut impl FnMut(u64, Frame),
    ) {
        while self.waiting.front().is_some_and(|left| *left <= now_ns) {
            self.waiting.pop_front();
        }
        if self.waiting.len() >= self.queue_frames {
            return;
        }
        self.free_ns = self.free_ns.max(now_ns) + frame.wire_bytes * 8 * 1_000_000_000 / self.rate_bit_s;
        self.waiting.push_back(self.free_ns);
        if now_ns < self.is_down_until_ns || rng.f64() < faults.loss {
            return;
        }
        if rng.f64() < faults.garbage {
            damage(&mut frame.bytes, rng);
        }
        // What sets a connection up or ends it is not overtaken: the protocol would take late frames of the
        // connection before for its own, as on no medium that keeps the order it promises.
        let is_numbered = frame.bytes.get(2).is_some_and(|control| control & 3 != 3);
        if !is_numbered {
            for (held, _) in std::mem::take(&mut self.held) {
                self.deliver(held, faults, rng, arrive);
            }
        }
        if faults.lateness > 0.0 {
            self.repeat_late(&frame, faults, rng, arrive);
        }
        let is_repeated = rng.f64() < faults.repetition;
        if is_numbered && rng.f64() < faults.reordering {
            let overtaken_by = rng.u8(1..=faults.overtaken_by);
            if is_repeated {
                self.deliver(frame.clone(), faults, rng, arrive);
            }
            self.held.push((frame, overtaken_by));
            return;
        }
        if is_repeated {
            self.deliver(frame.clone(), faults, rng, arrive);
        }
        self.deliver(frame, faults, rng, arrive);
        let mut index = 0;
        while index < self.held.len() {
            self.held[index].1 -= 1;
            if self.held[index].1 == 0 {
                let (held, _) = self.held.remove(index);
                self.deliver(held, faults, rng, arrive);
            } else {
                index += 1;
            }
        }
    }

    /// Frames that waited to be overtaken arrive after all: faults have stopped.
    pub fn release(&mut self, now_ns: u64, rng: &mut Rng, arrive: &mut impl FnMut(u64, Frame)) {
        self.is_down_until_ns = 0;
        self.free_ns = self.free_ns.max(now_ns);
        for (held, _) in std::mem::take(&mut self.held) {
            self.deliver(held, &Faults::default(), rng, arrive);
        }
        self.late.clear();
    }

    /// Notes some I PDUs, and lets those arrive again whose numbers have come round since. What sets a connection up or
    /// ends it takes the old ones with it, as above.
    fn repeat_late(&mut self, frame: &Frame, faults: &Faults, rng: &mut Rng, arrive: &mut impl FnMut(u64, Frame)) {
        let pair = |frame: &Frame| (frame.source, frame.destination);
        let Some(number) = number_of(frame) else {
            let is_numbered = frame.bytes.get(2).is_some_and(|control| control & 3 != 3);
            self.late.retain(|(late, _)| is_numbered || pair(late) != pair(frame));
            return;
        };
        let is_due = |(late, due): &mut (Frame, u16)| {
            pair(late) == pair(frame) && number.wrapping_sub(*due) % NUMBERS < NUMBERS / 2
        };
        for (late, _) in self.late.extract_if(.., is_due).collect::<Vec<_>>() {
            self.deliver(late, faults, rng, arrive);
        }
        if rng.f64() < faults.lateness {
            self.late.push((frame.clone(), (number + rng.u16(LATE)) % NUMBERS));
        }
    }

    fn deliver(&mut self, frame: Frame, faults: &Faults, rng: &mut Rng, arrive: &mut impl FnMut(u64, Frame)) {
        let jitter = if faults.jitter_ns == 0 { 0 } else { rng.u64(..faults.jitter_ns) };
        self.last_arrival_ns = self.last_arrival_ns.max(self.free_ns + self.delay_ns + jitter);
        arrive(self.last_arrival_ns, frame);
    }
}

/// Numbers of I PDUs, rounds included.
const NUMBERS: u16 = 8192;
/// After how many others a copy arrives that is late. The peer lags behind what the wire has seen by a window at most,
/// and must have had all that is further back.
const LATE: std::ops::RangeInclusive<u16> = 128..=400;

/// The round and the number of an I PDU that tells its round.
fn number_of(frame: &Frame) -> Option<u16> {
    let ns = *frame.bytes.get(2).filter(|control| *control & 1 == 0)?;
    let octet = frame.bytes.get(I_HEADER_BYTES + usize::from(ROUND_OCTET))?;
    Some(u16::from(octet >> 2) * 128 + u16::from(ns >> 1))
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.usize(1..=3) {
        match rng.u8(..8) {
            0 => bytes.truncate(rng.usize(..=bytes.len())),
            1 => bytes.push(rng.u8(..)),
            _ => {
                let place = rng.usize(..=bytes.len().min(5));
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << rng.u8(..8);
                }
            }
        }
    }
}
