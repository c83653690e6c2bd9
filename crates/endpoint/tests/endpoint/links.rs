// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link that no longer works is an error in every call that needs it, and never a panic; and the counters.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use barewire_endpoint::{Address, Class, Config, Ending, EndpointCounters, EndpointError};
use barewire_link::{Counters, Faults, Incoming, Link, LinkError, MacAddress, MemoryLink, Outgoing};

use crate::common::*;

fn is_gone<T>(result: &Result<T, EndpointError>) -> bool {
    matches!(result, Err(EndpointError::Link(LinkError::InterfaceGone(_))))
}

#[test]
fn calls_that_need_a_removed_interface_report_it() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), config(0x20));
    let mut b = side_at(&segment, new_mac(), config(0x24));
    let (to_b, _) = open_channel(&mut a, &mut b);
    a.lend(to_b, &[], pattern(1, 1_000_000), 1).unwrap();
    segment.set_fault(a.address().mac, 0x20, Some(LinkFault::Gone));
    // Accepted, or refused for lack of room; the next call of `progress` reports the error.
    let _ = a.endpoint.send(to_b, &[], b"copied", 2);
    let _ = a.lend(to_b, &[], pattern(3, 100_000), 3);
    assert!(is_gone(&a.endpoint.check()));
    assert!(is_gone(&a.endpoint.sleep(Duration::from_secs(60))) || is_gone(&a.endpoint.sleep(Duration::from_secs(60))));
    assert!(is_gone(&a.endpoint.send_datagram(b.address(), Class::Unreliable, b"hello", 4)));
    let mut reported = 0;
    for _ in 0..1000 {
        reported += u32::from(is_gone(&a.endpoint.progress(&mut a.inbox)));
        let _ = a.endpoint.settle(&mut a.inbox);
        std::thread::sleep(Duration::from_micros(50));
    }
    assert!(reported > 0);
    // Further calls do no harm.
    a.endpoint.close(to_b);
    let _ = a.endpoint.connect(Address { mac: new_mac(), ..b.address() });
    let _ = a.endpoint.progress(&mut a.inbox);
    a.take();
}

/// The sender's link, then the receiver's, goes down in the middle of a message, and comes up again within the timeout.
#[test]
fn a_link_that_is_down_for_a_while_loses_no_message() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), config(0x20));
    let mut b = side_at(&segment, new_mac(), config(0x24));
    let (to_b, _) = open_channel(&mut a, &mut b);
    for (number, mac, sap) in [(1, a.address().mac, 0x20), (2, b.address().mac, 0x24)] {
        let message = pattern(number, 1_000_000);
        a.lend(to_b, &[], message.clone(), number).unwrap();
        for _ in 0..3 {
            a.poll();
            b.poll();
        }
        segment.set_fault(mac, sap, Some(LinkFault::Down));
        let end = std::time::Instant::now() + Duration::from_millis(300);
        while std::time::Instant::now() < end {
            a.poll();
            b.poll();
            a.endpoint.check().unwrap();
            b.endpoint.sleep(Duration::from_micros(100)).unwrap();
            let _ = a.endpoint.send_datagram(b.address(), Class::Unreliable, b"lost", 0).unwrap();
        }
        assert!(!a.outcomes.contains_key(&number));
        segment.set_fault(mac, sap, None);
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() as u64 == number);
        assert!(b.received[number as usize - 1].1 == message);
    }
    until(&mut [&mut a, &mut b], "it is acknowledged", |sides| sides[0].all_sent(1..3));
    assert!(a.ended.is_empty() && b.ended.is_empty());
}

/// With data outstanding, the first polls follow each other quickly: they must not use up N2 before the timeout.
#[test]
fn a_peer_is_given_up_after_the_timeout_and_not_before() {
    let timeout = Duration::from_millis(1600);
    let segment = Segment::default();
    let impatient = |byte| {
        let mut config = config(byte);
        config.set_dead_peer_timeout(timeout);
        config
    };
    let mut a = side_at(&segment, new_mac(), impatient(0x20));
    let mut b = side_at(&segment, new_mac(), impatient(0x24));
    let (to_b, _) = open_channel(&mut a, &mut b);
    // A round trip makes T1 short.
    a.endpoint.send(to_b, &[], b"short", 1).unwrap();
    until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].all_sent(1..2));
    segment.cut_off(b.address().mac, 0x24, true);
    a.lend(to_b, &[], pattern(2, 100_000), 2).unwrap();
    let began = std::time::Instant::now();
    while began.elapsed() < timeout * 3 / 4 {
        a.poll();
        assert!(a.ended.is_empty(), "given up after {:?}", began.elapsed());
    }
    segment.cut_off(b.address().mac, 0x24, false);
    until(&mut [&mut a, &mut b], "it continues", |sides| sides[0].all_sent(1..3));
    segment.cut_off(b.address().mac, 0x24, true);
    a.lend(to_b, &[], pattern(3, 100_000), 3).unwrap();
    let began = std::time::Instant::now();
    until(&mut [&mut a], "it is given up", |sides| !sides[0].ended.is_empty());
    assert!(began.elapsed() < timeout * 2, "after {:?}", began.elapsed());
    assert_eq!(a.outcomes[&3], Some(Ending::NoAnswer));
}

