// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A few hundred worlds; `barewire-sim --seeds 0..100000` runs many.

use barewire_sim::{Scenario, run};

/// Proves the promises in worlds 0 to 299. A broken one is replayed with `barewire-sim --seed N --trace`.
#[test]
fn no_promise_is_broken() {
    let seeds = 0..300;
    println!("seeds {seeds:?}");
    for seed in seeds {
        if let Err(violation) = run(Scenario::from_seed(seed), seed) {
            panic!("{violation}; again: barewire-sim --seed {seed} --trace");
        }
    }
}

/// Proves that a seed is one world: the same twice.
#[test]
fn a_seed_replays() {
    for seed in 0..20 {
        assert_eq!(run(Scenario::from_seed(seed), seed), run(Scenario::from_seed(seed), seed));
    }
}
