// SPDX-License-Identifier: Apache-2.0 OR MIT
extern crate std;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use std::vec::Vec;

use super::*;
use crate::extension::Guard;
use crate::pdu::{Body, SequenceNumber, Supervisory};

mod late;
mod properties;

const LOCAL: Lsap = Lsap::SNAP;

/// Two connected ends and the encoded PDUs in flight between them.
struct Pair {
    ends: [Connection<u32>; 2],
    wires: [VecDeque<Vec<u8>>; 2],
    /// Tokens delivered at each end, decoded from the information fields.
    received: [Vec<u32>; 2],
    events: [Vec<ConnectionEvent<u32>>; 2],
    now: Instant,
    /// Bypass the fast path.
    by_table: bool,
    is_extended: bool,
    /// Keep every early PDU, instead of most.
    keeps_all: bool,
    /// Kept tokens by sequence number.
    kept: [BTreeMap<u16, u32>; 2],
}

/// Splits a frame into PDU and trailer.
fn split(frame: &[u8]) -> (&[u8], &[u8]) {
    match frame[2] & 3 {
        1 => frame.split_at(4),
        3 if frame[2] & !0x10 == 0x87 => frame.split_at(8),
        3 => frame.split_at(3),
        _ => (frame, &[]),
    }
}

impl Pair {
    fn new(config: &ConnectionConfig) -> Self {
        let parameters = config.check().unwrap();
        let end = |nonce| Connection::with_parameters(parameters, LOCAL, LOCAL, [nonce, 0], Instant::default());
        Self {
            ends: [end(1), end(2)],
            wires: Default::default(),
            received: Default::default(),
            events: Default::default(),
            now: Instant::default(),
            by_table: false,
            is_extended: config.is_extended,
            keeps_all: false,
            kept: Default::default(),
        }
    }

    fn connected(config: &ConnectionConfig) -> Self {
        let mut pair = Self::new(config);
        assert!(pair.ends[0].connect(pair.now));
        pair.exchange();
        assert_eq!(pair.events[1], [ConnectionEvent::Incoming]);
        assert!(pair.ends[1].accept(pair.now));
        pair.exchange();
        assert_eq!(pair.events[0], [ConnectionEvent::Connected]);
        assert_eq!(pair.states(), [State::Normal, State::Normal]);
        pair.events = Default::default();
        pair
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    /// Moves up to `limit` PDUs of an end to its wire.
    fn transmit(&mut self, end: usize, limit: usize) {
        for _ in 0..limit {
            let Some(transmit) = self.ends[end].poll_transmit(self.now) else { break };
            let mut frame = transmit.header.as_bytes().to_vec();
            if !transmit.extra.is_none() {
                frame.extend([0; extension::CHECK]);
                frame.extend(transmit.extra.as_bytes());
            }
            frame.extend(transmit.token.iter().flat_map(|token| token.to_be_bytes()));
            self.wires[end].push_back(frame);
        }
    }

    /// Receives the next PDU from the wire of the other end; false if there is none.
    fn receive(&mut self, end: usize) -> bool {
        let Some(frame) = self.wires[1 - end].pop_front() else { return false };
        let (llc, trailer) = split(&frame);
        let pdu = Pdu::decode(llc).unwrap();
        let (pdu, extension) = match self.is_extended {
            true => extension::strip(pdu, trailer, Guard::Check).unwrap(),
            false => (pdu, extension::unextended(&pdu)),
        };
        let disposition = if self.by_table {
            self.ends[end].machine.handle_by_table(&pdu, &extension, self.now)
        } else {
            self.ends[end].handle(&pdu, &extension, self.now)
        };
        let token = |pdu: &Pdu<'_>| u32::from_be_bytes(*pdu.information().first_chunk().unwrap());
        match disposition {
            Disposition::InOrder => self.received[end].push(token(&pdu)),
            // Simulate occasional lack of room.
            Disposition::Early if self.keeps_all || extension.ns % 5 != 3 => {
                self.ends[end].keep(extension.ns);
                self.kept[end].insert(extension.ns, token(&pdu));
            }
            Disposition::Early | Disposition::NoData | Disposition::Foreign => {}
        }
        while let Some(number) = self.ends[end].next_kept(self.now) {
            let token = self.kept[end].remove(&number).expect("it was kept");
            self.received[end].push(token);
        }
        true
    }

    fn collect(&mut self) {
        for end in 0..2 {
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push(event);
            }
        }
    }

    /// Exchanges PDUs until neither end sends any without the passage of time.
    fn exchange(&mut self) {
        for _ in 0..10_000 {
            (0..2).for_each(|end| self.transmit(end, usize::MAX));
            let moved = [self.receive(0), self.receive(1)];
            self.collect();
            if moved == [false, false] {
                return;
            }
        }
        panic!("the ends never become idle");
    }

