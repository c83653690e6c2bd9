// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fast paths: messages sent immediately, copied, or received without progress.

use std::time::Duration;

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{CompletionLevel, Config, Envelope, Outcome, Part, PeerId, ReceiveOptions, ReceivedNext};

use crate::common::*;

/// The local peer receives everything, and might have sent messages of its own.
#[test]
fn sends_without_progress_are_bounded() {
    for level in LEVELS {
        let mut pair = host(Config::default());
        let [to, _] = add_peers(&mut pair);
        drive(&mut pair, |pair| pair[0].inject(to, tagged(1), b"first").is_ok());
        drive(&mut pair, |pair| pair[1].unexpected_bytes() > 0);
        for round in 1..4 {
            for _ in 0..1000 {
                pair[0].send_copy(to, tagged(1), b"more", options(1, level)).unwrap();
                pair[1].progress().unwrap();
            }
            let received = (pair[1].unexpected_bytes() - 5) / 4;
            assert!((64 * round..=512 * round).contains(&received), "{received} {level:?}");
            pair[0].progress().unwrap();
        }
    }
}

/// Nothing arrives that would wake the sender.
#[test]
fn messages_that_waited_for_progress_leave_while_the_sender_sleeps() {
    let mut pair = host(Config { sends: 4000, ..Config::default() });
    let [to, _] = add_peers(&mut pair);
    drive(&mut pair, |pair| pair[0].inject(to, tagged(1), b"first").is_ok());
    drive(&mut pair, |pair| pair[1].unexpected_bytes() > 0);
    let [mut sender, mut receiver] = pair;
    for _ in 0..4000 {
        sender.inject(to, tagged(1), b"more").unwrap();
    }
    assert!(sender.is_waiting_for_room() && sender.prepare_to_sleep(Duration::from_secs(1)).unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while receiver.unexpected_bytes() < 5 + 4 * 4000 {
                receiver.progress().unwrap();
            }
        });
        let mut waits = 0;
        while !sender.settle().unwrap() {
            sender.wait(Duration::from_millis(100)).unwrap();
            waits += 1;
        }
        assert!(waits < 10, "{waits}");
    });
}

/// Beyond the window, frames wait in the engine until an acknowledgement is processed; the next post must report that
/// to a program that only sends and never polls.
#[test]
fn messages_beyond_the_window_are_reported_as_waiting() {
    let mut pair = wire(Config::default(), &ConnectionConfig::default(), Faults::default(), 1);
    let [to, _] = add_peers(&mut pair);
    drive(&mut pair, |pair| pair[0].inject(to, tagged(0), b"first").is_ok());
    drive(&mut pair, |pair| pair[1].unexpected_bytes() > 0);
    idle(&mut pair);
    let mut sent = 0;
    while !pair[0].is_waiting_for_room() {
        pair[0].inject(to, tagged(1), b"more").unwrap();
        sent += 1;
        assert!(sent <= 64, "beyond the window, but nothing waits");
    }
    assert!(sent > 1, "an open window blocks nothing");
    pair[1].progress().unwrap();
    pair[0].progress().unwrap();
    assert!(!pair[0].is_waiting_for_room(), "the acknowledgement opens the window");
}

/// At any completion level, the buffer can be reused at once.
#[test]
fn copied_sends_complete_at_their_level() {
    for (carrier, mut pair) in carriers(Config { inject_bytes: Config::INJECT_BYTES, ..Config::default() }) {
        let [to, from] = add_peers(&mut pair);
        let (frame, limit) = (pair[0].endpoint().copied_max() - 25, pair[0].inject_max());
        for (number, (length, level)) in
            (1..).zip([frame, frame + 1, limit].into_iter().flat_map(|length| LEVELS.map(|level| (length, level))))
        {
            let mut message = bytes(length, number);
            drive(&mut pair, |pair| pair[0].send_copy(to, tagged(1), &message, options(number, level)).is_ok());
            message.fill(0);
            idle(&mut pair);
            let context = pair[0].poll().map(|completion| completion.context);
            assert_eq!(context, Some(number), "{carrier} {length} {level:?}");
            let mut memory = vec![0; length];
            receive(&mut pair[1], exactly(from, 1), &mut memory, 1);
            completion(&mut pair, 1);
            assert!(memory == bytes(length, number), "{carrier} {length} {level:?}");
        }
    }
}

