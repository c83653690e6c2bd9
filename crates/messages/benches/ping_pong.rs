// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A short tagged message there and back through shared memory, between two threads that ask again and again.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barewire_endpoint::{Address, Endpoint, Framing};
use barewire_link::{Counters, Incoming, Link, LinkError, MacAddress, Outgoing};
use barewire_llc::Lsap;
use barewire_messages::{
    Config, Label, Messenger, Part, Pattern, PeerId, Reaches, ReceiveOptions, SendOptions, Wanted,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

/// Only an address: all goes through shared memory.
struct NoLink(MacAddress);

impl Link for NoLink {
    fn address(&self) -> MacAddress {
        self.0
    }
    fn mtu(&self) -> usize {
        1500
    }
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        Ok(frames.len())
    }
    fn receive(&mut self) -> Option<Incoming<'_>> {
        None
    }
    fn wait_to_receive_or(&mut self, _: &[BorrowedFd<'_>], _: Duration) -> Result<bool, LinkError> {
        Ok(false)
    }
    fn wait_to_send(&mut self, _: Duration) -> Result<bool, LinkError> {
        Ok(true)
    }
    fn check(&mut self) -> Result<(), LinkError> {
        Ok(())
    }
    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(Counters::default())
    }
}

fn open(mac: [u8; 6], sap: u8) -> Messenger<NoLink> {
    let config = barewire_endpoint::Config::new(Lsap::new(sap).expect("an individual SAP"), Framing::default());
    Messenger::new(Endpoint::open(NoLink(MacAddress(mac)), config, None).expect("a door"), Config::default())
}

const TAG: Label = Label { tag: Some(7), data: None };

fn post(one: &mut Messenger<NoLink>, from: PeerId, memory: &mut [u8]) {
    let wanted = Wanted::Tagged(Pattern::exact(from, 7));
    // SAFETY: both sides leave the memory alone until the receive is completed.
    unsafe { one.receive(wanted, &[Part::into(memory)], ReceiveOptions::default()) }.expect("there is room");
}

fn send(one: &mut Messenger<NoLink>, to: PeerId, memory: &[u8]) {
    let options = SendOptions { is_silent: true, reaches: Reaches::Nowhere, ..SendOptions::default() };
    // SAFETY: the memory stays until the answer has come, before which the send is completed.
    while unsafe { one.send(to, TAG, &[Part::of(memory)], options) }.is_err() {
        one.progress().expect("there is no link to fail");
    }
}

fn ping_pong(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ping-pong");
    for bytes in [8, 4096, 65_536] {
        let mac: [u8; 6] = [2, 1, fastrand::u8(..), fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
        let addresses = [0x20, 0x24].map(|sap| Address { mac, sap: Lsap::new(sap).expect("an individual SAP") });
        let mut here = open(mac, 0x20);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut there, mut memory) = (open(mac, 0x24), vec![0; bytes]);
                let peer = there.peer(addresses[0]);
                loop {
                    post(&mut there, peer, &mut memory);
                    while there.poll().is_none() {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        there.progress().expect("there is no link to fail");
                    }
                    send(&mut there, peer, &memory);
                }
            });
            let peer = here.peer(addresses[1]);
            let (mut memory, message) = (vec![0; bytes], vec![1; bytes]);
            group.bench_function(BenchmarkId::new("both ways", bytes), |bencher| {
                bencher.iter(|| {
                    post(&mut here, peer, &mut memory);
                    send(&mut here, peer, &message);
                    while here.poll().is_none() {
                        here.progress().expect("there is no link to fail");
                    }
                });
            });
            is_over.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

criterion_group!(benches, ping_pong);
criterion_main!(benches);
