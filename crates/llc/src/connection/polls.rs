// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Matching of final responses to polls, on connections without the extension. F = 1 does not say which poll it
//! answers. If the round-trip time exceeds T1, several polls are in flight and each is answered. PDUs sent after the
//! first of these answers must not be considered lost because the later answers, to older polls, do not acknowledge
//! them.

use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Polls {
    /// Number of polls sent since the last answer, and when the first and the last of them were sent.
    sent: u8,
    first: Instant,
    last: Instant,
    /// Number of answers to earlier polls that may still arrive, and until when.
    late: u8,
    late_until: Instant,
}

impl Polls {
    pub(crate) const NONE: Self =
        Self { sent: 0, first: Instant::NEVER, last: Instant::NEVER, late: 0, late_until: Instant::NEVER };

    /// Records the transmission of a PDU with P = 1.
    pub(crate) fn sent(&mut self, now: Instant) {
        if self.sent == 0 {
            self.first = now;
        }
        self.last = now;
        self.sent = self.sent.saturating_add(1);
    }

    /// Whether a response with F = 1 answers an earlier poll; consumes one expected late answer if so. `is_complete`:
    /// the response acknowledges all PDUs and so indicates no loss in either case.
    pub(crate) fn take_late(&mut self, is_complete: bool, now: Instant) -> bool {
        if self.late == 0 || self.late_until < now {
            self.late = 0;
            return false;
        }
        if self.sent != 0 && is_complete {
            return false;
        }
        self.late -= 1;
        true
    }

    /// Whether exactly one poll is outstanding and no late answer can be mistaken for its answer.
    pub(crate) fn is_single_outstanding(&self) -> bool {
        self.sent == 1 && self.late == 0
    }

    /// No answer is expected any more.
    pub(crate) fn clear(&mut self) {
        self.sent = 0;
    }

    /// Processes the answer to the outstanding polls. Returns the round-trip time in ns, `None` if it is unknown
    /// because the poll cannot be identified. `is_complete`: as above. `usual_ns`: the smoothed round-trip time.
    pub(crate) fn answered(&mut self, is_complete: bool, usual_ns: Option<u64>, now: Instant) -> Option<u64> {
        let polls = core::mem::take(&mut self.sent);
        // An answer that indicates loss within a usual round-trip time of the last poll answers that poll; the earlier
        // polls were lost. Otherwise assume that it answers the first poll: overestimate rather than underestimate.
        let is_prompt = usual_ns.is_some_and(|usual_ns| now.nanos_since(self.last) <= 2 * usual_ns);
        if polls > 1 && is_prompt && !is_complete {
            return None;
        }
        let round_trip_ns = now.nanos_since(self.first);
        let is_first = polls != 0 && self.late == 0;
        if polls > 1 {
            self.late = self.late.saturating_add(polls - 1);
            // The other answers are spaced as the polls were.
            self.late_until = now.after(round_trip_ns);
        }
        is_first.then_some(round_trip_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Option<u64> = Some(20);

    fn at(now_ns: u64) -> Instant {
        Instant::from_nanos(now_ns)
    }

    fn sent_at(times: &[u64]) -> Polls {
        let mut polls = Polls::NONE;
        times.iter().for_each(|time| polls.sent(at(*time)));
        polls
    }

    #[test]
    fn answer_to_a_single_poll_yields_the_round_trip() {
        let mut polls = sent_at(&[100]);
        assert!(!polls.take_late(false, at(130)));
        assert_eq!(polls.answered(false, USUAL, at(130)), Some(30));
        polls.sent(at(200));
        assert!(!polls.take_late(false, at(230)));
    }

    #[test]
    fn answers_to_several_polls_arrive_in_order() {
        let mut polls = sent_at(&[100, 300, 700]);
        assert!(!polls.take_late(false, at(1000)));
        assert_eq!(polls.answered(false, USUAL, at(1000)), Some(900));
        polls.sent(at(1150));
        assert!(polls.take_late(false, at(1200)), "answers the second poll");
        assert!(polls.take_late(false, at(1600)), "answers the third poll");
        assert!(!polls.take_late(false, at(1700)));
        assert_eq!(polls.answered(false, USUAL, at(1700)), Some(550));
    }

    #[test]
    fn complete_late_answer_is_accepted_without_measurement() {
        let mut polls = sent_at(&[100, 300]);
        polls.answered(true, USUAL, at(1000));
        polls.sent(at(1150));
        assert!(!polls.take_late(true, at(1200)));
        assert_eq!(polls.answered(true, USUAL, at(1200)), None);
    }

    #[test]
    fn no_late_answer_is_expected_after_a_lost_poll() {
        let mut polls = sent_at(&[100, 300]);
        assert_eq!(polls.answered(false, USUAL, at(320)), None, "answers the last poll");
        polls.sent(at(330));
        assert!(!polls.take_late(false, at(350)));
    }

    #[test]
    fn late_answers_are_expected_for_a_bounded_time() {
        let mut polls = sent_at(&[100, 300]);
        polls.answered(false, USUAL, at(1000));
        polls.sent(at(2000));
        assert!(!polls.take_late(false, at(2100)));
        assert_eq!(polls.answered(false, USUAL, at(2100)), Some(100));
    }
}
