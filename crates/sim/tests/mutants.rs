// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proves the checkers: they must catch each injected bug of the engine.

use barewire_llc::{AfterLoss, Mutant};
use barewire_sim::goodput::{config, delivered_with};
use barewire_sim::link::Link;
use barewire_sim::{Scenario, Violation, run};

/// The violation that a mutant causes in the first of 200 worlds with any.
fn caught(mutant: Mutant) -> Option<Violation> {
    caught_in(200, mutant)
}

fn caught_in(worlds: u64, mutant: Mutant) -> Option<Violation> {
    (0..worlds).find_map(|seed| {
        let mut scenario = Scenario::from_seed(seed);
        scenario.station.connection.mutant = Some(mutant);
        run(scenario, seed).err()
    })
}

#[test]
fn wrong_acknowledgements_are_caught() {
    assert!(caught(Mutant::NrUnchecked).is_some());
    assert!(matches!(caught(Mutant::NrOffByOne), Some(Violation::AcknowledgedUndelivered { .. })));
}

#[test]
fn a_lost_timer_is_caught() {
    assert!(matches!(caught(Mutant::NoAckTimer), Some(Violation::NoProgress { .. })));
}

#[test]
fn wrong_retransmission_is_caught() {
    assert!(caught(Mutant::ResendsFromSecond).is_some());
}

#[test]
fn too_large_a_window_is_caught() {
    assert!(matches!(caught(Mutant::WindowOffByOne), Some(Violation::Window { .. })));
}

#[test]
fn wrong_deliveries_are_caught() {
    assert!(matches!(caught(Mutant::DeliversAgain), Some(Violation::Order { .. })));
    assert!(matches!(caught(Mutant::DeliversAhead), Some(Violation::Order { .. })));
}

#[test]
fn a_late_pdu_whose_number_has_wrapped_is_caught() {
    // The PDU must be late by a multiple of 128 others.
    let found = caught_in(3000, Mutant::RoundUnchecked);
    assert!(matches!(found, Some(Violation::Order { .. })), "{found:?}");
}

/// A receiver that never sends REJ violates no property, since timers recover. Goodput shows it.
#[test]
fn missing_rejects_cost_goodput() {
    let link = Link::gigabit(0.01);
    // With a window that stays open, no poll at its end detects the loss instead.
    let sound = config(16, AfterLoss::Keep);
    let mut mute = sound.clone();
    mute.mutant = Some(Mutant::NoRej);
    let [mute, sound] = [mute, sound].map(|config| delivered_with(&link, &config, 7));
    assert!(mute * 10 < sound * 9, "{mute} without REJ, {sound} with it");
}
