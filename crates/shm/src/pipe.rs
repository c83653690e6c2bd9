// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of a pipe: both directions, sleeping and waking, and detection of the other end's close.

use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{Fault, ShmError};
use crate::memory::{self, Memory};
use crate::process::Peer;
use crate::ring::{Receiver, Sender, full_fence};
use crate::socket::Socket;
use crate::sync::{AtomicU32, Ordering};

/// Configuration of a pipe; the initiator chooses it.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// Size in bytes of each direction's ring: a power of two from a page to [`RING_BYTES_MAX`](crate::RING_BYTES_MAX).
    /// The largest message is a quarter of it, less 8.
    pub ring_bytes: usize,
}

impl PipeConfig {
    /// Size in bytes of the largest message of such a pipe.
    ///
    /// # Errors
    /// [`ShmError::RingBytes`] if the size is invalid.
    pub fn message_max(&self) -> Result<usize, ShmError> {
        memory::check(self.ring_bytes).map(|()| memory::message_max(self.ring_bytes))
    }
}

impl Default for PipeConfig {
    /// 256 KiB: half of it halves the rate of streams, twice as much does not increase it (docs/performance.md).
    fn default() -> Self {
        Self { ring_bytes: 256 << 10 }
    }
}

/// One end of a pipe. Its descriptor ([`AsFd`]) is only for sleeping, after [`Pipe::arm`].
#[derive(Debug)]
pub struct Pipe {
    sender: Sender,
    receiver: Receiver,
    socket: Socket,
    /// The process at the other end.
    peer: Peer,
    hello: Vec<u8>,
    /// Whether the other end is closed.
    hung_up: bool,
    /// Whether the other end had no descriptor or memory left for the pipe.
    refused: bool,
    fault: Option<Fault>,
    /// Declared last, so dropped last: the two directions refer to it.
    _memory: Memory,
}

/// What a sleeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A message to receive.
    Message,
    /// Room to send a message of this size.
    Room(usize),
    /// Whichever comes first.
    MessageOrRoom(usize),
}

/// The two ends of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Initiator,
    Listener,
}

impl Pipe {
    pub(crate) fn new(socket: Socket, peer: Peer, memory: Memory, side: Side, hello: Vec<u8>) -> Self {
        let (to, from) = if side == Side::Initiator { (0, 1) } else { (1, 0) };
        Self {
            sender: Sender::new(memory.ring(to)),
            receiver: Receiver::new(memory.ring(from)),
            hung_up: peer.has_ended(),
            peer,
            socket,
            hello,
            refused: false,
            fault: None,
            _memory: memory,
        }
    }

    /// The initiator's hello, at the listener's end; empty at the initiator's.
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Size in bytes of the largest message.
    #[inline]
    pub fn message_max(&self) -> usize {
        self.sender.message_max()
    }

    /// Sends one message, which is copied from its parts. Returns false if there is no room, now or ever
    /// ([`Pipe::is_gone`]); nothing was sent then.
    ///
    /// # Panics
    /// If the parts together exceed [`Pipe::message_max`].
    #[inline(always)]
    pub fn send<const PARTS: usize>(&mut self, message: [&[u8]; PARTS]) -> bool {
        let bytes = message.iter().map(|part| part.len()).sum();
        assert!(bytes <= self.message_max(), "a message is no longer than message_max()");
        if self.fault.is_some() {
            return false;
        }
        match self.sender.send(message, bytes) {
            Ok(true) => {
                full_fence();
                wake_if_sleeping(self.sender.receiver_sleeps(), &self.socket);
                true
            }
            Ok(false) => false,
            Err(fault) => {
                fail(&mut self.fault, &self.socket, fault);
                false
            }
        }
    }

    /// The next message, lent until the next call, which frees its space in the ring.
    #[inline(always)]
    pub fn receive(&mut self) -> Option<&[u8]> {
        if self.fault.is_some() {
            return None;
        }
        if self.receiver.give_back() {
            full_fence();
            wake_if_sleeping(self.receiver.sender_sleeps(), &self.socket);
        }
        match self.receiver.receive() {
            Ok(message) => message,
            Err(fault) => {
                fail(&mut self.fault, &self.socket, fault);
                None
            }
        }
    }

    /// Makes the message that was lent last the next one again.
    #[inline]
    pub fn put_back(&mut self) {
        self.receiver.put_back();
    }