    /// Advances time to the next deadline of either end.
    fn sleep(&mut self) {
        let Some(deadline) = self.ends.iter().filter_map(Connection::next_deadline).min() else { return };
        self.now = self.now.max(deadline);
        let now = self.now;
        self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
        self.collect();
    }

    /// Sends from end 0, each token after delivery of the previous one, with pauses for delayed acknowledgements.
    fn send_one_by_one(&mut self, tokens: core::ops::Range<u32>) {
        for token in tokens {
            self.send(0, [token]);
            self.exchange();
            if token % 16 == 0 {
                self.sleep();
                self.exchange();
            }
        }
    }

    fn send(&mut self, end: usize, tokens: impl IntoIterator<Item = u32>) {
        tokens.into_iter().for_each(|token| self.ends[end].send(token, self.now).unwrap());
    }

    /// Injects a PDU into end 0. Returns the body of the PDU that it transmits next.
    fn inject(&mut self, body: Body<'_>) -> Option<Body<'static>> {
        let pdu = Pdu { destination: LOCAL.into(), source: LOCAL.into(), body };
        self.ends[0].handle_pdu(&pdu, self.now);
        let transmit = self.ends[0].poll_transmit(self.now)?;
        let frame: &'static [u8] = transmit.header.as_bytes().to_vec().leak();
        Some(Pdu::decode(frame).unwrap().body)
    }
}

fn acknowledged(events: &[ConnectionEvent<u32>]) -> Vec<u32> {
    let token = |event: &ConnectionEvent<u32>| match event {
        ConnectionEvent::Acknowledged(token) => Some(*token),
        _ => None,
    };
    events.iter().filter_map(token).collect()
}

fn rr(poll_final: bool, nr: u32) -> Body<'static> {
    let role = if poll_final { Role::Response } else { Role::Command };
    Body::S { role, poll_final, function: Supervisory::Rr, nr: SequenceNumber::wrapping(nr) }
}

#[test]
fn data_is_delivered_in_order_both_ways_and_acknowledged() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    for round in 0..10 {
        pair.send(0, round * 100..round * 100 + 100);
        pair.send(1, round * 50..round * 50 + 50);
        pair.exchange();
        pair.sleep();
        pair.exchange();
    }
    assert_eq!(pair.received, [(0..500).collect::<Vec<_>>(), (0..1000).collect()]);
    assert_eq!(acknowledged(&pair.events[0]), (0..1000).collect::<Vec<_>>());
    assert_eq!(acknowledged(&pair.events[1]), (0..500).collect::<Vec<_>>());
}

#[test]
fn acknowledgement_is_piggybacked_or_sent_after_the_delay() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, [1]);
    pair.transmit(0, 9);
    pair.receive(1);
    pair.transmit(1, 9);
    assert!(pair.wires[1].is_empty(), "it is delayed");
    pair.send(1, [2]);
    pair.exchange();
    assert_eq!(acknowledged(&pair.events[0]), [1]);
    assert!(pair.events[1].is_empty());
    pair.sleep();
    assert_eq!(pair.now.as_nanos(), 50_000);
    pair.exchange();
    assert_eq!(acknowledged(&pair.events[1]), [2]);
    assert_eq!(pair.ends[0].counters().timeouts, 0);
}

/// The P bits of the PDUs on an end's wire.
fn polls(pair: &Pair, end: usize) -> Vec<bool> {
    pair.wires[end].iter().map(|frame| Pdu::decode(frame).unwrap().poll_final()).collect()
}

#[test]
fn requested_acknowledgement_is_polled_for_with_the_last_pdu() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..3);
    pair.ends[0].request_ack(pair.now);
    pair.transmit(0, usize::MAX);
    assert_eq!(polls(&pair, 0), [false, false, true]);
    pair.exchange();
    assert_eq!(pair.ends[0].unacknowledged(), 0, "no time has passed");
    // If the last PDU has left, the end polls once.
    pair.send(0, [3]);
    pair.exchange();
    pair.ends[0].request_ack(pair.now);
    pair.ends[0].request_ack(pair.now);
    pair.transmit(0, usize::MAX);
    assert_eq!(polls(&pair, 0), [true]);
    pair.exchange();
    assert_eq!(pair.ends[0].unacknowledged(), 0);
    pair.ends[0].request_ack(pair.now);
    assert!(pair.ends[0].poll_transmit(pair.now).is_none(), "nothing is unacknowledged");
}

#[test]
fn second_request_while_a_poll_is_outstanding_is_answered() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, [0]);
    pair.ends[0].request_ack(pair.now);
    pair.transmit(0, usize::MAX);
    pair.send(0, [1]);
    pair.ends[0].request_ack(pair.now);
    pair.transmit(0, usize::MAX);
    assert_eq!(polls(&pair, 0), [true, false]);
    pair.exchange();
    assert_eq!(pair.ends[0].unacknowledged(), 0, "no time has passed");
}

