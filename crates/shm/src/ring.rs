// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a pipe: one sender, one receiver, and a ring of bytes between them.
//!
//! ```text
//!   line             line             line             line
//! ──┬──────┬─────────┬────────────────┬──────┬─────────┬──────┬──
//!   │ word │ message …                │ word │ message │ 0    │
//! ──┴──────┴──────────────────────────┴──────┴─────────┴──────┴──
//!   word: number of its line, 32 bits │ 1 │ bytes of the message, 31 bits
//! ```
//! A message starts on a line of its own. The receiver polls the word of the next message, which the sender writes
//! last: a short message arrives with its word, in one transfer of a cache line. Before that the sender zeroes the word
//! behind the message, since leftovers of an earlier round could look like one.
//!
//! Positions count bytes since the beginning and never wrap. Each side keeps its own; the sender learns the receiver's
//! from [`Control::acknowledged`](crate::memory::Control), which it reads only when the last value leaves no room.

use nix::errno::Errno;

use crate::bounds::{LINE_BYTES, RELEASED_MIN};
use crate::error::Fault;
use crate::memory::Ring;
use crate::sync::{AtomicU32, Ordering, fence};

/// Sender's side of a ring.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: Ring,
    /// Position of the next message.
    sent: u64,
    /// Acknowledged position of the receiver, as last read.
    taken: u64,
    /// Value of `sent` when memory was last released.
    released: u64,
    /// Position up to which memory was allocated since then.
    present: u64,
}

/// Receiver's side of a ring.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Ring,
    /// Position of the lent message, or of the next one if none is lent.
    taken: u64,
    /// Bytes of the ring lent to the caller.
    lent: u64,
    /// Position last acknowledged to the sender.
    acknowledged: u64,
}

const WORD_BYTES: usize = size_of::<u64>();
/// Set in every word, so that none is zero.
const PRESENT: u64 = 1 << 31;

impl Sender {
    /// The sender of a new ring, whose memory must outlive it.
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, sent: 0, taken: 0, released: 0, present: 0 }
    }

    /// Copies a message of `bytes` in all, at most [`Ring::message_max`], into the ring; false if there is no room.
    #[inline(always)]
    pub(crate) fn send<const PARTS: usize>(&mut self, message: [&[u8]; PARTS], bytes: usize) -> Result<bool, Fault> {
        debug_assert!(bytes <= self.ring.message_max() && bytes == message.iter().map(|part| part.len()).sum());
        if !self.has_room(bytes)? {
            return Ok(false);
        }
        let next = self.sent + lines(bytes);
        if next + LINE_BYTES as u64 > self.present {
            self.ensure_memory(next + LINE_BYTES as u64)?;
        }
        // SAFETY: the message is at most a quarter of the ring. The receiver has taken what was there (`has_room`), and
        // reads the new message only after its word is written.
        unsafe { self.ring.write(self.sent + WORD_BYTES as u64, message) };
        self.ring.word(next).store(0, Ordering::Relaxed);
        self.ring.word(self.sent).store(word(self.sent, bytes), Ordering::Release);
        self.sent = next;
        Ok(true)
    }

    /// Whether there is room for a message of this size.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> Result<bool, Fault> {
        // Includes the line behind the message, for its zero.
        let needed = lines(bytes) + LINE_BYTES as u64;
        let limit = self.ring.bytes as u64 - needed;
        Ok(self.sent - self.taken <= limit || {
            self.update_taken()?;
            self.sent - self.taken <= limit
        })
    }

    /// Reads the acknowledged position.
    #[cold]
    fn update_taken(&mut self) -> Result<(), Fault> {
        let acknowledged = self.ring.control().acknowledged.0.load(Ordering::Acquire);
        if !(self.taken..=self.sent).contains(&acknowledged) {
            return Err(Fault::Acknowledged { acknowledged, before: self.taken, sent: self.sent });
        }
        self.taken = acknowledged;
        Ok(())
    }

    /// Allocates memory up to a position, and as much again as is already in use: allocation page by page, on first
    /// touch, takes several times as long.
    #[cold]
    fn ensure_memory(&mut self, needed: u64) -> Result<(), Fault> {
        // From one round after the last release on, all memory is allocated.
        let round = self.released + self.ring.bytes as u64;
        let wanted = (needed + (self.sent - self.released)).min(round);
        let from = self.present.max(self.released);
        self.present = if from < round {
            match self.ring.populate(from, wanted).or_else(|_| self.ring.populate(from, needed.min(round))) {
                Ok(present) if present < round => present,
                // All is allocated, or the system cannot do it in advance and allocates each page on first touch.
                Ok(_) | Err(Errno::EINVAL) => u64::MAX,
                Err(_) => return Err(Fault::NoMemory),
            }
        } else {
            u64::MAX
        };
        Ok(())
    }

    /// Releases the memory of sent and acknowledged messages, if it is enough to be worth a system call.
    pub(crate) fn release(&mut self) -> Result<(), Fault> {
        self.update_taken()?;
        if self.sent - self.released >= RELEASED_MIN {
            // Messages that are not acknowledged stay, as does the line behind them with its zero.
            self.ring.release(self.sent + LINE_BYTES as u64, self.taken + self.ring.bytes as u64);
            (self.released, self.present) = (self.sent, self.sent);
        }
        Ok(())
    }

    /// Total bytes of the ring used for messages sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The receiver's sleep flag.
    #[inline]
    pub(crate) fn receiver_sleeps(&self) -> &AtomicU32 {
        &self.ring.control().receiver_sleeps.0
    }

    /// The sender's own sleep flag.
    pub(crate) fn sleeps(&self) -> &AtomicU32 {
        &self.ring.control().sender_sleeps.0
    }

    /// Size of the largest message.
    #[inline]
    pub(crate) fn message_max(&self) -> usize {
        self.ring.message_max()
    }
}

