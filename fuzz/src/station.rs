// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station with arbitrary frames from a few peers, interleaved with user operations and timeouts. Then the peers fall
//! silent, and every operation must end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use barewire_llc::{
    AfterLoss, Class, Connection, ConnectionConfig, ConnectionEvent, ConnectionHandle, Delivery, Destination, Handled,
    Instant, Lsap, Mac, Pdu, Peer, Reply, Source, State, Station, StationConfig, StationEvent,
};

use crate::input::Input;
use crate::pdu::{any_body, encode};

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const BROADCAST: Mac = [0xff; 6];
/// Other stations, a group address, and the station's own address.
const SOURCES: &[Mac] = &[[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4], [3, 0, 0, 0, 0, 2], MAC];
const LOCAL: &[u8] = &[0x40, 0x42, 0xaa];
const REMOTE: &[u8] = &[0x40, 0x44];
const GROUP: u8 = 0x41;

const CONNECTIONS: u16 = 5;
const INFORMATION_MAX: u16 = 32;
/// Time limit for everything to end: far longer than N2 retries after the inactivity timeout.
const SILENCE: Duration = Duration::from_secs(2);
/// More PDUs and events than five connections cause at one time.
const SETTLE_ROUNDS_MAX: usize = 1000;
/// Longest input used: longer ones find nothing that shorter ones do not.
const INPUT_MAX: usize = 1024;

/// Number of a user's token; the station returns each once.
type Token = u32;

struct World {
    station: Station<Token>,
    has_type_2: bool,
    now: Instant,
    handles: Vec<ConnectionHandle>,
    ended: BTreeSet<ConnectionHandle>,
    /// Tokens held by the station, with their connection; `None` for datagrams.
    held: BTreeMap<Token, Option<ConnectionHandle>>,
    next_token: Token,
}

