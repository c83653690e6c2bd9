// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs 2000 worlds of the whole stack, and 1000 with libfabric; `barewire-sim --stack --seeds 0..100000` runs many.

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

/// Worlds in which a rank was given up while it computed: its progress thread had not looked at the timers.
const UNANSWERED: [u64; 2] = [6523, 7041];

/// Proves the same of programs that use libfabric's functions, with the provider's progress thread.
/// `barewire-sim --stack --libfabric --seed N --trace` replays a violation.
#[test]
fn no_property_is_violated_with_libfabric() {
    for seed in (0..WORLDS).chain(UNANSWERED) {
        if let Err(violation) = run(Scenario::from_seed(seed).with_libfabric(), seed) {
            panic!("{violation}; replay: barewire-sim --stack --libfabric --seed {seed} --trace");
        }
    }
}

/// Proves that a seed determines its world, to the last frame.
#[test]
fn a_seed_replays() {
    for seed in 0..50 {
        assert_eq!(run(Scenario::from_seed(seed), seed), run(Scenario::from_seed(seed), seed));
        let scenario = Scenario::from_seed(seed).with_libfabric();
        assert_eq!(run(scenario.clone(), seed), run(scenario, seed));
    }
}
