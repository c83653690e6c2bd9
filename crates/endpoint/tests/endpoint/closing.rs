// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing, aborting and reopening of channels.

use std::ptr;
use std::time::Duration;

use barewire_endpoint::{Address, ChannelId, Ending, Priority, Report, SendError};

use crate::common::*;

#[test]
fn everything_sent_before_closing_arrives_and_both_sides_report_the_end() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        for round in 0..3 {
            let (to_b, to_a) = open_channel(&mut a, &mut b);
            let first = round * 10;
            for context in first..first + 9 {
                a.endpoint.send(to_b, &[], &pattern(context, 100), context).unwrap();
            }
            a.lend(to_b, b"last", pattern(first + 9, 700_000), first + 9).unwrap();
            a.endpoint.close(to_b);
            assert_eq!(a.endpoint.send(to_b, &[], &[], 99), Err(SendError::Ended));
            assert_eq!(a.lend(to_b, &[], vec![], 99), Err(SendError::Ended));
            until(&mut [&mut a, &mut b], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
            assert!(a.all_sent(first..first + 10));
            assert_eq!(a.ended, [(to_b, b.address(), Ending::Closed)]);
            assert_eq!(b.ended, [(to_a, a.address(), Ending::PeerClosed)]);
            let received = b.from(to_a);
            assert_eq!(received.len(), 10, "local {is_local}, round {round}");
            assert!((first..).zip(&received[..9]).all(|(seed, received)| *received == pattern(seed, 100)));
            assert!(received[9] == [&b"last"[..], &pattern(first + 9, 700_000)].concat());
            // Closing an ended channel has no effect.
            a.endpoint.close(to_b);
            (a.ended, b.ended) = (vec![], vec![]);
        }
    }
}

#[test]
fn a_channel_can_be_closed_before_it_is_open() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let to_b = a.connect(b.address());
        a.endpoint.close(to_b);
        until(&mut [&mut a, &mut b], "it ends", |sides| !sides[0].ended.is_empty());
        assert_eq!(a.ended, [(to_b, b.address(), Ending::Closed)]);
        // A peer that does not exist.
        let missing = Address { sap: sap(0x44), ..b.address() };
        let to_missing = a.connect(missing);
        a.endpoint.close(to_missing);
        until(&mut [&mut a, &mut b], "it ends", |sides| sides[0].ended.len() == 2);
        assert_eq!(a.ended[1].0, to_missing);
    }
}

/// A process may send, close and exit before its local peer accepts the pipe.
#[test]
fn messages_of_a_local_peer_arrive_after_its_exit() {
    let (mut a, mut b) = pair(true);
    let to_b = a.connect(b.address());
    for context in 0..20 {
        a.endpoint.send(to_b, &[], &[context as u8], context).unwrap();
    }
    assert!(a.endpoint.settle(&mut a.inbox).unwrap());
    let address = a.address();
    drop(a);
    until(&mut [&mut b], "its end is noticed", |sides| !sides[0].ended.is_empty());
    let (from_a, _) = b.opened[0];
    assert_eq!(b.ended, [(from_a, address, Ending::PeerClosed)]);
    assert_eq!(b.from(from_a), (0..20).map(|number| [number]).collect::<Vec<_>>());
}

#[test]
fn settle_returns_true_when_everything_has_arrived() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let to_b = a.connect(b.address());
        assert!(a.endpoint.settle(&mut a.inbox).unwrap(), "nothing was sent");
        a.lend(to_b, &[], pattern(1, 1_000_000), 1).unwrap();
        a.endpoint.send(to_b, &[], b"last", 2).unwrap();
        assert!(!a.endpoint.settle(&mut a.inbox).unwrap());
        until(&mut [&mut b], "it settles", |_| a.endpoint.settle(&mut a.inbox).unwrap());
        a.take();
        assert!(a.all_sent(1..3));
        until(&mut [&mut b], "it is received", |sides| sides[0].received.len() == 2);
    }
}

/// The last message of a job, whose receiver closes on receipt: the sender must learn that it arrived.
#[test]
fn a_receiver_that_closes_acknowledges_first() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, to_a) = open_channel(&mut a, &mut b);
        a.endpoint.send(to_b, &[], b"goodbye", 7).unwrap();
        a.poll();
        until(&mut [&mut b], "it is received", |sides| !sides[0].received.is_empty());
        b.endpoint.close(to_a);
        until(&mut [&mut a, &mut b], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        assert_eq!(a.outcomes[&7], None, "local {is_local}");
    }
}

