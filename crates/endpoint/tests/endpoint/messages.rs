// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of every size arrive whole, once and in order, and their senders hear of each once.

use std::collections::HashMap;

use barewire_endpoint::{HEAD_MAX, INLINE_BYTES, SendError};
use barewire_link::{Faults, Link, MemoryLink};
use proptest::prelude::*;

use crate::common::*;

/// A message to be sent: bytes of head and body, and whether its body is lent.
type Shape = (usize, usize, bool);

/// Sends messages of these shapes both ways and proves that they arrive, in order, and are told of once.
fn exchange<L: Link>(a: &mut Side<L>, b: &mut Side<L>, shapes: &[Shape]) {
    let (to_b, to_a) = join(a, b);
    let mut next = [0, 0];
    let whole =
        |side: usize, number: usize| pattern(side as u64 * 1000 + number as u64, shapes[number].0 + shapes[number].1);
    until(&mut [a, b], "all messages arrive", |sides| {
        for (side, to) in [(0, to_b), (1, to_a)] {
            let number = next[side];
            if number < shapes.len() {
                let (head, _, is_lent) = shapes[number];
                let message = whole(side, number);
                let (head, body) = message.split_at(head);
                let sent = if is_lent {
                    sides[side].lend(to, head, body.to_vec(), number as u64)
                } else {
                    sides[side].endpoint.send(to, head, body, number as u64)
                };
                match sent {
                    Ok(()) => next[side] += 1,
                    Err(SendError::Full) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        sides.iter().all(|side| side.received.len() >= shapes.len() && side.all_sent(0..shapes.len() as u64))
    });
    for (side, channel, from) in [(&a, to_b, 1), (&b, to_a, 0)] {
        let got = side.from(channel);
        assert_eq!(got.len(), shapes.len());
        for (number, got) in got.into_iter().enumerate() {
            assert!(got == whole(from, number), "message {number} of {:?}, {} bytes", shapes[number], got.len());
        }
        assert!(side.ended.is_empty());
    }
}

/// Every size around a limit, with heads of all kinds.
fn shapes_of_note(copied_max: usize) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for total in [0, 1, 63, 64, 65, INLINE_BYTES, INLINE_BYTES + 1, copied_max - 1, copied_max] {
        for head in [0, 1, 31, HEAD_MAX] {
            if head <= total {
                shapes.extend([(head, total - head, false), (head, total - head, true)]);
            }
        }
    }
    // Two frames, the last with one byte; full; and one more.
    for total in [copied_max + 1, 2 * copied_max + 4, 2 * copied_max + 5, 100_000] {
        shapes.extend([(0, total, true), (HEAD_MAX, total - HEAD_MAX, true)]);
    }
    shapes.extend([(40, 3_000_000, true), (3, 4, false), (0, 0, true)]);
    shapes
}

#[test]
fn messages_of_every_size_arrive_both_ways_over_the_wire() {
    let (mut a, mut b) = two(false);
    let shapes = shapes_of_note(a.endpoint.copied_max());
    exchange(&mut a, &mut b, &shapes);
}

#[test]
fn messages_of_every_size_arrive_both_ways_on_one_host() {
    let (mut a, mut b) = two(true);
    let shapes = shapes_of_note(a.endpoint.copied_max());
    exchange(&mut a, &mut b, &shapes);
    assert_eq!(a.endpoint.link().counters().unwrap().sent, 0, "no frame between processes of one host");
}

#[test]
fn messages_of_every_size_arrive_under_the_ethertype_without_a_token() {
    let segment = Segment::default();
    let framing =
        barewire_endpoint::Framing { encapsulation: barewire_endpoint::Encapsulation::EtherType, token: None };
    let config = |byte| barewire_endpoint::Config { framing, ..config(byte) };
    let (mut a, mut b) = (side_at(&segment, new_mac(), config(2)), side_at(&segment, new_mac(), config(0xfe)));
    let shapes = shapes_of_note(a.endpoint.copied_max());
    exchange(&mut a, &mut b, &shapes);
}

/// Who lends memory writes over it once it is told of, so a frame repeated after that would be found.
#[test]
fn a_wire_that_loses_doubles_and_reorders_changes_nothing() {
    let faults = Faults { loss: 0.03, duplication: 0.03, reordering: 0.03, ..Faults::default() };
    for seed in 0..3 {
        println!("seed {seed}");
        let (a, b) = MemoryLink::pair(MTU, faults, seed);
        let config = |byte| barewire_endpoint::Config { local: None, ..config(byte) };
        let (mut a, mut b) = (Side::new(a, config(0x20)), Side::new(b, config(0x24)));
        let mut random = fastrand::Rng::with_seed(seed);
        let most = a.endpoint.copied_max();
        let shapes: Vec<Shape> = (0..150)
            .map(|_| match random.u8(..4) {
                0 => (random.usize(..=HEAD_MAX), random.usize(..30_000), true),
                1 => (random.usize(..=HEAD_MAX), random.usize(..=most - HEAD_MAX), false),
                _ => (random.usize(..20), random.usize(..100), random.bool()),
            })
            .collect();
        exchange(&mut a, &mut b, &shapes);
        let counters = a.endpoint.counters().unwrap();
        assert!(counters.repeated > 0 && counters.duplicate > 0, "{counters:?}");
        assert_eq!((counters.malformed, counters.unauthenticated, counters.foreign), (0, 0, 0));
    }
}

#[test]
fn events_of_a_channel_come_in_the_order_of_its_messages() {
    for is_local in [false, true] {
        let (mut a, mut b) = two(is_local);
        let (to_b, _) = join(&mut a, &mut b);
        let mut number = 0;
        until(&mut [&mut a, &mut b], "all are sent", |sides| {
            while number < 500 {
                let body = pattern(number, (number * 37 % 5000) as usize);
                let copied = body.len() < 700;
                let sent = if copied {
                    sides[0].endpoint.send(to_b, &[], &body, number)
                } else {
                    sides[0].lend(to_b, &[], body, number)
                };
                match sent {
                    Ok(()) => number += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            sides[0].all_sent(0..500)
        });
        assert!(a.told.is_sorted(), "local {is_local}");
    }
}

#[test]
fn what_is_too_long_is_refused_and_takes_nothing() {
    for is_local in [false, true] {
        let (mut a, mut b) = two(is_local);
        let (to_b, _) = join(&mut a, &mut b);
        let most = a.endpoint.copied_max();
        let too_long = |bytes, most| Err(SendError::TooLong { bytes, most });
        assert_eq!(a.endpoint.send(to_b, &[], &vec![0; most + 1], 1), too_long(most + 1, most));
        assert_eq!(a.endpoint.send(to_b, &[0; 10], &vec![0; most - 9], 1), too_long(most + 1, most));
        assert!(matches!(a.endpoint.send(to_b, &[0; 65], &[], 1), Err(SendError::TooLong { .. })));
        assert!(matches!(a.lend(to_b, &[0; 65], vec![], 1), Err(SendError::TooLong { .. })));
        a.endpoint.send(to_b, b"he", b"re", 2).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[1].received.is_empty());
        until(&mut [&mut a, &mut b], "it is told of", |sides| sides[0].all_sent(2..3));
        assert_eq!(b.received[0].1, b"here");
        assert_eq!(a.outcomes, HashMap::from([(2, None)]));
    }
}

/// The first frame comes again whenever the connection's seven bits would take it for the next one.
#[test]
fn a_frame_whose_number_has_come_round_is_not_taken_for_a_new_one() {
    let segment = Segment::default();
    let (mut a, mut b) = (side_at(&segment, new_mac(), config(0x20)), side_at(&segment, new_mac(), config(0x24)));
    let (to_b, from_a) = join(&mut a, &mut b);
    // Hears what b hears, and sends under a's address.
    let mut double = segment.link(b.address().mac, 0x24, MTU);
    let messages: Vec<_> = (0..400).map(|number| pattern(number, 20)).collect();
    let mut first = None;
    for (number, message) in messages.iter().enumerate() {
        a.endpoint.send(to_b, &[], message, number as u64).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() > number);
        if number == 0 {
            while let Some(frame) = double.receive() {
                // The frame's first control octet, of an I PDU.
                first = (frame.bytes[16] & 1 == 0).then(|| frame.bytes.to_vec()).or(first);
            }
        }
        if number % 128 == 127 {
            let late = first.as_ref().expect("a frame with data");
            double.send(&[barewire_link::Outgoing { header: late, payload: &[] }]).unwrap();
        }
    }
    assert_eq!(b.from(from_a), messages);
    assert_eq!(b.endpoint.counters().unwrap().duplicate, 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sizes, copied and lent, over the wire and on one host, with frames of any length.
    #[test]
    fn any_messages_arrive_in_order(
        shapes in prop::collection::vec(
            prop_oneof![
                (0..=HEAD_MAX, 0..200_usize, any::<bool>()),
                (0..=HEAD_MAX, 0..20_000_usize, Just(true)),
            ],
            1..80,
        ),
        mtu in 300..2000_usize,
        is_local in any::<bool>(),
    ) {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut a = Side::new(segment.link(mac, 0x20, mtu), config(0x20));
        let mut b = Side::new(segment.link(if is_local { mac } else { new_mac() }, 0x24, mtu), config(0x24));
        // What is copied fits a frame.
        let most = a.endpoint.copied_max();
        let fits = |&(head, body, is_lent): &Shape| is_lent || head + body <= most;
        let shapes: Vec<Shape> = shapes.into_iter().filter(fits).collect();
        exchange(&mut a, &mut b, &shapes);
    }
}
