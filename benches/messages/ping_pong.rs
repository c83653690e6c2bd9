// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Round trip of a tagged message through shared memory, between two polling threads.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use barewire_endpoint::Address;
use barewire_llc::Lsap;
use common::{open, post, send};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn ping_pong(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ping-pong");
    for bytes in [8, 4096, 65_536] {
        let mac: [u8; 6] = [2, 1, fastrand::u8(..), fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
        let addresses = [0x20, 0x24].map(|sap| Address::new(mac, Lsap::new(sap).expect("an individual SAP")));
        let mut here = open(mac, 0x20);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut there, mut memory) = (open(mac, 0x24), vec![0; bytes]);
                let peer = there.peer(addresses[0]);
                loop {
                    post(&mut there, peer, &mut memory);
                    while there.poll().is_none() {
                        if is_done.load(Ordering::Relaxed) {
                            return;
                        }
                        there.progress().expect("no link that could fail");
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
                        here.progress().expect("no link that could fail");
                    }
                });
            });
            is_done.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

criterion_group!(benches, ping_pong);
criterion_main!(benches);
