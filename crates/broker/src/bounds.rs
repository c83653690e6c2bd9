// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the broker bears, each bound with why this value.

use std::time::Duration;

/// Connections in all: several per core of a large machine, and two descriptors each stay within usual limits.
pub const CONNECTIONS: usize = 1024;
/// Of one user whom the policy names: there are no more service access points on an interface than 126.
pub const CONNECTIONS_OF_USER: usize = 256;
/// Of all users together whom the policy does not name: enough to tell each of them no.
pub const CONNECTIONS_OF_STRANGERS: usize = 64;
/// Connections accepted in one turn of the loop: a flood fills the listener's queue as fast as it is emptied, and signals
/// and requests wait meanwhile. So many take some milliseconds, less than a grant; 64 would empty a queue of 4096 too
/// slowly where each turn has a grant as well (tests/test_broker_flood.py).
pub const ACCEPTED_AT_ONCE: usize = 1024;
/// Descriptors of a connection: itself, its process, its socket, its claim, and the spare that comes in its socket's place.
pub const DESCRIPTORS_OF_CONNECTION: usize = 5;
/// Descriptors for all else: standard streams, listener, signals, audit log, files in the making.
pub const DESCRIPTORS_OF_OURS: usize = 32;
/// A connection that asks nothing for so long is closed: asking takes a client microseconds.
pub const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// How long a process may live on whose connection has ended, before its socket counts as closed or given on: closing a
/// socket takes milliseconds.
pub const ENDING_PATIENCE: Duration = Duration::from_millis(100);
/// Descriptors in one message; the kernel takes 253.
pub const BEQUEATHED_AT_ONCE: usize = 250;
/// How often it is looked whether a socket without a connection is still open somewhere.
pub const LOOK: Duration = Duration::from_millis(250);
/// Pause after a failed accept (no descriptors left), so that it does not become a loop.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Refusals per second that the audit log gets line by line, of each user whom the policy names, and of all others
/// together, since one person can have thousands of user numbers (subuid(5)). The rest are counted.
pub const REFUSALS_LOGGED: u32 = 20;

const _: () = assert!(CONNECTIONS_OF_USER + CONNECTIONS_OF_STRANGERS < CONNECTIONS);
