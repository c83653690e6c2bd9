// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection, type 2: asynchronous balanced mode (IEEE 802.2, clause 7).
//!
//! [`Connection`] is what a [`Station`](crate::Station) has many of; it can be used alone, too.

mod identity;
mod machine;
mod polls;
mod queue;
mod reordering;
mod round_trip;
mod state;
mod table;

use core::fmt;

use crate::address::Lsap;
use crate::config::{ConfigError, ConnectionConfig, Parameters};
use crate::extension::{self, Extension, Extra};
use crate::pdu::{FrmrInformation, Header, Pdu, Role};
use crate::time::Instant;
use identity::Identity;
use machine::{Indication, Machine};
use queue::Queue;
use state::Event;
pub use state::State;

/// A connection. `T` stands for the caller's information fields: an index, or where the bytes lie.
/// The engine hands a token back as soon as its bytes are not needed any more.
pub struct Connection<T> {
    machine: Machine,
    queue: Queue<T>,
}

/// Something to put on the wire.
#[derive(Debug)]
pub struct Transmit<'c, T> {
    /// DSAP, SSAP and control field, and a FRMR's reason.
    pub header: Header,
    /// Of an I PDU: whose information follows the header.
    pub token: Option<&'c T>,
    /// What an extended connection adds.
    pub extra: Extra,
}

/// What became of a PDU that was handed to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There is nothing for the user in it.
    Not,
    /// It is of another connection, and nothing has changed.
    Foreign,
    /// Its information is the next in order.
    InOrder,
    /// Its information belongs behind others that have not come: to be kept if there is room.
    Early,
}

/// What the user of a connection hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent<T> {
    /// The peer has it: the caller may reuse the memory.
    Acknowledged(T),
    /// Given up because the connection ended or was reset: whether the peer has it is not known.
    Dropped(T),
    /// A peer wants to connect: answer with `accept` or `disconnect`.
    Incoming,
    /// The peer accepted.
    Connected,
    /// The connection lost its data. After [`Cause::PeerReset`] answer with `accept_reset`, otherwise with
    /// `reset`; or give up with `disconnect` or `abort`.
    Reset(Cause),
    /// A reset asked for with `reset` is complete.
    ResetDone,
    /// The connection is no more; nothing follows.
    Disconnected(Cause),
}

/// Why a connection ended or was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The user of this end asked for it.
    Requested,
    /// The peer said DISC.
    PeerDisconnected,
    /// The peer said DM to SABME: nobody listens, or there is no room.
    PeerRefused,
    /// The peer said DM: it knows of no connection, perhaps after a restart.
    PeerNotConnected,
    /// The peer said SABME.
    PeerReset,
    /// The peer said FRMR.
    PeerRejected(FrmrInformation),
    /// N2 repetitions were not answered.
    NoAnswer,
    /// The peer answers, but has acknowledged nothing for too long.
    Stalled,
}

/// A token that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<T> {
    /// The caller's again.
    pub token: T,
    /// Why.
    pub reason: RefusedReason,
}

/// Why a token was not taken, and so what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// Wait for `Acknowledged` events, or take the ones that wait.
    Full,
    /// Data cannot be sent in this state, or before all `Dropped` events are taken.
    NotConnected,
    /// The handle's connection is no more.
    Stale,
}

impl<T: fmt::Debug> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RefusedReason::Full => f.write_str("the send queue is full"),
            RefusedReason::NotConnected => f.write_str("not connected"),
            RefusedReason::Stale => f.write_str("the connection is no more"),
        }
    }
}

impl<T: fmt::Debug> core::error::Error for Refused<T> {}

/// What happened on a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// I PDUs delivered to the user.
    pub information_received: u64,
    /// I PDUs sent, repetitions included.
    pub information_sent: u64,
    /// I PDUs sent more than once.
    pub information_repeated: u64,
    /// I PDUs acknowledged by the peer.
    pub information_acknowledged: u64,
    /// Times that sending went back.
    pub recoveries: u64,
    /// Timers that expired, other than that of a delayed acknowledgement.
    pub timeouts: u64,
    /// FRMR PDUs received.
    pub frmr_received: u64,
    /// Protocol violations of the peer, each answered with FRMR.
    pub frmr_sent: u64,
    /// I PDUs received ahead of their turn: one before them is missing.
    pub received_ahead: u64,
    /// I PDUs received again.
    pub received_again: u64,
    /// Of these, the ones so late that only their round told them from new ones.
    pub received_late: u64,
    /// PDUs whose N(R) was overtaken by a later one.
    pub overtaken: u64,
    /// Causes of the FRMR PDUs sent: W, X, Y, Z, V.
    pub frmr_causes: [u64; 5],
    /// Events that mean nothing in their state.
    pub ignored: u64,
    /// PDUs that are of another connection between the same service access points.
    pub unauthenticated: u64,
}

