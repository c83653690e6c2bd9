// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of endpoints, messengers and the engine that worlds of the whole stack must catch: this proves the oracle.

use std::panic::{AssertUnwindSafe, catch_unwind};

use barewire_endpoint::{Authentication, Secret};
use barewire_sim::stack::{Promise, Scenario, run};

/// Whether a fault breaks this promise in one of the first worlds; others may break before.
fn breaks(promise: Promise, have_fault: impl Fn(&mut Scenario)) -> bool {
    (0..10_000).any(|seed| {
        let mut scenario = Scenario::from_seed(seed);
        have_fault(&mut scenario);
        // Where an assertion of the product sees the fault first, that is as good.
        let ended = catch_unwind(AssertUnwindSafe(|| run(scenario, seed)));
        ended.map_or(true, |result| {
            result.is_err_and(|broken| {
                println!("seed {seed}: {broken}");
                broken.promise == promise
            })
        })
    })
}

fn in_endpoint(mutant: barewire_endpoint::Mutant, promise: Promise) -> bool {
    breaks(promise, |scenario| scenario.endpoint.mutant = Some(mutant))
}

fn in_messenger(mutant: barewire_messages::Mutant, promise: Promise) -> bool {
    breaks(promise, |scenario| scenario.messages.mutant = Some(mutant))
}

#[test]
fn a_damaged_frame_that_is_believed_is_caught() {
    assert!(breaks(Promise::Content, |scenario| {
        scenario.endpoint.authentication = None;
        scenario.endpoint.mutant = Some(barewire_endpoint::Mutant::CheckIgnored);
    }));
}

#[test]
fn a_frame_with_a_wrong_seal_that_is_believed_is_caught() {
    assert!(breaks(Promise::Content, |scenario| {
        let secret = Secret::new(&[7; 16]).expect("of 128 bits");
        scenario.endpoint.authentication = Some(Authentication { secret, encrypts: false });
        scenario.endpoint.mutant = Some(barewire_endpoint::Mutant::CheckIgnored);
    }));
}

/// What a peer's two channels brought becomes one message (docs/decisions/0026).
#[test]
fn a_successor_that_is_told_of_at_once_is_caught() {
    assert!(in_endpoint(barewire_endpoint::Mutant::SuccessorAtOnce, Promise::Content));
}

#[test]
fn parked_pieces_out_of_order_are_caught() {
    assert!(in_endpoint(barewire_endpoint::Mutant::ParkedReversed, Promise::Content));
}

#[test]
fn a_peer_that_is_never_told_to_go_on_is_caught() {
    assert!(in_endpoint(barewire_endpoint::Mutant::StaysBusy, Promise::Progress));
}

#[test]
fn a_message_that_was_lost_and_told_of_as_sent_is_caught() {
    assert!(in_endpoint(barewire_endpoint::Mutant::FailedIsSent, Promise::Delivery));
}

#[test]
fn matching_out_of_order_is_caught() {
    assert!(in_messenger(barewire_messages::Mutant::MatchesNewest, Promise::Order));
}

#[test]
fn a_completion_told_of_twice_is_caught() {
    assert!(in_messenger(barewire_messages::Mutant::CompletesTwice, Promise::Once));
}

/// Found by seed 723 of 25 November 2026.
#[test]
fn the_end_of_a_receive_of_many_before_its_messages_is_caught() {
    assert!(in_messenger(barewire_messages::Mutant::EndsEarly, Promise::Once));
}

/// A peer that is leaving and does not answer kept the program from sleeping.
#[test]
fn a_rank_that_cannot_sleep_is_caught() {
    assert!(in_endpoint(barewire_endpoint::Mutant::ClosesAgain, Promise::Progress));
}

#[test]
fn memory_that_is_not_given_back_is_caught() {
    assert!(in_messenger(barewire_messages::Mutant::LeaksUnexpected, Promise::Memory));
}

#[test]
fn a_delivery_that_is_told_of_before_its_time_is_caught() {
    assert!(in_messenger(barewire_messages::Mutant::ConfirmsUnexpected, Promise::Delivery));
}

#[test]
fn memory_of_a_peer_that_is_written_read_or_changed_wrongly_is_caught() {
    use barewire_messages::Mutant::{AppliesTwice, ReadsToBeginning, WritesToBeginning};
    for mutant in [WritesToBeginning, ReadsToBeginning, AppliesTwice] {
        assert!(in_messenger(mutant, Promise::Access), "{mutant:?}");
    }
}

#[test]
fn a_loss_that_nobody_is_told_of_is_caught() {
    assert!(in_messenger(barewire_messages::Mutant::LosesSilently, Promise::Delivery));
}

/// A PDU or an acknowledgement of an earlier round, which comes late, is taken for one of now: channels end that must not.
#[test]
fn late_pdus_whose_rounds_are_not_looked_at_are_caught() {
    let mutant = Some(barewire_llc::Mutant::RoundUnchecked);
    assert!(breaks(Promise::Failure, |scenario| scenario.endpoint.connection.mutant = mutant));
}
