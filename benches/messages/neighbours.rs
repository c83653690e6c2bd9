// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What neighbours cost that say nothing: time of a look for messages, of a message there and back, and memory.

mod common;

use std::time::{Duration, Instant};

use barewire_messages::Messenger;
use common::{NoLink, open, post, send};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const IDLE: [usize; 4] = [1, 16, 64, 120];

/// One and so many others of its host, who do not know each other yet.
fn strangers(count: usize) -> (Messenger<NoLink>, Vec<Messenger<NoLink>>) {
    let mac = [2, 1, fastrand::u8(..), fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
    // Individual tags are even.
    (open(mac, 0x02), (0..count).map(|number| open(mac, 4 + 2 * number as u8)).collect())
}

/// Messages of so many bytes, there and back, with each of the others.
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

/// What one end of a pair costs more than before: both are this process's.
fn print_cost(count: usize, before: usize, when: &str) {
    println!("{count} neighbours, {when}: {} KiB for each", proportional_kib().saturating_sub(before) / count / 2);
}

/// Looks of everybody's for long enough that quiet pipes rest.
fn rest(here: &mut Messenger<NoLink>, others: &mut [Messenger<NoLink>]) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        here.progress().expect("there is no link to fail");
        for other in &mut *others {
            other.progress().expect("there is no link to fail");
        }
    }
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
        let (mut here, mut others) = strangers(count);
        let before = proportional_kib();
        exchange(&mut here, &mut others, 8);
        print_cost(count, before, "after 8 B");
        exchange(&mut here, &mut others, 1 << 20);
        print_cost(count, before, "after 1 MiB");
        rest(&mut here, &mut others);
        print_cost(count, before, "after 1 MiB and a rest");
        // After the memory, of which criterion takes some as well.
        group.bench_function(BenchmarkId::new("progress", count), |bencher| bencher.iter(|| here.progress()));
        let busy = &mut others[0];
        let (to, back, mut memory) = (here.peer(busy.address()), busy.peer(here.address()), [0; 8]);
        group.bench_function(BenchmarkId::new("there and back", count), |bencher| {
            bencher.iter(|| {
                post(busy, back, &mut memory);
                send(&mut here, to, &[1; 8]);
                while busy.poll().is_none() {
                    busy.progress().expect("there is no link to fail");
                }
                post(&mut here, to, &mut memory);
                send(busy, back, &[1; 8]);
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
