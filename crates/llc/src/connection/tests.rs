// SPDX-License-Identifier: Apache-2.0 OR MIT
extern crate std;
use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use super::*;
use crate::extension::Guard;
use crate::pdu::{Body, SequenceNumber, Supervisory};

mod properties;

const LOCAL: Lsap = Lsap::SNAP;

/// Two connections and the PDUs under way between them, each an encoded frame.
struct Pair {
    ends: [Connection<u32>; 2],
    wires: [VecDeque<Vec<u8>>; 2],
    /// Tokens that arrived at each end: the information fields are these.
    received: [Vec<u32>; 2],
    events: [Vec<ConnectionEvent<u32>>; 2],
    now: Instant,
    by_table: bool,
    is_extended: bool,
    keeps_all: bool,
    /// Tokens that came early, by their numbers.
    kept: [BTreeMap<u16, u32>; 2],
}

/// A frame's PDU, and what lies behind it.
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

    /// Puts what an end wants to send on its wire, up to `limit` PDUs.
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

    /// Takes the next PDU from the wire of the other end.
    fn receive(&mut self, end: usize) -> bool {
        let Some(frame) = self.wires[1 - end].pop_front() else { return false };
        let (llc, behind) = split(&frame);
        let pdu = Pdu::decode(llc).unwrap();
        let (pdu, extension) = match self.is_extended {
            true => extension::take(pdu, behind, Guard::Check).unwrap(),
            false => (pdu, extension::plain(&pdu)),
        };
        let taken = if self.by_table {
            self.ends[end].machine.handle_by_table(&pdu, &extension, self.now)
        } else {
            self.ends[end].handle(&pdu, &extension, self.now)
        };
        let token = |pdu: &Pdu<'_>| u32::from_be_bytes(*pdu.information().first_chunk().unwrap());
        match taken {
            Taken::InOrder => self.received[end].push(token(&pdu)),
            // Now and then there is no room.
            Taken::Early if self.keeps_all || extension.ns % 5 != 3 => {
                self.ends[end].keep(extension.ns);
                self.kept[end].insert(extension.ns, token(&pdu));
            }
            Taken::Early | Taken::Not | Taken::Foreign => {}
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

    /// From end 0, each when the one before has arrived, with pauses for delayed acknowledgements.
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

/// The P bits of the I PDUs, or of the poll, that lie on an end's wire.
fn polls(pair: &Pair, end: usize) -> Vec<bool> {
    pair.wires[end].iter().map(|frame| Pdu::decode(frame).unwrap().poll_final()).collect()
}

#[test]
fn whoever_waits_for_an_acknowledgement_asks_for_it_with_the_last_pdu() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..3);
    pair.ends[0].want_answer(pair.now);
    pair.transmit(0, usize::MAX);
    assert_eq!(polls(&pair, 0), [false, false, true]);
    pair.exchange();
    assert_eq!(pair.ends[0].unacknowledged(), 0, "no time has passed");
    // What has left already is polled for, once.
    pair.send(0, [3]);
    pair.exchange();
    pair.ends[0].want_answer(pair.now);
    pair.ends[0].want_answer(pair.now);
    pair.transmit(0, usize::MAX);
    assert_eq!(polls(&pair, 0), [true]);
    pair.exchange();
    assert_eq!(pair.ends[0].unacknowledged(), 0);
    pair.ends[0].want_answer(pair.now);
    assert!(pair.ends[0].poll_transmit(pair.now).is_none(), "there is nothing to be answered");
}

#[test]
fn a_second_wait_while_a_poll_is_under_way_is_answered_too() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, [0]);
    pair.ends[0].want_answer(pair.now);
    pair.transmit(0, usize::MAX);
    pair.send(0, [1]);
    pair.ends[0].want_answer(pair.now);
    pair.transmit(0, usize::MAX);
    assert_eq!(polls(&pair, 0), [true, false]);
    pair.exchange();
    assert_eq!(pair.ends[0].unacknowledged(), 0, "no time has passed");
}

#[test]
fn what_was_lost_is_asked_for_again() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..3);
    pair.ends[0].want_answer(pair.now);
    pair.transmit(0, usize::MAX);
    pair.wires[0].pop_front();
    pair.exchange();
    assert_eq!(pair.received[1], [0, 1, 2]);
    assert_eq!(pair.ends[0].unacknowledged(), 0, "no time has passed");
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

