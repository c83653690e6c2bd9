// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of every size arrive whole, once and in order, and each is reported to its sender once.

use std::collections::HashMap;

use barewire_endpoint::{HEAD_MAX, INLINE_BYTES, SendError};
use barewire_link::{Faults, Link, MemoryLink};
use proptest::prelude::*;

use crate::common::*;

/// Shape of a message: bytes of head and body, and whether the body is lent.
type Shape = (usize, usize, bool);

/// Sends messages of these shapes in both directions and checks that they arrive in order and are each reported once.
fn exchange<L: Link>(a: &mut Side<L>, b: &mut Side<L>, shapes: &[Shape]) {
    let (to_b, to_a) = open_channel(a, b);
    let mut next = [0, 0];
    let message_of =
        |side: usize, number: usize| pattern(side as u64 * 1000 + number as u64, shapes[number].0 + shapes[number].1);
    until(&mut [a, b], "all messages arrive", |sides| {
        for (side, to) in [(0, to_b), (1, to_a)] {
            let number = next[side];
            if number < shapes.len() {
                let (head, _, is_lent) = shapes[number];
                let message = message_of(side, number);
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
        let received = side.from(channel);
        assert_eq!(received.len(), shapes.len());
        for (number, received) in received.into_iter().enumerate() {
            assert!(
                received == message_of(from, number),
                "message {number} of {:?}, {} bytes",
                shapes[number],
                received.len()
            );
        }
        assert!(side.ended.is_empty());
    }
}

/// Sizes around every limit, with heads of all kinds.
fn boundary_shapes(copied_max: usize) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for total in [0, 1, 63, 64, 65, INLINE_BYTES, INLINE_BYTES + 1, copied_max - 1, copied_max] {
        for head in [0, 1, 31, HEAD_MAX] {
            if head <= total {
                shapes.extend([(head, total - head, false), (head, total - head, true)]);
            }
        }
    }
    // Two frames: one byte in the second, a full second, and one byte more.
    for total in [copied_max + 1, 2 * copied_max + 4, 2 * copied_max + 5, 100_000] {
        shapes.extend([(0, total, true), (HEAD_MAX, total - HEAD_MAX, true)]);
    }
    shapes.extend([(40, 3_000_000, true), (3, 4, false), (0, 0, true)]);
    shapes
}

#[test]
fn messages_of_every_size_arrive_in_both_directions_over_the_link() {
    let (mut a, mut b) = pair(false);
    let shapes = boundary_shapes(a.endpoint.copied_max());
    exchange(&mut a, &mut b, &shapes);
}

#[test]
fn messages_of_every_size_arrive_in_both_directions_on_one_host() {
    let (mut a, mut b) = pair(true);
    let shapes = boundary_shapes(a.endpoint.copied_max());
    exchange(&mut a, &mut b, &shapes);
    assert_eq!(a.endpoint.link().counters().unwrap().sent, 0, "no frame between processes of one host");
}

#[test]
fn messages_of_every_size_arrive_with_the_ethertype_and_without_a_token() {
    let segment = Segment::default();
    let framing =
        barewire_endpoint::Framing { encapsulation: barewire_endpoint::Encapsulation::EtherType, token: None };
    let config = |byte| barewire_endpoint::Config { framing, ..config(byte) };
    let (mut a, mut b) = (side_at(&segment, new_mac(), config(2)), side_at(&segment, new_mac(), config(0xfe)));
    let shapes = boundary_shapes(a.endpoint.copied_max());
    exchange(&mut a, &mut b, &shapes);
}

/// Lent memory is overwritten once it is returned, so a retransmission after that would be detected.
#[test]
fn messages_arrive_over_a_link_that_loses_duplicates_and_reorders_frames() {
    let faults = Faults { loss: 0.03, duplication: 0.03, reordering: 0.03, ..Faults::default() };
    for seed in 0..3 {
        println!("seed {seed}");
        let (a, b) = MemoryLink::pair(MTU, faults, seed);
        let config = |byte| barewire_endpoint::Config { local: None, ..config(byte) };
        let (mut a, mut b) = (Side::new(a, config(0x20)), Side::new(b, config(0x24)));
        let mut random = fastrand::Rng::with_seed(seed);
        let max = a.endpoint.copied_max();
        let shapes: Vec<Shape> = (0..150)
            .map(|_| match random.u8(..4) {
                0 => (random.usize(..=HEAD_MAX), random.usize(..30_000), true),
                1 => (random.usize(..=HEAD_MAX), random.usize(..=max - HEAD_MAX), false),
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
fn events_of_a_channel_are_in_the_order_of_its_messages() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, _) = open_channel(&mut a, &mut b);
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
        assert!(a.reported.is_sorted(), "local {is_local}");
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_without_effect() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, _) = open_channel(&mut a, &mut b);
        let max = a.endpoint.copied_max();
        let too_long = |bytes, most| Err(SendError::TooLong { bytes, most });
        assert_eq!(a.endpoint.send(to_b, &[], &vec![0; max + 1], 1), too_long(max + 1, max));
        assert_eq!(a.endpoint.send(to_b, &[0; 10], &vec![0; max - 9], 1), too_long(max + 1, max));
        assert!(matches!(a.endpoint.send(to_b, &[0; 65], &[], 1), Err(SendError::TooLong { .. })));
        assert!(matches!(a.lend(to_b, &[0; 65], vec![], 1), Err(SendError::TooLong { .. })));
        a.endpoint.send(to_b, b"he", b"re", 2).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[1].received.is_empty());
        until(&mut [&mut a, &mut b], "it is reported", |sides| sides[0].all_sent(2..3));
        assert_eq!(b.received[0].1, b"here");
        assert_eq!(a.outcomes, HashMap::from([(2, None)]));
    }
}

/// The first I frame is replayed whenever the 7-bit sequence numbers would make it the next one.
#[test]
fn a_replayed_frame_is_not_accepted_after_the_sequence_numbers_wrap() {
    let segment = Segment::default();
    let (mut a, mut b) = (side_at(&segment, new_mac(), config(0x20)), side_at(&segment, new_mac(), config(0x24)));
    let (to_b, from_a) = open_channel(&mut a, &mut b);
    // Receives copies of b's frames, and sends under a's address.
    let mut tap = segment.link(b.address().mac, 0x24, MTU);
    let messages: Vec<_> = (0..400).map(|number| pattern(number, 20)).collect();
    let mut first = None;
    for (number, message) in messages.iter().enumerate() {
        a.endpoint.send(to_b, &[], message, number as u64).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() > number);
        if number == 0 {
            while let Some(frame) = tap.receive() {
                // The first octet of the control field shows an I PDU.
                first = (frame.bytes[16] & 1 == 0).then(|| frame.bytes.to_vec()).or(first);
            }
        }
        if number % 128 == 127 {
            let replayed = first.as_ref().expect("a frame with data");
            tap.send(&[barewire_link::Outgoing { header: replayed, payload: &[], label: 0 }]).unwrap();
        }
    }
    assert_eq!(b.from(from_a), messages);
    assert_eq!(b.endpoint.counters().unwrap().duplicate, 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sizes, copied and lent, to remote and local peers, with any MTU.
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
        // A copied message must fit one frame.
        let max = a.endpoint.copied_max();
        let fits = |&(head, body, is_lent): &Shape| is_lent || head + body <= max;
        let shapes: Vec<Shape> = shapes.into_iter().filter(fits).collect();
        exchange(&mut a, &mut b, &shapes);
    }
}
