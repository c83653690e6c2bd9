// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches which carriers frames go by. It recognises probes by their format and takes faults from the topology,
//! independently of the stations.

use std::collections::{HashMap, HashSet, VecDeque};

use super::link::{DEVICES, UDP};
use super::network::{End, Lane};
use super::oracle::{Oracle, Property};
use super::topology::{Failure, PathFault, Topology};
use crate::scenario::MS;

/// Checks that another path passes before nothing may use a dead one any more. Two would do, but frames may wait in the
/// receiver's ring.
const CHECKS_MAX: usize = 5;
/// Most answers remembered for each pair.
const ANSWERS_MAX: usize = 16;
/// Most frames between the copies of one that is sent by several paths: the longest batch.
const NEAR: usize = 256;
/// A sender with no longer pauses is still trying.
const PAUSE_MAX_NS: u64 = 300 * MS;
/// Longest time for which a rank may send datagrams that are too long for their path, or batches.
const NARROW_MAX_NS: u64 = 1000 * MS;

/// Control field of a UI PDU.
const UI: u8 = 3;

/// What was seen, by ordered pair of ranks.
#[derive(Default)]
pub struct Watch {
    pairs: HashMap<(usize, usize), Pair>,
    /// Longest time for which a sender tried in vain while a path worked.
    pub stall_ns_max: u64,
    /// Longest time for which datagrams were too long for their path.
    pub narrow_ns_max: u64,
    /// Longest such time as the first that is allowed.
    stall_ns_limit: u64,
}

#[derive(Default)]
struct Pair {
    /// Probes sent, by what follows their addresses, and the time of the first with each nonce.
    probes: HashSet<Vec<u8>>,
    asked: HashMap<u64, u64>,
    /// Answers to this rank's probes: the probe's nonce and time, and the device that the answer came by.
    answers: VecDeque<(u64, u64, usize)>,
    /// Since when no frame has arrived though some were sent, and the last send.
    trying_since: Option<u64>,
    last_sent_ns: u64,
    /// Times of the first and of the last datagram that was too long for its path, while there were many.
    too_long: Option<[u64; 2]>,
}

struct Probe {
    nonce: u64,
    echo: u64,
}

/// The probe in a frame.
fn probe_in(frame: &[u8]) -> Option<Probe> {
    let number = |at: usize| frame.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let is_probe = frame.get(16) == Some(&UI) && frame.get(17..21) == Some(b"BWPA");
    if is_probe { Some(Probe { nonce: number(36)?, echo: number(44)? }) } else { None }
}

/// Whether a frame is a probe.
pub fn is_probe(frame: &[u8]) -> bool {
    probe_in(frame).is_some()
}

/// A probe in words.
pub fn described(frame: &[u8]) -> Option<String> {
    probe_in(frame).map(|Probe { nonce, echo }| format!("probe {:04x} for {:04x}", nonce >> 48, echo >> 48))
}

/// What follows the addresses, without padding.
fn identity(frame: &[u8]) -> Vec<u8> {
    frame[12..].to_vec()
}

impl Watch {
    pub fn new(stall_ns_limit: u64) -> Self {
        Self { stall_ns_limit, ..Self::default() }
    }

    /// A rank sends these frames in one call.
    pub fn sent(&mut self, topology: &Topology, oracle: &mut Oracle, sent: &[(u64, Lane, Vec<u8>)]) {
        for (number, (now_ns, lane, frame)) in sent.iter().enumerate() {
            let (from, to) = (lane.from.rank, lane.to.rank);
            let pair = self.pairs.entry((from, to)).or_default();
            if let Some(probe) = probe_in(frame) {
                pair.asked.entry(probe.nonce).or_insert(*now_ns);
                pair.probes.insert(identity(frame));
                continue;
            }
            let is_copy =
                |(_, other, copy): &(u64, Lane, Vec<u8>)| other.from != lane.from && copy[12..] == frame[12..];
            let near = &sent[number.saturating_sub(NEAR)..sent.len().min(number + NEAR)];
            if !near.iter().any(is_copy) {
                pair.check_path(topology, oracle, lane, *now_ns);
            }
            if now_ns.saturating_sub(pair.last_sent_ns) > PAUSE_MAX_NS {
                pair.trying_since = None;
            }
            pair.last_sent_ns = *now_ns;
            let since = *pair.trying_since.get_or_insert(*now_ns);
            if !oracle.is_disturbed(from, to) {
                self.stall_ns_max = self.stall_ns_max.max(now_ns.saturating_sub(since));
                let limit_ns = self.stall_ns_limit;
                oracle.require(now_ns.saturating_sub(since) <= limit_ns, Property::Progress, || {
                    let ms = (now_ns.saturating_sub(since)) / MS;
                    format!("nothing from {from} has reached {to} for {ms} ms, though a path works")
                });
            }
        }
    }

