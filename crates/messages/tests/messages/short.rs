// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that take less than the others: sent at once, copied, received without progress.

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{Config, Envelope, Outcome, Part, PeerId, Reaches, ReceiveOptions, ReceivedNext};

use crate::common::*;

/// Its neighbour takes all of it, and may have something to say meanwhile.
#[test]
fn whoever_makes_no_progress_is_refused_before_long() {
    let mut pair = host(Config { sends: 256, ..Config::default() });
    let [to, _] = introduce(&mut pair);
    drive(&mut pair, |pair| pair[0].inject(to, tagged(1), b"first").is_ok());
    drive(&mut pair, |pair| pair[1].unexpected_bytes() > 0);
    for _ in 0..3 {
        let mut sent = 0;
        while pair[0].inject(to, tagged(1), b"more").is_ok() {
            sent += 1;
            assert!(sent < 1000, "it never has to make progress");
            pair[1].progress().unwrap();
        }
        assert!(sent >= 64, "{sent}");
        pair[0].progress().unwrap();
    }
}

/// Beyond the window frames lie in the engine, where nothing but an acknowledgement that is heard gets them out: a program
/// that only sends, and never asks, is to hear it with what it posts next.
#[test]
fn what_waits_for_the_window_is_seen_by_who_posts() {
    let mut pair = wire(Config::default(), &ConnectionConfig::default(), Faults::default(), 1);
    let [to, _] = introduce(&mut pair);
    drive(&mut pair, |pair| pair[0].inject(to, tagged(0), b"first").is_ok());
    drive(&mut pair, |pair| pair[1].unexpected_bytes() > 0);
    idle(&mut pair);
    let mut sent = 0;
    while !pair[0].waits_for_room() {
        pair[0].inject(to, tagged(1), b"more").unwrap();
        sent += 1;
        assert!(sent <= 64, "beyond the window, and nothing waits");
    }
    assert!(sent > 1, "an open window holds nothing up");
    pair[1].progress().unwrap();
    pair[0].progress().unwrap();
    assert!(!pair[0].waits_for_room(), "what was acknowledged opens the window");
}

/// Of any that is copied, whatever completes it: its memory is the caller's again at once.
#[test]
fn what_is_copied_is_completed_as_asked() {
    for (carrier, mut pair) in carriers(Config { inject_bytes: Config::INJECT_BYTES, ..Config::default() }) {
        let [to, from] = introduce(&mut pair);
        let (frame, most) = (pair[0].endpoint().copied_max() - 25, pair[0].inject_max());
        for (number, (length, reaches)) in
            (1..).zip([frame, frame + 1, most].into_iter().flat_map(|length| REACHES.map(|reaches| (length, reaches))))
        {
            let mut message = bytes(length, number);
            drive(&mut pair, |pair| pair[0].send_copy(to, tagged(1), &message, options(number, reaches)).is_ok());
            message.fill(0);
            idle(&mut pair);
            let is_told = pair[0].poll().map(|completion| completion.context) == Some(number);
            assert_eq!(is_told, reaches != Reaches::Receive, "{carrier} {length} {reaches:?}");
            let mut memory = vec![0; length];
            receive(&mut pair[1], exactly(from, 1), &mut memory, 1);
            completion(&mut pair, 1);
            assert!(memory == bytes(length, number), "{carrier} {length} {reaches:?}");
            if !is_told {
                assert_eq!(completion(&mut pair, 0).context, number);
            }
        }
    }
}

