// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host: one station and its applications.

use std::collections::{BTreeMap, VecDeque};

use barewire_llc::{
    ConnectionEvent, ConnectionHandle, DatagramOutcome, Delivery, Instant, Lsap, Mac, Peer, Station, StationEvent,
    StationTransmit,
};
use fastrand::Rng;

use crate::application::{End, Next, Token};
use crate::checks::{Checks, Violation};
use crate::network::{Frame, SHORT_FRAME, extension};
use crate::scenario::Scenario;

/// Most frames that a station may send without new input.
const FRAMES_MAX: usize = 20_000;

pub struct Host {
    pub mac: Mac,
    pub station: Station<Token>,
    ends: BTreeMap<ConnectionHandle, End>,
    /// Frames queued while the host is paused.
    pub queued: VecDeque<Frame>,
    pub paused_until_ns: u64,
    /// Next wake-up; events at any other time are stale.
    pub wake_ns: u64,
    /// Unique among all hosts and restarts; identifies the receiver of a datagram.
    incarnation: u32,
    /// I PDUs received out of order.
    kept: BTreeMap<(ConnectionHandle, u16), Vec<u8>>,
}

/// State shared by all hosts.
pub struct Shared {
    pub scenario: Scenario,
    pub rng: Rng,
    pub checks: Checks,
    pub streams: u32,
    pub datagrams: u32,
    pub incarnations: u32,
    /// Faults have stopped: applications begin nothing new.
    pub faults_over: bool,
    /// The last connection has begun, which must succeed.
    pub in_epilogue: bool,
}

/// A spontaneous action of an application.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Connect(usize),
    Datagram(usize),
    Busy,
    Ready,
    Disconnect,
    Abort,
    Reset,
}

pub fn sap() -> Lsap {
    Lsap::SNAP
}

pub fn mac(host: usize) -> Mac {
    [2, 0, 0, 0, 0, host as u8]
}

impl Host {
    pub fn new(number: usize, shared: &mut Shared, now: Instant) -> Self {
        shared.incarnations += 1;
        let mut config = shared.scenario.station.clone();
        config.hash_seed ^= u64::from(shared.incarnations) << 32;
        let mut station = Station::new(&config, now).expect("a legal scenario");
        station.activate(sap());
        station.listen(sap(), true);
        Self {
            mac: mac(number),
            station,
            ends: BTreeMap::new(),
            queued: VecDeque::new(),
            paused_until_ns: 0,
            wake_ns: u64::MAX,
            incarnation: shared.incarnations,
            kept: BTreeMap::new(),
        }
    }

    /// Handles a frame; returns the immediate response to send.
    pub fn receive(&mut self, frame: &Frame, shared: &mut Shared, now: Instant) -> Option<Frame> {
        if frame.is_damaged {
            return None;
        }
        let handled = self.station.handle_frame(frame.source, frame.destination, &frame.bytes, &frame.trailer, now);
        match handled.delivery {
            Some(Delivery::Data { connection, information, has_kept }) => {
                if let Some(end) = self.ends.get_mut(&connection) {
                    end.deliver(information, &mut shared.checks);
                }
                if has_kept {
                    self.deliver_kept(connection, shared, now);
                }
            }
            // Sometimes there is no room.
            Some(Delivery::Early { connection, number, information }) if shared.rng.u8(..10) != 0 => {
                self.kept.insert((connection, number), information.to_vec());
                self.station.keep(connection, number);
            }
            Some(Delivery::AcknowledgedDatagram { information, .. }) => {
                if let Ok(number) = information.try_into().map(u32::from_be_bytes) {
                    shared.checks.datagram_delivered(number, self.incarnation);
                }
            }
            _ => {}
        }
        handled.reply.map(|reply| {
            let bytes = [reply.header.as_bytes(), reply.information].concat();
            Frame {
                source: self.mac,
                destination: reply.destination,
                bytes,
                trailer: extension(reply.extra),
                wire_bytes: SHORT_FRAME,
                is_damaged: false,
            }
        })
    }

    fn deliver_kept(&mut self, connection: ConnectionHandle, shared: &mut Shared, now: Instant) {
        while let Some(number) = self.station.next_kept(connection, now) {
            let kept = self.kept.remove(&(connection, number)).expect("the engine returns numbers that were kept");
            if let Some(end) = self.ends.get_mut(&connection) {
                end.deliver(&kept, &mut shared.checks);
            }
        }
    }

