// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Authenticated and encrypted frames: who has not the secret can forge, change, repeat and read nothing.

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

/// Two on hosts of their own, and what hears what each hears.
fn two_sealed(encrypts: bool) -> (Side, Side, [SegmentLink; 2]) {
    let segment = Segment::default();
    let a = side_at(&segment, new_mac(), sealed(0x20, encrypts));
    let b = side_at(&segment, new_mac(), sealed(0x24, encrypts));
    let taps = [&a, &b].map(|side| segment.link(side.address().mac, side.address().sap.byte(), MTU));
    (a, b, taps)
}

fn heard(tap: &mut SegmentLink) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| tap.receive().map(|frame| frame.bytes.to_vec())).collect()
}

fn throw(link: &mut SegmentLink, frame: &[u8]) {
    link.send(&[Outgoing { header: frame, payload: &[] }]).unwrap();
}

/// What a side has, as far as others can change it: but for frames that were counted and thrown away.
fn state(side: &mut Side) -> impl PartialEq + std::fmt::Debug + use<> {
    let counters = side.endpoint.counters().unwrap();
    (side.received.len(), side.opened.len(), side.ended.len(), counters.malformed, counters.duplicate)
}

/// Throws frames that a side must count as not authentic, or as no frames of LLC, each once; nothing else may change.
fn all_are_refused(side: &mut Side, link: &mut SegmentLink, frames: &[Vec<u8>], what: &str) {
    let before = state(side);
    let count = |side: &mut Side| {
        let counters = side.endpoint.counters().unwrap();
        counters.foreign + counters.unauthenticated
    };
    for frames in frames.chunks(500) {
        let expected = count(side) + frames.len() as u64;
        frames.iter().for_each(|frame| throw(link, frame));
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

/// Everything that a station without the secret can make of an authentic frame: each bit changed, each end cut off, the seal of
/// another secret, of another mode, of nobody, with another counter or tag; where the side hears it.
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
    // A switch, and the link's filter, deliver nothing else.
    forged.retain(|frame| {
        (frame[..6] == to.mac || frame[0] & 1 == 1) && (frame[14] == to.sap.byte() || frame[14] & 1 == 1)
    });
    forged
}

/// Proves that no frame that was forged, changed or cut by somebody without the secret does anything but be counted, of every
/// kind, while nobody is connected, while data flows, and while an acknowledgement is awaited. Each is made from what is
/// authentic, of which the next test shows that it is believed.
#[test]
fn every_kind_of_frame_that_was_forged_changed_or_cut_changes_nothing() {
    for encrypts in [false, true] {
        let (mut a, mut b, [mut tap, _]) = two_sealed(encrypts);
        let (at, from) = (a.address(), b.address());
        let mut thrower = a.endpoint.link().segment().link(new_mac(), 0x30, MTU);
        let forged = |mark: u64| {
            let kinds = KINDS.iter().flat_map(|kind| [(kind, 0), (kind, 1)]);
            kinds.map(move |((name, control), response)| {
                let parts = Parts { counter: 1 << 40, ..Parts::new(from, at, response, control, mark) };
                (*name, forgeries(&parts, encrypts, at))
            })
        };
        for (name, frames) in forged(1) {
            all_are_refused(&mut a, &mut thrower, &frames, name);
        }
        let sent = a.endpoint.link().frames_sent();
        assert_eq!(sent, 0, "none is answered");
        let (to_b, from_a) = join(&mut a, &mut b);
        b.endpoint.send(from_a, &[], b"hello", 1).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].received.len() == 1 && sides[1].all_sent(1..2));
        // Its mark is in each frame, for all to see.
        let mark =
            heard(&mut tap).iter().find(|frame| frame[16] & 1 == 0).map(|frame| Parts::of(frame).0.mark()).unwrap();
        for (name, frames) in forged(mark) {
            all_are_refused(&mut a, &mut thrower, &frames, name);
        }
        // Sent, and not acknowledged: an RR or REJ that is believed would say that it is.
        a.endpoint.send(to_b, &[], b"are you there?", 2).unwrap();
        for (name, frames) in forged(mark) {
            all_are_refused(&mut a, &mut thrower, &frames, name);
        }
        assert!(!a.outcomes.contains_key(&2) && a.ended.is_empty());
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 1 && sides[0].all_sent(2..3));
    }
}

