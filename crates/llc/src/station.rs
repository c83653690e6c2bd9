// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station: its service access points with their connections and datagrams.

mod delivery;
mod receive;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::acknowledged::{DatagramOutcome, DatagramRefused, Peer, Receiver, Sender, Timing};
use crate::address::{self, Destination, Lsap, Mac, Source};
use crate::bounds;
use crate::config::{ConfigError, Parameters, StationConfig, require};
use crate::connection::{Connection, ConnectionEvent, Disposition, Refused, RefusedReason, State};
use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::extension::{self, Extension, Extra, Guard};
use crate::pdu::{Body, Class, Header, Identification, Pdu, Role, SequenceNumber};
use crate::peer_table::PeerTable;
use crate::slot_queue::SlotQueue;
use crate::time::{Instant, nanos};
pub use delivery::{Delivery, Handled, Reply};

/// PDUs that a connection sends before another's: a link sends frames to one peer as a batch.
const PDUS_PER_TURN: u32 = 16;

/// A station with one MAC address, which the caller knows. See the crate's README for an example.
pub struct Station<T> {
    class: Class,
    parameters: Parameters,
    backlog: u16,
    saps: Box<[Option<Sap>; 128]>,
    entries: Vec<Entry<T>>,
    free: Vec<u16>,
    by_peer: PeerTable,
    deadlines: Deadlines,
    to_send: SlotQueue,
    /// Number of PDUs that the first connection of `to_send` has sent in its turn.
    sent_in_turn: u32,
    to_report: SlotQueue,
    datagrams_out: Sender<T>,
    datagrams_in: Receiver,
    counters: Counters,
    /// A final response is queued, for which a peer waits.
    is_answer_due: bool,
    /// Extended stations: seed of the nonces.
    nonce_seed: u64,
    /// Number of nonces drawn.
    nonce_count: u64,
    /// Mark of datagrams to this station.
    datagram_mark: u64,
    guard: Guard,
}

/// Handle of a station's connection. The handle of an ended connection is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle {
    slot: u16,
    generation: u32,
}

impl ConnectionHandle {
    /// A number below the station's `connections`, unique among its current connections.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.slot)
    }
}

/// A frame to transmit.
#[derive(Debug)]
pub struct StationTransmit<'s, T> {
    /// Destination MAC address.
    pub destination: Mac,
    /// The PDU up to its information field.
    pub header: Header,
    /// Token of the information field that follows, if any.
    pub token: Option<&'s T>,
    /// Extension of an extended station, to be preceded by a guard.
    pub extra: Extra,
    /// The connection to which the PDU belongs, if any.
    pub connection: Option<ConnectionHandle>,
    /// Number of the label to send the PDU with, below the configured [`labels`](crate::ConnectionConfig::labels);
    /// `None` without labels.
    pub label: Option<u8>,
}

/// An event for the user of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationEvent<T> {
    /// Event of a connection. After `Disconnected` its handle is stale.
    Connection(ConnectionHandle, ConnectionEvent<T>),
    /// Outcome of an acknowledged datagram.
    Datagram(Peer, T, DatagramOutcome),
}

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The local service access point is not active, or the station's class has no type 2.
    NotActive,
    /// A connection between these two service access points exists.
    Exists,
    /// The station has no room for another connection.
    Full,
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotActive => "the local service access point is not active for connections",
            Self::Exists => "a connection between these service access points exists",
            Self::Full => "the station has no room for another connection",
        })
    }
}

impl core::error::Error for ConnectError {}

#[derive(Clone, Copy, Default)]
struct Sap {
    is_listening: bool,
    /// Number of incoming connections that await the user's answer.
    waiting: u16,
}

struct Entry<T> {
    generation: u32,
    peer: Peer,
    connection: Option<Connection<T>>,
    /// Whether it is in `by_peer`; false once it has ended.
    is_linked: bool,
    /// Whether it is counted in its SAP's `waiting`.
    is_waiting: bool,
}

