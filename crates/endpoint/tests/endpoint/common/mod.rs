// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoints with what their user keeps beside them, driven in one thread.
#![allow(dead_code, reason = "no test uses all of it")]

pub mod sealing;
mod segment;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use barewire_endpoint::{
    Acknowledge, Address, ChannelId, Config, Ending, Endpoint, EndpointCounters, Event, Framing, Inbox, InboxConfig,
    JobToken, Origin, SendError,
};
use barewire_link::{Faults, Link, MemoryLink};
use barewire_llc::{ConnectionConfig, Lsap};

pub use segment::{Segment, SegmentLink, Trouble};

/// Longer than anything takes, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const MTU: usize = 1500;

/// An endpoint, its inbox, and what came out of both.
pub struct Side<L = SegmentLink> {
    pub endpoint: Endpoint<L>,
    pub inbox: Inbox,
    /// Whether messages are taken from the inbox.
    pub takes: bool,
    pub received: Vec<(Origin, Vec<u8>)>,
    pub opened: Vec<(ChannelId, Address)>,
    pub ended: Vec<(ChannelId, Address, Ending)>,
    /// Of each context, once.
    pub outcomes: HashMap<u64, Option<Ending>>,
    /// In which contexts were told of.
    pub told: Vec<u64>,
    /// Memory under way. After the endpoint, so dropped after it.
    lent: HashMap<u64, Box<[u8]>>,
}

impl<L: Link> Side<L> {
    pub fn new(link: L, config: Config) -> Self {
        let endpoint = Endpoint::open(link, config, None).unwrap();
        let inbox = Inbox::new(&InboxConfig {
            receive_descriptors: 64,
            buffers: 4,
            buffer_bytes: 5 << 20,
            ..InboxConfig::default()
        });
        Self {
            endpoint,
            inbox,
            takes: true,
            received: Vec::new(),
            opened: Vec::new(),
            ended: Vec::new(),
            outcomes: HashMap::new(),
            told: Vec::new(),
            lent: HashMap::new(),
        }
    }

    pub fn address(&self) -> Address {
        self.endpoint.address()
    }

    pub fn connect(&mut self, peer: Address) -> ChannelId {
        self.endpoint.connect(peer).unwrap()
    }

    /// Lends memory, and writes over it as soon as it is the caller's again: what reads it later sends garbage.
    pub fn lend(&mut self, to: ChannelId, head: &[u8], body: Vec<u8>, context: u64) -> Result<(), SendError> {
        let body = body.into_boxed_slice();
        // SAFETY: kept in `lent` until the event comes, or until after the endpoint is dropped.
        unsafe { self.endpoint.send_lent(to, head, &body, context, Acknowledge::Eventually) }?;
        assert!(self.lent.insert(context, body).is_none());
        Ok(())
    }

    /// As [`lend`](Self::lend), in the background.
    pub fn lend_in_background(&mut self, to: ChannelId, body: Vec<u8>, context: u64) -> Result<(), SendError> {
        let body = body.into_boxed_slice();
        // SAFETY: as of `lend`.
        unsafe { self.endpoint.send_lent_in_background(to, &[], &body, context, Acknowledge::Eventually) }?;
        assert!(self.lent.insert(context, body).is_none());
        Ok(())
    }

    /// Makes progress once and takes what there is. True if there was something.
    pub fn turn(&mut self) -> bool {
        let is_news = self.endpoint.progress(&mut self.inbox).unwrap();
        self.take();
        is_news
    }

    pub fn take(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Opened { channel, peer } => self.opened.push((channel, peer)),
                Event::Ended { channel, peer, ending } => self.ended.push((channel, peer, ending)),
                Event::Sent { context } => self.outcome(context, None),
                Event::Failed { context, ending } => self.outcome(context, Some(ending)),
            }
        }
        while self.takes
            && let Some(message) = self.inbox.receive()
        {
            assert!(message.total >= message.bytes().len());
            self.received.push((message.origin, message.bytes().to_vec()));
            self.inbox.done(message);
        }
    }

    fn outcome(&mut self, context: u64, ending: Option<Ending>) {
        assert_eq!(self.outcomes.insert(context, ending), None, "context {context} was told of twice");
        self.told.push(context);
        if let Some(mut memory) = self.lent.remove(&context) {
            memory.fill(0xee);
        }
    }

    /// Whether all memory lent is this side's again.
    pub fn nothing_is_lent(&self) -> bool {
        self.lent.is_empty()
    }

    /// What came over a channel.
    pub fn from(&self, channel: ChannelId) -> Vec<&[u8]> {
        let is_its = |origin: &Origin| *origin == Origin::Channel(channel);
        self.received.iter().filter(|(origin, _)| is_its(origin)).map(|(_, bytes)| &bytes[..]).collect()
    }

    pub fn all_sent(&self, contexts: std::ops::Range<u64>) -> bool {
        contexts.into_iter().all(|context| match self.outcomes.get(&context) {
            Some(ending) => {
                assert_eq!(*ending, None, "context {context}");
                true
            }
            None => false,
        })
    }
}

