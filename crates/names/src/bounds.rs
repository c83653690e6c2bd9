// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every bound of names, and why it is what it is.

use std::time::Duration;

/// Longest name: Linux gives a host no longer one (HOST_NAME_MAX).
pub const NAME_BYTES_MAX: usize = 64;
/// Longest name of an interface in Linux (IFNAMSIZ without its closing zero).
pub const INTERFACE_BYTES_MAX: usize = 15;

/// Queries of one census. A query or its answer may be lost, or find a ring full; three in a row are not.
pub const QUERIES: u32 = 3;
/// The last query leaves its answers a quarter of the time or more, as does each before it.
pub const QUERIES_PER_PATIENCE: u32 = QUERIES + 1;
/// Time to look for one name: a LAN answers within a millisecond, a busy host within some scheduler periods.
pub const PATIENCE: Duration = Duration::from_millis(600);
/// How long a name that was answered may still be contradicted: also by a host that was just not scheduled.
pub const CONTRADICTION: Duration = Duration::from_millis(50);

/// Stations that one census holds; more are counted. A segment with more is divided long before.
pub const STATIONS_MAX: usize = 4096;

/// Answers that one host gives in any [`ANSWERS_WINDOW`]: 1000 hosts may ask for it at once, and a flood of
/// queries costs it no more than some milliseconds in a second.
pub const ANSWERS_MAX: u32 = 1000;
/// See [`ANSWERS_MAX`].
pub const ANSWERS_WINDOW: Duration = Duration::from_secs(1);

const _: () = {
    assert!(NAME_BYTES_MAX <= u8::MAX as usize);
    assert!(CONTRADICTION.as_nanos() * 2 < PATIENCE.as_nanos() / QUERIES_PER_PATIENCE as u128);
};
