// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ping-pong: a message there, an equally long one back, the time of both.

use super::{LossStreak, Samples, Side};
use crate::pattern::Sender;
use crate::protocol::{Block, Outcome};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::{machine_offset_ns, now_ns};

/// Sends, waits for the answer, and keeps the time from the one to the other.
pub fn active(side: &mut Side, block: &Block) -> Result<Samples, LaunchError> {
    let mut samples = Samples { values_ns: Vec::with_capacity(block.messages as usize), ..Samples::default() };
    let mut streak = LossStreak::default();
    let (deadline_ns, offset_ns) = (block.deadline_ns(), machine_offset_ns()?);
    for number in 0..block.messages {
        let sequence = block.first_sequence.wrapping_add(number);
        let place = sequence as usize;
        let began = now_ns();
        side.send(sequence, Sender::Active)?;
        // An answer to a message given up earlier may still come: it is not this one's.
        let answer = loop {
            match side.receive(place, || false)? {
                Some(answered) if answered != sequence => {}
                answer => break answer,
            }
        };
        let ended = now_ns();
        samples.sent += 1;
        streak.note(answer.is_none())?;
        if answer.is_none() {
            samples.lost += 1;
        } else {
            samples.values_ns.push(ended - began);
            if block.is_by_time() {
                samples.began_ns.push(began + offset_ns);
            }
            let intact = side.pattern.is_intact(side.inbox.place(place), sequence, Sender::Passive);
            samples.corrupt += u32::from(!intact);
        }
        if ended >= deadline_ns {
            break;
        }
    }
    Ok(samples)
}

/// Answers every message until the last one, or until `stop` says that the active side has finished.
///
/// What came in is checked after the answer has gone, while the active side checks that answer.
pub fn passive(side: &mut Side, block: &Block, mut stop: impl FnMut() -> bool) -> Result<Outcome, LaunchError> {
    let mut outcome = Outcome::default();
    let last = block.first_sequence.wrapping_add(block.messages).wrapping_sub(1);
    loop {
        let place = outcome.received as usize;
        let Some(sequence) = side.receive(place, &mut stop)? else {
            // Nothing for a while: lost, unless the other side has finished.
            if stop() {
                return Ok(outcome);
            }
            continue;
        };
        side.send(sequence, Sender::Passive)?;
        outcome.received += 1;
        let intact = side.pattern.is_intact(side.inbox.place(place), sequence, Sender::Active);
        outcome.corrupt += u32::from(!intact);
        if sequence == last {
            return Ok(outcome);
        }
    }
}
