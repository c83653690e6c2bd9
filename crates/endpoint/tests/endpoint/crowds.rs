// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many peers: all that connect at once, many idle ones, and one that disappears.

use std::time::{Duration, Instant};

use barewire_endpoint::{Config, Ending};

use crate::common::*;

/// Each side sends a message to each other side, all at once. Returns the number of frames sent by all.
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
    let peers = sides.len() - 1;
    let mut all: Vec<&mut Side> = sides.iter_mut().collect();
    until(&mut all, "all messages arrive", |sides| {
        sides.iter().all(|side| side.received.len() == peers && side.outcomes.len() == peers)
    });
    for (number, side) in (0..).zip(&sides) {
        assert!(side.outcomes.values().all(Option::is_none) && side.ended.is_empty());
        let mut from: Vec<u8> = side.received.iter().map(|(_, bytes)| bytes[0]).collect();
        from.sort_unstable();
        assert!(from.into_iter().eq((0..=peers as u8).filter(|peer| *peer != number)));
    }
    sides.iter_mut().map(|side| side.endpoint.link().frames_sent()).sum()
}

/// Proves that 200 hosts that all send each other a first message at once get all of them, with few additional frames.
#[test]
fn two_hundred_hosts_connect_at_once() {
    const HOSTS: u64 = 200;
    let macs: Vec<_> = (0..HOSTS).map(|_| (new_mac(), 0x20)).collect();
    let frames = first_messages(&macs);
    // For each pair: SABME and UA, possibly in both directions at once, two messages, two acknowledgements; and what is
    // retransmitted because one thread drives all hosts.
    let pairs = HOSTS * (HOSTS - 1) / 2;
    println!("{:.1} frames for each pair", frames as f64 / pairs as f64);
    assert!(frames < 20 * pairs, "{frames} frames for {pairs} pairs");
}

/// Proves that local peers that all connect to each other at once get all messages, without a frame.
#[test]
fn local_peers_connect_at_once() {
    let mac = new_mac();
    let all: Vec<_> = (0..16).map(|number| (mac, 0x20 + 2 * number)).collect();
    assert_eq!(first_messages(&all), 0);
}

/// Proves that any of many idle local peers is polled soon when it sends, and that its end is noticed.
#[test]
fn any_of_many_local_peers_is_polled_soon() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut receiver = side_at(&segment, mac, config(0x20));
    let mut peers: Vec<Side> = (0..40).map(|number| side_at(&segment, mac, config(0x22 + 2 * number))).collect();
    let mut channels: Vec<_> = peers.iter_mut().map(|peer| open_channel(peer, &mut receiver)).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..2000 {
        let number = random.usize(..peers.len());
        let (to_receiver, from_peer) = channels[number];
        peers[number].endpoint.send(to_receiver, &[], &[round as u8], round).unwrap();
        let before = receiver.received.len();
        let mut polls = 0;
        while receiver.received.len() == before {
            receiver.poll();
            polls += 1;
        }
        assert!(polls <= 10, "{polls} polls");
        assert_eq!(receiver.from(from_peer).last(), Some(&&[round as u8][..]));
        peers[number].poll();
    }
    while let (Some(peer), Some((_, from_peer))) = (peers.pop(), channels.pop()) {
        drop(peer);
        until(&mut [&mut receiver], "its end is noticed", |sides| !sides[0].ended.is_empty());
        assert_eq!(
            receiver.ended.pop().map(|(channel, _, ending)| (channel, ending)),
            Some((from_peer, Ending::PeerClosed))
        );
    }
}

