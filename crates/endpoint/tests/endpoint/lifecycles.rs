// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever users do in whatever order: two endpoints of one host and one of another connect, send, close, refuse to
//! take, and are started again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use barewire_endpoint::{ChannelId, Config, Origin, SendError};
use barewire_link::{Faults, MemoryLink};
use barewire_llc::ConnectionConfig;
use proptest::prelude::*;

use crate::common::*;

#[derive(Clone, Debug)]
enum Step {
    /// The channel from one to another is opened if there is none, and messages are sent into it.
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
    /// One takes no messages any more, or again.
    Takes(usize, bool),
    /// One vanishes without a word, and another begins at its address.
    Restart(usize),
    Work {
        who: usize,
        turns: u8,
    },
    WorkAll(u8),
    Wait,
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = 0..3_usize;
    prop_oneof![
        6 => (who.clone(), who.clone(), 1..20_u8, prop_oneof![12..100_usize, 12..30_000_usize])
            .prop_map(|(from, to, count, bytes)| Step::Send { from, to, count, bytes }),
        2 => (who.clone(), who.clone()).prop_map(|(from, to)| Step::Close { from, to }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, takes)| Step::Takes(who, takes)),
        1 => who.clone().prop_map(Step::Restart),
        4 => (who, 1..40_u8).prop_map(|(who, turns)| Step::Work { who, turns }),
        3 => (1..40_u8).prop_map(Step::WorkAll),
        1 => Just(Step::Wait),
    ]
}

/// Gives up soon: a peer that is taken for dead while it lives is only one more thing that happens.
fn hasty(byte: u8) -> Config {
    let connection = ConnectionConfig {
        retries: 3,
        t1_initial: Duration::from_millis(2),
        t1_min: Duration::from_millis(2),
        t1_max: Duration::from_millis(4),
        inactivity: Some(Duration::from_millis(15)),
        ..ConnectionConfig::default()
    };
    Config { connection, local_patience: Duration::from_millis(10), ..config(byte) }
}

struct World {
    segment: Segment,
    sides: Vec<Side>,
    /// Of each: how often it was started again.
    lives: [u32; 3],
    /// Of each channel that was sent into: its number, and messages sent so far.
    channels: HashMap<(usize, u32, ChannelId), (u32, u32)>,
    context: u64,
    /// Messages that were received, and how many of each channel.
    seen: HashSet<[u8; 8]>,
    received: HashMap<(usize, u32, ChannelId), (u32, u32)>,
}

impl World {
    fn new() -> Self {
        let (segment, host) = (Segment::default(), new_mac());
        let sides = vec![
            side_at(&segment, host, hasty(0x20)),
            side_at(&segment, host, hasty(0x24)),
            side_at(&segment, new_mac(), hasty(0x28)),
        ];
        Self {
            segment,
            sides,
            lives: [0; 3],
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
                // Not while the last one still has messages.
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
            Step::Takes(who, takes) => self.sides[who].takes = takes,
            Step::Restart(who) => {
                let (mac, sap) = (self.sides[who].address().mac, self.sides[who].address().sap.byte());
                self.check(who);
                drop(self.sides.remove(who));
                self.sides.insert(who, side_at(&self.segment, mac, hasty(sap)));
                self.lives[who] += 1;
            }
            Step::Work { who, turns } => {
                for _ in 0..turns {
                    self.turn(who);
                }
            }
            Step::WorkAll(turns) => {
                for _ in 0..turns {
                    (0..3).for_each(|who| self.turn(who));
                }
            }
            Step::Wait => std::thread::sleep(Duration::from_millis(3)),
        }
    }

    fn send(&mut self, from: usize, channel: ChannelId, bytes: usize) {
        let number = self.channels.len() as u32;
        let (number, sent) = self.channels.entry((from, self.lives[from], channel)).or_insert((number, 0));
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

    fn turn(&mut self, who: usize) {
        self.sides[who].turn();
        self.check(who);
    }

    /// What a channel brings is what was sent into one channel of its peer, from the beginning, once and in order.
    fn check(&mut self, who: usize) {
        for (origin, bytes) in std::mem::take(&mut self.sides[who].received) {
            let Origin::Channel(channel) = origin else { panic!("nobody sends datagrams") };
            let id: [u8; 8] = bytes[..8].try_into().unwrap();
            assert!(self.seen.insert(id), "received twice");
            let (number, place) = (&id[..4], &id[4..]);
            let number = u32::from_be_bytes(number.try_into().unwrap());
            let place = u32::from_be_bytes(place.try_into().unwrap());
            let (its_number, next) = self.received.entry((who, self.lives[who], channel)).or_insert((number, 0));
            assert_eq!((number, place), (*its_number, *next), "channel and place of a message");
            *next += 1;
            assert!(bytes[8..] == pattern(u64::from(number) << 32 | u64::from(place), bytes.len())[8..]);
        }
    }

    /// Once all take again, everything is told of, and the three can talk anew.
    fn finish(&mut self) {
        for side in &mut self.sides {
            side.takes = true;
        }
        let began = std::time::Instant::now();
        let told = |side: &Side| side.nothing_is_lent();
        while !(self.sides.iter().all(told) && self.all_settled()) {
            (0..3).for_each(|who| self.turn(who));
            assert!(began.elapsed() < PATIENCE, "everything is told of");
        }
        for from in 0..3 {
            for to in 0..3 {
                let before = self.seen.len();
                while self.seen.len() == before {
                    // The channel there is may be one of which this side does not know yet that it ends.
                    self.step(&Step::Send { from, to, count: 1, bytes: 20 });
                    for _ in 0..100 {
                        (0..3).for_each(|who| self.turn(who));
                    }
                    assert!(began.elapsed() < PATIENCE, "{from} reaches {to}");
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
    fn whatever_happens_channels_bring_what_was_sent_in_order_and_once(
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.finish();
    }
}

/// Connections are made and ended over a wire that loses a quarter of everything, also when both begin.
#[test]
fn channels_open_and_close_over_a_bad_wire() {
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
