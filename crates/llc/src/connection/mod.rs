// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A type 2 connection: asynchronous balanced mode (IEEE 802.2, clause 7).
//!
//! A [`Station`](crate::Station) holds many [`Connection`]s; one can also be used by itself.

mod identity;
mod machine;
mod numbered_polls;
mod polls;
mod queue;
mod reordering;
mod round_trip;
mod spray;
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

/// A connection. `T` is the caller's token for an information field, such as an index or an address.
/// The engine returns a token as soon as its bytes are no longer needed.
pub struct Connection<T> {
    machine: Machine,
    queue: Queue<T>,
}

/// A PDU to transmit.
#[derive(Debug)]
pub struct Transmit<'c, T> {
    /// DSAP, SSAP and control field, and the reason of a FRMR.
    pub header: Header,
    /// Token of an I PDU's information field, which follows the header.
    pub token: Option<&'c T>,
    /// Extension of an extended connection.
    pub extra: Extra,
}

/// How a connection disposed of a received PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// No data for the user.
    NoData,
    /// The PDU belongs to another connection, or is so late that its numbers have come round, and was ignored.
    Foreign,
    /// Its information field is the next in sequence.
    InOrder,
    /// Its information field is ahead of sequence: the user may keep it.
    Early,
}

/// An event for the user of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent<T> {
    /// The peer received this information field: the caller may reuse its memory.
    Acknowledged(T),
    /// Dropped because the connection ended or was reset; the peer may have received it.
    Dropped(T),
    /// A peer requests a connection: answer with `accept` or `disconnect`.
    Incoming,
    /// The peer accepted the connection.
    Connected,
    /// The connection dropped unacknowledged data. After [`Cause::PeerReset`] continue with `accept_reset`, otherwise
    /// with `reset`; or end it with `disconnect` or `abort`.
    Reset(Cause),
    /// A reset requested with `reset` is complete.
    ResetDone,
    /// The connection has ended. This is its last event.
    Disconnected(Cause),
}

/// Why a connection ended or was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Requested by the local user.
    Requested,
    /// The peer sent DISC.
    PeerDisconnected,
    /// The peer answered SABME with DM: its SAP is not listening, or it has no room.
    PeerRefused,
    /// The peer sent DM: it has no such connection, perhaps after a restart.
    PeerNotConnected,
    /// The peer sent SABME.
    PeerReset,
    /// The peer sent FRMR.
    PeerRejected(FrmrInformation),
    /// N2 retransmissions were not answered.
    NoAnswer,
    /// The peer answers, but has acknowledged nothing within the stall limit.
    Stalled,
}

/// A refused token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<T> {
    /// The token, returned to the caller.
    pub token: T,
    /// Why it was refused.
    pub reason: RefusedReason,
}

/// Why a token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// The send queue is full: poll `Acknowledged` events, or wait for them.
    Full,
    /// Data cannot be sent in this state, or before all `Dropped` events are polled.
    NotConnected,
    /// The handle's connection has ended.
    Stale,
}

impl<T: fmt::Debug> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RefusedReason::Full => f.write_str("the send queue is full"),
            RefusedReason::NotConnected => f.write_str("not connected"),
            RefusedReason::Stale => f.write_str("the connection has ended"),
        }
    }
}

