// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs 2000 worlds of the whole stack; `barewire-sim --stack --seeds 0..100000` runs many.

use barewire_sim::stack::{Scenario, run};

/// Worlds per test.
const WORLDS: u64 = 1000;

fn no_property_is_violated_in(seeds: std::ops::Range<u64>) {
    println!("seeds {seeds:?}");
    for seed in seeds {
        if let Err(violation) = run(Scenario::from_seed(seed), seed) {
            panic!("{violation}; replay: barewire-sim --stack --seed {seed} --trace");
        }
    }
}

/// Proves the properties of messages, memory access and completions in worlds 0 to 1999, half of them in each test, so
/// that two processors share the work. `barewire-sim --stack --seed N --trace` replays a violation.
#[test]
fn no_property_is_violated_in_the_first_worlds() {
    no_property_is_violated_in(0..WORLDS);
}

/// As above.
#[test]
fn no_property_is_violated_in_the_next_worlds() {
    no_property_is_violated_in(WORLDS..2 * WORLDS);
}

/// Proves that a seed determines its world, to the last frame.
#[test]
fn a_seed_replays() {
    for seed in 0..50 {
        assert_eq!(run(Scenario::from_seed(seed), seed), run(Scenario::from_seed(seed), seed));
    }
}
