// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link's clock in the engine's unit.

use barewire_link::Clock;
use barewire_llc::Instant;

/// The link's current time.
#[inline]
pub(crate) fn now(clock: &Clock) -> Instant {
    let now = clock.now();
    // `as_nanos` would compute in 128 bits.
    Instant::from_nanos(now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos()))
}