impl<T: fmt::Debug> core::error::Error for Refused<T> {}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// I PDUs delivered to the user.
    pub information_received: u64,
    /// I PDUs sent, retransmissions included.
    pub information_sent: u64,
    /// Retransmissions of I PDUs.
    pub information_repeated: u64,
    /// I PDUs acknowledged by the peer.
    pub information_acknowledged: u64,
    /// Loss recoveries: times that PDUs were scheduled for retransmission.
    pub recoveries: u64,
    /// Timer expirations, except of the delay timer.
    pub timeouts: u64,
    /// FRMR PDUs received.
    pub frmr_received: u64,
    /// Protocol violations of the peer, each answered with FRMR.
    pub frmr_sent: u64,
    /// I PDUs received ahead of sequence.
    pub received_ahead: u64,
    /// Duplicate I PDUs received.
    pub received_again: u64,
    /// Duplicates so late that only their round distinguished them from new PDUs.
    pub received_late: u64,
    /// S PDUs with a stale N(R).
    pub overtaken: u64,
    /// Causes of the FRMR PDUs sent: W, X, Y, Z, V.
    pub frmr_causes: [u64; 5],
    /// Events without a transition in their state.
    pub ignored: u64,
    /// PDUs of other connections between the same service access points.
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
    /// A connection in ADM between a local and a remote service access point. Ignores `is_extended`: extensions need a
    /// [`Station`](crate::Station).
    ///
    /// # Errors
    /// The value that is out of range.
    pub fn new(config: &ConnectionConfig, local: Lsap, remote: Lsap, now: Instant) -> Result<Self, ConfigError> {
        let parameters = ConnectionConfig { is_extended: false, ..config.clone() }.check()?;
        Ok(Self::with_parameters(parameters, local, remote, [0, 0], now))
    }

    /// As [`new`](Self::new), with this end's nonce and the peer's key.
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

    /// Connects to the peer. [`ConnectionEvent::Connected`] or `Disconnected` follows. False if not in ADM.
    pub fn connect(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ConnectRequest, now)
    }

    /// Accepts an [incoming](ConnectionEvent::Incoming) connection, which is usable at once. False in other states.
    pub fn accept(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ConnectResponse, now)
    }

    /// Disconnects at once and drops unacknowledged data. `Disconnected` follows.
    pub fn disconnect(&mut self, now: Instant) -> bool {
        self.machine.request(Event::DisconnectRequest, now)
    }

    /// Disconnects once all data is acknowledged. Further `send`s are refused. False if not connected.
    pub fn finish(&mut self, now: Instant) -> bool {
        self.machine.is_finishing = self.machine.state.is_connected();
        self.machine.finish(now);
        self.machine.is_finishing || self.machine.state == State::DConn
    }

    /// Ends without waiting for the peer: sends DM once and discards the connection.
    pub fn abort(&mut self, now: Instant) -> bool {
        self.machine.request(Event::AbortRequest, now)
    }

    /// Resets the sequence numbers and drops unacknowledged data. `ResetDone` or `Disconnected` follows.
    pub fn reset(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ResetRequest, now)
    }

    /// Accepts the peer's reset; the connection is usable at once.
    pub fn accept_reset(&mut self, now: Instant) -> bool {
        self.machine.request(Event::ResetResponse, now)
    }

    /// Sets or clears the local busy condition. While it is set, received data is discarded; the peer
    /// retransmits it later.
    pub fn set_busy(&mut self, is_busy: bool, now: Instant) {
        self.machine.request(if is_busy { Event::LocalBusy } else { Event::LocalBusyCleared }, now);
    }

    /// Appends an information field to the send queue.
    ///
    /// # Errors
    /// The token, if the queue is full or the connection is not connected.
    #[inline]
    pub fn send(&mut self, token: T, now: Instant) -> Result<(), Refused<T>> {
        let machine = &mut self.machine;
        let is_usable = machine.state.is_connected() && !machine.is_finishing && machine.dropped.0 == machine.dropped.1;
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

    /// Requests an immediate acknowledgement of all queued data: the last PDU is sent with P = 1, or a poll if that PDU
    /// has already left. Otherwise the peer may delay its acknowledgement by `acknowledge_delay`.
    #[inline]
    pub fn request_ack(&mut self, now: Instant) {
        self.machine.request_ack(now);
        self.check();
    }

    /// Processes a PDU of this connection. Returns its information field if that is the next in sequence.
    #[inline]
    pub fn handle_pdu<'a>(&mut self, pdu: &Pdu<'a>, now: Instant) -> Option<&'a [u8]> {
        let disposition = self.handle(pdu, &extension::unextended(pdu), now);
        (disposition == Disposition::InOrder).then(|| pdu.information())
    }

    #[inline]
    pub(crate) fn handle(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> Disposition {
        let disposition = self.machine.handle(pdu, extension, now);
        self.check();
        disposition
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

    /// Processes a PDU with this connection's addresses that [`Pdu::decode`] refused.
    /// `header`: DSAP, SSAP and control field, as far as present.
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

    /// Processes expired timers. Call it when [`next_deadline`](Self::next_deadline) has passed; earlier calls are
    /// harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        self.check();
    }

    /// Time at which `handle_timeout` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.machine.next_deadline().if_set()
    }

    /// The next PDU to transmit.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_, T>> {
        let (header, index, extra) = self.next_pdu(now)?;
        Some(Transmit { header, token: index.and_then(|index| self.token(index)), extra })
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<ConnectionEvent<T>> {
        let machine = &mut self.machine;
        if let Some((index, token)) = self.queue.drain(machine.acknowledged) {
            let (start, end) = machine.dropped;
            if start == end {
                return Some(ConnectionEvent::Acknowledged(token));
            }
            // Indices differ by less than the queue's capacity, so wrapping distances compare correctly.
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

    /// Whether I and S PDUs with this mark may belong to this connection.
    #[inline]
    pub(crate) fn receives(&self, mark: u64) -> bool {
        self.machine.identity.may_be_of_connection(mark)
    }

    /// Handles a SABME with this nonce of another station at the peer's address.
    pub(crate) fn handle_rival(&mut self, nonce: u64, now: Instant) {
        self.machine.handle_rival(nonce, now);
    }

    pub(crate) fn peer_key(&self) -> u64 {
        self.machine.identity.peer_key()
    }

    /// After a reset by the peer: whether another station at its address asked for it.
    #[must_use]
    pub fn is_reset_by_successor(&self) -> bool {
        self.machine.identity.holds_successor()
    }

    /// The connection's state.
    #[must_use]
    pub fn state(&self) -> State {
        self.machine.state
    }

    /// Free entries of the send queue.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.queue.room(self.machine.queued)
    }

    /// PDUs queued or in flight, not yet acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.machine.queued.wrapping_sub(self.machine.acknowledged) as usize
    }

    /// I PDUs in flight: sent and not acknowledged.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.machine.outstanding() as usize
    }

    /// The current send window, 1 to k; smaller than k after loss.
    #[must_use]
    pub fn window(&self) -> u8 {
        self.machine.window
    }

    /// The smoothed round-trip time in ns; `None` before the first measurement.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.machine.round_trip.smoothed_ns()
    }

    /// The connection's counters.
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

    /// The label of the PDU returned last by [`next_pdu`](Self::next_pdu).
    #[inline]
    pub(crate) fn label(&self) -> Option<u8> {
        self.machine.spray.as_ref().and_then(|spray| spray.current())
    }

    #[inline]
    pub(crate) fn token(&self, index: u32) -> Option<&T> {
        self.queue.get(index)
    }

    #[inline]
    pub(crate) fn has_pdu(&self) -> bool {
        self.machine.has_pdu()
    }

    #[inline]
    pub(crate) fn is_answer_due(&self) -> bool {
        self.machine.is_answer_due()
    }

    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        !self.queue.is_empty_before(self.machine.acknowledged) || !self.machine.indications.is_empty()
    }

    /// The earliest deadline of a running timer.
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
