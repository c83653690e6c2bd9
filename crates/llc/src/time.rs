// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time as the caller tells it: the engine has no clock.

use core::time::Duration;

/// A moment on the caller's monotonic clock, in nanoseconds since any origin the caller likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Later than every moment that comes: the deadline of a timer that does not run.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The moment `nanoseconds` after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds since `earlier`; 0 if that is not in the past.
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `nanoseconds` later. Stops short of the one that means "never".
    pub(crate) const fn after(self, nanoseconds: u64) -> Self {
        let sum = self.0.saturating_add(nanoseconds);
        Self(if sum == u64::MAX { u64::MAX - 1 } else { sum })
    }

    /// `None` for a timer that does not run.
    pub(crate) const fn if_ever(self) -> Option<Self> {
        if self.0 == u64::MAX { None } else { Some(self) }
    }
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        self.after(nanos(later))
    }
}

/// A duration in nanoseconds; what does not fit becomes the longest one.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
