// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds, each with its reason.

use std::time::Duration;

/// Maximum length of a listener's name in bytes: an abstract Unix address has room for 107, including the random suffix
/// that is appended when another user holds the name.
pub const NAME_BYTES_MAX: usize = 90;
/// Maximum length in bytes of an initiator's hello, which identifies it by a few numbers.
pub const HELLO_BYTES_MAX: usize = 64;
/// Maximum size of a ring in bytes: an initiator decides how much memory the listener's process maps.
pub const RING_BYTES_MAX: usize = 16 << 20;
/// Alignment in bytes of messages and indices, which never share a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// The receiver acknowledges a ring in this many steps: each costs a fence and the transfer of a cache line.
pub(crate) const STEPS_PER_RING: usize = 8;
/// The largest message is this fraction of a ring, so that one can be written while another is read.
pub(crate) const MESSAGES_PER_RING: usize = 4;
/// Maximum number of pending initiators, connected but without a hello: more than the processes of one host that start
/// at once have between two system calls; each costs a descriptor.
pub(crate) const PENDING_MAX: usize = 64;
/// How long an initiator may stay pending: its hello follows its connection immediately, unless it is descheduled.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum number of bytes released at a time: it takes a system call, and later messages allocate the pages again.
pub(crate) const RELEASED_MIN: u64 = 16 << 10;
/// Wake-up bytes drained at a time: unless the other end is faulty, at most one for each direction is queued.
pub(crate) const WAKES_MAX: usize = 16;

// A lent message, data that is not acknowledged yet, and the largest message fit a ring together: a sender never waits
// for room that is free but not acknowledged.
const _: () = assert!(
    2 * STEPS_PER_RING + MESSAGES_PER_RING < MESSAGES_PER_RING * STEPS_PER_RING,
    "2 / MESSAGES_PER_RING + 1 / STEPS_PER_RING < 1"
);
