// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which poll an answer belongs to. F says that some poll was answered, not which. Where a network holds PDUs for longer
//! than T1 was thought to be, several polls are under way, and each is answered; what came after the first of these
//! answers must not be taken for lost because the second, older than it, does not acknowledge it.

use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Polls {
    /// Polls sent that await an answer now, and when the first and the last of them left.
    sent: u8,
    first: Instant,
    last: Instant,
    /// Answers to polls of before that may still come, and until when.
    late: u8,
    late_until: Instant,
}

impl Polls {
    pub(crate) const NONE: Self =
        Self { sent: 0, first: Instant::NEVER, last: Instant::NEVER, late: 0, late_until: Instant::NEVER };

    /// A PDU with P = 1 leaves.
    pub(crate) fn sent(&mut self, now: Instant) {
        if self.sent == 0 {
            self.first = now;
        }
        self.last = now;
        self.sent = self.sent.saturating_add(1);
    }

    /// F = 1 came: whether it answers a poll of before. `is_complete`: it acknowledges all, and so tells of no loss in
    /// either case.
    pub(crate) fn is_late(&mut self, is_complete: bool, now: Instant) -> bool {
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

    /// Whether one answer is awaited, and no other can come instead.
    pub(crate) fn is_one_awaited(&self) -> bool {
        self.sent == 1 && self.late == 0
    }

    /// The peer does not answer any more, or did.
    pub(crate) fn none_is_awaited(&mut self) {
        self.sent = 0;
    }

    /// F = 1 was taken for the answer. How long it took, in ns; `None` if that is not known, since it answers some other
    /// poll. `is_complete`: as above. `usual_ns`: what a round trip took so far.
    pub(crate) fn answered(&mut self, is_complete: bool, usual_ns: Option<u64>, now: Instant) -> Option<u64> {
        let polls = core::mem::take(&mut self.sent);
        // It tells of loss, and came as soon after the last poll as ever: it answers that one, and those before it were
        // lost, too. Otherwise all are answered, and this answers the first: too long rather than too short.
        let is_prompt = usual_ns.is_some_and(|usual_ns| now.nanos_since(self.last) <= 2 * usual_ns);
        if polls > 1 && is_prompt && !is_complete {
            return None;
        }
        let round_trip_ns = now.nanos_since(self.first);
        let is_first = polls != 0 && self.late == 0;
        if polls > 1 {
            self.late = self.late.saturating_add(polls - 1);
            // They follow as far apart as the polls were.
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
    fn one_poll_has_one_answer_which_is_a_round_trip() {
        let mut polls = sent_at(&[100]);
        assert!(!polls.is_late(false, at(130)));
        assert_eq!(polls.answered(false, USUAL, at(130)), Some(30));
        polls.sent(at(200));
        assert!(!polls.is_late(false, at(230)));
    }

    #[test]
    fn of_several_polls_the_first_is_answered_and_the_others_later() {
        let mut polls = sent_at(&[100, 300, 700]);
        assert!(!polls.is_late(false, at(1000)));
        assert_eq!(polls.answered(false, USUAL, at(1000)), Some(900));
        polls.sent(at(1150));
        assert!(polls.is_late(false, at(1200)), "the second poll's");
        assert!(polls.is_late(false, at(1600)), "the third one's");
        assert!(!polls.is_late(false, at(1700)));
        assert_eq!(polls.answered(false, USUAL, at(1700)), Some(550));
    }

    #[test]
    fn a_late_answer_that_acknowledges_all_ends_the_wait_and_is_not_measured() {
        let mut polls = sent_at(&[100, 300]);
        polls.answered(true, USUAL, at(1000));
        polls.sent(at(1150));
        assert!(!polls.is_late(true, at(1200)));
        assert_eq!(polls.answered(true, USUAL, at(1200)), None);
    }

    #[test]
    fn after_a_lost_poll_none_is_waited_for() {
        let mut polls = sent_at(&[100, 300]);
        assert_eq!(polls.answered(false, USUAL, at(320)), None, "as prompt as ever");
        polls.sent(at(330));
        assert!(!polls.is_late(false, at(350)));
    }

    #[test]
    fn late_answers_are_not_waited_for_without_end() {
        let mut polls = sent_at(&[100, 300]);
        polls.answered(false, USUAL, at(1000));
        polls.sent(at(2000));
        assert!(!polls.is_late(false, at(2100)));
        assert_eq!(polls.answered(false, USUAL, at(2100)), Some(100));
    }
}
