// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream: messages one way without a pause, timed at the receiver. A block is a number of messages, or lasts a time.

use super::{Samples, Side};
use crate::pattern::Sender;
use crate::protocol::{Block, Mark, Outcome};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::{machine_offset_ns, now_ns};

/// Time between two marks of a stream by time.
const MARK_NS: u64 = 500_000;

/// Sends the lead-in and the messages. The sample is taken on the other side.
pub fn active(side: &mut Side, block: &Block) -> Result<Samples, LaunchError> {
    let (began, deadline_ns) = (now_ns(), block.deadline_ns());
    // Who shares a core and never has to wait keeps it for a whole turn of the scheduler, or for good at real-time
    // priority; the others' windows close meanwhile (docs/performance.md).
    let gives_way = side.gives_way() && block.is_by_time();
    let mut sent = 0;
    while sent < block.lead_in + block.messages {
        side.send(block.first_sequence.wrapping_add(sent), Sender::Active)?;
        sent += 1;
        if block.is_by_time() && now_ns() >= deadline_ns && sent > block.lead_in {
            break;
        }
        if gives_way {
            std::thread::yield_now();
        }
    }
    Ok(Samples { sending_ns: now_ns() - began, sent, ..Samples::default() })
}

/// Receives all that comes, until the last message or, if some are lost, until `stop` says that the
/// sender has finished and nothing has come for a while.
///
/// The clock starts with the last message of the lead-in: by then a link's burst allowance is used
/// up and all caches are warm. What came in is checked when the clock has stopped.
pub fn passive(side: &mut Side, block: &Block, mut stop: impl FnMut() -> bool) -> Result<Outcome, LaunchError> {
    let total = block.lead_in + block.messages;
    let mut arrived = Vec::with_capacity(total as usize);
    let (mut began, mut ended) = (0, 0);
    loop {
        let Some(sequence) = side.receive(arrived.len(), &mut stop)? else {
            if stop() {
                break;
            }
            continue;
        };
        let number = sequence.wrapping_sub(block.first_sequence);
        if number >= total || arrived.len() == total as usize {
            continue;
        }
        if number < block.lead_in {
            began = now_ns();
        } else {
            ended = now_ns();
        }
        arrived.push(sequence);
        if number + 1 == total {
            break;
        }
    }
    let mut outcome =
        Outcome { duration_ns: if began == 0 { 0 } else { ended.saturating_sub(began) }, ..Outcome::default() };
    for (place, sequence) in arrived.into_iter().enumerate() {
        let timed = sequence.wrapping_sub(block.first_sequence) >= block.lead_in;
        outcome.received += u32::from(timed);
        let intact = side.pattern.is_intact(side.inbox.place(place), sequence, Sender::Active);
        outcome.corrupt += u32::from(!intact);
    }
    Ok(outcome)
}

/// What has come of a stream by time.
pub struct Reception {
    first_sequence: u32,
    lead_in: u32,
    total: u32,
    offset_ns: u64,
    /// The sequence number of the message at each place of the inbox.
    kept: Vec<u32>,
    /// Messages that came, those of the lead-in as well.
    pub arrived: u32,
    /// Of these within the clock.
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
            kept: vec![0; side.inbox.places()],
            arrived: 0,
            received: 0,
            last_ns: 0,
            marks: Vec::with_capacity(usize::try_from(2 * block.lasts_ns / MARK_NS).unwrap_or(0) + 16),
        })
    }

    /// Takes the next message; false if none came, for a while or for good.
    #[inline]
    pub fn take(&mut self, side: &mut Side, stop: impl FnMut() -> bool) -> Result<bool, LaunchError> {
        let place = self.arrived as usize % self.kept.len();
        let Some(sequence) = side.receive(place, stop)? else { return Ok(false) };
        let number = sequence.wrapping_sub(self.first_sequence);
        if number >= self.total {
            return Ok(true);
        }
        self.kept[place] = sequence;
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

    /// Ends the block: checks what is still there of it, the last messages.
    pub fn end(mut self, side: &mut Side) -> Outcome {
        if self.marks.last().is_some_and(|mark| mark.messages < self.received) {
            self.mark(self.last_ns);
        }
        let last = self.arrived as usize;
        // The place after the last may hold a part of a message that never became whole.
        let corrupt = (last.saturating_sub(self.kept.len() - 1)..last).filter(|number| {
            let place = number % self.kept.len();
            !side.pattern.is_intact(side.inbox.place(place), self.kept[place], Sender::Active)
        });
        let corrupt = corrupt.count() as u32;
        let duration_ns = match (self.marks.first(), self.marks.last()) {
            (Some(first), Some(last)) => last.at_ns - first.at_ns,
            _ => 0,
        };
        Outcome { received: self.received, corrupt, duration_ns, marks: self.marks, ..Outcome::default() }
    }

    fn mark(&mut self, now_ns: u64) {
        self.marks.push(Mark { at_ns: now_ns + self.offset_ns, messages: self.received });
    }
}