#[test]
fn request_is_repeated_after_loss() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..3);
    pair.ends[0].request_ack(pair.now);
    pair.transmit(0, usize::MAX);
    pair.wires[0].pop_front();
    pair.exchange();
    assert_eq!(pair.received[1], [0, 1, 2]);
    assert_eq!(pair.ends[0].unacknowledged(), 0, "no time has passed");
}

#[test]
fn half_a_window_is_acknowledged_at_once() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..63);
    pair.exchange();
    assert_eq!(acknowledged(&pair.events[0]).len(), 62);
}

#[test]
fn window_bounds_the_pdus_in_flight() {
    let config = ConnectionConfig { window: 7, ..Default::default() };
    let mut pair = Pair::connected(&config);
    pair.send(0, 0..50);
    pair.transmit(0, usize::MAX);
    assert_eq!((pair.wires[0].len(), pair.ends[0].outstanding()), (7, 7));
}

#[test]
fn full_queue_returns_the_token() {
    let mut pair = Pair::connected(&ConnectionConfig { queue: 64, ..Default::default() });
    pair.send(0, 0..64);
    assert_eq!(pair.ends[0].send(64, pair.now), Err(Refused { token: 64, reason: RefusedReason::Full }));
}

#[test]
fn lost_pdu_is_rejected_and_retransmitted_within_a_round_trip() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..20);
    pair.transmit(0, 99);
    pair.wires[0].remove(5);
    let before = pair.now;
    pair.exchange();
    assert_eq!(pair.received[1], (0..20).collect::<Vec<_>>());
    assert_eq!(pair.now, before, "no timer was needed");
    assert_eq!(pair.ends[0].counters().recoveries, 1);
}

#[test]
fn tail_loss_is_recovered_by_a_poll_after_t1() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..3);
    pair.transmit(0, 99);
    pair.wires[0].clear();
    pair.sleep();
    assert_eq!(pair.ends[0].state(), State::Await);
    pair.exchange();
    assert_eq!(pair.received[1], [0, 1, 2]);
    assert_eq!(pair.ends[0].state(), State::Normal);
}

#[test]
fn lost_rej_is_repeated() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..4);
    pair.transmit(0, 99);
    pair.wires[0].remove(1);
    while pair.receive(1) {}
    pair.transmit(1, 99);
    assert_eq!(pair.ends[1].state(), State::Reject);
    pair.wires[1].clear();
    for _ in 0..9 {
        pair.sleep();
        pair.exchange();
    }
    assert_eq!(pair.received[1], [0, 1, 2, 3]);
    assert_eq!(pair.states(), [State::Normal, State::Normal]);
}

/// Proves that the patience also applies to a station that waits for a missing PDU.
#[test]
fn an_outage_that_begins_with_a_gap_is_survived_for_the_patience() {
    for (outage_s, is_survived) in [(20, true), (40, false)] {
        let patience = Duration::from_secs(28);
        let mut pair = Pair::connected(&ConnectionConfig { patience, retries: 20, ..Default::default() });
        pair.send(0, 0..4);
        pair.transmit(0, 99);
        pair.wires[0].remove(1);
        while pair.receive(1) {}
        assert_eq!(pair.ends[1].state(), State::Reject);
        let is_over = |pair: &Pair| pair.now.as_nanos() >= outage_s * 1_000_000_000;
        while !is_over(&pair) && pair.states() != [State::ResetWait; 2] {
            [0, 1].into_iter().for_each(|end| pair.transmit(end, 99));
            pair.wires = Default::default();
            pair.sleep();
        }
        assert_eq!(pair.states().map(|state| state == State::ResetWait), [!is_survived; 2], "{outage_s} s");
        for _ in 0..9 {
            pair.sleep();
            pair.exchange();
        }
        assert_eq!(pair.received[1].len(), if is_survived { 4 } else { 1 });
    }
}

#[test]
fn loss_shrinks_the_window_and_acknowledgements_grow_it() {
    let mut pair = Pair::connected(&ConnectionConfig { window: 16, grow_after: 4, ..Default::default() });
    pair.send(0, 0..16);
    pair.transmit(0, 99);
    pair.wires[0].pop_front();
    while pair.receive(1) {}
    pair.transmit(1, 99);
    while pair.receive(0) {}
    assert_eq!(pair.ends[0].window(), 8);
    pair.exchange();
    for round in 1..4 {
        pair.collect();
        pair.send(0, round * 16..round * 16 + 16);
        pair.exchange();
        pair.sleep();
        pair.exchange();
    }
    assert_eq!(pair.ends[0].window(), 16);
    assert_eq!(pair.received[1], (0..64).collect::<Vec<_>>());
}

