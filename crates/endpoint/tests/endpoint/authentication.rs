// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Authenticated and encrypted frames: without the secret, nobody can forge, modify, replay or read them.

use std::collections::HashSet;
use std::time::Duration;

use barewire_endpoint::{Address, Authentication, Class, Config, Ending, Secret};
use barewire_link::{Link, Outgoing};

use crate::common::sealing::{Parts, SECRET, authentication};
use crate::common::*;

const WRONG: &[u8] = b"a secret that the job's ranks hav!";

fn sealed(byte: u8, encrypts: bool) -> Config {
    Config { authentication: Some(authentication(encrypts)), ..config(byte) }
}

/// Two sides on different hosts, and links that receive copies of their frames.
fn sealed_pair(encrypts: bool) -> (Side, Side, [SegmentLink; 2]) {
    let segment = Segment::default();
    let a = side_at(&segment, new_mac(), sealed(0x20, encrypts));
    let b = side_at(&segment, new_mac(), sealed(0x24, encrypts));
    let taps = [&a, &b].map(|side| segment.link(side.address().mac, side.address().sap.byte(), MTU));
    (a, b, taps)
}

fn captured(tap: &mut SegmentLink) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| tap.receive().map(|frame| frame.bytes.to_vec())).collect()
}

fn inject(link: &mut SegmentLink, frame: &[u8]) {
    link.send(&[Outgoing { header: frame, payload: &[], label: 0 }]).unwrap();
}

/// State of a side that peers can change, except for the counters of discarded frames.
fn state(side: &mut Side) -> impl PartialEq + std::fmt::Debug + use<> {
    let counters = side.endpoint.counters().unwrap();
    (side.received.len(), side.opened.len(), side.ended.len(), counters.malformed, counters.duplicate)
}

/// Injects frames, each of which a side must count as unauthentic or not LLC; nothing else may change.
fn assert_all_are_rejected(side: &mut Side, link: &mut SegmentLink, frames: &[Vec<u8>], what: &str) {
    let before = state(side);
    let count = |side: &mut Side| {
        let counters = side.endpoint.counters().unwrap();
        counters.foreign + counters.unauthenticated
    };
    for frames in frames.chunks(500) {
        let expected = count(side) + frames.len() as u64;
        frames.iter().for_each(|frame| inject(link, frame));
        until(&mut [&mut *side], what, |sides| count(sides[0]) >= expected);
        assert_eq!(count(side), expected, "{what}");
    }
    assert_eq!(state(side), before, "{what}");
}

