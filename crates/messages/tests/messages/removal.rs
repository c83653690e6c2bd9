// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removal of peers, and cancellation of sends.

use barewire_endpoint::{Address, Ending};
use barewire_messages::{
    Completion, CompletionLevel, Config, Failure, Operation, Outcome, Part, Pattern, PostError, Removal, Selector,
    SendOptions,
};

use crate::common::*;

fn options(context: u64, level: CompletionLevel) -> SendOptions {
    SendOptions { context, level, ..SendOptions::default() }
}

fn failed(context: u64, operation: Operation, failure: Failure) -> Completion {
    Completion { context, note: 0, outcome: Outcome::Failed { operation, failure, message: None } }
}

/// Proves that an aborted peer leaves nothing behind: outstanding operations fail, its number stays unused, and its
/// address gets a new peer without its state.
#[test]
fn abort_removes_a_peer_at_once_and_retires_its_number() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [mut to, mut from] = add_peers(&mut pair);
        for round in 0..5 {
            let (message, mut memory) = (bytes(200_000, 1), vec![[0; 8]; 2]);
            let [first, second] = &mut memory[..] else { unreachable!() };
            send(&mut pair, 0, to, tagged(3), b"kept", options(0, CompletionLevel::Inject));
            assert_eq!(completion(&mut pair, 0).context, 0);
            // One message of the peer is unexpected, another is a rendezvous; one receive names the peer, and another
            // accepts any source.
            send(&mut pair, 1, from, tagged(9), b"unread", options(0, CompletionLevel::Inject));
            send(&mut pair, 0, to, tagged(1), &message, options(1, CompletionLevel::Inject));
            idle(&mut pair);
            assert_eq!(completion(&mut pair, 1).context, 0);
            receive(&mut pair[0], exactly(to, 2), first, 2);
            pair[0].remove_peer(to, Removal::Abort).unwrap();
            assert_eq!(pair[0].remove_peer(to, Removal::Abort), Err(PostError::NoSuchPeer));
            assert_eq!(pair[0].inject(to, tagged(1), b""), Err(PostError::NoSuchPeer));
            let ended = Failure::Peer { peer: to, ending: Ending::Closed };
            let mut ends = [completion(&mut pair, 0), completion(&mut pair, 0)];
            ends.sort_unstable_by_key(|end| end.context);
            assert_eq!(ends[0], failed(1, Operation::Send, ended), "{carrier} {round}");
            assert_eq!(ends[1], failed(2, Operation::Receive, ended), "{carrier} {round}");
            idle(&mut pair);
            assert_eq!((pair[0].address_of(to), pair[0].unexpected_bytes()), (None, 0));
            // The other side keeps what it had received, and has a new channel.
            receive(&mut pair[1], exactly(from, 3), second, 4);
            assert_eq!(completion(&mut pair, 1).context, 4);
            assert_eq!(second[..4], *b"kept");
            let [to_again, from_again] = add_peers(&mut pair);
            assert!(to_again > to && from_again == from);
            (to, from) = (to_again, from_again);
            receive(&mut pair[1], exactly(from, 5), second, 6);
            send(&mut pair, 0, to, tagged(5), b"anew", options(7, CompletionLevel::Delivery));
            assert_eq!((completion(&mut pair, 1).context, completion(&mut pair, 0).context), (6, 7));
        }
    }
}

/// Proves that an absent peer is removed at once, too.
#[test]
fn an_absent_peer_is_removed() {
    for (carrier, [alive, silent]) in carriers(Config::default()) {
        let (mut alive, message) = ([alive], bytes(10_000, 1));
        let absent = alive[0].peer(Address { sap: sap(0x60), ..alive[0].address() });
        let silent_peer = alive[0].peer(silent.address());
        for to in [absent, silent_peer] {
            // SAFETY: the message lives until the end.
            unsafe { alive[0].send(to, tagged(1), &[Part::of(&message)], options(1, CompletionLevel::Delivery)) }
                .unwrap();
            alive[0].remove_peer(to, Removal::Abort).unwrap();
            let failure = Failure::Peer { peer: to, ending: Ending::Closed };
            assert_eq!(completion(&mut alive, 0), failed(1, Operation::Send, failure), "{carrier}");
            assert_eq!(alive[0].address_of(to), None);
        }
        assert!(alive[0].settle().unwrap());
    }
}

/// Proves that a drained peer gets everything that was posted to it.
#[test]
fn drain_removes_a_peer_after_its_operations() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [to, from] = add_peers(&mut pair);
        let (message, mut memory) = (bytes(200_000, 1), vec![0; 200_000]);
        send(&mut pair, 0, to, tagged(1), &message, options(1, CompletionLevel::Delivery));
        send(&mut pair, 0, to, tagged(2), &message[..100], options(2, CompletionLevel::Inject));
        pair[0].remove_peer(to, Removal::Drain).unwrap();
        assert_eq!(pair[0].inject(to, tagged(1), b""), Err(PostError::NoSuchPeer));
        idle(&mut pair);
        assert!(pair[0].address_of(to).is_some(), "{carrier}: waits for the receive");
        receive(&mut pair[1], exactly(from, 1), &mut memory, 3);
        let mut contexts = [completion(&mut pair, 0).context, completion(&mut pair, 0).context];
        contexts.sort_unstable();
        assert_eq!((contexts, completion(&mut pair, 1).context), ([1, 2], 3));
        assert!(memory == message);
        drive(&mut pair, |pair| pair[0].address_of(to).is_none());
        receive(&mut pair[1], exactly(from, 2), &mut memory, 4);
        assert_eq!(completion(&mut pair, 1).context, 4);
    }
}