#[test]
fn busy_receiver_stops_the_sender_without_loss() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..10);
    pair.ends[1].set_busy(true, pair.now);
    pair.exchange();
    assert!(pair.received[1].is_empty());
    assert!(pair.ends[0].machine.remote_busy);
    for _ in 0..20 {
        pair.sleep();
        pair.exchange();
    }
    assert!(pair.received[1].is_empty() && pair.ends[0].state().is_connected());
    pair.ends[1].set_busy(false, pair.now);
    pair.exchange();
    assert_eq!(pair.received[1], (0..10).collect::<Vec<_>>());
}

/// An I PDU could piggyback the acknowledgement, but does not end the busy condition.
#[test]
fn end_of_busy_condition_is_sent_before_data() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, [0]);
    pair.exchange();
    pair.ends[1].set_busy(true, pair.now);
    pair.exchange();
    assert!(pair.ends[0].machine.remote_busy);
    pair.send(0, [1]);
    pair.send(1, [7]);
    pair.ends[1].set_busy(false, pair.now);
    pair.transmit(1, 2);
    let (function, nr) = (Supervisory::Rr, SequenceNumber::wrapping(1));
    let ready = Body::S { role: Role::Response, function, poll_final: false, nr };
    assert_eq!(Pdu::decode(&pair.wires[1][0]).unwrap().body, ready);
    pair.exchange();
    assert_eq!(pair.received, [[7].to_vec(), [0, 1].to_vec()]);
}

#[test]
fn permanently_busy_peer_is_reported_in_bounded_time() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.ends[1].set_busy(true, pair.now);
    pair.send(0, 0..10);
    while pair.ends[0].state() != State::ResetWait {
        assert!(pair.now.as_nanos() <= 61_000_000_000);
        pair.exchange();
        pair.sleep();
    }
    assert!(pair.events[0].contains(&ConnectionEvent::Reset(Cause::Stalled)));
    assert!(pair.events[0].contains(&ConnectionEvent::Dropped(9)));
}

#[test]
fn silent_peer_is_reported_in_bounded_time() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..3);
    while pair.ends[0].state() != State::ResetWait {
        pair.transmit(0, 99);
        pair.wires[0].clear();
        pair.sleep();
        assert!(pair.now.as_nanos() < 30_000_000_000);
    }
    let tail = [ConnectionEvent::Dropped(2), ConnectionEvent::Reset(Cause::NoAnswer)];
    assert!(pair.events[0].ends_with(&tail), "{:?}", pair.events[0]);
}

/// With N2 = 1 the first poll is the last: only the poll timer may end the wait for its answer.
#[test]
fn last_poll_of_a_busy_peer_waits_for_its_own_timer() {
    let mut pair = Pair::connected(&ConnectionConfig { retries: 1, ..Default::default() });
    pair.send(0, [0]);
    pair.transmit(0, 1);
    pair.wires[0].clear();
    pair.sleep();
    assert_eq!(pair.states()[0], State::Await);
    pair.transmit(0, 1);
    let nr = SequenceNumber::default();
    pair.inject(Body::S { role: Role::Response, function: Supervisory::Rnr, poll_final: false, nr });
    pair.now = pair.now.after(10_000_000);
    let now = pair.now;
    pair.ends[0].handle_timeout(now);
    assert_eq!((pair.states()[0], pair.ends[0].machine.remote_busy), (State::Await, true));
    pair.inject(rr(true, 0));
    assert_eq!((pair.states()[0], pair.ends[0].machine.remote_busy), (State::Normal, false));
}

#[test]
fn idle_peer_is_polled_and_a_dead_one_reported() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.sleep();
    pair.exchange();
    assert_eq!(pair.now.as_nanos(), 10_000_000_000);
    assert_eq!(pair.states(), [State::Normal, State::Normal]);
    while pair.ends[0].state() != State::ResetWait {
        pair.transmit(0, 99);
        pair.transmit(1, 99);
        pair.wires = Default::default();
        pair.sleep();
        assert!(pair.now.as_nanos() < 60_000_000_000);
    }
}

#[test]
fn unanswered_connect_fails_in_bounded_time() {
    let mut pair = Pair::new(&ConnectionConfig::default());
    pair.ends[0].connect(pair.now);
    while pair.ends[0].state() == State::Setup {
        pair.transmit(0, 99);
        pair.wires[0].clear();
        pair.sleep();
    }
    assert_eq!(pair.events[0], [ConnectionEvent::Disconnected(Cause::NoAnswer)]);
}