impl<T> Station<T> {
    /// A station without active service access points.
    ///
    /// # Errors
    /// The value that is out of range.
    pub fn new(config: &StationConfig, now: Instant) -> Result<Self, ConfigError> {
        let mut parameters = config.connection.check()?;
        parameters.key = config.key;
        parameters.cookie = if config.sends_key { config.key } else { 0 };
        require((1..=bounds::CONNECTIONS_MAX).contains(&config.connections), "connections", "1 to 65534")?;
        require((1..=config.connections).contains(&config.backlog), "backlog", "1 to connections")?;
        require(config.datagram_peers >= 1 && config.datagram_peers < u16::MAX, "datagram_peers", "1 to 65534")?;
        let timeout_ns = nanos(config.datagram_timeout);
        let longest = timeout_ns.saturating_mul(u64::from(config.datagram_retries) + 1);
        require(
            timeout_ns > 0 && longest < nanos(config.datagram_memory),
            "datagram_timeout",
            "above 0, and with its repetitions below datagram_memory",
        )?;
        let timing = Timing { retries: config.datagram_retries, timeout_ns, memory: config.datagram_memory };
        Ok(Self {
            class: config.class,
            parameters,
            backlog: config.backlog,
            saps: Box::new([None; 128]),
            entries: Vec::with_capacity(usize::from(config.connections)),
            free: Vec::with_capacity(usize::from(config.connections)),
            by_peer: PeerTable::new(config.connections, config.hash_seed),
            deadlines: Deadlines::new(config.connections),
            to_send: SlotQueue::new(config.connections),
            sent_in_turn: 0,
            to_report: SlotQueue::new(config.connections),
            datagrams_out: Sender::new(config.datagram_peers, config.hash_seed, timing, now),
            datagrams_in: Receiver::new(config.datagram_peers, config.hash_seed, config.datagram_memory),
            counters: Counters::default(),
            is_answer_due: false,
            nonce_seed: config.hash_seed,
            nonce_count: 0,
            datagram_mark: extension::datagram_mark(config.key),
            guard: config.guard,
        })
    }

    /// Activates a service access point: it answers XID and TEST, and receives datagrams.
    pub fn activate(&mut self, sap: Lsap) {
        self.saps[index(sap)].get_or_insert_default();
    }

    /// Whether a service access point is active.
    #[must_use]
    pub fn is_active(&self, sap: Lsap) -> bool {
        self.saps[index(sap)].is_some()
    }

    /// Accepts or refuses connection requests to an active service access point; each request yields a
    /// [`ConnectionEvent::Incoming`]. False if it is not active.
    pub fn listen(&mut self, sap: Lsap, is_listening: bool) -> bool {
        self.saps[index(sap)].as_mut().map(|sap| sap.is_listening = is_listening).is_some()
    }

    /// Header and extension of a UI PDU to the station with this key; the caller appends the information field and
    /// sends the frame. `None` if `local` is not active. Type 1 keeps no state.
    #[must_use]
    pub fn datagram(&self, local: Lsap, remote: Destination, key: u64) -> Option<(Header, Extra)> {
        let pdu = Pdu { destination: remote, source: local.into(), body: Body::Ui { information: &[] } };
        self.is_active(local).then(|| (pdu.header(), self.extra(extension::datagram_mark(key))))
    }

    /// An XID command. The response arrives as [`Delivery::Identification`].
    #[must_use]
    pub fn identify(&self, source: Source, remote: Destination) -> Header {
        self.identification(remote, source, Role::Command, true)
    }

    /// The header of a TEST command. The response arrives as [`Delivery::Test`].
    #[must_use]
    pub fn test(&self, source: Source, remote: Destination) -> Header {
        let body = Body::Test { role: Role::Command, poll_final: true, information: &[] };
        Pdu { destination: remote, source, body }.header()
    }

    /// Sends a datagram to the peer with this key, retransmitted until acknowledged. [`StationEvent::Datagram`] reports
    /// the outcome.
    ///
    /// # Errors
    /// The token, and why it was refused.
    pub fn send_datagram(&mut self, peer: Peer, key: u64, token: T, now: Instant) -> Result<(), (T, DatagramRefused)> {
        if !self.class.has_type_3() || !self.is_active(peer.local) {
            return Err((token, DatagramRefused::NotActive));
        }
        self.datagrams_out.send(peer, extension::datagram_mark(key), token, now)
    }