/// What seemed to be acknowledged was lost: nobody has it any more, so both ends must hear of it.
#[test]
fn an_acknowledgement_of_what_the_peer_does_not_have_ends_in_bounded_time() {
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
fn an_overtaken_acknowledgement_is_harmless() {
    let mut pair = Pair::connected(&ConnectionConfig::default());
    pair.send(0, 0..10);
    pair.transmit(0, 99);
    assert_eq!(pair.inject(rr(false, 8)), None);
    assert_eq!(pair.inject(rr(false, 3)), None);
    assert_eq!((pair.ends[0].outstanding(), pair.ends[0].counters().overtaken), (2, 1));
}

/// Sends so many PDUs one way and holds the first back, which arrives again then; what the receiver has heard after it.
fn late_by(count: u32, is_extended: bool) -> (Pair, Vec<u32>) {
    let mut pair = Pair::connected(&ConnectionConfig { is_extended, ..Default::default() });
    pair.send(0, [0]);
    pair.transmit(0, 1);
    let first = pair.wires[0][0].clone();
    pair.exchange();
    pair.send_one_by_one(1..count);
    let before = pair.received[1].len();
    pair.wires[0].push_back(first);
    pair.receive(1);
    let heard = pair.received[1].split_off(before);
    (pair, heard)
}

#[test]
fn a_pdu_that_comes_so_late_that_its_number_has_come_round_is_not_taken_for_a_new_one() {
    for count in [64, 100, 127, 128, 129, 256, 1280, 4096, 8192] {
        let (mut pair, heard) = late_by(count, true);
        assert_eq!((heard, pair.ends[1].counters().received_late), (std::vec![], 1), "{count}");
        pair.transmit(1, 99);
        assert!(pair.wires[1].iter().all(|frame| frame[2] & 3 == 1), "no FRMR");
        pair.send(0, [count]);
        pair.exchange();
        assert_eq!(pair.received[1].last(), Some(&count), "all goes on");
    }
    let (pair, heard) = late_by(63, true);
    assert_eq!((heard, pair.ends[1].counters().received_again), (std::vec![], 1), "within a window it is a repetition");
    let (_, heard) = late_by(128, false);
    assert_eq!(heard, [0], "seven bits cannot tell");
}

fn extended() -> Pair {
    Pair::connected(&ConnectionConfig { is_extended: true, ..Default::default() })
}

/// An acknowledgement that 64 to 127 later ones overtook acknowledged what was lost.
#[test]
fn an_acknowledgement_that_comes_so_late_that_its_number_has_come_round_acknowledges_nothing() {
    for count in [64, 100, 127, 128, 200] {
        let mut pair = extended();
        pair.send(0, [0]);
        pair.exchange();
        pair.sleep();
        pair.transmit(1, 99);
        let late = pair.wires[1].back().expect("an RR").clone();
        pair.exchange();
        pair.send_one_by_one(1..count);
        pair.sleep();
        pair.exchange();
        pair.send(0, count..count + 60);
        pair.transmit(0, 99);
        let under_way = pair.ends[0].outstanding();
        pair.wires[1].push_back(late);
        pair.receive(0);
        assert_eq!((pair.ends[0].outstanding(), pair.ends[0].counters().overtaken), (under_way, 1), "{count}");
        pair.exchange();
        assert_eq!(pair.states(), [State::Normal; 2]);
    }
}

/// Nothing of an earlier connection is believed by the next.
#[test]
fn pdus_of_an_earlier_connection_change_nothing() {
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
    // The same two ends under other nonces, as a station gives them.
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
fn of_what_was_lost_only_that_is_sent_again() {
    let mut pair = extended();
    pair.send(0, 0..12);
    pair.transmit(0, 99);
    for lost in [7, 2] {
        pair.wires[0].remove(lost);
    }
    while pair.receive(1) {}
    let received = pair.received[1].clone();
    assert_eq!(received, [0, 1], "the others came early");
    pair.exchange();
    assert_eq!(pair.received[1], (0..12).collect::<Vec<_>>());
    // Two are lost, and one that came early found no room.
    assert!(pair.ends[0].counters().information_repeated <= 4, "{:?}", pair.ends[0].counters());
    assert_eq!(pair.ends[0].counters().timeouts, 0);
}

#[test]
fn what_is_only_late_is_not_sent_again_once_the_network_is_known() {
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
    assert_eq!(swap(&mut pair, 0), 1, "it was taken for lost");
    for round in 1..20 {
        pair.now = pair.now + core::time::Duration::from_micros(100);
        let before = pair.ends[0].counters().information_repeated;
        let after = swap(&mut pair, round * 2);
        assert_eq!(after, before, "round {round}");
    }
    assert_eq!(pair.received[1], (0..40).collect::<Vec<_>>());
}

#[test]
fn a_repeated_set_up_is_answered_again_whatever_was_exchanged() {
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
