// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station: its service access points, and all their connections and datagrams.

mod delivery;
mod receive;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::acknowledged::{DatagramOutcome, DatagramRefused, Peer, Receiver, Sender, Timing};
use crate::address::{self, Destination, GroupSap, Lsap, Mac, Source};
use crate::bounds;
use crate::config::{ConfigError, Parameters, StationConfig, require};
use crate::connection::{Connection, ConnectionEvent, Refused, RefusedReason, State, Taken};
use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::extension::{self, Extension, Extra, Guard};
use crate::keyed::Keyed;
use crate::pdu::{Body, Class, Header, Identification, Pdu, Role, SequenceNumber};
use crate::time::{Instant, nanos};
use crate::turns::Turns;
pub use delivery::{Delivery, Handled, Reply};

/// A station on one medium. See the crate's README for its use.
pub struct Station<T> {
    mac: Mac,
    class: Class,
    parameters: Parameters,
    backlog: u16,
    saps: Box<[Option<Sap>; 128]>,
    entries: Vec<Entry<T>>,
    free: Vec<u16>,
    keyed: Keyed,
    deadlines: Deadlines,
    to_send: Turns,
    to_report: Turns,
    datagrams_out: Sender<T>,
    datagrams_in: Receiver,
    address_check: AddressCheck,
    counters: Counters,
    /// A peer waits for an answer that is among what is to be sent.
    owes_answer: bool,
    /// Of extended stations: what nonces are drawn from, how many were, and the mark of datagrams for this station.
    nonce_seed: u64,
    nonces: u64,
    datagram_mark: u64,
    guard: Guard,
}

/// Names a connection of a station; one that has ended is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle {
    slot: u16,
    generation: u32,
}

impl ConnectionHandle {
    /// A number below the station's `connections` that no other connection has at the same time.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.slot)
    }
}

/// Something to put on the wire.
#[derive(Debug)]
pub struct StationTransmit<'s, T> {
    /// To whom.
    pub destination: Mac,
    /// The PDU up to its information field.
    pub header: Header,
    /// Whose information follows, if any.
    pub token: Option<&'s T>,
    /// What an extended station adds, behind a guard.
    pub extra: Extra,
    /// Whose PDU it is, if a connection's.
    pub connection: Option<ConnectionHandle>,
}

/// Something to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationEvent<T> {
    /// Of a connection. After `Disconnected` its handle means nothing any more.
    Connection(ConnectionHandle, ConnectionEvent<T>),
    /// Of an acknowledged datagram.
    Datagram(Peer, T, DatagramOutcome),
    /// [`Station::check_address`] is done: whether somebody else has the address.
    AddressChecked {
        /// Somebody has.
        is_duplicate: bool,
    },
}

/// Why a connection was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The local service access point is not active, or the station's class has no type 2.
    NotActive,
    /// There is one between these two service access points.
    Exists,
    /// No room for another.
    Full,
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotActive => "the local service access point is not active for connections",
            Self::Exists => "a connection between these service access points exists",
            Self::Full => "the station holds no more connections",
        })
    }
}

impl core::error::Error for ConnectError {}

#[derive(Clone, Copy, Default)]
struct Sap {
    is_listening: bool,
    /// Bit n: member of the group 2 n + 1.
    groups: u128,
    /// Connections that wait for the user's answer.
    waiting: u16,
}

struct Entry<T> {
    generation: u32,
    peer: Peer,
    connection: Option<Connection<T>>,
    /// Whether frames find it: not after it has ended.
    is_linked: bool,
    /// Whether it counts among its SAP's `waiting`.
    is_waiting: bool,
}

#[derive(Clone, Copy)]
enum AddressCheck {
    Idle,
    Running { left: u8, due: Instant },
    Done { is_duplicate: bool },
}

