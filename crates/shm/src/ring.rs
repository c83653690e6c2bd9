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
//! A message begins on a line of its own. The receiver waits for the word of the next one, which the sender writes last:
//! a short message and the news of it are one line, and one transfer from cache to cache. Before that the sender makes
//! the word behind the message zero, since what an earlier round left there could look like one.
//!
//! Positions count bytes since the beginning and never wrap. Each side keeps its own; the sender learns the receiver's
//! from [`Control::told`](crate::memory::Control), and looks there only when what it knows leaves no room.

use nix::errno::Errno;

use crate::bounds::{LINE_BYTES, RELEASED_MIN};
use crate::error::Fault;
use crate::memory::Ring;
use crate::sync::{AtomicU32, Ordering, fence};

/// The sender's side.
#[derive(Debug)]
pub(crate) struct Sending {
    ring: Ring,
    /// Where the next message begins.
    sent: u64,
    /// What the receiver has taken, as it told last.
    taken: u64,
    /// What had been sent when memory was given back last.
    released: u64,
    /// Up to where memory was asked for since then.
    present: u64,
}

/// The receiver's side.
#[derive(Debug)]
pub(crate) struct Receiving {
    ring: Ring,
    /// Where the message lent begins, or else the next one.
    taken: u64,
    /// Bytes of the ring lent to the caller.
    lent: u64,
    /// What the sender has been told.
    told: u64,
}

const WORD_BYTES: usize = size_of::<u64>();
/// Set in every word, so that none is zero.
const PRESENT: u64 = 1 << 31;

impl Sending {
    /// The sender of a ring that nobody has sent into. The ring's memory must live as long as what is returned.
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, sent: 0, taken: 0, released: 0, present: 0 }
    }

    /// Copies a message, of `bytes` in all and at most [`Ring::room`], into the ring; false if it is too full for that.
    #[inline(always)]
    pub(crate) fn send<const PARTS: usize>(&mut self, message: [&[u8]; PARTS], bytes: usize) -> Result<bool, Fault> {
        debug_assert!(bytes <= self.ring.room() && bytes == message.iter().map(|part| part.len()).sum());
        if !self.has_room(bytes)? {
            return Ok(false);
        }
        let next = self.sent + lines(bytes);
        if next + LINE_BYTES as u64 > self.present {
            self.ask_for_memory(next + LINE_BYTES as u64)?;
        }
        // SAFETY: the message is at most a quarter of the ring. The receiver has taken what was there (`has_room`) and reads
        // none of it before its word is written.
        unsafe { self.ring.write(self.sent + WORD_BYTES as u64, message) };
        self.ring.word(next).store(0, Ordering::Relaxed);
        self.ring.word(self.sent).store(word(self.sent, bytes), Ordering::Release);
        self.sent = next;
        Ok(true)
    }

    /// Whether a message of so many bytes can be sent now.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> Result<bool, Fault> {
        // The line behind the message has to be free as well, for its zero.
        let needed = lines(bytes) + LINE_BYTES as u64;
        let limit = self.ring.bytes as u64 - needed;
        Ok(self.sent - self.taken <= limit || {
            self.look()?;
            self.sent - self.taken <= limit
        })
    }

    /// Takes note of what the receiver has told.
    #[cold]
    fn look(&mut self) -> Result<(), Fault> {
        let told = self.ring.control().told.0.load(Ordering::Acquire);
        if !(self.taken..=self.sent).contains(&told) {
            return Err(Fault::Taken { told, before: self.taken, sent: self.sent });
        }
        self.taken = told;
        Ok(())
    }

    /// Asks the system for memory up to a position, and for as much as was used already beyond it: page by page, as it is
    /// touched, the system takes several times as long.
    #[cold]
    fn ask_for_memory(&mut self, needed: u64) -> Result<(), Fault> {
        // From one round behind where memory was given back on, all of it is there.
        let round = self.released + self.ring.bytes as u64;
        let wanted = (needed + (self.sent - self.released)).min(round);
        let from = self.present.max(self.released);
        self.present = if from < round {
            match self.ring.populate(from, wanted).or_else(|_| self.ring.populate(from, needed.min(round))) {
                Ok(present) if present < round => present,
                // All of it, or a system that cannot be asked and finds each page when it is touched.
                Ok(_) | Err(Errno::EINVAL) => u64::MAX,
                Err(_) => return Err(Fault::NoMemory),
            }
        } else {
            u64::MAX
        };
        Ok(())
    }

    /// Gives back the memory of what was sent and taken, if that is worth while.
    pub(crate) fn release(&mut self) -> Result<(), Fault> {
        self.look()?;
        if self.sent - self.released >= RELEASED_MIN {
            // What is not taken stays, and the line behind it with its zero.
            self.ring.release(self.sent + LINE_BYTES as u64, self.taken + self.ring.bytes as u64);
            (self.released, self.present) = (self.sent, self.sent);
        }
        Ok(())
    }

    /// Bytes of the ring used so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The flag that the receiver sets before it sleeps.
    #[inline]
    pub(crate) fn receiver_sleeps(&self) -> &AtomicU32 {
        &self.ring.control().receiver_sleeps.0
    }

    /// The flag to set before sleeping for room.
    pub(crate) fn sleeps(&self) -> &AtomicU32 {
        &self.ring.control().sender_sleeps.0
    }

    /// The largest message.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.ring.room()
    }
}