    /// Prepares to sleep. Returns true if that is not necessary: what is awaited is there already, or the pipe has
    /// ended. If false, `poll` for reading on the descriptor returns when what is awaited is there, or the other end is
    /// closed. It may return spuriously; arm again then. A call replaces what earlier calls awaited.
    ///
    /// No wake-up is lost. A sleeper (1) drains old bytes from the socket, (2) sets its flag, (3) executes a fence, (4)
    /// reads the other side's word: a message's, or the acknowledged position. The other side (a) writes that word, (b)
    /// executes a fence, (c) reads the flag, and if it changes it from 1 to 0, (d) sends a byte. One of the two fences
    /// comes first. If the sleeper's, (c) sees what (2) set; clearing the flag is one atomic step, so exactly one byte
    /// follows it, after (1): it is on the socket when the sleeper polls. If the other side's, (4) sees what (a) wrote,
    /// and there is no sleep. A flag left over from an earlier sleep costs at most one spurious byte. If a byte finds
    /// the socket full, the bytes already there wake the sleeper.
    pub fn arm(&mut self, awaited: Awaited) -> bool {
        let (message, room) = match awaited {
            Awaited::Message => (true, None),
            Awaited::Room(bytes) => (false, Some(bytes)),
            Awaited::MessageOrRoom(bytes) => (true, Some(bytes)),
        };
        self.hung_up |= !self.socket.take_wakes(&mut self.refused);
        self.receiver.give_back();
        self.receiver.acknowledge();
        self.receiver.sleeps().store(u32::from(message), Ordering::Relaxed);
        self.sender.sleeps().store(u32::from(room.is_some()), Ordering::Relaxed);
        full_fence();
        wake_if_sleeping(self.receiver.sender_sleeps(), &self.socket);
        let has_room = room.is_some_and(|bytes| self.has_room(bytes));
        let ready = has_room || (message && self.receiver.is_ready()) || self.hung_up || self.fault.is_some();
        if ready {
            self.receiver.sleeps().store(0, Ordering::Relaxed);
            self.sender.sleeps().store(0, Ordering::Relaxed);
        }
        ready
    }

    /// Whether [`send`](Self::send) takes a message of this size now. True also if the pipe is broken.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        self.sender.has_room(bytes).unwrap_or_else(|fault| {
            fail(&mut self.fault, &self.socket, fault);
            true
        })
    }

    /// Whether the other end is closed, its process dead, or the pipe broken, and nothing is left to receive. A system
    /// call, to be made when nothing has arrived for some time. On kernels before Linux 5.3, a forked child of the
    /// other process that has not called `exec` keeps its end open.
    pub fn is_gone(&mut self) -> bool {
        // Checked after the socket: what the other end wrote before it closed is visible now.
        self.fault.is_some() || self.is_hung_up() && !self.receiver.is_ready()
    }

    /// As [`Pipe::is_gone`], even if messages are left to receive. A system call.
    pub fn is_hung_up(&mut self) -> bool {
        if !self.hung_up && self.socket.is_hung_up(self.process()) {
            self.hung_up = true;
            self.socket.take_wakes(&mut self.refused);
        }
        self.hung_up || self.fault.is_some()
    }

    /// Copies memory of the process at the other end, which has announced its address and does not change it meanwhile:
    /// one copy, where messages through the pipe take two. Returns false if the system does not allow it, or the other
    /// end is closed; the content of `into` is undefined then.
    ///
    /// # Safety
    /// `into` must be valid for writes of `bytes`, and not be used by anything else meanwhile.
    pub unsafe fn read_memory(&mut self, address: u64, into: *mut u8, bytes: usize) -> bool {
        let Peer::Known(process) = &self.peer else { return false };
        // SAFETY: as promised by the caller.
        let is_read = unsafe { process.read(address, into, bytes) }.is_ok();
        // Checked after the copy: the other end existed until now, and kept the memory unchanged.
        is_read && !self.is_hung_up()
    }

    /// A descriptor that becomes readable when the process at the other end has ended, if the kernel provides one; to
    /// sleep on besides the pipe's own.
    pub fn process(&self) -> Option<BorrowedFd<'_>> {
        if let Peer::Known(process) = &self.peer { Some(process.as_fd()) } else { None }
    }

    /// Whether the other end was closed for lack of a descriptor or memory; valid once it is
    /// [hung up](Self::is_hung_up).
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// A number that changes with every message sent or received.
    pub fn activity(&self) -> u64 {
        self.sender.sent() + self.receiver.taken()
    }

    /// Releases memory that holds no message, when a pipe has been idle for some time. The next messages are slower.
    pub fn release_memory(&mut self) {
        if self.fault.is_some() {
            return;
        }
        self.receiver.give_back();
        self.receiver.acknowledge();
        full_fence();
        wake_if_sleeping(self.receiver.sender_sleeps(), &self.socket);
        if let Err(fault) = self.sender.release() {
            fail(&mut self.fault, &self.socket, fault);
        }
    }

    /// Why the pipe is broken, if it is.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Wakes the other side if its flag is set.