    /// Runs applications and station until both are idle; returns the frames to send.
    pub fn run(&mut self, shared: &mut Shared, now: Instant) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            while let Some(event) = self.station.poll_event() {
                self.handle_event(event, shared, now);
            }
            for (handle, end) in &mut self.ends {
                end.pump(&mut self.station, *handle, now);
            }
            let before = frames.len();
            while let Some(StationTransmit { destination, header, token, extra, .. }) = self.station.poll_transmit(now)
            {
                let is_datagram = header.as_bytes()[2] & 3 == 3;
                let information = token.map(|token| match is_datagram {
                    true => token.number.to_be_bytes().to_vec(),
                    false => token.bytes().to_vec(),
                });
                let wire_bytes = if token.is_some() { shared.scenario.frame_bytes } else { SHORT_FRAME };
                let header = header.as_bytes();
                frames.push(Frame::new(self.mac, destination, header, extra, information.as_deref(), wire_bytes));
                if frames.len() > FRAMES_MAX {
                    shared.checks.report(Violation::Livelock);
                    return frames;
                }
            }
            if frames.len() == before {
                break;
            }
        }
        self.check(shared);
        frames
    }

    /// Aborts all connections: after undetected damage, users may wait for messages that were never sent.
    pub fn abort_all(&mut self, now: Instant) {
        for handle in self.ends.keys() {
            self.station.abort(*handle, now);
        }
    }

    pub fn act(&mut self, action: Action, shared: &mut Shared, now: Instant) {
        let chosen = || self.ends.keys().copied().collect::<Vec<_>>();
        let station = &mut self.station;
        match action {
            Action::Connect(host) => {
                if let Ok(handle) = station.connect(Peer { local: sap(), mac: mac(host), remote: sap() }, 0, now) {
                    self.ends.insert(handle, new_end(true, shared));
                }
            }
            Action::Datagram(host) => {
                shared.datagrams += 1;
                let token = Token { stream: 0, number: shared.datagrams, total: 0 };
                let _ = station.send_datagram(Peer { local: sap(), mac: mac(host), remote: sap() }, 0, token, now);
            }
            Action::Ready => chosen().into_iter().for_each(|handle| station.set_busy(handle, false, now)),
            Action::Busy | Action::Disconnect | Action::Abort | Action::Reset => {
                let ends = chosen();
                if ends.is_empty() {
                    return;
                }
                let handle = ends[shared.rng.usize(..ends.len())];
                match action {
                    Action::Busy => station.set_busy(handle, true, now),
                    Action::Disconnect => _ = station.disconnect(handle, now),
                    Action::Abort => _ = station.abort(handle, now),
                    _ => _ = station.reset(handle, now),
                }
            }
        }
    }

    /// Whether all connections have ended.
    pub fn is_over(&self) -> bool {
        self.ends.is_empty() && self.station.connections() == 0
    }

    /// For a trace: the state of all connections and their users.
    pub fn describe(&self) -> String {
        let state = |handle| self.station.connection(handle).map(barewire_llc::Connection::state);
        let ends = self.ends.iter().map(|(handle, end)| format!("  {:?} {end:?}\n", state(*handle)));
        format!("host {}\n{}", self.mac[5], ends.collect::<String>())
    }

    fn handle_event(&mut self, event: StationEvent<Token>, shared: &mut Shared, now: Instant) {
        let (handle, event) = match event {
            StationEvent::Connection(handle, event) => (handle, event),
            StationEvent::Datagram(_, token, outcome) => {
                if let DatagramOutcome::Answered(status) = outcome
                    && status.is_accepted()
                {
                    shared.checks.datagram_acknowledged(token.number);
                }
                return;
            }
        };
        if event == ConnectionEvent::Incoming {
            if !shared.in_epilogue && shared.rng.u8(..20) == 0 {
                self.station.disconnect(handle, now);
            } else {
                self.station.accept(handle, now);
            }
            self.ends.insert(handle, new_end(false, shared));
            return;
        }
        let Some(end) = self.ends.get_mut(&handle) else { return };
        let next = end.handle(event, &mut shared.checks);
        let must_continue = shared.in_epilogue && !shared.scenario.may_starve();
        if must_continue && next != Next::Continue && !end.is_orderly(event) {
            shared.checks.report(Violation::NoProgress { what: "a connection after the faults" });
        }
        match next {
            Next::Continue => {}
            Next::NewStream => restart_stream(end, true, shared),
            Next::Reset { by_peer } => {
                let continues = match shared.rng.u8(..3) {
                    0 if by_peer => self.station.accept_reset(handle, now),
                    0 => self.station.reset(handle, now),
                    1 => !self.station.disconnect(handle, now),
                    _ => !self.station.abort(handle, now),
                };
                if continues && by_peer {
                    restart_stream(end, false, shared);
                }
            }
            Next::Closed => _ = self.ends.remove(&handle),
        }
    }

    fn check(&self, shared: &mut Shared) {
        let config = &shared.scenario.station;
        let (held, max) = (self.station.connections(), usize::from(config.connections));
        shared.checks.require(held <= max, Violation::Memory { what: "connections", held });
        for handle in self.ends.keys() {
            let Some(connection) = self.station.connection(*handle) else { continue };
            let outstanding = connection.outstanding();
            let window = usize::from(config.connection.window);
            shared.checks.require(outstanding <= window, Violation::Window { outstanding });
            let held = connection.unacknowledged();
            let max = usize::from(config.connection.queue);
            shared.checks.require(held <= max, Violation::Memory { what: "tokens", held });
        }
    }
}

fn new_end(is_client: bool, shared: &mut Shared) -> End {
    let (stream, total) = new_stream(shared);
    End::new(is_client, stream, total)
}

fn restart_stream(end: &mut End, is_client: bool, shared: &mut Shared) {
    let (stream, total) = new_stream(shared);
    end.restart_stream(is_client, stream, total);
}

fn new_stream(shared: &mut Shared) -> (u32, u32) {
    shared.streams += 1;
    (shared.streams, shared.rng.u32(1..=shared.scenario.messages))
}