    /// Connects to a peer. `key`: the peer's key if it is extended.
    ///
    /// # Errors
    /// Why the connection cannot be opened.
    pub fn connect(&mut self, peer: Peer, key: u64, now: Instant) -> Result<ConnectionHandle, ConnectError> {
        if !self.class.has_type_2() || !self.is_active(peer.local) {
            return Err(ConnectError::NotActive);
        }
        if self.by_peer.get(peer.key()).is_some() {
            return Err(ConnectError::Exists);
        }
        let slot = self.add(peer, key, false, now).ok_or(ConnectError::Full)?;
        let handle = self.handle_of(slot);
        self.with_connection(handle, |connection| connection.connect(now));
        Ok(handle)
    }

    /// Accepts an [incoming](ConnectionEvent::Incoming) connection. False if it does not await an answer.
    pub fn accept(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with_connection(handle, |connection| connection.accept(now)).unwrap_or(false)
    }

    /// Appends an information field to a connection's send queue.
    ///
    /// # Errors
    /// The token, and why it was refused.
    #[inline]
    pub fn send(&mut self, handle: ConnectionHandle, token: T, now: Instant) -> Result<(), Refused<T>> {
        let Some(connection) = self.connection_mut(handle) else {
            return Err(Refused { token, reason: RefusedReason::Stale });
        };
        connection.send(token, now)?;
        let (has_pdu, wake) = (connection.has_pdu(), connection.wake());
        if has_pdu {
            self.to_send.push(handle.slot);
        }
        self.deadlines.wake_by(handle.slot, wake);
        Ok(())
    }

    /// As [`Connection::request_ack`].
    #[inline]
    pub fn request_ack(&mut self, handle: ConnectionHandle, now: Instant) {
        if let Some(connection) = self.connection_mut(handle) {
            connection.request_ack(now);
            self.update_queues(handle.slot);
        }
    }

    /// As [`Connection::finish`]; false also for a stale handle.
    pub fn finish(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with_connection(handle, |connection| connection.finish(now)).unwrap_or(false)
    }

    /// As [`Connection::disconnect`]; also refuses an incoming connection.
    pub fn disconnect(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with_connection(handle, |connection| connection.disconnect(now)).unwrap_or(false)
    }

    /// As [`Connection::abort`].
    pub fn abort(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with_connection(handle, |connection| connection.abort(now)).unwrap_or(false)
    }

    /// As [`Connection::reset`].
    pub fn reset(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with_connection(handle, |connection| connection.reset(now)).unwrap_or(false)
    }

    /// As [`Connection::accept_reset`].
    pub fn accept_reset(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with_connection(handle, |connection| connection.accept_reset(now)).unwrap_or(false)
    }

    /// As [`Connection::set_busy`].
    pub fn set_busy(&mut self, handle: ConnectionHandle, is_busy: bool, now: Instant) {
        self.with_connection(handle, |connection| connection.set_busy(is_busy, now));
    }

    /// The connection of a handle; `None` once it has ended and all its events are polled.
    #[must_use]
    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection<T>> {
        let entry = self.entries.get(usize::from(handle.slot))?;
        if entry.generation == handle.generation { entry.connection.as_ref() } else { None }
    }

    /// The two ends of a connection; `None` once it has ended and all its events are polled.
    #[must_use]
    pub fn peer(&self, handle: ConnectionHandle) -> Option<Peer> {
        self.connection(handle).map(|_| self.entries[usize::from(handle.slot)].peer)
    }

