// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds, each with why this value.

use std::time::Duration;

/// Bytes of a listener's name: an abstract Unix address takes 107, and there are digits behind where another user has
/// it.
pub const NAME_BYTES_MAX: usize = 90;
/// Bytes of what an initiator says: who it is and what it wants to talk to, in a few numbers.
pub const HELLO_BYTES_MAX: usize = 64;
/// Bytes of a ring: an initiator decides how much memory the listener's process maps, so there must be an end.
pub const RING_BYTES_MAX: usize = 16 << 20;
/// Bytes that no two messages share, nor a message and an index: a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// A ring is told free in so many steps: each costs a fence and the transfer of a line.
pub(crate) const STEPS: usize = 8;
/// The largest message is this part of a ring, so that one can be written while another is read.
pub(crate) const MESSAGES: usize = 4;
/// Initiators half-way in: connected, and nothing said yet. More than processes of one host that start at once do
/// between two system calls of theirs; each costs a descriptor.
pub(crate) const HALFWAY_MAX: usize = 64;
/// How long an initiator may stay half-way in: its hello follows its connection at once, unless it has lost its core.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// A ring's memory is not given back for less: it is a system call, and the next messages ask for the pages again.
pub(crate) const RELEASED_MIN: u64 = 16 << 10;
/// Bytes taken off the socket at once; the other end has at most one for each way under way unless it is broken.
pub(crate) const WAKES_MAX: usize = 16;

// A message lent, what the receiver has not told yet, and the largest message fit a ring together: a sender never waits
// for room that only the receiver knows of.
const _: () = assert!(2 * STEPS + MESSAGES < MESSAGES * STEPS, "2 / MESSAGES + 1 / STEPS < 1");
