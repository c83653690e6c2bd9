// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold whatever the network does: it knows what was posted, and judges what comes of it.

use std::fmt;

use barewire_messages::{CompletionLevel, Failure, Label};

use super::scenario::{CONSTANT_BYTES, COUNTERS, SLOTS, Wants};

/// A promise of the stack's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Messages match in MPI's order.
    Order,
    /// What is received was sent, as it is, to this receiver, once.
    Content,
    /// Each operation is completed once, as what it is.
    Once,
    /// Nothing fails without a reason.
    Failure,
    /// What was completed as sent is received, or its loss is told.
    Delivery,
    /// Memory of peers is written, read and changed as asked.
    Access,
    /// No more memory is held than was configured, and all of it is given back.
    Memory,
    /// When faults have stopped, everything ends in time.
    Progress,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// How.
    pub detail: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.detail)
    }
}

impl std::error::Error for Broken {}

/// How far a message's send has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Posted,
    Completed,
    Failed,
    Cancelled,
}

pub struct Message {
    pub from: usize,
    /// The sender's process.
    pub life: usize,
    pub to: usize,
    /// The receiver's process when the message was posted, and when it was completed.
    to_life: usize,
    done_life: usize,
    pub label: Label,
    pub bytes: usize,
    pub reaches: CompletionLevel,
    pub state: State,
    /// Whether the process that got it is told of it here: its life, and the receive there.
    received: Option<(usize, usize)>,
    /// Writes to each slot there, by the sender, that were posted before.
    writes: [usize; SLOTS],
}

/// A receive or a claim.
struct Receive {
    life: usize,
    wants: Wants,
    takes_many: bool,
    messages: Vec<usize>,
    /// When it could match nothing any more, if it took no message until then.
    over: Option<u64>,
}

/// A write to a peer's slot.
struct Write {
    to_life: usize,
    offset: usize,
    bytes: Vec<u8>,
    has_data: bool,
    is_done: bool,
    has_failed: bool,
    is_told: bool,
}

#[derive(Clone, Default)]
struct Counter {
    posted: u64,
    done: u64,
    was_restarted: bool,
}

pub struct Oracle {
    ranks: usize,
    pub messages: Vec<Message>,
    receives: Vec<Receive>,
    /// Messages received, with the time, in the order in which they were told of.
    arrivals: Vec<(u64, usize, usize)>,
    writes: Vec<Vec<Write>>,
    counters: Vec<Counter>,
    /// Of each two ranks: the way between them may have ended.
    disturbed: Vec<bool>,
    /// Of each two ranks: the first has ended its channel to the second, or forgotten it.
    left: Vec<bool>,
    /// Of each two ranks: the first was told that something was lost on the way to the second.
    told: Vec<bool>,
    /// Of each rank: its process now.
    lives: Vec<usize>,
    lives_begun: usize,
    /// Counts what happens.
    time: u64,
    broken: Option<Broken>,
}

