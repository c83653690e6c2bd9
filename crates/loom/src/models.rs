// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The models. Each panics if loom finds an execution that breaks a promise: a collision, a deadlock (which is what a lost
//! wake-up is here), an assertion.

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

/// Runs a model with a mistake in the code, or none. Threads lose the processor unasked at most so often: each further time
/// multiplies the executions, and what can go wrong here needs one or two. (With 3, the ring and the pipe take 5 and 16 s, not
/// 0.7 and 0.8, and hold as well.)
fn check(mutant: Option<Mutant>, preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    Mutant::set(mutant);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The bytes of message `number`, two lines long in a ring of eight: every other place for a word lies inside one.
fn message(number: u8) -> [u8; 80] {
    [number; 80]
}

/// A ring hands over whole messages in order, and nobody writes to what is lent. Both sides look again until they get on.
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
                    // It is still the same at the end of its loan.
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

/// One end sends more than fits, the other receives, and both sleep whenever they can do nothing: all arrives.
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
        // What it took is told when it sleeps next, or here: the sender may wait for that.
        receiver.0.arm(Awaited::Message);
        thread.join().unwrap();
    });
}

/// Both ends send and receive at once, and sleep for either.
pub fn pipe_both_ways(mutant: Option<Mutant>) {
    check(mutant, 2, || {
        let ends = pipe_ends(256);
        let talk = |(mut pipe, socket): (Pipe, Socket)| {
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
        let [one, other] = ends;
        let thread = thread::spawn(move || talk(one));
        talk(other);
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

/// A value that loom sees every access to.
#[derive(Default)]
struct Seen(UnsafeCell<u32>);

impl Seen {
    fn step(&mut self) {
        // SAFETY: loom has seen that nobody else is there.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

/// A serial program and the keeper are never in at once, see what the other did, and neither waits for ever.
pub fn serial_lock(mutant: Option<Mutant>) {
    check(mutant, 3, || {
        // SAFETY: one thread locks it, the other keeps it.
        let lock = Arc::new(unsafe { Lock::serial(Seen::default()) });
        let shared = lock.clone();
        let keeper = thread::spawn(move || {
            let mut kept = 0;
            for _ in 0..2 {
                if let Some(mut value) = shared.try_lock() {
                    value.step();
                    kept += 1;
                }
            }
            kept
        });
        for _ in 0..2 {
            lock.lock().step();
        }
        let kept = keeper.join().unwrap();
        assert_eq!(lock.lock().get(), 2 + kept);
    });
}

/// Any threads, the keeper, and one that forks, which holds it meanwhile.
pub fn shared_lock(mutant: Option<Mutant>) {
    check(mutant, 3, || {
        let lock = Arc::new(Lock::shared(Seen::default()));
        let [one, two] = [lock.clone(), lock.clone()];
        let keeper = thread::spawn(move || one.try_lock().map(|mut value| value.step()).is_some());
        let forks = thread::spawn(move || {
            two.hold();
            // SAFETY: held just now.
            unsafe { two.release() };
            two.lock().step();
        });
        lock.lock().step();
        forks.join().unwrap();
        let kept = u32::from(keeper.join().unwrap());
        assert_eq!(lock.lock().get(), 2 + kept);
    });
}

/// Who sleeps at a notifier for a count hears of it: `awaited` says what each waits for. As in `Shared::wait` and
/// `Queue::wake`: looked at and announced with the domain's lock held, slept without it.
fn notified(mutant: Option<Mutant>, awaited: &'static [u32]) {
    check(mutant, 3, move || {
        let shared = Arc::new((Lock::shared(Seen::default()), Notifier::new().unwrap()));
        let sleepers: Vec<_> = awaited
            .iter()
            .map(|least| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (lock, notifier) = &*shared;
                    loop {
                        let value = lock.lock();
                        if value.get() >= *least {
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

/// One who sleeps.
pub fn notifier(mutant: Option<Mutant>) {
    notified(mutant, &[1]);
}

/// Two, of whom each must hear what it waits for, whatever the other takes back.
pub fn notifier_of_two(mutant: Option<Mutant>) {
    notified(mutant, &[1, 2]);
}
