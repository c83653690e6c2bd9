// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream: messages one way without a pause, timed at the receiver.

use super::{Samples, Side};
use crate::pattern::Sender;
use crate::protocol::{Block, Outcome};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Sends the lead-in and the messages. The sample is taken on the other side.
pub fn active(side: &mut Side, block: &Block) -> Result<Samples, LaunchError> {
    let began = now_ns();
    for number in 0..block.lead_in + block.messages {
        side.send(block.first_sequence.wrapping_add(number), Sender::Active)?;
    }
    Ok(Samples { sending_ns: now_ns() - began, ..Samples::default() })
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
