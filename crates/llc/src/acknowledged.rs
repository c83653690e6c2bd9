// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Acknowledged datagrams, type 3 (IEEE 802.2, clause 8). A datagram is retransmitted until the peer
//! acknowledges it; one sequence bit per pair of service access points distinguishes a retransmission from a
//! new datagram.
//!
//! Both sides keep the bit for a limited time, the sender longer than the receiver. A new sender transmits
//! only after any receiver has discarded the state of a previous station at this address, and waits as long
//! after a failure. A new datagram is therefore never mistaken for a retransmission.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::address::{Lsap, Mac};
use crate::deadlines::Deadlines;
use crate::pdu::{AcStatus, Body, Header, Pdu};
use crate::peer_table::{Key, PeerTable};
use crate::slot_queue::SlotQueue;
use crate::time::{Instant, nanos};

/// A local service access point and a remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The local service access point.
    pub local: Lsap,
    /// The remote station.
    pub mac: Mac,
    /// The service access point of the remote station.
    pub remote: Lsap,
}

impl Peer {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.local, self.mac, self.remote)
    }
}

/// Outcome of an acknowledged datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramOutcome {
    /// The peer answered; it received the datagram if [`AcStatus::is_accepted`].
    Answered(AcStatus),
    /// No answer after all retransmissions; the peer may have received the datagram.
    NoAnswer,
}

/// Why an acknowledged datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramRefused {
    /// The local service access point is not active, or the station's class has no type 3.
    NotActive,
    /// A datagram to this peer is in flight, failed recently, or its outcome has not been polled.
    Busy,
    /// No room for the state of another peer.
    Full,
}

/// Retransmission parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub retries: u8,
    pub timeout_ns: u64,
    /// How long a receiver keeps a sequence bit.
    pub memory: Duration,
}

impl Timing {
    /// How long a sender keeps a sequence bit: longer than a receiver, or a first datagram would look like a
    /// retransmission of the last.
    fn sender_memory(&self) -> Duration {
        self.memory * 5 / 2
    }
}

/// The sending side.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    timing: Timing,
    /// Earliest transmission: until then a receiver may hold state of a previous station at this address.
    hold_off_until: Instant,
    slots: Box<[Option<OutgoingState<T>>]>,
    free: Vec<u16>,
    by_peer: PeerTable,
    deadlines: Deadlines,
    to_send: SlotQueue,
    to_report: SlotQueue,
}

#[derive(Debug)]
struct OutgoingState<T> {
    peer: Peer,
    /// Mark derived from the peer's key; extended stations only.
    mark: u64,
    /// V(SI).
    sequence: bool,
    token: Option<T>,
    outcome: Option<DatagramOutcome>,
    transmissions: u16,
    /// When to retransmit; with nothing in flight, when to discard this entry.
    deadline: Instant,
    has_failed: bool,
}

impl<T> Sender<T> {
    pub fn new(capacity: u16, seed: u64, timing: Timing, now: Instant) -> Self {
        Self {
            timing,
            hold_off_until: now + timing.sender_memory(),
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            by_peer: PeerTable::new(capacity, seed),
            deadlines: Deadlines::new(capacity),
            to_send: SlotQueue::new(capacity),
            to_report: SlotQueue::new(capacity),
        }
    }

    pub fn send(&mut self, peer: Peer, mark: u64, token: T, now: Instant) -> Result<(), (T, DatagramRefused)> {
        let slot = match self.by_peer.get(peer.key()) {
            Some(slot) => slot,
            None => match self.free.pop() {
                Some(free) => {
                    self.slots[usize::from(free)] = Some(OutgoingState::idle(peer));
                    self.by_peer.insert(peer.key(), free);
                    free
                }
                None => return Err((token, DatagramRefused::Full)),
            },
        };
        let Some(state) = &mut self.slots[usize::from(slot)] else { return Err((token, DatagramRefused::Full)) };
        if state.token.is_some() || state.has_failed {
            return Err((token, DatagramRefused::Busy));
        }
        (state.token, state.mark, state.transmissions) = (Some(token), mark, 0);
        state.deadline = self.hold_off_until.max(now);
        if state.deadline <= now {
            self.to_send.push(slot);
        }
        self.deadlines.wake_by(slot, state.deadline.after(1));
        Ok(())
    }

    /// Processes an acknowledgement. `mark`: its mark, `None` if the station is not extended. False if no datagram
    /// awaits it.
    pub fn handle_response(
        &mut self,
        peer: Peer,
        sequence: bool,
        status: AcStatus,
        mark: Option<u64>,
        now: Instant,
    ) -> bool {
        let Some(slot) = self.by_peer.get(peer.key()) else { return false };
        let Some(state) = &mut self.slots[usize::from(slot)] else { return false };
        // The acknowledgement carries the number expected next, the opposite of the datagram's. Before the first
        // transmission an acknowledgement can only be for a previous station at this address.
        if state.token.is_none()
            || state.transmissions == 0
            || state.outcome.is_some()
            || sequence == state.sequence
            || mark.is_some_and(|mark| mark != state.mark)
        {
            return false;
        }
        state.outcome = Some(DatagramOutcome::Answered(status));
        state.sequence ^= status.is_accepted();
        state.deadline = now + self.timing.sender_memory();
        self.to_report.push(slot);
        true
    }