/// A link on which frames arrive faster than they can be received.
struct Flooded(SegmentLink, Vec<u8>);

impl Link for Flooded {
    fn address(&self) -> MacAddress {
        self.0.address()
    }

    fn mtu(&self) -> usize {
        self.0.mtu()
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.0.send(frames)
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        Some(Incoming { bytes: &self.1, frame_bytes: self.1.len(), vlan: None })
    }

    fn wait_to_receive_or(&mut self, _: &[BorrowedFd<'_>], _: Duration) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        self.0.wait_to_send(timeout)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.0.check()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.0.counters()
    }
}

/// Any number of unauthenticated frames leaves time for other work.
#[test]
fn an_endless_flood_does_not_keep_progress_from_returning() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut frame = vec![0; 60];
    (frame[13], frame[14], frame[15], frame[16]) = (3, 0x20, 0x24, 0x7f);
    let mut a = Side::new(Flooded(segment.link(mac, 0x20, MTU), frame), impatient(0x20));
    let missing = Address { mac: new_mac(), ..a.address() };
    a.connect(missing);
    until(&mut [&mut a], "it notices that the peer does not answer", |sides| !sides[0].ended.is_empty());
    assert!(a.endpoint.counters().unwrap().damaged > 1000);
}

/// Local peers do not depend on the link.
#[test]
fn an_endpoint_without_its_link_reaches_local_peers_until_it_checks_the_link() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut a = side_at(&segment, mac, config(0x20));
    let mut b = side_at(&segment, mac, config(0x24));
    let (to_b, _) = open_channel(&mut a, &mut b);
    segment.set_fault(mac, 0x20, Some(LinkFault::Gone));
    a.lend(to_b, &[], pattern(1, 1_000_000), 1).unwrap();
    until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].all_sent(1..2));
    assert!(is_gone(&a.endpoint.check()));
}

#[test]
fn a_link_whose_other_end_is_closed_is_an_error() {
    let (a, b) = MemoryLink::pair(MTU, Faults::default(), 1);
    let config = |byte| Config { local: None, ..config(byte) };
    let (mut a, mut b) = (Side::new(a, config(0x20)), Side::new(b, config(0x24)));
    let (to_b, _) = open_channel(&mut a, &mut b);
    a.lend(to_b, &[], pattern(1, 100_000), 1).unwrap();
    drop(b);
    assert!(is_gone(&a.endpoint.check()));
    // Frames in flight are received first.
    let error = (0..10).find_map(|_| {
        let _ = a.endpoint.progress(&mut a.inbox);
        a.take();
        a.endpoint.sleep(Duration::from_secs(60)).err()
    });
    assert!(is_gone::<()>(&Err(error.unwrap())));
    let _ = a.endpoint.send(to_b, &[], b"copied", 2);
    assert!(is_gone(&a.endpoint.settle(&mut a.inbox)) || is_gone(&a.endpoint.settle(&mut a.inbox)));
}

/// A peer is disconnected for a moment, and then for good.
#[test]
fn a_short_disconnection_is_bridged_and_a_long_one_reported() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), impatient(0x20));
    let mut b = side_at(&segment, new_mac(), impatient(0x24));
    let (to_b, to_a) = open_channel(&mut a, &mut b);
    let at = (b.address().mac, 0x24);
    a.lend(to_b, &[], pattern(1, 300_000), 1).unwrap();
    segment.cut_off(at.0, at.1, true);
    run_for(&mut [&mut a, &mut b], Duration::from_millis(30));
    segment.cut_off(at.0, at.1, false);
    until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].all_sent(1..2));
    assert!(b.from(to_a)[0] == pattern(1, 300_000));
    segment.cut_off(at.0, at.1, true);
    // Neither side sends anything: the end is noticed all the same.
    until(&mut [&mut a, &mut b], "both end", |sides| sides.iter().all(|side| !side.ended.is_empty()));
}

#[test]
fn counters_of_channels_that_have_ended_are_kept() {
    let faults = Faults { loss: 0.05, duplication: 0.05, ..Faults::default() };
    let (a, b) = MemoryLink::pair(MTU, faults, 3);
    let config = |byte| Config { local: None, ..config(byte) };
    let (mut a, mut b) = (Side::new(a, config(0x20)), Side::new(b, config(0x24)));
    assert_eq!(a.endpoint.counters().unwrap(), EndpointCounters::default());
    let mut before = EndpointCounters::default();
    for round in 0..3 {
        let (to_b, _) = open_channel(&mut a, &mut b);
        a.lend(to_b, &[], pattern(round, 300_000), round).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].all_sent(round..round + 1));
        let during = a.endpoint.counters().unwrap();
        assert!(during.repeated > before.repeated, "round {round}: {during:?}");
        a.endpoint.close(to_b);
        until(&mut [&mut a, &mut b], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        before = a.endpoint.counters().unwrap();
        assert_eq!(before.repeated, during.repeated, "nothing is counted twice");
        (a.ended, b.ended) = (vec![], vec![]);
    }
    assert!(b.endpoint.counters().unwrap().duplicate > 0);
}
