// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of several processes. They start once all are ready, run for the same time, and only the work within their
//! overlap counts.

use std::io::Write;

use super::overlap::Overlap;
use super::{
    FIRST_MESSAGES, LOSSY_BLOCKS_FACTOR, STREAM_LEAD_IN_BYTES, STREAM_LEAD_IN_MESSAGES, STREAM_MESSAGES_MIN, Schedule,
    clamp,
};
use crate::client::{BlockResult, Command, Event};
use crate::protocol::Test;
use crate::record::{Phase, Quantity, Record, Values};
use barewire_recorder::clock::now_ns;
use barewire_recorder::{LaunchError, write};

/// Duration of a block per process. If all of a side share a core, each has it for about that long: many time slices,
/// so that one more or less does not count as unfairness.
const BLOCK_NS_EACH: u64 = 50_000_000;
/// The same for warm-up, and the minimum for round trips.
const SHORT_BLOCK_NS_EACH: u64 = 5_000_000;
/// Messages after which a process ends its part of a block early, and with it the overlap.
const ROUND_TRIPS_MAX: u32 = 30_000;
const STREAM_MESSAGES_MAX: u32 = 1 << 21;
/// Least overlap, as a share of the block: less is too short for a rate.
const OVERLAP_MIN: f64 = 0.25;
/// Blocks of a stream that are measured regardless of the time limit.
const BLOCKS_MIN: u32 = 3;
/// The search for a pace without loss, or for blocks with enough overlap, ends after this multiple of the time limit.
const REPEATED_TIME_FACTOR: f64 = 4.0;

impl<W: Write> Schedule<'_, W> {
    /// Measures one size. The time limit is multiplied by the number of processes.
    pub(super) fn measure_together(&mut self, message_bytes: u32) -> Result<(), LaunchError> {
        let budget_ns = self.plan.seconds * 1e9 * self.processes.len() as f64;
        match self.plan.test {
            Test::Stream => self.streams_together(message_bytes, budget_ns),
            Test::Pingpong | Test::Bidirectional => self.round_trips_together(message_bytes, budget_ns),
        }
    }

    /// Waits until both sides of all pairs are ready for the block, then starts it.
    pub(super) fn start_together(&mut self) -> Result<(), LaunchError> {
        for _ in 0..self.commands.len() {
            match self.next_event()? {
                (_, Event::Ready) => {}
                (pair, _) => return Err(self.unexpected_event(pair)),
            }
        }
        for sender in &self.commands {
            // Fails if the pair has ended; its event is read with the results.
            let _ = sender.send(Command::Go);
        }
        Ok(())
    }

    fn round_trips_together(&mut self, message_bytes: u32, budget_ns: f64) -> Result<(), LaunchError> {
        let processes = self.processes.len() as u64;
        let (short_ns, long_ns) = (SHORT_BLOCK_NS_EACH * processes, BLOCK_NS_EACH * processes);
        let mut number = 0;
        self.round_trip_block(message_bytes, Phase::Warmup, &mut number, FIRST_MESSAGES, short_ns)?;
        let warmup = self.plan.warmup.min(ROUND_TRIPS_MAX);
        let (mut count, mut lasts_ns) =
            self.round_trip_block(message_bytes, Phase::Warmup, &mut number, warmup, short_ns)?;
        let (mut measured, began) = (0, now_ns());
        while measured < self.plan.samples {
            let spent_ns = (now_ns() - began) as f64;
            if spent_ns >= budget_ns {
                break;
            }
            // Long enough for the slowest process to complete the missing samples.
            let remaining_ns = f64::from(self.plan.samples - measured) * lasts_ns / f64::from(count.max(1));
            let block_ns = (remaining_ns.min(budget_ns - spent_ns) as u64).clamp(short_ns, long_ns);
            (count, lasts_ns) =
                self.round_trip_block(message_bytes, Phase::Measure, &mut number, ROUND_TRIPS_MAX, block_ns)?;
            measured += count;
        }
        Ok(())
    }

    /// Runs one block; returns the slowest process's round trips within the overlap, and the overlap's duration in ns.
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
        let mut min = u32::MAX;
        for (pair, BlockResult { samples, outcome, .. }) in &results {
            let values = overlap.map(|overlap| overlap.round_trips(samples)).unwrap_or_default();
            min = min.min(values.len() as u32);
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
        Ok((min, overlap.map_or(lasts_ns, Overlap::duration_ns) as f64))
    }

    fn streams_together(&mut self, message_bytes: u32, budget_ns: f64) -> Result<(), LaunchError> {
        let processes = self.processes.len() as u64;
        let mut number = 0;
        self.stream_block_together(message_bytes, Phase::Warmup, &mut number, SHORT_BLOCK_NS_EACH * processes)?;
        let (mut good, mut tried, began) = (0, 0, now_ns());
        while good < self.plan.blocks && tried < self.plan.blocks.saturating_mul(LOSSY_BLOCKS_FACTOR) {
            let is_good =
                self.stream_block_together(message_bytes, Phase::Measure, &mut number, BLOCK_NS_EACH * processes)?;
            tried += 1;
            good += u32::from(is_good);
            let spent_ns = (now_ns() - began) as f64;
            if spent_ns > budget_ns && good >= BLOCKS_MIN
                || spent_ns > REPEATED_TIME_FACTOR * budget_ns && tried >= BLOCKS_MIN
            {
                break;
            }
        }
        Ok(())
    }

    /// Runs one block; returns whether it gave each process a rate without loss.
    fn stream_block_together(
        &mut self,
        message_bytes: u32,
        phase: Phase,
        number: &mut u32,
        lasts_ns: u64,
    ) -> Result<bool, LaunchError> {
        let lead_in = (STREAM_LEAD_IN_BYTES / message_bytes).clamp(1, STREAM_LEAD_IN_MESSAGES);
        let max = clamp(f64::from(u32::MAX / 2) / f64::from(message_bytes), STREAM_MESSAGES_MIN, STREAM_MESSAGES_MAX);
        let results = self.run_block(message_bytes, lead_in, max, lasts_ns)?;
        let overlap = Overlap::of(results.iter().map(|(_, result)| Overlap::of_marks(&result.outcome.marks)))
            .filter(|overlap| overlap.duration_ns() as f64 >= OVERLAP_MIN * lasts_ns as f64);
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
                // Readers subtract `lost`, which counts the whole block.
                messages: within + f64::from(lost),
                lost,
                corrupt: outcome.corrupt,
                pace_bit_s: self.rate.pace_bit_s(),
            };
            write(self.output, &Record::Samples(values))?;
            if lost > 0 {
                let sent_bit_s = *wire_bytes as f64 * f64::from(samples.sent) * 8e9 / samples.sending_ns.max(1) as f64;
                let delivered_bit_s = sent_bit_s * f64::from(outcome.received.max(1)) / f64::from(samples.sent.max(1));
                slowest_bit_s = Some(delivered_bit_s.min(slowest_bit_s.unwrap_or(f64::INFINITY)));
            }
            total_lost += lost;
        }
        match slowest_bit_s {
            Some(delivered_bit_s) => self.rate.lost(delivered_bit_s),
            None => self.rate.succeeded(),
        }
        *number += 1;
        Ok(total_lost == 0 && overlap.is_some())
    }
}