/// Its memory is the caller's again at once, also if several frames carry it or it has to be announced.
#[test]
fn what_is_injected_is_copied() {
    for unexpected_bytes in [Config::UNEXPECTED_BYTES, 10_000] {
        for (carrier, mut pair) in
            carriers(Config { unexpected_bytes, inject_bytes: Config::INJECT_BYTES, ..Config::default() })
        {
            let [to, from] = introduce(&mut pair);
            let (frame, most) = (pair[0].endpoint().copied_max() - 25, pair[0].inject_max());
            assert!(most > 2 * frame, "{carrier}");
            let lengths = [0, frame, frame + 1, most].repeat(4);
            for (tag, length) in (0..).zip(&lengths) {
                let mut message = bytes(*length, tag);
                drive(&mut pair, |pair| pair[0].inject(to, tagged(tag), &message).is_ok());
                message.fill(0);
            }
            for (tag, length) in (0..).zip(&lengths) {
                let mut memory = vec![0; *length];
                receive(&mut pair[1], exactly(from, tag), &mut memory, tag);
                assert!(matches!(completion(&mut pair, 1).outcome, Outcome::Received(_)), "{carrier}");
                assert!(memory == bytes(*length, tag), "{carrier}");
            }
            idle(&mut pair);
            assert_eq!((pair[0].poll(), pair[0].counts().sent), (None, 16), "nothing tells of it");
        }
    }
}

/// Both ends of a host, after a message there: the second knows who spoke last.
fn acquainted() -> ([Tested; 2], PeerId, PeerId) {
    let mut pair = host(Config::default());
    let [to, from] = introduce(&mut pair);
    let mut memory = [0; 5];
    receive(&mut pair[1], exactly(from, 1), &mut memory, 1);
    send(&mut pair, 0, to, tagged(1), b"first", options(1, Reaches::Nowhere));
    for of in [0, 1] {
        completion(&mut pair, of);
    }
    (pair, to, from)
}

#[test]
fn a_neighbours_message_is_received_without_progress_and_told_once() {
    let (mut pair, to, from) = acquainted();
    assert_eq!(pair[1].receive_next(), None);
    let mut memory = [0; 8];
    let options = ReceiveOptions { context: 7, note: 3, is_silent: false };
    // SAFETY: nobody looks at `memory` before the receive is completed.
    unsafe { pair[1].receive(exactly(from, 2), &[Part::into(&mut memory)], options) }.unwrap();
    pair[0].inject(to, tagged(2), b"second").unwrap();
    let next = pair[1].receive_next().unwrap();
    let envelope = Envelope { source: from, label: tagged(2), length: 6 };
    assert_eq!(next, ReceivedNext { context: 7, note: 3, envelope });
    assert_eq!(&memory[..6], b"second");
    idle(&mut pair);
    assert_eq!((pair[1].poll(), pair[1].receive_next(), pair[1].counts().received), (None, None, 2));
}

/// What takes more than to be received: progress finds each of them where it was, and nothing is lost or told twice.
#[test]
fn what_takes_more_stays_for_progress() {
    let (mut pair, to, from) = acquainted();
    let mut memory = vec![0; 100_000];
    let long = bytes(100_000, 1);
    let silent = ReceiveOptions { context: 5, is_silent: true, ..ReceiveOptions::default() };
    let loud = ReceiveOptions { context: 5, ..ReceiveOptions::default() };
    for (what, length, room, options, reaches) in [
        ("no receive", 4, None, loud, Reaches::Nowhere),
        ("it is silent", 4, Some(4), silent, Reaches::Nowhere),
        ("it is too short", 4, Some(3), loud, Reaches::Nowhere),
        ("delivery is confirmed", 4, Some(4), loud, Reaches::Receive),
        ("it is announced", 100_000, Some(100_000), loud, Reaches::Nowhere),
    ] {
        let before = pair[1].counts();
        if let Some(room) = room {
            // SAFETY: nobody looks at `memory` before the receive is completed.
            unsafe { pair[1].receive(exactly(from, 2), &[Part::into(&mut memory[..room])], options) }.unwrap();
        }
        send(&mut pair[..1], 0, to, tagged(2), &long[..length], crate::common::options(9, reaches));
        for _ in 0..3 {
            assert_eq!(pair[1].receive_next(), None, "{what}");
        }
        if room.is_none() {
            drive(&mut pair, |pair| pair[1].unexpected_bytes() == length);
            receive(&mut pair[1], exactly(from, 2), &mut memory, 5);
        }
        idle(&mut pair);
        let told = std::iter::from_fn(|| pair[1].poll()).count();
        assert_eq!(told, usize::from(!options.is_silent), "{what}");
        let after = pair[1].counts();
        assert_eq!(after.received + after.receives_failed, before.received + before.receives_failed + 1, "{what}");
        let kept = room.unwrap_or(length).min(length);
        assert!(memory[..kept] == long[..kept], "{what}");
        assert!(pair[0].poll().is_some_and(|sent| sent.outcome == Outcome::Sent), "{what}");
    }
}