/// Proves that what somebody with the secret makes by the documents alone is believed, of each kind; and once: the same I and S
/// PDUs again are counted as such.
#[test]
fn what_has_the_seal_that_the_documents_say_is_believed() {
    for encrypts in [false, true] {
        let (mut a, mut b, [mut tap, _]) = two_sealed(encrypts);
        let (at, from) = (a.address(), b.address());
        let mut thrower = a.endpoint.link().segment().link(new_mac(), 0x30, MTU);
        let (_, from_a) = join(&mut a, &mut b);
        b.endpoint.send(from_a, &[], b"hello", 1).unwrap();
        assert_eq!(b.endpoint.send_datagram(at, Class::Unreliable, b"datagram", 2).unwrap(), Ok(()));
        until(&mut [&mut a, &mut b], "they arrive", |sides| sides[0].received.len() == 2 && sides[1].all_sent(1..2));
        let frames: Vec<_> = heard(&mut tap).iter().map(|frame| Parts::of(frame).0).collect();
        let of = |control: u8, mask: u8| frames.iter().rfind(|parts| parts.llc[2] & mask == control).unwrap().clone();
        let (information, datagram) = (of(0, 1), of(3, 0xff));
        let unauthenticated = a.endpoint.counters().unwrap().unauthenticated;
        let mut believe = |parts: &Parts, a: &mut Side, what: &str| {
            let sent = a.endpoint.link().frames_sent();
            throw(&mut thrower, &parts.frame(SECRET, encrypts));
            (0..200).for_each(|_| _ = a.turn());
            let counters = a.endpoint.counters().unwrap();
            assert_eq!(counters.unauthenticated, unauthenticated, "{what}");
            (a.endpoint.link().frames_sent() - sent, counters.replayed)
        };
        // A datagram comes; XID and TEST are answered.
        let datagram_mark = datagram.mark();
        let again = Parts { counter: 7, information: Some(b"by hand".to_vec()), ..datagram };
        believe(&again, &mut a, "UI");
        assert_eq!(a.received.pop().unwrap().1, b"by hand");
        for (name, control) in [("XID", KINDS[10].1), ("TEST", KINDS[12].1)] {
            let parts = Parts::new(from, at, 0, control, datagram_mark);
            assert_eq!(believe(&parts, &mut a, name).0, 1, "{name}");
        }
        // An acknowledged one is delivered and answered.
        let parts = Parts::new(from, at, 0, &[0x67], datagram_mark);
        assert_eq!(believe(&parts, &mut a, "AC0").0, 1);
        assert_eq!(a.received.pop().unwrap().1, parts.information.unwrap());
        // A poll is answered once, although it comes twice.
        let rounds = information.extension[8..].to_vec();
        let poll =
            Parts { counter: information.counter + 500, ..Parts::new(from, at, 0, &[0x01, 0x01], information.mark()) };
        let (answers, replayed) = believe(&poll, &mut a, "RR");
        assert_eq!((answers, replayed), (1, 0));
        assert_eq!(believe(&poll, &mut a, "RR again"), (0, 1));
        // The next number of the connection is a message; then nothing but the number changes.
        let next = Parts {
            counter: information.counter + 501,
            llc: vec![at.sap.byte(), from.sap.byte(), information.llc[2] + 2, information.llc[3]],
            extension: [&information.mark().to_be_bytes()[..], &rounds].concat(),
            information: Some([&[3, 0, 0, 0, 8][..], b"the next"].concat()),
            ..information
        };
        believe(&next, &mut a, "I");
        assert_eq!(a.received.pop().unwrap().1, b"the next");
        assert_eq!(believe(&next, &mut a, "I again").1, 2);
        assert_eq!(a.received.len(), 2, "the first two");
        // And a DISC with the secret ends it.
        believe(&Parts::new(from, at, 0, &[0x53], next.mark()), &mut a, "DISC");
        assert_eq!(a.ended.len(), 1);
    }
}

