// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timestamps supplied by the caller; the engine has no clock.

use core::time::Duration;

/// A timestamp of the caller's monotonic clock, in nanoseconds since an arbitrary origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Later than any other timestamp: the deadline of a stopped timer.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The timestamp `nanoseconds` after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds since `earlier`, saturating at 0.
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The timestamp `nanoseconds` later, saturating below [`NEVER`](Self::NEVER).
    pub(crate) const fn after(self, nanoseconds: u64) -> Self {
        let sum = self.0.saturating_add(nanoseconds);
        Self(if sum == u64::MAX { u64::MAX - 1 } else { sum })
    }

    /// `None` if this is [`NEVER`](Self::NEVER).
    pub(crate) const fn if_set(self) -> Option<Self> {
        if self.0 == u64::MAX { None } else { Some(self) }
    }
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        self.after(nanos(later))
    }
}

/// A duration in nanoseconds, saturating.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
