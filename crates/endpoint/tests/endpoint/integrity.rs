// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Corrupted data is never delivered, and a peer without an endpoint's cookie cannot reach it.

use std::time::Duration;

use barewire_endpoint::{Address, Class, Config, Ending, Framing};
use barewire_link::{Link, Outgoing};

use crate::common::*;

/// Proves that a network that corrupts, loses, duplicates and reorders frames causes retransmissions and no wrong byte.
/// Without the check, corrupted messages would be delivered.
#[test]
fn corrupted_frames_are_retransmitted() {
    for seed in 0..8 {
        let config = Config { local: None, checks_all: true, ..config(0x20) };
        let damaged: u64 = counters_over_a_bad_network(&config, seed).iter().map(|counters| counters.damaged).sum();
        assert!(damaged > 0, "seed {seed}: no frame was corrupted");
    }
}

fn with_cookie(byte: u8, cookie: u64) -> Config {
    Config { framing: Framing::default(), cookie, ..impatient(byte) }
}

/// Proves that an endpoint without a job token accepts only peers that have its address, and can connect back to them.
#[test]
fn a_peer_without_the_cookie_gets_no_channel_and_delivers_no_datagram() {
    for is_local in [false, true] {
        let segment = Segment::default();
        let mac = new_mac();
        let mut a = side_at(&segment, mac, with_cookie(0x20, 0x5eed));
        let peer_mac = if is_local { mac } else { new_mac() };
        let config = Config { connect_timeout: Duration::from_millis(50), ..with_cookie(0x24, 0xfeed) };
        let mut b = side_at(&segment, peer_mac, config);
        for cookie in [0, 0x5eee] {
            let guessed = Address { cookie, ..a.address() };
            let _ = b.endpoint.send_datagram(guessed, Class::Unreliable, b"datagram", 1).unwrap();
            b.connect(guessed);
            until(&mut [&mut a, &mut b], "it ends", |sides| !sides[1].ended.is_empty());
            let (_, _, ending) = b.ended.pop().unwrap();
            assert!(matches!(ending, Ending::NeverAnswered | Ending::PeerClosed), "{ending:?}");
            assert!(a.opened.is_empty() && a.received.is_empty(), "local {is_local}");
        }
        assert!(a.endpoint.counters().unwrap().unauthenticated > 0);
        let (to_a, from_b) = open_channel(&mut b, &mut a);
        b.endpoint.send(to_a, &[], b"hello", 2).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[0].received.is_empty());
        let (_, peer) = a.opened[0];
        assert_eq!(peer.cookie, 0xfeed, "the cookie of b");
        a.endpoint.close(from_b);
        until(&mut [&mut a, &mut b], "both ended", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        let back = a.connect(peer);
        a.endpoint.send(back, &[], b"again", 3).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[1].received.is_empty());
    }
}

/// Proves that a new connection has new marks: frames recorded from the previous one change nothing.
#[test]
fn frames_of_an_earlier_channel_are_rejected_by_the_next() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), config(0x20));
    let mut b = side_at(&segment, new_mac(), config(0x24));
    // Receives copies of b's frames.
    let mut tap = segment.link(b.address().mac, 0x24, MTU);
    let (to_b, _) = open_channel(&mut a, &mut b);
    for context in 0..20 {
        a.endpoint.send(to_b, &[], b"of the first channel", context).unwrap();
    }
    until(&mut [&mut a, &mut b], "they arrive", |sides| sides[1].received.len() == 20 && sides[0].all_sent(0..20));
    a.endpoint.close(to_b);
    until(&mut [&mut a, &mut b], "both ended", |sides| sides.iter().all(|side| !side.ended.is_empty()));
    let frames: Vec<_> = std::iter::from_fn(|| tap.receive().map(|frame| frame.bytes.to_vec())).collect();
    let (again, _) = open_channel(&mut a, &mut b);
    for frame in &frames {
        tap.send(&[Outgoing { header: frame, payload: &[], label: 0 }]).unwrap();
    }
    run_for(&mut [&mut a, &mut b], Duration::from_millis(50));
    assert_eq!((b.received.len(), a.ended.len(), b.ended.len()), (20, 1, 1));
    a.endpoint.send(again, &[], b"of the second", 20).unwrap();
    until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 21);
    assert!(frames.len() > 20 && b.endpoint.counters().unwrap().unauthenticated >= 20);
}