/// I, RR, RNR, REJ, SABME, UA, DM, DISC, FRMR, UI, XID, TEST, AC0 and AC1.
const KINDS: [(&str, &[u8]); 15] = [
    ("I", &[0x00, 0x01]),
    ("RR", &[0x01, 0x01]),
    ("RNR", &[0x05, 0x00]),
    ("REJ", &[0x09, 0x00]),
    ("SABME", &[0x7f]),
    ("UA", &[0x73]),
    ("DM", &[0x1f]),
    ("DISC", &[0x53]),
    ("FRMR", &[0x97, 0, 0, 0, 0, 0]),
    ("UI", &[0x03]),
    ("XID", &[0xbf, 0x81, 0x0f, 0x7e]),
    ("TEST", &[0xf3]),
    ("TEST", &[0xf3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    ("AC0", &[0x77]),
    ("AC1", &[0xf7]),
];

/// All that a station without the secret can make from an authentic frame and that the receiver's link accepts: each
/// bit flipped, each truncation, and seals with another secret, mode or counter.
fn forgeries(parts: &Parts, encrypts: bool, to: Address) -> Vec<Vec<u8>> {
    let frame = parts.frame(SECRET, encrypts);
    let covered = parts.covered();
    assert_eq!(frame.len(), covered);
    let mut forged = vec![
        parts.frame(WRONG, encrypts),
        parts.frame(SECRET, !encrypts),
        Parts { counter: parts.counter + 1, ..parts.clone() }.frame(WRONG, encrypts),
    ];
    for bit in 0..8 * covered {
        let mut changed = frame.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        forged.push(changed);
    }
    let padded = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        frame.resize(frame.len().max(60), 0);
        frame
    };
    forged.extend((15..covered).map(|bytes| frame[..bytes].to_vec()).filter(|cut| padded(cut) != padded(&frame)));
    // A switch and the link's filter deliver only these.
    forged.retain(|frame| {
        (frame[..6] == to.mac || frame[0] & 1 == 1) && (frame[14] == to.sap.byte() || frame[14] & 1 == 1)
    });
    forged
}

/// Proves that a frame of any kind that was forged, modified or truncated without the secret is only counted: without a
/// connection, while data flows, and while an acknowledgement is outstanding. The forgeries are made from authentic
/// frames, which the next test shows to be accepted.
#[test]
fn forged_modified_and_truncated_frames_of_every_kind_change_nothing() {
    for encrypts in [false, true] {
        let (mut a, mut b, [mut tap, _]) = sealed_pair(encrypts);
        let (at, from) = (a.address(), b.address());
        let mut attacker = a.endpoint.link().segment().link(new_mac(), 0x30, MTU);
        let forged = |mark: u64| {
            let kinds = KINDS.iter().flat_map(|kind| [(kind, 0), (kind, 1)]);
            kinds.map(move |((name, control), response)| {
                let parts = Parts { counter: 1 << 40, ..Parts::new(from, at, response, control, mark) };
                (*name, forgeries(&parts, encrypts, at))
            })
        };
        for (name, frames) in forged(1) {
            assert_all_are_rejected(&mut a, &mut attacker, &frames, name);
        }
        let sent = a.endpoint.link().frames_sent();
        assert_eq!(sent, 0, "no frame is answered");
        let (to_b, from_a) = open_channel(&mut a, &mut b);
        b.endpoint.send(from_a, &[], b"hello", 1).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].received.len() == 1 && sides[1].all_sent(1..2));
        // The mark is readable in each frame.
        let mark =
            captured(&mut tap).iter().find(|frame| frame[16] & 1 == 0).map(|frame| Parts::of(frame).0.mark()).unwrap();
        for (name, frames) in forged(mark) {
            assert_all_are_rejected(&mut a, &mut attacker, &frames, name);
        }
        // Not acknowledged: an accepted RR or REJ would acknowledge it.
        a.endpoint.send(to_b, &[], b"unacknowledged", 2).unwrap();
        for (name, frames) in forged(mark) {
            assert_all_are_rejected(&mut a, &mut attacker, &frames, name);
        }
        assert!(!a.outcomes.contains_key(&2) && a.ended.is_empty());
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 1 && sides[0].all_sent(2..3));
    }
}

/// Proves that frames of each kind made with the secret, by the documents alone, are accepted; and that repeated I and
/// S PDUs are counted as replayed.
#[test]
fn frames_with_the_documented_seal_are_accepted_once() {
    for encrypts in [false, true] {
        let (mut a, mut b, [mut tap, _]) = sealed_pair(encrypts);
        let (at, from) = (a.address(), b.address());
        let mut attacker = a.endpoint.link().segment().link(new_mac(), 0x30, MTU);
        let (_, from_a) = open_channel(&mut a, &mut b);
        b.endpoint.send(from_a, &[], b"hello", 1).unwrap();
        assert_eq!(b.endpoint.send_datagram(at, Class::Unreliable, b"datagram", 2).unwrap(), Ok(()));
        until(&mut [&mut a, &mut b], "they arrive", |sides| sides[0].received.len() == 2 && sides[1].all_sent(1..2));
        let frames: Vec<_> = captured(&mut tap).iter().map(|frame| Parts::of(frame).0).collect();
        let last_of =
            |control: u8, mask: u8| frames.iter().rfind(|parts| parts.llc[2] & mask == control).unwrap().clone();
        let (information, datagram) = (last_of(0, 1), last_of(3, 0xff));
        let unauthenticated = a.endpoint.counters().unwrap().unauthenticated;
        let mut accept = |parts: &Parts, a: &mut Side, what: &str| {
            let sent = a.endpoint.link().frames_sent();
            inject(&mut attacker, &parts.frame(SECRET, encrypts));
            (0..200).for_each(|_| _ = a.poll());
            let counters = a.endpoint.counters().unwrap();
            assert_eq!(counters.unauthenticated, unauthenticated, "{what}");
            (a.endpoint.link().frames_sent() - sent, counters.replayed)
        };
        // A UI PDU is delivered; XID and TEST are answered.
        let datagram_mark = datagram.mark();
        let again = Parts { counter: 7, information: Some(b"by hand".to_vec()), ..datagram };
        accept(&again, &mut a, "UI");
        assert_eq!(a.received.pop().unwrap().1, b"by hand");
        for (name, control) in [("XID", KINDS[10].1), ("TEST", KINDS[12].1)] {
            let parts = Parts::new(from, at, 0, control, datagram_mark);
            assert_eq!(accept(&parts, &mut a, name).0, 1, "{name}");
        }
        // An AC0 PDU is delivered and answered.
        let parts = Parts::new(from, at, 0, &[0x67], datagram_mark);
        assert_eq!(accept(&parts, &mut a, "AC0").0, 1);
        assert_eq!(a.received.pop().unwrap().1, parts.information.unwrap());
        // A poll is answered, but not its replay.
        let rounds = information.extension[8..].to_vec();
        let poll =
            Parts { counter: information.counter + 500, ..Parts::new(from, at, 0, &[0x01, 0x01], information.mark()) };
        let (answers, replayed) = accept(&poll, &mut a, "RR");
        assert_eq!((answers, replayed), (1, 0));
        assert_eq!(accept(&poll, &mut a, "RR again"), (0, 1));
        // An I PDU with the next N(S) is delivered.
        let next = Parts {
            counter: information.counter + 501,
            llc: vec![at.sap.byte(), from.sap.byte(), information.llc[2] + 2, information.llc[3]],
            extension: [&information.mark().to_be_bytes()[..], &rounds].concat(),
            information: Some([&[3, 0, 0, 0, 8][..], b"the next"].concat()),
            ..information
        };
        accept(&next, &mut a, "I");
        assert_eq!(a.received.pop().unwrap().1, b"the next");
        assert_eq!(accept(&next, &mut a, "I again").1, 2);
        assert_eq!(a.received.len(), 2, "the first two");
        // DISC ends the connection.
        accept(&Parts::new(from, at, 0, &[0x53], next.mark()), &mut a, "DISC");
        assert_eq!(a.ended.len(), 1);
    }
}

