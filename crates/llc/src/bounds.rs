// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All bounds of the engine with their reasons, and the defaults and limits of [`StationConfig`](crate::StationConfig)
//! and [`ConnectionConfig`](crate::ConnectionConfig).

use core::time::Duration;

use crate::pdu::SequenceNumber;

/// Largest window k. One number must stay free, or a full window is indistinguishable from an empty one (clause 7.8.4).
pub const WINDOW_MAX: u8 = SequenceNumber::MODULUS - 1;
/// Default k: 63 frames of 1500 bytes take 76 µs at 10 Gb/s, about a round trip between two polling processes.
/// Above 63 the number of a stale PDU, reordered or duplicated, can be mistaken for a new one.
pub const WINDOW: u8 = SequenceNumber::MODULUS / 2 - 1;
/// Default capacity of a connection's send queue, in PDUs: two windows, so that the caller can refill one
/// while the other is in flight.
pub const QUEUE: u16 = 128;
/// Largest send queue; a caller with more data queues it itself.
pub const QUEUE_MAX: u16 = 4096;
/// Default N2. T1 doubles from 200 µs to 1 s, so a dead peer is reported after about 9 s, but not a process that
/// computes for some seconds without polling.
pub const RETRIES: u8 = 20;

/// Number of unanswered polls after which a SABME received during data transfer is treated as a reset. T1 doubles after
/// each: 31 T1 in all, 0.6 s before the first measurement, longer than most networks delay a frame.
pub const VERIFICATION_POLLS: u8 = 5;

/// Default bounds of T1. Below 200 µs scheduling delays of the peer's process look like loss; above one second
/// recovery is uselessly slow.
pub const T1_MIN: Duration = Duration::from_micros(200);
/// See [`T1_MIN`].
pub const T1_MAX: Duration = Duration::from_secs(1);
/// Upper bound of the T1 floor, which spurious timeouts raise because a computing peer answers late. The recovery of a
/// tail loss is delayed as much.
pub const T1_FLOOR_MAX: Duration = Duration::from_millis(10);
/// Default T1 before the first measurement: a peer in a virtual machine answers its first SABME within this.
pub const T1_INITIAL: Duration = Duration::from_millis(20);

/// Default number of I PDUs per acknowledgement: half of the window, so that the sender can fill one half while the
/// other is acknowledged. Each acknowledgement costs the receiver a system call (2 µs where a message of 32 KiB takes
/// 10, measured, `docs/performance.md`).
pub const ACKNOWLEDGE_EVERY: u8 = WINDOW / 2;
/// Default limit of the acknowledgement delay, during which an I PDU may piggyback it. A quarter of the smallest T1:
/// the delay must never cause a retransmission.
pub const ACKNOWLEDGE_DELAY: Duration = Duration::from_micros(50);

/// Default time between two polls of a busy peer.
pub const BUSY_POLL: Duration = Duration::from_millis(10);
/// Default time for which unacknowledged data may make no progress, even if the peer answers.
pub const STALL_LIMIT: Duration = Duration::from_secs(60);
/// Default time without a PDU from the peer after which it is polled.
pub const INACTIVITY: Duration = Duration::from_secs(10);
/// Default number of acknowledged PDUs after which a window shrunk by loss grows by one. Every PDU in flight behind a
/// lost one is retransmitted, so the window must stay small where loss is frequent (measured, `docs/performance.md`).
pub const GROW_AFTER: u16 = 32;
/// Lower bound of halving: at least three more PDUs are in flight with a lost one, so that one of them reveals the loss
/// before T1 expires.
pub const HALVED_WINDOW_MIN: u8 = 4;
/// Default longest information field, in bytes: more than any jumbo frame carries.
pub const INFORMATION_MAX: u16 = 16_384;

/// Longest wait for a gap to close by itself on a network that reorders: more than the delay difference of equal-cost
/// paths, less than a recovery by T1.
pub const REORDERING_MAX: Duration = Duration::from_millis(1);

/// Largest number of labels: as many equal-cost paths as a fat-tree of switches with 16 ports has; more would be sent
/// too few PDUs each to tell anything of them.
pub const LABELS_MAX: u8 = 64;

/// More PDUs queued than this are a burst, which is sent with all labels in turns.
pub const BURST_PDUS: u32 = 4;

/// A repeated poll, and the answer to one, leave with so many labels at once: paths there and back may be dead, and
/// trying pairs of them one after the other would take many times T1.
pub const POLL_LABELS: u8 = 4;

/// Polls at most before T1 doubles, where each leaves with other labels.
pub const PROMPT_POLLS_MAX: u8 = 16;

/// Longest rest of a label whose PDUs are lost: a repaired cable is used again after it, and a retransmission a second
/// costs nothing.
pub const LOST_LABEL_REST_MAX: Duration = Duration::from_secs(1);

/// An N(R) at most this far behind V(A) is stale: its PDU was reordered. Farther behind it is invalid and answered with
/// FRMR. A frame that acknowledges a whole window may overtake another.
pub const STALE_NR_MAX: u8 = SequenceNumber::MODULUS - WINDOW - 1;

/// Default number of connections of a station: four service access points with a thousand each.
pub const CONNECTIONS: u16 = 4096;
/// Slots are 16-bit numbers, one of which means "none".
pub const CONNECTIONS_MAX: u16 = u16::MAX - 1;
/// Default number of incoming connections that the user has neither accepted nor refused: bounds the cost of a SABME
/// flood.
pub const BACKLOG: u16 = 128;

/// Type 3: default number of retransmissions (N4).
pub const DATAGRAM_RETRIES: u8 = 8;
/// Type 3: default retransmission interval. A polling station acknowledges at once, any other within a time slice.
pub const DATAGRAM_TIMEOUT: Duration = Duration::from_millis(1);
/// Type 3: peers whose sequence bit is kept, on each side.
pub const DATAGRAM_PEERS: u16 = 1024;
/// Type 3: default time for which a receiver keeps a sequence bit. Longer than a sender retransmits, plus the delay of
/// a retransmission in the network and by pauses of both hosts.
pub const DATAGRAM_MEMORY: Duration = Duration::from_millis(100);

const _: () = {
    assert!(WINDOW >= HALVED_WINDOW_MIN && WINDOW <= WINDOW_MAX);
    assert!(QUEUE >= WINDOW as u16 && QUEUE <= QUEUE_MAX && QUEUE.is_power_of_two() && QUEUE_MAX.is_power_of_two());
    assert!(ACKNOWLEDGE_EVERY <= WINDOW / 2 && 2 * WINDOW < SequenceNumber::MODULUS);
    assert!(ACKNOWLEDGE_DELAY.as_nanos() * 4 <= T1_MIN.as_nanos());
    assert!(T1_MIN.as_nanos() <= T1_FLOOR_MAX.as_nanos() && T1_FLOOR_MAX.as_nanos() <= T1_MAX.as_nanos());
    assert!(T1_MIN.as_nanos() <= T1_INITIAL.as_nanos() && T1_INITIAL.as_nanos() <= T1_MAX.as_nanos());
    assert!(STALE_NR_MAX >= WINDOW && STALE_NR_MAX < SequenceNumber::MODULUS - WINDOW);
    assert!(BACKLOG <= CONNECTIONS && CONNECTIONS <= CONNECTIONS_MAX);
    assert!(DATAGRAM_TIMEOUT.as_nanos() * (DATAGRAM_RETRIES as u128 + 1) < DATAGRAM_MEMORY.as_nanos());
    assert!(STALL_LIMIT.as_nanos() > T1_MAX.as_nanos() && BUSY_POLL.as_nanos() >= T1_MIN.as_nanos());
};
