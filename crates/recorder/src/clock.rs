// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of all measurements: `CLOCK_MONOTONIC`, read without a system call.

use std::sync::LazyLock;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};

use crate::LaunchError;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since the first call in this process.
#[inline]
pub fn now_ns() -> u64 {
    let elapsed = ORIGIN.elapsed();
    // Not `as_nanos`, which is 128 bits wide: this is called twice per sample.
    elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
}

/// Offset from [`now_ns`] to the machine's `CLOCK_MONOTONIC`, which all its processes share. Its error is the time
/// between two readings.
///
/// # Errors
/// If the clock cannot be read.
pub fn machine_offset_ns() -> Result<u64, LaunchError> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|error| LaunchError::system("clock_gettime", error))?;
    let machine_ns = time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64;
    Ok(machine_ns.saturating_sub(now_ns()))
}

/// Properties of the clock, as measured.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Median time of one reading.
    pub read_ns: u64,
    /// Smallest difference between two unequal readings.
    pub step_ns: u64,
}

impl Clock {
    /// Measures the clock by 1001 pairs of readings.
    #[must_use]
    pub fn measure() -> Self {
        let mut steps: Vec<u64> = (0..1001)
            .map(|_| {
                let began = now_ns();
                now_ns() - began
            })
            .collect();
        steps.sort_unstable();
        let step_ns = steps.iter().copied().find(|step| *step > 0).unwrap_or(1);
        Self { read_ns: steps[500], step_ns }
    }

    /// Resolution of a time measurement.
    #[must_use]
    pub fn resolution_ns(self) -> u64 {
        self.read_ns.max(self.step_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_to_the_machines_clock_is_constant() {
        let first = machine_offset_ns().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        // Tolerant, because the thread may be preempted between readings.
        assert!(machine_offset_ns().unwrap().abs_diff(first) < 4_000_000);
    }

    #[test]
    fn the_resolution_is_between_1_ns_and_100_us() {
        let clock = Clock::measure();
        assert!((1..100_000).contains(&clock.resolution_ns()), "{clock:?}");
    }
}
