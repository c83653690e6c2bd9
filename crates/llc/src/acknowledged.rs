// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Acknowledged datagrams, type 3 (IEEE 802.2, clause 8): each is repeated until the peer acknowledges it,
//! and one sequence bit for each pair of service access points tells a repetition from a new one.
//!
//! The bit is remembered for a while only. The sender remembers it longer than the receiver, begins
//! only after a receiver would have forgotten its predecessor, and after a failure waits for that again:
//! so nothing new is ever taken for a repetition.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::address::{Lsap, Mac};
use crate::deadlines::Deadlines;
use crate::keyed::{Key, Keyed};
use crate::pdu::{AcStatus, Body, Header, Pdu};
use crate::time::{Instant, nanos};
use crate::turns::Turns;

/// A local service access point and one of another station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The service access point here.
    pub local: Lsap,
    /// The other station.
    pub mac: Mac,
    /// The service access point there.
    pub remote: Lsap,
}

impl Peer {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.local, self.mac, self.remote)
    }
}

/// What became of an acknowledged datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramOutcome {
    /// The peer has it, unless [`AcStatus::is_accepted`] says no.
    Answered(AcStatus),
    /// No answer after all repetitions: the peer may have it.
    NoAnswer,
}

/// Why an acknowledged datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramRefused {
    /// The local service access point is not active, or the station's class has no type 3.
    NotActive,
    /// The last one to this peer is under way, or failed a moment ago; or its outcome waits to be taken.
    Busy,
    /// As many peers as the station remembers.
    Full,
}

/// How often, how long apart, and how long remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub retries: u8,
    pub timeout_ns: u64,
    /// How long a receiver remembers a sequence bit.
    pub memory: Duration,
}

impl Timing {
    /// How long a sender remembers it: longer than a receiver, or a first datagram would look like a
    /// repetition of the last.
    fn sender_memory(&self) -> Duration {
        self.memory * 5 / 2
    }
}

/// The sending side.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    timing: Timing,
    /// Not to send before: a receiver may still remember whoever had this address before.
    silent_until: Instant,
    slots: Box<[Option<Sending<T>>]>,
    free: Vec<u16>,
    keyed: Keyed,
    deadlines: Deadlines,
    to_send: Turns,
    to_report: Turns,
}

#[derive(Debug)]
struct Sending<T> {
    peer: Peer,
    /// Of the peer's key, in extended stations.
    mark: u64,
    /// V(SI).
    sequence: bool,
    token: Option<T>,
    outcome: Option<DatagramOutcome>,
    repetitions: u16,
    /// Repeat, or forget if there is nothing under way.
    deadline: Instant,
    has_failed: bool,
}

impl<T> Sender<T> {
    pub fn new(capacity: u16, seed: u64, timing: Timing, now: Instant) -> Self {
        Self {
            timing,
            silent_until: now + timing.sender_memory(),
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            keyed: Keyed::new(capacity, seed),
            deadlines: Deadlines::new(capacity),
            to_send: Turns::new(capacity),
            to_report: Turns::new(capacity),
        }
    }

    pub fn send(&mut self, peer: Peer, mark: u64, token: T, now: Instant) -> Result<(), (T, DatagramRefused)> {
        let slot = match self.keyed.get(peer.key()) {
            Some(slot) => slot,
            None => match self.free.pop() {
                Some(free) => {
                    self.slots[usize::from(free)] = Some(Sending::idle(peer));
                    self.keyed.insert(peer.key(), free);
                    free
                }
                None => return Err((token, DatagramRefused::Full)),
            },
        };
        let Some(sending) = &mut self.slots[usize::from(slot)] else { return Err((token, DatagramRefused::Full)) };
        if sending.token.is_some() || sending.has_failed {
            return Err((token, DatagramRefused::Busy));
        }
        (sending.token, sending.mark, sending.repetitions) = (Some(token), mark, 0);
        sending.deadline = self.silent_until.max(now);
        if sending.deadline <= now {
            self.to_send.push(slot);
        }
        self.deadlines.wake_by(slot, sending.deadline.after(1));
        Ok(())
    }

    /// Takes an acknowledgement, with its mark if it must have one; false if nothing waits for it.
    pub fn handle_response(
        &mut self,
        peer: Peer,
        sequence: bool,
        status: AcStatus,
        mark: Option<u64>,
        now: Instant,
    ) -> bool {
        let Some(slot) = self.keyed.get(peer.key()) else { return false };
        let Some(sending) = &mut self.slots[usize::from(slot)] else { return false };
        // The acknowledgement names the number expected next: the opposite one. One that comes before the
        // first transmission is for whoever had this address before.
        if sending.token.is_none()
            || sending.repetitions == 0
            || sending.outcome.is_some()
            || sequence == sending.sequence
            || mark.is_some_and(|mark| mark != sending.mark)
        {
            return false;
        }
        sending.outcome = Some(DatagramOutcome::Answered(status));
        sending.sequence ^= status.is_accepted();
        sending.deadline = now + self.timing.sender_memory();
        self.to_report.push(slot);
        true
    }

