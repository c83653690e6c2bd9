// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of the broker, with their reasons.

use std::time::Duration;

/// Total number of connections: several per core of a large machine.
pub const CONNECTIONS: usize = 1024;
/// Connections of a user that the policy names: an interface has at most 126 service access points.
pub const CONNECTIONS_OF_USER: usize = 256;
/// Connections of all other users together: enough to refuse each of them.
pub const CONNECTIONS_OF_UNLISTED_USERS: usize = 64;
/// Connections accepted per iteration of the loop: signals and requests wait meanwhile, and a flood fills the
/// listener's queue as fast as it is emptied. This many take some milliseconds, less than a grant; 64 would empty a
/// queue of 4096 too slowly if each iteration also makes a grant (tests/test_broker_flood.py).
pub const ACCEPTS_PER_ITERATION: usize = 1024;
/// Descriptors per connection: connection, pidfd, packet socket, claim, and the spare that replaces the packet socket.
pub const DESCRIPTORS_OF_CONNECTION: usize = 5;
/// Descriptors for everything else: standard streams, listener, signals, audit log, temporary files.
pub const DESCRIPTORS_RESERVED: usize = 32;
/// A connection without a request is closed after this time: a client needs microseconds to send it.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the exit of a process whose connection has ended, before checking whether its socket is closed:
/// closing a socket takes milliseconds.
pub const EXIT_TIMEOUT: Duration = Duration::from_millis(100);
/// Descriptors in one message; the kernel takes 253.
pub const SOCKETS_PER_MESSAGE: usize = 250;
/// Interval of checks whether sockets without a connection are still open.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// Pause after a failed accept (no descriptors left), to avoid a busy loop.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Refusals logged per second for each user that the policy names, and for all others together, since one person can
/// have thousands of user IDs (subuid(5)). Further ones are only counted.
pub const REFUSALS_LOGGED: u32 = 20;

const _: () = assert!(CONNECTIONS_OF_USER + CONNECTIONS_OF_UNLISTED_USERS < CONNECTIONS);