#[test]
fn both_sides_may_close_at_the_same_time() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, to_a) = open_channel(&mut a, &mut b);
        a.endpoint.close(to_b);
        b.endpoint.close(to_a);
        until(&mut [&mut a, &mut b], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
        assert_eq!((a.ended.len(), b.ended.len()), (1, 1));
    }
}

/// Memory with pages of its own: a read after it is unmapped crashes the test.
struct Pages(*mut libc::c_void);

impl Pages {
    const BYTES: usize = 2 << 20;

    fn new() -> Self {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Self(memory)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.cast(), Self::BYTES) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: all references into it have ended, as the events reported.
        assert_eq!(unsafe { libc::munmap(self.0, Self::BYTES) }, 0);
    }
}

/// The peer disappears without DISC in the middle of long messages: all are reported as failed, and their memory is not
/// read afterwards. Another channel is not affected.
#[test]
fn messages_to_a_dead_peer_fail_and_their_memory_is_free() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut a = side_at(&segment, mac, impatient(0x20));
        let peer_mac = if is_local { mac } else { new_mac() };
        let mut b = side_at(&segment, peer_mac, config(0x24));
        let mut c = side_at(&segment, peer_mac, config(0x28));
        let (to_b, _) = open_channel(&mut a, &mut b);
        let (to_c, _) = open_channel(&mut a, &mut c);
        // It does not take messages, so that many stay outstanding.
        b.takes = false;
        let pages: Vec<Pages> = (0..10).map(|_| Pages::new()).collect();
        for (context, pages) in (0..).zip(&pages) {
            // SAFETY: unmapped after its event.
            unsafe {
                a.endpoint.post_lent(to_b, b"head", pages.bytes(), Priority::Normal, Report::Acknowledged(context))
            }
            .unwrap();
        }
        until(&mut [&mut a, &mut b], "some arrive", |sides| sides[1].inbox.is_empty().eq(&false));
        drop(b);
        a.lend(to_c, &[], pattern(7, 300_000), 100).unwrap();
        until(&mut [&mut a, &mut c], "it ends", |sides| !sides[0].ended.is_empty());
        let expected = if is_local { Ending::PeerClosed } else { Ending::NoAnswer };
        assert_eq!((a.ended[0].0, a.ended[0].2), (to_b, expected));
        let failed = (0..10).filter(|context| a.outcomes[context] == Some(expected)).count();
        assert!(failed >= 5, "{:?}", a.outcomes);
        drop(pages);
        until(&mut [&mut a, &mut c], "the other channel continues", |sides| sides[0].all_sent(100..101));
        for round in 0..50 {
            a.lend(to_c, &[], pattern(round, 20_000), 200 + round).unwrap();
        }
        until(&mut [&mut a, &mut c], "the other channel continues", |sides| sides[0].all_sent(200..250));
        until(&mut [&mut a, &mut c], "the other channel continues", |sides| sides[1].received.len() == 51);
    }
}

/// The same for a channel that was closed locally and waits for the dead peer.
#[test]
fn closing_towards_a_dead_peer_ends_in_bounded_time() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut a = side_at(&segment, mac, impatient(0x20));
        let mut b = side_at(&segment, if is_local { mac } else { new_mac() }, config(0x24));
        let (to_b, _) = open_channel(&mut a, &mut b);
        b.takes = false;
        for context in 0..20 {
            a.lend(to_b, &[], pattern(context, 100_000), context).unwrap();
        }
        a.endpoint.close(to_b);
        run_for(&mut [&mut a, &mut b], Duration::from_millis(2));
        drop(b);
        until(&mut [&mut a], "it ends", |sides| !sides[0].ended.is_empty());
        assert_eq!(a.outcomes.len(), 20);
        assert!(a.outcomes.values().any(Option::is_some));
    }
}

