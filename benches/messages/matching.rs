// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Matching a receive and its message, in either order, alone and among others of the same kind.

use std::hint::black_box;

use barewire_messages::{Matcher, Pattern, PeerId};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const OTHERS: [u64; 3] = [0, 1000, 10_000];
/// Tag bits that MPI libraries use for their protocol, and that receives ignore.
const PROTOCOL: u64 = 0xff << 56;

fn matching(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matching");
    group.sample_size(20).measurement_time(std::time::Duration::from_secs(1));
    group.warm_up_time(std::time::Duration::from_millis(300));
    let (source, tag) = (PeerId::from_number(3), 1 << 40);
    for others in OTHERS {
        let patterns = [
            ("exact", Pattern::exact(source, tag)),
            ("any source", Pattern { source: None, tag, ignore: 0 }),
            ("masked", Pattern { source: Some(source), tag, ignore: PROTOCOL }),
            ("masked, any source", Pattern { source: None, tag, ignore: PROTOCOL }),
        ];
        for (name, pattern) in patterns {
            let mut matcher = Matcher::<u64, u64>::new();
            for other in 0..others {
                matcher.post(Pattern { tag: other, ..pattern }, other);
            }
            group.bench_function(BenchmarkId::new(format!("posted then arrives/{name}"), others), |bencher| {
                bencher.iter(|| {
                    matcher.post(black_box(pattern), 7);
                    let (ticket, _) = matcher.receive_for(black_box(source), black_box(tag)).expect("it was posted");
                    matcher.remove_receive(ticket)
                });
            });
            let mut matcher = Matcher::<u64, u64>::new();
            for other in 0..others {
                matcher.add_unexpected(source, other, other);
            }
            group.bench_function(BenchmarkId::new(format!("arrives then posted/{name}"), others), |bencher| {
                bencher.iter(|| {
                    assert!(matcher.receive_for(black_box(source), black_box(tag)).is_none());
                    matcher.add_unexpected(source, tag, 7);
                    let (ticket, _) = matcher.message_for(black_box(pattern)).expect("it is held");
                    matcher.remove_message(ticket)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, matching);
criterion_main!(benches);
