// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipe's end: both directions, sleeping and waking, and the other's end.

use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{Fault, ShmError};
use crate::memory::{self, Memory};
use crate::process::Peer;
use crate::ring::{Receiving, Sending, meet};
use crate::socket::Socket;
use crate::sync::{AtomicU32, Ordering};

/// How a pipe is made; the initiator decides.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// Bytes of the ring of each direction: a power of two from a page to [`RING_BYTES_MAX`](crate::RING_BYTES_MAX).
    /// The largest message is a quarter of it, less 8.
    pub ring_bytes: usize,
}

impl PipeConfig {
    /// Bytes of the largest message of such a pipe.
    ///
    /// # Errors
    /// [`ShmError::RingBytes`] if no ring has this size.
    pub fn room(&self) -> Result<usize, ShmError> {
        memory::check(self.ring_bytes).map(|()| memory::room(self.ring_bytes))
    }
}

impl Default for PipeConfig {
    /// 256 KiB: half of that streams half as fast, twice that no faster (docs/performance.md).
    fn default() -> Self {
        Self { ring_bytes: 256 << 10 }
    }
}

/// One end of a pipe. Its descriptor ([`AsFd`]) is only for sleeping, after [`Pipe::arm`].
#[derive(Debug)]
pub struct Pipe {
    sending: Sending,
    receiving: Receiving,
    socket: Socket,
    /// The one at the other end, if the kernel says which.
    peer: Peer,
    hello: Vec<u8>,
    /// The other end has been closed.
    hung_up: bool,
    /// It had no descriptor or memory left for the pipe.
    refused: bool,
    fault: Option<Fault>,
    /// Last, and so dropped last: the two directions lie in it.
    _memory: Memory,
}

/// What a side sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Something to receive.
    Message,
    /// Room to send a message of so many bytes.
    Room(usize),
    /// Either, whichever comes first.
    MessageOrRoom(usize),
}

/// Which end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Initiator,
    Listener,
}

impl Pipe {
    pub(crate) fn new(socket: Socket, peer: Peer, memory: Memory, side: Side, hello: Vec<u8>) -> Self {
        let (to, from) = if side == Side::Initiator { (0, 1) } else { (1, 0) };
        Self {
            sending: Sending::new(memory.ring(to)),
            receiving: Receiving::new(memory.ring(from)),
            hung_up: peer.has_ended(),
            peer,
            socket,
            hello,
            refused: false,
            fault: None,
            _memory: memory,
        }
    }

    /// What the initiator said, at the listener's end; empty at its own.
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Bytes of the largest message.
    #[inline]
    pub fn room(&self) -> usize {
        self.sending.room()
    }

    /// Sends one message, which lies in parts and is copied. False: there is no room now, or never again
    /// ([`Pipe::is_gone`]), and nothing was taken.
    ///
    /// # Panics
    /// If the parts are longer together than [`Pipe::room`].
    #[inline(always)]
    pub fn send<const PARTS: usize>(&mut self, message: [&[u8]; PARTS]) -> bool {
        let bytes = message.iter().map(|part| part.len()).sum();
        assert!(bytes <= self.room(), "a message is no longer than room()");
        if self.fault.is_some() {
            return false;
        }
        match self.sending.send(message, bytes) {
            Ok(true) => {
                meet();
                wake_if(self.sending.receiver_sleeps(), &self.socket);
                true
            }
            Ok(false) => false,
            Err(fault) => {
                break_off(&mut self.fault, &self.socket, fault);
                false
            }
        }
    }

    /// The next message, lent until the next call. Its place in the ring is free for the other then.
    #[inline]
    pub fn receive(&mut self) -> Option<&[u8]> {
        if self.fault.is_some() {
            return None;
        }
        if self.receiving.give_back() {
            meet();
            wake_if(self.receiving.sender_sleeps(), &self.socket);
        }
        match self.receiving.receive() {
            Ok(message) => message,
            Err(fault) => {
                break_off(&mut self.fault, &self.socket, fault);
                None
            }
        }
    }

    /// The message that was lent last is the next one again.
    #[inline]
    pub fn put_back(&mut self) {
        self.receiving.put_back();
    }