#[test]
fn peer_has_as_long_to_answer_connect_and_disconnect_with_labels_as_without() {
    let unanswered = |labels, connects: bool| {
        let config = ConnectionConfig { is_extended: true, labels, ..ConnectionConfig::default() };
        let mut pair = if connects { Pair::new(&config) } else { Pair::connected(&config) };
        let began = pair.now;
        let state = if connects {
            pair.ends[0].connect(pair.now);
            State::Setup
        } else {
            pair.ends[0].disconnect(pair.now);
            State::DConn
        };
        assert_eq!(pair.ends[0].state(), state);
        while pair.ends[0].state() == state {
            pair.transmit(0, 99);
            pair.wires[0].clear();
            pair.sleep();
        }
        pair.now.as_nanos() - began.as_nanos()
    };
    for connects in [true, false] {
        assert_eq!(unanswered(4, connects), unanswered(0, connects), "{connects}");
    }
}

#[test]
fn refused_connect_is_reported() {
    let mut pair = Pair::new(&ConnectionConfig::default());
    pair.ends[0].connect(pair.now);
    pair.exchange();
    pair.ends[1].disconnect(pair.now);
    pair.exchange();
    assert_eq!(pair.events[0], [ConnectionEvent::Disconnected(Cause::PeerRefused)]);
}

#[test]
fn crossing_sabmes_open_one_connection() {
    let mut pair = Pair::new(&ConnectionConfig::default());
    let now = pair.now;
    assert!(pair.ends.iter_mut().all(|end| end.connect(now)));
    pair.exchange();
    assert_eq!(pair.states(), [State::Normal, State::Normal]);
    pair.send(0, 0..5);
    pair.exchange();
    assert_eq!(pair.received[1], [0, 1, 2, 3, 4]);
}

#[test]
fn duplicate_sabme_before_data_does_not_reset() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    assert_eq!(pair.inject(Body::Sabme { poll: true }), Some(Body::Ua { final_bit: true }));
    pair.collect();
    assert!(pair.events[0].is_empty() && pair.ends[0].state() == State::Normal);
    assert_eq!(pair.inject(Body::Ua { final_bit: true }), None, "nor does a duplicate UA");
    assert_eq!(pair.ends[0].state(), State::Normal);
}

#[test]
fn sabme_after_data_is_a_reset_once_polls_are_unanswered() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..5);
    pair.exchange();
    pair.ends[1].reset(pair.now);
    pair.exchange();
    assert_eq!(pair.states(), [State::Normal, State::Reset], "it could be a delayed duplicate");
    while pair.states()[0] != State::ResetCheck {
        pair.sleep();
        pair.exchange();
    }
    assert_eq!(pair.events[0].last(), Some(&ConnectionEvent::Reset(Cause::PeerReset)));
    pair.ends[0].accept_reset(pair.now);
    pair.exchange();
    assert_eq!(pair.events[1].last(), Some(&ConnectionEvent::ResetDone));
    pair.send(1, [77]);
    pair.exchange();
    assert_eq!(pair.received[0], [77]);
}

/// A connected pair, and the SABME that opened the connection.
fn connected_with_sabme() -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(&ConnectionConfig::default());
    assert!(pair.ends[0].connect(pair.now));
    pair.transmit(0, usize::MAX);
    let late = pair.wires[0][0].clone();
    pair.exchange();
    pair.ends[1].accept(pair.now);
    pair.exchange();
    (pair, late)
}

#[test]
fn delayed_duplicate_sabme_does_not_reset() {
    let (mut pair, late) = connected_with_sabme();
    for round in 0..5 {
        pair.send(0, [2 * round]);
        pair.exchange();
        pair.wires[0].push_back(late.clone());
        pair.send(1, [2 * round + 1]);
        pair.exchange();
    }
    assert_eq!(pair.states(), [State::Normal, State::Normal]);
    assert_eq!(pair.received, [[1, 3, 5, 7, 9], [0, 2, 4, 6, 8]]);
}

#[test]
fn peer_that_keeps_sending_was_not_restarted() {
    let (mut pair, late) = connected_with_sabme();
    pair.send(0, [0]);
    pair.exchange();
    pair.wires[0].push_back(late);
    assert!(pair.receive(1));
    for token in 1..20 {
        // The polls are lost, and a PDU that acknowledges nothing new arrives.
        pair.transmit(1, usize::MAX);
        pair.wires[1].clear();
        let body = Body::S {
            function: Supervisory::Rr,
            role: Role::Response,
            poll_final: false,
            nr: SequenceNumber::wrapping(0),
        };
        let pdu = Pdu { destination: LOCAL.into(), source: LOCAL.into(), body };
        pair.ends[1].handle_pdu(&pdu, pair.now);
        pair.sleep();
        assert!(pair.ends[1].state().is_connected(), "after {token} timers");
    }
}