/// Proves that each frame of an exchange has the documented seal; that no counter repeats on a connection, even in
/// retransmissions; and that information is readable without encryption, and with it only with the secret.
#[test]
fn all_frames_are_sealed_and_encrypted_information_is_readable_only_with_the_secret() {
    const TEXT: &[u8] = b"confidential text of a message";
    for encrypts in [false, true] {
        let (mut a, mut b, mut taps) = sealed_pair(encrypts);
        let (to_b, from_a) = open_channel(&mut a, &mut b);
        let text = |bytes: usize| TEXT.iter().copied().cycle().take(bytes).collect::<Vec<u8>>();
        let lengths: Vec<usize> = (0..200).chain([1000, 1400, 1440, 1460, 1500, 3000, 20_000, 100_000]).collect();
        let mut frames = Vec::new();
        for (context, &bytes) in (0..).zip(&lengths) {
            let copied = bytes <= a.endpoint.copied_max() && bytes % 2 == 0;
            match copied {
                true => a.endpoint.send(to_b, b"head", &text(bytes), context).unwrap(),
                false => a.lend(to_b, b"head", text(bytes), context).unwrap(),
            }
            b.endpoint.send(from_a, &[], &text(bytes % 300), context).unwrap();
            until(&mut [&mut a, &mut b], "it arrives", |sides| {
                sides
                    .iter()
                    .all(|side| side.received.len() as u64 == context + 1 && side.all_sent(context..context + 1))
            });
            assert!(b.received.last().unwrap().1 == [b"head", &text(bytes)[..]].concat(), "{bytes} bytes");
            assert!(a.received.last().unwrap().1 == text(bytes % 300), "{bytes} bytes");
            frames.extend(taps.iter_mut().flat_map(captured));
        }
        for (context, class) in [(1000, Class::Unreliable), (1001, Class::Acknowledged)] {
            let before = b.received.len();
            until(&mut [&mut a, &mut b], "it is taken", |sides| {
                sides[0].endpoint.send_datagram(sides[1].address(), class, &text(500), context).unwrap().is_ok()
            });
            until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() > before);
            assert_eq!(b.received.last().unwrap().1, text(500));
            frames.extend(taps.iter_mut().flat_map(captured));
        }
        let (mut counters, mut kinds, mut read) = (HashSet::new(), HashSet::new(), 0);
        for frame in &frames {
            let is_readable = frame.windows(TEXT.len()).any(|window| window == TEXT);
            let (parts, tag) = Parts::of(frame);
            let opened = parts.opened(tag, SECRET, encrypts).unwrap_or_else(|| panic!("{parts:?}"));
            assert!(parts.opened(tag, WRONG, encrypts).is_none());
            let has_text = opened.windows(TEXT.len()).any(|window| window == TEXT);
            assert_eq!(is_readable, has_text && !encrypts, "{parts:?}");
            read += usize::from(has_text);
            let is_numbered = parts.llc[2] & 3 != 3;
            assert!(counters.insert((is_numbered, parts.from, parts.mark(), parts.counter)), "twice: {parts:?}");
            kinds.insert(if parts.llc[2] & 1 == 0 { 0 } else { parts.llc[2] & !0x10 });
        }
        // I, RR, SABME, UA, UI, AC0.
        for kind in [0, 0x01, 0x6f, 0x63, 0x03] {
            assert!(kinds.contains(&kind), "{kind:#x} of {kinds:x?}");
        }
        assert!(kinds.contains(&0x67) || kinds.contains(&0xe7), "{kinds:x?}");
        assert!(read > 100, "{read}");
    }
}

