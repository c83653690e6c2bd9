// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of several processes. All are ready before one begins, each goes on for the same time, and of what they did
//! only that counts which happened while all were at work.

use std::io::Write;

use super::overlap::Overlap;
use super::{
    FIRST_MESSAGES, LOSSY_BLOCKS_FACTOR, STREAM_LEAD_IN_BYTES, STREAM_LEAD_IN_MESSAGES, STREAM_LEAST_MESSAGES,
    Schedule, clamp,
};
use crate::client::{BlockResult, Command, Event};
use crate::protocol::Test;
use crate::rate_search::RateSearch;
use crate::record::{Phase, Quantity, Record, Values};
use barewire_recorder::clock::now_ns;
use barewire_recorder::{LaunchError, write};

/// A block lasts so long for each process. Where all of a side share a core, each has the core for about that long:
/// many of a scheduler's turns, so that a turn more or less is no unfairness.
const BLOCK_NS_EACH: u64 = 50_000_000;
/// The same for warm-up, and the least for round trips.
const SHORT_BLOCK_NS_EACH: u64 = 5_000_000;
/// A process that comes to so many messages ends its part of a block earlier, and with it the overlap.
const ROUND_TRIPS_MOST: u32 = 30_000;
const STREAM_MESSAGES_MOST: u32 = 1 << 21;
/// Less of a block than this in common, and its rates would be of too short a time.
const LEAST_OVERLAP: f64 = 0.25;
/// Blocks of a stream that are measured whatever time they take.
const LEAST_BLOCKS: u32 = 3;
/// A search for a pace without loss, or for blocks in which all were at work at once, ends after this many times the
/// time asked for.
const REPEATED_TIME_FACTOR: f64 = 4.0;

