// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs 200 worlds of the whole stack, 100 with libfabric, 100 with several carriers and 75 with labels, and those in
//! which something was broken once; `make sim` runs many.

use barewire_sim::stack::{Scenario, run};

/// Worlds per test.
const WORLDS: u64 = 100;

fn no_property_is_violated_in(seeds: std::ops::Range<u64>) {
    println!("seeds {seeds:?}");
    for seed in seeds {
        if let Err(violation) = run(Scenario::from_seed(seed), seed) {
            panic!("{violation}; replay: barewire-sim --stack --seed {seed} --trace");
        }
    }
}

/// Proves the properties of messages, memory access and completions in worlds 0 to 199, half of them in each test, so
/// that two processors share the work. `barewire-sim --stack --seed N --trace` replays a violation.
#[test]
fn no_property_is_violated_in_the_first_worlds() {
    no_property_is_violated_in(0..WORLDS);
}

/// As above, and worlds in which messages to a removed peer waited forever, since its successor at the address had a
/// channel, and one in which a rank's claimed message left too little room for what a dead peer had sent.
#[test]
fn no_property_is_violated_in_the_next_worlds() {
    no_property_is_violated_in(WORLDS..2 * WORLDS);
    no_property_is_violated_in(3800..3801);
    no_property_is_violated_in(14_047..14_048);
    no_property_is_violated_in(703_652..703_653);
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

/// Worlds with several carriers, of which some broke once.
const CARRIERS: u64 = 50;
/// A station with a larger MTU than its peer's; a lost answer to a question; a peer's other interface; a datagram from
/// another address than the station's name; frames from an interface that are no answer to what another one was sent;
/// both known paths dead, and a third one alive; successors that were not answered (2), and one that was asked with its
/// predecessor's key only; a window of one frame on a long routed network, for which the world was too short; a
/// peer that asked too rarely for the path by which to accept a connection.
const BROKEN_CARRIERS: [u64; 12] = [5, 123, 36, 456, 541, 3428, 5092, 711, 2053, 846_167, 7_004_253, 863_461];

/// Proves the same, and that a job goes on while a path works, on networks on which stations have several interfaces
/// and sockets. `barewire-sim --stack --carriers --seed N --trace` replays a violation.
#[test]
fn no_property_is_violated_with_several_carriers() {
    for seed in (0..CARRIERS).chain(BROKEN_CARRIERS) {
        if let Err(violation) = run(Scenario::from_seed(seed).with_carriers(seed), seed) {
            panic!("{violation}; replay: barewire-sim --stack --carriers --seed {seed} --trace");
        }
    }
}

/// A path lost batches, and polls were rare; the answers to a station's first questions were lost.
const BROKEN_CARRIERS_WITH_LIBFABRIC: [u64; 2] = [854_387, 855_532];

/// As above, with programs that use libfabric's functions. In world 22 a process's connection request crossed that of
/// the successor of its peer, which then received the predecessor's messages.
#[test]
fn no_property_is_violated_with_several_carriers_and_libfabric() {
    for seed in (0..CARRIERS).chain(BROKEN_CARRIERS_WITH_LIBFABRIC) {
        if let Err(violation) = run(Scenario::from_seed(seed).with_carriers(seed).with_libfabric(), seed) {
            panic!("{violation}; replay: barewire-sim --stack --libfabric --carriers --seed {seed} --trace");
        }
    }
}

/// Worlds with labels.
const LABELS: u64 = 75;
/// A retransmission is lost; the peer's repeated REJs kept T1, which would have noticed, from expiring. A claimed message
/// left too little room for the message in front of what a rank waited for.
const BROKEN_LABELS: [u64; 2] = [821_105, 703_652];

/// Proves the same on networks where the labels of frames choose among paths of unequal delay, some of which die for a
/// while. `barewire-sim --stack --labels --seed N --trace` replays a violation.
#[test]
fn no_property_is_violated_with_labels() {
    for seed in (0..LABELS).chain(BROKEN_LABELS) {
        if let Err(violation) = run(Scenario::from_seed(seed).with_labels(seed), seed) {
            panic!("{violation}; replay: barewire-sim --stack --labels --seed {seed} --trace");
        }
    }
}

/// Proves that a seed determines its world, to the last frame.
#[test]
fn a_seed_replays() {
    for seed in 0..10 {
        assert_eq!(run(Scenario::from_seed(seed), seed), run(Scenario::from_seed(seed), seed));
        let scenario = Scenario::from_seed(seed).with_carriers(seed);
        assert_eq!(run(scenario.clone(), seed), run(scenario, seed));
        let scenario = Scenario::from_seed(seed).with_libfabric();
        assert_eq!(run(scenario.clone(), seed), run(scenario, seed));
    }
}
