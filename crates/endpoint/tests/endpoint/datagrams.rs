// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams of both classes: type 1 and type 3 over the link, and their equivalents between local peers.

use std::time::Duration;

use barewire_endpoint::{Address, Class, Config, Ending, Inbox, InboxConfig, Origin, SendError};

use crate::common::*;

/// Sends a datagram, retrying until it is accepted: the first of type 3 waits until no peer remembers an earlier
/// endpoint at this address.
fn send(sides: &mut [&mut Side], to: Address, class: Class, body: &[u8], context: u64) {
    until(sides, "it is accepted", |sides| match sides[0].endpoint.send_datagram(to, class, body, context).unwrap() {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error, SendError::Full);
            false
        }
    });
}

#[test]
fn datagrams_of_all_sizes_arrive_once_with_their_origin() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (from, to) = (a.address(), b.address());
        let max = a.endpoint.datagram_max();
        let mut context = 0;
        for class in [Class::Unreliable, Class::Acknowledged] {
            for bytes in [0, 1, 42, 192, 193, max] {
                send(&mut [&mut a, &mut b], to, class, &pattern(context, bytes), context);
                until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() as u64 == context + 1);
                let (origin, received) = b.received.last().unwrap();
                assert_eq!(*origin, Origin::Datagram(from, class));
                assert!(*received == pattern(context, bytes), "{bytes} bytes, local {is_local}");
                context += 1;
            }
            let too_long = a.endpoint.send_datagram(to, class, &vec![0; max + 1], 99).unwrap();
            assert_eq!(too_long, Err(SendError::TooLong { bytes: max + 1, most: max }));
        }
        // Only acknowledged datagrams are reported.
        until(&mut [&mut a, &mut b], "they are reported", |sides| sides[0].all_sent(6..12));
        run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
        assert_eq!((a.outcomes.len(), b.received.len()), (6, 12));
    }
}

#[test]
fn a_datagram_without_receiver_opens_no_channel_and_an_acknowledged_one_fails() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), Config { connect_timeout: Duration::from_millis(20), ..config(0x20) });
    let local_peer = Address { sap: sap(0x24), ..a.address() };
    let remote = Address::new(new_mac(), sap(0x24));
    for (context, to) in [(1, local_peer), (3, remote)] {
        send(&mut [&mut a], to, Class::Unreliable, b"datagram", context);
        send(&mut [&mut a], to, Class::Acknowledged, b"datagram", context + 1);
        until(&mut [&mut a], "it fails", |sides| sides[0].outcomes.contains_key(&(context + 1)));
        assert_eq!(a.outcomes[&(context + 1)], Some(Ending::NoAnswer));
    }
    run_for(&mut [&mut a], Duration::from_millis(50));
    assert_eq!(a.outcomes.len(), 2);
    assert!(a.opened.is_empty() && a.ended.is_empty());
}

#[test]
fn only_one_acknowledged_datagram_to_a_peer_is_outstanding() {
    let (mut a, mut b) = pair(false);
    let to = b.address();
    send(&mut [&mut a, &mut b], to, Class::Acknowledged, b"first", 1);
    assert_eq!(a.endpoint.send_datagram(to, Class::Acknowledged, b"second", 2).unwrap(), Err(SendError::Full));
    until(&mut [&mut a, &mut b], "it is reported", |sides| sides[0].all_sent(1..2));
    send(&mut [&mut a, &mut b], to, Class::Acknowledged, b"second", 2);
    until(&mut [&mut a, &mut b], "it is reported", |sides| sides[0].all_sent(1..3));
    assert_eq!(b.received.len(), 2);
}

/// Refused datagrams take no slot and no descriptor, and the link does not hear of them.
#[test]
fn refused_datagrams_leak_nothing() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), Config { slots: 4, send_descriptors: 4, ..config(0x20) });
    let mut b = side_at(&segment, new_mac(), config(0x24));
    let to = b.address();
    for context in 0..20 {
        send(&mut [&mut a, &mut b], to, Class::Acknowledged, b"one", context);
        for _ in 0..10 {
            assert_eq!(a.endpoint.send_datagram(to, Class::Acknowledged, b"more", 99).unwrap(), Err(SendError::Full));
        }
        until(&mut [&mut a, &mut b], "it is reported", |sides| sides[0].all_sent(0..context + 1));
    }
    assert_eq!(a.endpoint.link().peers_named(), 20);
    let (to_b, _) = open_channel(&mut a, &mut b);
    for context in 100..104 {
        a.endpoint.send(to_b, &[], b"message", context).unwrap();
    }
    assert_eq!(a.endpoint.send(to_b, &[], b"one too many", 104), Err(SendError::Full));
    until(&mut [&mut a, &mut b], "they are sent", |sides| sides[0].all_sent(100..104));
}

/// An inbox without room drops datagrams and counts them; its channels lose nothing.
#[test]
fn datagrams_without_room_are_dropped_and_counted() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        b.inbox =
            Inbox::new(&InboxConfig { receive_descriptors: 3, buffers: 0, buffer_bytes: 0, ..InboxConfig::default() });
        let (to_b, from_a) = open_channel(&mut a, &mut b);
        b.takes = false;
        let to = b.address();
        for number in 0..10 {
            send(&mut [&mut a, &mut b], to, Class::Unreliable, &[number], 0);
        }
        until(&mut [&mut a, &mut b], "they arrive or are lost", |sides| sides[1].inbox.lost_datagrams == 7);
        a.endpoint.send(to_b, &[], b"message", 1).unwrap();
        run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
        b.takes = true;
        until(&mut [&mut a, &mut b], "the message arrives", |sides| sides[1].received.len() == 4);
        assert_eq!(b.from(from_a), [b"message"]);
    }
}
