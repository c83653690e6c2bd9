// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sender that chooses labels uses all paths, and leaves slow and dead ones.

use barewire_llc::ConnectionConfig;
use barewire_sim::spray::{Outcome, Path, Paths, Traffic, config, run, run_seeded};

const MS: u64 = 1_000_000;
const US: u64 = 1000;

fn stream(paths: &Paths) -> Outcome {
    run(paths, &config(paths), Traffic::Stream)
}

/// Share of one label's frames among all of the last half of a run.
fn late_share(outcome: &Outcome, label: usize) -> f64 {
    outcome.sent_late[label] as f64 / outcome.sent_late.iter().sum::<u64>() as f64
}

/// Proves that four paths of a third of the rate each carry the hosts' whole rate, all alike.
#[test]
fn paths_slower_than_the_hosts_carry_their_whole_rate_together() {
    for mut paths in [Paths::equal(), Paths::slow()] {
        for path in &mut paths.paths {
            path.rate_bit_s = paths.rate_bit_s / 3;
        }
        let outcome = stream(&paths);
        assert!(outcome.share(&paths) > 0.95, "{:.3} {outcome:?}", outcome.share(&paths));
        assert!((0..4).all(|label| (0.2..0.3).contains(&late_share(&outcome, label))), "{outcome:?}");
        let unlabelled = run(&paths, &ConnectionConfig { labels: 0, ..config(&paths) }, Traffic::Stream);
        assert!(unlabelled.share(&paths) < 0.34, "one path does not: {:.3}", unlabelled.share(&paths));
    }
}

/// Proves that unequal delays cost nothing, although PDUs arrive out of order.
#[test]
fn unequal_delays_are_not_taken_for_loss() {
    for delays_us in [[0, 2, 4, 6], [0, 10, 20, 40], [0, 20, 50, 100]] {
        let mut paths = Paths::equal();
        for (path, delay_us) in paths.paths.iter_mut().zip(delays_us) {
            path.delay_ns += delay_us * US;
        }
        let outcome = stream(&paths);
        assert!(outcome.share(&paths) > 0.95, "{delays_us:?}: {:.3} {outcome:?}", outcome.share(&paths));
        assert!(outcome.repeated * 200 < outcome.delivered, "{delays_us:?}: {outcome:?}");
    }
}

/// Proves that a path that other traffic leaves a tenth of the rate gets few frames, and the others carry the rest.
#[test]
fn a_congested_path_is_left_to_others() {
    for mut paths in [Paths::equal(), Paths::slow()] {
        paths.paths[2].rate_bit_s /= 10;
        let outcome = stream(&paths);
        assert!(outcome.share(&paths) > 0.9, "{:.3} {outcome:?}", outcome.share(&paths));
        assert!((0.005..0.11).contains(&late_share(&outcome, 2)), "{outcome:?}");
    }
}

/// A stream while a path is dead from the middle of the first half to the end.
fn with_dead_path(mut paths: Paths) -> Paths {
    paths.paths[1].dead = [(paths.duration_ns / 4, u64::MAX); 2];
    paths
}

/// Proves that a path that dies is left within five milliseconds at 1 Gb/s, and at 10 Mb/s within some transmission
/// times of the window of 63 frames that waits at the sender; that nothing is lost, and that it is tried rarely.
#[test]
fn a_dead_path_is_left_within_milliseconds() {
    for (paths, silence_ms) in [(Paths::equal(), 5), (Paths::slow(), 400)] {
        let paths = with_dead_path(paths);
        let outcome = stream(&paths);
        assert!(outcome.silence_ns < silence_ms * MS, "{} us {outcome:?}", outcome.silence_ns / US);
        assert!(outcome.share(&paths) > 0.9, "{:.3} {outcome:?}", outcome.share(&paths));
        assert!(late_share(&outcome, 1) < 0.01, "{outcome:?}");
    }
}

/// Proves that a repaired path is used again.
#[test]
fn a_repaired_path_is_used_again() {
    let mut paths = Paths::equal();
    paths.duration_ns = 3000 * MS;
    paths.paths[1].dead = [(50 * MS, 300 * MS); 2];
    let outcome = stream(&paths);
    assert!((0.2..0.3).contains(&late_share(&outcome, 1)), "{outcome:?}");
}

/// Proves that short messages and their answers leave a dead path, whichever label they used.
#[test]
fn short_messages_leave_a_dead_path() {
    for dead in 0..4 {
        let mut paths = Paths::equal();
        paths.paths[dead].dead = [(50 * MS, u64::MAX); 2];
        let outcome = run(&paths, &config(&paths), Traffic::PingPong(1));
        assert!(outcome.silence_ns < 5 * MS, "{dead}: {} us {outcome:?}", outcome.silence_ns / US);
        assert!(outcome.sent_late[dead] * 100 < outcome.sent_late.iter().sum(), "{dead}: {outcome:?}");
        let quick = outcome.delivered > 4000;
        assert!(quick, "{dead}: {outcome:?}");
    }
}

/// Proves that half of the paths may die at once.
#[test]
fn half_of_eight_paths_may_die() {
    let mut paths = Paths::equal();
    let path: Path = paths.paths[0];
    paths.paths = vec![path; 8];
    for dead in [0, 3, 4, 6] {
        paths.paths[dead].dead = [(50 * MS, u64::MAX); 2];
    }
    let outcome = stream(&paths);
    assert!(outcome.silence_ns < 10 * MS, "{} us {outcome:?}", outcome.silence_ns / US);
    assert!(outcome.share(&paths) > 0.9, "{:.3} {outcome:?}", outcome.share(&paths));
}

/// Proves that messages that answer each other, of one frame and of many, go on soon after half of the paths died,
/// whichever in either direction, and whichever labels the stations choose at random.
#[test]
fn exchanges_leave_half_of_the_paths() {
    const HALVES: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
    for (frames, delay_ns, most_ms) in [(1, 10 * US, 3), (1, 300 * US, 12), (8, 10 * US, 3), (35, 10 * US, 8)] {
        for case in 0..36 * 3 {
            let (seed, directions) = (case as u64 / 36, [HALVES[case / 6 % 6], HALVES[case % 6]]);
            let mut paths = Paths::equal();
            let from_ns = 20 * MS + 137 * US * seed;
            paths.duration_ns = 150 * MS;
            paths.paths.iter_mut().for_each(|path| path.delay_ns = delay_ns);
            for (direction, dead) in directions.into_iter().enumerate() {
                dead.into_iter().for_each(|path| paths.paths[path].dead[direction] = (from_ns, u64::MAX));
            }
            let outcome = run_seeded(&paths, &config(&paths), Traffic::PingPong(frames), [2 * seed, 2 * seed + 1]);
            let what = || format!("{frames} frames, {directions:?}, seed {seed}: {outcome:?}");
            assert!(outcome.silence_ns < most_ms * MS, "{}", what());
        }
    }
}

/// Proves that the test of dead paths fails if labels are not left.
#[cfg(feature = "mutants")]
#[test]
fn a_sender_that_keeps_its_labels_is_caught() {
    let paths = with_dead_path(Paths::equal());
    let mutant = ConnectionConfig { mutant: Some(barewire_llc::Mutant::LabelsKept), ..config(&paths) };
    let outcome = run(&paths, &mutant, Traffic::Stream);
    assert!(late_share(&outcome, 1) > 0.1 || outcome.share(&paths) < 0.9, "{outcome:?}");
}
