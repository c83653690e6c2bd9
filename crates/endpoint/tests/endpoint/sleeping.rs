// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sleeping endpoint uses no processor, and wakes up for everything that has to be done.

use std::thread;
use std::time::{Duration, Instant};

use barewire_endpoint::{Address, Class, Config, Ending, Origin};
use barewire_link::Link;

use crate::common::*;

/// Longer than any test step takes: a sleep of this length has missed a wake-up.
const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);

/// Makes progress and sleeps alternately, as a user with nothing else to do, until a condition holds.
fn sleep_until(side: &mut Side, mut is_true: impl FnMut(&mut Side) -> bool) {
    let began = Instant::now();
    while !is_true(side) {
        assert!(began.elapsed() < SOON, "it slept for too long");
        if !side.poll() {
            side.endpoint.sleep(LONG).unwrap();
        }
        assert!(began.elapsed() < SOON, "it slept for too long");
    }
}

fn processor_time() -> Duration {
    // SAFETY: all zeros are a valid value of this plain structure, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage
    };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// With a channel to a local peer and one over the wire, after some traffic.
#[test]
fn an_idle_endpoint_uses_no_processor() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut a = side_at(&segment, mac, config(0x20));
    let mut local_peer = side_at(&segment, mac, config(0x24));
    let mut remote = side_at(&segment, new_mac(), config(0x28));
    for peer in [&mut local_peer, &mut remote] {
        let (to, from) = open_channel(&mut a, peer);
        for context in 0..20 {
            a.endpoint.send(to, &[], b"there", context).unwrap();
            peer.endpoint.send(from, &[], b"and back", context).unwrap();
        }
        until(&mut [&mut a, peer], "all arrive", |sides| sides.iter().all(|side| side.all_sent(0..20)));
        a.outcomes.clear();
    }
    run_for(&mut [&mut a, &mut local_peer, &mut remote], Duration::from_millis(5));
    let (began, before, mut rounds) = (Instant::now(), processor_time(), 0);
    while began.elapsed() < Duration::from_millis(200) {
        a.poll();
        a.endpoint.sleep(Duration::from_millis(200)).unwrap();
        rounds += 1;
    }
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(40) && rounds < 20, "{used:?} in {rounds} rounds");
}

/// Proves that a caller that sleeps by itself, as the provider does, is told when a link with several carriers has to
/// be polled, though no frame arrives.
#[test]
fn a_sleep_ends_when_the_link_has_something_to_do() {
    let mut a = side_at(&Segment::default(), new_mac(), config(0x20));
    let now = |side: &mut Side| side.endpoint.link().clock().now().as_nanos() as u64;
    a.endpoint.link().deadline = Some(now(&mut a) + SOON.as_nanos() as u64);
    let longest = loop {
        a.poll();
        if let Some(longest) = a.endpoint.prepare_to_sleep(LONG).unwrap() {
            break longest;
        }
    };
    assert!(longest <= SOON, "{longest:?}");
    a.endpoint.link().deadline = Some(now(&mut a));
    assert_eq!(a.endpoint.prepare_to_sleep(LONG).unwrap(), None);
}

/// Proves that a link with several carriers prevents no sleep by what it has to send: a thread that sleeps in another
/// domain prepares this one, but does not poll it.
#[test]
fn what_a_link_has_to_send_keeps_nobody_awake() {
    let mut a = side_at(&Segment::default(), new_mac(), config(0x20));
    loop {
        a.poll();
        if a.endpoint.prepare_to_sleep(LONG).unwrap().is_some() {
            break;
        }
    }
    a.endpoint.link().deadline = Some(0);
    a.endpoint.link().sends_due = true;
    assert!(a.endpoint.prepare_to_sleep(LONG).unwrap().is_some());
    assert_eq!(a.endpoint.link().deadline, None);
}

/// Both sides sleep whenever they have nothing to do. Many rounds, so that a rare lost wake-up shows.
#[test]
fn two_sleeping_endpoints_wake_each_other() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let to_b = a.connect(b.address());
        let echo = thread::spawn(move || {
            let mut done = 0;
            while done < 2000 {
                sleep_until(&mut b, |side| side.received.len() > done);
                let (origin, bytes) = b.received[done].clone();
                let Origin::Channel(channel) = origin else { panic!("a datagram") };
                b.endpoint.send(channel, &[], &bytes, done as u64).unwrap();
                done += 1;
            }
            sleep_until(&mut b, |side| !side.ended.is_empty());
            b
        });
        for round in 0..2000_u64 {
            a.endpoint.send(to_b, &round.to_ne_bytes(), b"ping", round).unwrap();
            sleep_until(&mut a, |side| side.received.len() as u64 > round);
        }
        sleep_until(&mut a, |side| side.all_sent(0..2000));
        a.endpoint.close(to_b);
        sleep_until(&mut a, |side| side.ended.len() == 1);
        let b = echo.join().unwrap();
        assert_eq!(b.outcomes.len(), 2000);
        // DISC acknowledges nothing: the last echo may have arrived without its sender knowing.
        assert!(b.all_sent(0..1999));
    }
}

/// A long message repeatedly needs acknowledgements of the peer, or room in its pipe.
#[test]
fn long_messages_complete_between_sleeping_endpoints() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let to_b = a.connect(b.address());
        let receiver = thread::spawn(move || {
            sleep_until(&mut b, |side| side.received.len() == 4);
            // Acknowledges what it has received before it ends.
            let _ = b.endpoint.settle(&mut b.inbox);
            sleep_until(&mut b, |side| !side.ended.is_empty());
            b.received
        });
        for context in 0..4 {
            a.lend(to_b, b"head", pattern(context, 2_000_000), context).unwrap();
        }
        sleep_until(&mut a, |side| side.all_sent(0..4));
        a.endpoint.close(to_b);
        sleep_until(&mut a, |side| !side.ended.is_empty());
        for (context, (_, bytes)) in (0..).zip(receiver.join().unwrap()) {
            assert!(bytes == [&b"head"[..], &pattern(context, 2_000_000)].concat());
        }
    }
}

