// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proves the oracle: it must catch each injected bug of endpoints, messengers and the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use barewire_endpoint::{Authentication, Secret};
use barewire_sim::stack::{Property, Scenario, run};

/// Whether a bug violates this property in one of the first worlds; others may be violated first.
fn violates(property: Property, inject: impl Fn(&mut Scenario)) -> bool {
    (0..10_000).any(|seed| {
        let mut scenario = Scenario::from_seed(seed);
        inject(&mut scenario);
        // An assertion of the product that fails first counts as well.
        let ended = catch_unwind(AssertUnwindSafe(|| run(scenario, seed)));
        ended.map_or(true, |result| {
            result.is_err_and(|violation| {
                println!("seed {seed}: {violation}");
                violation.property == property
            })
        })
    })
}

fn endpoint_mutant_violates(mutant: barewire_endpoint::Mutant, property: Property) -> bool {
    violates(property, |scenario| scenario.endpoint.mutant = Some(mutant))
}

fn messenger_mutant_violates(mutant: barewire_messages::Mutant, property: Property) -> bool {
    violates(property, |scenario| scenario.messages.mutant = Some(mutant))
}

#[test]
fn accepting_a_damaged_frame_is_caught() {
    assert!(violates(Property::Content, |scenario| {
        scenario.endpoint.authentication = None;
        scenario.endpoint.mutant = Some(barewire_endpoint::Mutant::CheckIgnored);
    }));
}

#[test]
fn accepting_a_wrong_seal_is_caught() {
    assert!(violates(Property::Content, |scenario| {
        let secret = Secret::new(&[7; 16]).expect("of 128 bits");
        scenario.endpoint.authentication = Some(Authentication { secret, encrypts: false });
        scenario.endpoint.mutant = Some(barewire_endpoint::Mutant::CheckIgnored);
    }));
}

/// Data of a peer's two successive channels is merged into one message (docs/decisions/0026).
#[test]
fn reporting_a_successor_channel_too_early_is_caught() {
    assert!(endpoint_mutant_violates(barewire_endpoint::Mutant::SuccessorAtOnce, Property::Content));
}

#[test]
fn parked_pieces_out_of_order_are_caught() {
    assert!(endpoint_mutant_violates(barewire_endpoint::Mutant::ParkedReversed, Property::Content));
}

#[test]
fn a_busy_condition_that_is_never_cleared_is_caught() {
    assert!(endpoint_mutant_violates(barewire_endpoint::Mutant::StaysBusy, Property::Progress));
}

#[test]
fn completing_a_lost_message_as_sent_is_caught() {
    assert!(endpoint_mutant_violates(barewire_endpoint::Mutant::FailedIsSent, Property::Delivery));
}

#[test]
fn matching_out_of_order_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::MatchesNewest, Property::Order));
}

#[test]
fn a_duplicate_completion_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::CompletesTwice, Property::Once));
}

#[test]
fn the_end_of_a_multi_receive_before_its_messages_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::EndsEarly, Property::Once));
}

/// A closing peer that does not answer must not keep the program from sleeping.
#[test]
fn a_rank_that_cannot_sleep_is_caught() {
    assert!(endpoint_mutant_violates(barewire_endpoint::Mutant::ClosesAgain, Property::Progress));
}

#[test]
fn memory_that_is_not_released_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::LeaksUnexpected, Property::Memory));
}

#[test]
fn a_delivery_completion_that_is_too_early_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::ConfirmsUnexpected, Property::Delivery));
}

#[test]
fn wrong_remote_memory_accesses_are_caught() {
    use barewire_messages::Mutant::{AppliesTwice, ReadsToBeginning, WritesToBeginning};
    for mutant in [WritesToBeginning, ReadsToBeginning, AppliesTwice] {
        assert!(messenger_mutant_violates(mutant, Property::Access), "{mutant:?}");
    }
}

#[test]
fn an_unreported_loss_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::LosesSilently, Property::Delivery));
}

/// A late PDU or acknowledgement of an earlier cycle of numbers is taken for a current one, and channels fail.
#[test]
fn accepting_late_pdus_of_earlier_cycles_is_caught() {
    let mutant = Some(barewire_llc::Mutant::RoundUnchecked);
    assert!(violates(Property::Failure, |scenario| scenario.endpoint.connection.mutant = mutant));
}