impl Oracle {
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks,
            messages: Vec::new(),
            receives: Vec::new(),
            arrivals: Vec::new(),
            writes: (0..ranks * ranks * SLOTS).map(|_| Vec::new()).collect(),
            counters: vec![Counter::default(); ranks * COUNTERS],
            disturbed: vec![false; ranks * ranks],
            left: vec![false; ranks * ranks],
            told: vec![false; ranks * ranks],
            lives: (0..ranks).collect(),
            lives_begun: ranks,
            time: 0,
            broken: None,
        }
    }

    /// The first promise that was broken: what follows is its consequence.
    pub fn verdict(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    pub fn report(&mut self, promise: Promise, detail: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { promise, detail: detail() });
        }
    }

    pub fn require(&mut self, condition: bool, promise: Promise, detail: impl FnOnce() -> String) {
        if !condition {
            self.report(promise, detail);
        }
    }

    pub fn life(&self, rank: usize) -> usize {
        self.lives[rank]
    }

    /// The way between a rank and every other may end.
    pub fn disturb(&mut self, rank: usize) {
        (0..self.ranks).for_each(|other| self.disturb_pair(rank, other));
    }

    pub fn disturb_pair(&mut self, one: usize, other: usize) {
        self.disturbed[one * self.ranks + other] = true;
        self.disturbed[other * self.ranks + one] = true;
    }

    pub fn is_disturbed(&self, one: usize, other: usize) -> bool {
        self.disturbed[one * self.ranks + other]
    }

    /// A rank ends its channel to a peer.
    pub fn leaves(&mut self, rank: usize, peer: usize) {
        self.left[rank * self.ranks + peer] = true;
        self.disturb_pair(rank, peer);
    }

    /// Whether a rank has ended any channel, or forgotten a peer.
    pub fn has_left_any(&self, rank: usize) -> bool {
        (0..self.ranks).any(|peer| self.has_left(rank, peer))
    }

    fn has_left(&self, rank: usize, peer: usize) -> bool {
        self.left[rank * self.ranks + peer]
    }

    /// A process is no more, and another begins.
    pub fn restart(&mut self, rank: usize) {
        self.disturb(rank);
        self.lives[rank] = self.lives_begun;
        self.lives_begun += 1;
        for counter in &mut self.counters[rank * COUNTERS..(rank + 1) * COUNTERS] {
            (counter.done, counter.was_restarted) = (0, true);
        }
    }

    /// A rank was told that something for a peer was lost.
    pub fn told_of_loss(&mut self, rank: usize, peer: usize) {
        self.told[rank * self.ranks + peer] = true;
        let is_explained = self.is_disturbed(rank, peer);
        self.require(is_explained, Promise::Failure, || format!("{rank} lost a message to {peer}"));
    }

    /// The number of the next message.
    pub fn next_message(&self) -> u64 {
        self.messages.len() as u64
    }

    pub fn posted(&mut self, from: usize, to: usize, label: Label, bytes: usize, reaches: CompletionLevel) -> usize {
        let writes = std::array::from_fn(|slot| self.writes[self.slot(from, to, slot)].len());
        self.messages.push(Message {
            from,
            life: self.lives[from],
            to,
            to_life: self.lives[to],
            done_life: self.lives[to],
            label,
            bytes,
            reaches,
            state: State::Posted,
            received: None,
            writes,
        });
        self.messages.len() - 1
    }

    /// A send has ended.
    pub fn sent(&mut self, number: usize, state: State) {
        let message = &mut self.messages[number];
        (message.state, message.done_life) = (state, self.lives[message.to]);
        let is_delivered = message.received.is_some();
        if state == State::Completed && message.reaches == CompletionLevel::Delivery {
            self.require(is_delivered, Promise::Delivery, || format!("message {number} is not where its send says"));
        }
    }

    /// A receive was posted, or a message is looked for.
    pub fn wants(&mut self, rank: usize, wants: Wants, takes_many: bool) -> usize {
        let life = self.lives[rank];
        self.receives.push(Receive { life, wants, takes_many, messages: Vec::new(), over: None });
        self.receives.len() - 1
    }

    /// A receive matches nothing from now on.
    pub fn over(&mut self, receive: usize) {
        self.time += 1;
        self.receives[receive].over = Some(self.time);
    }

    /// A message was received, as far as `bytes`: by which receive, from whom, called what, of what length.
    pub fn received(
        &mut self,
        rank: usize,
        receive: usize,
        from: Option<usize>,
        (label, length): (Label, u64),
        bytes: &[u8],
        memory: Memory<'_>,
    ) {
        self.time += 1;
        let number = label.data.or_else(|| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)));
        let Some((number, message)) = number.and_then(|number| {
            let number = usize::try_from(number).ok()?;
            Some((number, self.messages.get_mut(number)?))
        }) else {
            return self
                .report(Promise::Content, || format!("{rank} received what nobody sent: {label:?}, {length} bytes"));
        };
        let described = message.label == label && message.bytes as u64 == length && message.to == rank;
        let is_right = described && from.is_none_or(|from| from == message.from) && holds(number, bytes);
        if !is_right {
            let (from, to) = (message.from, message.to);
            return self.report(Promise::Content, || {
                format!("{rank} received message {number} ({from} to {to}) as {label:?}, {length} bytes, or with other bytes")
            });
        }
        let is_first = message.received.is_none() && message.state != State::Cancelled;
        message.received = Some((self.lives[rank], receive));
        let (from, life, writes) = (message.from, message.life, message.writes);
        let tag = message.label.tag;
        self.require(is_first, Promise::Content, || {
            format!("{rank} received message {number} again, or it was cancelled")
        });
        let fits = fits(self.receives[receive].wants, from, tag);
        self.require(fits, Promise::Order, || format!("message {number} does not fit its receive"));
        self.receives[receive].messages.push(number);
        self.arrivals.push((self.time, receive, number));
        // What the sender wrote before is there.
        if !self.is_disturbed(from, rank) && self.lives[from] == life {
            for (slot, before) in writes.into_iter().enumerate() {
                self.check_slot((from, rank, slot), memory, before, || format!("before message {number}"));
            }
        }
    }

    fn slot(&self, from: usize, to: usize, slot: usize) -> usize {
        (from * self.ranks + to) * SLOTS + slot
    }

    /// A write was posted; its number among those to the slot.
    pub fn writes(
        &mut self,
        (from, to, slot): (usize, usize, usize),
        offset: usize,
        bytes: Vec<u8>,
        has_data: bool,
    ) -> usize {
        let (to_life, place) = (self.lives[to], self.slot(from, to, slot));
        let write = Write { to_life, offset, bytes, has_data, is_done: false, has_failed: false, is_told: false };
        self.writes[place].push(write);
        self.writes[place].len() - 1
    }

    pub fn writes_to(&self, from: usize, to: usize, slot: usize) -> usize {
        self.writes[self.slot(from, to, slot)].len()
    }

    pub fn write_failed(&mut self, (from, to, slot): (usize, usize, usize), number: usize) {
        let place = self.slot(from, to, slot);
        self.writes[place][number].has_failed = true;
    }

    /// A write was completed: it is in the peer's memory.
    pub fn write_done(&mut self, at: (usize, usize, usize), number: usize, memory: Option<Memory<'_>>) {
        let place = self.slot(at.0, at.1, at.2);
        self.writes[place][number].is_done = true;
        if self.writes[place][number].to_life == self.lives[at.1]
            && let Some(memory) = memory
        {
            self.check_slot(at, memory, number + 1, || format!("though write {number} was completed"));
        }
    }

    /// The peer of a write with data was told of it.
    pub fn write_told(&mut self, to: usize, from: usize, data: u64, length: u64, memory: Memory<'_>) {
        let (slot, number) = ((data >> 32) as usize, data as u32 as usize);
        let place = if slot < SLOTS { self.slot(from, to, slot) } else { usize::MAX };
        let write = self.writes.get_mut(place).and_then(|writes| writes.get_mut(number));
        let is_right = write.is_some_and(|write| {
            let is_first = !std::mem::replace(&mut write.is_told, true);
            is_first && write.has_data && write.bytes.len() as u64 == length
        });
        self.require(is_right, Promise::Access, || {
            format!("{to} was told of write {data:#x} of {from}, {length} bytes")
        });
        if is_right {
            self.check_slot((from, to, slot), memory, number + 1, || format!("though {number} was told of"));
        }
    }

    /// Of the writes to a slot the first `before` are there, as far as later ones have not changed it.
    fn check_slot(
        &mut self,
        at: (usize, usize, usize),
        memory: Memory<'_>,
        before: usize,
        when: impl FnOnce() -> String,
    ) {
        let Memory { bytes, layout } = memory;
        let slot = &bytes[layout.slot(at.0, at.2)..][..layout.slot_bytes];
        self.check_bytes(at, slot, before, when);
    }

    /// The same of a slot's bytes, from its beginning on.
    pub fn check_bytes(
        &mut self,
        at: (usize, usize, usize),
        found: &[u8],
        before: usize,
        when: impl FnOnce() -> String,
    ) {
        let writes = &self.writes[self.slot(at.0, at.1, at.2)];
        let is_disturbed = self.is_disturbed(at.0, at.1);
        let mut expected = vec![0; found.len()];
        for write in &writes[..before] {
            let from = write.offset.min(found.len());
            let to = (write.offset + write.bytes.len()).min(found.len());
            expected[from..to].copy_from_slice(&write.bytes[..to - from]);
        }
        if expected == found {
            return;
        }
        // Where a way has ended, writes may be missing; those that were completed last are not.
        let first_possible = if is_disturbed { 0 } else { before };
        let is_possible = |(place, byte): (usize, &u8)| {
            let mut later = writes[first_possible..].iter();
            (is_disturbed && *byte == 0)
                || later.any(|write| place.checked_sub(write.offset).and_then(|at| write.bytes.get(at)) == Some(byte))
        };
        let wrong = found
            .iter()
            .zip(&expected)
            .enumerate()
            .find(|(place, (found, expected))| found != expected && !is_possible((*place, found)));
        if let Some((place, (found, expected))) = wrong {
            let (found, expected) = (*found, *expected);
            self.report(Promise::Access, || {
                let (from, to, slot) = at;
                format!("{from}'s slot {slot} at {to} has {found} instead of {expected} at {place}, {}", when())
            });
        }
    }

    pub fn check_constant(&mut self, rank: usize, found: &[u8]) {
        let is_right = constant(rank).starts_with(found);
        self.require(is_right, Promise::Access, || format!("constant memory of {rank} was read wrongly"));
    }

    /// An addition was posted: what of those to the counter was completed before.
    pub fn adds(&mut self, to: usize, counter: usize, value: u64) -> u64 {
        let counter = &mut self.counters[to * COUNTERS + counter];
        counter.posted += value;
        counter.done
    }

    /// An addition was completed, having found so much if that was asked for.
    pub fn added(&mut self, to: usize, life: usize, counter: usize, value: u64, found: Option<(u64, u64)>) {
        if self.lives[to] != life {
            return;
        }
        let entry = &mut self.counters[to * COUNTERS + counter];
        entry.done += value;
        if let Some((least, found)) = found {
            let (posted, least) = (entry.posted, if entry.was_restarted { 0 } else { least });
            let is_right = found >= least && found + value <= posted;
            self.require(is_right, Promise::Access, || {
                format!("counter {counter} of {to} had {found}, not {least} to {posted} less {value}")
            });
        }
    }

    /// An operation between two ranks has failed.
    pub fn failed(&mut self, rank: usize, peer: Option<usize>, failure: Failure) {
        let is_explained = match failure {
            // Judged where the message, the cancellation or the memory is known.
            Failure::Truncated { .. } | Failure::Cancelled => true,
            Failure::Refused { .. } => false,
            Failure::Peer { .. } => {
                if let Some(peer) = peer {
                    self.told[rank * self.ranks + peer] = true;
                }
                match peer {
                    Some(peer) => self.is_disturbed(rank, peer),
                    None => (0..self.ranks).any(|peer| self.is_disturbed(rank, peer)),
                }
            }
        };
        self.require(is_explained, Promise::Failure, || format!("{rank}: {failure:?}"));
    }

    /// What must hold when all is over.
    pub fn end(&mut self, memories: &[Option<Memory<'_>>]) {
        for number in 0..self.messages.len() {
            self.check_delivery(number);
        }
        self.check_order();
        for (rank, memory) in memories.iter().enumerate() {
            let Some(memory @ Memory { bytes, layout }) = *memory else { continue };
            self.check_constant(rank, &bytes[..CONSTANT_BYTES]);
            for from in 0..self.ranks {
                for slot in 0..SLOTS {
                    self.check_writes_at_end((from, rank, slot), memory);
                }
            }
            let is_disturbed = (0..self.ranks).any(|from| self.is_disturbed(from, rank));
            for counter in 0..COUNTERS {
                let at = layout.counter(counter);
                let value = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
                let Counter { posted, done, was_restarted } = self.counters[rank * COUNTERS + counter];
                let least = if was_restarted { 0 } else { done };
                let is_right = if is_disturbed { (least..=posted).contains(&value) } else { value == posted };
                self.require(is_right, Promise::Access, || {
                    format!("counter {counter} of {rank} is {value}, of {posted} posted and {done} done")
                });
            }
        }
    }

    fn check_writes_at_end(&mut self, at: (usize, usize, usize), memory: Memory<'_>) {
        let (place, is_disturbed) = (self.slot(at.0, at.1, at.2), self.is_disturbed(at.0, at.1));
        self.check_slot(at, memory, self.writes[place].len(), || "at the end".to_owned());
        if is_disturbed {
            return;
        }
        let untold = self.writes[place].iter().position(|write| write.is_told != write.has_data);
        if let Some(number) = untold {
            self.report(Promise::Access, || format!("write {number} in slot {at:?} was told of, or not, wrongly"));
        }
    }

    fn check_delivery(&mut self, number: usize) {
        let message = &self.messages[number];
        let Message { from, to, state, reaches, .. } = *message;
        if message.received.is_some() || state != State::Completed {
            return;
        }
        let is_lost = if !self.is_disturbed(from, to) {
            true
        } else if reaches == CompletionLevel::Transmit {
            // The peer's endpoint had it.
            message.done_life == self.lives[to] && message.to_life == self.lives[to] && !self.has_left(to, from)
        } else {
            let is_told = self.told[from * self.ranks + to];
            let has_ended = self.lives[from] != message.life || self.lives[to] != message.to_life;
            !is_told && !has_ended && !self.has_left(from, to) && !self.has_left(to, from)
        };
        let (label, bytes) = (message.label, message.bytes);
        self.require(!is_lost, Promise::Delivery, || {
            format!(
                "message {number} ({from} to {to}, {label:?}, {bytes} bytes, {reaches:?}) was completed, never came, and \
                 nobody was told"
            )
        });
    }

    /// Messages of one sender match in the order in which they were sent, receives in the order in which they were
    /// posted.
    fn check_order(&mut self) {
        let mut wrong = None;
        for &(time, receive, number) in &self.arrivals {
            let (message, by) = (&self.messages[number], &self.receives[receive]);
            let rank = message.to;
            if self.has_left(rank, message.from) {
                continue;
            }
            // An earlier message that fits this receive went to an earlier one.
            for earlier in (0..number).rev() {
                let other = &self.messages[earlier];
                let is_concerned = other.from == message.from && other.life == message.life && other.to == rank;
                if !is_concerned || !fits(by.wants, other.from, other.label.tag) {
                    continue;
                }
                if other.received.is_some_and(|(life, earlier_receive)| life == by.life && earlier_receive > receive) {
                    wrong = Some(format!("message {number} overtook {earlier} from {}", message.from));
                }
            }
            // An earlier receive that fits this message has taken an earlier one of the same sender, or one of another.
            let earlier = self.receives[..receive].iter().enumerate().filter(|(_, other)| other.life == by.life);
            for (place, other) in earlier {
                if other.takes_many || !fits(other.wants, message.from, message.label.tag) {
                    continue;
                }
                let is_wrong = match other.messages.first() {
                    Some(taken) => {
                        let taken_one = &self.messages[*taken];
                        taken_one.from == message.from && taken_one.life == message.life && *taken > number
                    }
                    // It still waited, and matched nothing until later.
                    None => other.over.is_some_and(|over| over > time),
                };
                if is_wrong {
                    wrong = Some(format!("message {number} went to receive {receive}, past {place}"));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.report(Promise::Order, || wrong);
        }
    }
}

/// A rank's registered memory.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    pub bytes: &'a [u8],
    pub layout: Layout,
}

/// Where things lie in a rank's registered memory: what never changes, counters, and slots for each peer.
#[derive(Clone, Copy)]
pub struct Layout {
    pub ranks: usize,
    pub slot_bytes: usize,
}

impl Layout {
    pub fn bytes(self) -> usize {
        self.slot(self.ranks, 0)
    }

    pub fn counter(self, counter: usize) -> usize {
        CONSTANT_BYTES + 8 * counter
    }

    pub fn slot(self, from: usize, slot: usize) -> usize {
        self.counter(COUNTERS) + (from * SLOTS + slot) * self.slot_bytes
    }

    pub fn memory(self, rank: usize) -> Vec<u8> {
        let mut memory = constant(rank);
        memory.resize(self.bytes(), 0);
        memory
    }
}

fn constant(rank: usize) -> Vec<u8> {
    content(usize::MAX / 2 + rank, CONSTANT_BYTES)
}

fn fits(wants: Wants, source: usize, tag: Option<u64>) -> bool {
    let fits_tag = match (wants.tag, tag) {
        (Some((wanted, ignored)), Some(tag)) => (wanted ^ tag) & !ignored == 0,
        (None, None) => true,
        _ => false,
    };
    fits_tag && wants.source.is_none_or(|wanted| wanted == source)
}

/// The bytes of a message: its number, and what follows from that.
pub fn content(number: usize, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    content.chunks_mut(8).zip(words(number)).for_each(|(chunk, word)| chunk.copy_from_slice(&word[..chunk.len()]));
    content
}

fn holds(number: usize, bytes: &[u8]) -> bool {
    bytes.chunks(8).zip(words(number)).all(|(chunk, word)| word.starts_with(chunk))
}

fn words(number: usize) -> impl Iterator<Item = [u8; 8]> {
    let next =
        move |word: &u64| Some((word ^ word >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number as u64 | 1));
    std::iter::successors(Some(number as u64), next).map(u64::to_le_bytes)
}