    /// The connection of I and S PDUs with this mark from an extended peer. `saps`: DSAP and SSAP. `None` if there is
    /// none.
    #[inline]
    #[must_use]
    pub fn connection_with(&self, source: Mac, saps: [u8; 2], mark: u64) -> Option<ConnectionHandle> {
        let [local, remote] = [Lsap::new(saps[0])?, Lsap::new(saps[1])?];
        let slot = self.by_peer.get(Peer { local, mac: source, remote }.key())?;
        let connection = self.entries[usize::from(slot)].connection.as_ref()?;
        connection.receives(mark).then(|| self.handle_of(slot))
    }

    /// The key with which a connection's peer accepts connections; 0 if there is none.
    #[must_use]
    pub fn peer_key(&self, handle: ConnectionHandle) -> u64 {
        self.connection(handle).map_or(0, Connection::peer_key)
    }

    /// Records that the caller keeps a copy of an [early](Delivery::Early) information field until it is next in
    /// sequence.
    pub fn keep(&mut self, handle: ConnectionHandle, number: u16) {
        if let Some(connection) = self.connection_mut(handle) {
            connection.keep(number);
        }
    }

    /// Whether the information field with this number is kept.
    #[must_use]
    pub fn is_kept(&self, handle: ConnectionHandle, number: u16) -> bool {
        self.connection(handle).is_some_and(|connection| connection.is_kept(number))
    }

    /// The number of the next information field in sequence if it is kept; it then counts as delivered.
    #[inline]
    pub fn next_kept(&mut self, handle: ConnectionHandle, now: Instant) -> Option<u16> {
        let number = self.connection_mut(handle)?.next_kept(now);
        self.update_queues(handle.slot);
        number
    }

