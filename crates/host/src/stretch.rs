// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timed stretches: calibrates their number of operations, and measures several subjects interleaved.

use std::io::Write;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::record::{Phase, Quantity, Record, Values};
use barewire_recorder::clock::{Clock, now_ns};
use barewire_recorder::{LaunchError, write};

/// Set by a signal: the launch ends between two stretches.
pub static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Minimum of a stretch, in clock resolutions (Stival 2006).
const RESOLUTIONS: u64 = 100;
/// Minimum of a stretch: the loop and the clock readings then cost less than one percent.
const STRETCH_NS_MIN: u64 = 10_000;
/// Minimum number of samples, even beyond the time limit.
const SAMPLES_MIN: usize = 3;
/// Maximum number of samples: more add no information and fill the disk.
const SAMPLES_MAX: usize = 400;

/// How long to measure each subject.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub stretch_ns: u64,
    pub seconds: f64,
}

impl Effort {
    pub fn new(clock: Clock, seconds: f64) -> Self {
        Self { stretch_ns: (RESOLUTIONS * clock.resolution_ns()).max(STRETCH_NS_MIN), seconds }
    }
}

/// Repeats an operation the given number of times.
pub type Repeat<'a> = Box<dyn FnMut(u64) -> Result<(), LaunchError> + 'a>;

/// An operation to measure.
pub struct Subject<'a> {
    pub name: &'a str,
    /// Operations per repetition: a round trip is two hops.
    pub operations: u64,
    pub repeat: Repeat<'a>,
}

/// Measures subjects at one block size: one stretch of each per round, in alternating order, so that a disturbance of
/// the machine affects all of them.
///
/// # Errors
/// A subject's error, [`LaunchError::Interrupted`], or a failure to write the samples.
pub fn measure(
    subjects: &mut [Subject<'_>],
    block_bytes: usize,
    quantity: Quantity,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let mut put = recorder(block_bytes, quantity, output);
    let mut repetitions = Vec::with_capacity(subjects.len());
    for subject in &mut *subjects {
        repetitions
            .push(calibrate(subject, effort, |subject, times, value| put(subject, Phase::Warmup, times, &[value]))?);
    }
    let values = rounds(subjects, &repetitions, effort, true)?;
    for ((subject, times), values) in subjects.iter().zip(repetitions).zip(&values) {
        put(subject, Phase::Measure, times, values)?;
    }
    Ok(())
}

/// As [`measure`], for subjects that each need the result of the previous one: always in this order, and with this
/// number of repetitions. The first round is the warm-up.
///
/// # Errors
/// As those of [`measure`].
pub fn measure_in_order(
    subjects: &mut [Subject<'_>],
    repetitions: u64,
    block_bytes: usize,
    quantity: Quantity,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let mut put = recorder(block_bytes, quantity, output);
    for subject in &mut *subjects {
        let value = timed(&mut subject.repeat, repetitions)?;
        put(subject, Phase::Warmup, repetitions, &[value])?;
    }
    let values = rounds(subjects, &vec![repetitions; subjects.len()], effort, false)?;
    for (subject, values) in subjects.iter().zip(&values) {
        put(subject, Phase::Measure, repetitions, values)?;
    }
    Ok(())
}

/// Writes the stretches of one subject.
fn recorder(
    block_bytes: usize,
    quantity: Quantity,
    output: &mut dyn Write,
) -> impl FnMut(&Subject<'_>, Phase, u64, &[u64]) -> Result<(), LaunchError> {
    move |subject, phase, repetitions, values| {
        let operations = repetitions * subject.operations;
        let subject = subject.name;
        let values = Values { subject, block_bytes, phase, quantity, unit: "ns", operations, values };
        write(output, &Record::Samples(values))
    }
}

/// The times of each subject's stretches, one of each per round; every second round in reverse order if `alternates`.
fn rounds(
    subjects: &mut [Subject<'_>],
    repetitions: &[u64],
    effort: Effort,
    alternates: bool,
) -> Result<Vec<Vec<u64>>, LaunchError> {
    let mut values = vec![Vec::with_capacity(SAMPLES_MAX); subjects.len()];
    let began = now_ns();
    let limit_ns = (effort.seconds * 1e9) as u64 * subjects.len() as u64;
    for round in 0..SAMPLES_MAX {
        if round >= SAMPLES_MIN && now_ns() - began > limit_ns {
            break;
        }
        for position in 0..subjects.len() {
            let is_reverse = alternates && round % 2 == 1;
            let index = if is_reverse { subjects.len() - 1 - position } else { position };
            values[index].push(timed(&mut subjects[index].repeat, repetitions[index])?);
        }
    }
    Ok(values)
}

/// The number of repetitions that fill a stretch; each attempt is recorded as warm-up.
fn calibrate(
    subject: &mut Subject<'_>,
    effort: Effort,
    mut put: impl FnMut(&Subject<'_>, u64, u64) -> Result<(), LaunchError>,
) -> Result<u64, LaunchError> {
    const GROWTH_MAX: u64 = 16;
    // The first repetition, with cold caches, is slower than later ones by less than this factor.
    const COLD_FACTOR_MAX: u64 = 100;
    let wanted = effort.stretch_ns + effort.stretch_ns / 5;
    let mut times = 1;
    loop {
        let mut shortest = u64::MAX;
        for _ in 0..3 {
            let taken = timed(&mut subject.repeat, times)?.max(1);
            put(subject, times, taken)?;
            shortest = shortest.min(taken);
            if taken < wanted || taken > COLD_FACTOR_MAX * wanted {
                break;
            }
        }
        if shortest >= wanted {
            return Ok(times);
        }
        times = (times * wanted).div_ceil(shortest).clamp(times + 1, times * GROWTH_MAX);
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
    fn a_stretch_is_a_hundred_resolutions_long_and_subjects_have_equally_many() {
        let clock = Clock { read_ns: 30, step_ns: 500 };
        let effort = Effort::new(clock, 0.002);
        assert_eq!(effort.stretch_ns, 50_000);
        let spin = |times: u64| {
            let end = now_ns() + times * 700;
            while now_ns() < end {}
            Ok(())
        };
        let mut output = Vec::new();
        let mut subjects = [
            Subject { name: "one", operations: 1, repeat: Box::new(spin) },
            Subject { name: "two", operations: 2, repeat: Box::new(spin) },
        ];
        measure(&mut subjects, 64, Quantity::Time, effort, &mut output).unwrap();
        let records = records(&output);
        let measured: Vec<_> = records.iter().filter(|record| record["phase"] == "measure").collect();
        assert_eq!(measured.len(), 2);
        assert!(records.len() > 2, "the warm-up is recorded");
        for record in &measured {
            let values = record["values"].as_array().unwrap();
            assert!(values.len() >= SAMPLES_MIN);
            assert!(values.iter().all(|value| value.as_u64().unwrap() >= effort.stretch_ns), "{record}");
        }
        assert_eq!(measured[0]["values"].as_array().unwrap().len(), measured[1]["values"].as_array().unwrap().len());
        assert_eq!(measured[1]["operations"].as_u64().unwrap() % 2, 0);
    }

    #[test]
    fn an_error_of_a_subject_ends_the_measurement() {
        let fails = Subject {
            name: "fails",
            operations: 1,
            repeat: Box::new(|_| Err(LaunchError::Failed("broken".to_owned()))),
        };
        let effort = Effort { stretch_ns: 1000, seconds: 0.001 };
        let error = measure(&mut [fails], 0, Quantity::Time, effort, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "broken");
    }
}
