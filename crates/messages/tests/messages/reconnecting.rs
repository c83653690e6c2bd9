// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A new channel to a peer while messages of the previous one are still unreceived.

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{
    CompletionLevel, Config, Failure, Label, Outcome, Part, Pattern, PeerId, Removal, Selector, SendOptions,
};

use crate::common::*;

/// How the sender's first channel ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Remove,
    Restart,
}

/// Messages through the first channel: short ones, then ones longer than a frame.
const FIRST: u64 = 12;
/// Messages through the second.
const SECOND: u64 = 8;

fn length(tag: u64) -> usize {
    match tag {
        0..6 => 100,
        6..FIRST => 5000,
        _ => 16_384,
    }
}

/// Tries to send a message. On the second channel, the send completes when the peer has the message, or fails.
fn post(messenger: &mut Tested, to: PeerId, tag: u64, message: &[u8]) -> bool {
    let label = Label { tag: Some(tag), data: None };
    let level = if tag < FIRST { CompletionLevel::Inject } else { CompletionLevel::Transmit };
    // SAFETY: the tests keep all messages until the end.
    unsafe { messenger.send(to, label, &[Part::of(message)], options(tag, level)) }.is_ok()
}

/// A receiver with little memory blocks some of the first messages. The sender ends its channel, or restarts, and sends
/// through a new one. Receives for both are posted in random order. Checks that received messages are intact and arrive
/// once, that the others fail, and that nothing waits forever.
fn messages_of_two_channels(end: End, is_wire: bool, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let config = Config { unexpected_messages: 3, fetched_bytes: 0, ..Config::default() };
    let on = new_host();
    let mut pair = if is_wire {
        wire(config, &ConnectionConfig::default(), Faults::default(), seed)
    } else {
        [on_host(on, 0x20, config), on_host(on, 0x24, config)]
    };
    let [mut to, _] = add_peers(&mut pair);
    let messages: Vec<Vec<u8>> = (0..FIRST + SECOND).map(|tag| bytes(length(tag), seed * 100 + tag)).collect();
    let mut memory: Vec<Vec<u8>> = messages.iter().map(|message| vec![0; message.len()]).collect();
    // As many as go without a receive.
    let mut posted = 0;
    for _ in 0..200 {
        posted += u64::from(posted < FIRST && post(&mut pair[0], to, posted, &messages[posted as usize]));
        pair.iter_mut().for_each(|messenger| _ = messenger.progress().unwrap());
    }
    match end {
        End::Close => pair[0].close(to),
        End::Remove => {
            pair[0].remove_peer(to, Removal::Abort).unwrap();
            for _ in 0..20 {
                pair[0].progress().unwrap();
            }
            let address = pair[1].address();
            to = pair[0].peer(address);
        }
        End::Restart => {
            let fresh = on_host(on, 0x28, config);
            drop(std::mem::replace(&mut pair[0], fresh));
            let again = on_host(on, 0x20, config);
            drop(std::mem::replace(&mut pair[0], again));
            let address = pair[1].address();
            to = pair[0].peer(address);
        }
    }
    // Messages to send through the second channel; posted again if they went to the first one, which then ended.
    let mut unsent: Vec<u64> = (FIRST..FIRST + SECOND).rev().collect();
    let mut unposted: Vec<u64> = (0..FIRST + SECOND).collect();
    random.shuffle(&mut unposted);
    let mut ended = vec![None; messages.len()];
    let began = std::time::Instant::now();
    while !unsent.is_empty() || !unposted.is_empty() || ended[FIRST as usize..].iter().any(Option::is_none) {
        for _ in 0..random.usize(0..4) {
            pair[0].progress().unwrap();
        }
        if let Some(tag) = unsent.last()
            && post(&mut pair[0], to, *tag, &messages[*tag as usize])
        {
            unsent.pop();
        }
        for _ in 0..random.usize(0..3) {
            pair[1].progress().unwrap();
        }
        if random.u8(..8) == 0
            && let Some(tag) = unposted.pop()
        {
            let selector = Selector::Tagged(Pattern { source: None, tag, ignore: 0 });
            receive(&mut pair[1], selector, &mut memory[tag as usize], tag);
        }
        while let Some(completion) = pair[0].poll() {
            let is_lost = matches!(completion.outcome, Outcome::Failed { .. });
            if is_lost && completion.context >= FIRST {
                unsent.push(completion.context);
            }
        }
        while let Some(completion) = pair[1].poll() {
            let is_whole = match completion.outcome {
                Outcome::Received(received) => received.envelope.length == length(completion.context) as u64,
                _ => false,
            };
            assert!(ended[completion.context as usize].replace(is_whole).is_none(), "ended twice");
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{end:?}, wire {is_wire}, seed {seed}: {posted} posted first, unsent {unsent:?}, unposted {unposted:?}; {ended:?}"
        );
    }
    for (tag, is_whole) in ended.iter().enumerate() {
        if *is_whole == Some(true) {
            assert!(memory[tag] == messages[tag], "{end:?}, seed {seed}: message {tag} differs");
        }
    }
    assert!(ended[FIRST as usize..].iter().all(|is_whole| *is_whole == Some(true)), "{end:?}, seed {seed}: {ended:?}");
}