impl<W: Write> Schedule<'_, W> {
    /// One size. It takes as many times longer as there are processes.
    pub(super) fn measure_together(&mut self, message_bytes: u32) -> Result<(), LaunchError> {
        let budget_ns = self.plan.seconds * 1e9 * self.processes.len() as f64;
        // What the link carries is for all of them.
        self.rate = RateSearch::new(self.plan.rate_bit_s.map(|rate| rate / self.processes.len() as f64));
        match self.plan.test {
            Test::Stream => self.streams_together(message_bytes, budget_ns),
            Test::Pingpong | Test::Bidirectional => self.round_trips_together(message_bytes, budget_ns),
        }
    }

    /// Waits until both sides of all pairs are ready for the block, and lets them go.
    pub(super) fn begin_together(&mut self) -> Result<(), LaunchError> {
        for _ in 0..self.commands.len() {
            match self.next_event()? {
                (_, Event::Ready) => {}
                (pair, _) => return Err(self.out_of_turn(pair)),
            }
        }
        for sender in &self.commands {
            // A pair that has ended has said why; that is read with the results.
            let _ = sender.send(Command::Go);
        }
        Ok(())
    }

    fn round_trips_together(&mut self, message_bytes: u32, budget_ns: f64) -> Result<(), LaunchError> {
        let processes = self.processes.len() as u64;
        let (short_ns, long_ns) = (SHORT_BLOCK_NS_EACH * processes, BLOCK_NS_EACH * processes);
        let mut number = 0;
        self.round_trip_block(message_bytes, Phase::Warmup, &mut number, FIRST_MESSAGES, short_ns)?;
        let warmup = self.plan.warmup.min(ROUND_TRIPS_MOST);
        let (mut count, mut lasts_ns) =
            self.round_trip_block(message_bytes, Phase::Warmup, &mut number, warmup, short_ns)?;
        let (mut measured, began) = (0, now_ns());
        while measured < self.plan.samples {
            let spent_ns = (now_ns() - began) as f64;
            if spent_ns >= budget_ns {
                break;
            }
            // So long that the slowest comes to what is missing.
            let missing_ns = f64::from(self.plan.samples - measured) * lasts_ns / f64::from(count.max(1));
            let block_ns = (missing_ns.min(budget_ns - spent_ns) as u64).clamp(short_ns, long_ns);
            (count, lasts_ns) =
                self.round_trip_block(message_bytes, Phase::Measure, &mut number, ROUND_TRIPS_MOST, block_ns)?;
            measured += count;
        }
        Ok(())
    }

    /// One block; how many round trips of the slowest process count, and in what time.
    fn round_trip_block(
        &mut self,
        message_bytes: u32,
        phase: Phase,
        number: &mut u32,
        messages: u32,
        lasts_ns: u64,
    ) -> Result<(u32, f64), LaunchError> {
        let results = self.run_block(message_bytes, 0, messages, lasts_ns)?;
        let overlap = Overlap::of(results.iter().map(|(_, result)| Overlap::of_round_trips(&result.samples)));
        let mut least = u32::MAX;
        for (pair, BlockResult { samples, outcome, .. }) in &results {
            let values = overlap.map(|overlap| overlap.round_trips(samples)).unwrap_or_default();
            least = least.min(values.len() as u32);
            let values = Values {
                pair: *pair,
                message_bytes,
                phase,
                block: *number,
                quantity: Quantity::RoundTrip,
                unit: "ns",
                values: &values,
                messages: samples.sent.into(),
                lost: samples.lost,
                corrupt: samples.corrupt + outcome.corrupt,
                pace_bit_s: None,
            };
            write(self.output, &Record::Samples(values))?;
        }
        *number += 1;
        Ok((least, overlap.map_or(lasts_ns, Overlap::duration_ns) as f64))
    }

    fn streams_together(&mut self, message_bytes: u32, budget_ns: f64) -> Result<(), LaunchError> {
        let processes = self.processes.len() as u64;
        let mut number = 0;
        self.stream_block_together(message_bytes, Phase::Warmup, &mut number, SHORT_BLOCK_NS_EACH * processes)?;
        let (mut good, mut tried, began) = (0, 0, now_ns());
        while good < self.plan.blocks && tried < self.plan.blocks * LOSSY_BLOCKS_FACTOR {
            let is_good =
                self.stream_block_together(message_bytes, Phase::Measure, &mut number, BLOCK_NS_EACH * processes)?;
            tried += 1;
            good += u32::from(is_good);
            let spent_ns = (now_ns() - began) as f64;
            if spent_ns > budget_ns && good >= LEAST_BLOCKS
                || spent_ns > REPEATED_TIME_FACTOR * budget_ns && tried >= LEAST_BLOCKS
            {
                break;
            }
        }
        Ok(())
    }

    /// One block; whether it gave each process a rate without loss.
    fn stream_block_together(
        &mut self,
        message_bytes: u32,
        phase: Phase,
        number: &mut u32,
        lasts_ns: u64,
    ) -> Result<bool, LaunchError> {
        let lead_in = (STREAM_LEAD_IN_BYTES / message_bytes).clamp(1, STREAM_LEAD_IN_MESSAGES);
        let most =
            clamp(f64::from(u32::MAX / 2) / f64::from(message_bytes), STREAM_LEAST_MESSAGES, STREAM_MESSAGES_MOST);
        let results = self.run_block(message_bytes, lead_in, most, lasts_ns)?;
        let overlap = Overlap::of(results.iter().map(|(_, result)| Overlap::of_marks(&result.outcome.marks)))
            .filter(|overlap| overlap.duration_ns() as f64 >= LEAST_OVERLAP * lasts_ns as f64);
        let (mut total_lost, mut slowest_bit_s) = (0, None::<f64>);
        for (pair, BlockResult { samples, outcome, wire_bytes, .. }) in &results {
            let lost = samples.sent.saturating_sub(lead_in).saturating_sub(outcome.received);
            let duration_ns = overlap.map(Overlap::duration_ns);
            let within = overlap.map_or(0.0, |overlap| overlap.messages(&outcome.marks));
            let values = Values {
                pair: *pair,
                message_bytes,
                phase,
                block: *number,
                quantity: Quantity::Stream,
                unit: "ns",
                values: duration_ns.as_slice(),
                // A reader takes the lost ones off, which are the whole block's.
                messages: within + f64::from(lost),
                lost,
                corrupt: outcome.corrupt,
                pace_bit_s: self.rate.pace_bit_s(),
            };
            write(self.output, &Record::Samples(values))?;
            if lost > 0 {
                let sent_bit_s = *wire_bytes as f64 * f64::from(samples.sent) * 8e9 / samples.sending_ns.max(1) as f64;
                let got_through = sent_bit_s * f64::from(outcome.received.max(1)) / f64::from(samples.sent.max(1));
                slowest_bit_s = Some(got_through.min(slowest_bit_s.unwrap_or(f64::INFINITY)));
            }
            total_lost += lost;
        }
        match slowest_bit_s {
            Some(got_through) => self.rate.lost(got_through),
            None => self.rate.succeeded(),
        }
        *number += 1;
        Ok(total_lost == 0 && overlap.is_some())
    }
}
