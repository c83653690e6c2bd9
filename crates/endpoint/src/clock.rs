// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one clock of an endpoint, in the engine's unit.

use std::sync::LazyLock;

use barewire_llc::Instant;

static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// The time since the first call in this process.
#[inline]
pub(crate) fn now() -> Instant {
    let elapsed = ORIGIN.elapsed();
    // Not `as_nanos`, which is 128 bits wide.
    Instant::from_nanos(elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()))
}
