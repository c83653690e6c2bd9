// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A peer whose endpoint is correct but whose messages are not.

use barewire_endpoint::{ConnectError, Ending, Endpoint, Event, Inbox, InboxConfig, Priority, Report, SendError};
use barewire_messages::{
    Access, CompletionLevel, Config, Failure, Label, Outcome, Part, RemoteAddress, Selector, SendOptions,
};

use crate::common::*;

/// A header that is often valid, with keys that operations have.
fn head(generator: &mut fastrand::Rng) -> Vec<u8> {
    let mut head = vec![if generator.u8(..8) == 0 { generator.u8(..) } else { generator.u8(..14) }];
    head[0] |= [0, 0x10, 0x20, 0x40, 0x80][generator.usize(..5)];
    for _ in 0..generator.usize(..6) {
        let number = [generator.u64(..4), generator.u64(..4), generator.u64(..100_000), u64::MAX, 1 << 63];
        head.extend(number[generator.usize(..5)].to_be_bytes());
    }
    if generator.bool() {
        // As in an atomic operation, or a refusal.
        let (operation, of) = (generator.u8(..20), generator.u8(..13));
        head.splice(head.len().min(25)..head.len().min(25), [operation, of]);
    }
    head.truncate(64);
    head
}

/// Proves that whatever a peer sends ends at most its own channel: nothing panics, nothing else fails, and memory
/// outside of the receives' buffers is unchanged.
#[test]
fn arbitrary_messages_end_only_their_channel() {
    let mut violations = 0;
    for seed in 0..100 {
        println!("seed {seed}");
        let mut generator = fastrand::Rng::with_seed(seed);
        let on = new_host();
        let config = Config { unexpected_bytes: 10_000, ..Config::default() };
        let mut good = vec![on_host(on, 0x20, config), on_host(on, 0x24, config)];
        let addresses = [good[0].address(), good[1].address()];
        let mut hostile = open(on, 0x28);
        let mut inbox = Inbox::new(&InboxConfig::default());
        let (friend, enemy) = (good[0].peer(addresses[1]), good[0].peer(hostile.address()));
        // Operations that it can interfere with.
        let (long, guard) = (bytes(200_000, 1), bytes(300, 2));
        let mut memory = [guard.clone(), guard.clone(), guard.clone()];
        let (mut open, mut result) = (guard.clone(), [0; 64]);
        // SAFETY: accessed only when all is done.
        unsafe { good[0].register(&[Part::into(&mut open[100..200])], Access::ALL, Some(2)) }.unwrap();
        for (context, selector) in [(1, any_tagged()), (2, Selector::Untagged(None)), (3, exactly(enemy, 7))] {
            receive(&mut good[0], selector, &mut memory[context - 1][100..200], context as u64);
        }
        for level in [CompletionLevel::Inject, CompletionLevel::Delivery] {
            let options = SendOptions { context: 4, level, ..SendOptions::default() };
            // SAFETY: the message lives until the end.
            unsafe { good[0].send(enemy, tagged(1), &[Part::of(&long)], options) }.unwrap();
        }
        let at = RemoteAddress { key: 1, offset: 0 };
        // SAFETY: all memory lives until the end.
        unsafe {
            good[0].write(enemy, at, &[Part::of(&long)], None, SendOptions::default()).unwrap();
            // Refused if it exceeds what an unconnected peer may have in flight.
            let _ = good[0].read(enemy, at, &[Part::into(&mut result[8..16])], SendOptions::default());
        }
        for _ in 0..40 {
            // The previous channel may still have messages to take.
            let channel = loop {
                match hostile.connect(addresses[0]) {
                    Ok(channel) => break channel,
                    Err(ConnectError::Ending(_)) => {
                        hostile.progress(&mut inbox).unwrap();
                        while let Some(received) = inbox.receive() {
                            inbox.done(received);
                        }
                        while hostile.poll_event().is_some() {}
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            let body = bytes([0, 1, 200, 3000][generator.usize(..4)], 3);
            // SAFETY: both sides make progress until it is sent or failed, before `body` is dropped.
            let sent = unsafe {
                hostile.post_lent(channel, &head(&mut generator), &body, Priority::Normal, Report::Acknowledged(0))
            };
            let mut is_under_way = sent != Err(SendError::Ended);
            for round in 0..1000 {
                hostile.progress(&mut inbox).unwrap();
                while let Some(event) = hostile.poll_event() {
                    is_under_way &= !matches!(event, Event::Sent { .. } | Event::Failed { .. });
                }
                while let Some(received) = inbox.receive() {
                    inbox.done(received);
                }
                good[0].progress().unwrap();
                if !is_under_way && round > 5 {
                    break;
                }
            }
            if is_under_way {
                // Blocked: the receiver has no memory for it.
                break;
            }
        }
        // A local peer's channel ends at the next periodic check.
        idle(&mut good);
        while let Some(completion) = good[0].poll() {
            let Outcome::Failed { failure: Failure::Peer { peer, ending }, .. } = completion.outcome else { continue };
            assert_eq!((peer, ending), (enemy, Ending::Violation));
            violations += 1;
        }
        for memory in &memory {
            assert!(memory[..100] == guard[..100] && memory[200..] == guard[200..]);
        }
        assert!(open[..100] == guard[..100] && open[200..] == guard[200..]);
        assert!(result[..8] == [0; 8] && result[16..] == [0; 48]);
        // Other peers are unaffected.
        let mut answer = [0; 8];
        good[0].cancel(2);
        receive(&mut good[0], Selector::Untagged(Some(friend)), &mut answer, 9);
        let back = good[1].peer(addresses[0]);
        send(&mut good, 1, back, Label::default(), b"unharmed", SendOptions::default());
        while completion(&mut good, 0).context != 9 {}
        assert_eq!(answer, *b"unharmed");
        drop(hostile);
    }
    assert!(violations > 100, "{violations} operations failed");
}

fn open(on: barewire_link::MacAddress, number: u8) -> Endpoint<TestLink> {
    Endpoint::open(link_on(on), endpoint_config(number), None).unwrap()
}

/// Proves that a local peer that violates the protocol and receives nothing is disconnected at once, and that all
/// operations with it end.
#[test]
fn a_stalled_local_peer_that_violates_the_protocol_is_disconnected() {
    let on = new_host();
    let mut good = vec![on_host(on, 0x20, Config::default())];
    let mut hostile = open(on, 0x28);
    let enemy = good[0].peer(hostile.address());
    let (message, mut inbox) = (bytes(10_000, 1), Inbox::new(&InboxConfig::default()));
    let mut posted = 0;
    let began = std::time::Instant::now();
    // More than the pipe takes, so that some messages wait.
    while began.elapsed() < std::time::Duration::from_secs(2) && posted < 60 {
        // SAFETY: the message lives until the end.
        let sent = unsafe { good[0].send(enemy, tagged(1), &[Part::of(&message)], SendOptions::default()) };
        posted += u32::from(sent.is_ok());
        good[0].progress().unwrap();
        if posted < 3 {
            hostile.progress(&mut inbox).unwrap();
        }
    }
    let address = good[0].address();
    let channel = hostile.connect(address).unwrap();
    hostile.send(channel, &[0xff], &[], 0).unwrap();
    let mut failed = 0;
    let mut outcomes = 0;
    while outcomes < posted {
        let completion = completion(&mut good, 0);
        outcomes += 1;
        if let Outcome::Failed { failure, .. } = completion.outcome {
            assert_eq!(failure, Failure::Peer { peer: enemy, ending: Ending::Violation });
            failed += 1;
        }
    }
    assert!(failed > 0, "some messages waited");
    assert!(good[0].settle().unwrap());
}

/// Proves that a peer that exceeds the limit of unanswered accesses, and receives no answers, is disconnected before it
/// costs more.
#[test]
fn a_peer_with_too_many_unanswered_reads_is_disconnected() {
    let on = new_host();
    let mut good = vec![on_host(on, 0x20, Config::default())];
    let mut memory = bytes(60_000, 1);
    // SAFETY: nothing else accesses it.
    unsafe { good[0].register(&[Part::into(&mut memory)], Access::ALL, Some(2)) }.unwrap();
    let mut hostile = open(on, 0x28);
    let channel = hostile.connect(good[0].address()).unwrap();
    for number in 0..250_u64 {
        let numbers = [number, 2, 0, 60_000].map(u64::to_be_bytes);
        hostile.send(channel, &[&[10][..], &numbers.concat()].concat(), &[], number).unwrap();
    }
    idle(&mut good);
    let served = good[0].counts().read_by_peers;
    // The limit, plus those whose answer the endpoint has.
    assert!((128..210).contains(&served), "{served} reads were begun");
    let mut inbox = Inbox::new(&InboxConfig::default());
    let began = std::time::Instant::now();
    loop {
        hostile.progress(&mut inbox).unwrap();
        while let Some(received) = inbox.receive() {
            inbox.done(received);
        }
        if std::iter::from_fn(|| hostile.poll_event()).any(|event| matches!(event, Event::Ended { .. })) {
            break;
        }
        assert!(began.elapsed().as_secs() < 5);
    }
    assert!(good[0].settle().unwrap(), "nothing is left");
}
