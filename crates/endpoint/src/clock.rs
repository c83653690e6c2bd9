// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time in the engine's unit.

use barewire_link::Clock;
use barewire_llc::Instant;

/// What the link's clock says.
#[inline]
pub(crate) fn now(clock: &Clock) -> Instant {
    let now = clock.now();
    // Not `as_nanos`, which is 128 bits wide.
    Instant::from_nanos(now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos()))
}
