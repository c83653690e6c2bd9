// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening of channels, and its failures.

use std::time::{Duration, Instant};

use barewire_endpoint::{Address, Config, ConnectError, Ending, Endpoint, EndpointError, SendError, is_taken};
use barewire_shm::{PipeConfig, ShmError};

use crate::common::*;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

#[test]
fn two_sides_that_connect_at_the_same_time_share_one_channel() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, to_a) = (a.connect(b.address()), b.connect(a.address()));
        for number in 0..100 {
            a.endpoint.send(to_b, b"a", &[number], number.into()).unwrap();
            b.endpoint.send(to_a, b"b", &[number], number.into()).unwrap();
        }
        until(&mut [&mut a, &mut b], "all arrive", |sides| sides.iter().all(|side| side.all_sent(0..100)));
        until(&mut [&mut a, &mut b], "all arrive", |sides| sides.iter().all(|side| side.received.len() == 100));
        for (side, channel, letter) in [(&a, to_b, b'b'), (&b, to_a, b'a')] {
            assert!(side.opened.is_empty() && side.ended.is_empty());
            let expected: Vec<Vec<u8>> = (0..100).map(|number| vec![letter, number]).collect();
            assert_eq!(side.from(channel), expected);
        }
        // Closing it ends it on both sides.
        a.endpoint.close(to_b);
        until(&mut [&mut a, &mut b], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        assert_eq!((a.ended[0].2, b.ended[0].2), (Ending::Closed, Ending::PeerClosed));
    }
}

/// The peer's connection request has arrived, but its event was not processed yet.
#[test]
fn connecting_while_the_peer_connects_returns_the_peers_channel() {
    let (mut a, mut b) = pair(false);
    let to_b = a.connect(b.address());
    a.endpoint.send(to_b, &[], b"from a", 1).unwrap();
    for _ in 0..10 {
        a.poll();
        // Something is received in each call of `progress`, which defers the engine's events.
        b.endpoint.send_datagram(b.address(), barewire_endpoint::Class::Unreliable, b"to itself", 0).unwrap().unwrap();
        b.poll();
        let to_a = b.connect(a.address());
        assert_eq!(b.connect(a.address()), to_a);
    }
    let to_a = b.connect(a.address());
    b.endpoint.send(to_a, &[], b"from b", 1).unwrap();
    until(&mut [&mut a, &mut b], "both arrive", |sides| sides.iter().all(|side| side.all_sent(1..2)));
    until(&mut [&mut a, &mut b], "both arrive", |sides| !sides[0].received.is_empty() && sides[1].received.len() == 11);
    assert_eq!((a.from(to_b), b.from(to_a)), (vec![&b"from b"[..]], vec![&b"from a"[..]]));
    assert!(a.ended.is_empty() && b.ended.is_empty());
}

#[test]
fn connecting_again_returns_the_existing_channel() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, to_a) = open_channel(&mut a, &mut b);
        assert_eq!((a.connect(b.address()), b.connect(a.address())), (to_b, to_a));
        assert_eq!((a.endpoint.peer(to_b), b.endpoint.peer(to_a)), (Some(b.address()), Some(a.address())));
    }
}

#[test]
fn an_endpoint_can_send_to_itself() {
    let mut side = side_at(&Segment::default(), new_mac(), config(0x20));
    let own = side.address();
    let channel = side.connect(own);
    side.endpoint.send(channel, b"to ", b"myself", 1).unwrap();
    side.lend(channel, b"long", pattern(3, 500_000), 2).unwrap();
    until(&mut [&mut side], "it arrives", |sides| sides[0].received.len() == 2 && sides[0].all_sent(1..3));
    let expected = [b"to myself".to_vec(), [&b"long"[..], &pattern(3, 500_000)].concat()];
    assert!(side.from(channel) == expected);
    side.endpoint.close(channel);
    until(&mut [&mut side], "it ends", |sides| !sides[0].ended.is_empty());
    assert_eq!(side.ended, [(channel, own, Ending::Closed)]);
    assert!(side.opened.is_empty());
    let channel = side.connect(own);
    side.endpoint.send(channel, &[], b"again", 3).unwrap();
    until(&mut [&mut side], "it arrives", |sides| sides[0].received.len() == 3);
}