    pub fn next_deadline(&self) -> Instant {
        self.deadlines.earliest()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.pop(now) {
            let Some(sending) = &mut self.slots[usize::from(slot)] else { continue };
            if sending.deadline > now {
                self.deadlines.wake_by(slot, sending.deadline);
                continue;
            }
            if sending.token.is_none() {
                self.keyed.remove(sending.peer.key());
                self.slots[usize::from(slot)] = None;
                self.free.push(slot);
                continue;
            }
            if sending.outcome.is_some() {
                sending.deadline = now + self.timing.sender_memory();
            } else if sending.repetitions > u16::from(self.timing.retries) {
                sending.outcome = Some(DatagramOutcome::NoAnswer);
                sending.has_failed = true;
                sending.deadline = now + self.timing.sender_memory();
                self.to_report.push(slot);
            } else {
                sending.deadline = now.after(self.timing.timeout_ns);
                self.to_send.push(slot);
            }
            self.deadlines.wake_by(slot, sending.deadline);
        }
    }

    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Mac, Header, u64, &T)> {
        let slot = loop {
            let slot = self.to_send.pop()?;
            let is_due = |sending: &Sending<T>| sending.token.is_some() && sending.outcome.is_none();
            if self.slots[usize::from(slot)].as_ref().is_some_and(is_due) {
                break slot;
            }
        };
        let sending = self.slots[usize::from(slot)].as_mut()?;
        sending.repetitions += 1;
        sending.deadline = now.after(self.timing.timeout_ns);
        self.deadlines.wake_by(slot, sending.deadline);
        let body = Body::AcCommand { poll: false, sequence: sending.sequence, information: &[] };
        let Peer { local, mac, remote } = sending.peer;
        let header = Pdu { destination: remote.into(), source: local.into(), body }.header();
        let mark = sending.mark;
        sending.token.as_ref().map(|token| (mac, header, mark, token))
    }

    pub fn poll_outcome(&mut self) -> Option<(Peer, T, DatagramOutcome)> {
        loop {
            let slot = self.to_report.pop()?;
            let Some(sending) = &mut self.slots[usize::from(slot)] else { continue };
            if let Some(outcome) = sending.outcome.take() {
                return sending.token.take().map(|token| (sending.peer, token, outcome));
            }
        }
    }
}

impl<T> Sending<T> {
    fn idle(peer: Peer) -> Self {
        let deadline = Instant::NEVER;
        Self { peer, mark: 0, sequence: false, token: None, outcome: None, repetitions: 0, deadline, has_failed: false }
    }
}

/// The receiving side: anybody can fill it, so the entry nearest to being forgotten makes room.
#[derive(Debug)]
pub(crate) struct Receiver {
    slots: Box<[Option<Heard>]>,
    free: Vec<u16>,
    keyed: Keyed,
    deadlines: Deadlines,
    memory_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    key: Key,
    /// V(RI): the number expected next.
    expected: bool,
    forget: Instant,
}

impl Receiver {
    pub fn new(capacity: u16, seed: u64, memory: Duration) -> Self {
        Self {
            memory_ns: nanos(memory),
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            keyed: Keyed::new(capacity, seed),
            deadlines: Deadlines::new(capacity),
        }
    }

    /// Whether a command is new, to be delivered; if not, it is a repetition, to be acknowledged only.
    pub fn is_new(&mut self, peer: Peer, sequence: bool, now: Instant) -> bool {
        let key = peer.key();
        let known = self.keyed.get(key);
        let slot = known.unwrap_or_else(|| self.place_for(key));
        let entry = &mut self.slots[usize::from(slot)];
        let heard = entry.get_or_insert(Heard { key, expected: sequence, forget: now });
        let is_new = heard.expected == sequence || heard.forget < now;
        heard.expected = !sequence;
        heard.forget = now.after(self.memory_ns);
        self.deadlines.wake_by(slot, heard.forget);
        is_new
    }

    /// A slot under this key: a free one, or the one nearest to being forgotten.
    fn place_for(&mut self, key: Key) -> u16 {
        let slot = self.free.pop().or_else(|| self.deadlines.pop(Instant::NEVER)).unwrap_or(0);
        if let Some(old) = self.slots[usize::from(slot)].take() {
            self.keyed.remove(old.key);
        }
        self.keyed.insert(key, slot);
        slot
    }

    pub fn next_deadline(&self) -> Instant {
        self.deadlines.earliest()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.pop(now) {
            let Some(heard) = self.slots[usize::from(slot)] else { continue };
            if heard.forget > now {
                self.deadlines.wake_by(slot, heard.forget);
            } else {
                self.keyed.remove(heard.key);
                self.slots[usize::from(slot)] = None;
                self.free.push(slot);
            }
        }
    }
}