    /// Says that this side is going to sleep. True: it need not, something is there already, if only the pipe's end.
    /// False: `poll` for reading on the descriptor returns when what is awaited has come, or the other end is gone. It
    /// may return without; arming again puts that right. What was awaited in an earlier call is not any more.
    ///
    /// No wake-up is lost. A sleeper (1) takes old bytes off the socket, (2) sets its flag, (3) fences, (4) looks at the
    /// other's word: a message's, or what was told. The other (a) writes that word, (b) fences, (c) looks at the flag,
    /// and if it takes it back from 1 to 0, (d) sends a byte. Of two fences one is first. If the sleeper's, then (c)
    /// sees what (2) set; taking it back is one atomic step, so exactly one byte follows it, and it follows (1): it is
    /// on the socket when the sleeper polls. If the other's, then (4) sees what (a) wrote and there is no sleep.
    /// A flag left over from an earlier sleep costs at most a byte too many. A byte that finds the socket full is not
    /// missed, because then the sleeper has others to wake up from.
    pub fn arm(&mut self, awaited: Awaited) -> bool {
        let (message, room) = match awaited {
            Awaited::Message => (true, None),
            Awaited::Room(bytes) => (false, Some(bytes)),
            Awaited::MessageOrRoom(bytes) => (true, Some(bytes)),
        };
        self.hung_up |= !self.socket.take_wakes(&mut self.refused);
        self.receiving.give_back();
        self.receiving.tell();
        self.receiving.sleeps().store(u32::from(message), Ordering::Relaxed);
        self.sending.sleeps().store(u32::from(room.is_some()), Ordering::Relaxed);
        meet();
        wake_if(self.receiving.sender_sleeps(), &self.socket);
        let has_room = room.is_some_and(|bytes| {
            self.sending.has_room(bytes).unwrap_or_else(|fault| {
                break_off(&mut self.fault, &self.socket, fault);
                true
            })
        });
        let ready = has_room || (message && self.receiving.is_ready()) || self.hung_up || self.fault.is_some();
        if ready {
            self.receiving.sleeps().store(0, Ordering::Relaxed);
            self.sending.sleeps().store(0, Ordering::Relaxed);
        }
        ready
    }

    /// Whether the other end is closed, its process dead, or the pipe broken, and there is nothing left to receive. A
    /// system call, for when nothing has come for some time. On kernels before Linux 5.3 a child that the other has
    /// forked, and that has not called `exec`, keeps its end open.
    pub fn is_gone(&mut self) -> bool {
        // After the look at the socket: what the other wrote before its end is seen now.
        self.fault.is_some() || self.is_hung_up() && !self.receiving.is_ready()
    }

    /// Whether the other end is closed, its process dead, or the pipe broken, however much there is left to receive. A
    /// system call, as [`Pipe::is_gone`].
    pub fn is_hung_up(&mut self) -> bool {
        if !self.hung_up && self.socket.is_hung_up(self.process()) {
            self.hung_up = true;
            self.socket.take_wakes(&mut self.refused);
        }
        self.hung_up || self.fault.is_some()
    }

    /// Copies memory of the other end's process, which said where it lies and leaves it alone meanwhile: one copy, where
    /// messages through the pipe take two. False if that is not possible, or the other end is gone: then what `into` has
    /// is of no use.
    ///
    /// # Safety
    /// `into` must be valid to be written for `bytes`, and used by nothing else meanwhile.
    pub unsafe fn read_memory(&mut self, address: u64, into: *mut u8, bytes: usize) -> bool {
        let Peer::Seen(process) = &self.peer else { return false };
        // SAFETY: the caller's promise.
        let is_read = unsafe { process.read(address, into, bytes) }.is_ok();
        // After the copy: until now the other end was there, and kept its word.
        is_read && !self.is_hung_up()
    }

    /// Readable once the other end's process has ended, if the kernel tells; besides the pipe's own descriptor, to sleep
    /// on.
    pub fn process(&self) -> Option<BorrowedFd<'_>> {
        if let Peer::Seen(process) = &self.peer { Some(process.as_fd()) } else { None }
    }

    /// Whether the other end is gone because there was no descriptor or memory left for the pipe; known once it is
    /// [hung up](Self::is_hung_up).
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// A number that changes with every message sent or taken.
    pub fn activity(&self) -> u64 {
        self.sending.sent() + self.receiving.taken()
    }

    /// Gives memory back to the system that no message lies in; for when nothing has been sent or received for some time.
    /// The next messages are slower for it.
    pub fn release_memory(&mut self) {
        if self.fault.is_some() {
            return;
        }
        self.receiving.give_back();
        self.receiving.tell();
        meet();
        wake_if(self.receiving.sender_sleeps(), &self.socket);
        if let Err(fault) = self.sending.release() {
            break_off(&mut self.fault, &self.socket, fault);
        }
    }

    /// What the other end did to break the pipe, if it did.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Wakes the other if it sleeps.
#[inline]
fn wake_if(sleeps: &AtomicU32, socket: &Socket) {
    if sleeps.load(Ordering::Relaxed) != 0 {
        wake(sleeps, socket);
    }
}

