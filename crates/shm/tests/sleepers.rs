// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two threads that sleep whenever they have to wait: nothing is lost, nobody sleeps for ever.

use std::os::fd::AsFd;
use std::thread;

use barewire_shm::{Awaited, Listener, Pipe, PipeConfig, connect};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Small, so that its sender waits as often as its receiver.
const RING_BYTES: usize = 4096;
/// A wake-up that has not come by then was lost.
const PATIENCE_MS: u16 = 20_000;

fn pair(test: &str) -> [Pipe; 2] {
    let name = format!("barewire-shm {test} {}", std::process::id());
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let there = connect(name.as_bytes(), &[], &PipeConfig { ring_bytes: RING_BYTES }).unwrap().unwrap();
    [there, listener.accept().unwrap().unwrap()]
}

fn wakes_within(pipe: &Pipe, milliseconds: u16) -> bool {
    let mut descriptors = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::from(milliseconds)).unwrap() > 0
}

fn sleep(pipe: &mut Pipe, awaited: Awaited) {
    if !pipe.arm(awaited) {
        assert!(wakes_within(pipe, PATIENCE_MS), "slept for {awaited:?} and was not woken");
    }
}

#[test]
fn arming_tells_what_is_there_already_and_waking_needs_it() {
    let [mut there, mut here] = pair("arming");
    assert!(!here.arm(Awaited::Message) && !wakes_within(&here, 0));
    assert!(there.send([b"one"]) && wakes_within(&here, 0));
    assert!(here.arm(Awaited::Message), "it is there already");
    assert!(!wakes_within(&here, 0), "and what woke has been taken");
    assert!(there.send([b"two"]) && !wakes_within(&here, 0), "who does not sleep is not woken");
    assert_eq!(here.receive(), Some(&b"one"[..]));
    assert!(here.arm(Awaited::Message), "another lies behind the one that was lent");
    assert_eq!(here.receive(), Some(&b"two"[..]));
    assert!(here.arm(Awaited::Room(1000)), "an empty ring has room");
    assert!(!here.arm(Awaited::Message));
    drop(there);
    assert!(wakes_within(&here, 0) && here.arm(Awaited::Message) && here.is_gone());
}

#[test]
fn a_sender_sleeps_until_there_is_room_for_what_it_wants_to_send() {
    let [mut there, mut here] = pair("room");
    while there.send([&[0; 56]]) {}
    assert!(!there.arm(Awaited::Room(500)) && !there.arm(Awaited::MessageOrRoom(500)));
    assert!(here.receive().is_some() && !wakes_within(&there, 0));
    // The other tells in steps, and says all before it sleeps itself.
    assert!(here.arm(Awaited::Message), "there is more");
    assert!(wakes_within(&there, 0) && there.arm(Awaited::Room(56)) && !there.arm(Awaited::Room(500)));
    while here.receive().is_some() {}
    assert!(wakes_within(&there, 0) && there.arm(Awaited::Room(500)));
    assert!(!there.arm(Awaited::Message));
    assert!(here.send([]) && wakes_within(&there, 0) && there.arm(Awaited::MessageOrRoom(1000)));
}

/// One sends, one receives; each sleeps at once when it cannot go on, or asks some times more before, by chance.
#[test]
fn no_wake_up_is_lost_one_way() {
    let [mut there, mut here] = pair("one way");
    let messages = 200_000_u64;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(1);
            for number in 0..messages {
                let payload = [number as u8; 900];
                let payload = &payload[..random.usize(..random.clone().usize(1..=900))];
                let mut patience = random.u32(..200);
                while !there.send([&number.to_ne_bytes(), payload]) {
                    if patience == 0 {
                        sleep(&mut there, Awaited::Room(8 + payload.len()));
                    }
                    patience = patience.saturating_sub(1);
                }
            }
        });
        let (mut random, mut expected) = (fastrand::Rng::with_seed(2), 0_u64);
        let mut patience = 0;
        while expected < messages {
            if let Some(message) = here.receive() {
                assert_eq!(message[..8], expected.to_ne_bytes());
                assert!(message[8..].iter().all(|byte| *byte == expected as u8));
                expected += 1;
                patience = random.u32(..200);
            } else if patience == 0 {
                sleep(&mut here, Awaited::Message);
            } else {
                patience -= 1;
            }
        }
        assert!(here.receive().is_none());
    });
}

/// Both send and receive, and sleep for whichever comes first.
#[test]
fn no_wake_up_is_lost_both_ways() {
    let messages = 100_000_u64;
    thread::scope(|scope| {
        for (seed, mut pipe) in (3..).zip(pair("both ways")) {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let (mut sent, mut received) = (0, 0);
                while sent < messages || received < messages {
                    let mut moved = false;
                    for _ in 0..random.usize(..20) {
                        let payload = [0; 1000];
                        if sent == messages || !pipe.send([&u64::to_ne_bytes(sent), &payload[..random.usize(..1000)]]) {
                            break;
                        }
                        (sent, moved) = (sent + 1, true);
                    }
                    for _ in 0..random.usize(..20) {
                        let Some(message) = pipe.receive() else { break };
                        assert_eq!(message[..8], received.to_ne_bytes());
                        (received, moved) = (received + 1, true);
                    }
                    if !moved && random.bool() {
                        let room = pipe.room();
                        sleep(&mut pipe, if sent < messages { Awaited::MessageOrRoom(room) } else { Awaited::Message });
                    }
                }
            });
        }
    });
}

/// Each answers after a delay of the length that arming takes, so that messages come while the other is about to sleep.
#[test]
fn no_wake_up_is_lost_between_asking_and_sleeping() {
    thread::scope(|scope| {
        for (seed, mut pipe) in (5..).zip(pair("answers")) {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                assert!(seed != 5 || pipe.send([]));
                for _ in 0..100_000 {
                    while pipe.receive().is_none() {
                        sleep(&mut pipe, Awaited::Message);
                    }
                    for _ in 0..random.u32(..400) {
                        std::hint::spin_loop();
                    }
                    assert!(pipe.send([]));
                }
            });
        }
    });
}