/// Proves that channels whose peers receive nothing cost a poll little: it does not read the clock for each of them.
#[test]
fn many_blocked_channels_cost_little() {
    const PEERS: u64 = 40;
    const POLLS: u64 = 100;
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), config(0x20));
    let mut peers: Vec<Side> = (0..PEERS).map(|_| side_at(&segment, new_mac(), config(0x24))).collect();
    let channels: Vec<_> = peers.iter().map(|peer| a.connect(peer.address())).collect();
    let mut all: Vec<&mut Side> = std::iter::once(&mut a).chain(&mut peers).collect();
    until(&mut all, "all are open", |sides| channels.iter().all(|channel| sides[0].endpoint.is_open(*channel)));
    for (context, channel) in (0..).zip(channels) {
        a.lend(channel, &[], pattern(context, 300_000), context).unwrap();
    }
    // Each channel takes as many slots as it gets.
    (0..POLLS).for_each(|_| _ = a.poll());
    let before = a.endpoint.link().times_told();
    (0..POLLS).for_each(|_| _ = a.poll());
    let readings = a.endpoint.link().times_told() - before;
    assert!(readings < 5 * POLLS, "{readings} readings in {POLLS} polls");
    assert!(a.endpoint.is_blocked() && a.outcomes.is_empty());
}

/// Proves that a pipe that was idle long enough to release its memory works as before.
#[test]
fn a_pipe_that_was_idle_for_long_still_works() {
    let (mut a, mut b) = pair(true);
    let (to_b, _) = open_channel(&mut a, &mut b);
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
        run_for(&mut [&mut a, &mut b], Duration::from_millis(1200));
    }
}

/// Proves that an unreachable peer is noticed within the configured time, and not long before, even if nothing is sent.
#[test]
fn an_unreachable_peer_is_noticed_within_the_configured_time() {
    const TIME: Duration = Duration::from_secs(2);
    let segment = Segment::default();
    let impatient = |byte| {
        let mut config = config(byte);
        config.set_dead_peer_timeout(TIME);
        config
    };
    for sends in [false, true] {
        let mut a = side_at(&segment, new_mac(), impatient(0x20));
        let mac = new_mac();
        let mut b = side_at(&segment, mac, impatient(0x20));
        let (to_b, _) = open_channel(&mut a, &mut b);
        run_for(&mut [&mut a, &mut b], 2 * TIME);
        assert!(a.ended.is_empty(), "it is alive");
        segment.cut_off(mac, 0x20, true);
        let began = Instant::now();
        if sends {
            a.endpoint.send(to_b, &[], b"hello?", 1).unwrap();
        }
        until(&mut [&mut a], "it is noticed", |sides| !sides[0].ended.is_empty());
        let took = began.elapsed();
        // A busy machine adds to it.
        assert!((TIME / 4..TIME + TIME / 4).contains(&took), "{took:?}");
        assert_eq!(a.ended[0].2, Ending::NoAnswer);
        segment.cut_off(mac, 0x20, false);
    }
}

#[test]
fn any_dead_peer_timeout_is_a_valid_configuration() {
    for time in [Duration::ZERO, Duration::from_millis(150), Duration::from_secs(3), Duration::from_secs(3600)] {
        let mut config: Config = config(0x20);
        config.set_dead_peer_timeout(time);
        side_at(&Segment::default(), new_mac(), config);
    }
}

/// Proves that a local peer is accepted although the messages of another one arrive without a pause, whichever of the
/// polls read the clock.
#[test]
fn a_local_peer_is_accepted_while_another_one_sends_without_a_pause() {
    for phase in 0..16 {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut receiver = side_at(&segment, mac, config(0x20));
        let mut busy = side_at(&segment, mac, config(0x22));
        let mut late = side_at(&segment, mac, config(0x24));
        let (to_receiver, _) = open_channel(&mut busy, &mut receiver);
        (0..phase).for_each(|_| _ = receiver.poll());
        late.connect(receiver.address());
        let (began, mut context) = (Instant::now(), 0);
        while receiver.opened.len() < 2 {
            busy.endpoint.send(to_receiver, &[], b"more", context).unwrap();
            busy.take();
            assert!(receiver.poll(), "there is always a message");
            context += 1;
            assert!(began.elapsed() < TIMEOUT, "phase {phase}: not accepted");
        }
    }
}