/// Proves that each frame of a conversation carries the seal that the documents describe, that of a connection no counter comes
/// twice, although frames are sent again, and that the information of messages and datagrams is what it says: readable
/// without encryption, and then, with it, only for who has the secret.
#[test]
fn all_frames_are_sealed_and_what_is_encrypted_is_readable_for_who_has_the_secret_only() {
    const SAID: &[u8] = b"that nobody else shall read";
    for encrypts in [false, true] {
        let (mut a, mut b, mut taps) = two_sealed(encrypts);
        let (to_b, from_a) = join(&mut a, &mut b);
        let text = |bytes: usize| SAID.iter().copied().cycle().take(bytes).collect::<Vec<u8>>();
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
            frames.extend(taps.iter_mut().flat_map(heard));
        }
        for (context, class) in [(1000, Class::Unreliable), (1001, Class::Acknowledged)] {
            let before = b.received.len();
            until(&mut [&mut a, &mut b], "it is taken", |sides| {
                sides[0].endpoint.send_datagram(sides[1].address(), class, &text(500), context).unwrap().is_ok()
            });
            until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() > before);
            assert_eq!(b.received.last().unwrap().1, text(500));
            frames.extend(taps.iter_mut().flat_map(heard));
        }
        let (mut counters, mut kinds, mut read) = (HashSet::new(), HashSet::new(), 0);
        for frame in &frames {
            let is_readable = frame.windows(SAID.len()).any(|window| window == SAID);
            let (parts, tag) = Parts::of(frame);
            let opened = parts.opened(tag, SECRET, encrypts).unwrap_or_else(|| panic!("{parts:?}"));
            assert!(parts.opened(tag, WRONG, encrypts).is_none());
            let says = opened.windows(SAID.len()).any(|window| window == SAID);
            assert_eq!(is_readable, says && !encrypts, "{parts:?}");
            read += usize::from(says);
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

/// Proves what the counters are for: a frame that is kept until the numbers have come round is delivered a second time without
/// authentication, and counted with it.
#[test]
fn a_frame_of_sixteen_thousand_numbers_ago_is_no_message_again() {
    const NUMBERS: u64 = 128 * 128;
    for authenticated in [false, true] {
        let segment = Segment::default();
        let config = |byte| Config { authentication: authenticated.then(|| authentication(false)), ..config(byte) };
        let mut a = side_at(&segment, new_mac(), config(0x20));
        let mut b = side_at(&segment, new_mac(), config(0x24));
        let (to_b, _) = join(&mut a, &mut b);
        let mut tap = segment.link(b.address().mac, 0x24, MTU);
        a.endpoint.send(to_b, &[], b"pay once", 0).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 1 && sides[0].all_sent(0..1));
        let old = heard(&mut tap).into_iter().find(|frame| frame[16] & 1 == 0).unwrap();
        drop(tap);
        let mut context = 1;
        while context < NUMBERS {
            let end = (context + 60).min(NUMBERS);
            (context..end).for_each(|context| a.endpoint.send(to_b, &[], b"other", context).unwrap());
            until(&mut [&mut a, &mut b], "they arrive", |sides| sides[0].all_sent(context..end));
            context = end;
        }
        let mut thrower = segment.link(new_mac(), 0x30, MTU);
        throw(&mut thrower, &old);
        for_some_time(&mut [&mut a, &mut b], Duration::from_millis(5));
        let counters = b.endpoint.counters().unwrap();
        assert_eq!(b.received.len() as u64, NUMBERS + u64::from(!authenticated), "{counters:?}");
        assert_eq!(counters.replayed, u64::from(authenticated));
        assert!(b.received.last().unwrap().1 == if authenticated { &b"other"[..] } else { b"pay once" });
    }
}

/// Proves that all frames of a connection that come again while it lasts are counted and change nothing, and that they go on
/// changing nothing in the next connection; what was sent to the one cannot be sent back to the other either.
#[test]
fn frames_that_come_again_or_come_back_change_nothing() {
    for encrypts in [false, true] {
        let (mut a, mut b, [mut of_a, mut of_b]) = two_sealed(encrypts);
        let (to_b, from_a) = join(&mut a, &mut b);
        for context in 0..50 {
            a.endpoint.send(to_b, &[], b"to b", context).unwrap();
            b.endpoint.send(from_a, &[], b"to a", context).unwrap();
            if context % 10 == 0 {
                for_some_time(&mut [&mut a, &mut b], Duration::from_millis(1));
            }
        }
        until(&mut [&mut a, &mut b], "they arrive", |sides| {
            sides.iter().all(|side| side.received.len() == 50 && side.all_sent(0..50))
        });
        for_some_time(&mut [&mut a, &mut b], Duration::from_millis(5));
        let (to_a, to_b_frames) = (heard(&mut of_a), heard(&mut of_b));
        let numbered = |frames: &[Vec<u8>]| frames.iter().filter(|frame| frame[16] & 3 != 3).count() as u64;
        let before = [state(&mut a), state(&mut b)];
        for frame in to_a.iter().chain(&to_b_frames) {
            throw(&mut of_a, frame);
        }
        for_some_time(&mut [&mut a, &mut b], Duration::from_millis(20));
        assert_eq!(before, [state(&mut a), state(&mut b)]);
        let replayed = [&mut a, &mut b].map(|side| side.endpoint.counters().unwrap().replayed);
        assert_eq!(replayed, [numbered(&to_a), numbered(&to_b_frames)]);
        // Back to its sender, in the name of whom it was for.
        let unauthenticated = b.endpoint.counters().unwrap().unauthenticated;
        for frame in &to_a {
            let back = [
                &frame[6..12],
                &frame[..6],
                &frame[12..14],
                &[frame[15] & 0xfe, frame[14] | frame[15] & 1],
                &frame[16..],
            ];
            throw(&mut of_b, &back.concat());
        }
        for_some_time(&mut [&mut a, &mut b], Duration::from_millis(20));
        assert_eq!(b.endpoint.counters().unwrap().unauthenticated, unauthenticated + to_a.len() as u64);
        assert_eq!(before, [state(&mut a), state(&mut b)]);
        // The next connection has other keys.
        a.endpoint.close(to_b);
        until(&mut [&mut a, &mut b], "both ended", |sides| sides.iter().all(|side| side.ended.len() == 1));
        let (again, _) = join(&mut a, &mut b);
        for frame in to_b_frames.iter().filter(|frame| frame[16] & 3 != 3) {
            throw(&mut of_b, frame);
        }
        for_some_time(&mut [&mut a, &mut b], Duration::from_millis(20));
        assert_eq!((b.received.len(), b.ended.len(), a.ended.len()), (50, 1, 1));
        a.endpoint.send(again, &[], b"of the second", 50).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 51);
    }
}

