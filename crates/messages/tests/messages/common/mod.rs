// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two messengers, on a wire with faults or on one host, driven by one thread.
#![allow(dead_code, reason = "each test program uses its part")]

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use barewire_endpoint::{Address, Endpoint, Framing};
use barewire_link::{Counters, Faults, Incoming, Link, LinkError, MacAddress, MemoryLink, Outgoing};
use barewire_llc::{ConnectionConfig, Lsap};
use barewire_messages::{
    Completion, CompletionLevel, Config, Label, Messenger, Part, Pattern, PeerId, PostError, ReceiveOptions, Selector,
    SendOptions,
};

pub const MTU: usize = 1500;
/// Longer than any test waits.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a wire, with an address of its own. With `_other`, frames go nowhere.
pub struct TestLink {
    inner: MemoryLink,
    address: MacAddress,
    _other: Option<MemoryLink>,
}

impl Link for TestLink {
    fn address(&self) -> MacAddress {
        self.address
    }

    fn mtu(&self) -> usize {
        self.inner.mtu()
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        if self._other.is_some() { Ok(frames.len()) } else { self.inner.send(frames) }
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.inner.receive()
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.inner.wait_to_receive_or(others, timeout)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        self.inner.wait_to_send(timeout)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.inner.check()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.inner.counters()
    }
}

pub type Tested = Messenger<TestLink>;

pub const LEVELS: [CompletionLevel; 3] =
    [CompletionLevel::Inject, CompletionLevel::Transmit, CompletionLevel::Delivery];

pub const fn options(context: u64, level: CompletionLevel) -> SendOptions {
    SendOptions { context, note: 0, level, is_silent: false }
}

/// A connection configuration with short timeouts.
pub fn impatient() -> ConnectionConfig {
    ConnectionConfig {
        t1_initial: Duration::from_millis(2),
        t1_max: Duration::from_millis(4),
        retries: 5,
        stall_limit: Duration::from_millis(200),
        inactivity: Some(Duration::from_millis(20)),
        ..ConnectionConfig::default()
    }
}

pub fn sap(number: u8) -> Lsap {
    Lsap::new(number).unwrap()
}

pub fn endpoint_config(number: u8) -> barewire_endpoint::Config {
    let mut config = barewire_endpoint::Config::new(sap(number), Framing::default());
    config.channels = 16;
    config
}

/// Two processes on a wire.
pub fn wire(config: Config, connection: &ConnectionConfig, faults: Faults, seed: u64) -> [Tested; 2] {
    let (a, b) = MemoryLink::pair(MTU, faults, seed);
    [a, b].map(|inner| {
        let link = TestLink { address: inner.address(), inner, _other: None };
        let mut endpoint_config = endpoint_config(0x20);
        (endpoint_config.local, endpoint_config.connection) = (None, connection.clone());
        Messenger::new(Endpoint::open(link, endpoint_config, None).unwrap(), config)
    })
}

/// A new host's address.
pub fn new_host() -> MacAddress {
    let mut mac = [0x06, 0, 0, 0, 0, 0];
    fastrand::fill(&mut mac[1..]);
    MacAddress(mac)
}

/// A host's link, which leads nowhere.
pub fn link_on(host: MacAddress) -> TestLink {
    let (inner, other) = MemoryLink::pair(MTU, Faults::default(), 1);
    TestLink { inner, address: host, _other: Some(other) }
}

/// A process on a host.
pub fn on_host(host: MacAddress, number: u8, config: Config) -> Tested {
    let mut endpoint_config = endpoint_config(number);
    endpoint_config.connection = impatient();
    Messenger::new(Endpoint::open(link_on(host), endpoint_config, None).unwrap(), config)
}

/// Two processes on one host.
pub fn host(config: Config) -> [Tested; 2] {
    let host = new_host();
    [on_host(host, 0x20, config), on_host(host, 0x24, config)]
}

/// A pair over each carrier, with the carrier's name.
pub fn carriers(config: Config) -> [(&'static str, [Tested; 2]); 3] {
    [
        ("wire", wire(config, &ConnectionConfig::default(), Faults::default(), 1)),
        ("host, fetching", host(config)),
        ("host, pipe alone", host(Config { fetched_bytes: 0, ..config })),
    ]
}

/// Adds each as the other's peer.
pub fn add_peers(pair: &mut [Tested; 2]) -> [PeerId; 2] {
    let [a, b] = pair;
    let (address_a, address_b): (Address, Address) = (a.address(), b.address());
    [a.peer(address_b), b.peer(address_a)]
}

/// Makes progress with all until `done`.
#[track_caller]
pub fn drive(all: &mut [Tested], mut done: impl FnMut(&mut [Tested]) -> bool) {
    let began = Instant::now();
    while !done(all) {
        assert!(began.elapsed() < PATIENCE, "no progress");
        for messenger in &mut *all {
            messenger.progress().unwrap();
        }
    }
}

/// The next completion of messenger `index`.
#[track_caller]
pub fn completion(all: &mut [Tested], index: usize) -> Completion {
    let mut found = None;
    drive(all, |all| {
        found = all[index].poll();
        found.is_some()
    });
    found.unwrap()
}

/// Makes progress for long enough for anything to happen, however busy the machine is: many rounds, far enough apart
/// for the endpoint's periodic work.
pub fn idle(all: &mut [Tested]) {
    for _ in 0..20 {
        let began = Instant::now();
        drive(all, |_| began.elapsed() > Duration::from_millis(1));
    }
}

pub const fn tagged(tag: u64) -> Label {
    Label { tag: Some(tag), data: None }
}

pub const fn exactly(source: PeerId, tag: u64) -> Selector {
    Selector::Tagged(Pattern::exact(source, tag))
}

pub const fn any_tagged() -> Selector {
    Selector::Tagged(Pattern { source: None, tag: 0, ignore: u64::MAX })
}

/// Random bytes, different for each seed.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut generator = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    generator.fill(&mut bytes);
    bytes
}

/// Posts a send, retrying while resources are short.
pub fn send(all: &mut [Tested], from: usize, to: PeerId, label: Label, message: &[u8], options: SendOptions) {
    send_parts(all, from, to, label, &[Part::of(message)], options);
}

pub fn send_parts(all: &mut [Tested], from: usize, to: PeerId, label: Label, parts: &[Part], options: SendOptions) {
    drive(all, |all| {
        // SAFETY: the tests keep messages until they complete.
        match unsafe { all[from].send(to, label, parts, options) } {
            Ok(()) => true,
            Err(PostError::Full) => false,
            Err(error) => panic!("{error}"),
        }
    });
}

pub fn receive(messenger: &mut Tested, selector: Selector, into: &mut [u8], context: u64) {
    let options = ReceiveOptions { context, ..ReceiveOptions::default() };
    // SAFETY: the tests do not access the memory until the receive completes.
    unsafe { messenger.receive(selector, &[Part::into(into)], options) }.unwrap();
}
