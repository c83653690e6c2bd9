// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipe between two threads, each on its own core: ping-pong, stream, opening.

#![allow(missing_docs)] // criterion's macros

use std::hint::{black_box, spin_loop};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use barewire_shm::{Listener, Pipe, PipeConfig, connect};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

const STREAM_BYTES: [usize; 3] = [64, 4 << 10, 64 << 10];

/// Half of a round trip.
fn pingpong(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pingpong, one way");
    for bytes in [0, 8, 48, 64, 1024, 4096] {
        let message = vec![7; bytes];
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter_custom(|times| {
                with_peer(
                    PipeConfig::default(),
                    |pipe| {
                        let began = Instant::now();
                        for _ in 0..times {
                            assert!(pipe.send([&message]));
                            receive(pipe, |message| _ = black_box(message));
                        }
                        began.elapsed() / 2
                    },
                    |pipe| {
                        for _ in 0..times {
                            receive(pipe, |message| _ = black_box(message));
                            assert!(pipe.send([&message]));
                        }
                    },
                )
            });
        });
    }
    group.finish();
}

/// The receiver copies each message to its destination, as programs do; longer messages are split.
fn stream(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stream");
    for ring_bytes in ring_sizes() {
        for bytes in STREAM_BYTES {
            let message = vec![7; bytes];
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(BenchmarkId::new(format!("ring of {} KiB", ring_bytes >> 10), bytes), |bencher| {
                bencher.iter_custom(|times| {
                    with_peer(
                        PipeConfig { ring_bytes },
                        |pipe| {
                            let began = Instant::now();
                            for _ in 0..times {
                                for piece in message.chunks(pipe.message_max()) {
                                    while !pipe.send([piece]) {
                                        spin_loop();
                                    }
                                }
                            }
                            receive(pipe, |_| ());
                            began.elapsed()
                        },
                        |pipe| {
                            let mut into = vec![0; bytes];
                            for _ in 0..times {
                                let mut at = 0;
                                while at < bytes {
                                    at += receive(pipe, |piece| {
                                        into[at..at + piece.len()].copy_from_slice(piece);
                                        piece.len()
                                    });
                                }
                                black_box(&mut into);
                            }
                            assert!(pipe.send([b"all"]));
                        },
                    )
                });
            });
        }
    }
    group.finish();
}

/// Opening a pipe: memory, socket and both ends, in one thread.
fn opening(criterion: &mut Criterion) {
    let name = format!("barewire-shm bench of opening {}", std::process::id());
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    criterion.bench_function("connect, accept, close", |bencher| {
        bencher.iter(|| {
            let far = connect(name.as_bytes(), &[], &PipeConfig::default()).unwrap().unwrap();
            (far, listener.accept().unwrap().unwrap())
        });
    });
}

/// `SHM_RINGS=16,128` measures rings of 16 and 128 KiB.
fn ring_sizes() -> Vec<usize> {
    let sizes = std::env::var("SHM_RINGS").unwrap_or_default();
    let sizes: Vec<usize> = sizes.split(',').filter_map(|kib| kib.parse::<usize>().ok()).map(|kib| kib << 10).collect();
    if sizes.is_empty() { vec![PipeConfig::default().ring_bytes] } else { sizes }
}

/// Spins until a message is received.
fn receive<T>(pipe: &mut Pipe, with: impl FnOnce(&[u8]) -> T) -> T {
    loop {
        if let Some(message) = pipe.receive() {
            return with(message);
        }
        spin_loop();
    }
}

/// Runs both ends, each on its own core; returns the first one's result.
fn with_peer(
    config: PipeConfig,
    own: impl FnOnce(&mut Pipe) -> Duration,
    other: impl FnOnce(&mut Pipe) + Send,
) -> Duration {
    let name = format!("barewire-shm bench {}", std::process::id());
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let mut far = connect(name.as_bytes(), &[], &config).unwrap().unwrap();
    let mut near = listener.accept().unwrap().unwrap();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let start = &start;
        scope.spawn(move || {
            pin(1);
            start.wait();
            other(&mut far);
        });
        pin(0);
        // Blocks instead of spinning: the other thread may have to leave this core first.
        start.wait();
        own(&mut near)
    })
}

/// Pins the calling thread to the allowed core of this index, if there are so many.
fn pin(index: usize) {
    static ALLOWED: OnceLock<CpuSet> = std::sync::OnceLock::new();
    let allowed = ALLOWED.get_or_init(|| sched_getaffinity(Pid::from_raw(0)).unwrap());
    let Some(cpu) = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).nth(index) else { return };
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

criterion_group!(benches, pingpong, stream, opening);
criterion_main!(benches);