#[test]
fn a_sleeping_endpoint_wakes_for_a_connection_a_message_and_a_datagram() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let to = b.address();
        let sleeper = thread::spawn(move || {
            sleep_until(&mut b, |side| !side.opened.is_empty());
            sleep_until(&mut b, |side| side.received.len() == 2);
            b
        });
        thread::sleep(Duration::from_millis(20));
        let to_b = a.connect(to);
        run_for(&mut [&mut a], Duration::from_millis(20));
        a.endpoint.send(to_b, &[], b"message", 1).unwrap();
        run_for(&mut [&mut a], Duration::from_millis(20));
        a.endpoint.send_datagram(to, Class::Unreliable, b"datagram", 2).unwrap().unwrap();
        until(&mut [&mut a], "it wakes up", |_| sleeper.is_finished());
        assert_eq!(sleeper.join().unwrap().received[1].1, b"datagram");
    }
}

/// Also for timeouts: a peer that does not answer, a local peer that never starts or exits, a channel that is closed.
#[test]
fn a_sleeping_endpoint_wakes_for_every_end_of_a_channel() {
    let (segment, mac) = (Segment::default(), new_mac());
    let timeout = Duration::from_millis(100);
    let mut a = side_at(&segment, mac, Config { connect_timeout: timeout, ..impatient(0x20) });
    let missing = Address::new(new_mac(), sap(0x24));
    a.connect(missing);
    sleep_until(&mut a, |side| side.ended.len() == 1);
    a.connect(Address { mac, ..missing });
    sleep_until(&mut a, |side| side.ended.len() == 2);
    assert!(a.ended.iter().all(|(_, _, ending)| *ending == Ending::NeverAnswered));
    // A channel that is closed before the peer has answered.
    for peer in [missing, Address { mac, ..missing }] {
        let channel = a.connect(peer);
        a.endpoint.close(channel);
        sleep_until(&mut a, |side| side.ended.last().is_some_and(|(ended, _, _)| *ended == channel));
    }
    a.ended.clear();
    for is_local in [false, true] {
        let mut b = side_at(&segment, if is_local { mac } else { new_mac() }, config(0x24));
        let (to_b, _) = open_channel(&mut a, &mut b);
        a.endpoint.close(to_b);
        if is_local {
            sleep_until(&mut a, |side| !side.ended.is_empty());
        }
        until(&mut [&mut a, &mut b], "it ends", |sides| sides.iter().all(|side| !side.ended.is_empty()));
        a.ended.clear();
        // A peer whose process exits.
        let (_, _) = open_channel(&mut a, &mut b);
        drop(b);
        sleep_until(&mut a, |side| !side.ended.is_empty());
        a.ended.clear();
    }
    // An acknowledged datagram without a receiver.
    until(&mut [&mut a], "it is accepted", |sides| {
        sides[0].endpoint.send_datagram(missing, Class::Acknowledged, b"hello?", 7).unwrap().is_ok()
    });
    sleep_until(&mut a, |side| side.outcomes.contains_key(&7));
}

/// A local peer's pipe with messages for a full inbox does not keep the endpoint awake.
#[test]
fn an_endpoint_with_a_full_inbox_sleeps() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, _) = open_channel(&mut a, &mut b);
        b.takes = false;
        for context in 0..150 {
            a.endpoint.send(to_b, &[], &[context as u8], context).unwrap();
        }
        run_for(&mut [&mut a, &mut b], Duration::from_millis(30));
        for hangs_up in [false, true] {
            if hangs_up {
                a.endpoint.close(to_b);
                run_for(&mut [&mut a], Duration::from_millis(5));
            }
            let (began, before) = (Instant::now(), processor_time());
            while began.elapsed() < Duration::from_millis(100) {
                b.poll();
                b.endpoint.sleep(Duration::from_millis(100)).unwrap();
            }
            let used = processor_time() - before;
            assert!(used < Duration::from_millis(30), "{used:?}, local {is_local}, hangs up {hangs_up}");
        }
        b.takes = true;
        until(&mut [&mut a, &mut b], "all arrive", |sides| sides[1].received.len() == 150);
    }
}

/// Time in which the program computes does not count as silence of the peer; acknowledgements are piggybacked.
#[test]
fn computing_between_messages_does_not_cause_polls() {
    let (mut a, mut b) = pair(false);
    let (to_b, to_a) = open_channel(&mut a, &mut b);
    a.endpoint.send(to_b, &[], b"first", 0).unwrap();
    until(&mut [&mut a, &mut b], "the first arrives", |sides| sides[0].all_sent(0..1) && !sides[1].received.is_empty());
    b.received.clear();
    for number in 1..200_u64 {
        thread::sleep(Duration::from_millis(1));
        a.endpoint.send(to_b, &[], &number.to_le_bytes(), number).unwrap();
        until(&mut [&mut b], "it arrives", |sides| sides[0].received.len() as u64 == number);
        b.endpoint.send(to_a, &[], &number.to_le_bytes(), number).unwrap();
        until(&mut [&mut a], "the answer arrives", |sides| sides[0].received.len() as u64 == number);
    }
    // Both sides run in one thread: if that is descheduled between the two, the other side is late indeed.
    let polls: u64 = [&mut a, &mut b].map(|side| side.endpoint.link().polls_sent()).into_iter().sum();
    assert!(polls <= 10, "{polls} polls in 199 rounds");
}