    pub fn next_deadline(&self) -> Instant {
        self.deadlines.earliest()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.pop(now) {
            let Some(state) = &mut self.slots[usize::from(slot)] else { continue };
            if state.deadline > now {
                self.deadlines.wake_by(slot, state.deadline);
                continue;
            }
            if state.token.is_none() {
                self.by_peer.remove(state.peer.key());
                self.slots[usize::from(slot)] = None;
                self.free.push(slot);
                continue;
            }
            if state.outcome.is_some() {
                state.deadline = now + self.timing.sender_memory();
            } else if state.transmissions > u16::from(self.timing.retries) {
                state.outcome = Some(DatagramOutcome::NoAnswer);
                state.has_failed = true;
                state.deadline = now + self.timing.sender_memory();
                self.to_report.push(slot);
            } else {
                state.deadline = now.after(self.timing.timeout_ns);
                self.to_send.push(slot);
            }
            self.deadlines.wake_by(slot, state.deadline);
        }
    }

    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Mac, Header, u64, &T)> {
        let slot = loop {
            let slot = self.to_send.pop()?;
            let is_due = |state: &OutgoingState<T>| state.token.is_some() && state.outcome.is_none();
            if self.slots[usize::from(slot)].as_ref().is_some_and(is_due) {
                break slot;
            }
        };
        let state = self.slots[usize::from(slot)].as_mut()?;
        state.transmissions += 1;
        state.deadline = now.after(self.timing.timeout_ns);
        self.deadlines.wake_by(slot, state.deadline);
        let body = Body::AcCommand { poll: false, sequence: state.sequence, information: &[] };
        let Peer { local, mac, remote } = state.peer;
        let header = Pdu { destination: remote.into(), source: local.into(), body }.header();
        let mark = state.mark;
        state.token.as_ref().map(|token| (mac, header, mark, token))
    }

    pub fn poll_outcome(&mut self) -> Option<(Peer, T, DatagramOutcome)> {
        loop {
            let slot = self.to_report.pop()?;
            let Some(state) = &mut self.slots[usize::from(slot)] else { continue };
            if let Some(outcome) = state.outcome.take() {
                return state.token.take().map(|token| (state.peer, token, outcome));
            }
        }
    }
}

impl<T> OutgoingState<T> {
    fn idle(peer: Peer) -> Self {
        let deadline = Instant::NEVER;
        Self {
            peer,
            mark: 0,
            sequence: false,
            token: None,
            outcome: None,
            transmissions: 0,
            deadline,
            has_failed: false,
        }
    }
}

/// The receiving side. Any station can fill the table; when it is full, the entry that expires first is evicted.
#[derive(Debug)]
pub(crate) struct Receiver {
    slots: Box<[Option<IncomingState>]>,
    free: Vec<u16>,
    by_peer: PeerTable,
    deadlines: Deadlines,
    memory_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct IncomingState {
    key: Key,
    /// V(RI): the number expected next.
    expected: bool,
    expires: Instant,
}

impl Receiver {
    pub fn new(capacity: u16, seed: u64, memory: Duration) -> Self {
        Self {
            memory_ns: nanos(memory),
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            by_peer: PeerTable::new(capacity, seed),
            deadlines: Deadlines::new(capacity),
        }
    }

    /// Whether a command is new and must be delivered. A retransmission is only acknowledged.
    pub fn is_new(&mut self, peer: Peer, sequence: bool, now: Instant) -> bool {
        let key = peer.key();
        let known = self.by_peer.get(key);
        let slot = known.unwrap_or_else(|| self.allocate(key));
        let entry = &mut self.slots[usize::from(slot)];
        let state = entry.get_or_insert(IncomingState { key, expected: sequence, expires: now });
        let is_new = state.expected == sequence || state.expires < now;
        state.expected = !sequence;
        state.expires = now.after(self.memory_ns);
        self.deadlines.wake_by(slot, state.expires);
        is_new
    }

    /// Assigns a slot to `key`: a free one, or the one that expires first.
    fn allocate(&mut self, key: Key) -> u16 {
        let slot = self.free.pop().or_else(|| self.deadlines.pop(Instant::NEVER)).unwrap_or(0);
        if let Some(old) = self.slots[usize::from(slot)].take() {
            self.by_peer.remove(old.key);
        }
        self.by_peer.insert(key, slot);
        slot
    }

    pub fn next_deadline(&self) -> Instant {
        self.deadlines.earliest()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.pop(now) {
            let Some(state) = self.slots[usize::from(slot)] else { continue };
            if state.expires > now {
                self.deadlines.wake_by(slot, state.expires);
            } else {
                self.by_peer.remove(state.key);
                self.slots[usize::from(slot)] = None;
                self.free.push(slot);
            }
        }
    }
}