/// Drives all sides until something is true of them.
pub fn until<L: Link>(sides: &mut [&mut Side<L>], what: &str, mut is_true: impl FnMut(&mut [&mut Side<L>]) -> bool) {
    let began = Instant::now();
    while !is_true(sides) {
        let mut is_news = false;
        for side in sides.iter_mut() {
            is_news |= side.turn();
        }
        if !is_news {
            std::thread::yield_now();
        }
        assert!(began.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
    }
}

/// Two sides send each other messages of many lengths over a network that changes, loses, repeats and reorders frames: each
/// arrives once, as it was sent. What both have counted.
pub fn counters_over_a_bad_network(config: &Config, seed: u64) -> [EndpointCounters; 2] {
    let faults = Faults { corruption: 0.05, loss: 0.01, duplication: 0.01, reordering: 0.05, ..Faults::default() };
    let (a, b) = MemoryLink::pair(MTU, faults, seed);
    let (mut a, mut b) = (Side::new(a, config.clone()), Side::new(b, config.clone()));
    let (to_b, from_a) = join(&mut a, &mut b);
    let lengths = [0, 1, 40, 1400, 3000, 100_000, 7, 20_000, 300_000];
    for (context, bytes) in (0..).zip(lengths) {
        a.lend(to_b, &[], pattern(context, bytes), context).unwrap();
        b.lend(from_a, &[], pattern(context + 50, bytes), context).unwrap();
    }
    let all = lengths.len();
    until(&mut [&mut a, &mut b], "all arrive", |sides| {
        sides.iter().all(|side| side.received.len() == all && side.all_sent(0..all as u64))
    });
    for (side, first, channel) in [(&a, 50, to_b), (&b, 0, from_a)] {
        let expected: Vec<_> = (first..).zip(lengths).map(|(context, bytes)| pattern(context, bytes)).collect();
        assert!(side.from(channel).into_iter().eq(expected.iter()), "seed {seed}");
    }
    [a, b].map(|mut side| side.endpoint.counters().unwrap())
}

/// Drives all sides for some time.
pub fn for_some_time<L: Link>(sides: &mut [&mut Side<L>], time: Duration) {
    let began = Instant::now();
    until(sides, "time passes", |_| began.elapsed() >= time);
}

/// A station's address that no other test has at the same time: an endpoint's listener is named after it.
pub fn new_mac() -> [u8; 6] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let [d, e] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    [2, a, b, c, d, e]
}

pub fn sap(byte: u8) -> Lsap {
    Lsap::new(byte).unwrap()
}

pub fn framing() -> Framing {
    Framing { token: Some(JobToken::new(0x0123_4567_89ab_cdef)), ..Framing::default() }
}

pub fn config(byte: u8) -> Config {
    Config::new(sap(byte), framing())
}

/// A configuration that soon takes a silent peer for dead; T1 still bears that the test loses its core.
pub fn impatient(byte: u8) -> Config {
    let connection = ConnectionConfig {
        retries: 4,
        t1_initial: Duration::from_millis(20),
        t1_min: Duration::from_millis(20),
        t1_max: Duration::from_millis(40),
        inactivity: Some(Duration::from_millis(300)),
        ..ConnectionConfig::default()
    };
    Config { connection, ..config(byte) }
}

/// A side on a segment.
pub fn side_at(segment: &Segment, mac: [u8; 6], config: Config) -> Side {
    Side::new(segment.link(mac, config.sap.byte(), MTU), config)
}

/// Two sides on hosts of their own, or on one.
pub fn two(is_local: bool) -> (Side, Side) {
    let segment = Segment::default();
    let mac = new_mac();
    let a = side_at(&segment, mac, config(0x20));
    let b = side_at(&segment, if is_local { mac } else { new_mac() }, config(0x24));
    (a, b)
}

/// A channel between two, as each names it.
pub fn join<L: Link>(a: &mut Side<L>, b: &mut Side<L>) -> (ChannelId, ChannelId) {
    let (to_b, before) = (a.connect(b.address()), b.opened.len());
    until(&mut [a, b], "a channel opens", |sides| sides[1].opened.len() > before);
    let (from_a, peer) = b.opened[before];
    assert_eq!(peer, a.address());
    (to_b, from_a)
}

/// Bytes that say whose they are.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ ((bytes as u64) << 32));
    let mut pattern = vec![0; bytes];
    random.fill(&mut pattern);
    pattern
}
