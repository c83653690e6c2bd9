// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proves the oracle: it must catch each injected bug of endpoints, messengers and the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use barewire_endpoint::{Authentication, Secret};
use barewire_sim::stack::{Property, Scenario, run};

/// Whether a bug violates this property in one of the first worlds; others may be violated first.
fn violates(property: Property, inject: impl Fn(&mut Scenario)) -> bool {
    violates_from(0, property, inject)
}

/// The same from world `first` on, for bugs that few worlds show.
fn violates_from(first: u64, property: Property, inject: impl Fn(&mut Scenario)) -> bool {
    violates_in((first..first + 10_000).map(|seed| (seed, Scenario::from_seed(seed))), property, inject)
}

fn violates_in(
    mut worlds: impl Iterator<Item = (u64, Scenario)>,
    property: Property,
    inject: impl Fn(&mut Scenario),
) -> bool {
    worlds.any(|(seed, mut scenario)| {
        let clean = scenario.clone();
        inject(&mut scenario);
        // An assertion of the product that fails first counts as well.
        let ended = catch_unwind(AssertUnwindSafe(|| run(scenario, seed)));
        let is_caught = ended.map_or(true, |result| {
            result.is_err_and(|violation| {
                println!("seed {seed}: {violation}");
                violation.property == property
            })
        });
        if is_caught {
            println!("caught in world {seed}");
            run(clean, seed).expect("the world is clean without the bug");
        }
        is_caught
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
    let mutant = Some(barewire_endpoint::Mutant::ParkedReversed);
    assert!(violates_from(2179, Property::Content, |scenario| scenario.endpoint.mutant = mutant));
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
    let mutant = Some(barewire_messages::Mutant::EndsEarly);
    assert!(violates_from(723, Property::Once, |scenario| scenario.messages.mutant = mutant));
}

#[test]
fn memory_that_is_not_released_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::LeaksUnexpected, Property::Memory));
}

#[test]
fn a_delivery_completion_that_is_too_early_is_caught() {
    assert!(messenger_mutant_violates(barewire_messages::Mutant::ConfirmsRequest, Property::Delivery));
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

/// Whether a bug violates this property in one of these worlds with several carriers.
fn violates_with_carriers(
    seeds: impl Iterator<Item = u64>,
    property: Property,
    inject: impl Fn(&mut Scenario),
) -> bool {
    let worlds = seeds.map(|seed| (seed, Scenario::from_seed(seed).with_carriers(seed)));
    violates_in(worlds, property, inject)
}

/// Searches from world `first` on, because worlds with carriers take long.
fn carriers_mutant_violates(first: u64, mutant: barewire_carriers::Mutant, property: Property) -> bool {
    violates_with_carriers(first..first + 1000, property, |scenario| scenario.carriers_mutant = Some(mutant))
}

#[test]
fn frames_by_a_path_that_is_dead_are_caught() {
    assert!(carriers_mutant_violates(24, barewire_carriers::Mutant::KeepsDeadPaths, Property::Path));
}

#[test]
fn a_job_that_ends_though_a_path_works_is_caught() {
    assert!(carriers_mutant_violates(51, barewire_carriers::Mutant::NeverSuspects, Property::Failure));
}

#[test]
fn datagrams_that_stay_too_long_for_their_path_are_caught() {
    assert!(carriers_mutant_violates(0, barewire_carriers::Mutant::KeepsLength, Property::Path));
}

#[test]
fn an_answer_that_is_not_repeated_is_caught() {
    assert!(carriers_mutant_violates(24, barewire_carriers::Mutant::AnswersOnce, Property::Failure));
}

/// Worlds in which a station goes on to send to a dead interface, because frames come from another one, or by a path
/// that works in the other direction only, until the job ends.
#[test]
fn a_station_that_sends_in_vain_though_a_path_works_is_caught() {
    use barewire_carriers::Mutant::{HeardFromAny, TrustsAnyFrame};
    for (seeds, property, mutant) in [
        (vec![2003, 2505, 2668], Property::Failure, HeardFromAny),
        (vec![4973], Property::Failure, TrustsAnyFrame),
        (vec![7_005_515], Property::Failure, TrustsAnyFrame),
    ] {
        let inject = |scenario: &mut Scenario| scenario.carriers_mutant = Some(mutant);
        assert!(violates_with_carriers(seeds.into_iter(), property, inject), "{mutant:?}");
    }
}

/// Frames that a failed path held are taken for current ones when their numbers have come round.
#[test]
fn accepting_frames_of_an_earlier_round_of_numbers_is_caught() {
    let mutant = Some(barewire_llc::Mutant::MultipleUnchecked);
    let worlds_with_laps = (63..640).step_by(64);
    assert!(violates_with_carriers(worlds_with_laps, Property::Failure, |scenario| {
        scenario.endpoint.authentication = None;
        scenario.endpoint.connection.mutant = mutant;
    }));
}
