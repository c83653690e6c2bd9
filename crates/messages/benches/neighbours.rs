// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What neighbours cost that say nothing: time of a look for messages, of a message there and back, and memory.

mod common;

use barewire_messages::{Messenger, PeerId};
use common::{NoLink, open, post, send};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const IDLE: [usize; 4] = [1, 16, 64, 120];

/// One that has exchanged a message with each of the others.
fn acquainted(count: usize) -> (Messenger<NoLink>, Vec<(Messenger<NoLink>, PeerId)>) {
    let mac = [2, 1, fastrand::u8(..), fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
    let (mut here, mut others) = (open(mac, 0x02), Vec::new());
    for number in 0..count {
        // Individual tags are even.
        let mut other = open(mac, 4 + 2 * number as u8);
        exchange(&mut here, &mut other);
        let back = other.peer(here.address());
        others.push((other, back));
    }
    (here, others)
}

fn exchange(here: &mut Messenger<NoLink>, other: &mut Messenger<NoLink>) {
    let (to, back) = (here.peer(other.address()), other.peer(here.address()));
    let mut memory = [0; 8];
    post(other, back, &mut memory);
    send(here, to, &[1; 8]);
    drive(here, other);
    post(here, to, &mut memory);
    send(other, back, &[1; 8]);
    drive(other, here);
}

/// Until the second has a completion.
fn drive(one: &mut Messenger<NoLink>, other: &mut Messenger<NoLink>) {
    while other.poll().is_none() {
        one.progress().expect("there is no link to fail");
        other.progress().expect("there is no link to fail");
    }
}

/// This process's share of the memory that it has.
fn proportional_kib() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux tells");
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).expect("there is such a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn neighbours(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("neighbours");
    for count in IDLE {
        let before = proportional_kib();
        let (mut here, mut others) = acquainted(count);
        // Both ends of each pair, each with an endpoint of its own, are this process's.
        println!("{count} neighbours: {} KiB for each pair", (proportional_kib() - before) / count);
        group.bench_function(BenchmarkId::new("progress", count), |bencher| bencher.iter(|| here.progress()));
        let (busy, back) = &mut others[0];
        let (to, mut memory) = (here.peer(busy.address()), [0; 8]);
        group.bench_function(BenchmarkId::new("there and back", count), |bencher| {
            bencher.iter(|| {
                post(busy, *back, &mut memory);
                send(&mut here, to, &[1; 8]);
                while busy.poll().is_none() {
                    busy.progress().expect("there is no link to fail");
                }
                post(&mut here, to, &mut memory);
                send(busy, *back, &[1; 8]);
                while here.poll().is_none() {
                    here.progress().expect("there is no link to fail");
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, neighbours);
criterion_main!(benches);
