// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The models. Each panics if loom finds an execution with a data race, a deadlock (here a lost wake-up) or a failed
//! assertion.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;

use crate::lock::Lock;
use crate::memory::{Memory, Ring};
use crate::mutant::Mutant;
use crate::notifier::Notifier;
use crate::pipe::{Awaited, Pipe, Side};
use crate::process::Peer;
use crate::ring::{Receiver, Sender};
use crate::socket::Socket;

/// Runs a model with a bug in the code, or none. `preemptions` bounds the preemptions per execution: each further one
/// multiplies the executions, and the possible bugs here need one or two. (With 3, the ring and the pipe take 5 and 16
/// s instead of 0.7 and 0.8, and hold as well.)
fn check(mutant: Option<Mutant>, preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    Mutant::set(mutant);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The bytes of message `number`: two lines in a ring of eight, so every other word lies inside a message.
fn message(number: u8) -> [u8; 80] {
    [number; 80]
}

/// A ring delivers complete messages in order, and lent memory is not overwritten. Both sides spin.
pub fn ring(mutant: Option<Mutant>) {
    const MESSAGES: u8 = 5;
    check(mutant, 2, || {
        let ring = Ring::new(512);
        let mut receiving = Receiver::new(ring.clone());
        let sender = thread::spawn(move || {
            let mut sending = Sender::new(ring);
            for number in 1..=MESSAGES {
                while !sending.send([&message(number)[..30], &message(number)[30..]], 80).unwrap() {
                    thread::yield_now();
                }
            }
        });
        for number in 1..=MESSAGES {
            loop {
                receiving.give_back();
                if let Some(received) = receiving.receive().unwrap() {
                    assert_eq!(received, message(number));
                    // It is unchanged at the end of the loan.
                    receiving.put_back();
                    assert_eq!(receiving.receive().unwrap(), Some(&message(number)[..]));
                    break;
                }
                thread::yield_now();
            }
        }
        sender.join().unwrap();
    });
}

/// One end sends more than the ring holds, the other receives, and both sleep while they cannot proceed: all arrives.
pub fn pipe(mutant: Option<Mutant>) {
    const MESSAGES: u8 = 5;
    check(mutant, 2, || {
        let [mut sender, receiver] = pipe_ends(256);
        let mut receiver = receiver;
        let thread = thread::spawn(move || {
            for number in 1..=MESSAGES {
                while !sender.0.send([&[number; 56]]) {
                    if !sender.0.arm(Awaited::Room(56)) {
                        sender.1.sleep();
                    }
                }
            }
        });
        for number in 1..=MESSAGES {
            loop {
                if let Some(received) = receiver.0.receive() {
                    assert_eq!(received, [number; 56]);
                    break;
                }
                if !receiver.0.arm(Awaited::Message) {
                    receiver.1.sleep();
                }
            }
        }
        // Publishes the released room, which otherwise happens at the next sleep: the sender may wait for it.
        receiver.0.arm(Awaited::Message);
        thread.join().unwrap();
    });
}

/// Both ends send and receive at once, and sleep until they can do either.
pub fn pipe_both_ways(mutant: Option<Mutant>) {
    check(mutant, 2, || {
        let ends = pipe_ends(256);
        let exchange = |(mut pipe, socket): (Pipe, Socket)| {
            let (mut to_send, mut to_receive) = (2_u8, 2_u8);
            while to_send > 0 || to_receive > 0 {
                let sent = to_send > 0 && pipe.send([&[to_send; 8]]);
                to_send -= u8::from(sent);
                let received = pipe.receive().map(|received| assert_eq!(received, [to_receive; 8])).is_some();
                to_receive -= u8::from(received);
                let awaited = if to_send > 0 { Awaited::MessageOrRoom(8) } else { Awaited::Message };
                if to_receive > 0 && !sent && !received && !pipe.arm(awaited) {
                    socket.sleep();
                }
            }
        };
        let [a, b] = ends;
        let thread = thread::spawn(move || exchange(a));
        exchange(b);
        thread.join().unwrap();
    });
}

fn pipe_ends(ring_bytes: usize) -> [(Pipe, Socket); 2] {
    let memory = Memory::new(ring_bytes);
    let mut sides = [Side::Initiator, Side::Listener].into_iter();
    Socket::pair().map(|socket| {
        let handle = socket.duplicate();
        (Pipe::new(socket, Peer::Unknown, memory.again(), sides.next().expect("two"), Vec::new()), handle)
    })
}

/// A value whose accesses loom checks.
#[derive(Default)]
struct Seen(UnsafeCell<u32>);

impl Seen {
    fn step(&mut self) {
        // SAFETY: loom checks that no other thread accesses the cell.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

/// A serial program and the progress thread exclude each other, see each other's changes, and never deadlock.
pub fn serial_lock(mutant: Option<Mutant>) {
    check(mutant, 3, || {
        let lock = Arc::new(Lock::serial(Seen::default()));
        let shared = lock.clone();
        let progress_thread = thread::spawn(move || {
            let mut stepped = 0;
            for _ in 0..2 {
                if let Some(mut value) = shared.try_lock() {
                    value.step();
                    stepped += 1;
                }
            }
            stepped
        });
        for _ in 0..2 {
            lock.lock().step();
        }
        let stepped = progress_thread.join().unwrap();
        assert_eq!(lock.lock().get(), 2 + stepped);
    });
}

/// Two threads of a program that promised one, and the progress thread.
pub fn serial_lock_of_two_threads(mutant: Option<Mutant>) {
    check(mutant, 3, || {
        let lock = Arc::new(Lock::serial(Seen::default()));
        let [a, b] = [lock.clone(), lock.clone()];
        let progress_thread = thread::spawn(move || a.try_lock().map(|mut value| value.step()).is_some());
        let second = thread::spawn(move || b.lock().step());
        for _ in 0..2 {
            lock.lock().step();
        }
        second.join().unwrap();
        let stepped = u32::from(progress_thread.join().unwrap());
        assert_eq!(lock.lock().get(), 3 + stepped);
    });
}

/// Program threads, the progress thread, and a forking thread, which holds the lock meanwhile.
pub fn shared_lock(mutant: Option<Mutant>) {
    check(mutant, 3, || {
        let lock = Arc::new(Lock::shared(Seen::default()));
        let [a, b] = [lock.clone(), lock.clone()];
        let progress_thread = thread::spawn(move || a.try_lock().map(|mut value| value.step()).is_some());
        let forks = thread::spawn(move || {
            b.hold();
            // SAFETY: held just now.
            unsafe { b.release() };
            b.lock().step();
        });
        lock.lock().step();
        forks.join().unwrap();
        let stepped = u32::from(progress_thread.join().unwrap());
        assert_eq!(lock.lock().get(), 2 + stepped);
    });
}

/// Each sleeper on a notifier wakes when the count reaches its value in `awaited`. As in `Shared::wait` and
/// `Queue::wake`, it checks and registers with the domain's lock held, and sleeps without it.
fn notified(mutant: Option<Mutant>, awaited: &'static [u32]) {
    check(mutant, 3, move || {
        let shared = Arc::new((Lock::shared(Seen::default()), Notifier::new().unwrap()));
        let sleepers: Vec<_> = awaited
            .iter()
            .map(|value_min| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (lock, notifier) = &*shared;
                    loop {
                        let value = lock.lock();
                        if value.get() >= *value_min {
                            return;
                        }
                        let sleeper = notifier.register();
                        drop(value);
                        notifier.sleep(sleeper, &[], None);
                    }
                })
            })
            .collect();
        for _ in 0..awaited.len() {
            let mut value = shared.0.lock();
            value.step();
            shared.1.notify_if_awaited();
        }
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

/// One sleeper.
pub fn notifier(mutant: Option<Mutant>) {
    notified(mutant, &[1]);
}

/// Two sleepers: each must wake, even if the other resets the event.
pub fn notifier_of_two(mutant: Option<Mutant>) {
    notified(mutant, &[1, 2]);
}
