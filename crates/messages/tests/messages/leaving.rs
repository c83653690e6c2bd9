// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that are forgotten, and sends that are taken back.

use barewire_endpoint::{Address, Ending};
use barewire_messages::{
    Completion, Config, Failure, Operation, Outcome, Part, PostError, Reaches, Removal, SendOptions,
};

use crate::common::*;

fn options(context: u64, reaches: Reaches) -> SendOptions {
    SendOptions { context, reaches, ..SendOptions::default() }
}

fn failed(context: u64, operation: Operation, failure: Failure) -> Completion {
    Completion { context, note: 0, outcome: Outcome::Failed { operation, failure, message: None } }
}

/// Proves that a peer that is forgotten at once leaves nothing behind: what is under way fails, its number is nobody's
/// any more, and its address leads to another peer, with whom all is new.
#[test]
fn a_peer_is_forgotten_at_once_and_its_number_stays_its_own() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [mut to, mut from] = introduce(&mut pair);
        for round in 0..5 {
            let (message, mut memory) = (bytes(100_000, 1), vec![[0; 8]; 2]);
            let [first, second] = &mut memory[..] else { unreachable!() };
            send(&mut pair, 0, to, tagged(3), b"held", options(0, Reaches::Nowhere));
            assert_eq!(completion(&mut pair, 0).context, 0);
            // A message is held of it, another announced; a receive waits for it, and one for anybody.
            send(&mut pair, 1, from, tagged(9), b"nobody's", options(0, Reaches::Nowhere));
            send(&mut pair, 0, to, tagged(1), &message, options(1, Reaches::Nowhere));
            idle(&mut pair);
            assert_eq!(completion(&mut pair, 1).context, 0);
            receive(&mut pair[0], exactly(to, 2), first, 2);
            pair[0].remove_peer(to, Removal::AtOnce).unwrap();
            assert_eq!(pair[0].remove_peer(to, Removal::AtOnce), Err(PostError::NoSuchPeer));
            assert_eq!(pair[0].inject(to, tagged(1), b""), Err(PostError::NoSuchPeer));
            let ended = Failure::Peer { peer: to, ending: Ending::Closed };
            let mut ends = [completion(&mut pair, 0), completion(&mut pair, 0)];
            ends.sort_unstable_by_key(|end| end.context);
            assert_eq!(ends[0], failed(1, Operation::Send, ended), "{carrier} {round}");
            assert_eq!(ends[1], failed(2, Operation::Receive, ended), "{carrier} {round}");
            idle(&mut pair);
            assert_eq!((pair[0].address_of(to), pair[0].unexpected_bytes()), (None, 0));
            // The other side keeps what it had received before, and has a new channel.
            receive(&mut pair[1], exactly(from, 3), second, 4);
            assert_eq!(completion(&mut pair, 1).context, 4);
            assert_eq!(second[..4], *b"held");
            let [to_again, from_again] = introduce(&mut pair);
            assert!(to_again > to && from_again == from);
            (to, from) = (to_again, from_again);
            receive(&mut pair[1], exactly(from, 5), second, 6);
            send(&mut pair, 0, to, tagged(5), b"anew", options(7, Reaches::Receive));
            assert_eq!((completion(&mut pair, 1).context, completion(&mut pair, 0).context), (6, 7));
        }
    }
}

/// Proves that a peer that was never there is forgotten at once, too.
#[test]
fn a_peer_that_never_came_is_forgotten() {
    for (carrier, [one, silent]) in carriers(Config::default()) {
        let (mut one, message) = ([one], bytes(10_000, 1));
        let nobody = one[0].peer(Address { sap: sap(0x60), ..one[0].address() });
        let elsewhere = one[0].peer(silent.address());
        for to in [nobody, elsewhere] {
            // SAFETY: the message stays to the end.
            unsafe { one[0].send(to, tagged(1), &[Part::of(&message)], options(1, Reaches::Receive)) }.unwrap();
            one[0].remove_peer(to, Removal::AtOnce).unwrap();
            let failure = Failure::Peer { peer: to, ending: Ending::Closed };
            assert_eq!(completion(&mut one, 0), failed(1, Operation::Send, failure), "{carrier}");
            assert_eq!(one[0].address_of(to), None);
        }
        assert!(one[0].settle().unwrap());
    }
}

/// Proves that a peer that is forgotten when all is done gets all that was posted for it.
#[test]
fn a_peer_is_forgotten_when_all_is_done() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [to, from] = introduce(&mut pair);
        let (message, mut memory) = (bytes(200_000, 1), vec![0; 200_000]);
        send(&mut pair, 0, to, tagged(1), &message, options(1, Reaches::Receive));
        send(&mut pair, 0, to, tagged(2), &message[..100], options(2, Reaches::Nowhere));
        pair[0].remove_peer(to, Removal::WhenDone).unwrap();
        assert_eq!(pair[0].inject(to, tagged(1), b""), Err(PostError::NoSuchPeer));
        idle(&mut pair);
        assert!(pair[0].address_of(to).is_some(), "{carrier}: it waits for the receive");
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

/// Proves that peers that come and go without end leave room for others.
#[test]
fn forgotten_peers_make_room() {
    let on = new_host();
    let config = Config { peers: 2, ..Config::default() };
    let mut all = vec![on_host(on, 0x20, config)];
    let address = all[0].address();
    for round in 0..20 {
        all.push(on_host(on, 0x24, Config::default()));
        let back = all[1].peer(address);
        send(&mut all, 1, back, tagged(1), b"hello", options(0, Reaches::Nowhere));
        let mut memory = [0; 8];
        receive(&mut all[0], any_tagged(), &mut memory, 1);
        let Outcome::Received(message) = completion(&mut all, 0).outcome else { panic!("round {round}") };
        all[0].remove_peer(message.envelope.source, Removal::WhenDone).unwrap();
        drop(all.pop());
        drive(&mut all, |all| all[0].address_of(message.envelope.source).is_none());
    }
}

/// Proves that what nobody has got yet can be taken back, eager or announced, and that the peer never hears of it; and
/// that what is under way cannot.
#[test]
fn sends_are_taken_back_before_they_are_handed_on() {
    let on = new_host();
    let mut all = vec![on_host(on, 0x20, Config::default())];
    let there = Address { sap: sap(0x24), ..all[0].address() };
    let to = all[0].peer(there);
    for length in [100, 5000, 100_000] {
        let (kept, taken, mut memory) = (bytes(length, 1), bytes(length, 2), vec![0; length]);
        // Nobody is there: two may wait.
        for (context, message) in [(1, &kept), (2, &taken)] {
            // SAFETY: both stay to the end.
            unsafe { all[0].send(to, tagged(1), &[Part::of(message)], options(context, Reaches::Endpoint)) }.unwrap();
        }
        assert!(all[0].cancel_send(2) && !all[0].cancel_send(2) && !all[0].cancel_send(9));
        assert_eq!(all[0].poll(), Some(failed(2, Operation::Send, Failure::Cancelled)));
        all.push(on_host(on, 0x24, Config::default()));
        let address = all[0].address();
        let from = all[1].peer(address);
        receive(&mut all[1], exactly(from, 1), &mut memory, 3);
        assert_eq!((completion(&mut all, 1).context, completion(&mut all, 0).context), (3, 1));
        assert!(memory == kept);
        send(&mut all, 0, to, tagged(1), &kept, options(4, Reaches::Receive));
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
