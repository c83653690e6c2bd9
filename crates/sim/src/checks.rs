// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checkers: what must hold whatever the network does.

use std::collections::{HashMap, HashSet};
use std::fmt;

/// One direction of one connection as its sender saw it: every message carries it.
pub type Stream = u32;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A message came again, too early, or never was sent.
    Order {
        /// Of which stream.
        stream: Stream,
        /// The message that was due.
        expected: u32,
        /// The one that came.
        got: u32,
    },
    /// A message came with other bytes than it was sent with.
    NotIntact,
    /// A message was acknowledged that was not delivered.
    AcknowledgedUndelivered {
        /// Of which stream.
        stream: Stream,
        /// Which.
        message: u32,
    },
    /// A token came back twice, in a wrong order, or never.
    Token {
        /// Of which stream.
        stream: Stream,
    },
    /// More was under way than the window admits.
    Window {
        /// How much.
        outstanding: usize,
    },
    /// A station held more than it may.
    Memory {
        /// What.
        what: &'static str,
        /// How much.
        held: usize,
    },
    /// An end without an end: a station never falls silent.
    Endless,
    /// After the faults stopped, something was not over in time.
    NoProgress {
        /// What.
        what: &'static str,
    },
    /// One end says that all was well, but the other lacks data.
    EndsDisagree {
        /// Of which stream.
        stream: Stream,
    },
    /// A datagram came twice, or was acknowledged but not delivered.
    Datagram {
        /// Which.
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

/// What was sent and what arrived, in the whole world and over all restarts.
#[derive(Debug, Default)]
pub struct Checks {
    /// Messages delivered, of each stream.
    delivered: HashMap<Stream, u32>,
    /// Tokens that came back as acknowledged, and as dropped.
    returned: HashMap<Stream, (u32, u32)>,
    /// Deliveries of each datagram, by number and by who got it.
    datagrams: HashMap<(u32, u32), u32>,
    arrived: HashSet<u32>,
    pub violation: Option<Violation>,
    /// Frames come damaged with a right check sequence: then payload, and what PDUs say, can be anything.
    has_garbage: bool,
}

impl Violation {
    /// Whether garbage that looks like PDUs can be the cause.
    fn may_come_from_garbage(&self) -> bool {
        match self {
            Self::Order { .. }
            | Self::NotIntact
            | Self::AcknowledgedUndelivered { .. }
            | Self::EndsDisagree { .. }
            | Self::Datagram { .. } => true,
            Self::Token { .. }
            | Self::Window { .. }
            | Self::Memory { .. }
            | Self::Endless
            | Self::NoProgress { .. } => false,
        }
    }
}

impl Checks {
    pub fn new(has_garbage: bool) -> Self {
        Self { has_garbage, ..Self::default() }
    }

    /// The first violation counts: what follows is its consequence.
    pub fn report(&mut self, violation: Violation) {
        if self.has_garbage && violation.may_come_from_garbage() {
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
        if self.delivered_of(stream) <= message {
            self.report(Violation::AcknowledgedUndelivered { stream, message });
        }
    }

    pub fn dropped(&mut self, stream: Stream, message: u32) {
        let (acknowledged, dropped) = self.returned.entry(stream).or_default();
        let is_next = *acknowledged + *dropped == message;
        *dropped += 1;
        self.require(is_next, Violation::Token { stream });
    }

    /// A sender's connection is over: every token must have come back.
    pub fn stream_over(&mut self, stream: Stream, queued: u32) {
        let (acknowledged, dropped) = self.returned.get(&stream).copied().unwrap_or_default();
        self.require(acknowledged + dropped == queued, Violation::Token { stream });
    }

    pub fn delivered_of(&self, stream: Stream) -> u32 {
        self.delivered.get(&stream).copied().unwrap_or(0)
    }

    /// `by` whom: a host that restarted may get again what it got before.
    pub fn datagram_delivered(&mut self, number: u32, by: u32) {
        self.arrived.insert(number);
        let deliveries = self.datagrams.entry((number, by)).or_insert(0);
        *deliveries += 1;
        let deliveries = *deliveries;
        self.require(deliveries == 1, Violation::Datagram { number, deliveries });
    }

    pub fn datagram_acknowledged(&mut self, number: u32) {
        self.require(self.arrived.contains(&number), Violation::Datagram { number, deliveries: 0 });
    }
}

/// The bytes of a message: stream, number, how many there are, and a mark over all three.
pub fn message(stream: Stream, number: u32, total: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&stream.to_be_bytes());
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..12].copy_from_slice(&total.to_be_bytes());
    bytes[12..].copy_from_slice(&mark(stream, number, total).to_be_bytes());
    bytes
}

/// Stream, number and total of a message; `None` if it is not intact.
pub fn parse(bytes: &[u8]) -> Option<(Stream, u32, u32)> {
    let bytes: &[u8; 16] = bytes.try_into().ok()?;
    let [stream, number, total, found] =
        [0, 4, 8, 12].map(|at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
    (mark(stream, number, total) == found).then_some((stream, number, total))
}

fn mark(stream: Stream, number: u32, total: u32) -> u32 {
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
    fn each_checker_fails_when_it_must() {
        let order = violation(|checks| [0, 1, 1].into_iter().for_each(|number| checks.delivered(7, number)));
        assert_eq!(order, Some(Violation::Order { stream: 7, expected: 2, got: 1 }));
        let lost = violation(|checks| checks.acknowledged(7, 0));
        assert_eq!(lost, Some(Violation::AcknowledgedUndelivered { stream: 7, message: 0 }));
        assert!(violation(|checks| checks.dropped(7, 1)).is_some());
        assert!(violation(|checks| checks.stream_over(7, 1)).is_some());
        assert!(violation(|checks| checks.datagram_acknowledged(3)).is_some());
        let twice = violation(|checks| (0..2).for_each(|_| checks.datagram_delivered(3, 1)));
        assert_eq!(twice, Some(Violation::Datagram { number: 3, deliveries: 2 }));
        let mut bytes = message(1, 2, 3);
        assert_eq!(parse(&bytes), Some((1, 2, 3)));
        bytes[7] ^= 1;
        assert_eq!(parse(&bytes), None);
    }
}