impl Receiving {
    /// The receiver of a ring that nobody has received from. The ring's memory must live as long as what is returned.
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, taken: 0, lent: 0, told: 0 }
    }

    /// Gives the message lent back; true if the sender was told that there is room.
    #[inline]
    pub(crate) fn give_back(&mut self) -> bool {
        if self.lent == 0 {
            return false;
        }
        self.taken += self.lent;
        self.lent = 0;
        let due = self.taken - self.told >= self.ring.step();
        if due {
            self.tell();
        }
        due
    }

    /// The message lent is lent again by the next call: it was not taken.
    #[inline]
    pub(crate) fn put_back(&mut self) {
        self.lent = 0;
    }

    /// Bytes of the ring given back so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Tells the sender all that was given back.
    pub(crate) fn tell(&mut self) {
        self.told = self.taken;
        self.ring.control().told.0.store(self.told, Ordering::Release);
    }

    /// The next message, if there is one; the one before has to be given back first.
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
        if bytes > self.ring.room() {
            return Err(Fault::Length(bytes));
        }
        self.lent = lines(bytes);
        // SAFETY: at most a quarter of the ring. The sender writes there again only when it has been told that the message was
        // taken, which needs `&mut self` and so the end of the loan. Should it break that rule, the bytes have other values,
        // as with any file that is mapped, and nothing here depends on them.
        let message = unsafe { self.ring.lend(self.taken + WORD_BYTES as u64, bytes) };
        Ok(Some(message))
    }

    /// Whether something lies behind the message lent, be it right or wrong.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.ring.word(self.taken + self.lent).load(Ordering::Acquire) != 0
    }

    /// The flag that the sender sets before it sleeps for room.
    #[inline]
    pub(crate) fn sender_sleeps(&self) -> &AtomicU32 {
        &self.ring.control().sender_sleeps.0
    }

    /// The flag to set before sleeping.
    pub(crate) fn sleeps(&self) -> &AtomicU32 {
        &self.ring.control().receiver_sleeps.0
    }
}

/// What two sides do between their own word and the other's flag or word: with one on each side, at least one of the two
/// sees what the other wrote.
#[inline]
pub(crate) fn meet() {
    fence(Ordering::SeqCst);
}

/// The word in front of a message of so many bytes at a position.
#[inline]
fn word(position: u64, bytes: usize) -> u64 {
    ((position / LINE_BYTES as u64) << 32) | PRESENT | bytes as u64
}

