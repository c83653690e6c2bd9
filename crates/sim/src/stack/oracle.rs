// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The oracle: tracks all posted operations, and checks their results against properties that hold whatever the network
//! does.

use std::fmt;

use barewire_endpoint::Ending;
use barewire_link::MacAddress;
use barewire_messages::{CompletionLevel, Failure, Label};

use super::scenario::{CONSTANT_BYTES, COUNTERS, Criteria, SLOTS};

/// A guaranteed property of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Messages match in MPI's order.
    Order,
    /// Each received message was sent to this receiver with the same content, and is received once.
    Content,
    /// Each operation completes once, with its own kind of completion.
    Once,
    /// Nothing fails without a cause.
    Failure,
    /// Each completed send is received, or its loss is reported.
    Delivery,
    /// Remote writes, reads and atomic operations have their exact effect.
    Access,
    /// Held memory stays within its configured bound, and all of it is released.
    Memory,
    /// After the faults, everything ends in time; and what is sent arrives in time while a path works.
    Progress,
    /// Nothing goes by a path that is known to be dead.
    Path,
    /// A process receives nothing that was sent to its predecessor.
    Life,
}

/// A violated property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The property.
    pub property: Property,
    /// Description of the violation.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.detail)
    }
}

impl std::error::Error for Violation {}

/// State of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Posted,
    Completed,
    Failed,
    Cancelled,
}

pub struct Message {
    pub from: usize,
    /// Incarnation of the sender.
    pub incarnation: usize,
    pub to: usize,
    /// Incarnation of the receiver when the send was posted.
    to_incarnation: usize,
    /// Incarnation of the receiver when the send completed.
    done_incarnation: usize,
    pub label: Label,
    pub bytes: usize,
    pub level: CompletionLevel,
    pub state: State,
    /// Incarnation of the receiving process, and its receive.
    received: Option<(usize, usize)>,
    /// Number of the sender's writes to each slot at the receiver that were posted before.
    writes: [usize; SLOTS],
}

/// A receive or a claim.
struct Receive {
    incarnation: usize,
    criteria: Criteria,
    is_multi: bool,
    messages: Vec<usize>,
    /// When it stopped matching, if it ended without a message.
    ended_at: Option<u64>,
}

/// A write to a peer's slot.
struct Write {
    to_incarnation: usize,
    offset: usize,
    bytes: Vec<u8>,
    has_data: bool,
    is_done: bool,
    has_failed: bool,
    is_notified: bool,
}

#[derive(Clone, Default)]
struct Counter {
    posted: u64,
    done: u64,
    was_restarted: bool,
}

pub struct Oracle {
    ranks: usize,
    hosts: Vec<MacAddress>,
    /// Completions may be reported later than they happen.
    has_queues: bool,
    /// Each incarnation of a process has its own cookie.
    pub has_lives: bool,
    /// Longer messages are delivered to their receives, others may be buffered for one.
    pub buffered_max: usize,
    pub messages: Vec<Message>,
    receives: Vec<Receive>,
    /// Received messages in order of completion: time, receive and message.
    arrivals: Vec<(u64, usize, usize)>,
    writes: Vec<Vec<Write>>,
    counters: Vec<Counter>,
    /// For each pair of ranks: the channel between them may have failed.
    disturbed: Vec<bool>,
    /// For each ordered pair of ranks: the first has restarted, and nothing has disturbed the pair since. Whatever the
    /// second knows of the earlier process, the new one reaches it.
    renewed: Vec<bool>,
    /// For each ordered pair of ranks: the first has closed its channel to the second, or removed that peer.
    closed: Vec<bool>,
    /// For each ordered pair of ranks: the first was notified of a loss of data for the second.
    notified: Vec<bool>,
    /// Current incarnation of each rank.
    incarnations: Vec<usize>,
    incarnations_begun: usize,
    /// Logical time: number of receive events so far.
    time: u64,
    violation: Option<Violation>,
}

