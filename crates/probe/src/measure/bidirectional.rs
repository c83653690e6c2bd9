// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bidirectional: both sides send a message and receive one at the same time.

use std::time::Duration;

use super::{IDLE_NS, Idle, LOSS_PATIENCE_NS, LossStreak, SILENCE_PATIENCE_NS, Samples, Side, peer_silent};
use crate::pattern::Sender;
use crate::protocol::{Block, Outcome};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Exchanges messages and records the time of each exchange.
pub fn active(side: &mut Side, block: &Block) -> Result<Samples, LaunchError> {
    let mut samples = Samples { values_ns: Vec::with_capacity(block.messages as usize), ..Samples::default() };
    let mut streak = LossStreak::default();
    let mut number = 0;
    while number < block.messages {
        let sequence = block.first_sequence.wrapping_add(number);
        let began = now_ns();
        let exchanged = exchange(side, sequence, Sender::Active, || false)?;
        let ended = now_ns();
        streak.record(exchanged.is_none())?;
        let reached = exchanged.unwrap_or(sequence).wrapping_sub(block.first_sequence);
        if exchanged == Some(sequence) {
            samples.values_ns.push(ended - began);
        } else {
            samples.lost += (reached - number).max(1);
        }
        if let Some(received) = exchanged {
            let intact = side.pattern.is_intact(side.inbox.slot(sequence as usize), received, Sender::Passive);
            samples.corrupt += u32::from(!intact);
        }
        number = reached + 1;
    }
    samples.sent = block.messages;
    Ok(samples)
}

/// Takes part in every exchange, until `stop` reports that the active side has finished.
pub fn passive(side: &mut Side, block: &Block, mut stop: impl FnMut() -> bool) -> Result<Outcome, LaunchError> {
    let mut outcome = Outcome::default();
    let mut number = 0;
    while number < block.messages {
        let sequence = block.first_sequence.wrapping_add(number);
        let exchanged = exchange(side, sequence, Sender::Passive, &mut stop)?;
        if exchanged.is_none() && stop() {
            break;
        }
        if let Some(received) = exchanged {
            outcome.received += 1;
            let intact = side.pattern.is_intact(side.inbox.slot(sequence as usize), received, Sender::Active);
            outcome.corrupt += u32::from(!intact);
        }
        number = exchanged.unwrap_or(sequence).wrapping_sub(block.first_sequence) + 1;
    }
    Ok(outcome)
}

/// Sends and receives message `sequence`, or a later one if the peer has skipped some after a loss. Returns the
/// number exchanged; `None` on timeout. The message received is in the slot of the given `sequence`.
fn exchange(
    side: &mut Side,
    mut sequence: u32,
    sender: Sender,
    mut stop: impl FnMut() -> bool,
) -> Result<Option<u32>, LaunchError> {
    let limit_ns = if side.transport.is_lossy() { LOSS_PATIENCE_NS } else { SILENCE_PATIENCE_NS };
    let (slot, mut done, mut sent, mut received) = (sequence as usize, 0, false, false);
    let Side { transport, pattern, inbox, waiting, .. } = side;
    let mut idle = Idle::new(waiting);
    let mut message = pattern.message(sequence, sender);
    while !(sent && received) {
        let before = done;
        if !sent {
            // SAFETY: as in `Side::send`; a message is written before its first call.
            sent = unsafe { transport.try_send(sequence, message, &mut done)? };
        }
        if !received {
            // Sleep only when nothing is left to send; else poll once.
            let patience = if sent { idle.patience() } else { Duration::ZERO };
            // SAFETY: as in `Side::receive`: the slot is the same until the message is complete.
            match unsafe { transport.receive(inbox.slot(slot), patience) }? {
                Some(got) if got.wrapping_sub(sequence) <= u32::MAX / 2 => {
                    received = true;
                    if got != sequence {
                        (sequence, done, sent) = (got, 0, false);
                        message = pattern.message(sequence, sender);
                    }
                }
                // Nothing, or a message of an exchange that timed out earlier.
                _ => {}
            }
        }
        if sent && received || done != before {
            continue;
        }
        if idle.tick(&mut **transport)? {
            let over = transport.is_lossy() && idle.since_ns() > IDLE_NS && stop();
            if over || idle.since_ns() > limit_ns {
                return if transport.is_lossy() { Ok(None) } else { Err(peer_silent()) };
            }
        }
    }
    waiting.learn(idle.is_spinning());
    Ok(Some(sequence))
}
