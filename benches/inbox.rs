// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A message through the inbox: inline in its descriptor, or in a buffer of the free queue.

use std::hint::black_box;

use barewire_endpoint::{ChannelId, INLINE_BYTES, Inbox, InboxConfig, Piece, Sink};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn inbox(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("inbox");
    for bytes in [8, 64, 128, INLINE_BYTES] {
        for (path, inline_bytes) in [("inline", INLINE_BYTES), ("segment", 0)] {
            let mut inbox = Inbox::new(&InboxConfig { inline_bytes, buffer_bytes: 2048, ..InboxConfig::default() });
            let message = vec![7; bytes];
            group.throughput(Throughput::Elements(1));
            group.bench_function(BenchmarkId::new(path, bytes), |bencher| {
                bencher.iter(|| {
                    let piece = Piece { total: bytes as u32, offset: 0, bytes: black_box(&message) };
                    assert!(inbox.piece(ChannelId::default(), piece));
                    let received = inbox.receive().expect("a message is received");
                    black_box(received.bytes().iter().step_by(64).fold(0, |sum, byte| sum ^ byte));
                    inbox.done(received);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, inbox);
criterion_main!(benches);
