// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random rings over a fat-tree whose frames are sprayed get almost what a non-blocking network gives.

use std::time::Duration;

use barewire_llc::ConnectionConfig;
use barewire_sim::fat_tree::{LABELS, Outcome, Ring};

fn run(ring: Ring, labels: u8) -> Outcome {
    let patience = Duration::from_secs(15);
    ring.run(&ConnectionConfig { is_extended: true, labels, patience, ..ConnectionConfig::default() })
}

/// Proves that a sprayed ring takes at most `1 / share` of its time on a non-blocking network, that one path for each
/// pair of hosts takes twice as long, and that almost nothing is sent twice: all links are full, so queues differ, but
/// nothing is lost.
fn assert_share(rate_bit_s: u64, frames: u64, seeds: u64, share: f64) {
    for seed in 0..seeds {
        let ring = Ring { rate_bit_s, frames, is_wide: false, seed };
        let wide = run(Ring { is_wide: true, ..ring }, 0);
        let (sprayed, flows) = (run(ring, LABELS), run(ring, 0));
        let of_wide = |outcome: &Outcome| wide.long_ns as f64 / outcome.long_ns as f64;
        let what = format!("{ring:?}: {:.3} {sprayed:?}, flows {:.3}", of_wide(&sprayed), of_wide(&flows));
        assert!(of_wide(&sprayed) > share && of_wide(&flows) < 0.55, "{what}");
        assert!(sprayed.repeated * 100 < ring.frames_sent() && sprayed.dropped == 0, "{what}");
    }
}

#[test]
fn long_messages_are_limited_by_the_hosts_links() {
    assert_share(100_000_000, 1000, 1, 0.9);
}

/// Messages of a few windows: the last frames to arrive, after four more hops and queues, delay the next exchange.
#[test]
fn messages_of_some_windows_take_little_longer() {
    assert_share(2_500_000, 200, 2, 0.8);
    assert_share(1_000_000_000, 200, 2, 0.78);
}