impl ConnectionCounters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.information_received += other.information_received;
        self.information_sent += other.information_sent;
        self.information_repeated += other.information_repeated;
        self.information_acknowledged += other.information_acknowledged;
        self.recoveries += other.recoveries;
        self.timeouts += other.timeouts;
        self.frmr_received += other.frmr_received;
        self.frmr_sent += other.frmr_sent;
        self.received_ahead += other.received_ahead;
        self.received_again += other.received_again;
        self.received_late += other.received_late;
        self.overtaken += other.overtaken;
        self.frmr_causes.iter_mut().zip(other.frmr_causes).for_each(|(sum, count)| *sum += count);
        self.ignored += other.ignored;
        self.unauthenticated += other.unauthenticated;
    }
}

impl<T> Connection<T> {
    /// A connection in ADM between a local and a remote service access point: one of LLC alone, whatever the configuration
    /// says of extensions, which need a [`Station`](crate::Station).
    ///
    /// # Errors
    /// Which value is out of its range.
    pub fn new(config: &ConnectionConfig, local: Lsap, remote: Lsap, now: Instant) -> Result<Self, ConfigError> {
        let parameters = ConnectionConfig { is_extended: false, ..config.clone() }.check()?;
        Ok(Self::with_parameters(parameters, local, remote, [0, 0], now))
    }

    /// With the nonce of this end, and the peer's key.
    pub(crate) fn with_parameters(
        parameters: Parameters,
        local: Lsap,
        remote: Lsap,
        [nonce, key]: [u64; 2],
        now: Instant,
    ) -> Self {
        let addresses = [remote.byte(), local.byte()];
        let machine = Machine::new(parameters, addresses, Identity::new(nonce, key), now);
        Self { machine, queue: Queue::new(parameters.queue) }
    }