impl Oracle {
    /// For ranks on the given hosts. `has_queues`: completions may be reported later than they happen.
    pub fn new(hosts: Vec<MacAddress>, has_queues: bool) -> Self {
        let ranks = hosts.len();
        Self {
            ranks,
            hosts,
            has_queues,
            has_lives: false,
            buffered_max: 0,
            messages: Vec::new(),
            receives: Vec::new(),
            arrivals: Vec::new(),
            writes: (0..ranks * ranks * SLOTS).map(|_| Vec::new()).collect(),
            counters: vec![Counter::default(); ranks * COUNTERS],
            disturbed: vec![false; ranks * ranks],
            renewed: vec![false; ranks * ranks],
            closed: vec![false; ranks * ranks],
            notified: vec![false; ranks * ranks],
            incarnations: (0..ranks).collect(),
            incarnations_begun: ranks,
            time: 0,
            violation: None,
        }
    }

    /// The first violation: later ones may be consequences.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub fn report(&mut self, property: Property, detail: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { property, detail: detail() });
        }
    }

    pub fn require(&mut self, condition: bool, property: Property, detail: impl FnOnce() -> String) {
        if !condition {
            self.report(property, detail);
        }
    }

    pub fn incarnation(&self, rank: usize) -> usize {
        self.incarnations[rank]
    }

    /// The channels between a rank and all others may fail.
    pub fn disturb(&mut self, rank: usize) {
        (0..self.ranks).for_each(|other| self.disturb_pair(rank, other));
    }

    pub fn disturb_pair(&mut self, a: usize, b: usize) {
        for pair in [a * self.ranks + b, b * self.ranks + a] {
            (self.disturbed[pair], self.renewed[pair]) = (true, false);
        }
    }

    pub fn is_disturbed(&self, a: usize, b: usize) -> bool {
        self.disturbed[a * self.ranks + b]
    }

    /// Whether any channel of a rank may have failed.
    pub fn is_disturbed_any(&self, rank: usize) -> bool {
        (0..self.ranks).any(|peer| self.is_disturbed(rank, peer))
    }

    /// A rank closes its channel to a peer.
    pub fn channel_closed(&mut self, rank: usize, peer: usize) {
        self.closed[rank * self.ranks + peer] = true;
        self.disturb_pair(rank, peer);
    }

    /// Whether a rank has closed any channel or removed any peer.
    pub fn has_closed_any(&self, rank: usize) -> bool {
        (0..self.ranks).any(|peer| self.has_closed(rank, peer))
    }

    fn has_closed(&self, rank: usize, peer: usize) -> bool {
        self.closed[rank * self.ranks + peer]
    }

    /// A rank's process is replaced by a new one.
    pub fn restart(&mut self, rank: usize) {
        self.disturb(rank);
        self.incarnations[rank] = self.incarnations_begun;
        self.incarnations_begun += 1;
        for counter in &mut self.counters[rank * COUNTERS..(rank + 1) * COUNTERS] {
            (counter.done, counter.was_restarted) = (0, true);
        }
    }

    /// A rank's new process has begun, and nothing keeps it from this peer.
    pub fn renewed(&mut self, rank: usize, peer: usize) {
        self.renewed[rank * self.ranks + peer] = self.incarnations[rank] >= self.ranks;
    }

    /// A rank was notified of a loss of data for a peer.
    pub fn loss_reported(&mut self, rank: usize, peer: usize) {
        self.notified[rank * self.ranks + peer] = true;
        let is_explained = self.is_disturbed(rank, peer);
        self.require(is_explained, Property::Failure, || format!("{rank} lost a message to {peer}"));
    }

    /// The number of the next message.
    pub fn next_message(&self) -> u64 {
        self.messages.len() as u64
    }

    pub fn send_posted(&mut self, from: usize, to: usize, label: Label, bytes: usize, level: CompletionLevel) -> usize {
        let writes = std::array::from_fn(|slot| self.writes[self.slot(from, to, slot)].len());
        self.messages.push(Message {
            from,
            incarnation: self.incarnations[from],
            to,
            to_incarnation: self.incarnations[to],
            done_incarnation: self.incarnations[to],
            label,
            bytes,
            level,
            state: State::Posted,
            received: None,
            writes,
        });
        self.messages.len() - 1
    }

    /// A send has completed, failed or been cancelled.
    pub fn send_ended(&mut self, number: usize, state: State) {
        let message = &mut self.messages[number];
        (message.state, message.done_incarnation) = (state, self.incarnations[message.to]);
        let is_delivered = message.received.is_some();
        // A program that uses libfabric may leave the receive's completion in its queue.
        let is_long = message.bytes > self.buffered_max;
        if state == State::Completed && message.level == CompletionLevel::Delivery && is_long && !self.has_queues {
            self.require(is_delivered, Property::Delivery, || {
                format!("message {number} was completed before it was received")
            });
        }
    }

    /// A receive was posted, or a message claimed.
    pub fn receive_posted(&mut self, rank: usize, criteria: Criteria, is_multi: bool) -> usize {
        let incarnation = self.incarnations[rank];
        self.receives.push(Receive { incarnation, criteria, is_multi, messages: Vec::new(), ended_at: None });
        self.receives.len() - 1
    }

    /// A receive was cancelled, or ended without a message.
    pub fn receive_ended(&mut self, receive: usize) {
        self.time += 1;
        self.receives[receive].ended_at.get_or_insert(self.time);
    }

    /// A message was received; `bytes` are those that fitted into the receive's buffer.
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
            return self.report(Property::Content, || {
                format!("{rank} received what was never sent: {label:?}, {length} bytes")
            });
        };
        let is_described = message.label == label && message.bytes as u64 == length && message.to == rank;
        let is_right = is_described && from.is_none_or(|from| from == message.from) && holds(number, bytes);
        if !is_right {
            let (from, to) = (message.from, message.to);
            return self.report(Property::Content, || {
                format!("{rank} received message {number} ({from} to {to}) as {label:?}, {length} bytes, or with other bytes")
            });
        }
        let is_first = message.received.is_none() && message.state != State::Cancelled;
        message.received = Some((self.incarnations[rank], receive));
        let (from, incarnation, writes) = (message.from, message.incarnation, message.writes);
        let is_of_this_life = message.to_incarnation == self.incarnations[rank];
        let tag = message.label.tag;
        self.require(is_first, Property::Content, || {
            format!("{rank} received message {number} again, or it was cancelled")
        });
        self.require(is_of_this_life || !self.has_lives, Property::Life, || {
            format!("{rank} received message {number}, which was sent to its predecessor")
        });
        let matches = matches(self.receives[receive].criteria, from, tag);
        self.require(matches, Property::Order, || format!("message {number} does not match its receive"));
        self.receives[receive].messages.push(number);
        self.arrivals.push((self.time, receive, number));
        // The sender's earlier writes must be visible.
        if !self.is_disturbed(from, rank) && self.incarnations[from] == incarnation {
            for (slot, before) in writes.into_iter().enumerate() {
                self.check_slot((from, rank, slot), memory, before, || format!("before message {number}"));
            }
        }
    }

    fn slot(&self, from: usize, to: usize, slot: usize) -> usize {
        (from * self.ranks + to) * SLOTS + slot
    }

    /// A write was posted; returns its number among the writes to the slot.
    pub fn write_posted(
        &mut self,
        (from, to, slot): (usize, usize, usize),
        offset: usize,
        bytes: Vec<u8>,
        has_data: bool,
    ) -> usize {
        let (to_incarnation, index) = (self.incarnations[to], self.slot(from, to, slot));
        let write =
            Write { to_incarnation, offset, bytes, has_data, is_done: false, has_failed: false, is_notified: false };
        self.writes[index].push(write);
        self.writes[index].len() - 1
    }

    pub fn writes_to(&self, from: usize, to: usize, slot: usize) -> usize {
        self.writes[self.slot(from, to, slot)].len()
    }

    pub fn write_failed(&mut self, (from, to, slot): (usize, usize, usize), number: usize) {
        let index = self.slot(from, to, slot);
        self.writes[index][number].has_failed = true;
    }

    /// A write completed: it must be in the peer's memory.
    pub fn write_completed(&mut self, at: (usize, usize, usize), number: usize, memory: Option<Memory<'_>>) {
        let index = self.slot(at.0, at.1, at.2);
        self.writes[index][number].is_done = true;
        if self.writes[index][number].to_incarnation == self.incarnations[at.1]
            && let Some(memory) = memory
        {
            self.check_slot(at, memory, number + 1, || format!("though write {number} was completed"));
        }
    }

    /// A write with data completed at its target.
    pub fn write_notified(&mut self, to: usize, from: usize, data: u64, length: u64, memory: Memory<'_>) {
        let (slot, number) = ((data >> 32) as usize, data as u32 as usize);
        let index = if slot < SLOTS { self.slot(from, to, slot) } else { usize::MAX };
        let write = self.writes.get_mut(index).and_then(|writes| writes.get_mut(number));
        let is_right = write.is_some_and(|write| {
            let is_first = !std::mem::replace(&mut write.is_notified, true);
            is_first && write.has_data && write.bytes.len() as u64 == length
        });
        self.require(is_right, Property::Access, || {
            format!("{to} was notified of write {data:#x} of {from}, {length} bytes")
        });
        if is_right {
            self.check_slot((from, to, slot), memory, number + 1, || {
                format!("though the target was notified of write {number}")
            });
        }
    }

    /// Checks that the first `before` writes to a slot are visible, except where later ones have overwritten them.
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

    /// As `check_slot`, for the first bytes of a slot.
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
        // After a failed channel, writes may be missing.
        let first_possible = if is_disturbed { 0 } else { before };
        let is_possible = |(index, byte): (usize, &u8)| {
            let mut later = writes[first_possible..].iter();
            (is_disturbed && *byte == 0)
                || later.any(|write| index.checked_sub(write.offset).and_then(|at| write.bytes.get(at)) == Some(byte))
        };
        let wrong = found
            .iter()
            .zip(&expected)
            .enumerate()
            .find(|(index, (found, expected))| found != expected && !is_possible((*index, found)));
        if let Some((index, (found, expected))) = wrong {
            let (found, expected) = (*found, *expected);
            self.report(Property::Access, || {
                let (from, to, slot) = at;
                format!("{from}'s slot {slot} at {to} has {found} instead of {expected} at {index}, {}", when())
            });
        }
    }

    pub fn check_constant(&mut self, rank: usize, found: &[u8]) {
        let is_right = constant(rank).starts_with(found);
        self.require(is_right, Property::Access, || format!("constant memory of {rank} was read wrongly"));
    }

    /// An addition was posted; returns the sum of those completed so far.
    pub fn add_posted(&mut self, to: usize, counter: usize, value: u64) -> u64 {
        let counter = &mut self.counters[to * COUNTERS + counter];
        counter.posted += value;
        counter.done
    }

    /// An addition completed; `found` is the lower bound and the fetched value of a fetching one.
    pub fn add_completed(
        &mut self,
        to: usize,
        incarnation: usize,
        counter: usize,
        value: u64,
        found: Option<(u64, u64)>,
    ) {
        if self.incarnations[to] != incarnation {
            return;
        }
        let entry = &mut self.counters[to * COUNTERS + counter];
        entry.done += value;
        if let Some((min, found)) = found {
            let (posted, min) = (entry.posted, if entry.was_restarted { 0 } else { min });
            let is_right = found >= min && found + value <= posted;
            self.require(is_right, Property::Access, || {
                format!("counter {counter} of {to} had {found}, not {min} to {posted} less {value}")
            });
        }
    }

    /// An operation has failed.
    pub fn operation_failed(&mut self, rank: usize, peer: Option<usize>, failure: Failure) {
        let is_explained = match failure {
            // Checked by the caller.
            Failure::Truncated { .. } | Failure::Cancelled => true,
            Failure::Refused { .. } => false,
            Failure::Peer { ending, .. } => {
                // The new process is reachable, but its channel may end for another reason: the peer's end of the
                // predecessor's channel, or a delayed frame for the predecessor.
                let is_unheard = matches!(ending, Ending::NeverAnswered | Ending::NoAnswer);
                if let Some(peer) = peer {
                    self.notified[rank * self.ranks + peer] = true;
                }
                match peer {
                    Some(peer) => {
                        self.is_disturbed(rank, peer) && !(is_unheard && self.renewed[rank * self.ranks + peer])
                    }
                    None => (0..self.ranks).any(|peer| self.is_disturbed(rank, peer)),
                }
            }
        };
        self.require(is_explained, Property::Failure, || format!("{rank}: {failure:?}"));
    }

    /// Checks what must hold at the end of the world.
    pub fn check_end(&mut self, memories: &[Option<Memory<'_>>]) {
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
                let min = if was_restarted { 0 } else { done };
                let is_right = if is_disturbed { (min..=posted).contains(&value) } else { value == posted };
                self.require(is_right, Property::Access, || {
                    format!("counter {counter} of {rank} is {value}, of {posted} posted and {done} done")
                });
            }
        }
    }

    fn check_writes_at_end(&mut self, at: (usize, usize, usize), memory: Memory<'_>) {
        let (index, is_disturbed) = (self.slot(at.0, at.1, at.2), self.is_disturbed(at.0, at.1));
        self.check_slot(at, memory, self.writes[index].len(), || "at the end".to_owned());
        if is_disturbed {
            return;
        }
        let mismatch = self.writes[index].iter().position(|write| write.is_notified != write.has_data);
        if let Some(number) = mismatch {
            self.report(Property::Access, || {
                format!("notification of write {number} in slot {at:?} is missing or wrong")
            });
        }
    }

    fn check_delivery(&mut self, number: usize) {
        let message = &self.messages[number];
        let Message { from, to, state, level, .. } = *message;
        if message.received.is_some() || state != State::Completed {
            return;
        }
        // A message in a pipe is sent: if the peer's process ends before it reads it, nothing reports that.
        let has_restarted = self.incarnations[to] >= self.ranks;
        if level != CompletionLevel::Delivery && self.hosts[from] == self.hosts[to] && has_restarted {
            return;
        }
        let is_lost = if !self.is_disturbed(from, to) {
            true
        } else if level != CompletionLevel::Inject {
            // The peer's endpoint had received it.
            message.done_incarnation == self.incarnations[to]
                && message.to_incarnation == self.incarnations[to]
                && !self.has_closed(to, from)
        } else {
            let is_notified = self.notified[from * self.ranks + to];
            let has_ended =
                self.incarnations[from] != message.incarnation || self.incarnations[to] != message.to_incarnation;
            !is_notified && !has_ended && !self.has_closed(from, to) && !self.has_closed(to, from)
        };
        let (label, bytes) = (message.label, message.bytes);
        self.require(!is_lost, Property::Delivery, || {
            format!(
                "message {number} ({from} to {to}, {label:?}, {bytes} bytes, {level:?}) was completed, but neither received \
                 nor reported as lost"
            )
        });
    }

    /// Checks that messages of one sender match in the order sent, and receives in the order posted.
    fn check_order(&mut self) {
        let mut wrong = None;
        for &(time, receive, number) in &self.arrivals {
            let (message, by) = (&self.messages[number], &self.receives[receive]);
            let rank = message.to;
            if self.has_closed(rank, message.from) {
                continue;
            }
            // An earlier message that matches this receive must not have gone to a later receive.
            for earlier in (0..number).rev() {
                let other = &self.messages[earlier];
                let is_same_stream =
                    other.from == message.from && other.incarnation == message.incarnation && other.to == rank;
                if !is_same_stream || !matches(by.criteria, other.from, other.label.tag) {
                    continue;
                }
                if other.received.is_some_and(|(incarnation, earlier_receive)| {
                    incarnation == by.incarnation && earlier_receive > receive
                }) {
                    wrong = Some(format!("message {number} overtook {earlier} from {}", message.from));
                }
            }
            // An earlier receive that matches this message must have taken an earlier message of the same sender, or
            // one of another sender.
            let earlier =
                self.receives[..receive].iter().enumerate().filter(|(_, other)| other.incarnation == by.incarnation);
            for (index, other) in earlier {
                if other.is_multi || !matches(other.criteria, message.from, message.label.tag) {
                    continue;
                }
                let is_wrong = match other.messages.first() {
                    Some(taken) => {
                        let taken_one = &self.messages[*taken];
                        taken_one.from == message.from
                            && taken_one.incarnation == message.incarnation
                            && *taken > number
                    }
                    // It was still posted.
                    None => other.ended_at.is_some_and(|ended_at| ended_at > time),
                };
                if is_wrong {
                    wrong = Some(format!("message {number} went to receive {receive}, past {index}"));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.report(Property::Order, || wrong);
        }
    }
}

/// A rank's registered memory.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    pub bytes: &'a [u8],
    pub layout: Layout,
}

/// Layout of a rank's registered memory: constant bytes, counters, slots of each peer.
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

fn matches(criteria: Criteria, source: usize, tag: Option<u64>) -> bool {
    let matches_tag = match (criteria.tag, tag) {
        (Some((wanted, ignored)), Some(tag)) => (wanted ^ tag) & !ignored == 0,
        (None, None) => true,
        _ => false,
    };
    matches_tag && criteria.source.is_none_or(|wanted| wanted == source)
}

/// The bytes of a message: its number, then pseudo-random words derived from it.
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
