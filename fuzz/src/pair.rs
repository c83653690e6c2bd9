// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two connections over a channel that loses, repeats and overtakes as the input says, with any operations of
//! their users in between. Then the faults stop, and both must come to rest.
//!
//! The channel keeps to what the protocol can bear: a repetition follows at once, and only numbered PDUs
//! overtake each other, by so little that no number can stand for two of them; and a user sets a connection
//! up anew only once the PDUs of the last set-up are gone, for SABME and UA do not tell which one they mean.

use std::collections::VecDeque;
use std::time::Duration;

use barewire_llc::{
    AfterLoss, Cause, Connection, ConnectionConfig, ConnectionEvent, Instant, Lsap, Pdu, RefusedReason, State,
};

use crate::checker::Checker;
use crate::input::Input;

/// Bytes of what a connection is given to send.
const TOKEN_BYTES: usize = 4;
/// Frames by which one may be overtaken; with a window of 64 far below 128 numbers.
const OVERTAKEN_MAX: u8 = 8;
/// No run of the engine sends more at one moment: a window of data, and its answers.
const AT_ONCE_MAX: usize = 300;
/// Shorter than in earnest; a rest of twice as long shows that nothing is left to be settled.
const INACTIVITY: Duration = Duration::from_millis(50);
/// After the faults both must be at rest by then; N2 repetitions at the largest T1 take 80 ms.
const REST: Duration = Duration::from_secs(2);
/// Longest inputs that are looked at: a longer one finds nothing that a shorter one does not.
const INPUT_MAX: usize = 512;

const SABME: u8 = 0x6f;
const UA: u8 = 0x63;
const P_F: u8 = 0x10;

struct Frame {
    bytes: Vec<u8>,
    /// How often it was overtaken.
    overtaken: u8,
}

struct Pair {
    now: Instant,
    ends: [Connection<u32>; 2],
    windows: [u8; 2],
    queue: u16,
    /// What each end has sent and the other not yet received.
    wires: [VecDeque<Frame>; 2],
    /// The data that each end sends.
    checkers: [Checker; 2],
    may_overtake: bool,
}

/// See the module.
pub fn pair(data: &[u8]) {
    let mut input = Input::new(&data[..data.len().min(INPUT_MAX)]);
    let mut pair = Pair::new(&mut input);
    while !input.is_empty() {
        pair.operate(&mut input);
        pair.check();
    }
    pair.come_to_rest();
    pair.say_goodbye();
}

impl Pair {
    fn new(input: &mut Input<'_>) -> Self {
        let flags = input.byte();
        let may_overtake = flags & 1 != 0;
        let windows: &[u8] = if may_overtake { &[1, 2, 3, 7, 64] } else { &[1, 2, 3, 7, 64, 127] };
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
            Self { now, ends, windows, queue, wires: Default::default(), checkers: Default::default(), may_overtake };
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
            6 => self.repeat(end),
            7 => self.overtake(end, usize::from(choice >> 5 & 3)),
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

    /// Lets an end put up to `limit` PDUs on its wire.
    fn transmit(&mut self, end: usize, limit: usize) {
        for _ in 0..limit {
            let Some(transmit) = self.ends[end].poll_transmit(self.now) else { break };
            let mut bytes = transmit.header.as_bytes().to_vec();
            bytes.extend(transmit.token.iter().flat_map(|token| token.to_be_bytes()));
            self.wires[end].push_back(Frame { bytes, overtaken: 0 });
        }
    }

    /// Takes the next PDU from the wire to an end.
    fn receive(&mut self, end: usize) {
        let Some(Frame { bytes, .. }) = self.wires[1 - end].pop_front() else { return };
        let pdu = Pdu::decode(&bytes).expect("the engine sent it");
        if let Some(information) = self.ends[end].handle_pdu(&pdu, self.now) {
            let token = information.first_chunk::<TOKEN_BYTES>().expect("a token");
            self.checkers[1 - end].delivered(u32::from_be_bytes(*token));
        }
    }

    fn set_up(&mut self, end: usize, operation: fn(&mut Connection<u32>, Instant) -> bool) {
        // A user that has not answered the last one yet would answer this one with it.
        let is_held = matches!(self.ends[1 - end].state(), State::Conn | State::ResetCheck | State::ResetWait);
        if !is_held && operation(&mut self.ends[end], self.now) {
            self.transmit(1 - end, AT_ONCE_MAX);
            for wire in &mut self.wires {
                wire.retain(|frame| frame.bytes[2] & !P_F != SABME && frame.bytes[2] & !P_F != UA);
            }
        }
    }

    fn repeat(&mut self, end: usize) {
        if let Some(Frame { bytes, overtaken }) = self.wires[end].front() {
            let copy = Frame { bytes: bytes.clone(), overtaken: *overtaken };
            self.wires[end].push_front(copy);
        }
    }

    fn overtake(&mut self, end: usize, place: usize) {
        let is_numbered = |frame: &Frame| frame.bytes[2] & 3 != 3;
        let wire = &mut self.wires[end];
        let (Some(first), Some(second)) = (wire.get(place), wire.get(place + 1)) else { return };
        if self.may_overtake && is_numbered(first) && is_numbered(second) && first.overtaken < OVERTAKEN_MAX {
            wire[place].overtaken += 1;
            wire.swap(place, place + 1);
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
            self.note(end, event);
        }
    }

    fn note(&mut self, end: usize, event: ConnectionEvent<u32>) {
        match event {
            ConnectionEvent::Acknowledged(token) => self.checkers[end].acknowledged(token),
            ConnectionEvent::Dropped(token) => self.checkers[end].dropped(token),
            ConnectionEvent::Disconnected(Cause::PeerRejected(reason))
            | ConnectionEvent::Reset(Cause::PeerRejected(reason)) => {
                // Between two that keep to the protocol only a reset that one of them missed explains it.
                assert_eq!(reason.flags() & 0x06, 0, "neither information nor length can be wrong");
            }
            _ => {}
        }
    }

    /// Both users hear everything and go on wherever the engine waits for them.
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

    /// Everything that is due is sent and arrives; whether there was anything.
    fn exchange(&mut self) -> bool {
        let mut frames = 0;
        for end in 0..2 {
            self.transmit(end, AT_ONCE_MAX);
            assert!(self.wires[end].len() < 40 * AT_ONCE_MAX, "poll_transmit never ends");
            assert!(self.ends[end].poll_transmit(self.now).is_none(), "too much to send at once");
            frames += self.wires[end].len();
            (0..self.wires[end].len()).for_each(|_| self.receive(1 - end));
        }
        frames > 0
    }

    /// To the next deadline.
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

    /// The channel is perfect from here on: in bounded time all data is where it belongs, or was given back.
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

    /// Whatever was before, the connection is of use again, and ends in an orderly way.
    fn say_goodbye(&mut self) {
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
