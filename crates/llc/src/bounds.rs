// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every bound of the engine, and why it is what it is. What a caller may choose is in
//! [`crate::config`]; its defaults and limits are here.

use core::time::Duration;

use crate::pdu::SequenceNumber;

/// Largest window k: one number must stay free, or a full window looks like an empty one (clause 7.8.4).
pub const WINDOW_MAX: u8 = SequenceNumber::MODULUS - 1;
/// Default k: 63 frames of 1500 bytes cover 10 Gb/s for 76 µs, about a round trip between two processes that
/// poll. Above 63 a number from the past, of a PDU that was overtaken or repeated, can be taken for one from
/// the future.
pub const WINDOW: u8 = SequenceNumber::MODULUS / 2 - 1;
/// Default capacity of a connection's send queue, in PDUs: two windows, so that the caller can refill one
/// while the other is under way.
pub const QUEUE: u16 = 128;
/// Largest send queue: a caller with more to send keeps it.
pub const QUEUE_MAX: u16 = 4096;
/// Default N2. With the doubling of T1 from 200 µs to 1 s a dead peer is reported after about 9 s, while
/// one that merely computes for some seconds without looking at its queue is not.
pub const RETRIES: u8 = 20;

/// Polls, T1 apart and that doubling, that go unanswered before a SABME in the midst of data is taken for a reset: 31 times
/// T1, which before the first measurement is 0.6 s, more than most networks hold a frame for.
pub const DOUBTING_POLLS: u8 = 5;

/// Default bounds of T1. Below 200 µs the scheduling of the peer's process looks like loss; above a second
/// nobody waits.
pub const T1_MIN: Duration = Duration::from_micros(200);
/// See [`T1_MIN`].
pub const T1_MAX: Duration = Duration::from_secs(1);
/// The most that T1 is held to because a peer was late: programs that compute answer in between. A frame that is lost
/// meanwhile, and that no later one shows to be missing, costs as much.
pub const T1_LEAST_MAX: Duration = Duration::from_millis(10);
/// Default T1 before the first measurement: a peer in a virtual machine answers its first SABME within this.
pub const T1_INITIAL: Duration = Duration::from_millis(20);

/// Default number of I PDUs that one acknowledgement covers: a quarter of the window, so that the sender
/// never stands still for want of one.
pub const ACKNOWLEDGE_EVERY: u8 = 16;
/// Default longest wait of an acknowledgement for an I PDU to ride on. A quarter of the smallest T1: it
/// must never cause a retransmission.
pub const ACKNOWLEDGE_DELAY: Duration = Duration::from_micros(50);

/// Default time between two polls of a busy peer.
pub const BUSY_POLL: Duration = Duration::from_millis(10);
/// Default time for which data may wait without any of it being acknowledged, whatever the peer says.
pub const STALL_LIMIT: Duration = Duration::from_secs(60);
/// Default silence after which the peer is asked whether it lives.
pub const INACTIVITY: Duration = Duration::from_secs(10);
/// Default number of acknowledged PDUs after which a window shrunk by loss grows by one. Every PDU under way behind a
/// lost one is sent again, so where loss is frequent the window stays small (measured, `docs/performance.md`).
pub const GROW_AFTER: u16 = 32;
/// Halving stops here: with a lost PDU at least three more are under way, so that one of them shows the loss before
/// T1 has to.
pub const HALVED_WINDOW_MIN: u8 = 4;
/// Default longest information field, in bytes: more than any jumbo frame carries.
pub const INFORMATION_MAX: u16 = 16_384;

/// The longest that a gap is given to close by itself, where PDUs were seen to overtake others: more than equal-cost paths
/// differ by, and less than a loss costs that only T1 shows.
pub const REORDERING_MAX: Duration = Duration::from_millis(1);

/// An N(R) up to this far behind the last one came with a PDU that was overtaken; further away it is
/// invalid and answered with FRMR. One frame that acknowledges a whole window may overtake another.
pub const STALE_NR_MAX: u8 = SequenceNumber::MODULUS - WINDOW - 1;

/// Default number of connections of one station: four service access points with a thousand each.
pub const CONNECTIONS: u16 = 4096;
/// Connections are numbered by 16 bits, and one number means "none".
pub const CONNECTIONS_MAX: u16 = u16::MAX - 1;
/// Default number of connections that peers opened and the user has neither accepted nor refused: bounds
/// what a flood of SABME costs.
pub const BACKLOG: u16 = 128;

/// Type 3: default number of repetitions (N4) and time between them.
pub const DATAGRAM_RETRIES: u8 = 8;
/// Acknowledged at once by a station that polls, within a time slice by one that does not.
pub const DATAGRAM_TIMEOUT: Duration = Duration::from_millis(1);
/// Type 3: datagrams under way at once; one for each pair of service access points.
pub const DATAGRAMS_UNDER_WAY: u16 = 64;
/// Type 3: stations whose sequence bit is remembered, at each side.
pub const DATAGRAM_PEERS: u16 = 1024;
/// Type 3: default time for which a receiver remembers a sequence bit. Longer than a sender repeats, and than the network
/// and pauses of both hosts delay a repetition.
pub const DATAGRAM_MEMORY: Duration = Duration::from_millis(100);

/// How often, and how long apart, the station asks whether somebody else has its address.
pub const ADDRESS_CHECKS: u8 = 2;
/// See [`ADDRESS_CHECKS`]: a LAN answers within this.
pub const ADDRESS_CHECK_INTERVAL: Duration = Duration::from_millis(100);

const _: () = {
    assert!(WINDOW >= HALVED_WINDOW_MIN && WINDOW <= WINDOW_MAX);
    assert!(QUEUE >= WINDOW as u16 && QUEUE <= QUEUE_MAX && QUEUE.is_power_of_two() && QUEUE_MAX.is_power_of_two());
    assert!(ACKNOWLEDGE_EVERY <= WINDOW / 2 && 2 * WINDOW < SequenceNumber::MODULUS);
    assert!(ACKNOWLEDGE_DELAY.as_nanos() * 4 <= T1_MIN.as_nanos());
    assert!(T1_MIN.as_nanos() <= T1_LEAST_MAX.as_nanos() && T1_LEAST_MAX.as_nanos() <= T1_MAX.as_nanos());
    assert!(T1_MIN.as_nanos() <= T1_INITIAL.as_nanos() && T1_INITIAL.as_nanos() <= T1_MAX.as_nanos());
    assert!(STALE_NR_MAX >= WINDOW && STALE_NR_MAX < SequenceNumber::MODULUS - WINDOW);
    assert!(BACKLOG <= CONNECTIONS && CONNECTIONS <= CONNECTIONS_MAX);
    assert!(DATAGRAM_TIMEOUT.as_nanos() * (DATAGRAM_RETRIES as u128 + 1) < DATAGRAM_MEMORY.as_nanos());
    assert!(STALL_LIMIT.as_nanos() > T1_MAX.as_nanos() && BUSY_POLL.as_nanos() >= T1_MIN.as_nanos());
};
