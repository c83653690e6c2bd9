// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many peers: all that begin at once, many that say nothing, one that is gone.

use std::time::{Duration, Instant};

use barewire_endpoint::{Config, Ending};

use crate::common::*;

/// Each sends a message to each other, all at once. Frames sent in all.
fn first_messages(macs: &[([u8; 6], u8)]) -> u64 {
    let segment = Segment::default();
    let mut sides: Vec<Side> = macs.iter().map(|(mac, sap)| side_at(&segment, *mac, config(*sap))).collect();
    let addresses: Vec<_> = sides.iter().map(Side::address).collect();
    for (number, side) in (0..).zip(&mut sides) {
        let message = [number];
        for (context, to) in (0..).zip(&addresses).filter(|(context, _)| *context != u64::from(number)) {
            let channel = side.connect(*to);
            side.endpoint.send(channel, &[], &message, context).unwrap();
        }
    }
    let others = sides.len() - 1;
    let mut all: Vec<&mut Side> = sides.iter_mut().collect();
    until(&mut all, "all hear of all", |sides| {
        sides.iter().all(|side| side.received.len() == others && side.outcomes.len() == others)
    });
    for (number, side) in (0..).zip(&sides) {
        assert!(side.outcomes.values().all(Option::is_none) && side.ended.is_empty());
        let mut from: Vec<u8> = side.received.iter().map(|(_, bytes)| bytes[0]).collect();
        from.sort_unstable();
        assert!(from.into_iter().eq((0..=others as u8).filter(|other| *other != number)));
    }
    sides.iter_mut().map(|side| side.endpoint.link().frames_sent()).sum()
}

/// Proves that 128 hosts of which each begins with a message to each other get all of them, with few frames more than
/// that takes.
#[test]
fn a_hundred_and_twenty_eight_hosts_begin_at_once() {
    const HOSTS: u64 = 128;
    let macs: Vec<_> = (0..HOSTS).map(|_| (new_mac(), 0x20)).collect();
    let frames = first_messages(&macs);
    // For each two: SABME and UA, perhaps both ways at once, two messages, two acknowledgements; and what one thread for
    // all of them makes late.
    let pairs = HOSTS * (HOSTS - 1) / 2;
    println!("{:.1} frames for each two", frames as f64 / pairs as f64);
    assert!(frames < 20 * pairs, "{frames} frames for {pairs} pairs");
}

/// Proves that local peers that all connect at each other at once get all messages, without a frame.
#[test]
fn local_peers_begin_at_once() {
    let mac = new_mac();
    let all: Vec<_> = (0..16).map(|number| (mac, 0x20 + 2 * number)).collect();
    assert_eq!(first_messages(&all), 0);
}

/// Proves that among many local peers that say nothing none is overlooked, whichever speaks, and that its end is seen.
#[test]
fn any_of_many_local_peers_is_heard_soon() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut here = side_at(&segment, mac, config(0x20));
    let mut others: Vec<Side> = (0..40).map(|number| side_at(&segment, mac, config(0x22 + 2 * number))).collect();
    let mut channels: Vec<_> = others.iter_mut().map(|other| join(other, &mut here)).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for turn in 0..2000 {
        let number = random.usize(..others.len());
        let (to_here, of_it) = channels[number];
        others[number].endpoint.send(to_here, &[], &[turn as u8], turn).unwrap();
        let before = here.received.len();
        let mut asked = 0;
        while here.received.len() == before {
            here.turn();
            asked += 1;
        }
        assert!(asked <= 10, "asked {asked} times");
        assert_eq!(here.from(of_it).last(), Some(&&[turn as u8][..]));
        others[number].turn();
    }
    while let (Some(other), Some((_, of_it))) = (others.pop(), channels.pop()) {
        drop(other);
        until(&mut [&mut here], "it is seen", |sides| !sides[0].ended.is_empty());
        assert_eq!(here.ended.pop().map(|(channel, _, ending)| (channel, ending)), Some((of_it, Ending::PeerClosed)));
    }
}

/// Proves that a pipe that has been quiet for some time works as before.
#[test]
fn a_local_peer_that_was_quiet_for_long_is_heard_again() {
    let (mut a, mut b) = two(true);
    let (to_b, _) = join(&mut a, &mut b);
    for round in 0..2 {
        for number in 0..200 {
            a.lend(to_b, b"head", pattern(number, 20_000), 1000 * round + number).unwrap();
            let wanted = 1000 * round + number;
            until(&mut [&mut a, &mut b], "it arrives", |sides| {
                sides[0].outcomes.contains_key(&wanted) && sides[1].received.len() as u64 == number + 1
            });
        }
        for (number, (_, bytes)) in (0..).zip(b.received.drain(..)) {
            assert!(bytes[4..] == pattern(number, 20_000));
        }
        for_some_time(&mut [&mut a, &mut b], Duration::from_millis(1200));
    }
}

/// Proves that a peer that is gone is noticed within the time that was asked for, though nothing is sent to it, and not
/// long before.
#[test]
fn a_silent_peer_is_noticed_in_the_time_that_is_asked_for() {
    const TIME: Duration = Duration::from_secs(2);
    let segment = Segment::default();
    let impatient = |byte| {
        let mut config = config(byte);
        config.notice_the_dead_within(TIME);
        config
    };
    for sends in [false, true] {
        let mut a = side_at(&segment, new_mac(), impatient(0x20));
        let mac = new_mac();
        let mut b = side_at(&segment, mac, impatient(0x20));
        let (to_b, _) = join(&mut a, &mut b);
        for_some_time(&mut [&mut a, &mut b], 2 * TIME);
        assert!(a.ended.is_empty(), "it is alive");
        segment.cut_off(mac, 0x20, true);
        let began = Instant::now();
        if sends {
            a.endpoint.send(to_b, &[], b"hello?", 1).unwrap();
        }
        until(&mut [&mut a], "it is noticed", |sides| !sides[0].ended.is_empty());
        let took = began.elapsed();
        assert!((TIME / 4..TIME).contains(&took), "{took:?}");
        assert_eq!(a.ended[0].2, Ending::NoAnswer);
        segment.cut_off(mac, 0x20, false);
    }
}

#[test]
fn any_time_to_notice_the_dead_is_a_legal_configuration() {
    for time in [Duration::ZERO, Duration::from_millis(150), Duration::from_secs(3), Duration::from_secs(3600)] {
        let mut config: Config = config(0x20);
        config.notice_the_dead_within(time);
        side_at(&Segment::default(), new_mac(), config);
    }
}
