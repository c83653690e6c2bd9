// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of name resolution, with their reasons.

use std::time::Duration;

/// Longest host name in Linux (HOST_NAME_MAX).
pub const NAME_BYTES_MAX: usize = 64;
/// Longest interface name in Linux (IFNAMSIZ without the terminating zero).
pub const INTERFACE_BYTES_MAX: usize = 15;

/// Number of queries in a census. A query or its answer may be lost or find a full ring, but hardly three in a row.
pub const QUERIES: u32 = 3;
/// Intervals of a census: each query, also the last, has a quarter of the time for its answers.
pub const QUERY_INTERVALS: u32 = QUERIES + 1;
/// Timeout for the lookup of one name: a LAN answers within a millisecond, a busy host within some scheduler periods.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_millis(600);
/// How long to wait for further answers to a name, also from hosts that are not scheduled at once.
pub const CONTRADICTION: Duration = Duration::from_millis(50);

/// Capacity of a census in stations; further ones are only counted. Segments are divided long before this size.
pub const STATIONS_MAX: usize = 4096;

/// Largest number of answers of a host per [`ANSWERS_WINDOW`]: 1000 hosts may query it at once, and a flood of
/// queries costs it at most some milliseconds per second.
pub const ANSWERS_MAX: u32 = 1000;
/// Window of [`ANSWERS_MAX`].
pub const ANSWERS_WINDOW: Duration = Duration::from_secs(1);

const _: () = {
    assert!(NAME_BYTES_MAX <= u8::MAX as usize);
    assert!(CONTRADICTION.as_nanos() * 2 < LOOKUP_TIMEOUT.as_nanos() / QUERY_INTERVALS as u128);
};
