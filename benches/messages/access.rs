// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write, read and atomic access to a local peer's memory, one at a time, between two polling threads.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use barewire_endpoint::Address;
use barewire_llc::Lsap;
use barewire_messages::{
    Access, AtomicOperation, AtomicParts, AtomicType, Messenger, Part, PeerId, PostError, RemoteAddress, SendOptions,
};
use common::{NoLink, open};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const AT: RemoteAddress = RemoteAddress { key: 1, offset: 0 };

fn complete(here: &mut Messenger<NoLink>, mut post: impl FnMut(&mut Messenger<NoLink>) -> Result<(), PostError>) {
    while post(here).is_err() {
        here.progress().expect("no link that could fail");
    }
    while here.poll().is_none() {
        here.progress().expect("no link that could fail");
    }
}

fn access(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("access");
    for bytes in [8, 4096, 65_536, 1 << 20] {
        let mac: [u8; 6] = [2, 1, fastrand::u8(..), fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
        let address = Address::new(mac, Lsap::new(0x24).expect("an individual SAP"));
        let mut here = open(mac, 0x20);
        let (is_open, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut there, mut memory) = (open(mac, 0x24), vec![0; bytes]);
                // SAFETY: the memory is not accessed until the messenger is dropped, and outlives it.
                unsafe { there.register(&[Part::into(&mut memory)], Access::ALL, Some(1)) }.expect("the key is free");
                is_open.store(true, Ordering::Release);
                while !is_done.load(Ordering::Relaxed) {
                    there.progress().expect("no link that could fail");
                }
                drop(there);
            });
            while !is_open.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let to: PeerId = here.peer(address);
            let mut memory = vec![1; bytes];
            let parts = [Part::into(&mut memory)];
            let options = SendOptions::default();
            group.bench_function(BenchmarkId::new("write", bytes), |bencher| {
                // SAFETY: the memory outlives the access, here and below.
                bencher.iter(|| complete(&mut here, |here| unsafe { here.write(to, AT, &parts, None, options) }));
            });
            group.bench_function(BenchmarkId::new("read", bytes), |bencher| {
                // SAFETY: as above.
                bencher.iter(|| complete(&mut here, |here| unsafe { here.read(to, AT, &parts, options) }));
            });
            if bytes == 8 {
                let (operand, mut result) = (1_u64.to_ne_bytes(), [0; 8]);
                let (operand, result) = ([Part::of(&operand)], [Part::into(&mut result)]);
                let parts = AtomicParts { operand: &operand, compare: &[], result: &result };
                group.bench_function("fetch and add", |bencher| {
                    bencher.iter(|| {
                        complete(&mut here, |here| {
                            // SAFETY: as above.
                            unsafe { here.atomic(to, AT, AtomicOperation::Sum, AtomicType::U64, parts, options) }
                        });
                    });
                });
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

criterion_group!(benches, access);
criterion_main!(benches);
