// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two messengers, on a wire with faults or on one host, driven by one thread.
#![allow(dead_code, reason = "each test program uses its part")]

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use barewire_endpoint::{Address, Endpoint, Framing};
use barewire_link::{Counters, Faults, Incoming, Link, LinkError, MacAddress, MemoryLink, Outgoing};
use barewire_llc::{ConnectionConfig, Lsap};
use barewire_messages::{
    Completion, Config, Label, Messenger, Part, Pattern, PeerId, PostError, Reaches, ReceiveOptions, SendOptions,
    Wanted,
};

pub const MTU: usize = 1500;
/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An end of a wire under an address of its own; what is sent to nobody is lost in the other end.
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

pub const REACHES: [Reaches; 3] = [Reaches::Nowhere, Reaches::Endpoint, Reaches::Receive];

pub const fn options(context: u64, reaches: Reaches) -> SendOptions {
    SendOptions { context, note: 0, reaches, is_silent: false }
}

/// A connection that gives up soon.
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

/// Two on a wire.
pub fn wire(config: Config, connection: &ConnectionConfig, faults: Faults, seed: u64) -> [Tested; 2] {
    let (a, b) = MemoryLink::pair(MTU, faults, seed);
    [a, b].map(|inner| {
        let link = TestLink { address: inner.address(), inner, _other: None };
        let mut under = endpoint_config(0x20);
        (under.local, under.connection) = (None, connection.clone());
        Messenger::new(Endpoint::open(link, under, None).unwrap(), config)
    })
}

/// A host of its own.
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

/// One process of a host.
pub fn on_host(host: MacAddress, number: u8, config: Config) -> Tested {
    let mut under = endpoint_config(number);
    under.connection = impatient();
    Messenger::new(Endpoint::open(link_on(host), under, None).unwrap(), config)
}

/// Two on one host.
pub fn host(config: Config) -> [Tested; 2] {
    let host = new_host();
    [on_host(host, 0x20, config), on_host(host, 0x24, config)]
}

/// A pair over each carrier, with what to call it.
pub fn carriers(config: Config) -> [(&'static str, [Tested; 2]); 3] {
    [
        ("wire", wire(config, &ConnectionConfig::default(), Faults::default(), 1)),
        ("host, fetching", host(config)),
        ("host, pipe alone", host(Config { fetched_bytes: 0, ..config })),
    ]
}

/// What each calls the other.
pub fn introduce(pair: &mut [Tested; 2]) -> [PeerId; 2] {
    let [a, b] = pair;
    let (of_a, of_b): (Address, Address) = (a.address(), b.address());
    [a.peer(of_b), b.peer(of_a)]
}

/// Drives all until `done`.
#[track_caller]
pub fn drive(all: &mut [Tested], mut done: impl FnMut(&mut [Tested]) -> bool) {
    let began = Instant::now();
    while !done(all) {
        assert!(began.elapsed() < PATIENCE, "nothing happens any more");
        for one in &mut *all {
            one.progress().unwrap();
        }
    }
}

/// The next completion of number `of`.
#[track_caller]
pub fn completion(all: &mut [Tested], of: usize) -> Completion {
    let mut found = None;
    drive(all, |all| {
        found = all[of].poll();
        found.is_some()
    });
    found.unwrap()
}

/// For a while that is long enough for anything to happen, however busy the machine is: in it there are many turns that are
/// apart enough for the endpoint to look round.
pub fn idle(all: &mut [Tested]) {
    for _ in 0..20 {
        let began = Instant::now();
        drive(all, |_| began.elapsed() > Duration::from_millis(1));
    }
}

pub const fn tagged(tag: u64) -> Label {
    Label { tag: Some(tag), data: None }
}

pub const fn exactly(source: PeerId, tag: u64) -> Wanted {
    Wanted::Tagged(Pattern::exact(source, tag))
}

pub const fn any_tagged() -> Wanted {
    Wanted::Tagged(Pattern { source: None, tag: 0, ignore: u64::MAX })
}

/// Bytes that differ at every place and from message to message.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut generator = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    generator.fill(&mut bytes);
    bytes
}

/// Posts a send, however often it takes.
pub fn send(all: &mut [Tested], from: usize, to: PeerId, label: Label, message: &[u8], options: SendOptions) {
    send_parts(all, from, to, label, &[Part::of(message)], options);
}

pub fn send_parts(all: &mut [Tested], from: usize, to: PeerId, label: Label, parts: &[Part], options: SendOptions) {
    drive(all, |all| {
        // SAFETY: the tests keep what they send until it is completed.
        match unsafe { all[from].send(to, label, parts, options) } {
            Ok(()) => true,
            Err(PostError::Full) => false,
            Err(error) => panic!("{error}"),
        }
    });
}

pub fn receive(one: &mut Tested, wanted: Wanted, into: &mut [u8], context: u64) {
    let options = ReceiveOptions { context, ..ReceiveOptions::default() };
    // SAFETY: the tests leave the memory alone until the receive is completed.
    unsafe { one.receive(wanted, &[Part::into(into)], options) }.unwrap();
}