#[test]
fn a_receive_of_many_takes_its_messages_by_progress() {
    let (mut pair, to, from) = acquainted();
    let mut memory = [0; 16];
    // SAFETY: nobody looks at `memory` before the receive is completed.
    unsafe { pair[1].receive_many(exactly(from, 2), &[Part::into(&mut memory)], 8, ReceiveOptions::default()) }
        .unwrap();
    for message in [b"one ", b"many", b"more"] {
        pair[0].inject(to, tagged(2), message).unwrap();
        assert_eq!(pair[1].receive_next(), None);
        completion(&mut pair, 1);
    }
    assert_eq!(&memory[..12], b"one manymore");
}

/// What waits to be sent goes before more is received.
#[test]
fn whoever_owes_something_makes_progress_first() {
    let (mut pair, to, from) = acquainted();
    let mut memory = [0; 4];
    receive(&mut pair[1], exactly(from, 2), &mut memory, 1);
    while pair[1].inject(from, tagged(3), &[0; 1000]).is_ok() {}
    assert!(!pair[1].owes_nothing());
    pair[0].inject(to, tagged(2), b"next").unwrap();
    assert_eq!(pair[1].receive_next(), None);
    drive(&mut pair, |pair| pair[1].owes_nothing());
    assert_eq!(completion(&mut pair, 1).context, 1);
    assert_eq!(&memory, b"next");
}

/// Of two that always have something to say both are heard.
#[test]
fn neighbours_that_speak_at_once_have_their_turns() {
    let on = new_host();
    let mut all = [0x20, 0x24, 0x28].map(|number| on_host(on, number, Config::default()));
    let address = all[0].address();
    let to = [all[1].peer(address), all[2].peer(address)];
    let mut memory = [0; 8];
    let mut heard = std::collections::HashMap::new();
    for _ in 0..2000 {
        for (sender, to) in [(1, to[0]), (2, to[1])] {
            // Always some in the pipe.
            while all[sender].inject(to, tagged(2), b"me").is_ok() {}
            all[sender].progress().unwrap();
        }
        receive(&mut all[0], any_tagged(), &mut memory, 1);
        let source = loop {
            if let Some(next) = all[0].receive_next() {
                break next.envelope.source;
            }
            all[0].progress().unwrap();
            if let Some(completion) = all[0].poll() {
                let Outcome::Received(received) = completion.outcome else { panic!("{completion:?}") };
                break received.envelope.source;
            }
        };
        *heard.entry(source).or_insert(0) += 1;
    }
    assert!(heard.len() == 2 && heard.values().all(|times| *times > 500), "{heard:?}");
}

/// Nothing is told before what had ended earlier, and others have their turn.
#[test]
fn a_neighbour_does_not_keep_all_for_itself() {
    let (mut pair, to, from) = acquainted();
    let mut memory = [0; 100];
    for place in memory.chunks_mut(1) {
        receive(&mut pair[1], exactly(from, 2), place, 1);
    }
    for number in 0..40 {
        pair[0].inject(to, tagged(2), &[number]).unwrap();
    }
    let without_progress = std::iter::from_fn(|| pair[1].receive_next()).count();
    assert!((1..40).contains(&without_progress), "{without_progress}");
    pair[1].progress().unwrap();
    assert_eq!(pair[1].receive_next(), None, "a completion waits");
    assert!(pair[1].poll().is_some());
    let mut others = 1;
    drive(&mut pair, |pair| {
        others += usize::from(pair[1].receive_next().is_some() || pair[1].poll().is_some());
        without_progress + others == 40
    });
    assert_eq!(memory[..40], std::array::from_fn::<u8, 40, _>(|number| number as u8));
}
