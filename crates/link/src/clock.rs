// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock for users of a link.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A monotonic clock: the system's, or a simulated one.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// A simulated clock at zero, which advances only by [`set`](Self::set).
    #[must_use]
    pub fn simulated() -> Self {
        Self(Some(Arc::default()))
    }

    /// The time since the first reading in this process, or the time of a simulated clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Duration {
        match &self.0 {
            None => ORIGIN.elapsed(),
            Some(nanoseconds) => Duration::from_nanos(nanoseconds.load(Ordering::Relaxed)),
        }
    }

    /// Sets a simulated clock and all of its clones; has no effect on the system's clock.
    pub fn set(&self, now: Duration) {
        if let Some(nanoseconds) = &self.0 {
            nanoseconds.store(now.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_clock_is_set_and_the_systems_clock_runs() {
        let simulated = Clock::simulated();
        let shared = simulated.clone();
        simulated.set(Duration::from_secs(7));
        assert_eq!(shared.now(), Duration::from_secs(7));
        let system = Clock::default();
        let before = system.now();
        system.set(Duration::from_secs(1 << 30));
        while system.now() == before {}
        assert!(system.now() < Duration::from_secs(1 << 30));
    }
}