impl Receiver {
    /// The receiver of a new ring, whose memory must outlive it.
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, taken: 0, lent: 0, acknowledged: 0 }
    }

    /// Returns the lent message's space; true if it was acknowledged to the sender.
    #[inline]
    pub(crate) fn give_back(&mut self) -> bool {
        if self.lent == 0 {
            return false;
        }
        self.taken += self.lent;
        self.lent = 0;
        let is_due = self.taken - self.acknowledged >= self.ring.step();
        if is_due {
            self.acknowledge();
        }
        is_due
    }

    /// Makes the lent message the next one again.
    #[inline]
    pub(crate) fn put_back(&mut self) {
        self.lent = 0;
    }

    /// Total bytes of the ring taken by the caller.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Acknowledges everything taken.
    pub(crate) fn acknowledge(&mut self) {
        self.acknowledged = self.taken;
        self.ring.control().acknowledged.0.store(self.acknowledged, Ordering::Release);
    }

    /// The next message, if any. The previous one must have been given back.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<Option<&[u8]>, Fault> {
        debug_assert_eq!(self.lent, 0);
        let found = self.ring.word(self.taken).load(Ordering::Acquire);
        if found == 0 {
            return Ok(None);
        }
        let bytes = (found & (PRESENT - 1)) as usize;
        if found != word(self.taken, bytes) {
            return Err(Fault::Word(found));
        }
        if bytes > self.ring.message_max() {
            return Err(Fault::Length(bytes));
        }
        self.lent = lines(bytes);
        // SAFETY: at most a quarter of the ring. The sender writes there again only after the message is acknowledged,
        // which needs `&mut self` and so ends the loan. If the sender breaks that rule, the bytes change, as with any
        // mapped file, and nothing here depends on them.
        let message = unsafe { self.ring.lend(self.taken + WORD_BYTES as u64, bytes) };
        Ok(Some(message))
    }

    /// Whether there is a word, valid or not, behind the lent message.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.ring.word(self.taken + self.lent).load(Ordering::Acquire) != 0
    }

    /// The sender's sleep flag.
    #[inline]
    pub(crate) fn sender_sleeps(&self) -> &AtomicU32 {
        &self.ring.control().sender_sleeps.0
    }

    /// The receiver's own sleep flag.
    pub(crate) fn sleeps(&self) -> &AtomicU32 {
        &self.ring.control().receiver_sleeps.0
    }
}

/// The fence between a side's own write and its read of the other side's flag or word: with one on each side, at least
/// one side sees what the other wrote.
#[inline]
pub(crate) fn full_fence() {
    fence(Ordering::SeqCst);
}

/// The word in front of a message of this size at a position.
#[inline]
fn word(position: u64, bytes: usize) -> u64 {
    ((position / LINE_BYTES as u64) << 32) | PRESENT | bytes as u64
}