#[test]
fn a_local_peer_that_starts_later_gets_messages_sent_before() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut a = side_at(&segment, mac, config(0x20));
    let peer = Address::new(mac, sap(0x24));
    let to_b = a.connect(peer);
    a.endpoint.send(to_b, b"early", &[], 1).unwrap();
    a.lend(to_b, &[], pattern(1, 50_000), 2).unwrap();
    run_for(&mut [&mut a], Duration::from_millis(20));
    assert!(a.outcomes.is_empty() && a.ended.is_empty());
    let mut b = side_at(&segment, mac, config(0x24));
    until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 2 && sides[0].all_sent(1..3));
    assert!(b.received[0].1 == b"early" && b.received[1].1 == pattern(1, 50_000));
}

/// A local peer and a remote one, with a token, so that no other endpoint answers for them.
#[test]
fn the_channel_to_a_peer_that_never_starts_ends_in_bounded_time() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), Config { connect_timeout: CONNECT_TIMEOUT, ..impatient(0x20) });
    let local_peer = Address { sap: sap(0x24), ..a.address() };
    let remote = Address::new(new_mac(), sap(0x24));
    let began = Instant::now();
    let channels = [local_peer, remote].map(|peer| (a.connect(peer), peer));
    for (number, (channel, _)) in (0..).zip(channels) {
        a.endpoint.send(channel, &[], b"copied", 2 * number).unwrap();
        a.lend(channel, &[], pattern(0, 10_000), 2 * number + 1).unwrap();
    }
    until(&mut [&mut a], "both end", |sides| sides[0].ended.len() == 2);
    assert!(began.elapsed() >= CONNECT_TIMEOUT);
    for (channel, peer) in channels {
        assert!(a.ended.contains(&(channel, peer, Ending::NeverAnswered)), "{:?}", a.ended);
        assert_eq!(a.endpoint.send(channel, &[], &[], 9), Err(SendError::Ended));
        assert_eq!(a.endpoint.peer(channel), None);
    }
    assert!((0..4).all(|context| a.outcomes[&context] == Some(Ending::NeverAnswered)));
}

#[test]
fn an_endpoint_that_does_not_accept_may_still_connect() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut a = side_at(&segment, mac, Config { connect_timeout: CONNECT_TIMEOUT, ..impatient(0x20) });
        let peer_mac = if is_local { mac } else { new_mac() };
        let mut b = side_at(&segment, peer_mac, Config { accepts: false, ..config(0x24) });
        let to_b = a.connect(b.address());
        until(&mut [&mut a, &mut b], "it is refused", |sides| !sides[0].ended.is_empty());
        assert_eq!(a.ended[0].0, to_b);
        assert!(matches!(a.ended[0].2, Ending::Refused | Ending::PeerClosed), "{:?}", a.ended);
        assert!(b.opened.is_empty() && b.ended.is_empty());
        let to_a = b.connect(a.address());
        b.endpoint.send(to_a, &[], b"me first", 1).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[0].received.is_empty());
    }
}