/// Proves that a frame that is replayed after the sequence numbers have wrapped is not delivered again: by the mark,
/// and with authentication by the counter.
#[test]
fn a_frame_replayed_after_the_sequence_numbers_wrap_is_rejected() {
    const NUMBERS: u64 = 128 * 128;
    for authenticated in [false, true] {
        let segment = Segment::default();
        let config = |byte| Config { authentication: authenticated.then(|| authentication(false)), ..config(byte) };
        let mut a = side_at(&segment, new_mac(), config(0x20));
        let mut b = side_at(&segment, new_mac(), config(0x24));
        let (to_b, _) = open_channel(&mut a, &mut b);
        let mut tap = segment.link(b.address().mac, 0x24, MTU);
        a.endpoint.send(to_b, &[], b"pay once", 0).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 1 && sides[0].all_sent(0..1));
        let old = captured(&mut tap).into_iter().find(|frame| frame[16] & 1 == 0).unwrap();
        drop(tap);
        let mut context = 1;
        while context < NUMBERS {
            let end = (context + 60).min(NUMBERS);
            (context..end).for_each(|context| a.endpoint.send(to_b, &[], b"other", context).unwrap());
            until(&mut [&mut a, &mut b], "they arrive", |sides| sides[0].all_sent(context..end));
            context = end;
        }
        let mut attacker = segment.link(new_mac(), 0x30, MTU);
        inject(&mut attacker, &old);
        run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
        let counters = b.endpoint.counters().unwrap();
        assert_eq!(b.received.len() as u64, NUMBERS, "{counters:?}");
        assert_eq!((counters.replayed, counters.unauthenticated), if authenticated { (1, 0) } else { (0, 1) });
        assert!(b.received.last().unwrap().1 == b"other");
    }
}

/// Proves that all replayed frames of a connection are counted and change nothing, in it and in the next one; and that
/// a frame cannot be reflected to its sender.
#[test]
fn replayed_and_reflected_frames_change_nothing() {
    for encrypts in [false, true] {
        let (mut a, mut b, [mut tap_a, mut tap_b]) = sealed_pair(encrypts);
        let (to_b, from_a) = open_channel(&mut a, &mut b);
        for context in 0..50 {
            a.endpoint.send(to_b, &[], b"to b", context).unwrap();
            b.endpoint.send(from_a, &[], b"to a", context).unwrap();
            if context % 10 == 0 {
                run_for(&mut [&mut a, &mut b], Duration::from_millis(1));
            }
        }
        until(&mut [&mut a, &mut b], "they arrive", |sides| {
            sides.iter().all(|side| side.received.len() == 50 && side.all_sent(0..50))
        });
        run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
        let (to_a, to_b_frames) = (captured(&mut tap_a), captured(&mut tap_b));
        let numbered = |frames: &[Vec<u8>]| frames.iter().filter(|frame| frame[16] & 3 != 3).count() as u64;
        let before = [state(&mut a), state(&mut b)];
        for frame in to_a.iter().chain(&to_b_frames) {
            inject(&mut tap_a, frame);
        }
        run_for(&mut [&mut a, &mut b], Duration::from_millis(20));
        assert_eq!(before, [state(&mut a), state(&mut b)]);
        let replayed = [&mut a, &mut b].map(|side| side.endpoint.counters().unwrap().replayed);
        assert_eq!(replayed, [numbered(&to_a), numbered(&to_b_frames)]);
        // Reflected to the sender, in the name of the receiver.
        let unauthenticated = b.endpoint.counters().unwrap().unauthenticated;
        for frame in &to_a {
            let back = [
                &frame[6..12],
                &frame[..6],
                &frame[12..14],
                &[frame[15] & 0xfe, frame[14] | frame[15] & 1],
                &frame[16..],
            ];
            inject(&mut tap_b, &back.concat());
        }
        run_for(&mut [&mut a, &mut b], Duration::from_millis(20));
        assert_eq!(b.endpoint.counters().unwrap().unauthenticated, unauthenticated + to_a.len() as u64);
        assert_eq!(before, [state(&mut a), state(&mut b)]);
        // The next connection has other keys.
        a.endpoint.close(to_b);
        until(&mut [&mut a, &mut b], "both ended", |sides| sides.iter().all(|side| side.ended.len() == 1));
        let (again, _) = open_channel(&mut a, &mut b);
        for frame in to_b_frames.iter().filter(|frame| frame[16] & 3 != 3) {
            inject(&mut tap_b, frame);
        }
        run_for(&mut [&mut a, &mut b], Duration::from_millis(20));
        assert_eq!((b.received.len(), b.ended.len(), a.ended.len()), (50, 1, 1));
        a.endpoint.send(again, &[], b"of the second", 50).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 51);
    }
}

