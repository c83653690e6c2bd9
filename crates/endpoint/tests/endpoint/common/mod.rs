// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoints with their inbox and events, driven in one thread.
#![allow(dead_code, reason = "no test uses all of it")]

pub mod sealing;
mod segment;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use barewire_endpoint::{
    Address, ChannelId, Config, Ending, Endpoint, EndpointCounters, Event, Framing, Inbox, InboxConfig, JobToken,
    Origin, Priority, Report, SendError,
};
use barewire_link::{Faults, Link, MemoryLink};
use barewire_llc::{ConnectionConfig, Lsap};

pub use segment::{LinkFault, Segment, SegmentLink};

/// Longer than any test step takes on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);
pub const MTU: usize = 1500;

/// An endpoint, its inbox, and what was taken from both.
pub struct Side<L = SegmentLink> {
    pub endpoint: Endpoint<L>,
    pub inbox: Inbox,
    /// Whether messages are taken from the inbox.
    pub takes: bool,
    pub received: Vec<(Origin, Vec<u8>)>,
    pub opened: Vec<(ChannelId, Address)>,
    pub ended: Vec<(ChannelId, Address, Ending)>,
    /// Channels for which an event reported room.
    pub has_room: Vec<ChannelId>,
    /// Outcome by context.
    pub outcomes: HashMap<u64, Option<Ending>>,
    /// Contexts in the order of their events.
    pub reported: Vec<u64>,
    /// Lent memory. Declared after the endpoint, so dropped after it.
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
            has_room: Vec::new(),
            outcomes: HashMap::new(),
            reported: Vec::new(),
            lent: HashMap::new(),
        }
    }

    pub fn address(&self) -> Address {
        self.endpoint.address()
    }

    pub fn connect(&mut self, peer: Address) -> ChannelId {
        self.endpoint.connect(peer).unwrap()
    }

    /// Lends memory, and overwrites it when its event arrives: a later read of it would send garbage.
    pub fn lend(&mut self, to: ChannelId, head: &[u8], body: Vec<u8>, context: u64) -> Result<(), SendError> {
        let body = body.into_boxed_slice();
        // SAFETY: kept in `lent` until the event comes, or until after the endpoint is dropped.
        unsafe { self.endpoint.post_lent(to, head, &body, Priority::Normal, Report::Acknowledged(context)) }?;
        assert!(self.lent.insert(context, body).is_none());
        Ok(())
    }

    /// As [`lend`](Self::lend), in the background.
    pub fn lend_in_background(&mut self, to: ChannelId, body: Vec<u8>, context: u64) -> Result<(), SendError> {
        let body = body.into_boxed_slice();
        // SAFETY: as for `lend`.
        unsafe { self.endpoint.post_lent(to, &[], &body, Priority::Background, Report::Acknowledged(context)) }?;
        assert!(self.lent.insert(context, body).is_none());
        Ok(())
    }

    /// Makes progress once and takes what was received. Returns whether there was something.
    pub fn poll(&mut self) -> bool {
        let has_progress = self.endpoint.progress(&mut self.inbox).unwrap();
        self.take();
        has_progress
    }

    pub fn take(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Opened { channel, peer } => self.opened.push((channel, peer)),
                Event::Ended { channel, peer, ending, .. } => self.ended.push((channel, peer, ending)),
                Event::Room { channel } => self.has_room.push(channel),
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
        assert_eq!(self.outcomes.insert(context, ending), None, "context {context} was reported twice");
        self.reported.push(context);
        if let Some(mut memory) = self.lent.remove(&context) {
            memory.fill(0xee);
        }
    }

    /// Whether all lent memory was returned.
    pub fn nothing_is_lent(&self) -> bool {
        self.lent.is_empty()
    }

    /// Messages received over a channel.
    pub fn from(&self, channel: ChannelId) -> Vec<&[u8]> {
        let is_from = |origin: &Origin| *origin == Origin::Channel(channel);
        self.received.iter().filter(|(origin, _)| is_from(origin)).map(|(_, bytes)| &bytes[..]).collect()
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

/// Drives all sides until a condition holds.
pub fn until<L: Link>(sides: &mut [&mut Side<L>], what: &str, mut is_true: impl FnMut(&mut [&mut Side<L>]) -> bool) {
    let began = Instant::now();
    while !is_true(sides) {
        let mut has_progress = false;
        for side in sides.iter_mut() {
            has_progress |= side.poll();
        }
        if !has_progress {
            std::thread::yield_now();
        }
        assert!(began.elapsed() < TIMEOUT, "{what} within {TIMEOUT:?}");
    }
}

/// Exchanges messages of many lengths between two sides over a network that corrupts, loses, duplicates and reorders
/// frames: each message arrives once and intact. Returns the counters of both sides.
pub fn counters_over_a_bad_network(config: &Config, seed: u64) -> [EndpointCounters; 2] {
    let faults = Faults { corruption: 0.05, loss: 0.01, duplication: 0.01, reordering: 0.05, ..Faults::default() };
    let (a, b) = MemoryLink::pair(MTU, faults, seed);
    let (mut a, mut b) = (Side::new(a, config.clone()), Side::new(b, config.clone()));
    let (to_b, from_a) = open_channel(&mut a, &mut b);
    let lengths = [0, 1, 40, 1400, 3000, 100_000, 7, 20_000, 300_000];
    for (context, bytes) in (0..).zip(lengths) {
        a.lend(to_b, &[], pattern(context, bytes), context).unwrap();
        b.lend(from_a, &[], pattern(context + 50, bytes), context).unwrap();
    }
    let count = lengths.len();
    until(&mut [&mut a, &mut b], "all arrive", |sides| {
        sides.iter().all(|side| side.received.len() == count && side.all_sent(0..count as u64))
    });
    for (side, first, channel) in [(&a, 50, to_b), (&b, 0, from_a)] {
        let expected: Vec<_> = (first..).zip(lengths).map(|(context, bytes)| pattern(context, bytes)).collect();
        assert!(side.from(channel).into_iter().eq(expected.iter()), "seed {seed}");
    }
    [a, b].map(|mut side| side.endpoint.counters().unwrap())
}

/// Size of a page, and of the smallest pipe.
pub fn page_bytes() -> usize {
    // SAFETY: takes a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Drives all sides for a time.
pub fn run_for<L: Link>(sides: &mut [&mut Side<L>], time: Duration) {
    let began = Instant::now();
    until(sides, "time passes", |_| began.elapsed() >= time);
}

/// A MAC address that no other running test uses: an endpoint's listener is named after it.
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

/// A configuration that gives up a silent peer soon; T1 still tolerates that the test is descheduled.
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

/// Two sides, on one host or on two.
pub fn pair(is_local: bool) -> (Side, Side) {
    let segment = Segment::default();
    let mac = new_mac();
    let a = side_at(&segment, mac, config(0x20));
    let b = side_at(&segment, if is_local { mac } else { new_mac() }, config(0x24));
    (a, b)
}

/// Opens a channel from `a` to `b`; returns its identifiers on both sides.
pub fn open_channel<L: Link>(a: &mut Side<L>, b: &mut Side<L>) -> (ChannelId, ChannelId) {
    let (to_b, before) = (a.connect(b.address()), b.opened.len());
    until(&mut [a, b], "a channel opens", |sides| sides[1].opened.len() > before);
    let (from_a, peer) = b.opened[before];
    assert_eq!(peer, a.address());
    (to_b, from_a)
}

/// A pair with a channel that is open on both sides.
pub fn open_pair(is_local: bool) -> (Side, Side, ChannelId, ChannelId) {
    let (mut a, mut b) = pair(is_local);
    let (to_b, to_a) = open_channel(&mut a, &mut b);
    until(&mut [&mut a, &mut b], "it is open", |sides| sides[0].endpoint.is_open(to_b));
    (a, b, to_b, to_a)
}

/// Pseudo-random bytes that depend on `seed` and the length.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ ((bytes as u64) << 32));
    let mut pattern = vec![0; bytes];
    random.fill(&mut pattern);
    pattern
}