/// A new endpoint at the same address gets a new channel; the old channel ends.
#[test]
fn a_restarted_endpoint_gets_a_new_channel_whichever_side_connects_first() {
    for is_local in [false, true] {
        for is_peer_first in [false, true] {
            let (segment, mac) = (Segment::default(), new_mac());
            let mut a = side_at(&segment, mac, impatient(0x20));
            let peer_mac = if is_local { mac } else { new_mac() };
            let mut b = side_at(&segment, peer_mac, config(0x24));
            let (old, _) = open_channel(&mut a, &mut b);
            a.endpoint.send(old, &[], b"to the old one", 1).unwrap();
            until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].all_sent(1..2));
            drop(b);
            let mut b = side_at(&segment, peer_mac, config(0x24));
            let case = format!("local {is_local}, peer first {is_peer_first}");
            let to_b = if is_peer_first {
                let to_a = b.connect(a.address());
                b.endpoint.send(to_a, &[], b"from the new one", 1).unwrap();
                until(&mut [&mut a, &mut b], "the old one ends", |sides| sides[0].ended.len() == 1);
                until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].received.len() == 1);
                let (channel, peer) = a.opened[0];
                assert_eq!((&a.from(channel)[..], peer), (&[&b"from the new one"[..]][..], b.address()), "{case}");
                assert!(b.ended.is_empty(), "{case}: {:?}", b.ended);
                channel
            } else {
                let _ = a.endpoint.send(old, &[], b"unexpected", 2);
                until(&mut [&mut a, &mut b], "the old one ends", |sides| !sides[0].ended.is_empty());
                a.connect(b.address())
            };
            assert_eq!(a.ended[0].0, old);
            assert!(matches!(a.ended[0].2, Ending::Restarted | Ending::PeerClosed), "{case}: {:?}", a.ended);
            a.endpoint.send(to_b, &[], b"to the new one", 3).unwrap();
            until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[1].received.is_empty());
            assert_eq!(b.received[0].1, b"to the new one", "{case}");
            assert_eq!(a.ended.len(), 1, "{case}");
        }
    }
}

/// The channel is closed and reopened before the peer has noticed, with messages of both channels in flight.
#[test]
fn a_channel_closed_and_reopened_at_once_loses_nothing() {
    for is_local in [false, true] {
        for is_opened_by_peer in [false, true] {
            let (mut a, mut b) = pair(is_local);
            let old: ChannelId =
                if is_opened_by_peer { open_channel(&mut b, &mut a).1 } else { open_channel(&mut a, &mut b).0 };
            for context in 0..100 {
                a.endpoint.send(old, b"old", &[context as u8], context).unwrap();
            }
            a.endpoint.close(old);
            // The peer completes the closing without taking messages from its inbox.
            b.takes = false;
            if is_local {
                until(&mut [&mut a], "it ends here", |sides| sides[0].ended.len() == 1);
            } else {
                b.takes = true;
                until(&mut [&mut a, &mut b], "it ends here", |sides| sides[0].ended.len() == 1);
            }
            let new = a.connect(b.address());
            // The new channel connects while messages of the old one wait for room in the inbox.
            b.takes = false;
            run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
            b.takes = true;
            for context in 100..200 {
                a.endpoint.send(new, b"new", &[context as u8], context).unwrap();
            }
            until(&mut [&mut a, &mut b], "all arrive", |sides| sides[1].received.len() == 200);
            until(&mut [&mut a, &mut b], "the old one ends there", |sides| sides[1].ended.len() == 1);
            let ((from_a, _), (was_from_a, _, _)) = (*b.opened.last().unwrap(), b.ended[0]);
            for (channel, which, numbers) in [(was_from_a, b"old", 0..100_u8), (from_a, b"new", 100..200)] {
                let expected: Vec<Vec<u8>> = numbers.map(|number| [&which[..], &[number]].concat()).collect();
                assert_eq!(b.from(channel), expected, "local {is_local}");
            }
            b.endpoint.send(from_a, &[], b"answer", 300).unwrap();
            until(&mut [&mut a, &mut b], "the answer arrives", |sides| sides[0].received.len() == 1);
            assert_eq!(a.from(new), [b"answer"]);
        }
    }
}

/// A peer starts and connects just after this side has given up its own attempt to reach it.
#[test]
fn a_local_peer_that_connects_to_a_closed_channel_gets_one_of_its_own() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut a = side_at(&segment, mac, config(0x20));
    let to_b = a.connect(Address { sap: sap(0x24), ..a.address() });
    a.endpoint.close(to_b);
    let mut b = side_at(&segment, mac, config(0x24));
    let to_a = b.connect(a.address());
    b.endpoint.send(to_a, &[], b"there", 1).unwrap();
    until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[0].received.is_empty());
    assert_eq!(a.ended, [(to_b, b.address(), Ending::Closed)]);
    let (from_b, _) = a.opened[0];
    a.endpoint.send(from_b, &[], b"and back", 2).unwrap();
    until(&mut [&mut a, &mut b], "the answer arrives", |sides| !sides[1].received.is_empty());
    assert!(b.ended.is_empty());
}
