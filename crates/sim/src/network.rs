// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wires and the bridge: where frames take time and come to harm.

use std::collections::VecDeque;

use barewire_llc::Mac;
use barewire_llc::extension::{CHECK, Extra};
use fastrand::Rng;

use crate::scenario::{Faults, Scenario};

/// A frame: addresses, LLC bytes and what lies behind them.
#[derive(Clone, Debug)]
pub struct Frame {
    pub source: Mac,
    pub destination: Mac,
    pub bytes: Vec<u8>,
    pub behind: Vec<u8>,
    /// Bytes that it takes on the wire, preamble and gap included.
    pub wire_bytes: u64,
    /// The check of an extended station would show it.
    pub is_damaged: bool,
}

impl Frame {
    /// A station's, with what it adds in front of the information, if it has one, or behind.
    pub fn new(
        source: Mac,
        destination: Mac,
        header: &[u8],
        extra: Extra,
        information: Option<&[u8]>,
        wire_bytes: u64,
    ) -> Self {
        let extension = extension(extra);
        let (bytes, behind) = match information {
            Some(information) => ([header, &extension, information].concat(), Vec::new()),
            None => (header.to_vec(), extension),
        };
        Self { source, destination, bytes, behind, wire_bytes, is_damaged: false }
    }
}

/// What a station adds to a PDU: a check that nobody computes, since the world knows what is damaged, and the rest.
pub fn extension(extra: Extra) -> Vec<u8> {
    if extra.is_none() { Vec::new() } else { [&[0; CHECK], extra.as_bytes()].concat() }
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
    /// Copies of frames that arrive once more, long after: when so many others have been sent.
    late: Vec<(Frame, u16)>,
    is_extended: bool,
}

/// Bytes on a wire of a frame without data: 60, check sequence, preamble, gap.
pub const SHORT_FRAME: u64 = 84;
/// After how many others a copy arrives that is late: up to some rounds of N(S), and into later connections.
const LATE: std::ops::RangeInclusive<u16> = 1..=1000;

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
            is_extended: scenario.station.connection.is_extended,
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
            frame.is_damaged = self.is_extended;
        }
        // Of stations that have nothing but LLC, what sets a connection up or ends it is not overtaken: the protocol would
        // take late frames of the connection before for its own, as on no medium that keeps the order it promises.
        // Datagrams are told from their repetitions by one bit.
        let is_numbered = frame.bytes.get(2).is_some_and(|control| control & 3 != 3);
        let can_be_late = is_numbered || self.is_extended && !is_datagram(&frame);
        if !can_be_late {
            for (held, _) in std::mem::take(&mut self.held) {
                self.deliver(held, faults, rng, arrive);
            }
        }
        if faults.lateness > 0.0 {
            self.repeat_late(&frame, can_be_late, faults, rng, arrive);
        }
        let is_repeated = rng.f64() < faults.repetition;
        if can_be_late && rng.f64() < faults.reordering {
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

    /// Notes some frames, and lets those arrive again that are late enough.
    fn repeat_late(
        &mut self,
        frame: &Frame,
        can_be_late: bool,
        faults: &Faults,
        rng: &mut Rng,
        arrive: &mut impl FnMut(u64, Frame),
    ) {
        self.late.iter_mut().for_each(|(_, left)| *left -= 1);
        for (late, _) in self.late.extract_if(.., |(_, left)| *left == 0).collect::<Vec<_>>() {
            self.deliver(late, faults, rng, arrive);
        }
        if can_be_late && rng.f64() < faults.lateness {
            self.late.push((frame.clone(), rng.u16(LATE)));
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
                let place = rng.usize(..=bytes.len().min(5));
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << rng.u8(..8);
                }
            }
        }
    }
}