#[test]
fn finish_disconnects_after_everything_is_acknowledged() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..100);
    assert!(pair.ends[0].finish(pair.now));
    assert!(pair.ends[0].send(1, pair.now).is_err());
    pair.exchange();
    pair.sleep();
    pair.exchange();
    assert_eq!(pair.received[1], (0..100).collect::<Vec<_>>());
    assert_eq!(acknowledged(&pair.events[0]).len(), 100);
    assert_eq!(pair.events[0].last(), Some(&ConnectionEvent::Disconnected(Cause::Requested)));
    assert_eq!(pair.events[1].last(), Some(&ConnectionEvent::Disconnected(Cause::PeerDisconnected)));
}

#[test]
fn disconnect_ends_at_once_and_returns_the_tokens() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..3);
    pair.ends[0].disconnect(pair.now);
    pair.exchange();
    let dropped = (0..3).map(ConnectionEvent::Dropped);
    let expected: Vec<_> = dropped.chain([ConnectionEvent::Disconnected(Cause::Requested)]).collect();
    assert_eq!(pair.events[0], expected);
    assert_eq!(pair.states(), [State::Adm, State::Adm]);
}

#[test]
fn a_lost_ua_does_not_change_why_a_connection_ended() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.ends[0].disconnect(pair.now);
    pair.transmit(0, 99);
    pair.receive(1);
    pair.transmit(1, 99);
    pair.wires[1].clear();
    pair.sleep();
    pair.exchange();
    assert_eq!(pair.events[0], [ConnectionEvent::Disconnected(Cause::Requested)]);
    assert_eq!(pair.states(), [State::Adm, State::Adm]);
}

#[test]
fn unanswered_disconnect_ends() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.ends[0].disconnect(pair.now);
    while pair.ends[0].state() == State::DConn {
        pair.transmit(0, 99);
        pair.wires[0].clear();
        pair.sleep();
    }
    assert_eq!(pair.events[0], [ConnectionEvent::Disconnected(Cause::NoAnswer)]);
}

#[test]
fn abort_sends_dm_once() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.ends[0].abort(pair.now);
    pair.exchange();
    assert_eq!(pair.events[1], [ConnectionEvent::Disconnected(Cause::PeerNotConnected)]);
    assert_eq!(pair.states(), [State::Adm, State::Adm]);
}

#[test]
fn restarted_peer_is_detected_after_t1() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.ends[1] = Connection::new(&ConnectionConfig::default(), LOCAL, LOCAL, pair.now).unwrap();
    pair.send(0, [1]);
    pair.exchange();
    pair.sleep();
    pair.exchange();
    let tail = [ConnectionEvent::Dropped(1), ConnectionEvent::Disconnected(Cause::PeerNotConnected)];
    assert_eq!(pair.events[0], tail);
}

#[test]
fn acknowledgement_of_unsent_pdus_is_rejected_with_z() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    let Some(Body::Frmr { reason, .. }) = pair.inject(rr(false, 10)) else { panic!("no FRMR") };
    assert_eq!(reason.flags(), FrmrInformation::Z);
    assert_eq!(reason.rejected_control(), [0x01, 20]);
    assert_eq!(pair.ends[0].state(), State::Error);
}

#[test]
fn number_far_outside_a_small_window_is_rejected_with_v() {
    let mut pair = Pair::connected(&ConnectionConfig { receive_window: 8, acknowledge_every: 4, ..Default::default() });
    let number = SequenceNumber::wrapping;
    let body =
        Body::I { role: Role::Command, poll_final: true, ns: number(60), nr: number(0), information: &[1, 2, 3] };
    let Some(Body::Frmr { final_bit, reason }) = pair.inject(body) else { panic!("no FRMR") };
    assert_eq!((final_bit, reason.flags(), reason.rejected_control()), (true, FrmrInformation::V, [120, 1]));
}

#[test]
fn too_long_information_is_rejected_with_y_and_unpermitted_with_x() {
    let config = ConnectionConfig { information_max: 2, ..Default::default() };
    let number = SequenceNumber::wrapping;
    let body =
        Body::I { role: Role::Command, poll_final: false, ns: number(0), nr: number(0), information: &[1, 2, 3] };
    let Some(Body::Frmr { reason, .. }) = Pair::connected(&config).inject(body) else { panic!("no FRMR") };
    assert_eq!(reason.flags(), FrmrInformation::Y);
    let mut pair = Pair::connected(&config);
    let bytes = [0xaa, 0xaa, 0x01, 0x00, 0xff];
    pair.ends[0].handle_malformed(&bytes, Pdu::decode(&bytes).unwrap_err(), pair.now);
    assert_eq!(pair.ends[0].counters().frmr_causes, [1, 1, 0, 0, 0]);
    assert_eq!(pair.ends[0].state(), State::Error);
}

