// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs 300 worlds; `barewire-sim --seeds 0..100000` runs many.

use barewire_sim::{Scenario, run};

/// Proves the properties in worlds 0 to 299. `barewire-sim --seed N --trace` replays a violation.
#[test]
fn no_property_is_violated() {
    let seeds = 0..300;
    println!("seeds {seeds:?}");
    for seed in seeds {
        if let Err(violation) = run(Scenario::from_seed(seed), seed) {
            panic!("{violation}; replay: barewire-sim --seed {seed} --trace");
        }
    }
}

/// Proves that a seed determines its world.
#[test]
fn a_seed_replays() {
    for seed in 0..20 {
        assert_eq!(run(Scenario::from_seed(seed), seed), run(Scenario::from_seed(seed), seed));
    }
}
