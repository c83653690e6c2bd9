// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bidirectional: both sides send a message and receive one at the same time.

use std::time::Duration;

use super::{Idle, LOSS_PATIENCE_NS, LossStreak, QUIET_NS, SILENCE_PATIENCE_NS, Samples, Side, silence};
use crate::pattern::Sender;
use crate::protocol::{Block, Outcome};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Exchanges messages and keeps the time of each exchange.
pub fn active(side: &mut Side, block: &Block) -> Result<Samples, LaunchError> {
    let mut samples = Samples { values_ns: Vec::with_capacity(block.messages as usize), ..Samples::default() };
    let mut streak = LossStreak::default();
    let mut number = 0;
    while number < block.messages {
        let sequence = block.first_sequence.wrapping_add(number);
        let began = now_ns();
        let exchanged = exchange(side, sequence, Sender::Active, || false)?;
        let ended = now_ns();
        streak.note(exchanged.is_none())?;
        let reached = exchanged.unwrap_or(sequence).wrapping_sub(block.first_sequence);
        if exchanged == Some(sequence) {
            samples.values_ns.push(ended - began);
        } else {
            samples.lost += (reached - number).max(1);
        }
        if let Some(sequence) = exchanged {
            let intact = side.pattern.is_intact(side.inbox.place(0), sequence, Sender::Passive);
            samples.corrupt += u32::from(!intact);
        }
        number = reached + 1;
    }
    samples.sent = block.messages;
    Ok(samples)
}

/// Takes part in every exchange, until `stop` says that the active side has finished.
pub fn passive(side: &mut Side, block: &Block, mut stop: impl FnMut() -> bool) -> Result<Outcome, LaunchError> {
    let mut outcome = Outcome::default();
    let mut number = 0;
    while number < block.messages {
        let sequence = block.first_sequence.wrapping_add(number);
        let exchanged = exchange(side, sequence, Sender::Passive, &mut stop)?;
        if exchanged.is_none() && stop() {
            break;
        }
        if let Some(sequence) = exchanged {
            outcome.received += 1;
            let intact = side.pattern.is_intact(side.inbox.place(0), sequence, Sender::Active);
            outcome.corrupt += u32::from(!intact);
        }
        number = exchanged.unwrap_or(sequence).wrapping_sub(block.first_sequence) + 1;
    }
    Ok(outcome)
}

/// One message each way, message `sequence` or, if the other side is further on because something
/// was lost, a later one: which, or `None` if none came in time.
fn exchange(
    side: &mut Side,
    mut sequence: u32,
    sender: Sender,
    mut stop: impl FnMut() -> bool,
) -> Result<Option<u32>, LaunchError> {
    let limit_ns = if side.transport.is_lossy() { LOSS_PATIENCE_NS } else { SILENCE_PATIENCE_NS };
    let (mut done, mut sent, mut received) = (0, false, false);
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
            // Asleep only when there is nothing else to do: while the rest cannot be sent, a short look.
            let patience = if sent { idle.patience() } else { Duration::ZERO };
            // SAFETY: as in `Side::receive`: the place is the same until the message has come.
            match unsafe { transport.receive(inbox.place(0), patience) }? {
                Some(got) if got.wrapping_sub(sequence) <= u32::MAX / 2 => {
                    received = true;
                    if got != sequence {
                        (sequence, done, sent) = (got, 0, false);
                        message = pattern.message(sequence, sender);
                    }
                }
                // Nothing, or the answer to an exchange given up earlier.
                _ => {}
            }
        }
        if sent && received || done != before {
            continue;
        }
        if idle.looks(&mut **transport)? {
            let over = transport.is_lossy() && idle.since_ns() > QUIET_NS && stop();
            if over || idle.since_ns() > limit_ns {
                return if transport.is_lossy() { Ok(None) } else { Err(silence()) };
            }
        }
    }
    waiting.learn(idle.still_asks());
    Ok(Some(sequence))
}