impl<T> Station<T> {
    /// A station without active service access points.
    ///
    /// # Errors
    /// Which value is out of its range.
    pub fn new(mac: Mac, config: &StationConfig, now: Instant) -> Result<Self, ConfigError> {
        let mut parameters = config.connection.check()?;
        parameters.key = config.key;
        parameters.cookie = if config.tells_key { config.key } else { 0 };
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
            mac,
            class: config.class,
            parameters,
            backlog: config.backlog,
            saps: Box::new([None; 128]),
            entries: Vec::with_capacity(usize::from(config.connections)),
            free: Vec::with_capacity(usize::from(config.connections)),
            keyed: Keyed::new(config.connections, config.hash_seed),
            deadlines: Deadlines::new(config.connections),
            to_send: Turns::new(config.connections),
            to_report: Turns::new(config.connections),
            datagrams_out: Sender::new(config.datagram_peers, config.hash_seed, timing, now),
            datagrams_in: Receiver::new(config.datagram_peers, config.hash_seed, config.datagram_memory),
            address_check: AddressCheck::Idle,
            counters: Counters::default(),
            owes_answer: false,
            nonce_seed: config.hash_seed,
            nonces: 0,
            datagram_mark: extension::datagram_mark(config.key),
            guard: config.guard,
        })
    }

    /// Makes a service access point active: it answers XID and TEST, and gets datagrams.
    pub fn activate(&mut self, sap: Lsap) {
        self.saps[index(sap)].get_or_insert_default();
    }

    /// Makes it inactive, aborting its connections.
    pub fn deactivate(&mut self, sap: Lsap, now: Instant) {
        for slot in 0..self.entries.len() {
            let entry = &mut self.entries[slot];
            if entry.peer.local == sap
                && let Some(connection) = &mut entry.connection
            {
                connection.abort(now);
                self.settle(slot as u16);
            }
        }
        self.saps[index(sap)] = None;
    }

    /// Whether a service access point is active.
    #[must_use]
    pub fn is_active(&self, sap: Lsap) -> bool {
        self.saps[index(sap)].is_some()
    }

    /// Lets peers connect to an active service access point, or not; each gives a
    /// [`ConnectionEvent::Incoming`]. False if it is not active.
    pub fn listen(&mut self, sap: Lsap, is_listening: bool) -> bool {
        self.saps[index(sap)].as_mut().map(|sap| sap.is_listening = is_listening).is_some()
    }

    /// Makes an active service access point a member of a group, or not. False if it is not active.
    pub fn join(&mut self, sap: Lsap, group: GroupSap, is_member: bool) -> bool {
        let bit = 1 << (group.byte() >> 1);
        let Some(sap) = &mut self.saps[index(sap)] else { return false };
        sap.groups = if is_member { sap.groups | bit } else { sap.groups & !bit };
        true
    }

    /// The active service access points that a destination names.
    pub fn members(&self, destination: Destination) -> impl Iterator<Item = Lsap> + '_ {
        (1..128u8).filter_map(|number| Lsap::new(number << 1)).filter(move |sap| {
            self.saps[index(*sap)].is_some_and(|state| match destination {
                Destination::Null => false,
                Destination::Individual(one) => one == *sap,
                Destination::Group(group) => state.groups >> (group.byte() >> 1) & 1 == 1,
                Destination::Global => true,
            })
        })
    }

    /// The header of a UI PDU for whoever has this key, and what an extended station adds; the information follows as it is.
    /// Type 1 keeps no state: send it yourself.
    #[must_use]
    pub fn datagram(&self, local: Lsap, remote: Destination, key: u64) -> Option<(Header, Extra)> {
        let pdu = Pdu { destination: remote, source: local.into(), body: Body::Ui { information: &[] } };
        self.is_active(local).then(|| (pdu.header(), self.extra(extension::datagram_mark(key))))
    }

    /// The whole XID command: what is the other station? The answer is a [`Delivery::Identification`].
    #[must_use]
    pub fn identify(&self, source: Source, remote: Destination) -> Header {
        self.identification(remote, source, Role::Command, true)
    }

    /// The header of a TEST command, whose information comes back as [`Delivery::Test`].
    #[must_use]
    pub fn test(&self, source: Source, remote: Destination) -> Header {
        let body = Body::Test { role: Role::Command, poll_final: true, information: &[] };
        Pdu { destination: remote, source, body }.header()
    }

    /// Asks whether somebody else has this station's address; [`StationEvent::AddressChecked`] tells.
    pub fn check_address(&mut self, now: Instant) {
        self.address_check = AddressCheck::Running { left: bounds::ADDRESS_CHECKS, due: now };
    }

    /// Sends a datagram that is repeated until the peer, which has this key, has it; [`StationEvent::Datagram`] tells.
    ///
    /// # Errors
    /// The token, and why it was not taken.
    pub fn send_datagram(&mut self, peer: Peer, key: u64, token: T, now: Instant) -> Result<(), (T, DatagramRefused)> {
        if !self.class.has_type_3() || !self.is_active(peer.local) {
            return Err((token, DatagramRefused::NotActive));
        }
        self.datagrams_out.send(peer, extension::datagram_mark(key), token, now)
    }

    /// Connects to a peer; of an extended one with its key.
    ///
    /// # Errors
    /// Why that cannot begin.
    pub fn connect(&mut self, peer: Peer, key: u64, now: Instant) -> Result<ConnectionHandle, ConnectError> {
        if !self.class.has_type_2() || !self.is_active(peer.local) {
            return Err(ConnectError::NotActive);
        }
        if self.keyed.get(peer.key()).is_some() {
            return Err(ConnectError::Exists);
        }
        let slot = self.add(peer, key, false, now).ok_or(ConnectError::Full)?;
        let handle = self.handle_of(slot);
        self.with(handle, |connection| connection.connect(now));
        Ok(handle)
    }

    /// Answers [`ConnectionEvent::Incoming`]. False if the connection does not wait for it.
    pub fn accept(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with(handle, |connection| connection.accept(now)).unwrap_or(false)
    }

    /// Puts an information field into a connection's send queue.
    ///
    /// # Errors
    /// The token, and what to do.
    #[inline]
    pub fn send(&mut self, handle: ConnectionHandle, token: T, now: Instant) -> Result<(), Refused<T>> {
        let Some(connection) = self.connection_mut(handle) else {
            return Err(Refused { token, reason: RefusedReason::Stale });
        };
        connection.send(token, now)?;
        let (wants_transmit, wake) = (connection.wants_transmit(), connection.wake());
        if wants_transmit {
            self.to_send.push(handle.slot);
        }
        self.deadlines.wake_by(handle.slot, wake);
        Ok(())
    }

    /// As [`Connection::want_answer`].
    #[inline]
    pub fn want_answer(&mut self, handle: ConnectionHandle, now: Instant) {
        if let Some(connection) = self.connection_mut(handle) {
            connection.want_answer(now);
            self.settle(handle.slot);
        }
    }

    /// As [`Connection::finish`]; false if there is no such connection, or it is not connected.
    pub fn finish(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with(handle, |connection| connection.finish(now)).unwrap_or(false)
    }

    /// As [`Connection::disconnect`]; also refuses one that is incoming.
    pub fn disconnect(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with(handle, |connection| connection.disconnect(now)).unwrap_or(false)
    }

    /// As [`Connection::abort`].
    pub fn abort(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with(handle, |connection| connection.abort(now)).unwrap_or(false)
    }

    /// As [`Connection::reset`].
    pub fn reset(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with(handle, |connection| connection.reset(now)).unwrap_or(false)
    }

    /// As [`Connection::accept_reset`].
    pub fn accept_reset(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        self.with(handle, |connection| connection.accept_reset(now)).unwrap_or(false)
    }

    /// As [`Connection::set_busy`].
    pub fn set_busy(&mut self, handle: ConnectionHandle, is_busy: bool, now: Instant) {
        self.with(handle, |connection| connection.set_busy(is_busy, now));
    }

    /// A connection, to look at; `None` once it has ended and said so.
    #[must_use]
    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection<T>> {
        let entry = self.entries.get(usize::from(handle.slot))?;
        if entry.generation == handle.generation { entry.connection.as_ref() } else { None }
    }

    /// Whom a connection connects; `None` once it has ended and said so.
    #[must_use]
    pub fn peer(&self, handle: ConnectionHandle) -> Option<Peer> {
        self.connection(handle).map(|_| self.entries[usize::from(handle.slot)].peer)
    }

    /// Which connection an extended peer's I and S PDUs with this mark are of, from the service access point and to the one
    /// that `saps` says, SSAP last; `None` if they are of none.
    #[inline]
    #[must_use]
    pub fn connection_with(&self, source: Mac, saps: [u8; 2], mark: u64) -> Option<ConnectionHandle> {
        let [local, remote] = [Lsap::new(saps[0])?, Lsap::new(saps[1])?];
        let slot = self.keyed.get(Peer { local, mac: source, remote }.key())?;
        let connection = self.entries[usize::from(slot)].connection.as_ref()?;
        connection.receives(mark).then(|| self.handle_of(slot))
    }

    /// What to connect back to a connection's peer with: the key that it told, or 0.
    #[must_use]
    pub fn peer_key(&self, handle: ConnectionHandle) -> u64 {
        self.connection(handle).map_or(0, Connection::peer_key)
    }

    /// Keeps an [early](Delivery::Early) information field until its turn: the caller has a copy.
    pub fn keep(&mut self, handle: ConnectionHandle, number: u16) {
        if let Some(connection) = self.connection_mut(handle) {
            connection.keep(number);
        }
    }

    /// Whether a connection waits for the turn of a field that was kept.
    #[must_use]
    pub fn is_kept(&self, handle: ConnectionHandle, number: u16) -> bool {
        self.connection(handle).is_some_and(|connection| connection.is_kept(number))
    }

    /// The number of the next information field of a connection, if it is one that was kept: it counts as delivered.
    #[inline]
    pub fn next_kept(&mut self, handle: ConnectionHandle, now: Instant) -> Option<u16> {
        let number = self.connection_mut(handle)?.next_kept(now);
        self.settle(handle.slot);
        number
    }

    /// Connections that exist, also while they are set up or ended.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// What came in so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a frame: `llc` from DSAP to where the length field says, and what lies behind, such as padding. A reply must be
    /// sent before `poll_transmit` is asked. Of an extended station the guard must have been looked at.
    #[inline]
    pub fn handle_frame<'a>(
        &mut self,
        source: Mac,
        destination: Mac,
        llc: &'a [u8],
        behind: &'a [u8],
        now: Instant,
    ) -> Handled<'a> {
        self.counters.frames += 1;
        let pdu = match Pdu::decode(llc) {
            Ok(pdu) => pdu,
            Err(malformed) => {
                self.counters.malformed[malformed as usize] += 1;
                // Nobody of ours sends such.
                if !self.parameters.is_extended {
                    self.handle_malformed(source, destination, llc, malformed, now);
                }
                return Handled::default();
            }
        };
        let (pdu, extension) = if self.parameters.is_extended {
            let Some(taken) = extension::take(pdu, behind, self.guard) else {
                self.counters.unauthenticated += 1;
                return Handled::default();
            };
            taken
        } else {
            (pdu, extension::plain(&pdu))
        };
        let (from, to) = (source, destination);
        if let (Body::I { .. } | Body::S { .. }, Destination::Individual(local), Source::Individual(remote), false) =
            (pdu.body, pdu.destination, pdu.source, address::is_group_mac(to))
        {
            let peer = Peer { local, mac: from, remote };
            if let Some(slot) = self.keyed.get(peer.key()) {
                return self.handle_connected(slot, &pdu, &extension, now);
            }
        }
        self.handle_unusual(from, to, &pdu, &extension, now)
    }

    /// To be called when [`next_deadline`](Self::next_deadline) has passed; harmless before.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.pop(now) {
            if let Some(connection) = &mut self.entries[usize::from(slot)].connection {
                connection.handle_timeout(now);
                self.settle(slot);
            }
        }
        self.datagrams_out.handle_timeout(now);
        self.datagrams_in.handle_timeout(now);
        if let AddressCheck::Running { left: 0, due } = self.address_check
            && due <= now
        {
            self.address_check = AddressCheck::Done { is_duplicate: false };
        }
    }

    /// When `handle_timeout` is due; it may turn out that nothing is to be done then.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let check = match self.address_check {
            AddressCheck::Running { due, .. } => due,
            _ => Instant::NEVER,
        };
        let datagrams = self.datagrams_out.next_deadline().min(self.datagrams_in.next_deadline());
        self.deadlines.earliest().min(datagrams).min(check).if_ever()
    }

    /// As [`next_deadline`](Self::next_deadline), but never too early: for callers that sleep until then, whom a timer
    /// that was only put off would wake for nothing.
    #[must_use]
    pub fn exact_deadline(&mut self) -> Option<Instant> {
        while let Some((deadline, slot)) = self.deadlines.first() {
            let connection = self.entries[usize::from(slot)].connection.as_mut();
            let wanted = connection.map_or(Instant::NEVER, Connection::exact_wake);
            if wanted <= deadline {
                break;
            }
            self.deadlines.remove(slot);
            self.deadlines.wake_by(slot, wanted);
        }
        self.next_deadline()
    }

    /// Whether a connection may have a frame to send.
    #[inline]
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.to_send.first().is_some()
    }

    /// Whether a peer has asked for an acknowledgement, for which it waits, and which is among the frames to be sent.
    #[inline]
    #[must_use]
    pub fn owes_answer(&self) -> bool {
        self.owes_answer
    }

    /// The next frame to send, until there is none. Connections take turns.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<StationTransmit<'_, T>> {
        if let AddressCheck::Running { left: left @ 1.., due } = self.address_check
            && due <= now
        {
            self.address_check = AddressCheck::Running { left: left - 1, due: now + bounds::ADDRESS_CHECK_INTERVAL };
            let header = self.identify(Source::Null, Destination::Null);
            let extra = self.extra(self.datagram_mark);
            return Some(StationTransmit { destination: self.mac, header, token: None, extra, connection: None });
        }
        while let Some(slot) = self.to_send.first() {
            let entry = &mut self.entries[usize::from(slot)];
            if entry.connection.as_ref().is_some_and(Connection::wants_transmit) {
                return self.transmit(slot, now);
            }
            self.to_send.pop();
            self.settle(slot);
        }
        self.owes_answer = false;
        let is_extended = self.parameters.is_extended;
        let (destination, header, mark, token) = self.datagrams_out.poll_transmit(now)?;
        let extra = if is_extended { Extra::datagram(mark) } else { Extra::NONE };
        Some(StationTransmit { destination, header, token: Some(token), extra, connection: None })
    }

    /// The next thing to know, until there is none.
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
            self.settle(slot);
        }
        if let Some((peer, token, outcome)) = self.datagrams_out.poll_outcome() {
            return Some(StationEvent::Datagram(peer, token, outcome));
        }
        if let AddressCheck::Done { is_duplicate } = self.address_check {
            self.address_check = AddressCheck::Idle;
            return Some(StationEvent::AddressChecked { is_duplicate });
        }
        None
    }

    #[inline]
    fn handle_connected<'a>(&mut self, slot: u16, pdu: &Pdu<'a>, extension: &Extension, now: Instant) -> Handled<'a> {
        let handle = self.handle_of(slot);
        let entry = &mut self.entries[usize::from(slot)];
        let Some(connection) = entry.connection.as_mut() else { return Handled::default() };
        let taken = connection.handle(pdu, extension, now);
        let has_kept = connection.has_kept();
        self.owes_answer |= connection.owes_answer();
        let (peer, is_connected) = (entry.peer, connection.state().is_connected());
        self.settle(slot);
        let information = pdu.information();
        let delivery = match taken {
            Taken::InOrder => Delivery::Data { connection: handle, information, has_kept },
            Taken::Early => Delivery::Early { connection: handle, number: extension.ns, information },
            // A peer that asks for what it takes for a connection has none here.
            Taken::Foreign if is_connected => return self.disown(peer, pdu, extension),
            Taken::Foreign | Taken::Not => return Handled::default(),
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
        self.nonces += 1;
        // 0 says that there is none.
        let nonce = extension::next_nonce(self.nonce_seed, self.nonces).max(1);
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
        self.keyed.insert(peer.key(), slot);
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

    fn with<R>(&mut self, handle: ConnectionHandle, operation: impl FnOnce(&mut Connection<T>) -> R) -> Option<R> {
        let result = operation(self.connection_mut(handle)?);
        self.settle(handle.slot);
        Some(result)
    }

    fn transmit(&mut self, slot: u16, now: Instant) -> Option<StationTransmit<'_, T>> {
        self.to_send.rotate();
        let entry = &mut self.entries[usize::from(slot)];
        let destination = entry.peer.mac;
        let connection = entry.connection.as_mut()?;
        let (header, index, extra) = connection.next_pdu(now)?;
        self.deadlines.wake_by(slot, connection.wake());
        let handle = ConnectionHandle { slot, generation: entry.generation };
        let token = index.and_then(|index| connection.token(index));
        Some(StationTransmit { destination, header, token, extra, connection: Some(handle) })
    }

    /// After anything happened to a connection: notes what it wants, and forgets it once it has ended.
    #[inline]
    fn settle(&mut self, slot: u16) {
        let entry = &mut self.entries[usize::from(slot)];
        let Some(connection) = &entry.connection else { return };
        let (wants_transmit, has_event) = (connection.wants_transmit(), connection.has_event());
        if wants_transmit {
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
            self.forget(slot, !wants_transmit && !has_event);
        }
    }

    /// Frames find the connection no more; if it has nothing left to say, its slot is free again.
    fn forget(&mut self, slot: u16, is_over: bool) {
        let entry = &mut self.entries[usize::from(slot)];
        if core::mem::take(&mut entry.is_linked) {
            self.keyed.remove(entry.peer.key());
        }
        if is_over && let Some(connection) = entry.connection.take() {
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
