// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Some thousand worlds of the whole stack; `barewire-sim --stack --seeds 0..100000` runs many.

use barewire_sim::stack::{Scenario, run};

/// Worlds of each test below.
const WORLDS: u64 = 1000;

fn no_promise_is_broken_in(seeds: std::ops::Range<u64>) {
    println!("seeds {seeds:?}");
    for seed in seeds {
        if let Err(broken) = run(Scenario::from_seed(seed), seed) {
            panic!("{broken}; again: barewire-sim --stack --seed {seed} --trace");
        }
    }
}

/// Proves the promises of messages, memory access and completions in worlds 0 to 1999, half of them in each test, so that
/// two processors have something to do. A broken one is replayed with `barewire-sim --stack --seed N --trace`.
#[test]
fn no_promise_is_broken_in_the_first_worlds() {
    no_promise_is_broken_in(0..WORLDS);
}

/// See above.
#[test]
fn no_promise_is_broken_in_the_next_worlds() {
    no_promise_is_broken_in(WORLDS..2 * WORLDS);
}

/// Proves that a seed is one world: the same twice, to the last frame.
#[test]
fn a_seed_replays() {
    for seed in 0..50 {
        assert_eq!(run(Scenario::from_seed(seed), seed), run(Scenario::from_seed(seed), seed));
    }
}