#[test]
fn received_frmr_is_reported_with_its_reason() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    let reason = FrmrInformation([1, 2, 3, 4, 8]);
    pair.inject(Body::Frmr { final_bit: false, reason });
    pair.collect();
    assert_eq!(pair.events[0], [ConnectionEvent::Reset(Cause::PeerRejected(reason))]);
    assert!(pair.ends[0].reset(pair.now));
    pair.exchange();
    assert_eq!(pair.states(), [State::Normal, State::Normal]);
}

#[test]
fn rejected_peer_that_stays_silent_is_reported_in_bounded_time() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.inject(rr(false, 10));
    while pair.ends[0].state() == State::Error {
        pair.transmit(0, 99);
        pair.wires[0].clear();
        pair.sleep();
    }
    assert_eq!(pair.ends[0].state(), State::ResetWait);
}

/// PDUs that were wrongly acknowledged are lost for good: both ends must report it.
#[test]
fn false_acknowledgement_is_reported_in_bounded_time() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, [0]);
    pair.exchange();
    pair.sleep();
    pair.exchange();
    pair.send(0, [1, 2]);
    pair.transmit(0, 99);
    pair.wires[0].clear();
    assert_eq!(pair.inject(rr(false, 3)), None);
    while pair.states() == [State::Normal; 2] {
        assert!(pair.now.as_nanos() < 90_000_000_000);
        pair.sleep();
        pair.exchange();
    }
    assert!(pair.now.as_nanos() > 60_000_000_000);
    assert_eq!(pair.ends[0].counters().frmr_causes, [0, 0, 0, 1, 0], "Z");
    assert!(matches!(pair.events[1].last(), Some(ConnectionEvent::Reset(Cause::PeerRejected(_)))));
}

#[test]
fn stale_acknowledgement_is_harmless() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..10);
    pair.transmit(0, 99);
    assert_eq!(pair.inject(rr(false, 8)), None);
    assert_eq!(pair.inject(rr(false, 3)), None);
    assert_eq!((pair.ends[0].outstanding(), pair.ends[0].counters().overtaken), (2, 1));
}

fn extended() -> Pair {
    Pair::connected(&ConnectionConfig { is_extended: true, ..Default::default() })
}

#[test]
fn pdus_of_an_earlier_connection_are_ignored() {
    let mut pair = extended();
    pair.send(0, 0..3);
    pair.transmit(0, 99);
    let mut old: Vec<_> = pair.wires[0].drain(..).collect();
    pair.ends[0].disconnect(pair.now);
    pair.transmit(0, 99);
    old.extend(pair.wires[0].iter().cloned());
    pair.exchange();
    pair.ends[1].abort(pair.now);
    assert_eq!(pair.states(), [State::Adm; 2]);
    // The same two ends with new nonces, as a station assigns them.
    let parameters = pair.ends[0].machine.parameters;
    for (end, nonce) in [(0, 11), (1, 12)] {
        pair.ends[end] = Connection::with_parameters(parameters, LOCAL, LOCAL, [nonce, 0], pair.now);
    }
    pair.ends[0].connect(pair.now);
    pair.exchange();
    pair.ends[1].accept(pair.now);
    pair.exchange();
    assert_eq!(pair.states(), [State::Normal; 2]);
    pair.received[1].clear();
    for frame in old {
        pair.wires[0].push_back(frame);
        pair.receive(1);
    }
    assert_eq!((pair.states(), &pair.received[1]), ([State::Normal; 2], &std::vec![]));
    assert_eq!(pair.ends[1].counters().unauthenticated, 4);
    pair.send(0, [7]);
    pair.exchange();
    assert_eq!(pair.received[1], [7]);
}

#[test]
fn only_lost_pdus_are_retransmitted() {
    let mut pair = extended();
    pair.send(0, 0..12);
    pair.transmit(0, 99);
    for lost in [7, 2] {
        pair.wires[0].remove(lost);
    }
    while pair.receive(1) {}
    let received = pair.received[1].clone();
    assert_eq!(received, [0, 1], "the others are early");
    pair.exchange();
    assert_eq!(pair.received[1], (0..12).collect::<Vec<_>>());
    // Two were lost, and at most two early ones found no room.
    assert!(pair.ends[0].counters().information_repeated <= 4, "{:?}", pair.ends[0].counters());
    assert_eq!(pair.ends[0].counters().timeouts, 0);
}

