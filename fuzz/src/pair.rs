// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two connections over a channel that loses, duplicates and reorders as the input says, interleaved with arbitrary user
//! operations. Then the faults stop, and both must come to rest.
//!
//! The channel stays within the protocol's assumptions: a duplicate follows immediately; only numbered PDUs are reordered,
//! and by so little that numbers stay unambiguous; and a user sets up a connection again only after the PDUs of the last
//! set-up are gone, since SABME and UA do not identify their set-up.

use std::collections::VecDeque;
use std::time::Duration;

use barewire_llc::{
    AfterLoss, Cause, Connection, ConnectionConfig, ConnectionEvent, Instant, Lsap, Pdu, RefusedReason, State,
};

use crate::checker::Checker;
use crate::input::Input;

/// Bytes of an information field: its token.
const TOKEN_BYTES: usize = 4;
/// Most frames that overtake one; with a window of 64 far below the 128 numbers.
const OVERTAKEN_MAX: u8 = 8;
/// Most PDUs that an end sends at one time: a window of data, and responses.
const TRANSMIT_MAX: usize = 300;
/// Inactivity timeout, shorter than usual; an idle time of twice as long shows that nothing is pending.
const INACTIVITY: Duration = Duration::from_millis(50);
/// Time limit for both ends to come to rest after the faults; N2 retries at the largest T1 take 80 ms.
const REST: Duration = Duration::from_secs(2);
/// Longest input used: longer ones find nothing that shorter ones do not.
const INPUT_MAX: usize = 512;

const SABME: u8 = 0x6f;
const UA: u8 = 0x63;
const P_F: u8 = 0x10;

struct Frame {
    bytes: Vec<u8>,
    /// Number of frames that have overtaken it.
    overtaken: u8,
}

struct Pair {
    now: Instant,
    ends: [Connection<u32>; 2],
    windows: [u8; 2],
    queue: u16,
    /// Frames in flight from each end.
    wires: [VecDeque<Frame>; 2],
    /// Checks the data sent by each end.
    checkers: [Checker; 2],
    may_reorder: bool,
}

/// Runs the operations of the input, then requires both ends to come to rest, work again, and disconnect in order.
pub fn pair(data: &[u8]) {
    let mut input = Input::new(&data[..data.len().min(INPUT_MAX)]);
    let mut pair = Pair::new(&mut input);
    while !input.is_empty() {
        pair.operate(&mut input);
        pair.check();
    }
    pair.come_to_rest();
    pair.check_usable();
}

impl Pair {
    fn new(input: &mut Input<'_>) -> Self {
        let flags = input.byte();
        let may_reorder = flags & 1 != 0;
        let windows: &[u8] = if may_reorder { &[1, 2, 3, 7, 64] } else { &[1, 2, 3, 7, 64, 127] };
        let windows = [input.of(windows), input.of(windows)];
        let largest = windows[0].max(windows[1]);
        let queue = u16::from(largest).next_power_of_two() << (flags >> 1 & 1);
        let config = |window: u8| ConnectionConfig {
            window,
            receive_window: largest,
            queue,
            retries: 1 + (flags >> 2 & 3) * 2,
            acknowledge_every: (windows[0].min(windows[1]) / 2).max(1),
            t1_initial: Duration::from_millis(1),
            t1_max: Duration::from_millis(10),
            busy_poll: Duration::from_millis(1),
            stall_limit: Duration::from_millis(100),
            inactivity: Some(INACTIVITY),
            after_loss: [AfterLoss::Keep, AfterLoss::Halve, AfterLoss::One, AfterLoss::One]
                [usize::from(flags >> 4 & 3)],
            grow_after: 2,
            ..ConnectionConfig::default()
        };
        let now = Instant::default();
        let end =
            |window| Connection::new(&config(window), Lsap::SNAP, Lsap::SNAP, now).expect("a legal configuration");
        let ends = windows.map(end);
        let mut pair =
            Self { now, ends, windows, queue, wires: Default::default(), checkers: Default::default(), may_reorder };
        if flags & 0x40 != 0 {
            pair.ends[0].connect(now);
            pair.come_to_rest();
        }
        pair
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let (end, amount) = (usize::from(choice >> 7), 1 << (choice >> 4 & 6));
        let now = self.now;
        match choice & 0x1f {
            0 | 1 => self.transmit(end, amount),
            2 | 3 => (0..amount).for_each(|_| self.receive(end)),
            4 => self.wires[end].truncate(self.wires[end].len().saturating_sub(amount)),
            5 => drop(self.wires[end].drain(..amount.min(self.wires[end].len()))),
            6 => self.duplicate(end),
            7 => self.reorder(end, usize::from(choice >> 5 & 3)),
            8 | 9 => (0..amount).for_each(|_| self.send(end)),
            10 => self.take_events(end, amount),
            11 => self.now = self.now + [1, 60, 1_000, 30_000].map(Duration::from_micros)[usize::from(choice >> 5 & 3)],
            12 => self.ends[end].handle_timeout(now),
            13 => self.pass_time(),
            14 => self.set_up(end, Connection::connect),
            15 => drop(self.ends[end].accept(now)),
            16 => drop(self.ends[end].disconnect(now)),
            17 => drop(self.ends[end].finish(now)),
            18 => drop(self.ends[end].abort(now)),
            19 => self.set_up(end, Connection::reset),
            20 => drop(self.ends[end].accept_reset(now)),
            21 => self.ends[end].set_busy(true, now),
            22 => self.ends[end].set_busy(false, now),
            23 => self.settle_users(),
            24 => drop(self.exchange()),
            25 => self.now = self.now + Duration::from_nanos(u64::from(input.byte()) << 12),
            _ => {
                self.transmit(end, amount);
                (0..amount).for_each(|_| self.receive(1 - end));
                self.take_events(end, usize::MAX);
            }
        }
    }