/// Bytes of the ring that a message of so many bytes takes.
#[inline]
fn lines(bytes: usize) -> u64 {
    (WORD_BYTES + bytes).next_multiple_of(LINE_BYTES) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::Memory;

    const RING_BYTES: usize = 4096;

    struct Ends {
        sending: Sending,
        receiving: Receiving,
        _memory: Memory,
    }

    fn ends() -> Ends {
        ends_of(RING_BYTES)
    }

    fn ends_of(ring_bytes: usize) -> Ends {
        #[cfg(not(miri))]
        let (memory, _file) = Memory::create(ring_bytes).unwrap();
        #[cfg(miri)]
        let memory = Memory::plain(ring_bytes);
        let ring = memory.ring(0);
        Ends { sending: Sending::new(ring), receiving: Receiving::new(ring), _memory: memory }
    }

    impl Ends {
        fn send(&mut self, message: &[u8]) -> bool {
            self.sending.send([message], message.len()).unwrap()
        }

        fn receive(&mut self) -> Option<Vec<u8>> {
            self.receiving.give_back();
            self.receiving.receive().unwrap().map(<[u8]>::to_vec)
        }
    }

    #[test]
    fn a_message_that_reaches_beyond_the_end_of_the_ring_is_received_in_one_piece() {
        let mut ends = ends();
        let message: Vec<u8> = (0..1000).map(|place| place as u8).collect();
        // 16 lines each, but 17 with the odd one in front: after some rounds every line has been a beginning.
        for round in 0..64 * 5 {
            assert!(ends.send(&message[..500 + round]));
            assert_eq!(ends.receive().unwrap(), message[..500 + round]);
        }
    }

    /// 4096 bytes are 64 lines, one of which holds the zero behind the last message.
    #[test]
    fn a_ring_takes_as_many_lines_as_it_has_less_one() {
        let mut ends = ends();
        for _ in 0..63 {
            assert!(ends.send(&[1; LINE_BYTES - WORD_BYTES]));
        }
        assert!(!ends.send(&[]));
        // Told in eighths: eight lines must be back before there is news of any.
        for taken in 0..=8 {
            assert!(!ends.sending.has_room(0).unwrap(), "after {taken} messages");
            assert!(ends.receive().is_some());
        }
        assert!(ends.send(&[2; 8 * LINE_BYTES - WORD_BYTES]));
        assert!(!ends.send(&[]));
        while let Some(message) = ends.receive() {
            assert!(matches!((message[0], message.len()), (1, 56) | (2, 504)));
        }
        let room = ends.sending.room();
        assert!(ends.send(&vec![3; room]) && ends.send(&[]), "the longest fits what was not told yet");
    }

    /// Proves that memory given back at any moment changes nothing for what was not taken, nor for what comes later; and
    /// that it is the system's again.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no pages")]
    fn memory_that_is_given_back_changes_no_message() {
        for untaken in [0, 1, 5, 30] {
            let mut ends = ends_of(64 << 10);
            for round in 0..40_usize {
                let message = |number: usize| vec![(round * 31 + number) as u8; 97 * number % 1500];
                for number in 0..35 {
                    assert!(ends.send(&message(number)));
                    if number >= untaken {
                        assert_eq!(ends.receive(), Some(message(number - untaken)));
                    }
                }
                ends.receiving.give_back();
                ends.receiving.tell();
                ends.sending.release().unwrap();
                if untaken == 0 {
                    assert!(ends._memory.resident_bytes() <= 3 * 4096, "{}", ends._memory.resident_bytes());
                }
                for number in 35 - untaken..35 {
                    assert_eq!(ends.receive(), Some(message(number)));
                }
                assert_eq!(ends.receive(), None);
            }
        }
    }

    /// Proves that a ring has the memory of what was sent, and of as much again, before it is touched; all after a round.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no pages")]
    fn memory_is_asked_for_ahead_of_the_messages() {
        let mut ends = ends_of(64 << 10);
        let resident = |ends: &Ends| ends._memory.resident_bytes();
        for (messages, least, most) in
            [(1, 4096, 4096), (8, 8192, 16 << 10), (24, 32 << 10, 64 << 10), (60, 64 << 10, 64 << 10)]
        {
            while ends.sending.sent < messages * 1024 {
                assert!(ends.send(&[7; 1024 - WORD_BYTES]));
                ends.receive().unwrap();
            }
            assert!((least..=most).contains(&resident(&ends)), "{messages}: {}", resident(&ends));
        }
        ends.receiving.give_back();
        ends.receiving.tell();
        ends.sending.release().unwrap();
        assert!(resident(&ends) <= 3 * 4096);
        assert!(ends.send(&[7; 8192]) && ends.receive().is_some());
        assert!(resident(&ends) <= 6 * 4096, "{}", resident(&ends));
    }

    #[test]
    fn an_empty_message_is_a_message() {
        let mut ends = ends();
        assert_eq!(ends.receive(), None);
        for _ in 0..1000 {
            assert!(ends.send(&[]));
            assert_eq!((ends.receive(), ends.receive()), (Some(vec![]), None));
        }
    }

    /// Sends what the words of later rounds look like; none of it is taken for one when its time has come.
    #[test]
    fn bytes_of_an_old_message_are_never_taken_for_a_new_one() {
        let mut ends = ends();
        for round in 1..20 {
            for _ in 0..8 {
                let begin = ends.sending.sent;
                let bytes = 8 * LINE_BYTES - WORD_BYTES;
                let words = (1..64).map(|place| word(begin + RING_BYTES as u64 + 8 * (place & !7), 8));
                let message: Vec<u8> = words.flat_map(u64::to_ne_bytes).take(bytes).collect();
                assert!(ends.send(&message));
                assert_eq!(ends.receive(), Some(message));
                assert_eq!(ends.receive(), None, "round {round}");
            }
            assert!(ends.send(&[]) && ends.receive().is_some());
        }
    }

    #[test]
    fn what_the_other_end_cannot_have_written_is_a_fault() {
        let mut ends = ends();
        let control = ends.sending.ring;
        for told in [1, u64::MAX] {
            control.control().told.0.store(told, Ordering::Relaxed);
            assert_eq!(ends.sending.look(), Err(Fault::Taken { told, before: 0, sent: 0 }));
        }
        for (wrong, fault) in [
            (1, Fault::Word(1)),
            (word(64, 3), Fault::Word(word(64, 3))),
            (word(0, 1017), Fault::Length(1017)),
            (word(0, (1 << 31) - 1), Fault::Length((1 << 31) - 1)),
        ] {
            ends.receiving.ring.word(0).store(wrong, Ordering::Relaxed);
            assert_eq!(ends.receiving.receive(), Err(fault));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(usize),
        Receive,
        PutBack,
        Tell,
    }

    proptest! {
        /// The ring is a queue: what goes in comes out, in order and whole; and it refuses only when it is rather full.
        #[test]
        fn a_ring_is_a_queue(steps in prop::collection::vec(
            prop_oneof![3 => (0..1017_usize).prop_map(Step::Send), 2 => (0..100_usize).prop_map(Step::Send),
                        4 => Just(Step::Receive), 1 => Just(Step::PutBack), 1 => Just(Step::Tell)],
            1..400,
        )) {
            let (mut ends, mut queue, mut number) = (ends(), VecDeque::new(), 0_u8);
            // What the receiver still has lent, and what it has not told.
            let mut held = 0;
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        number = number.wrapping_add(1);
                        let message = vec![number; bytes];
                        let used: u64 = queue.iter().map(|message: &Vec<u8>| lines(message.len())).sum();
                        let (before, behind) = message.split_at(bytes / 3);
                        if ends.sending.send([before, behind], bytes).unwrap() {
                            queue.push_back(message);
                            prop_assert!(used + lines(bytes) < RING_BYTES as u64);
                        } else {
                            let untold = held + (RING_BYTES / 8) as u64;
                            prop_assert!(used + untold + lines(bytes) + 64 > RING_BYTES as u64);
                        }
                    }
                    Step::Receive => {
                        let message = ends.receive();
                        held = message.as_ref().map_or(0, |message| lines(message.len()));
                        prop_assert_eq!(message, queue.pop_front());
                    }
                    Step::PutBack => {
                        prop_assert_eq!(ends.receive(), queue.front().cloned());
                        ends.receiving.put_back();
                        held = 0;
                    }
                    Step::Tell => {
                        ends.receiving.give_back();
                        ends.receiving.tell();
                        held = 0;
                    }
                }
                prop_assert_eq!(ends.receiving.is_ready(), !queue.is_empty());
            }
        }
    }
}