#[test]
fn messages_of_consecutive_channels_stay_apart() {
    for seed in 0..40 {
        println!("seed {seed}");
        for is_wire in [true, false] {
            messages_of_two_channels(End::Close, is_wire, seed);
            messages_of_two_channels(End::Remove, is_wire, seed);
        }
    }
}

#[test]
fn messages_of_consecutive_processes_stay_apart() {
    for seed in 0..40 {
        println!("seed {seed}");
        messages_of_two_channels(End::Restart, false, seed);
    }
}

/// A short message is held unexpected when its channel ends. Its confirmation must not reach the next channel: there it
/// would confirm another send, or none, which would end that channel.
#[test]
fn a_delivery_is_not_confirmed_through_a_later_channel() {
    for (carrier, mut pair) in carriers(Config { fetched_bytes: 0, ..Config::default() }) {
        let [to, from] = add_peers(&mut pair);
        let messages = [bytes(100, 1), bytes(200_000, 2)];
        let delivery = |tag| SendOptions { level: CompletionLevel::Delivery, ..options(tag, CompletionLevel::Inject) };
        let label = |tag| Label { tag: Some(tag), data: None };
        let selector = |tag| Selector::Tagged(Pattern { source: Some(from), tag, ignore: 0 });
        send(&mut pair, 0, to, label(1), &messages[0], delivery(1));
        drive(&mut pair, |pair| pair[1].peek(selector(1)).is_some());
        pair[0].close(to);
        assert_eq!(completion(&mut pair, 0).context, 1, "{carrier}: sent, or failed with its channel");
        // What is sent through a channel that closes fails with it.
        idle(&mut pair);
        send(&mut pair, 0, to, label(2), &messages[1], delivery(2));
        drive(&mut pair, |pair| pair[1].peek(selector(2)).is_some());

        let mut memory = [vec![0; 100], vec![0; 200_000]];
        receive(&mut pair[1], selector(1), &mut memory[0], 1);
        assert!(matches!(completion(&mut pair, 1).outcome, Outcome::Received(_)), "{carrier}");
        idle(&mut pair);
        assert!(pair[0].poll().is_none(), "{carrier}: completed before it was received");
        receive(&mut pair[1], selector(2), &mut memory[1], 2);
        assert_eq!(completion(&mut pair, 0).outcome, Outcome::Sent, "{carrier}");
        assert!(memory == messages, "{carrier}");
    }
}

/// A local peer sends a message and closes its channel before this side has accepted the pipe. This side then connects
/// to the peer: the message is received all the same.
#[test]
fn a_message_of_a_channel_that_was_closed_before_it_was_accepted_arrives() {
    let mut pair = host(Config::default());
    let [to, from] = add_peers(&mut pair);
    let message = bytes(100, 1);
    assert!(post(&mut pair[0], to, 1, &message));
    pair[0].close(to);
    drive(&mut pair[..1], |pair| pair[0].poll().is_some());
    idle(&mut pair[..1]);

    // Fails if it went to the first channel.
    let label = Label { tag: Some(2), data: None };
    // SAFETY: the message outlives the messengers.
    unsafe { pair[1].send(from, label, &[Part::of(&message)], options(2, CompletionLevel::Inject)) }.unwrap();
    let mut memory = vec![0; 100];
    receive(&mut pair[1], Selector::Tagged(Pattern { source: None, tag: 1, ignore: 0 }), &mut memory, 1);
    drive(&mut pair, |pair| {
        std::iter::from_fn(|| pair[1].poll()).any(|completion| matches!(completion.outcome, Outcome::Received(_)))
    });
    assert_eq!(memory, message);
}

/// Messages of a process that is gone fill the memory, and one more waits for room. Operations with that process fail
/// although nothing is received, and what it had sent can be received afterwards.
#[test]
fn operations_with_a_peer_that_is_gone_fail_while_its_messages_fill_the_memory() {
    const LENGTH: usize = 1000;
    let config = Config { unexpected_bytes: 3 * LENGTH / 2, fetched_bytes: 0, ..Config::default() };
    for (carrier, mut pair) in
        [("wire", wire(config, &impatient(), Faults::default(), 1)), ("host, pipe alone", host(config))]
    {
        let [to, from] = add_peers(&mut pair);
        let messages = [1, 2].map(|tag| bytes(LENGTH, tag));
        for (tag, message) in (1..).zip(&messages) {
            assert!(post(&mut pair[0], to, tag, message), "{carrier}");
        }
        idle(&mut pair);
        assert_eq!(pair[1].unexpected_bytes(), LENGTH, "{carrier}");
        let long = bytes(200_000, 3);
        send(&mut pair, 1, from, tagged(3), &long, options(3, CompletionLevel::Inject));
        idle(&mut pair);

        let [gone, left] = pair;
        // On the wire it falls silent, on one host it ends.
        let _silent = (carrier == "wire").then_some(gone);
        let mut left = [left];
        let Outcome::Failed { failure: Failure::Peer { peer, .. }, .. } = completion(&mut left, 0).outcome else {
            panic!("{carrier}: not failed");
        };
        assert_eq!(peer, from, "{carrier}");
        for (tag, message) in (1..).zip(&messages) {
            let mut memory = vec![0; LENGTH];
            receive(&mut left[0], Selector::Tagged(Pattern { source: None, tag, ignore: 0 }), &mut memory, tag);
            assert!(matches!(completion(&mut left, 0).outcome, Outcome::Received(_)), "{carrier}");
            assert!(memory == *message, "{carrier}");
        }
        assert_eq!(left[0].unexpected_bytes(), 0, "{carrier}");
    }
}