/// Proves that endpoints with different secrets or modes ignore each other, whichever starts, and count the frames.
#[test]
fn endpoints_with_different_secrets_or_modes_ignore_each_other() {
    let wrong = || Authentication { secret: Secret::new(WRONG).unwrap(), encrypts: false };
    for other in [None, Some(wrong()), Some(authentication(true))] {
        for is_first in [false, true] {
            let segment = Segment::default();
            let first = Some(authentication(false));
            let [of_a, of_b] = if is_first { [first, other.clone()] } else { [other.clone(), first] };
            let mut a = side_at(&segment, new_mac(), Config { authentication: of_a, ..impatient(0x20) });
            let mut b = side_at(&segment, new_mac(), Config { authentication: of_b, ..impatient(0x24) });
            let to_b = a.connect(b.address());
            let _ = a.endpoint.send(to_b, &[], b"message", 1);
            let _ = a.endpoint.send_datagram(b.address(), Class::Unreliable, b"datagram", 2).unwrap();
            until(&mut [&mut a, &mut b], "it ends", |sides| !sides[0].ended.is_empty());
            assert_eq!(a.ended[0].2, Ending::NeverAnswered);
            assert!(b.opened.is_empty() && b.received.is_empty());
            let counters = b.endpoint.counters().unwrap();
            assert!(counters.unauthenticated + counters.damaged > 1, "{counters:?}");
        }
    }
}

/// Proves that a network that corrupts, loses, duplicates and reorders frames causes retransmissions and no wrong byte:
/// corrupted frames have no valid seal, retransmissions have a new one, and duplicates are accepted once.
#[test]
fn corrupted_and_lost_frames_are_retransmitted_with_another_counter() {
    for seed in 0..8 {
        let config = Config { local: None, ..sealed(0x20, seed % 2 == 1) };
        let counters = counters_over_a_bad_network(&config, seed);
        let sum = |field: fn(&barewire_endpoint::EndpointCounters) -> u64| counters.iter().map(field).sum::<u64>();
        assert!(
            sum(|counters| counters.unauthenticated) > 0
                && sum(|counters| counters.repeated) > 0
                && sum(|counters| counters.replayed) > 0,
            "{counters:?}"
        );
        assert_eq!(sum(|counters| counters.damaged), 0, "there is no check");
    }
}

/// Sends more forged SABMEs than there is room for channels.
#[test]
fn a_flood_of_forged_connection_requests_leaves_no_state() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), Config { channels: 2, ..sealed(0x20, false) });
    let mut forger = segment.link(new_mac(), 0x28, MTU);
    for number in 0..5000_u16 {
        let [x, y] = number.to_be_bytes();
        let from = Address::new([6, 0, 0, 0, x, y], sap((number as u8 & 0x7e) + 2));
        inject(&mut forger, &Parts::new(from, a.address(), 0, &[0x7f], 5).frame(WRONG, false));
        if number % 500 == 499 {
            until(&mut [&mut a], "they are counted", |sides| {
                sides[0].endpoint.counters().unwrap().unauthenticated == u64::from(number) + 1
            });
        }
    }
    assert_eq!(a.endpoint.link().frames_sent(), 0);
    for byte in [0x30, 0x34] {
        open_channel(&mut side_at(&segment, new_mac(), sealed(byte, false)), &mut a);
    }
}

/// Proves that local peers, which the kernel identifies by their user, send no frames, with or without authentication.
#[test]
fn local_peers_exchange_no_frames_with_or_without_authentication() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut a = side_at(&segment, mac, sealed(0x20, true));
    let mut b = side_at(&segment, mac, sealed(0x24, true));
    let (to_b, _) = open_channel(&mut a, &mut b);
    a.endpoint.send(to_b, &[], b"local", 1).unwrap();
    until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 1);
    assert_eq!(a.endpoint.link().frames_sent() + b.endpoint.link().frames_sent(), 0);
}
