// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of idle local peers: time of a poll and of a round trip, and memory.

mod common;

use std::time::{Duration, Instant};

use barewire_messages::Messenger;
use common::{NoLink, open, post, send};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const IDLE: [usize; 4] = [1, 16, 64, 120];

/// A messenger and `count` others on its host, not yet connected.
fn unconnected(count: usize) -> (Messenger<NoLink>, Vec<Messenger<NoLink>>) {
    let mac = [2, 1, fastrand::u8(..), fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
    // Individual SAPs are even.
    (open(mac, 0x02), (0..count).map(|number| open(mac, 4 + 2 * number as u8)).collect())
}

/// A round trip of a message with each of the others.
fn exchange(here: &mut Messenger<NoLink>, others: &mut [Messenger<NoLink>], bytes: usize) {
    let (mut memory, message) = (vec![0; bytes], vec![1; bytes]);
    for other in others {
        let (to, back) = (here.peer(other.address()), other.peer(here.address()));
        post(other, back, &mut memory);
        send(here, to, &message);
        drive(here, other);
        post(here, to, &mut memory);
        send(other, back, &message);
        drive(other, here);
    }
}

/// Prints the additional memory of one end of a pair: both ends are in this process.
fn print_cost(count: usize, before: usize, when: &str) {
    println!("{count} local peers, {when}: {} KiB each", proportional_kib().saturating_sub(before) / count / 2);
}

/// Polls all messengers for long enough that idle pipes release their memory.
fn idle(here: &mut Messenger<NoLink>, others: &mut [Messenger<NoLink>]) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        here.progress().expect("no link that could fail");
        for other in &mut *others {
            other.progress().expect("no link that could fail");
        }
    }
}

/// Makes progress until `receiver` has a completion.
fn drive(sender: &mut Messenger<NoLink>, receiver: &mut Messenger<NoLink>) {
    while receiver.poll().is_none() {
        sender.progress().expect("no link that could fail");
        receiver.progress().expect("no link that could fail");
    }
}

/// Proportional set size of this process.
fn proportional_kib() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux provides it");
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).expect("a Pss line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn local_peers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("local peers");
    for count in IDLE {
        let (mut here, mut others) = unconnected(count);
        let before = proportional_kib();
        exchange(&mut here, &mut others, 8);
        print_cost(count, before, "after 8 B");
        exchange(&mut here, &mut others, 1 << 20);
        print_cost(count, before, "after 1 MiB");
        idle(&mut here, &mut others);
        print_cost(count, before, "after 1 MiB and an idle time");
        // After the memory measurement, since criterion allocates as well.
        group.bench_function(BenchmarkId::new("progress", count), |bencher| bencher.iter(|| here.progress()));
        let busy = &mut others[0];
        let (to, back, mut memory) = (here.peer(busy.address()), busy.peer(here.address()), [0; 8]);
        group.bench_function(BenchmarkId::new("round trip", count), |bencher| {
            bencher.iter(|| {
                post(busy, back, &mut memory);
                send(&mut here, to, &[1; 8]);
                while busy.poll().is_none() {
                    busy.progress().expect("no link that could fail");
                }
                post(&mut here, to, &mut memory);
                send(busy, back, &[1; 8]);
                while here.poll().is_none() {
                    here.progress().expect("no link that could fail");
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, local_peers);
criterion_main!(benches);