    /// Connects to the peer; [`ConnectionEvent::Connected`] or `Disconnected` follows. False if not in ADM.
    pub fn connect(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ConnectRequest, now)
    }

    /// Answers [`ConnectionEvent::Incoming`]: the connection can be used at once. False in other states.
    pub fn accept(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ConnectResponse, now)
    }

    /// Ends at once: what is not acknowledged is dropped. `Disconnected` follows.
    pub fn disconnect(&mut self, now: Instant) -> bool {
        self.machine.request(Event::DisconnectRequest, now)
    }

    /// Ends once all that was sent is acknowledged; nothing more can be sent. False if not connected.
    pub fn finish(&mut self, now: Instant) -> bool {
        self.machine.finishing = self.machine.state.is_connected();
        self.machine.finish(now);
        self.machine.finishing || self.machine.state == State::DConn
    }

    /// Ends without waiting for the peer's consent: DM is sent once and the connection forgotten.
    pub fn abort(&mut self, now: Instant) -> bool {
        self.machine.request(Event::AbortRequest, now)
    }

    /// Numbers anew, dropping what is not acknowledged. `ResetDone` or `Disconnected` follows.
    pub fn reset(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ResetRequest, now)
    }

    /// Agrees to the peer's reset: the connection can be used again at once.
    pub fn accept_reset(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ResetResponse, now)
    }

    /// Tells the peer whether this end can take data. While it cannot, arriving data is discarded and the
    /// peer sends it again later.
    pub fn set_busy(&mut self, is_busy: bool, now: Instant) {
        self.machine.request(if is_busy { Event::LocalBusy } else { Event::LocalBusyCleared }, now);
    }

    /// Puts an information field into the send queue.
    ///
    /// # Errors
    /// The token, if the queue is full or the connection not in use.
    #[inline]
    pub fn send(&mut self, token: T, now: Instant) -> Result<(), Refused<T>> {
        let machine = &mut self.machine;
        let is_usable = machine.state.is_connected() && !machine.finishing && machine.dropped.0 == machine.dropped.1;
        let reason = if !is_usable {
            RefusedReason::NotConnected
        } else if !self.queue.has_room(machine.queued) {
            RefusedReason::Full
        } else {
            self.queue.put(machine.queued, token);
            machine.enqueue(now);
            return Ok(());
        };
        Err(Refused { token, reason })
    }

    /// Asks the peer to acknowledge all that was sent so far as soon as it has it: with the last of it, if that has not left
    /// yet. Otherwise an acknowledgement may wait for `acknowledge_delay`.
    #[inline]
    pub fn want_answer(&mut self, now: Instant) {
        self.machine.want_answer(now);
        self.check();
    }

    /// Takes a PDU of this connection; its information field if that is the next one in order.
    #[inline]
    pub fn handle_pdu<'a>(&mut self, pdu: &Pdu<'a>, now: Instant) -> Option<&'a [u8]> {
        let taken = self.handle(pdu, &extension::plain(pdu), now);
        (taken == Taken::InOrder).then(|| pdu.information())
    }

    #[inline]
    pub(crate) fn handle(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> Taken {
        let taken = self.machine.handle(pdu, extension, now);
        self.check();
        taken
    }

    pub(crate) fn keep(&mut self, number: u16) {
        self.machine.keep(number);
    }

    pub(crate) fn is_kept(&self, number: u16) -> bool {
        self.machine.is_kept(number)
    }

    #[inline]
    pub(crate) fn next_kept(&mut self, now: Instant) -> Option<u16> {
        self.machine.next_kept(now)
    }

    #[inline]
    pub(crate) fn has_kept(&self) -> bool {
        self.machine.has_kept()
    }

    /// Takes a PDU whose addresses are this connection's, but which [`Pdu::decode`] refused.
    /// `header`: DSAP, SSAP and control field, as far as they are there.
    pub fn handle_malformed(&mut self, header: &[u8], malformed: crate::Malformed, now: Instant) {
        if let (Some(flags), [_, ssap, control, ..]) = (malformed.frmr_flags(), header) {
            let role = if ssap & 1 == 0 { Role::Command } else { Role::Response };
            let is_unnumbered = control & 3 == 3;
            let bit = if is_unnumbered { control & 0x10 != 0 } else { header.get(3).is_some_and(|byte| byte & 1 != 0) };
            let end = if is_unnumbered { 3 } else { header.len().min(4) };
            self.machine.reject(&header[..end], role, bit, flags, now);
            self.check();
        }
    }

    /// To be called when [`next_deadline`](Self::next_deadline) has passed; harmless before.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        self.check();
    }

    /// When `handle_timeout` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.machine.next_deadline().if_ever()
    }

    /// The next PDU to send, until there is none.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_, T>> {
        let (header, index, extra) = self.next_pdu(now)?;
        Some(Transmit { header, token: index.and_then(|index| self.token(index)), extra })
    }

    /// The next thing to know, until there is none.
    #[inline]
    pub fn poll_event(&mut self) -> Option<ConnectionEvent<T>> {
        let machine = &mut self.machine;
        if let Some((index, token)) = self.queue.drain(machine.acknowledged) {
            let (start, end) = machine.dropped;
            if start == end {
                return Some(ConnectionEvent::Acknowledged(token));
            }
            // Both ends lie within one queue of each other, so the distance tells the side.
            let is_dropped = index.wrapping_sub(start) < end.wrapping_sub(start);
            if index.wrapping_add(1) == end {
                machine.dropped = (end, end);
            }
            let event = if is_dropped { ConnectionEvent::Dropped } else { ConnectionEvent::Acknowledged };
            return Some(event(token));
        }
        Some(match machine.indications.pop()? {
            Indication::Incoming => ConnectionEvent::Incoming,
            Indication::Connected => ConnectionEvent::Connected,
            Indication::Reset(cause) => ConnectionEvent::Reset(cause),
            Indication::ResetDone => ConnectionEvent::ResetDone,
            Indication::Disconnected(cause) => ConnectionEvent::Disconnected(cause),
        })
    }

    /// Whether I and S PDUs with this mark are of this connection.
    #[inline]
    pub(crate) fn receives(&self, mark: u64) -> bool {
        self.machine.identity.is_of_connection(mark)
    }

    pub(crate) fn peer_key(&self) -> u64 {
        self.machine.identity.peer_key()
    }

    /// Where the connection stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.machine.state
    }

    /// Whether the peer asked to wait.
    #[must_use]
    pub fn is_peer_busy(&self) -> bool {
        self.machine.remote_busy
    }

    /// PDUs that the send queue has room for.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.queue.room(self.machine.queued)
    }

    /// PDUs in the send queue and under way, not acknowledged yet.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.machine.queued.wrapping_sub(self.machine.acknowledged) as usize
    }

    /// I PDUs under way: sent and not acknowledged.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.machine.outstanding() as usize
    }

    /// The send window now, 1 to k: smaller than k after loss.
    #[must_use]
    pub fn window(&self) -> u8 {
        self.machine.window
    }

    /// The smoothed round trip in ns, once one was measured.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.machine.round_trip.smoothed_ns()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &ConnectionCounters {
        &self.machine.counters
    }

    #[inline]
    pub(crate) fn next_pdu(&mut self, now: Instant) -> Option<(Header, Option<u32>, Extra)> {
        let pdu = self.machine.poll_transmit(now);
        self.check();
        pdu
    }

    #[inline]
    pub(crate) fn token(&self, index: u32) -> Option<&T> {
        self.queue.get(index)
    }

    #[inline]
    pub(crate) fn wants_transmit(&self) -> bool {
        self.machine.wants_transmit()
    }

    #[inline]
    pub(crate) fn owes_answer(&self) -> bool {
        self.machine.owes_answer()
    }

    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        !self.queue.is_drained(self.machine.acknowledged) || !self.machine.indications.is_empty()
    }

    /// Not earlier than something is to be done.
    pub(crate) fn exact_wake(&mut self) -> Instant {
        self.machine.exact_wake()
    }

    #[inline]
    pub(crate) fn wake(&self) -> Instant {
        self.machine.wake()
    }

    #[inline]
    fn check(&self) {
        #[cfg(any(test, debug_assertions))]
        self.machine.check();
    }
}

#[cfg(test)]
mod tests;