    /// Transmits up to `limit` PDUs of an end.
    fn transmit(&mut self, end: usize, limit: usize) {
        for _ in 0..limit {
            let Some(transmit) = self.ends[end].poll_transmit(self.now) else { break };
            let mut bytes = transmit.header.as_bytes().to_vec();
            bytes.extend(transmit.token.iter().flat_map(|token| token.to_be_bytes()));
            self.wires[end].push_back(Frame { bytes, overtaken: 0 });
        }
    }

    /// Delivers the next PDU to an end.
    fn receive(&mut self, end: usize) {
        let Some(Frame { bytes, .. }) = self.wires[1 - end].pop_front() else { return };
        let pdu = Pdu::decode(&bytes).expect("the engine sent it");
        if let Some(information) = self.ends[end].handle_pdu(&pdu, self.now) {
            let token = information.first_chunk::<TOKEN_BYTES>().expect("a token");
            self.checkers[1 - end].delivered(u32::from_be_bytes(*token));
        }
    }

    fn set_up(&mut self, end: usize, operation: fn(&mut Connection<u32>, Instant) -> bool) {
        // A pending response to the last set-up would answer this one.
        let is_pending = matches!(self.ends[1 - end].state(), State::Conn | State::ResetCheck | State::ResetWait);
        if !is_pending && operation(&mut self.ends[end], self.now) {
            self.transmit(1 - end, TRANSMIT_MAX);
            for wire in &mut self.wires {
                wire.retain(|frame| frame.bytes[2] & !P_F != SABME && frame.bytes[2] & !P_F != UA);
            }
        }
    }

    fn duplicate(&mut self, end: usize) {
        if let Some(Frame { bytes, overtaken }) = self.wires[end].front() {
            let copy = Frame { bytes: bytes.clone(), overtaken: *overtaken };
            self.wires[end].push_front(copy);
        }
    }

    fn reorder(&mut self, end: usize, index: usize) {
        let is_numbered = |frame: &Frame| frame.bytes[2] & 3 != 3;
        let wire = &mut self.wires[end];
        let (Some(first), Some(second)) = (wire.get(index), wire.get(index + 1)) else { return };
        if self.may_reorder && is_numbered(first) && is_numbered(second) && first.overtaken < OVERTAKEN_MAX {
            wire[index].overtaken += 1;
            wire.swap(index, index + 1);
        }
    }

    fn send(&mut self, end: usize) {
        let (connection, checker) = (&mut self.ends[end], &mut self.checkers[end]);
        match connection.send(checker.next(), self.now) {
            Ok(()) => {
                assert!(connection.state().is_connected());
                checker.sent();
            }
            Err(refused) => {
                assert_eq!(refused.token, checker.next());
                match refused.reason {
                    RefusedReason::Full => assert_eq!(checker.held(), u32::from(self.queue)),
                    RefusedReason::NotConnected => {}
                    RefusedReason::Stale => panic!("a connection alone has no handle"),
                }
            }
        }
    }

    fn take_events(&mut self, end: usize, limit: usize) {
        for _ in 0..limit {
            let Some(event) = self.ends[end].poll_event() else { break };
            self.handle_event(end, event);
        }
    }

