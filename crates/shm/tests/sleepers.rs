// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two threads that sleep whenever they have to wait: no message and no wake-up is lost.

use std::os::fd::AsFd;
use std::thread;

use barewire_shm::{Awaited, Listener, Pipe, PipeConfig, connect};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{SysconfVar, sysconf};

/// A wake-up that takes longer was lost.
const TIMEOUT_MS: u16 = 20_000;

fn pair(test: &str) -> [Pipe; 2] {
    let name = format!("barewire-shm {test} {}", std::process::id());
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    // The smallest ring, so that the sender waits as often as the receiver.
    let ring_bytes = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as usize;
    let initiator = connect(name.as_bytes(), &[], &PipeConfig { ring_bytes }).unwrap().unwrap();
    [initiator, listener.accept().unwrap().unwrap()]
}

fn wakes_within(pipe: &Pipe, milliseconds: u16) -> bool {
    let mut descriptors = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::from(milliseconds)).unwrap() > 0
}

fn sleep(pipe: &mut Pipe, awaited: Awaited) {
    if !pipe.arm(awaited) {
        assert!(wakes_within(pipe, TIMEOUT_MS), "slept for {awaited:?} and was not woken");
    }
}

#[test]
fn arm_reports_what_is_already_there_and_only_an_armed_end_is_woken() {
    let [mut a, mut b] = pair("arming");
    assert!(!b.arm(Awaited::Message) && !wakes_within(&b, 0));
    assert!(a.send([b"one"]) && wakes_within(&b, 0));
    assert!(b.arm(Awaited::Message), "a message is already there");
    assert!(!wakes_within(&b, 0), "the wake-up byte was drained");
    assert!(a.send([b"two"]) && !wakes_within(&b, 0), "an end that is not armed is not woken");
    assert_eq!(b.receive(), Some(&b"one"[..]));
    assert!(b.arm(Awaited::Message), "another message is behind the lent one");
    assert_eq!(b.receive(), Some(&b"two"[..]));
    assert!(b.arm(Awaited::Room(1000)), "an empty ring has room");
    assert!(!b.arm(Awaited::Message));
    drop(a);
    assert!(wakes_within(&b, 0) && b.arm(Awaited::Message) && b.is_gone());
}

#[test]
fn a_sender_sleeps_until_there_is_room_for_its_message() {
    let [mut a, mut b] = pair("room");
    while a.send([&[0; 56]]) {}
    assert!(!a.arm(Awaited::Room(500)) && !a.arm(Awaited::MessageOrRoom(500)));
    assert!(b.receive().is_some() && !wakes_within(&a, 0));
    // The receiver acknowledges in steps, and all of it before it sleeps.
    assert!(b.arm(Awaited::Message), "more messages are there");
    assert!(wakes_within(&a, 0) && a.arm(Awaited::Room(56)) && !a.arm(Awaited::Room(500)));
    while b.receive().is_some() {}
    assert!(wakes_within(&a, 0) && a.arm(Awaited::Room(500)));
    assert!(!a.arm(Awaited::Message));
    assert!(b.send([]) && wakes_within(&a, 0) && a.arm(Awaited::MessageOrRoom(1000)));
}

/// One side sends, the other receives; each sleeps when it cannot proceed, sometimes after some polls.
#[test]
fn no_wake_up_is_lost_in_one_direction() {
    let [mut a, mut b] = pair("one way");
    let messages = 200_000_u64;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(1);
            for number in 0..messages {
                let payload = [number as u8; 900];
                let payload = &payload[..random.usize(..random.clone().usize(1..=900))];
                let mut polls_left = random.u32(..200);
                while !a.send([&number.to_ne_bytes(), payload]) {
                    if polls_left == 0 {
                        sleep(&mut a, Awaited::Room(8 + payload.len()));
                    }
                    polls_left = polls_left.saturating_sub(1);
                }
            }
        });
        let (mut random, mut expected) = (fastrand::Rng::with_seed(2), 0_u64);
        let mut polls_left = 0;
        while expected < messages {
            if let Some(message) = b.receive() {
                assert_eq!(message[..8], expected.to_ne_bytes());
                assert!(message[8..].iter().all(|byte| *byte == expected as u8));
                expected += 1;
                polls_left = random.u32(..200);
            } else if polls_left == 0 {
                sleep(&mut b, Awaited::Message);
            } else {
                polls_left -= 1;
            }
        }
        assert!(b.receive().is_none());
    });
}

/// Both sides send and receive, and sleep for whichever comes first.
#[test]
fn no_wake_up_is_lost_in_both_directions() {
    let messages = 100_000_u64;
    thread::scope(|scope| {
        for (seed, mut pipe) in (3..).zip(pair("both ways")) {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let (mut sent, mut received) = (0, 0);
                while sent < messages || received < messages {
                    let mut has_progressed = false;
                    for _ in 0..random.usize(..20) {
                        let payload = [0; 1000];
                        if sent == messages || !pipe.send([&u64::to_ne_bytes(sent), &payload[..random.usize(..1000)]]) {
                            break;
                        }
                        (sent, has_progressed) = (sent + 1, true);
                    }
                    for _ in 0..random.usize(..20) {
                        let Some(message) = pipe.receive() else { break };
                        assert_eq!(message[..8], received.to_ne_bytes());
                        (received, has_progressed) = (received + 1, true);
                    }
                    if !has_progressed && random.bool() {
                        let max = pipe.message_max();
                        sleep(&mut pipe, if sent < messages { Awaited::MessageOrRoom(max) } else { Awaited::Message });
                    }
                }
            });
        }
    });
}

/// Each side replies after a delay of about the time that arming takes: messages arrive just before the other sleeps.
#[test]
fn no_wake_up_is_lost_between_polling_and_sleeping() {
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