#[test]
fn the_number_of_channels_is_limited_as_configured() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut hub = side_at(&segment, mac, Config { channels: 3, ..config(0x20) });
        let host = |number: u8| if is_local { mac } else { [mac[0], mac[1], mac[2], mac[3], mac[4] ^ 0x80, number] };
        let spoke_at = |number: u8| side_at(&segment, host(number), impatient(0x40 + 2 * number));
        let mut spokes: Vec<Side> = (0..4).map(spoke_at).collect();
        for spoke in &mut spokes[..3] {
            open_channel(spoke, &mut hub);
        }
        let last = spokes[3].address();
        assert_eq!(hub.endpoint.connect(last), Err(ConnectError::Full(last)));
        let (hub_address, fourth) = (hub.address(), &mut spokes[3]);
        fourth.connect(hub_address);
        until(&mut [fourth, &mut hub], "it is refused", |sides| !sides[0].ended.is_empty());
        assert!(matches!(spokes[3].ended[0].2, Ending::Refused | Ending::PeerClosed), "{:?}", spokes[3].ended);
        // After one channel has ended there is room for another.
        let (gone, _) = hub.opened[0];
        hub.endpoint.close(gone);
        let mut first = spokes.remove(0);
        until(&mut [&mut hub, &mut first], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        open_channel(spokes.last_mut().unwrap(), &mut hub);
    }
}

#[test]
fn an_address_on_a_host_belongs_to_one_endpoint_at_a_time() {
    let (segment, mac) = (Segment::default(), new_mac());
    let first = side_at(&segment, mac, config(0x20));
    let second = Endpoint::open(segment.link(mac, 0x20, MTU), config(0x20), None);
    assert!(matches!(second, Err(EndpointError::Shm(ShmError::NameTaken(_)))));
    let address = first.address();
    assert!(is_taken(address));
    drop(first);
    assert!(!is_taken(address));
    side_at(&segment, mac, config(0x20));
}

/// Configurations that would fail later are refused at once.
#[test]
fn configurations_that_cannot_work_are_refused() {
    let segment = Segment::default();
    let open = |config: Config, mtu| Endpoint::open(segment.link(new_mac(), 0x20, mtu), config, None).err();
    assert!(matches!(open(config(0x20), 60), Some(EndpointError::MtuTooSmall { mtu: 60, .. })));
    assert!(matches!(open(Config { channels: 0, ..config(0x20) }, MTU), Some(EndpointError::Config(_))));
    let ring = |ring_bytes| Config { local: Some(PipeConfig { ring_bytes }), ..config(0x20) };
    let page = page_bytes();
    let Some(EndpointError::Ring { ring_bytes, room, needed }) = open(ring(page), page) else {
        panic!("it is too small")
    };
    assert_eq!((ring_bytes, room, needed), (page, page / 4 - 8, page - 17));
    for ring_bytes in [0, 300_000, 1 << 30] {
        let error = open(ring(ring_bytes), MTU);
        assert!(matches!(error, Some(EndpointError::Shm(ShmError::RingBytes { .. }))), "{ring_bytes}");
    }
    assert!(open(ring(2 * page), MTU).is_none());
    let (smallest, mac) = (Endpoint::open(segment.link(new_mac(), 0x20, 88), config(0x20), None), new_mac());
    assert!(smallest.is_ok(), "an MTU of 88 has room for a head of 64 bytes and one byte of body");
    assert!(matches!(
        Endpoint::open(segment.link(mac, 0x20, 9000), config(0x20), Some(87)),
        Err(EndpointError::MtuTooSmall { mtu: 87, least: 88 })
    ));
}

/// The initiator chooses the size of a pipe; one that is too small for the acceptor's messages is refused.
#[test]
fn a_local_peer_with_a_pipe_that_is_too_small_is_refused() {
    let (segment, mac) = (Segment::default(), new_mac());
    let page = page_bytes();
    let small = Config { local: Some(PipeConfig { ring_bytes: page }), ..config(0x20) };
    let mut a = Side::new(segment.link(mac, 0x20, 500), small);
    let mut b = Side::new(segment.link(mac, 0x24, page), config(0x24));
    a.connect(b.address());
    until(&mut [&mut a, &mut b], "it ends", |sides| !sides[0].ended.is_empty());
    assert_eq!(a.ended[0].2, Ending::PeerClosed);
    assert!(b.opened.is_empty());
    // In the other direction the pipe is b's and large enough.
    open_channel(&mut b, &mut a);
}