    /// A datagram is lost because it is too long for its path, or in a batch.
    pub fn lost_long(&mut self, oracle: &mut Oracle, lane: &Lane, frame: &[u8], now_ns: u64) {
        if is_probe(frame) {
            return;
        }
        let (from, to) = (lane.from.rank, lane.to.rank);
        let pair = self.pairs.entry((from, to)).or_default();
        let since = match pair.too_long {
            Some([since, last]) if now_ns.saturating_sub(last) <= PAUSE_MAX_NS => since,
            _ => now_ns,
        };
        pair.too_long = Some([since, now_ns]);
        if !oracle.is_disturbed(from, to) {
            let for_ns = now_ns.saturating_sub(since);
            self.narrow_ns_max = self.narrow_ns_max.max(for_ns);
            oracle.require(for_ns <= NARROW_MAX_NS, Property::Path, || {
                format!("{} bytes from {from} to {to}, too long for their path for {} ms", frame.len(), for_ns / MS)
            });
        }
    }

    /// A frame arrived at a device.
    pub fn arrived(&mut self, from: usize, to: End, frame: &[u8]) {
        let End { rank: to, device } = to;
        let Some(probe) = probe_in(frame) else {
            self.pairs.entry((from, to)).or_default().trying_since = None;
            return;
        };
        // A damaged one has no effect.
        if !self.pairs.get(&(from, to)).is_some_and(|pair| pair.probes.contains(&identity(frame))) {
            return;
        }
        let asker = self.pairs.entry((to, from)).or_default();
        let Some(asked_ns) = asker.asked.get(&probe.echo).copied() else { return };
        if asker.answers.iter().any(|(nonce, _, by)| (*nonce, *by) == (probe.echo, device)) {
            return;
        }
        if asker.answers.len() == ANSWERS_MAX {
            asker.answers.pop_front();
        }
        asker.answers.push_back((probe.echo, asked_ns, device));
    }

    /// A rank was paused, computed or restarted: it did not answer.
    pub fn was_absent(&mut self, rank: usize) {
        for ((_, to), pair) in &mut self.pairs {
            if *to == rank {
                (pair.trying_since, pair.too_long) = (None, None);
            }
        }
    }

    /// A rank's process ended.
    pub fn ended(&mut self, rank: usize) {
        self.pairs.retain(|(from, to), _| *from != rank && *to != rank);
    }
}

impl Pair {
    /// Checks that a frame is not sent only by a path that has been dead while others passed many checks.
    fn check_path(&self, topology: &Topology, oracle: &mut Oracle, lane: &Lane, now_ns: u64) {
        let Lane { from, to, .. } = *lane;
        let device = from.device;
        if device == UDP {
            return;
        }
        let [own, peer] = [from, to].map(|end| topology.host_of[end.rank]);
        // `sent` does not contain a copy that an interface refused because it is down.
        let is_down = |fault: &PathFault| matches!(fault.failure, Failure::Down | Failure::Gone);
        if (0..DEVICES).any(|other| topology.active_faults(own, other, now_ns).any(is_down)) {
            return;
        }
        let faults = topology.active_faults(own, device, now_ns).chain(topology.active_faults(peer, to.device, now_ns));
        // A path that delivers held frames while it counts as dead may deliver an answer.
        let dead_since =
            faults.filter(|fault| !matches!(fault.failure, Failure::Holds { until_ns } if until_ns < fault.until_ns));
        let Some(since_ns) = dead_since.map(|fault| fault.from_ns).min() else { return };
        let later = self.answers.iter().filter(|(_, asked_ns, _)| *asked_ns > since_ns);
        let mut passed: Vec<u64> =
            later.clone().filter(|(_, _, by)| *by != device && *by != UDP).map(|(nonce, ..)| *nonce).collect();
        passed.sort_unstable();
        passed.dedup();
        let is_answered = later.clone().any(|(_, _, by)| *by == device);
        oracle.require(passed.len() < CHECKS_MAX || is_answered, Property::Path, || {
            format!("{from:?} sends to {to:?}, dead since {} µs; others have passed {passed:x?}", since_ns / 1000)
        });
    }
}
