// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ping-pong: round trips of a message and an equally long answer.

use super::{LossStreak, Samples, Side};
use crate::pattern::Sender;
use crate::protocol::{Block, Outcome};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::{machine_offset_ns, now_ns};

/// Sends, waits for the answer, and records the time between.
pub fn active(side: &mut Side, block: &Block) -> Result<Samples, LaunchError> {
    let mut samples = Samples { values_ns: Vec::with_capacity(block.messages as usize), ..Samples::default() };
    let mut streak = LossStreak::default();
    let (deadline_ns, offset_ns) = (block.deadline_ns(), machine_offset_ns()?);
    for number in 0..block.messages {
        let sequence = block.first_sequence.wrapping_add(number);
        let slot = sequence as usize;
        let began = now_ns();
        side.send(sequence, Sender::Active)?;
        // Skip late answers to messages that were given up.
        let answer = loop {
            match side.receive(slot, || false)? {
                Some(answered) if answered != sequence => {}
                answer => break answer,
            }
        };
        let ended = now_ns();
        samples.sent += 1;
        streak.record(answer.is_none())?;
        if answer.is_none() {
            samples.lost += 1;
        } else {
            samples.values_ns.push(ended - began);
            if block.is_timed() {
                samples.began_ns.push(began + offset_ns);
            }
            let intact = side.pattern.is_intact(side.inbox.slot(slot), sequence, Sender::Passive);
            samples.corrupt += u32::from(!intact);
        }
        if ended >= deadline_ns {
            break;
        }
    }
    Ok(samples)
}

/// Answers every message until the last one, or until `stop` reports that the active side has finished.
///
/// Messages are checked after the answer is sent, while the active side checks that answer.
pub fn passive(side: &mut Side, block: &Block, mut stop: impl FnMut() -> bool) -> Result<Outcome, LaunchError> {
    let mut outcome = Outcome::default();
    let last = block.first_sequence.wrapping_add(block.messages).wrapping_sub(1);
    loop {
        let slot = block.first_sequence as usize + outcome.received as usize;
        let Some(sequence) = side.receive(slot, &mut stop)? else {
            // Timeout: a loss, unless the other side has finished.
            if stop() {
                return Ok(outcome);
            }
            continue;
        };
        side.send(sequence, Sender::Passive)?;
        outcome.received += 1;
        let intact = side.pattern.is_intact(side.inbox.slot(slot), sequence, Sender::Active);
        outcome.corrupt += u32::from(!intact);
        if sequence == last {
            return Ok(outcome);
        }
    }
}