/// The buffer can be reused at once, also for messages of several frames, or with rendezvous.
#[test]
fn injected_messages_are_copied() {
    for unexpected_bytes in [Config::UNEXPECTED_BYTES, 10_000] {
        for (carrier, mut pair) in
            carriers(Config { unexpected_bytes, inject_bytes: Config::INJECT_BYTES, ..Config::default() })
        {
            let [to, from] = add_peers(&mut pair);
            let (frame, limit) = (pair[0].endpoint().copied_max() - 25, pair[0].inject_max());
            assert!(limit > 2 * frame, "{carrier}");
            let lengths = [0, frame, frame + 1, limit].repeat(4);
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
            assert_eq!((pair[0].poll(), pair[0].counts().sent), (None, 16), "no completion");
        }
    }
}

/// Two processes on a host after one message: the second knows which peer was active last.
fn connected_pair() -> ([Tested; 2], PeerId, PeerId) {
    let mut pair = host(Config::default());
    let [to, from] = add_peers(&mut pair);
    let mut memory = [0; 5];
    receive(&mut pair[1], exactly(from, 1), &mut memory, 1);
    send(&mut pair, 0, to, tagged(1), b"first", options(1, CompletionLevel::Inject));
    for index in [0, 1] {
        completion(&mut pair, index);
    }
    (pair, to, from)
}

#[test]
fn receive_next_reports_a_local_message_once() {
    let (mut pair, to, from) = connected_pair();
    assert_eq!(pair[1].receive_next(), None);
    let mut memory = [0; 8];
    let options = ReceiveOptions { context: 7, note: 3, is_silent: false };
    // SAFETY: `memory` is not accessed until the receive completes.
    unsafe { pair[1].receive(exactly(from, 2), &[Part::into(&mut memory)], options) }.unwrap();
    pair[0].inject(to, tagged(2), b"second").unwrap();
    let next = pair[1].receive_next().unwrap();
    let envelope = Envelope { source: from, label: tagged(2), length: 6 };
    assert_eq!(next, ReceivedNext { context: 7, note: 3, envelope });
    assert_eq!(&memory[..6], b"second");
    idle(&mut pair);
    assert_eq!((pair[1].poll(), pair[1].receive_next(), pair[1].counts().received), (None, None, 2));
}

/// Messages that need more than that: progress handles each, and none is lost or reported twice.
#[test]
fn receive_next_leaves_other_messages_to_progress() {
    let (mut pair, to, from) = connected_pair();
    let mut memory = vec![0; 200_000];
    let long = bytes(200_000, 1);
    let silent = ReceiveOptions { context: 5, is_silent: true, ..ReceiveOptions::default() };
    let normal = ReceiveOptions { context: 5, ..ReceiveOptions::default() };
    for (case, length, room, options, level) in [
        ("no receive", 4, None, normal, CompletionLevel::Inject),
        ("a silent receive", 4, Some(4), silent, CompletionLevel::Inject),
        ("a short buffer", 4, Some(3), normal, CompletionLevel::Inject),
        ("delivery completion", 4, Some(4), normal, CompletionLevel::Delivery),
        ("a rendezvous", 200_000, Some(200_000), normal, CompletionLevel::Inject),
    ] {
        let before = pair[1].counts();
        if let Some(room) = room {
            // SAFETY: `memory` is not accessed until the receive completes.
            unsafe { pair[1].receive(exactly(from, 2), &[Part::into(&mut memory[..room])], options) }.unwrap();
        }
        send(&mut pair[..1], 0, to, tagged(2), &long[..length], crate::common::options(9, level));
        for _ in 0..3 {
            assert_eq!(pair[1].receive_next(), None, "{case}");
        }
        if room.is_none() {
            drive(&mut pair, |pair| pair[1].unexpected_bytes() == length);
            receive(&mut pair[1], exactly(from, 2), &mut memory, 5);
        }
        idle(&mut pair);
        let reported = std::iter::from_fn(|| pair[1].poll()).count();
        assert_eq!(reported, usize::from(!options.is_silent), "{case}");
        let after = pair[1].counts();
        assert_eq!(after.received + after.receives_failed, before.received + before.receives_failed + 1, "{case}");
        let kept = room.unwrap_or(length).min(length);
        assert!(memory[..kept] == long[..kept], "{case}");
        assert!(pair[0].poll().is_some_and(|sent| sent.outcome == Outcome::Sent), "{case}");
    }
}

