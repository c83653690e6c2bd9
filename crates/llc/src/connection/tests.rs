// SPDX-License-Identifier: Apache-2.0 OR MIT
extern crate std;
use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::pdu::{Body, SequenceNumber, Supervisory};

const LOCAL: Lsap = Lsap::SNAP;

/// Two connections and the PDUs under way between them, each an encoded frame.
struct Pair {
    ends: [Connection<u32>; 2],
    wires: [VecDeque<Vec<u8>>; 2],
    /// Information fields that arrived at each end.
    received: [Vec<u32>; 2],
    events: [Vec<ConnectionEvent<u32>>; 2],
    now: Instant,
    by_table: bool,
}

impl Pair {
    fn new(config: &ConnectionConfig) -> Self {
        let end = || Connection::new(config, LOCAL, LOCAL, Instant::default()).unwrap();
        Self {
            ends: [end(), end()],
            wires: Default::default(),
            received: Default::default(),
            events: Default::default(),
            now: Instant::default(),
            by_table: false,
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

    /// Puts what an end wants to send on its wire, up to `limit` PDUs.
    fn transmit(&mut self, end: usize, limit: usize) {
        for _ in 0..limit {
            let Some(transmit) = self.ends[end].poll_transmit(self.now) else { break };
            let mut frame = transmit.header.as_bytes().to_vec();
            frame.extend(transmit.token.iter().flat_map(|token| token.to_be_bytes()));
            self.wires[end].push_back(frame);
        }
    }

    /// Takes the next PDU from the wire of the other end.
    fn receive(&mut self, end: usize) -> bool {
        let Some(frame) = self.wires[1 - end].pop_front() else { return false };
        let pdu = Pdu::decode(&frame).unwrap();
        let information = if self.by_table {
            let deliver = self.ends[end].machine.handle_by_table(&pdu, self.now);
            deliver.then(|| pdu.information())
        } else {
            self.ends[end].handle_pdu(&pdu, self.now)
        };
        if let Some(information) = information {
            self.received[end].push(u32::from_be_bytes(information.try_into().unwrap()));
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

    /// Until nothing moves without the passage of time.
    fn exchange(&mut self) {
        for _ in 0..10_000 {
            (0..2).for_each(|end| self.transmit(end, usize::MAX));
            let moved = [self.receive(0), self.receive(1)];
            self.collect();
            if moved == [false, false] {
                return;
            }
        }
        panic!("the two never fall silent");
    }

    /// Lets time pass until the next deadline of either.
    fn sleep(&mut self) {
        let Some(deadline) = self.ends.iter().filter_map(Connection::next_deadline).min() else { return };
        self.now = self.now.max(deadline);
        let now = self.now;
        self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
        self.collect();
    }

    fn send(&mut self, end: usize, tokens: impl IntoIterator<Item = u32>) {
        tokens.into_iter().for_each(|token| self.ends[end].send(token, self.now).unwrap());
    }

    /// An S or U PDU from the peer of end 0, made by hand.
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
fn data_flows_both_ways_in_order_and_is_acknowledged() {
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
fn an_acknowledgement_rides_on_data_or_comes_after_the_delay() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, [1]);
    pair.transmit(0, 9);
    pair.receive(1);
    pair.transmit(1, 9);
    assert!(pair.wires[1].is_empty(), "it waits for data to ride on");
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

#[test]
fn every_sixteenth_pdu_is_acknowledged_at_once() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..33);
    pair.exchange();
    assert_eq!(acknowledged(&pair.events[0]).len(), 32);
}

#[test]
fn the_window_bounds_what_is_under_way() {
    let config = ConnectionConfig { window: 7, ..Default::default() };
    let mut pair = Pair::connected(&config);
    pair.send(0, 0..50);
    pair.transmit(0, usize::MAX);
    assert_eq!((pair.wires[0].len(), pair.ends[0].outstanding()), (7, 7));
}

#[test]
fn a_full_queue_refuses_and_hands_the_token_back() {
    let mut pair = Pair::connected(&ConnectionConfig { queue: 64, ..Default::default() });
    pair.send(0, 0..64);
    assert_eq!(pair.ends[0].send(64, pair.now), Err(Refused { token: 64, reason: RefusedReason::Full }));
}

#[test]
fn a_lost_pdu_is_rejected_and_sent_again_within_a_round_trip() {
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
fn a_lost_tail_is_found_by_a_poll_after_t1() {
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
fn a_lost_rej_is_repeated() {
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

#[test]
fn loss_shrinks_the_window_and_success_grows_it_again() {
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
fn a_busy_receiver_stops_the_sender_and_loses_nothing() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..10);
    pair.ends[1].set_busy(true, pair.now);
    pair.exchange();
    assert!(pair.received[1].is_empty());
    assert!(pair.ends[0].is_peer_busy());
    for _ in 0..20 {
        pair.sleep();
        pair.exchange();
    }
    assert!(pair.received[1].is_empty() && pair.ends[0].state().is_connected());
    pair.ends[1].set_busy(false, pair.now);
    pair.exchange();
    assert_eq!(pair.received[1], (0..10).collect::<Vec<_>>());
}

/// An I PDU that could carry the acknowledgement does not say that the busy condition is over.
#[test]
fn a_receiver_that_is_ready_again_says_so_at_once_though_it_has_data_to_send() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, [0]);
    pair.exchange();
    pair.ends[1].set_busy(true, pair.now);
    pair.exchange();
    assert!(pair.ends[0].is_peer_busy());
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
fn a_peer_that_is_always_busy_is_reported_in_bounded_time() {
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
fn a_peer_that_never_acknowledges_is_reported_in_bounded_time() {
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

/// With N2 = 1 the first poll is the last: only its own timer may call it unanswered.
#[test]
fn the_last_poll_gets_its_whole_time_though_the_peer_is_busy() {
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
    assert_eq!((pair.states()[0], pair.ends[0].is_peer_busy()), (State::Await, true));
    pair.inject(rr(true, 0));
    assert_eq!((pair.states()[0], pair.ends[0].is_peer_busy()), (State::Normal, false));
}

#[test]
fn a_silent_peer_is_polled_and_a_dead_one_reported() {
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
fn an_unanswered_connect_fails_in_bounded_time() {
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
fn a_refused_connect_says_so() {
    let mut pair = Pair::new(&ConnectionConfig::default());
    pair.ends[0].connect(pair.now);
    pair.exchange();
    pair.ends[1].disconnect(pair.now);
    pair.exchange();
    assert_eq!(pair.events[0], [ConnectionEvent::Disconnected(Cause::PeerRefused)]);
}

#[test]
fn two_sabmes_that_cross_make_one_connection() {
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
fn a_repeated_sabme_before_any_data_does_not_reset() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    assert_eq!(pair.inject(Body::Sabme { poll: true }), Some(Body::Ua { final_bit: true }));
    pair.collect();
    assert!(pair.events[0].is_empty() && pair.ends[0].state() == State::Normal);
    assert_eq!(pair.inject(Body::Ua { final_bit: true }), None, "nor does a repeated UA");
    assert_eq!(pair.ends[0].state(), State::Normal);
}

#[test]
fn a_sabme_after_data_is_a_reset_that_the_user_answers() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..5);
    pair.exchange();
    pair.ends[1].reset(pair.now);
    pair.exchange();
    assert_eq!(pair.states(), [State::Normal, State::Reset], "it could be a repetition, held up on its way");
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

/// A connection, and the SABME that it came about by.
fn connected_by() -> (Pair, Vec<u8>) {
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
fn a_sabme_that_was_held_up_resets_nothing() {
    let (mut pair, late) = connected_by();
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
fn whoever_goes_on_talking_was_not_started_again() {
    let (mut pair, late) = connected_by();
    pair.send(0, [0]);
    pair.exchange();
    pair.wires[0].push_back(late);
    assert!(pair.receive(1));
    for token in 1..20 {
        // Its polls are lost, and what says nothing new comes.
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
fn finish_ends_after_everything_was_acknowledged() {
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
fn disconnect_ends_at_once_and_hands_the_tokens_back() {
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
fn an_unanswered_disconnect_still_ends() {
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
fn abort_says_dm_once() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.ends[0].abort(pair.now);
    pair.exchange();
    assert_eq!(pair.events[1], [ConnectionEvent::Disconnected(Cause::PeerNotConnected)]);
    assert_eq!(pair.states(), [State::Adm, State::Adm]);
}

#[test]
fn a_restarted_peer_is_noticed_after_t1() {
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
fn an_acknowledgement_of_what_was_never_sent_is_rejected_with_z() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    let Some(Body::Frmr { reason, .. }) = pair.inject(rr(false, 10)) else { panic!("no FRMR") };
    assert_eq!(reason.flags(), FrmrInformation::Z);
    assert_eq!(reason.rejected_control(), [0x01, 20]);
    assert_eq!(pair.ends[0].state(), State::Error);
}

#[test]
fn a_number_far_outside_a_small_window_is_rejected_with_v() {
    let mut pair = Pair::connected(&ConnectionConfig { receive_window: 8, acknowledge_every: 4, ..Default::default() });
    let number = SequenceNumber::wrapping;
    let body =
        Body::I { role: Role::Command, poll_final: true, ns: number(60), nr: number(0), information: &[1, 2, 3] };
    let Some(Body::Frmr { final_bit, reason }) = pair.inject(body) else { panic!("no FRMR") };
    assert_eq!((final_bit, reason.flags(), reason.rejected_control()), (true, FrmrInformation::V, [120, 1]));
}

#[test]
fn too_much_information_is_rejected_with_y_and_none_permitted_with_x() {
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
fn a_frmr_received_leaves_the_decision_to_the_user_with_its_reason() {
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
fn a_rejected_peer_that_does_nothing_ends_in_bounded_time() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.inject(rr(false, 10));
    while pair.ends[0].state() == State::Error {
        pair.transmit(0, 99);
        pair.wires[0].clear();
        pair.sleep();
    }
    assert_eq!(pair.ends[0].state(), State::ResetWait);
}

#[test]
fn an_overtaken_acknowledgement_is_harmless() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..10);
    pair.transmit(0, 99);
    assert_eq!(pair.inject(rr(false, 8)), None);
    assert_eq!(pair.inject(rr(false, 3)), None);
    assert_eq!((pair.ends[0].outstanding(), pair.ends[0].counters().overtaken), (2, 1));
}

/// What a test does to a pair.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Send(usize, u8),
    Transmit(usize, usize),
    Receive(usize),
    Lose(usize),
    Repeat(usize),
    Busy(usize, bool),
    Sleep,
}

fn operation() -> impl Strategy<Value = Operation> {
    let end = 0..2usize;
    prop_oneof![
        4 => (end.clone(), 1..20u8).prop_map(|(end, count)| Operation::Send(end, count)),
        6 => (end.clone(), 1..30usize).prop_map(|(end, count)| Operation::Transmit(end, count)),
        20 => end.clone().prop_map(Operation::Receive),
        1 => end.clone().prop_map(Operation::Lose),
        1 => end.clone().prop_map(Operation::Repeat),
        1 => (end, any::<bool>()).prop_map(|(end, busy)| Operation::Busy(end, busy)),
        2 => Just(Operation::Sleep),
    ]
}

impl Pair {
    fn apply(&mut self, operation: Operation, sent: &mut [u32; 2]) {
        match operation {
            Operation::Send(end, count) => {
                for _ in 0..count {
                    sent[end] += u32::from(self.ends[end].send(sent[end], self.now).is_ok());
                }
            }
            Operation::Transmit(end, count) => self.transmit(end, count),
            Operation::Receive(end) => _ = self.receive(end),
            Operation::Lose(end) => drop(self.wires[end].pop_front()),
            Operation::Repeat(end) => {
                // Overtaken by so few PDUs that no number can come round, whatever each acknowledges.
                let most = 63 / usize::from(self.ends[end].machine.parameters.window);
                let wire = &mut self.wires[end];
                let place = wire.len().min(most.min(8));
                wire.front().cloned().into_iter().for_each(|frame| wire.insert(place, frame));
            }
            Operation::Busy(end, is_busy) => self.ends[end].set_busy(is_busy, self.now),
            // Who sends nothing that is due cannot sleep: only the stall timer would wake it.
            Operation::Sleep => {
                (0..2).for_each(|end| self.transmit(end, usize::MAX));
                self.sleep();
            }
        }
        self.collect();
        self.ends.iter().for_each(Connection::check);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Proves exactly-once in-order delivery, the window bound and progress: any sequence of operations on
    /// a connected pair, over wires that lose and repeat, then a quiet time in which all must arrive.
    #[test]
    fn whatever_happens_data_arrives_once_and_in_order(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..400),
    ) {
        let stall_limit = core::time::Duration::MAX;
        let config = ConnectionConfig { window, inactivity: None, retries: 255, stall_limit, ..Default::default() };
        let mut pair = Pair::connected(&config);
        let mut sent = [0, 0];
        for operation in operations {
            pair.apply(operation, &mut sent);
            for end in 0..2 {
                prop_assert!(pair.ends[end].outstanding() <= usize::from(window));
            }
        }
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.set_busy(false, now));
        for _ in 0..2000 {
            pair.exchange();
            if pair.ends.iter().all(|end| end.unacknowledged() == 0) {
                break;
            }
            pair.sleep();
        }
        prop_assert!(pair.ends.iter().all(|end| end.unacknowledged() == 0), "stuck: {:#?}", pair.ends.map(|end| end.machine));
        for end in 0..2 {
            prop_assert_eq!(&pair.received[end], &(0..sent[1 - end]).collect::<Vec<_>>());
            prop_assert_eq!(acknowledged(&pair.events[end]), (0..sent[end]).collect::<Vec<_>>());
        }
    }

    /// Proves that the short way for the usual PDU does exactly what the table says: two pairs go through
    /// the same operations, one by the table alone, and all their variables agree after each.
    #[test]
    fn the_short_way_does_what_the_table_says(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let config = ConnectionConfig { window, ..Default::default() };
        let (mut short, mut table) = (Pair::connected(&config), Pair::connected(&config));
        table.by_table = true;
        for operation in operations {
            short.apply(operation, &mut [0, 0]);
            table.apply(operation, &mut [0, 0]);
            for end in 0..2 {
                // When to look at the timers may differ; it is never too late.
                let machines = [&short, &table].map(|pair| pair.ends[end].machine.clone().with_exact_wake());
                prop_assert_eq!(&machines[0], &machines[1]);
            }
            prop_assert_eq!(&short.wires, &table.wires);
        }
    }

    /// Proves that the short way out sends exactly when, and with the P bit with which, the table would.
    #[test]
    fn data_leaves_when_the_table_says(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let mut pair = Pair::connected(&ConnectionConfig { window, ..Default::default() });
        for operation in operations {
            pair.apply(operation, &mut [0, 0]);
            for end in &mut pair.ends {
                let expected = end.machine.data_request();
                let transmit = end.machine.clone().poll_transmit(pair.now);
                if let Some((header, Some(_))) = transmit {
                    let poll = header.as_bytes()[3] & 1 != 0;
                    prop_assert_eq!(expected, Some(poll));
                } else if transmit.is_none() {
                    prop_assert_eq!(expected, None);
                }
            }
        }
    }

    /// Proves that no PDU, however senseless, breaks an invariant or panics, in any state.
    #[test]
    fn garbage_breaks_nothing(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 2..6), 0u8..4), 0..200),
    ) {
        let mut pair = Pair::connected(&ConnectionConfig::default());
        for (frame, what) in frames {
            let _ = pair.ends[0].send(7, pair.now);
            let mut bytes = std::vec![0xaa, 0xaa | u8::from(what & 1 != 0)];
            bytes.extend(frame);
            match Pdu::decode(&bytes) {
                Ok(pdu) => drop(pair.ends[0].handle_pdu(&pdu, pair.now)),
                Err(malformed) => pair.ends[0].handle_malformed(&bytes, malformed, pair.now),
            }
            pair.transmit(0, if what == 0 { 3 } else { 0 });
            pair.wires[0].clear();
            if what == 3 {
                pair.sleep();
                pair.ends[0].accept(pair.now);
                pair.ends[0].accept_reset(pair.now);
                pair.ends[0].reset(pair.now);
            }
            pair.collect();
        }
    }
}
