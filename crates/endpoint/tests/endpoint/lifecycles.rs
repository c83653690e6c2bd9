// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random sequences of actions: three endpoints on two hosts connect, send, close, stop receiving, and restart.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use barewire_endpoint::{ChannelId, Config, Origin, SendError};
use barewire_link::{Faults, MemoryLink};
use barewire_llc::ConnectionConfig;
use proptest::prelude::*;

use crate::common::*;

#[derive(Clone, Debug)]
enum Step {
    /// Opens the channel if there is none, and sends messages.
    Send {
        from: usize,
        to: usize,
        count: u8,
        bytes: usize,
    },
    Close {
        from: usize,
        to: usize,
    },
    /// A side stops or resumes taking messages.
    SetTakes(usize, bool),
    /// An endpoint is dropped without closing, and a new one opened at its address.
    Restart(usize),
    Poll {
        side: usize,
        count: u8,
    },
    PollAll(u8),
    Wait,
}

fn any_step() -> impl Strategy<Value = Step> {
    let side = 0..3_usize;
    prop_oneof![
        6 => (side.clone(), side.clone(), 1..20_u8, prop_oneof![12..100_usize, 12..30_000_usize])
            .prop_map(|(from, to, count, bytes)| Step::Send { from, to, count, bytes }),
        2 => (side.clone(), side.clone()).prop_map(|(from, to)| Step::Close { from, to }),
        1 => (side.clone(), any::<bool>()).prop_map(|(side, takes)| Step::SetTakes(side, takes)),
        1 => side.clone().prop_map(Step::Restart),
        4 => (side, 1..40_u8).prop_map(|(side, count)| Step::Poll { side, count }),
        3 => (1..40_u8).prop_map(Step::PollAll),
        1 => Just(Step::Wait),
    ]
}

/// Gives up peers soon: taking a live peer for dead is just one more event.
fn very_impatient(byte: u8) -> Config {
    let connection = ConnectionConfig {
        retries: 3,
        t1_initial: Duration::from_millis(2),
        t1_min: Duration::from_millis(2),
        t1_max: Duration::from_millis(4),
        inactivity: Some(Duration::from_millis(15)),
        ..ConnectionConfig::default()
    };
    Config { connection, connect_timeout: Duration::from_millis(10), ..config(byte) }
}

struct World {
    segment: Segment,
    sides: Vec<Side>,
    /// Number of restarts of each side.
    restarts: [u32; 3],
    /// For each channel with messages: its number, and messages sent so far.
    channels: HashMap<(usize, u32, ChannelId), (u32, u32)>,
    context: u64,
    /// Messages received, and for each channel its number at the sender and the number of messages.
    seen: HashSet<[u8; 8]>,
    received: HashMap<(usize, u32, ChannelId), (u32, u32)>,
}

impl World {
    fn new() -> Self {
        let (segment, host) = (Segment::default(), new_mac());
        let sides = vec![
            side_at(&segment, host, very_impatient(0x20)),
            side_at(&segment, host, very_impatient(0x24)),
            side_at(&segment, new_mac(), very_impatient(0x28)),
        ];
        Self {
            segment,
            sides,
            restarts: [0; 3],
            channels: HashMap::new(),
            context: 0,
            seen: HashSet::new(),
            received: HashMap::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { from, to, count, bytes } => {
                let peer = self.sides[to].address();
                // Not while the previous channel still has messages.
                let Ok(channel) = self.sides[from].endpoint.connect(peer) else { return };
                for _ in 0..count {
                    self.send(from, channel, bytes);
                }
            }
            Step::Close { from, to } => {
                let peer = self.sides[to].address();
                if let Ok(channel) = self.sides[from].endpoint.connect(peer) {
                    self.sides[from].endpoint.close(channel);
                }
            }
            Step::SetTakes(side, takes) => self.sides[side].takes = takes,
            Step::Restart(side) => {
                let (mac, sap) = (self.sides[side].address().mac, self.sides[side].address().sap.byte());
                self.check(side);
                drop(self.sides.remove(side));
                self.sides.insert(side, side_at(&self.segment, mac, very_impatient(sap)));
                self.restarts[side] += 1;
            }
            Step::Poll { side, count } => {
                for _ in 0..count {
                    self.poll(side);
                }
            }
            Step::PollAll(count) => {
                for _ in 0..count {
                    (0..3).for_each(|side| self.poll(side));
                }
            }
            Step::Wait => std::thread::sleep(Duration::from_millis(3)),
        }
    }