#[inline]
fn wake_if_sleeping(sleeps: &AtomicU32, socket: &Socket) {
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

/// Breaks the pipe, for both ends: the other end sees this one closed.
#[cold]
fn fail(to: &mut Option<Fault>, socket: &Socket, fault: Fault) {
    *to = Some(fault);
    socket.shut_down();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use super::*;
    use crate::memory::page_bytes;
    use crate::{Listener, connect};

    fn pair(test: &str, config: &PipeConfig) -> [Pipe; 2] {
        let name = format!("barewire-shm {test} {}", std::process::id());
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let initiator = connect(name.as_bytes(), &[], config).unwrap().unwrap();
        [initiator, listener.accept().unwrap().unwrap()]
    }

    /// Proves that arbitrary writes to the shared memory break the pipe at most: no end panics, hangs, or returns a
    /// message that is too long; and that a broken pipe stays broken.
    #[test]
    fn garbage_in_shared_memory_breaks_only_the_pipe() {
        let mut broken = 0;
        for seed in 0..300 {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let mut ends = pair("garbage", &PipeConfig { ring_bytes: page_bytes() });
            for _ in 0..500 {
                let end = random.usize(..2);
                if random.u8(..) < 16 {
                    scribble(&ends[end]._memory, &mut random);
                }
                let pipe = &mut ends[end];
                let was_broken = pipe.fault().is_some();
                match random.u8(..8) {
                    0..3 => {
                        let sent = pipe.send([&[1; 8], &vec![2; random.usize(..=pipe.message_max() - 8)]]);
                        assert!(!(sent && was_broken));
                    }
                    3..6 => {
                        let max = pipe.message_max();
                        let message = pipe.receive();
                        assert!(message.is_none_or(|message| message.len() <= max && !was_broken));
                    }
                    6 => drop(pipe.arm(Awaited::MessageOrRoom(random.usize(..1000)))),
                    _ => drop(pipe.is_gone()),
                }
                assert!(pipe.fault().is_none() || pipe.is_gone());
            }
            broken += ends.iter().filter(|end| end.fault().is_some()).count();
        }
        assert!(broken > 300, "garbage is detected: {broken} of 600 ends");
    }

    /// Proves the same for writes at any moment: only checked values are used.
    #[test]
    fn garbage_written_concurrently_breaks_only_the_pipe() {
        let mut broken = 0;
        for seed in 0..200 {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let [hostile, mut good] = pair("concurrent", &PipeConfig { ring_bytes: page_bytes() });
            // Counted, not timed: on a busy machine the other thread may not have run for a while.
            let (is_done, written) = (AtomicBool::new(false), AtomicU32::new(0));
            std::thread::scope(|scope| {
                let (is_done, written) = (&is_done, &written);
                let mut garbage = random.fork();
                scope.spawn(move || {
                    while !is_done.load(Ordering::Relaxed) {
                        scribble(&hostile._memory, &mut garbage);
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                });
                while good.fault().is_none() && written.load(Ordering::Relaxed) < 200_000 {
                    let max = good.message_max();
                    good.send([&[1; 8], &vec![2; random.usize(..=max - 8)]]);
                    assert!(good.receive().is_none_or(|message| message.len() <= max));
                    good.arm(Awaited::MessageOrRoom(random.usize(..max)));
                }
                is_done.store(true, Ordering::Relaxed);
            });
            broken += u32::from(good.fault().is_some());
        }
        assert!(broken > 150, "garbage is detected: {broken} of 200 ends");
    }

    fn scribble(memory: &Memory, random: &mut fastrand::Rng) {
        let ring = memory.ring(random.usize(..2));
        let garbage = match random.u8(..4) {
            0 => random.u64(..),
            1 => random.u64(..4096),
            2 => (random.u64(..128) << 32) | (1 << 31) | random.u64(..2048),
            _ => u64::MAX,
        };
        let (words, index) = if random.bool() {
            (ring.control.cast::<u64>(), random.usize(..3) * 16)
        } else {
            (ring.base.cast::<u64>(), random.usize(..2 * ring.bytes / 8))
        };
        // SAFETY: inside the controls of the ring or its two mappings; both ends belong to this thread.
        unsafe { words.add(index).write_volatile(garbage) };
    }

    #[test]
    fn an_end_that_detects_a_fault_closes_the_pipe() {
        let [mut initiator, mut listener] = pair("fault", &PipeConfig::default());
        assert!(initiator.send([b"before"]));
        // SAFETY: the word behind the message, inside the ring; both ends belong to this thread.
        unsafe { initiator._memory.ring(0).base.cast::<u64>().add(8).write_volatile(!0) };
        assert_eq!(listener.receive(), Some(&b"before"[..]));
        assert!(!initiator.is_gone());
        assert_eq!(listener.receive(), None);
        assert_eq!(listener.fault(), Some(Fault::Word(!0)));
        assert!(listener.is_gone() && listener.arm(Awaited::Message) && !listener.send([]));
        assert!(initiator.is_gone() && initiator.arm(Awaited::Message));
    }
}