/// Processes come and go, and nothing of what they send is received: it takes at most twice the memory. Then all of it
/// is received, in order.
#[test]
fn what_peers_that_are_gone_have_left_is_bounded() {
    const LENGTH: usize = 1000;
    const PROCESSES: u64 = 6;
    let limit = 3 * LENGTH / 2;
    let config = Config { unexpected_bytes: limit, ..Config::default() };
    let on = new_host();
    let mut receiver = [on_host(on, 0x24, config)];
    let messages: Vec<Vec<u8>> = (0..PROCESSES).map(|number| bytes(LENGTH, number)).collect();
    for message in &messages {
        let mut sender = on_host(on, 0x20, config);
        let to = sender.peer(receiver[0].address());
        assert!(post(&mut sender, to, 1, message));
        drive(std::slice::from_mut(&mut sender), |sender| sender[0].poll().is_some());
        drop(sender);
        idle(&mut receiver);
        assert!(receiver[0].unexpected_bytes() <= 2 * limit);
    }
    assert!(receiver[0].unexpected_bytes() > limit);
    for message in &messages {
        let mut memory = vec![0; LENGTH];
        receive(&mut receiver[0], any_tagged(), &mut memory, 1);
        assert!(matches!(completion(&mut receiver, 0).outcome, Outcome::Received(_)));
        assert!(memory == *message);
    }
}

/// One process after another sends a message from the same address. The second one's is refused until the first one's
/// channel has ended; a receiver that sleeps whenever it may gets it all the same.
#[test]
fn a_receiver_does_not_sleep_before_it_has_a_successors_message() {
    let on = new_host();
    let mut receiver = on_host(on, 0x24, Config::default());
    let message = bytes(100, 1);
    let mut senders = Vec::new();
    for tag in 1..=2 {
        senders.clear();
        senders.push(on_host(on, 0x20, Config::default()));
        let to = senders[0].peer(receiver.address());
        assert!(post(&mut senders[0], to, tag, &message));
        drive(&mut senders, |senders| senders[0].poll().is_some());
    }
    let mut memory = [vec![0; 100], vec![0; 100]];
    for (into, tag) in memory.iter_mut().zip(1..) {
        receive(&mut receiver, Selector::Tagged(Pattern { source: None, tag, ignore: 0 }), into, tag);
    }
    let (began, mut received) = (std::time::Instant::now(), 0);
    while received < 2 {
        receiver.progress().unwrap();
        received += std::iter::from_fn(|| receiver.poll()).count();
        // Until the first message, pipes may wait to be accepted, which ends a sleep.
        let sleeps = receiver.prepare_to_sleep(PATIENCE).unwrap().is_some();
        assert!(received != 1 || !sleeps, "it sleeps, and nothing wakes it");
        assert!(began.elapsed() < PATIENCE, "{received} received");
    }
    assert!(memory.iter().all(|memory| *memory == message));
}

/// A process replaces another one at its address, and gets a message before the sender has noticed the end of the
/// first.
#[test]
fn a_message_to_a_successor_does_not_go_to_its_predecessor() {
    for (carrier, fetched_bytes) in [("host, fetching", Config::FETCHED_BYTES), ("host, pipe alone", 0)] {
        let (on, config) = (new_host(), Config { fetched_bytes, ..Config::default() });
        let mut pair = [on_host(on, 0x20, config), on_host(on, 0x24, config)];
        let [to, _] = add_peers(&mut pair);
        for (tag, message) in [bytes(100, 1), bytes(200_000, 2)].iter().enumerate() {
            let (tag, mut memory) = (tag as u64, vec![0; message.len()]);
            send(&mut pair, 0, to, tagged(tag), message, options(tag, CompletionLevel::Inject));
            receive(&mut pair[1], any_tagged(), &mut memory, tag);
            assert!(matches!(completion(&mut pair, 1).outcome, Outcome::Received(_)), "{carrier}");
            assert_eq!(completion(&mut pair, 0).outcome, Outcome::Sent, "{carrier}");
            assert!(memory == *message, "{carrier}");
            pair[1] = on_host(on, 0x28, config);
            pair[1] = on_host(on, 0x24, config);
            let address = pair[1].address();
            assert_eq!(pair[0].peer(address), to, "{carrier}");
        }
    }
}