/// Proves that a drained peer gets what was posted to it while the peer that had its address before was still
/// connected.
#[test]
fn drain_removes_a_peer_that_waits_for_its_predecessors_channel() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [first, _] = add_peers(&mut pair);
        let address = pair[0].address_of(first).unwrap();
        let (message, mut memory) = (bytes(1000, 1), vec![0; 1000]);
        pair[0].inject(first, tagged(1), &message[..10]).unwrap();
        pair[0].remove_peer(first, Removal::Drain).unwrap();
        let second = pair[0].peer(address);
        pair[0].inject(second, tagged(2), &message[..20]).unwrap();
        send(&mut pair, 0, second, tagged(3), &message, options(3, CompletionLevel::Transmit));
        pair[0].remove_peer(second, Removal::Drain).unwrap();
        for (tag, length) in [(1, 10), (2, 20), (3, 1000)] {
            receive(&mut pair[1], any_tagged(), &mut memory, tag);
            let Outcome::Received(received) = completion(&mut pair, 1).outcome else { panic!("{carrier}: {tag}") };
            assert_eq!((received.envelope.label, received.envelope.length), (tagged(tag), length), "{carrier}");
        }
        assert_eq!(completion(&mut pair, 0).context, 3);
        drive(&mut pair, |pair| pair[0].address_of(second).is_none());
        assert!(memory == message);
    }
}

/// Proves that peers that keep coming and going leave room for others.
#[test]
fn removed_peers_make_room() {
    let on = new_host();
    let config = Config { peers: 2, ..Config::default() };
    let mut all = vec![on_host(on, 0x20, config)];
    let address = all[0].address();
    for round in 0..20 {
        all.push(on_host(on, 0x24, Config::default()));
        let back = all[1].peer(address);
        send(&mut all, 1, back, tagged(1), b"hello", options(0, CompletionLevel::Inject));
        let mut memory = [0; 8];
        receive(&mut all[0], any_tagged(), &mut memory, 1);
        let Outcome::Received(message) = completion(&mut all, 0).outcome else { panic!("round {round}") };
        all[0].remove_peer(message.envelope.source, Removal::Drain).unwrap();
        drop(all.pop());
        drive(&mut all, |all| all[0].address_of(message.envelope.source).is_none());
    }
}

/// Proves that unsent messages, eager or rendezvous, can be cancelled without the peer seeing them, and that messages
/// in flight cannot.
#[test]
fn unsent_messages_can_be_cancelled() {
    let on = new_host();
    let mut all = vec![on_host(on, 0x20, Config::default())];
    let there = Address { sap: sap(0x24), ..all[0].address() };
    let to = all[0].peer(there);
    for length in [100, 5000, 200_000] {
        let (kept, taken, mut memory) = (bytes(length, 1), bytes(length, 2), vec![0; length]);
        // No peer yet: two may wait.
        for (context, message) in [(1, &kept), (2, &taken)] {
            // SAFETY: both live until the end.
            unsafe { all[0].send(to, tagged(1), &[Part::of(message)], options(context, CompletionLevel::Transmit)) }
                .unwrap();
        }
        assert!(all[0].cancel_send(2) && !all[0].cancel_send(2) && !all[0].cancel_send(9));
        assert_eq!(all[0].poll(), Some(failed(2, Operation::Send, Failure::Cancelled)));
        all.push(on_host(on, 0x24, Config::default()));
        let address = all[0].address();
        let from = all[1].peer(address);
        receive(&mut all[1], exactly(from, 1), &mut memory, 3);
        assert_eq!((completion(&mut all, 1).context, completion(&mut all, 0).context), (3, 1));
        assert!(memory == kept);
        send(&mut all, 0, to, tagged(1), &kept, options(4, CompletionLevel::Delivery));
        idle(&mut all);
        assert!(!all[0].cancel_send(4));
        receive(&mut all[1], exactly(from, 1), &mut memory, 5);
        assert_eq!((completion(&mut all, 1).context, completion(&mut all, 0).context), (5, 4));
        idle(&mut all);
        assert_eq!(all[1].peek(any_tagged()), None);
        drop(all.pop());
        idle(&mut all);
    }
}

/// Proves that a receiver that sleeps whenever it may gets a message behind one that waited for the memory of a removed
/// peer's messages.
#[test]
fn a_receiver_does_not_sleep_before_it_has_used_a_removed_peers_memory() {
    const LENGTH: usize = 1000;
    let config = Config { unexpected_bytes: 3 * LENGTH / 2, fetched_bytes: 0, ..Config::default() };
    let on = new_host();
    let mut all = [0x20, 0x24, 0x28].map(|number| on_host(on, number, config));
    let (address, message) = (all[0].address(), bytes(LENGTH, 1));
    for from in 1..3 {
        let to = all[from].peer(address);
        send(&mut all, from, to, tagged(1), &message, options(1, CompletionLevel::Inject));
        send(&mut all, from, to, tagged(from as u64), b"short", options(2, CompletionLevel::Inject));
        idle(&mut all);
    }
    let mut memory = [0; 8];
    receive(&mut all[0], Selector::Tagged(Pattern { source: None, tag: 2, ignore: 0 }), &mut memory, 3);
    idle(&mut all);
    assert!(all[0].poll().is_none(), "it is behind the one that waits for room");
    let removed = all[1].address();
    let removed = all[0].peer(removed);
    all[0].remove_peer(removed, Removal::Abort).unwrap();
    let began = std::time::Instant::now();
    let done = loop {
        all[0].progress().unwrap();
        if let Some(done) = all[0].poll() {
            break done;
        }
        assert_eq!(all[0].prepare_to_sleep(PATIENCE).unwrap(), None, "it sleeps, and nothing wakes it");
        assert!(began.elapsed() < PATIENCE);
    };
    assert!(done.context == 3 && memory[..5] == *b"short", "{done:?}");
}
