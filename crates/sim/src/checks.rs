// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checkers: properties that must hold whatever the network does.

use std::collections::{HashMap, HashSet};
use std::fmt;

/// Number of one direction of a connection, assigned by its sender and carried by every message.
pub type Stream = u32;

/// A violated property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A message was delivered twice or out of order, or was never sent.
    Order {
        /// Stream of the message.
        stream: Stream,
        /// Number of the expected message.
        expected: u32,
        /// Number of the delivered message.
        got: u32,
    },
    /// A message was delivered with other bytes than it was sent with.
    NotIntact,
    /// A message was acknowledged but not delivered.
    AcknowledgedUndelivered {
        /// Stream of the message.
        stream: Stream,
        /// Number of the message.
        message: u32,
    },
    /// A token was returned twice, out of order, or never.
    Token {
        /// Stream of the token.
        stream: Stream,
    },
    /// More messages were outstanding than the window allows.
    Window {
        /// Outstanding messages.
        outstanding: usize,
    },
    /// A station exceeded a bound on its memory.
    Memory {
        /// What is bounded.
        what: &'static str,
        /// Number held.
        held: usize,
    },
    /// A station sends frames without end.
    Livelock,
    /// Something did not end in time after the faults stopped.
    NoProgress {
        /// What did not end.
        what: &'static str,
    },
    /// One end reports an orderly end, but a message was not delivered.
    EndsDisagree {
        /// Stream of the message.
        stream: Stream,
    },
    /// A datagram was delivered twice, or was acknowledged but not delivered.
    Datagram {
        /// Number of the datagram.
        number: u32,
        /// How often it was delivered.
        deliveries: u32,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Violation {}

/// What was sent and delivered in the whole world, across restarts.
#[derive(Debug, Default)]
pub struct Checks {
    /// Messages delivered, by stream.
    delivered: HashMap<Stream, u32>,
    /// Tokens returned as acknowledged and as dropped, by stream.
    returned: HashMap<Stream, (u32, u32)>,
    /// Deliveries of each datagram, by its number and the receiver's incarnation.
    datagrams: HashMap<(u32, u32), u32>,
    arrived: HashSet<u32>,
    pub violation: Option<Violation>,
    /// Frames may be damaged with a valid FCS: payload and PDU fields can then be anything.
    has_undetected_corruption: bool,
}

impl Violation {
    /// Whether damaged PDUs can cause this.
    fn can_result_from_corruption(&self) -> bool {
        match self {
            Self::Order { .. }
            | Self::NotIntact
            | Self::AcknowledgedUndelivered { .. }
            | Self::EndsDisagree { .. }
            | Self::Datagram { .. } => true,
            Self::Token { .. }
            | Self::Window { .. }
            | Self::Memory { .. }
            | Self::Livelock
            | Self::NoProgress { .. } => false,
        }
    }
}

impl Checks {
    pub fn new(has_undetected_corruption: bool) -> Self {
        Self { has_undetected_corruption, ..Self::default() }
    }

    /// Records a violation. The first counts: later ones may be consequences.
    pub fn report(&mut self, violation: Violation) {
        if self.has_undetected_corruption && violation.can_result_from_corruption() {
            return;
        }
        self.violation.get_or_insert(violation);
    }

    pub fn require(&mut self, condition: bool, violation: Violation) {
        if !condition {
            self.report(violation);
        }
    }

    pub fn delivered(&mut self, stream: Stream, message: u32) {
        let expected = self.delivered.entry(stream).or_insert(0);
        if *expected == message {
            *expected += 1;
        } else {
            let expected = *expected;
            self.report(Violation::Order { stream, expected, got: message });
        }
    }

    pub fn acknowledged(&mut self, stream: Stream, message: u32) {
        let (acknowledged, dropped) = self.returned.entry(stream).or_default();
        let is_next = *dropped == 0 && *acknowledged == message;
        *acknowledged += 1;
        self.require(is_next, Violation::Token { stream });
        if self.delivered_count(stream) <= message {
            self.report(Violation::AcknowledgedUndelivered { stream, message });
        }
    }

    pub fn dropped(&mut self, stream: Stream, message: u32) {
        let (acknowledged, dropped) = self.returned.entry(stream).or_default();
        let is_next = *acknowledged + *dropped == message;
        *dropped += 1;
        self.require(is_next, Violation::Token { stream });
    }

    /// A sender's connection ended: every token must have been returned.
    pub fn stream_ended(&mut self, stream: Stream, queued: u32) {
        let (acknowledged, dropped) = self.returned.get(&stream).copied().unwrap_or_default();
        self.require(acknowledged + dropped == queued, Violation::Token { stream });
    }

    pub fn delivered_count(&self, stream: Stream) -> u32 {
        self.delivered.get(&stream).copied().unwrap_or(0)
    }

    /// `incarnation` is the receiver's: a restarted host may receive a datagram again.
    pub fn datagram_delivered(&mut self, number: u32, incarnation: u32) {
        self.arrived.insert(number);
        let deliveries = self.datagrams.entry((number, incarnation)).or_insert(0);
        *deliveries += 1;
        let deliveries = *deliveries;
        self.require(deliveries == 1, Violation::Datagram { number, deliveries });
    }

    pub fn datagram_acknowledged(&mut self, number: u32) {
        self.require(self.arrived.contains(&number), Violation::Datagram { number, deliveries: 0 });
    }
}

/// The bytes of a message: stream, number, total, and a checksum of all three.
pub fn message(stream: Stream, number: u32, total: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&stream.to_be_bytes());
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..12].copy_from_slice(&total.to_be_bytes());
    bytes[12..].copy_from_slice(&checksum(stream, number, total).to_be_bytes());
    bytes
}

/// Stream, number and total of a message; `None` if it is not intact.
pub fn parse(bytes: &[u8]) -> Option<(Stream, u32, u32)> {
    let bytes: &[u8; 16] = bytes.try_into().ok()?;
    let [stream, number, total, found] =
        [0, 4, 8, 12].map(|at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
    (checksum(stream, number, total) == found).then_some((stream, number, total))
}

fn checksum(stream: Stream, number: u32, total: u32) -> u32 {
    let mixed = u64::from(stream) << 32 | u64::from(number) ^ u64::from(total).rotate_left(17);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(steps: impl FnOnce(&mut Checks)) -> Option<Violation> {
        let mut checks = Checks::default();
        steps(&mut checks);
        checks.violation
    }

    #[test]
    fn each_checker_detects_its_violation() {
        let order = violation(|checks| [0, 1, 1].into_iter().for_each(|number| checks.delivered(7, number)));
        assert_eq!(order, Some(Violation::Order { stream: 7, expected: 2, got: 1 }));
        let lost = violation(|checks| checks.acknowledged(7, 0));
        assert_eq!(lost, Some(Violation::AcknowledgedUndelivered { stream: 7, message: 0 }));
        assert!(violation(|checks| checks.dropped(7, 1)).is_some());
        assert!(violation(|checks| checks.stream_ended(7, 1)).is_some());
        assert!(violation(|checks| checks.datagram_acknowledged(3)).is_some());
        let twice = violation(|checks| (0..2).for_each(|_| checks.datagram_delivered(3, 1)));
        assert_eq!(twice, Some(Violation::Datagram { number: 3, deliveries: 2 }));
        let mut bytes = message(1, 2, 3);
        assert_eq!(parse(&bytes), Some((1, 2, 3)));
        bytes[7] ^= 1;
        assert_eq!(parse(&bytes), None);
    }
}