    fn handle_event(&mut self, end: usize, event: ConnectionEvent<u32>) {
        match event {
            ConnectionEvent::Acknowledged(token) => self.checkers[end].acknowledged(token),
            ConnectionEvent::Dropped(token) => self.checkers[end].dropped(token),
            ConnectionEvent::Disconnected(Cause::PeerRejected(reason))
            | ConnectionEvent::Reset(Cause::PeerRejected(reason)) => {
                // Between two conforming ends only a missed reset explains a rejection.
                assert_eq!(reason.flags() & 0x06, 0, "neither information nor length can be wrong");
            }
            _ => {}
        }
    }

    /// Both users handle all events, and respond wherever the engine waits for them.
    fn settle_users(&mut self) {
        for end in 0..2 {
            self.take_events(end, usize::MAX);
            let (connection, now) = (&mut self.ends[end], self.now);
            match connection.state() {
                State::Conn => assert!(connection.accept(now)),
                State::ResetCheck => assert!(connection.accept_reset(now)),
                State::ResetWait => assert!(connection.reset(now)),
                _ => {}
            }
        }
    }

    /// Transmits and delivers everything that is due; true if there was anything.
    fn exchange(&mut self) -> bool {
        let mut frames = 0;
        for end in 0..2 {
            self.transmit(end, TRANSMIT_MAX);
            assert!(self.wires[end].len() < 40 * TRANSMIT_MAX, "poll_transmit never ends");
            assert!(self.ends[end].poll_transmit(self.now).is_none(), "too much to send at once");
            frames += self.wires[end].len();
            (0..self.wires[end].len()).for_each(|_| self.receive(1 - end));
        }
        frames > 0
    }

    /// Advances to the next deadline.
    fn pass_time(&mut self) {
        let deadlines = self.ends.each_ref().map(Connection::next_deadline);
        if let Some(next) = deadlines.into_iter().flatten().min() {
            self.now = self.now.max(next);
            for end in &mut self.ends {
                end.handle_timeout(self.now);
                assert!(end.next_deadline().is_none_or(|next| next > self.now), "a deadline stays in the past");
            }
        }
    }

    fn check(&self) {
        for end in 0..2 {
            let connection = &self.ends[end];
            assert!(connection.outstanding() <= usize::from(self.windows[end]), "beyond the window");
            assert!((1..=self.windows[end]).contains(&connection.window()));
            assert!(connection.unacknowledged() <= connection.outstanding().max(usize::from(self.queue)));
            assert!(self.checkers[end].held() <= u32::from(self.queue));
            let waits = connection.state().is_connected() && connection.unacknowledged() > 0;
            assert!(!waits || connection.next_deadline().is_some(), "no timer ends the wait");
        }
    }

    fn is_at_rest(&self) -> bool {
        let states = self.ends.each_ref().map(Connection::state);
        let agree = states == [State::Adm; 2] || states == [State::Normal; 2];
        agree && self.ends.iter().all(|end| end.unacknowledged() == 0)
    }

    /// From here on the channel is perfect: in bounded time all data is delivered or its token returned.
    fn come_to_rest(&mut self) {
        let (deadline, mut rest_ends) = (self.now + REST, None);
        for end in &mut self.ends {
            end.set_busy(false, self.now);
        }
        loop {
            self.settle_users();
            self.check();
            if self.exchange() {
                continue;
            }
            self.settle_users();
            let now = self.now;
            if !self.is_at_rest() {
                rest_ends = None;
            } else if *rest_ends.get_or_insert(now + INACTIVITY * 2) <= now || self.ends[0].state() == State::Adm {
                break;
            }
            self.pass_time();
            let states = self.ends.each_ref().map(Connection::state);
            assert!(self.now < deadline, "not at rest: {states:?}");
        }
        self.settle_users();
        assert_eq!(self.checkers.each_ref().map(Checker::held), [0, 0], "tokens were lost");
    }

    /// Whatever happened before, the connection works again, and disconnects in order.
    fn check_usable(&mut self) {
        let now = self.now;
        if self.ends[0].state() == State::Adm {
            assert!(self.ends[0].connect(now));
            self.come_to_rest();
        }
        let before = self.checkers.each_ref().map(Checker::next);
        for end in [0, 1] {
            self.send(end);
            assert_eq!(self.checkers[end].next(), before[end] + 1, "nothing can be sent");
        }
        self.come_to_rest();
        for (checker, before) in self.checkers.iter().zip(before) {
            assert!(checker.is_delivered(before), "lost on a perfect channel");
        }
        self.send(0);
        let last = self.checkers[0].next() - 1;
        assert!(self.ends[0].finish(self.now));
        self.come_to_rest();
        assert!(self.checkers[0].is_delivered(last), "an orderly end lost data");
        assert_eq!(self.ends.each_ref().map(Connection::state), [State::Adm; 2]);
        assert_eq!(self.ends.each_ref().map(Connection::next_deadline), [None, None]);
    }
}