/// Runs the operations of the input, then requires every operation to end without the peers.
pub fn station(data: &[u8]) {
    let mut input = Input::new(&data[..data.len().min(INPUT_MAX)]);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.operate(&mut input);
        assert!(world.station.connections() <= usize::from(CONNECTIONS));
    }
    world.fall_silent();
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let flags = input.byte();
        let window = input.of(&[1, 2, 7, 64, 127]);
        let class = [Class::Iv, Class::Iv, Class::Ii, Class::Iii, Class::I][usize::from(flags) % 5];
        let connection = ConnectionConfig {
            window,
            receive_window: input.of(&[1, 2, 7, 64, 127]),
            queue: u16::from(window).next_power_of_two(),
            retries: 2,
            acknowledge_every: 1,
            t1_initial: Duration::from_millis(1),
            t1_max: Duration::from_millis(10),
            busy_poll: Duration::from_millis(1),
            stall_limit: Duration::from_millis(100),
            inactivity: Some(Duration::from_millis(50)),
            after_loss: if flags & 0x80 == 0 { AfterLoss::Halve } else { AfterLoss::One },
            information_max: INFORMATION_MAX,
            ..ConnectionConfig::default()
        };
        let config = StationConfig {
            class,
            connection,
            connections: CONNECTIONS,
            backlog: 2,
            datagram_peers: 3,
            datagram_retries: [2, 2, 0, 255][usize::from(flags >> 4 & 3)],
            datagram_timeout: Duration::from_micros(100),
            ..StationConfig::default()
        };
        let now = Instant::default();
        let mut station = Station::new(&config, now).expect("a legal configuration");
        for byte in LOCAL {
            let sap = lsap(*byte);
            station.activate(sap);
            assert!(station.listen(sap, *byte != 0xaa));
        }
        Self {
            station,
            has_type_2: class.has_type_2(),
            now,
            handles: Vec::new(),
            ended: BTreeSet::new(),
            held: BTreeMap::new(),
            next_token: 0,
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let (amount, now) = (choice >> 5, self.now);
        match choice & 0x1f {
            0..=9 => self.handle_typed(input),
            10 => {
                let (from, to) = (input.of(SOURCES), input.of(&[MAC, MAC, BROADCAST]));
                let length = usize::from(input.byte());
                self.handle(from, to, input.take(length));
            }
            11 => (0..=amount).for_each(|_| _ = self.transmit()),
            12 => (0..=amount).for_each(|_| _ = self.take_event()),
            13 => self.settle(),
            14 => self.now = now + Duration::from_micros(1 << (2 * amount)),
            15 => self.station.handle_timeout(now),
            16 => self.pass_time(),
            17 => {
                let handle = self.station.connect(peer(input), 0, now);
                assert!(self.has_type_2 || handle.is_err());
                self.handles.extend(handle.ok());
            }
            18 => self.send(input, 1),
            19 => self.send(input, 1 << amount),
            20 => self.send_datagram(input),
            21 => {
                let sap = lsap(input.of(LOCAL));
                self.station.activate(sap);
                assert!(self.station.is_active(sap));
            }
            22 => {
                let sap = lsap(input.of(LOCAL));
                assert_eq!(self.station.listen(sap, amount & 1 == 0), self.station.is_active(sap));
            }
            23..=25 => self.type_1(input),
            _ => self.change_connection(input, choice & 0x1f, amount),
        }
    }

    /// A user operation on a current or former connection.
    fn change_connection(&mut self, input: &mut Input<'_>, kind: u8, amount: u8) {
        let Some(handle) = self.handle_of(input) else { return };
        let (station, now) = (&mut self.station, self.now);
        let is_done = match (kind, amount) {
            (26, _) => station.accept(handle, now),
            (27, _) => station.disconnect(handle, now),
            (28, 0..=3) => station.finish(handle, now),
            (28, _) => station.abort(handle, now),
            (29, _) => station.reset(handle, now),
            (30, _) => station.accept_reset(handle, now),
            _ => {
                station.set_busy(handle, amount & 1 == 0, now);
                true
            }
        };
        assert!(kind == 31 || !is_done || !self.ended.contains(&handle), "an ended connection accepted an operation");
    }

    /// A well-formed PDU of any kind with any numbers, mostly to a listening SAP.
    fn handle_typed(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let from = SOURCES[usize::from(choice & 7) % SOURCES.len()];
        let to = if choice & 0x38 == 0x38 { BROADCAST } else { MAC };
        let destination =
            Destination::from(input.of(&[LOCAL[0], LOCAL[0], LOCAL[1], LOCAL[2], 0x00, 0xff, GROUP, 0x46]));
        let source = Source::from_byte(if choice & 0x40 == 0 { REMOTE[0] } else { REMOTE[1] });
        let length = usize::from(choice >> 7) * 40;
        let pdu = Pdu { destination, source, body: any_body(input, length) };
        self.handle(from, to, &encode(&pdu));
    }

    fn handle(&mut self, from: Mac, to: Mac, bytes: &[u8]) {
        let frames = self.station.counters().frames;
        let Handled { delivery, reply } = self.station.handle_frame(from, to, bytes, &[], self.now);
        assert_eq!(self.station.counters().frames, frames + 1);
        let information = match delivery {
            Some(Delivery::Data { connection, information, .. }) => {
                assert!(!self.ended.contains(&connection), "data of an ended connection");
                assert!(information.len() <= usize::from(INFORMATION_MAX));
                self.remember(connection);
                information
            }
            Some(Delivery::Datagram { information, .. } | Delivery::Test { information, .. }) => information,
            Some(Delivery::AcknowledgedDatagram { peer, information }) => {
                assert_eq!(peer.mac, from);
                information
            }
            Some(Delivery::Early { .. }) => unreachable!("only extended stations buffer out-of-order PDUs"),
            Some(Delivery::Identification { .. }) | None => &[],
        };
        assert!(is_part(information, bytes));
        if let Some(Reply { destination, header, information, .. }) = reply {
            assert_eq!(destination, from);
            assert!(is_part(information, bytes));
            let whole = [header.as_bytes(), information].concat();
            let response = Pdu::decode(&whole).expect("a response is a PDU");
            assert_eq!(response.role(), barewire_llc::Role::Response);
            let command = Pdu::decode(bytes).expect("only a PDU has an immediate response");
            assert_eq!(command.role(), barewire_llc::Role::Command, "a response to a response never ends");
            assert_eq!(response.poll_final(), command.poll_final(), "F follows P");
        }
    }

    fn send(&mut self, input: &mut Input<'_>, count: usize) {
        let Some(handle) = self.handle_of(input) else { return };
        for _ in 0..count {
            let token = self.next_token;
            match self.station.send(handle, token, self.now) {
                Ok(()) => {
                    assert!(!self.ended.contains(&handle));
                    assert!(self.held.insert(token, Some(handle)).is_none());
                }
                Err(refused) => assert_eq!(refused.token, token),
            }
            self.next_token += 1;
        }
    }

    fn send_datagram(&mut self, input: &mut Input<'_>) {
        let token = self.next_token;
        match self.station.send_datagram(peer(input), 0, token, self.now) {
            Ok(()) => assert!(self.held.insert(token, None).is_none()),
            Err((refused, _)) => assert_eq!(refused, token),
        }
        self.next_token += 1;
    }

    /// The stateless operations of type 1.
    fn type_1(&mut self, input: &mut Input<'_>) {
        let (sap, remote) = (lsap(input.of(LOCAL)), Destination::from(input.byte()));
        let header = self.station.datagram(sap, remote, 0).map(|(header, _)| header);
        assert_eq!(header.is_some(), self.station.is_active(sap));
        for header in
            [Some(self.station.identify(sap.into(), remote)), Some(self.station.test(sap.into(), remote)), header]
        {
            let bytes = header.iter().flat_map(|header| header.as_bytes().to_vec()).collect::<Vec<_>>();
            assert!(bytes.is_empty() || Pdu::decode(&bytes).is_ok());
        }
    }

    /// Transmits one frame; false if there is none.
    fn transmit(&mut self) -> bool {
        let Some(transmit) = self.station.poll_transmit(self.now) else { return false };
        assert!(SOURCES.contains(&transmit.destination));
        let pdu = Pdu::decode(transmit.header.as_bytes()).expect("the station sends PDUs");
        assert!(pdu.information().is_empty(), "the information is the token's");
        if let Some(token) = transmit.token {
            assert!(self.held.contains_key(token), "a returned token is sent");
        }
        true
    }

    /// Handles one event; false if there is none.
    fn take_event(&mut self) -> bool {
        let Some(event) = self.station.poll_event() else { return false };
        match event {
            StationEvent::Connection(handle, event) => {
                assert!(!self.ended.contains(&handle), "{event:?} after the end");
                self.remember(handle);
                match event {
                    ConnectionEvent::Acknowledged(token) | ConnectionEvent::Dropped(token) => {
                        assert_eq!(self.held.remove(&token), Some(Some(handle)), "not this connection's token");
                    }
                    ConnectionEvent::Disconnected(_) => {
                        self.ended.insert(handle);
                        assert!(
                            self.held.values().all(|connection| *connection != Some(handle)),
                            "an ended connection keeps tokens"
                        );
                    }
                    _ => {}
                }
            }
            StationEvent::Datagram(_, token, _) => assert_eq!(self.held.remove(&token), Some(None)),
        }
        true
    }

    /// Transmits all frames and handles all events.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < SETTLE_ROUNDS_MAX, "frames and events never end");
            let has_sent = self.transmit();
            if !self.take_event() && !has_sent {
                break;
            }
        }
    }

    /// Advances to the next deadline.
    fn pass_time(&mut self) {
        let Some(next) = self.station.next_deadline() else { return };
        self.now = self.now.max(next);
        self.station.handle_timeout(self.now);
        self.settle();
        let next = self.station.next_deadline();
        assert!(next.is_none_or(|next| next > self.now), "a deadline stays in the past");
    }

    /// The peers no longer answer, and the users respond to everything: nothing may remain at the end.
    fn fall_silent(&mut self) {
        let deadline = self.now + SILENCE;
        loop {
            self.settle();
            for handle in self.handles.clone() {
                let state = self.station.connection(handle).map(Connection::state);
                assert_eq!(state.is_some(), self.station.peer(handle).is_some());
                if let Some(State::Conn | State::ResetCheck | State::ResetWait) = state {
                    assert!(self.station.disconnect(handle, self.now));
                }
            }
            self.settle();
            if self.station.next_deadline().is_none() {
                break;
            }
            self.pass_time();
            assert!(self.now < deadline, "{} connections, {:?}", self.station.connections(), self.held);
        }
        assert_eq!(self.station.connections(), 0);
        assert!(self.held.is_empty(), "tokens were lost: {:?}", self.held);
        for handle in &self.handles {
            assert!(self.station.connection(*handle).is_none());
        }
    }

    fn remember(&mut self, handle: ConnectionHandle) {
        if !self.handles.contains(&handle) {
            self.handles.push(handle);
        }
    }

    fn handle_of(&self, input: &mut Input<'_>) -> Option<ConnectionHandle> {
        let recency = usize::from(input.byte()) % self.handles.len().max(1);
        self.handles.iter().rev().nth(recency).copied()
    }
}

fn peer(input: &mut Input<'_>) -> Peer {
    let byte = input.byte();
    let choose = |saps: &[u8], index: u8| lsap(saps[usize::from(index) % saps.len()]);
    Peer {
        local: choose(LOCAL, byte & 3),
        mac: SOURCES[usize::from(byte >> 2 & 3) % 3],
        remote: choose(REMOTE, byte >> 4 & 1),
    }
}

fn lsap(byte: u8) -> Lsap {
    Lsap::new(byte).expect("an individual address")
}

/// Whether a slice lies within another one.
fn is_part(part: &[u8], whole: &[u8]) -> bool {
    part.is_empty()
        || whole.as_ptr_range().contains(&part.as_ptr()) && part.as_ptr_range().end <= whole.as_ptr_range().end
}
