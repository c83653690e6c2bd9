// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long messages on one host, which the receiver copies from the sender's memory.

use barewire_endpoint::{Endpoint, Inbox, InboxConfig};
use barewire_messages::{CompletionLevel, Config, Outcome, Part, ReceiveOptions, SendOptions};

use crate::common::*;

/// The header of a rendezvous request for `length` bytes at `address`, with number 7 and tag 1; see `header.rs`.
fn request(address: u64, length: u64) -> Vec<u8> {
    let numbers = [1, 7, length, address].map(u64::to_be_bytes);
    [&[0x80 | 0x10 | 2][..], &numbers.concat()].concat()
}

/// Requests a rendezvous of `length` bytes at `address` with a receiver whose buffer has `room` bytes. Returns the
/// received message, and how many bytes the receiver asked for.
fn request_rendezvous(address: u64, length: usize, room: usize) -> (Option<Vec<u8>>, u64) {
    let on = new_host();
    let mut receiver = on_host(on, 0x20, Config::default());
    let mut sender = Endpoint::open(link_on(on), endpoint_config(0x24), None).unwrap();
    let mut memory = vec![0; room];
    receive(&mut receiver, any_tagged(), &mut memory, 1);
    let (channel, mut inbox) = (sender.connect(receiver.address()).unwrap(), Inbox::new(&InboxConfig::default()));
    sender.send(channel, &request(address, length as u64), &[], 0).unwrap();
    let mut wanted = None;
    drive(std::slice::from_mut(&mut receiver), |_| {
        sender.progress(&mut inbox).unwrap();
        while sender.poll_event().is_some() {}
        if let Some(received) = inbox.receive() {
            // An answer: number, receive, wanted.
            let answer = received.bytes().to_vec();
            assert_eq!((answer[0], answer.len()), (3, 25));
            assert_eq!(answer[1..9], 7_u64.to_be_bytes());
            wanted = Some(u64::from_be_bytes(answer[17..].try_into().unwrap()));
            inbox.done(received);
        }
        wanted.is_some()
    });
    let received = receiver.poll().map(|completion| {
        assert!(matches!(completion.outcome, Outcome::Received(_) | Outcome::Failed { .. }));
        memory
    });
    (received, wanted.unwrap())
}

/// Proves that a receiver copies the message from its address, as much as fits, and then asks for nothing: the sender
/// here never sends a byte.
#[test]
fn a_message_is_fetched_from_its_senders_memory() {
    let message = bytes(3_000_000, 1);
    for room in [message.len(), message.len() + 5, 200_000] {
        let (received, wanted) = request_rendezvous(message.as_ptr() as u64, message.len(), room);
        let got = room.min(message.len());
        assert!(received.expect("received")[..got] == message[..got] && wanted == 0, "room for {room}: {wanted}");
    }
}

/// Proves that an address without readable memory does no harm: the receiver asks for the bytes.
#[test]
fn an_unreadable_message_is_requested() {
    for (address, length) in [(0, 200_000), (u64::MAX - 10, 200_000), (1 << 63, 150_000)] {
        let (received, wanted) = request_rendezvous(address, length, 50_000);
        assert!(received.is_none() && wanted == 50_000, "{address:#x}: {wanted}");
    }
}

/// Proves that messages around the limit arrive, from one part or several, into one part or several, expected or
/// unexpected, at another endpoint and at the sender's own.
#[test]
fn fetched_messages_of_all_lengths_arrive() {
    for fetched_bytes in [0, 4096, 32 << 10] {
        let config = Config { fetched_bytes, ..Config::default() };
        let mut pair = host(config);
        let [to, _] = add_peers(&mut pair);
        let own_address = pair[0].address();
        let own = pair[0].peer(own_address);
        let mut number = 0;
        for (to, receiver) in [(to, 1), (own, 0)] {
            for length in [4095, 4096, (32 << 10) - 1, 32 << 10, 65_537, (128 << 10) + 1, (1 << 20) + 1, 3 << 20] {
                for (parts, is_expected, level) in [
                    (1, true, CompletionLevel::Inject),
                    (1, false, CompletionLevel::Delivery),
                    (3, true, CompletionLevel::Transmit),
                ] {
                    number += 1;
                    let message = bytes(length, number);
                    let third = length.div_ceil(parts);
                    let sent: Vec<Part> = message.chunks(third).map(Part::of).collect();
                    let mut memory = vec![0; length];
                    let mut post = |all: &mut [Tested]| {
                        let into: Vec<Part> = memory.chunks_mut(third).map(Part::into).collect();
                        let options = ReceiveOptions { context: 100 + number, ..ReceiveOptions::default() };
                        // SAFETY: the memory is not accessed until the receive completes.
                        unsafe { all[receiver].receive(any_tagged(), &into, options) }.unwrap();
                    };
                    if is_expected {
                        post(&mut pair);
                    }
                    send_parts(&mut pair, 0, to, tagged(number), &sent, options(number, level));
                    if !is_expected {
                        idle(&mut pair);
                        post(&mut pair);
                    }
                    let mut ended = Vec::new();
                    drive(&mut pair, |all| {
                        for messenger in all {
                            while let Some(completion) = messenger.poll() {
                                assert!(!matches!(completion.outcome, Outcome::Failed { .. }), "{completion:?}");
                                ended.push(completion.context);
                            }
                        }
                        ended.len() == 2
                    });
                    ended.sort_unstable();
                    assert_eq!(ended, [number, 100 + number]);
                    assert!(memory == message, "{length} bytes in {parts} parts, from {fetched_bytes}");
                }
            }
        }
    }
}

/// Proves that a receive fails if its sender dies before the message is fetched, and does not get what is at that
/// address now.
#[test]
fn a_dead_senders_memory_is_not_read() {
    let on = new_host();
    let mut receiver = on_host(on, 0x20, Config::default());
    let mut sender = on_host(on, 0x24, Config::default());
    let (to, message) = (sender.peer(receiver.address()), bytes(200_000, 1));
    // SAFETY: the message lives until the end.
    unsafe { sender.send(to, tagged(1), &[Part::of(&message)], SendOptions::default()) }.unwrap();
    sender.progress().unwrap();
    // The request is here, unexpected.
    idle(std::slice::from_mut(&mut receiver));
    let mut memory = vec![0; message.len()];
    drop(sender);
    receive(&mut receiver, any_tagged(), &mut memory, 1);
    receiver.progress().unwrap();
    idle(std::slice::from_mut(&mut receiver));
    assert!(
        receiver.poll().is_none_or(|completion| matches!(completion.outcome, Outcome::Failed { .. })),
        "nothing is received from a dead sender"
    );
}