#[test]
fn multi_receives_need_progress() {
    let (mut pair, to, from) = connected_pair();
    let mut memory = [0; 16];
    // SAFETY: `memory` is not accessed until the receive completes.
    unsafe { pair[1].receive_multi(exactly(from, 2), &[Part::into(&mut memory)], 8, ReceiveOptions::default()) }
        .unwrap();
    for message in [b"one ", b"many", b"more"] {
        pair[0].inject(to, tagged(2), message).unwrap();
        assert_eq!(pair[1].receive_next(), None);
        completion(&mut pair, 1);
    }
    assert_eq!(&memory[..12], b"one manymore");
}

/// Queued messages are sent before more is received.
#[test]
fn receive_next_waits_for_pending_sends() {
    let (mut pair, to, from) = connected_pair();
    let mut memory = [0; 4];
    receive(&mut pair[1], exactly(from, 2), &mut memory, 1);
    while pair[1].inject(from, tagged(3), &[0; 1000]).is_ok() {}
    assert!(!pair[1].has_nothing_to_send());
    pair[0].inject(to, tagged(2), b"next").unwrap();
    assert_eq!(pair[1].receive_next(), None);
    drive(&mut pair, |pair| pair[1].has_nothing_to_send());
    assert_eq!(completion(&mut pair, 1).context, 1);
    assert_eq!(&memory, b"next");
}

/// Two peers that always have messages are both served.
#[test]
fn receive_next_is_fair_to_two_senders() {
    let on = new_host();
    let mut all = [0x20, 0x24, 0x28].map(|number| on_host(on, number, Config::default()));
    let address = all[0].address();
    let to = [all[1].peer(address), all[2].peer(address)];
    let mut memory = [0; 8];
    let mut received = std::collections::HashMap::new();
    for _ in 0..2000 {
        for (sender, to) in [(1, to[0]), (2, to[1])] {
            // Keeps the pipe non-empty.
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
        *received.entry(source).or_insert(0) += 1;
    }
    assert!(received.len() == 2 && received.values().all(|times| *times > 500), "{received:?}");
}

/// Earlier completions are reported first, and other work gets its share.
#[test]
fn receive_next_yields_to_progress() {
    let (mut pair, to, from) = connected_pair();
    let mut memory = [0; 100];
    for byte in memory.chunks_mut(1) {
        receive(&mut pair[1], exactly(from, 2), byte, 1);
    }
    for number in 0..40 {
        pair[0].inject(to, tagged(2), &[number]).unwrap();
    }
    let without_progress = std::iter::from_fn(|| pair[1].receive_next()).count();
    assert!((1..40).contains(&without_progress), "{without_progress}");
    pair[1].progress().unwrap();
    assert_eq!(pair[1].receive_next(), None, "a completion is available");
    assert!(pair[1].poll().is_some());
    let mut others = 1;
    drive(&mut pair, |pair| {
        others += usize::from(pair[1].receive_next().is_some() || pair[1].poll().is_some());
        without_progress + others == 40
    });
    assert_eq!(memory[..40], std::array::from_fn::<u8, 40, _>(|number| number as u8));
}
