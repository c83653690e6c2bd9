// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers queries with this host's name.

use std::net::SocketAddr;

use barewire_llc::{Body, Destination, Instant, Mac, Pdu, Source};

use crate::bounds::{ANSWERS_MAX, ANSWERS_WINDOW};
use crate::ignored::Ignored;
use crate::name::Name;
use crate::wire::{Message, SAP, is_reachable_host};

/// Counters of a responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounters {
    /// Queries answered.
    pub answered: u64,
    /// Queries beyond the rate limit, not answered.
    pub refused: u64,
    /// PDUs that were not queries.
    pub ignored: Ignored,
}

/// Answers queries for this host's name on one segment.
pub struct Responder {
    name: Name,
    control: Option<SocketAddr>,
    window_began: Instant,
    in_window: u32,
    counters: ResponderCounters,
}

impl Responder {
    /// A responder for this name. Does not announce a control address that other hosts cannot reach.
    #[must_use]
    pub fn new(name: Name, control: Option<SocketAddr>) -> Self {
        Self {
            name,
            control: control.filter(|control| control.port() != 0 && is_reachable_host(control.ip())),
            window_began: Instant::default(),
            in_window: 0,
            counters: ResponderCounters::default(),
        }
    }

    /// Processes a received LLC PDU from `source`. Returns the LLC PDU that answers it, to the same station. An answer
    /// is never answered.
    pub fn handle_pdu(&mut self, source: Mac, llc: &[u8], now: Instant) -> Option<Vec<u8>> {
        let pdu = self.counters.ignored.pdu(source, llc)?;
        let (Destination::Individual(SAP), Source::Individual(SAP), Body::Ui { information }) =
            (pdu.destination, pdu.source, pdu.body)
        else {
            self.counters.ignored.unexpected += 1;
            return None;
        };
        let Message::Query { nonce, wanted } = self.counters.ignored.message(information)? else { return None };
        if wanted.is_some_and(|wanted| wanted != self.name) {
            return None;
        }
        if !self.may_answer(now) {
            self.counters.refused += 1;
            return None;
        }
        self.counters.answered += 1;
        let answer = Message::Answer { nonce, name: self.name.clone(), control: self.control }.encode();
        let pdu = Pdu { destination: SAP.into(), source: SAP.into(), body: Body::Ui { information: &answer } };
        Some([pdu.header().as_bytes(), &answer].concat())
    }

    /// The responder's counters.
    #[must_use]
    pub fn counters(&self) -> &ResponderCounters {
        &self.counters
    }

    fn may_answer(&mut self, now: Instant) -> bool {
        if now >= self.window_began + ANSWERS_WINDOW {
            (self.window_began, self.in_window) = (now, 0);
        }
        self.in_window += 1;
        self.in_window <= ANSWERS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];

    fn query(wanted: Option<&str>) -> Vec<u8> {
        let wanted = wanted.map(|name| name.parse().unwrap());
        [&[0xba, 0xba, 0x03], &Message::Query { nonce: 7, wanted }.encode()[..]].concat()
    }

    #[test]
    fn only_queries_for_all_or_this_name_are_answered() {
        let mut responder = Responder::new("h2".parse().unwrap(), None);
        let expected = Message::Answer { nonce: 7, name: "h2".parse().unwrap(), control: None };
        for (wanted, is_answered) in [(None, true), (Some("H2"), true), (Some("h3"), false)] {
            let answer = responder.handle_pdu(A, &query(wanted), Instant::default());
            assert_eq!(answer.is_some(), is_answered);
            let Some(answer) = answer else { continue };
            assert_eq!(answer[..3], [0xba, 0xba, 0x03]);
            assert_eq!(Message::decode(&answer[3..]).unwrap(), expected);
            assert_eq!(responder.handle_pdu(A, &answer, Instant::default()), None, "an answer was answered");
        }
        assert_eq!(responder.counters(), &ResponderCounters { answered: 2, ..ResponderCounters::default() });
    }

    #[test]
    fn unreachable_control_address_is_not_announced() {
        for (control, is_announced) in [("10.0.0.2:5288", true), ("127.0.0.1:5288", false), ("0.0.0.0:5288", false)] {
            let responder = Responder::new("h2".parse().unwrap(), Some(control.parse().unwrap()));
            assert_eq!(responder.control.is_some(), is_announced, "{control}");
        }
    }

    #[test]
    fn answers_are_rate_limited() {
        let mut responder = Responder::new("h2".parse().unwrap(), None);
        let mut answers = |ms: u64| {
            let now = Instant::from_nanos(ms * 1_000_000);
            (0..ANSWERS_MAX + 5).filter(|_| responder.handle_pdu(A, &query(None), now).is_some()).count()
        };
        assert_eq!((answers(1), answers(999), answers(1000)), (ANSWERS_MAX as usize, 0, ANSWERS_MAX as usize));
    }

    #[test]
    fn garbage_is_counted_and_not_answered() {
        let mut responder = Responder::new("h2".parse().unwrap(), None);
        let mut wrong_version = query(None);
        wrong_version[6] = 9;
        for (source, llc) in [
            (A, &[0xba, 0xba, 0x03, 1, 2][..]),
            (A, &wrong_version),
            (A, &[0xba]),
            (A, &[0xba, 0x20, 0x03]),
            (A, &[0xba, 0xba, 0xe3]),
            ([1, 0, 0, 0, 0, 1], &query(None)),
        ] {
            assert_eq!(responder.handle_pdu(source, llc, Instant::default()), None);
        }
        let counted: Vec<_> = responder.counters().ignored.iter().filter(|(_, count)| *count > 0).collect();
        let expected =
            [("too_short", 1), ("unknown_version", 1), ("not_llc", 1), ("unexpected", 2), ("group_source", 1)];
        assert_eq!(counted, expected);
    }
}