    fn send(&mut self, from: usize, channel: ChannelId, bytes: usize) {
        let number = self.channels.len() as u32;
        let (number, sent) = self.channels.entry((from, self.restarts[from], channel)).or_insert((number, 0));
        let mut message = pattern(u64::from(*number) << 32 | u64::from(*sent), bytes);
        message[..4].copy_from_slice(&number.to_be_bytes());
        message[4..8].copy_from_slice(&sent.to_be_bytes());
        let side = &mut self.sides[from];
        let result = if bytes < 500 {
            side.endpoint.send(channel, &[], &message, self.context)
        } else {
            side.lend(channel, &[], message, self.context)
        };
        match result {
            Ok(()) => (*sent, self.context) = (*sent + 1, self.context + 1),
            Err(SendError::Full | SendError::Ended) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn poll(&mut self, side: usize) {
        self.sides[side].poll();
        self.check(side);
    }

    /// A channel delivers what was sent into one channel of its peer, from the beginning, once and in order.
    fn check(&mut self, side: usize) {
        for (origin, bytes) in std::mem::take(&mut self.sides[side].received) {
            let Origin::Channel(channel) = origin else { panic!("no datagrams are sent") };
            let id: [u8; 8] = bytes[..8].try_into().unwrap();
            assert!(self.seen.insert(id), "received twice");
            let (number, position) = (&id[..4], &id[4..]);
            let number = u32::from_be_bytes(number.try_into().unwrap());
            let position = u32::from_be_bytes(position.try_into().unwrap());
            let (expected_number, next) =
                self.received.entry((side, self.restarts[side], channel)).or_insert((number, 0));
            assert_eq!((number, position), (*expected_number, *next), "channel and position of a message");
            *next += 1;
            assert!(bytes[8..] == pattern(u64::from(number) << 32 | u64::from(position), bytes.len())[8..]);
        }
    }

    /// Once all sides take messages again, every message is reported, and all sides can exchange messages.
    fn finish(&mut self) {
        for side in &mut self.sides {
            side.takes = true;
        }
        let began = std::time::Instant::now();
        let is_complete = |side: &Side| side.nothing_is_lent();
        while !(self.sides.iter().all(is_complete) && self.all_settled()) {
            (0..3).for_each(|side| self.poll(side));
            assert!(began.elapsed() < TIMEOUT, "everything is reported");
        }
        for from in 0..3 {
            for to in 0..3 {
                let before = self.seen.len();
                while self.seen.len() == before {
                    // The existing channel may be about to end without this side knowing it yet.
                    self.step(&Step::Send { from, to, count: 1, bytes: 20 });
                    for _ in 0..100 {
                        (0..3).for_each(|side| self.poll(side));
                    }
                    assert!(began.elapsed() < TIMEOUT, "{from} reaches {to}");
                }
            }
        }
    }

    fn all_settled(&mut self) -> bool {
        self.sides.iter_mut().all(|side| {
            let Side { endpoint, inbox, .. } = side;
            endpoint.settle(inbox).unwrap()
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn channels_deliver_messages_in_order_and_once_in_any_sequence_of_actions(
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.finish();
    }
}

/// Connections are opened and closed over a link that loses a quarter of all frames, also when both sides connect.
#[test]
fn channels_open_and_close_over_a_lossy_link() {
    for seed in 0..12 {
        println!("seed {seed}");
        let (a, b) = MemoryLink::pair(MTU, Faults { loss: 0.25, duplication: 0.1, ..Faults::default() }, seed);
        let connection = ConnectionConfig {
            t1_initial: Duration::from_millis(5),
            t1_max: Duration::from_millis(20),
            ..ConnectionConfig::default()
        };
        let config = |byte| Config { local: None, connection: connection.clone(), ..config(byte) };
        let (mut a, mut b) = (Side::new(a, config(0x20)), Side::new(b, config(0x24)));
        let to_b = a.connect(b.address());
        if seed % 2 == 1 {
            b.connect(a.address());
        }
        a.lend(to_b, &[], pattern(seed, 20_000), 1).unwrap();
        a.endpoint.close(to_b);
        until(&mut [&mut a, &mut b], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        assert!(a.all_sent(1..2));
        assert!(b.received.len() == 1 && b.received[0].1 == pattern(seed, 20_000));
        assert_eq!((a.ended.len(), b.ended.len()), (1, 1), "{:?} {:?}", a.ended, b.ended);
    }
}