/// The retransmissions were sent after the PDU that the peer keeps, so its arrival does not show their loss.
#[test]
fn second_polled_rej_retransmits_what_was_lost_again() {
    let mut pair = extended();
    pair.keeps_all = true;
    pair.send(0, 0..12);
    pair.transmit(0, 99);
    pair.wires[0] = pair.wires[0].drain(6..=6).collect();
    pair.receive(1);
    pair.transmit(1, 99);
    pair.receive(0);
    pair.transmit(0, 99);
    assert_eq!(pair.wires[0].drain(..).count(), 6);
    for _ in 0..2 {
        while pair.wires[1].is_empty() {
            pair.now = pair.ends[1].next_deadline().unwrap();
            pair.ends[1].handle_timeout(pair.now);
            pair.transmit(1, 99);
        }
        assert_eq!(pair.received[1], []);
        pair.exchange();
    }
    assert_eq!(pair.received[1], (0..12).collect::<Vec<_>>());
    assert_eq!(pair.ends[0].counters().timeouts, 0);
}

#[test]
fn reordered_pdus_are_not_retransmitted_once_the_delay_is_known() {
    let mut pair = extended();
    pair.keeps_all = true;
    let swap = |pair: &mut Pair, token: u32| {
        pair.send(0, token..token + 2);
        pair.transmit(0, 99);
        pair.wires[0].swap(0, 1);
        pair.receive(1);
        pair.now = pair.now + core::time::Duration::from_micros(20);
        pair.exchange();
        pair.ends[0].counters().information_repeated
    };
    assert_eq!(swap(&mut pair, 0), 1, "it was considered lost");
    for round in 1..20 {
        pair.now = pair.now + core::time::Duration::from_micros(100);
        let before = pair.ends[0].counters().information_repeated;
        let after = swap(&mut pair, round * 2);
        assert_eq!(after, before, "round {round}");
    }
    assert_eq!(pair.received[1], (0..40).collect::<Vec<_>>());
}

#[test]
fn each_request_polls_although_an_earlier_poll_is_outstanding() {
    for answers_together in [false, true] {
        let mut pair = extended();
        for token in 0..3 {
            pair.send(0, [token]);
            pair.ends[0].request_ack(pair.now);
            pair.transmit(0, usize::MAX);
        }
        assert_eq!(polls(&pair, 0), [true; 3]);
        let t1 = |pair: &Pair| pair.ends[0].machine.round_trip.timeout_ns(&pair.ends[0].machine.parameters, 0);
        let before = t1(&pair);
        while pair.receive(1) {
            pair.transmit(1, if answers_together { 0 } else { usize::MAX });
        }
        pair.exchange();
        assert_eq!(pair.ends[0].unacknowledged(), 0, "no time has passed");
        assert!(t1(&pair) <= before, "the peer was not late");
        pair.send(0, [3]);
        pair.exchange();
        assert_eq!(pair.received[1], [0, 1, 2, 3]);
    }
}

/// Where PDUs take two paths, the last one of a message often overtakes others, and its poll is answered before they
/// arrive.
#[test]
fn early_poll_is_answered_again_once_nothing_before_it_is_missing() {
    for is_lost in [false, true] {
        let mut pair = extended();
        pair.keeps_all = true;
        pair.send(0, 0..4);
        pair.ends[0].request_ack(pair.now);
        pair.transmit(0, usize::MAX);
        let (late, poll) = (pair.wires[0].remove(2).unwrap(), pair.wires[0].len());
        while pair.receive(1) {}
        assert_eq!((poll, &pair.received[1][..]), (3, &[0, 1][..]));
        pair.transmit(1, usize::MAX);
        while pair.receive(0) {}
        pair.collect();
        assert_eq!(acknowledged(&pair.events[0]), [0, 1]);
        if is_lost {
            pair.exchange();
        } else {
            pair.wires[0] = VecDeque::from([late]);
            pair.receive(1);
        }
        assert_eq!(pair.received[1], [0, 1, 2, 3]);
        assert!(is_lost || pair.ends[1].is_answer_due(), "the user need not wait for a timer");
        pair.exchange();
        assert_eq!(acknowledged(&pair.events[0]), [0, 1, 2, 3], "lost: {is_lost}");
    }
}

#[test]
fn extended_duplicate_sabme_after_data_is_answered_again() {
    let mut pair = Pair::new(&ConnectionConfig { is_extended: true, ..Default::default() });
    pair.ends[0].connect(pair.now);
    pair.transmit(0, 1);
    let sabme = pair.wires[0][0].clone();
    pair.exchange();
    pair.ends[1].accept(pair.now);
    pair.exchange();
    pair.send(0, 0..5);
    pair.send(1, 0..5);
    pair.exchange();
    pair.wires[0].push_back(sabme);
    pair.exchange();
    pair.send(0, 5..9);
    pair.exchange();
    assert_eq!((pair.states(), &pair.received[1]), ([State::Normal; 2], &(0..9).collect()));
    assert!(pair.events.iter().flatten().all(|event| !matches!(event, ConnectionEvent::Reset(_))));
}