#[cold]
fn wake(sleeps: &AtomicU32, socket: &Socket) {
    if sleeps.swap(0, Ordering::AcqRel) != 0 {
        socket.wake();
    }
}

/// Ends the pipe, for the other as well: it sees this end gone.
#[cold]
fn break_off(to: &mut Option<Fault>, socket: &Socket, fault: Fault) {
    *to = Some(fault);
    socket.shut_down();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Listener, connect};

    fn pair(test: &str, config: &PipeConfig) -> [Pipe; 2] {
        let name = format!("barewire-shm {test} {}", std::process::id());
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let initiator = connect(name.as_bytes(), &[], config).unwrap().unwrap();
        [initiator, listener.accept().unwrap().unwrap()]
    }

    /// Whoever writes anything anywhere into the memory breaks the pipe at most: no end panics, hangs, or says a
    /// message is longer than it can be; and a broken pipe stays broken.
    #[test]
    fn garbage_in_the_memory_breaks_the_pipe_and_nothing_else() {
        let mut broken = 0;
        for seed in 0..300 {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let mut ends = pair("garbage", &PipeConfig { ring_bytes: 4096 });
            for _ in 0..500 {
                let end = random.usize(..2);
                if random.u8(..) < 16 {
                    scribble(&ends[end]._memory, &mut random);
                }
                let pipe = &mut ends[end];
                let was_broken = pipe.fault().is_some();
                match random.u8(..8) {
                    0..3 => {
                        let sent = pipe.send([&[1; 8], &vec![2; random.usize(..=pipe.room() - 8)]]);
                        assert!(!(sent && was_broken));
                    }
                    3..6 => {
                        let room = pipe.room();
                        let message = pipe.receive();
                        assert!(message.is_none_or(|message| message.len() <= room && !was_broken));
                    }
                    6 => drop(pipe.arm(Awaited::MessageOrRoom(random.usize(..1000)))),
                    _ => drop(pipe.is_gone()),
                }
                assert!(pipe.fault().is_none() || pipe.is_gone());
            }
            broken += ends.iter().filter(|end| end.fault().is_some()).count();
        }
        assert!(broken > 300, "garbage is found: {broken} of 600 ends");
    }

    /// Proves the same of an end that writes while this one looks: nothing is used but what was checked.
    #[test]
    fn garbage_written_at_any_moment_breaks_the_pipe_and_nothing_else() {
        let mut broken = 0;
        for seed in 0..200 {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let [hostile, mut good] = pair("at any moment", &PipeConfig { ring_bytes: 4096 });
            let is_over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                let is_over = &is_over;
                let mut garbage = random.fork();
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        scribble(&hostile._memory, &mut garbage);
                    }
                });
                let began = std::time::Instant::now();
                while good.fault().is_none() && began.elapsed().as_millis() < 5 {
                    let room = good.room();
                    good.send([&[1; 8], &vec![2; random.usize(..=room - 8)]]);
                    assert!(good.receive().is_none_or(|message| message.len() <= room));
                    good.arm(Awaited::MessageOrRoom(random.usize(..room)));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            broken += u32::from(good.fault().is_some());
        }
        assert!(broken > 150, "garbage is found: {broken} of 200 ends");
    }

    fn scribble(memory: &Memory, random: &mut fastrand::Rng) {
        let ring = memory.ring(random.usize(..2));
        let garbage = match random.u8(..4) {
            0 => random.u64(..),
            1 => random.u64(..4096),
            2 => (random.u64(..128) << 32) | (1 << 31) | random.u64(..2048),
            _ => u64::MAX,
        };
        let (words, place) = if random.bool() {
            (ring.control.cast::<u64>(), random.usize(..3) * 16)
        } else {
            (ring.base.cast::<u64>(), random.usize(..2 * ring.bytes / 8))
        };
        // SAFETY: inside the controls of the ring or its two mappings; both ends are this thread's.
        unsafe { words.add(place).write_volatile(garbage) };
    }

    #[test]
    fn an_end_that_finds_a_fault_tells_the_other_that_it_is_gone() {
        let [mut initiator, mut listener] = pair("fault", &PipeConfig::default());
        assert!(initiator.send([b"before"]));
        // SAFETY: the word behind the message, inside the ring; both ends are this thread's.
        unsafe { initiator._memory.ring(0).base.cast::<u64>().add(8).write_volatile(!0) };
        assert_eq!(listener.receive(), Some(&b"before"[..]));
        assert!(!initiator.is_gone());
        assert_eq!(listener.receive(), None);
        assert_eq!(listener.fault(), Some(Fault::Word(!0)));
        assert!(listener.is_gone() && listener.arm(Awaited::Message) && !listener.send([]));
        assert!(initiator.is_gone() && initiator.arm(Awaited::Message));
    }
}