/// Bytes of the ring that a message of this size occupies.
#[inline]
fn lines(bytes: usize) -> u64 {
    (WORD_BYTES + bytes).next_multiple_of(LINE_BYTES) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::{Memory, page_bytes};

    struct Ends {
        sender: Sender,
        receiver: Receiver,
        _memory: Memory,
    }

    fn ends() -> Ends {
        ends_of(page_bytes())
    }

    fn ends_of(ring_bytes: usize) -> Ends {
        #[cfg(not(miri))]
        let (memory, _file) = Memory::create(ring_bytes).unwrap();
        #[cfg(miri)]
        let memory = Memory::plain(ring_bytes);
        let ring = memory.ring(0);
        Ends { sender: Sender::new(ring), receiver: Receiver::new(ring), _memory: memory }
    }

    impl Ends {
        fn send(&mut self, message: &[u8]) -> bool {
            self.sender.send([message], message.len()).unwrap()
        }

        fn receive(&mut self) -> Option<Vec<u8>> {
            self.receiver.give_back();
            self.receiver.receive().unwrap().map(<[u8]>::to_vec)
        }
    }

    #[test]
    fn a_message_that_wraps_around_the_end_of_the_ring_is_contiguous() {
        let mut ends = ends();
        let message: Vec<u8> = (0..1000).map(|index| index as u8).collect();
        // 8 to 13 lines each, in a ring of 64 or more: messages start on many different lines.
        for round in 0..page_bytes() / LINE_BYTES * 5 {
            let message = &message[..500 + round % 320];
            assert!(ends.send(message));
            assert_eq!(ends.receive().unwrap(), message);
        }
    }

    /// A page of 4096 bytes is 64 lines, one of which holds the zero behind the last message.
    #[test]
    fn a_ring_holds_all_its_lines_but_one() {
        let mut ends = ends();
        let eighth = page_bytes() / LINE_BYTES / 8;
        for _ in 0..8 * eighth - 1 {
            assert!(ends.send(&[1; LINE_BYTES - WORD_BYTES]));
        }
        assert!(!ends.send(&[]));
        // Acknowledged in eighths: so many lines must be returned before the sender sees any.
        for taken in 0..=eighth {
            assert!(!ends.sender.has_room(0).unwrap(), "after {taken} messages");
            assert!(ends.receive().is_some());
        }
        let long = vec![2; eighth * LINE_BYTES - WORD_BYTES];
        assert!(ends.send(&long));
        assert!(!ends.send(&[]));
        while let Some(message) = ends.receive() {
            assert!(message == [1; LINE_BYTES - WORD_BYTES] || message == long);
        }
        let max = ends.sender.message_max();
        assert!(ends.send(&vec![3; max]) && ends.send(&[]), "the longest message fits beside unacknowledged ones");
    }

    /// Proves that releasing memory at any moment changes neither pending nor later messages, and that the memory is
    /// really released.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no pages")]
    fn releasing_memory_changes_no_message() {
        for pending in [0, 1, 5, 30] {
            let page = page_bytes();
            let mut ends = ends_of(16 * page);
            for round in 0..40_usize {
                let message = |number: usize| vec![(round * 31 + number) as u8; 97 * number % 1500];
                for number in 0..35 {
                    assert!(ends.send(&message(number)));
                    if number >= pending {
                        assert_eq!(ends.receive(), Some(message(number - pending)));
                    }
                }
                ends.receiver.give_back();
                ends.receiver.acknowledge();
                ends.sender.release().unwrap();
                if pending == 0 {
                    assert!(ends._memory.resident_bytes() <= 3 * page, "{}", ends._memory.resident_bytes());
                }
                for number in 35 - pending..35 {
                    assert_eq!(ends.receive(), Some(message(number)));
                }
                assert_eq!(ends.receive(), None);
            }
        }
    }

    /// Proves that memory is allocated ahead of the messages, as much again as is in use, and completely after a round.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no pages")]
    fn memory_is_allocated_ahead_of_the_messages() {
        let page = page_bytes();
        let mut ends = ends_of(16 * page);
        let resident = |ends: &Ends| ends._memory.resident_bytes();
        // Four messages to a page.
        for (messages, min, max) in [(1, 1, 1), (8, 2, 4), (24, 8, 16), (60, 16, 16)] {
            while ends.sender.sent < (messages * page / 4) as u64 {
                assert!(ends.send(&vec![7; page / 4 - WORD_BYTES]));
                ends.receive().unwrap();
            }
            let pages = min * page..=max * page;
            assert!(pages.contains(&resident(&ends)), "{messages}: {}", resident(&ends));
        }
        ends.receiver.give_back();
        ends.receiver.acknowledge();
        ends.sender.release().unwrap();
        assert!(resident(&ends) <= 3 * page);
        assert!(ends.send(&vec![7; 2 * page]) && ends.receive().is_some());
        assert!(resident(&ends) <= 6 * page, "{}", resident(&ends));
    }

    #[test]
    fn an_empty_message_is_delivered() {
        let mut ends = ends();
        assert_eq!(ends.receive(), None);
        for _ in 0..1000 {
            assert!(ends.send(&[]));
            assert_eq!((ends.receive(), ends.receive()), (Some(vec![]), None));
        }
    }

    /// Sends messages whose bytes look like the words of later rounds; none may be taken for a message.
    #[test]
    fn bytes_of_an_old_message_are_not_taken_for_a_new_one() {
        let mut ends = ends();
        let ring_bytes = page_bytes();
        for round in 1..20 {
            for _ in 0..ring_bytes / LINE_BYTES / 8 {
                let begin = ends.sender.sent;
                let bytes = 8 * LINE_BYTES - WORD_BYTES;
                let words = (1..64).map(|index| word(begin + ring_bytes as u64 + 8 * (index & !7), 8));
                let message: Vec<u8> = words.flat_map(u64::to_ne_bytes).take(bytes).collect();
                assert!(ends.send(&message));
                assert_eq!(ends.receive(), Some(message));
                assert_eq!(ends.receive(), None, "round {round}");
            }
            assert!(ends.send(&[]) && ends.receive().is_some());
        }
    }

    #[test]
    fn invalid_values_of_the_other_end_are_faults() {
        let mut ends = ends();
        let (control, too_long) = (ends.sender.ring, ends.sender.message_max() + 1);
        for acknowledged in [1, u64::MAX] {
            control.control().acknowledged.0.store(acknowledged, Ordering::Relaxed);
            assert_eq!(ends.sender.update_taken(), Err(Fault::Acknowledged { acknowledged, before: 0, sent: 0 }));
        }
        for (wrong, fault) in [
            (1, Fault::Word(1)),
            (word(64, 3), Fault::Word(word(64, 3))),
            (word(0, too_long), Fault::Length(too_long)),
            (word(0, (1 << 31) - 1), Fault::Length((1 << 31) - 1)),
        ] {
            ends.receiver.ring.word(0).store(wrong, Ordering::Relaxed);
            assert_eq!(ends.receiver.receive(), Err(fault));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(usize),
        Receive,
        PutBack,
        Acknowledge,
    }

    proptest! {
        /// The ring is a queue: messages come out whole and in order. It refuses messages only when nearly full.
        #[test]
        fn a_ring_is_a_queue(steps in prop::collection::vec(
            prop_oneof![3 => (0..1017_usize).prop_map(Step::Send), 2 => (0..100_usize).prop_map(Step::Send),
                        4 => Just(Step::Receive), 1 => Just(Step::PutBack), 1 => Just(Step::Acknowledge)],
            1..400,
        )) {
            let (mut ends, mut queue, mut number) = (ends(), VecDeque::new(), 0_u8);
            let ring_bytes = page_bytes() as u64;
            // Bytes that the receiver has lent.
            let mut held = 0;
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        number = number.wrapping_add(1);
                        let message = vec![number; bytes];
                        let used: u64 = queue.iter().map(|message: &Vec<u8>| lines(message.len())).sum();
                        let (before, behind) = message.split_at(bytes / 3);
                        if ends.sender.send([before, behind], bytes).unwrap() {
                            queue.push_back(message);
                            prop_assert!(used + lines(bytes) < ring_bytes);
                        } else {
                            let unacknowledged = held + ring_bytes / 8;
                            prop_assert!(used + unacknowledged + lines(bytes) + 64 > ring_bytes);
                        }
                    }
                    Step::Receive => {
                        let message = ends.receive();
                        held = message.as_ref().map_or(0, |message| lines(message.len()));
                        prop_assert_eq!(message, queue.pop_front());
                    }
                    Step::PutBack => {
                        prop_assert_eq!(ends.receive(), queue.front().cloned());
                        ends.receiver.put_back();
                        held = 0;
                    }
                    Step::Acknowledge => {
                        ends.receiver.give_back();
                        ends.receiver.acknowledge();
                        held = 0;
                    }
                }
                prop_assert_eq!(ends.receiver.is_ready(), !queue.is_empty());
            }
        }
    }
}
