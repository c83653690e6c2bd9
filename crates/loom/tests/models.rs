// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every model, as the code is and with mistakes that it must catch.

use barewire_loom::Mutant::{self, *};
use barewire_loom::models;

#[track_caller]
fn caught(model: fn(Option<Mutant>), mutants: &[Mutant]) {
    for mutant in mutants {
        let outcome = std::panic::catch_unwind(|| model(Some(*mutant)));
        assert!(outcome.is_err(), "{mutant:?} is not caught");
    }
}

#[test]
fn a_ring_hands_over_whole_messages_in_order_and_nobody_writes_to_what_is_lent() {
    models::ring(None);
}

#[test]
fn a_ring_that_publishes_or_acquires_too_little_is_caught() {
    let names = ["word", "acknowledged"];
    caught(models::ring, &names.map(RelaxedStores));
    caught(models::ring, &names.map(RelaxedLoads));
}

#[test]
fn no_wake_up_is_lost_in_a_pipe() {
    models::pipe(None);
    models::pipe_both_ways(None);
}

#[test]
fn a_pipe_without_fences_or_wake_ups_is_caught() {
    caught(models::pipe, &[NoFence, NoWake]);
}

#[test]
fn a_serial_program_and_the_keeper_are_never_in_at_once() {
    models::serial_lock(None);
}

#[test]
fn a_lock_without_either_fence_or_with_weak_flags_is_caught() {
    caught(models::serial_lock, &[NoLightFence, NoHeavyFence, RelaxedStores("flag"), RelaxedLoads("flag")]);
}

#[test]
fn a_shared_lock_keeps_all_apart() {
    models::shared_lock(None);
}

#[test]
fn who_sleeps_is_woken() {
    models::notifier(None);
}

#[test]
fn a_notifier_that_stays_silent_is_caught() {
    caught(models::notifier, &[NoWake]);
    caught(models::notifier_of_two, &[NoWake]);
}

#[test]
fn of_two_who_sleep_each_is_woken() {
    models::notifier_of_two(None);
}
