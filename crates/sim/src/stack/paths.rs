// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the faults of carriers do to a frame: it is lost, or held and released later.

use std::collections::HashMap;

use barewire_endpoint::parse;
use barewire_link::ETHERNET_HEADER_BYTES;
use fastrand::Rng;

use super::link::UDP;
use super::network::Lane;
use super::topology::{Failure, Topology};

/// Most frames held at the same time.
const HELD_MAX: usize = 400;
/// Octets of an I PDU before the guard, and of the mark behind it.
const I_OCTETS: usize = 4;
const MARK_OCTETS: usize = 8;

/// What happens to a frame.
pub enum Fate {
    Passes,
    Lost,
    /// Because it is too long, or in a batch.
    LostAsLong,
    Held {
        until_ns: u64,
    },
}

/// A frame, held until its N(S) is used again.
struct Held {
    /// The receiver's device.
    device: usize,
    frame: Vec<u8>,
    /// I PDUs that its sender had sent to the receiver.
    sent: u64,
}

/// A number is not reused within this many I PDUs: half of all numbers.
const ROUND: u64 = 1 << 13;

/// The paths between stations.
pub struct Paths {
    pub topology: Topology,
    rng: Rng,
    /// By sender, receiver and the 14 bits of N(S).
    held: HashMap<(usize, usize, u16), Held>,
    /// By sender and receiver: number of I PDUs.
    sent: HashMap<(usize, usize), u64>,
    held_count: usize,
    /// Octets of the guard of each PDU.
    guard_octets: usize,
}

impl Paths {
    pub fn new(topology: Topology, guard_octets: usize, rng: Rng) -> Self {
        Self { topology, rng, held: HashMap::new(), sent: HashMap::new(), held_count: 0, guard_octets }
    }

    /// What happens to a frame that is sent at this time.
    pub fn fate(&mut self, lane: &Lane, frame: &[u8], now_ns: u64) -> Fate {
        let Lane { from, to, .. } = *lane;
        let [own, peer] = [from, to].map(|end| self.topology.host_of[end.rank]);
        let sent = self.topology.active_faults(own, from.device, now_ns).filter(|fault| fault.directions[1]);
        let received = self.topology.active_faults(peer, to.device, now_ns).filter(|fault| fault.directions[0]);
        let all: Vec<Failure> = sent.chain(received).map(|fault| fault.failure).collect();
        let failures: Vec<Failure> = all.iter().copied().filter(|failure| !failure.is_narrow()).collect();
        let is_lost = |failure: &Failure| match *failure {
            Failure::LosesLong { bytes } => frame.len() > ETHERNET_HEADER_BYTES + bytes,
            Failure::LosesBatches => lane.is_in_batch,
            _ => false,
        };
        let Some(failure) = failures.first() else {
            return if all.iter().any(is_lost) { Fate::LostAsLong } else { Fate::Passes };
        };
        let Failure::Holds { until_ns } = *failure else { return Fate::Lost };
        if self.held_count >= HELD_MAX || failures.len() > 1 || !self.topology.laps && self.rng.u8(..3) > 0 {
            return Fate::Lost;
        }
        self.held_count += 1;
        match self.number(frame) {
            Some(number) if self.topology.laps => {
                let sent = self.sent.get(&(from.rank, to.rank)).copied().unwrap_or(0);
                let held = Held { device: to.device, frame: frame.to_vec(), sent };
                self.held.entry((from.rank, to.rank, number)).or_insert(held);
                Fate::Lost
            }
            _ => Fate::Held { until_ns },
        }
    }

    /// A datagram has the address that its sender's host chooses for the receiver.
    pub fn readdress(&self, lane: &Lane, frame: &mut [u8]) {
        if lane.from.device == UDP {
            frame[6..12].copy_from_slice(&self.topology.source(lane.from.rank, lane.to.rank).0);
        }
    }

    /// Counts a sent frame. Returns the held one whose number it has, thousands of frames later, and its receiver's
    /// device.
    pub fn released_by(&mut self, from: usize, to: usize, frame: &[u8]) -> Option<(usize, Vec<u8>)> {
        let number = self.number(frame).filter(|_| self.topology.laps)?;
        let sent = self.sent.entry((from, to)).or_default();
        *sent += 1;
        let held = self.held.get(&(from, to, number)).filter(|held| *sent - held.sent > ROUND);
        held?;
        self.held.remove(&(from, to, number)).map(|held| (held.device, held.frame))
    }

    /// The 14 bits of N(S), if a frame has an I PDU.
    fn number(&self, frame: &[u8]) -> Option<u16> {
        let llc = parse(frame)?.llc;
        let low = *llc.get(2)?;
        let round = *llc.get(I_OCTETS + self.guard_octets + MARK_OCTETS)?;
        (low & 1 == 0).then_some(u16::from(round & 0x7f) << 7 | u16::from(low >> 1))
    }
}
