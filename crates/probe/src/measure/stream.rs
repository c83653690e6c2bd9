// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream: back-to-back messages in one direction, timed at the receiver. A block ends by count or by time.

use super::{Samples, Side};
use crate::pattern::Sender;
use crate::protocol::{Block, Mark, Outcome};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::{machine_offset_ns, now_ns};

/// Time between two marks of a timed stream.
const MARK_NS: u64 = 500_000;

/// Sends the lead-in and the messages. The receiver takes the sample.
pub fn active(side: &mut Side, block: &Block) -> Result<Samples, LaunchError> {
    let (began, deadline_ns) = (now_ns(), block.deadline_ns());
    // A sender that shares a core and never waits keeps it for a whole time slice, or forever at real-time priority;
    // the other processes' windows close meanwhile (docs/performance.md).
    let yields = side.yields() && block.is_timed();
    let mut sent = 0;
    while sent < block.lead_in + block.messages {
        side.send(block.first_sequence.wrapping_add(sent), Sender::Active)?;
        sent += 1;
        if block.is_timed() && now_ns() >= deadline_ns && sent > block.lead_in {
            break;
        }
        if yields {
            std::thread::yield_now();
        }
    }
    Ok(Samples { sending_ns: now_ns() - began, sent, ..Samples::default() })
}

/// Receives until the last message or, if some are lost, until `stop` reports that the sender has finished and the
/// transport is idle.
///
/// The clock starts with the last message of the lead-in, when a link's burst allowance is used up and all caches are
/// warm; if that message is lost, there is no duration. Messages are checked after the clock has stopped.
pub fn passive(side: &mut Side, block: &Block, mut stop: impl FnMut() -> bool) -> Result<Outcome, LaunchError> {
    let (total, first_slot) = (block.lead_in + block.messages, block.first_sequence as usize);
    let mut arrived = Vec::with_capacity(total as usize);
    let (mut began, mut ended) = (0, 0);
    loop {
        let Some(sequence) = side.receive(first_slot + arrived.len(), &mut stop)? else {
            if stop() {
                break;
            }
            continue;
        };
        let number = sequence.wrapping_sub(block.first_sequence);
        if number >= total || arrived.len() == total as usize {
            continue;
        }
        if number + 1 == block.lead_in {
            began = now_ns();
        } else if number >= block.lead_in {
            ended = now_ns();
        }
        arrived.push(sequence);
        if number + 1 == total {
            break;
        }
    }
    let mut outcome =
        Outcome { duration_ns: if began == 0 { 0 } else { ended.saturating_sub(began) }, ..Outcome::default() };
    for (slot, sequence) in arrived.into_iter().enumerate() {
        let timed = sequence.wrapping_sub(block.first_sequence) >= block.lead_in;
        outcome.received += u32::from(timed);
        let intact = side.pattern.is_intact(side.inbox.slot(first_slot + slot), sequence, Sender::Active);
        outcome.corrupt += u32::from(!intact);
    }
    Ok(outcome)
}

/// Received part of a timed stream.
pub struct Reception {
    first_sequence: u32,
    lead_in: u32,
    total: u32,
    offset_ns: u64,
    /// Sequence number of the message in each slot of the inbox.
    kept: Vec<u32>,
    /// Messages received, lead-in included.
    pub arrived: u32,
    /// Messages received without the lead-in.
    received: u32,
    last_ns: u64,
    marks: Vec<Mark>,
}

impl Reception {
    pub fn new(side: &Side, block: &Block) -> Result<Self, LaunchError> {
        Ok(Self {
            first_sequence: block.first_sequence,
            lead_in: block.lead_in,
            total: block.lead_in + block.messages,
            offset_ns: machine_offset_ns()?,
            kept: vec![0; side.inbox.slots()],
            arrived: 0,
            received: 0,
            last_ns: 0,
            marks: Vec::with_capacity(usize::try_from(2 * block.lasts_ns / MARK_NS).unwrap_or(0) + 16),
        })
    }

    /// Receives the next message; false on timeout or at the end.
    #[inline]
    pub fn receive(&mut self, side: &mut Side, stop: impl FnMut() -> bool) -> Result<bool, LaunchError> {
        let slot = self.slot(self.arrived);
        let Some(sequence) = side.receive(slot, stop)? else { return Ok(false) };
        let number = sequence.wrapping_sub(self.first_sequence);
        if number >= self.total {
            return Ok(true);
        }
        self.kept[slot] = sequence;
        self.arrived += 1;
        let now = now_ns();
        if number < self.lead_in || self.marks.is_empty() {
            self.marks.clear();
            self.mark(now);
        }
        if number >= self.lead_in {
            self.received += 1;
            self.last_ns = now;
            if now + self.offset_ns >= self.marks[self.marks.len() - 1].at_ns + MARK_NS {
                self.mark(now);
            }
        }
        Ok(true)
    }

    /// Ends the block, and checks the messages that are kept.
    pub fn end(mut self, side: &mut Side) -> Outcome {
        if self.marks.last().is_some_and(|mark| mark.messages < self.received) {
            self.mark(self.last_ns);
        }
        let last = self.arrived;
        // The slot after the last may hold part of an incomplete message.
        let corrupt = (last.saturating_sub(self.kept.len() as u32 - 1)..last).filter(|number| {
            let slot = self.slot(*number);
            !side.pattern.is_intact(side.inbox.slot(slot), self.kept[slot], Sender::Active)
        });
        let corrupt = corrupt.count() as u32;
        let duration_ns = match (self.marks.first(), self.marks.last()) {
            (Some(first), Some(last)) => last.at_ns - first.at_ns,
            _ => 0,
        };
        Outcome { received: self.received, corrupt, duration_ns, marks: self.marks, ..Outcome::default() }
    }

    /// The slot of the message that arrives after `arrived` others.
    fn slot(&self, arrived: u32) -> usize {
        (self.first_sequence as usize + arrived as usize) % self.kept.len()
    }

    fn mark(&mut self, now_ns: u64) {
        self.marks.push(Mark { at_ns: now_ns + self.offset_ns, messages: self.received });
    }
}