/// Proves that endpoints that are not authenticated alike hear nothing of each other, whoever begins, and that both count it.
#[test]
fn another_secret_another_mode_or_none_is_heard_by_nobody() {
    let wrong = || Authentication { secret: Secret::new(WRONG).unwrap(), encrypts: false };
    for other in [None, Some(wrong()), Some(authentication(true))] {
        for begins in [false, true] {
            let segment = Segment::default();
            let first = Some(authentication(false));
            let [one, two] = if begins { [first, other.clone()] } else { [other.clone(), first] };
            let mut a = side_at(&segment, new_mac(), Config { authentication: one, ..impatient(0x20) });
            let mut b = side_at(&segment, new_mac(), Config { authentication: two, ..impatient(0x24) });
            let to_b = a.connect(b.address());
            let _ = a.endpoint.send(to_b, &[], b"let me in", 1);
            let _ = a.endpoint.send_datagram(b.address(), Class::Unreliable, b"psst", 2).unwrap();
            until(&mut [&mut a, &mut b], "it ends", |sides| !sides[0].ended.is_empty());
            assert_eq!(a.ended[0].2, Ending::NoAnswer);
            assert!(b.opened.is_empty() && b.received.is_empty());
            let counters = b.endpoint.counters().unwrap();
            assert!(counters.unauthenticated + counters.damaged > 1, "{counters:?}");
        }
    }
}

/// Proves that a network that changes, loses, repeats and reorders frames costs repetitions and no byte: what was changed has
/// no right seal, what is sent again has a new one, and what is repeated is believed once.
#[test]
fn what_was_changed_or_lost_is_sent_again_with_another_counter() {
    for seed in 0..8 {
        let config = Config { local: None, ..sealed(0x20, seed % 2 == 1) };
        let counters = counters_over_a_bad_network(&config, seed);
        let sum = |of: fn(&barewire_endpoint::EndpointCounters) -> u64| counters.iter().map(of).sum::<u64>();
        assert!(
            sum(|of| of.unauthenticated) > 0 && sum(|of| of.repeated) > 0 && sum(|of| of.replayed) > 0,
            "{counters:?}"
        );
        assert_eq!(sum(|of| of.damaged), 0, "there is no check");
    }
}

/// More of them than there is room for channels: a forged SABME takes none.
#[test]
fn a_flood_of_forged_connections_leaves_nothing() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), Config { channels: 2, ..sealed(0x20, false) });
    let mut forger = segment.link(new_mac(), 0x28, MTU);
    for number in 0..5000_u16 {
        let [x, y] = number.to_be_bytes();
        let from = Address::new([6, 0, 0, 0, x, y], sap((number as u8 & 0x7e) + 2));
        throw(&mut forger, &Parts::new(from, a.address(), 0, &[0x7f], 5).frame(WRONG, false));
        if number % 500 == 499 {
            until(&mut [&mut a], "they have come", |sides| {
                sides[0].endpoint.counters().unwrap().unauthenticated == u64::from(number) + 1
            });
        }
    }
    assert_eq!(a.endpoint.link().frames_sent(), 0);
    for byte in [0x30, 0x34] {
        join(&mut side_at(&segment, new_mac(), sealed(byte, false)), &mut a);
    }
}

/// Proves that peers of one host, which the kernel tells apart by their user, send no frames, with or without authentication.
#[test]
fn peers_of_one_host_need_none() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut a = side_at(&segment, mac, sealed(0x20, true));
    let mut b = side_at(&segment, mac, sealed(0x24, true));
    let (to_b, _) = join(&mut a, &mut b);
    a.endpoint.send(to_b, &[], b"beside you", 1).unwrap();
    until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 1);
    assert_eq!(a.endpoint.link().frames_sent() + b.endpoint.link().frames_sent(), 0);
}
