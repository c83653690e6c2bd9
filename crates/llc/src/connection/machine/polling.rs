// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Polls: which one a response answers, and what its round trip tells.

use super::Machine;
use crate::extension::{self, Extension};
use crate::pdu::{Body, Pdu};
use crate::time::Instant;

impl Machine {
    /// Records a poll, and returns its number. `ns`: N(S) of an I PDU.
    pub(super) fn poll_sent(&mut self, ns: Option<u16>, now: Instant) -> u16 {
        if self.parameters.is_extended {
            let order = (self.counters.information_sent as u32).wrapping_add(1);
            let label = self.spray.as_ref().and_then(|spray| spray.current());
            self.numbered_polls.sent(ns, order, label, now)
        } else {
            self.polls.sent(now);
            0
        }
    }

    /// Whether a response with F = 1 answers the outstanding poll. Measures the round trip if so.
    pub(super) fn answers_poll(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> bool {
        let is_complete = match pdu.body {
            Body::S { .. } | Body::I { .. } => self.ahead_of(extension.nr, self.sent.wrapping_sub(self.base)) == 0,
            _ => return self.p_flag,
        };
        if self.parameters.is_extended {
            return self.answers_numbered_poll(extension.poll, is_complete, now);
        }
        if self.polls.take_late(is_complete, now) {
            // No poll was lost: the peer was late, and the later polls were needless.
            self.round_trip.timeout_was_spurious(None, &self.parameters);
            return false;
        }
        if !self.p_flag {
            return false;
        }
        let is_unambiguous = self.polls.is_single_outstanding();
        let round_trip_ns = self.polls.answered(is_complete, self.round_trip.smoothed_ns(), now);
        // The poll was sent because T1 expired.
        if self.retry_count > 0 && is_complete && is_unambiguous {
            self.round_trip.timeout_was_spurious(round_trip_ns, &self.parameters);
        }
        if let Some(round_trip_ns) = round_trip_ns {
            self.round_trip.measure(round_trip_ns, &self.parameters);
        }
        true
    }

    /// As `answers_poll`, of a response that has the number of its poll.
    fn answers_numbered_poll(&mut self, number: u16, is_complete: bool, now: Instant) -> bool {
        let Some(answer) = self.numbered_polls.answered(number, now) else { return false };
        if let Some(round_trip_ns) = answer.round_trip_ns {
            self.round_trip.measure(round_trip_ns, &self.parameters);
        }
        if answer.is_late && self.spray.is_none() && number >= extension::FIRST_POLL {
            // It was not lost: the peer was late. With labels, it may be a copy. I PDUs do not poll after a timeout.
            self.round_trip.timeout_was_spurious(None, &self.parameters);
        }
        // What was retransmitted meanwhile is not lost because the answer to an earlier poll lacks it.
        if !self.p_flag || answer.is_late && !is_complete {
            return false;
        }
        // The poll was sent because T1 expired.
        if self.retry_count > 0 && is_complete && answer.is_first {
            self.round_trip.timeout_was_spurious(answer.round_trip_ns, &self.parameters);
        }
        self.numbered_polls.accept(answer);
        true
    }
}