    /// Number of connections, including those being set up or disconnected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The station's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Processes a frame. `llc`: from DSAP to the end given by the length field; `trailer`: the bytes behind, such as
    /// padding. A reply must be sent before the next call of `poll_transmit`. The caller of an extended station must
    /// have verified the guard.
    #[inline]
    pub fn handle_frame<'a>(
        &mut self,
        source: Mac,
        destination: Mac,
        llc: &'a [u8],
        trailer: &'a [u8],
        now: Instant,
    ) -> Handled<'a> {
        self.counters.frames += 1;
        let pdu = match Pdu::decode(llc) {
            Ok(pdu) => pdu,
            Err(malformed) => {
                self.counters.malformed[malformed as usize] += 1;
                // Extended stations never send malformed PDUs: no FRMR.
                if !self.parameters.is_extended {
                    self.handle_malformed(source, destination, llc, malformed, now);
                }
                return Handled::default();
            }
        };
        let (pdu, extension) = if self.parameters.is_extended {
            let Some(stripped) = extension::strip(pdu, trailer, self.guard) else {
                self.counters.unauthenticated += 1;
                return Handled::default();
            };
            stripped
        } else {
            (pdu, extension::unextended(&pdu))
        };
        let (from, to) = (source, destination);
        if let (Body::I { .. } | Body::S { .. }, Destination::Individual(local), Source::Individual(remote), false) =
            (pdu.body, pdu.destination, pdu.source, address::is_group_mac(to))
        {
            let peer = Peer { local, mac: from, remote };
            if let Some(slot) = self.by_peer.get(peer.key()) {
                return self.handle_connected(slot, &pdu, &extension, now);
            }
        }
        self.handle_other(from, to, &pdu, &extension, now)
    }

    /// Processes expired timers. Call it when [`next_deadline`](Self::next_deadline) has passed; earlier calls are
    /// harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.pop(now) {
            if let Some(connection) = &mut self.entries[usize::from(slot)].connection {
                connection.handle_timeout(now);
                self.update_queues(slot);
            }
        }
        self.datagrams_out.handle_timeout(now);
        self.datagrams_in.handle_timeout(now);
    }

    /// Time at which `handle_timeout` is due: a lower bound of the next timer.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let datagrams = self.datagrams_out.next_deadline().min(self.datagrams_in.next_deadline());
        self.deadlines.earliest().min(datagrams).if_set()
    }

    /// As [`next_deadline`](Self::next_deadline), but exact: a caller that sleeps until then is not woken by a timer
    /// that was postponed or stopped.
    #[must_use]
    pub fn exact_deadline(&mut self) -> Option<Instant> {
        while let Some((deadline, slot)) = self.deadlines.first() {
            let connection = self.entries[usize::from(slot)].connection.as_mut();
            let exact = connection.map_or(Instant::NEVER, Connection::exact_wake);
            if exact <= deadline {
                break;
            }
            self.deadlines.remove(slot);
            self.deadlines.wake_by(slot, exact);
        }
        self.next_deadline()
    }

    /// Whether a connection may have a frame to transmit.
    #[inline]
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.to_send.first().is_some()
    }

    /// Whether the frames to transmit include a final response, for which a peer waits.
    #[inline]
    #[must_use]
    pub fn is_answer_due(&self) -> bool {
        self.is_answer_due
    }

    /// The next frame to transmit. Connections are served round-robin.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<StationTransmit<'_, T>> {
        while let Some(slot) = self.to_send.first() {
            let entry = &mut self.entries[usize::from(slot)];
            if entry.connection.as_ref().is_some_and(Connection::has_pdu) {
                return self.transmit(slot, now);
            }
            self.to_send.pop();
            self.sent_in_turn = 0;
            self.update_queues(slot);
        }
        self.is_answer_due = false;
        let is_extended = self.parameters.is_extended;
        let (destination, header, mark, token) = self.datagrams_out.poll_transmit(now)?;
        let extra = if is_extended { Extra::datagram(mark) } else { Extra::NONE };
        Some(StationTransmit { destination, header, token: Some(token), extra, connection: None, label: None })
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<StationEvent<T>> {
        while let Some(slot) = self.to_report.first() {
            let handle = self.handle_of(slot);
            if let Some(connection) = &mut self.entries[usize::from(slot)].connection
                && let Some(event) = connection.poll_event()
            {
                return Some(StationEvent::Connection(handle, event));
            }
            self.to_report.pop();
            self.update_queues(slot);
        }
        if let Some((peer, token, outcome)) = self.datagrams_out.poll_outcome() {
            return Some(StationEvent::Datagram(peer, token, outcome));
        }
        None
    }

    #[inline]
    fn handle_connected<'a>(&mut self, slot: u16, pdu: &Pdu<'a>, extension: &Extension, now: Instant) -> Handled<'a> {
        let handle = self.handle_of(slot);
        let entry = &mut self.entries[usize::from(slot)];
        let Some(connection) = entry.connection.as_mut() else { return Handled::default() };
        let disposition = connection.handle(pdu, extension, now);
        let has_kept = connection.has_kept();
        self.is_answer_due |= connection.is_answer_due();
        let (peer, is_connected) = (entry.peer, connection.state().is_connected());
        let is_of_another = !connection.receives(extension.mark);
        self.update_queues(slot);
        let information = pdu.information();
        let delivery = match disposition {
            Disposition::InOrder => Delivery::Data { connection: handle, information, has_kept },
            Disposition::Early => Delivery::Early { connection: handle, number: extension.ns, information },
            // The peer's connection does not exist here: a poll is answered with DM. One of this connection is only
            // late.
            Disposition::Foreign if is_connected && is_of_another => return self.reply_dm(peer, pdu, extension),
            Disposition::Foreign | Disposition::NoData => return Handled::default(),
        };
        Handled { delivery: Some(delivery), reply: None }
    }

    fn identification(&self, destination: Destination, source: Source, role: Role, poll_final: bool) -> Header {
        let window = SequenceNumber::wrapping(u32::from(self.parameters.receive_window));
        let identification = Identification::Basic { class: self.class, window };
        Pdu { destination, source, body: Body::Xid { role, poll_final, identification } }.header()
    }

    fn add_incoming(&mut self, peer: Peer, key: u64, now: Instant) -> Option<u16> {
        let sap = self.saps[index(peer.local)]?;
        if !sap.is_listening || sap.waiting >= self.backlog {
            return None;
        }
        let slot = self.add(peer, key, true, now)?;
        self.saps[index(peer.local)].as_mut()?.waiting += 1;
        Some(slot)
    }

    fn add(&mut self, peer: Peer, key: u64, is_waiting: bool, now: Instant) -> Option<u16> {
        self.nonce_count += 1;
        // 0 means "no nonce".
        let nonce = extension::next_nonce(self.nonce_seed, self.nonce_count).max(1);
        let (parameters, Peer { local, remote, .. }) = (self.parameters, peer);
        let connection = || Some(Connection::with_parameters(parameters, local, remote, [nonce, key], now));
        let slot = if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[usize::from(slot)];
            (entry.peer, entry.is_linked, entry.is_waiting) = (peer, true, is_waiting);
            entry.connection = connection();
            slot
        } else if self.entries.len() < self.entries.capacity() {
            let entry = Entry { generation: 0, peer, connection: connection(), is_linked: true, is_waiting };
            self.entries.push(entry);
            (self.entries.len() - 1) as u16
        } else {
            return None;
        };
        self.by_peer.insert(peer.key(), slot);
        Some(slot)
    }

    fn handle_of(&self, slot: u16) -> ConnectionHandle {
        ConnectionHandle { slot, generation: self.entries[usize::from(slot)].generation }
    }

    #[inline]
    fn connection_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection<T>> {
        let entry = self.entries.get_mut(usize::from(handle.slot))?;
        if entry.generation == handle.generation { entry.connection.as_mut() } else { None }
    }

    fn with_connection<R>(
        &mut self,
        handle: ConnectionHandle,
        operation: impl FnOnce(&mut Connection<T>) -> R,
    ) -> Option<R> {
        let result = operation(self.connection_mut(handle)?);
        self.update_queues(handle.slot);
        Some(result)
    }

    fn transmit(&mut self, slot: u16, now: Instant) -> Option<StationTransmit<'_, T>> {
        self.sent_in_turn += 1;
        if self.sent_in_turn == PDUS_PER_TURN {
            self.sent_in_turn = 0;
            self.to_send.rotate();
        }
        let entry = &mut self.entries[usize::from(slot)];
        let destination = entry.peer.mac;
        let connection = entry.connection.as_mut()?;
        let (header, index, extra) = connection.next_pdu(now)?;
        self.deadlines.wake_by(slot, connection.wake());
        let handle = ConnectionHandle { slot, generation: entry.generation };
        let label = connection.label();
        let token = index.and_then(|index| connection.token(index));
        Some(StationTransmit { destination, header, token, extra, connection: Some(handle), label })
    }

    /// After any event of a connection: queues it for transmission and events, and removes it once it has ended.
    #[inline]
    fn update_queues(&mut self, slot: u16) {
        let entry = &mut self.entries[usize::from(slot)];
        let Some(connection) = &entry.connection else { return };
        let (has_pdu, has_event) = (connection.has_pdu(), connection.has_event());
        if has_pdu {
            self.to_send.push(slot);
        }
        if has_event {
            self.to_report.push(slot);
        }
        self.deadlines.wake_by(slot, connection.wake());
        let state = connection.state();
        if entry.is_waiting && state != State::Conn {
            entry.is_waiting = false;
            if let Some(sap) = &mut self.saps[index(entry.peer.local)] {
                sap.waiting = sap.waiting.saturating_sub(1);
            }
        }
        if state == State::Adm {
            self.remove(slot, !has_pdu && !has_event);
        }
    }

    /// Removes an ended connection from `by_peer`; if it has no frames or events left, frees its slot.
    fn remove(&mut self, slot: u16, is_done: bool) {
        let entry = &mut self.entries[usize::from(slot)];
        if core::mem::take(&mut entry.is_linked) {
            self.by_peer.remove(entry.peer.key());
        }
        if is_done && let Some(connection) = entry.connection.take() {
            self.counters.ended_connections.add(connection.counters());
            entry.generation = entry.generation.wrapping_add(1);
            self.deadlines.remove(slot);
            self.free.push(slot);
        }
    }
}

const fn index(sap: Lsap) -> usize {
    sap.byte() as usize >> 1
}

#[cfg(test)]
mod tests;
