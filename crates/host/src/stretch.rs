// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timed stretches: how many operations fill one, and contenders that take turns.

use std::io::Write;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::record::{Phase, Quantity, Record, Values};
use barewire_recorder::clock::{Clock, now_ns};
use barewire_recorder::{LaunchError, write};

/// Set by a signal: the launch ends in order, between two stretches.
pub static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// A stretch is so many times longer than what the clock can tell apart, as Stival 2006 asks.
const RESOLUTIONS: u64 = 100;
/// And long enough that entering the loop and reading the clock cost less than a percent.
const SHORTEST_STRETCH_NS: u64 = 10_000;
/// Where one operation outlasts the time there is, this many are measured nevertheless.
const FEWEST_SAMPLES: usize = 3;
/// More tell nothing new of a launch and fill the disk.
const MOST_SAMPLES: usize = 400;

/// How much to measure of each contender.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub stretch_ns: u64,
    pub seconds: f64,
}

impl Effort {
    pub fn new(clock: Clock, seconds: f64) -> Self {
        Self { stretch_ns: (RESOLUTIONS * clock.resolution_ns()).max(SHORTEST_STRETCH_NS), seconds }
    }
}

/// Does an operation that many times.
pub type Repeat<'a> = Box<dyn FnMut(u64) -> Result<(), LaunchError> + 'a>;

/// One way to do something.
pub struct Contender<'a> {
    pub subject: &'a str,
    /// Operations in one repetition: a round trip is two hops.
    pub operations: u64,
    pub repeat: Repeat<'a>,
}

/// Measures contenders at one block size, one stretch of each in turn, every second time in reverse order: what
/// disturbs the machine for a while disturbs all of them.
///
/// # Errors
/// The contenders' own, [`LaunchError::Interrupted`], or that samples cannot be written.
pub fn measure(
    contenders: &mut [Contender<'_>],
    block_bytes: usize,
    quantity: Quantity,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let mut put = |contender: &Contender<'_>, phase, repetitions: u64, values: &[u64]| {
        let operations = repetitions * contender.operations;
        let subject = contender.subject;
        let values = Values { subject, block_bytes, phase, quantity, unit: "ns", operations, values };
        write(output, &Record::Samples(values))
    };
    let mut repetitions = Vec::with_capacity(contenders.len());
    for contender in &mut *contenders {
        repetitions.push(calibrate(contender, effort, |one, times, value| put(one, Phase::Warmup, times, &[value]))?);
    }
    let mut values = vec![Vec::with_capacity(MOST_SAMPLES); contenders.len()];
    let began = now_ns();
    let limit_ns = (effort.seconds * 1e9) as u64 * contenders.len() as u64;
    for turn in 0..MOST_SAMPLES {
        if turn >= FEWEST_SAMPLES && now_ns() - began > limit_ns {
            break;
        }
        for place in 0..contenders.len() {
            let index = if turn % 2 == 0 { place } else { contenders.len() - 1 - place };
            values[index].push(timed(&mut contenders[index].repeat, repetitions[index])?);
        }
    }
    for ((contender, times), values) in contenders.iter().zip(repetitions).zip(&values) {
        put(contender, Phase::Measure, times, values)?;
    }
    Ok(())
}

/// How many repetitions fill a stretch; each attempt is a sample of the warm-up.
fn calibrate(
    contender: &mut Contender<'_>,
    effort: Effort,
    mut put: impl FnMut(&Contender<'_>, u64, u64) -> Result<(), LaunchError>,
) -> Result<u64, LaunchError> {
    const FASTEST_GROWTH: u64 = 16;
    // No first time, with nothing in the cache, is so many times slower than those that follow.
    const SLOWEST_START: u64 = 100;
    let wanted = effort.stretch_ns + effort.stretch_ns / 5;
    let mut times = 1;
    loop {
        let mut shortest = u64::MAX;
        for _ in 0..3 {
            let taken = timed(&mut contender.repeat, times)?.max(1);
            put(contender, times, taken)?;
            shortest = shortest.min(taken);
            if taken < wanted || taken > SLOWEST_START * wanted {
                break;
            }
        }
        if shortest >= wanted {
            return Ok(times);
        }
        times = (times * wanted).div_ceil(shortest).clamp(times + 1, times * FASTEST_GROWTH);
    }
}

#[inline]
fn timed(repeat: &mut Repeat<'_>, times: u64) -> Result<u64, LaunchError> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(LaunchError::Interrupted);
    }
    let began = now_ns();
    repeat(times)?;
    Ok(now_ns() - began)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(output: &[u8]) -> Vec<serde_json::Value> {
        output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    #[test]
    fn a_stretch_is_a_hundred_resolutions_long_and_contenders_have_equally_many() {
        let clock = Clock { read_ns: 30, step_ns: 500 };
        let effort = Effort::new(clock, 0.002);
        assert_eq!(effort.stretch_ns, 50_000);
        let spin = |times: u64| {
            let end = now_ns() + times * 700;
            while now_ns() < end {}
            Ok(())
        };
        let mut output = Vec::new();
        let mut contenders = [
            Contender { subject: "one", operations: 1, repeat: Box::new(spin) },
            Contender { subject: "two", operations: 2, repeat: Box::new(spin) },
        ];
        measure(&mut contenders, 64, Quantity::Time, effort, &mut output).unwrap();
        let records = records(&output);
        let measured: Vec<_> = records.iter().filter(|one| one["phase"] == "measure").collect();
        assert_eq!(measured.len(), 2);
        assert!(records.len() > 2, "the warm-up is recorded");
        for one in &measured {
            let values = one["values"].as_array().unwrap();
            assert!(values.len() >= FEWEST_SAMPLES);
            assert!(values.iter().all(|value| value.as_u64().unwrap() >= effort.stretch_ns), "{one}");
        }
        assert_eq!(measured[0]["values"].as_array().unwrap().len(), measured[1]["values"].as_array().unwrap().len());
        assert_eq!(measured[1]["operations"].as_u64().unwrap() % 2, 0);
    }

    #[test]
    fn the_error_of_a_contender_ends_the_measurement() {
        let fails = Contender {
            subject: "fails",
            operations: 1,
            repeat: Box::new(|_| Err(LaunchError::Failed("broken".to_owned()))),
        };
        let effort = Effort { stretch_ns: 1000, seconds: 0.001 };
        let error = measure(&mut [fails], 0, Quantity::Time, effort, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "broken");
    }
}
