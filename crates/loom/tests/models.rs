// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs every model on the unmodified code, and with bugs that it must catch.

use barewire_loom::Mutant::{self, *};
use barewire_loom::models;

#[track_caller]
fn catches(model: fn(Option<Mutant>), mutants: &[Mutant]) {
    for mutant in mutants {
        let outcome = std::panic::catch_unwind(|| model(Some(*mutant)));
        assert!(outcome.is_err(), "{mutant:?} is not caught");
    }
}

#[test]
fn a_ring_delivers_complete_messages_in_order_and_keeps_lent_memory() {
    models::ring(None);
}

#[test]
fn a_ring_with_relaxed_orderings_is_caught() {
    let names = ["word", "acknowledged"];
    catches(models::ring, &names.map(RelaxedStores));
    catches(models::ring, &names.map(RelaxedLoads));
}

#[test]
fn no_wake_up_is_lost_in_a_pipe() {
    models::pipe(None);
    models::pipe_both_ways(None);
}

#[test]
fn a_pipe_without_fences_or_wake_ups_is_caught() {
    catches(models::pipe, &[NoFence, NoWake]);
}

#[test]
fn a_serial_program_and_the_progress_thread_exclude_each_other() {
    models::serial_lock(None);
}

#[test]
fn a_lock_without_a_fence_or_with_relaxed_flags_is_caught() {
    catches(models::serial_lock, &[NoLightFence, NoHeavyFence, RelaxedStores("flag"), RelaxedLoads("flag")]);
}

#[test]
fn a_serial_lock_excludes_a_second_thread_of_the_program() {
    models::serial_lock_of_two_threads(None);
    catches(models::serial_lock_of_two_threads, &[NoLightFence, NoHeavyFence, RelaxedStores("flag")]);
}

#[test]
fn a_shared_lock_excludes_all_threads() {
    models::shared_lock(None);
}

#[test]
fn a_sleeper_is_woken() {
    models::notifier(None);
}

#[test]
fn a_notifier_without_wake_ups_is_caught() {
    catches(models::notifier, &[NoWake]);
    catches(models::notifier_of_two, &[NoWake]);
}

#[test]
fn each_of_two_sleepers_is_woken() {
    models::notifier_of_two(None);
}
