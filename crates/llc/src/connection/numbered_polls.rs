// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Polls of connections with the extension, whose answers carry the number of the poll. So each answer measures a round
//! trip, and tells of the PDUs sent before its poll, also when several polls are in flight or some were lost.

use crate::extension;
use crate::time::Instant;

/// The last polls of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedPolls {
    /// By count, modulo their number.
    recent: [Poll; REMEMBERED],
    /// Number of polls sent.
    sent: u16,
    /// Number of polls sent when the last answer was accepted: those to earlier ones are late.
    settled: u16,
    /// The answer that was accepted last.
    accepted: Answer,
}

/// More than are in flight, unless T1 is a small fraction of the round trip.
const REMEMBERED: usize = 8;
/// More than any label.
const NO_LABEL: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Poll {
    /// `NEVER` if it was answered.
    at: Instant,
    number: u16,
    /// Order of the I PDU sent after it.
    order: u32,
    /// `NO_LABEL` without one.
    label: u8,
    /// A retransmission has the same number: the answer is to either.
    is_repeated: bool,
}

/// What the answer to a poll tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Number of polls sent before.
    count: u16,
    /// At least this; `None` if it is unknown which transmission of a PDU it answers.
    pub round_trip_ns: Option<u64>,
    /// The peer has received what was sent before the I PDU of this order, unless it was lost or took another path.
    pub order: u32,
    /// The label that the poll had, if it is known.
    pub label: Option<u8>,
    /// The poll was sent before the last answer was accepted.
    pub is_late: bool,
    /// It was the first one sent since.
    pub is_first: bool,
}

impl NumberedPolls {
    pub const NONE: Self = Self {
        recent: [Poll { at: Instant::NEVER, number: 0, order: 0, label: NO_LABEL, is_repeated: false }; REMEMBERED],
        sent: 0,
        settled: 0,
        accepted: Answer { count: 0, round_trip_ns: None, order: 0, label: None, is_late: false, is_first: false },
    };

    /// Records a poll. `ns`: N(S) of an I PDU, `None` of an S PDU. `order`: that of the next I PDU. Returns its number.
    pub fn sent(&mut self, ns: Option<u16>, order: u32, label: Option<u8>, now: Instant) -> u16 {
        let number = ns.unwrap_or(extension::FIRST_POLL | self.sent & (extension::FIRST_POLL - 1));
        let mut is_repeated = false;
        for poll in self.recent.iter_mut().filter(|poll| poll.at != Instant::NEVER && poll.number == number) {
            (poll.at, is_repeated) = (Instant::NEVER, true);
        }
        let label = label.unwrap_or(NO_LABEL);
        self.recent[usize::from(self.sent) % REMEMBERED] = Poll { at: now, number, order, label, is_repeated };
        self.sent = self.sent.wrapping_add(1);
        number
    }

    /// What a response with F = 1 and this number tells; `None` if nothing, as when its poll has been answered before.
    pub fn answered(&mut self, number: u16, now: Instant) -> Option<Answer> {
        let newest = self.sent.wrapping_sub(1);
        let unanswered = |poll: &Poll| poll.at != Instant::NEVER;
        let (count, round_trip_ns, order, label) =
            if let Some(slot) = self.recent.iter().position(|poll| unanswered(poll) && poll.number == number) {
                let poll = self.recent[slot];
                self.recent[slot].at = Instant::NEVER;
                let count = newest.wrapping_sub(newest.wrapping_sub(slot as u16) % REMEMBERED as u16);
                (
                    count,
                    (!poll.is_repeated).then(|| now.nanos_since(poll.at)),
                    poll.order,
                    Some(poll.label).filter(|label| *label != NO_LABEL),
                )
            } else {
                // Forgotten, since T1 is so short: sent before those that are remembered, which tells T1 to grow.
                let age = newest.wrapping_sub(number) & (extension::FIRST_POLL - 1);
                let count = newest.wrapping_sub(age);
                if number < extension::FIRST_POLL || age < REMEMBERED as u16 || is_before(count, self.settled) {
                    return None;
                }
                let oldest = self.recent.iter().filter(|poll| unanswered(poll)).map(|poll| poll.at).min()?;
                (count, Some(now.nanos_since(oldest)), self.accepted.order, None)
            };
        let is_late = is_before(count, self.settled);
        Some(Answer { count, round_trip_ns, order, label, is_late, is_first: count == self.settled })
    }

    /// The answer ends the wait for one: those to other polls sent until now are late.
    pub fn accept(&mut self, answer: Answer) {
        (self.accepted, self.settled) = (answer, self.sent);
    }

    /// The answer accepted last.
    pub fn accepted(&self) -> Answer {
        self.accepted
    }
}

/// Whether one count is before another; both wrap.
fn is_before(count: u16, other: u16) -> bool {
    (count.wrapping_sub(other) as i16) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ns: u64) -> Instant {
        Instant::from_nanos(now_ns)
    }

    #[test]
    fn each_answer_measures_its_own_round_trip() {
        let mut polls = NumberedPolls::NONE;
        let numbers = [100, 300, 700].map(|time| polls.sent(None, time as u32, None, at(time)));
        let first = polls.answered(numbers[0], at(1000)).unwrap();
        assert_eq!((first.round_trip_ns, first.order, first.is_first, first.is_late), (Some(900), 100, true, false));
        polls.accept(first);
        let last = polls.answered(numbers[2], at(1050)).unwrap();
        assert_eq!((last.round_trip_ns, last.is_late), (Some(350), true));
        assert_eq!(polls.answered(numbers[2], at(1060)), None, "the network has duplicated it");
    }

    #[test]
    fn answers_may_overtake_others() {
        let mut polls = NumberedPolls::NONE;
        let numbers = [100, 300].map(|time| polls.sent(None, 0, None, at(time)));
        let second = polls.answered(numbers[1], at(320)).unwrap();
        assert_eq!((second.round_trip_ns, second.is_first), (Some(20), false));
        polls.accept(second);
        let next = polls.sent(None, 0, None, at(400));
        let first = polls.answered(numbers[0], at(410)).unwrap();
        assert!(first.is_late && first.round_trip_ns == Some(310));
        assert!(polls.answered(next, at(430)).unwrap().is_first);
    }

    #[test]
    fn repeated_information_pdus_measure_nothing() {
        let mut polls = NumberedPolls::NONE;
        assert_eq!(polls.sent(Some(0), 1, None, at(100)), 0);
        assert_eq!(polls.sent(Some(0), 2, None, at(200)), 0);
        let answer = polls.answered(0, at(230)).unwrap();
        assert_eq!((answer.round_trip_ns, answer.order), (None, 2));
        assert_eq!(polls.answered(0, at(240)), None);
    }

    #[test]
    fn only_the_last_polls_are_remembered_and_counts_wrap() {
        let mut polls = NumberedPolls::NONE;
        for time in 0..200_000 {
            let number = polls.sent(None, 0, None, at(time));
            if time % 3 == 0 {
                let answer = polls.answered(number, at(time + 5)).unwrap();
                assert!(!answer.is_late && answer.round_trip_ns == Some(5));
                polls.accept(answer);
            }
        }
        let numbers: [u16; 20] = core::array::from_fn(|time| polls.sent(None, 7, None, at(time as u64)));
        let trips = numbers.map(|number| polls.answered(number, at(100)).map(|answer| answer.round_trip_ns.unwrap()));
        assert_eq!((trips[0], trips[11], trips[12], trips[19]), (Some(88), Some(88), Some(88), Some(81)), "at least");
        polls.accept(Answer { count: polls.sent.wrapping_sub(10), ..polls.accepted() });
        assert_eq!(polls.answered(numbers[3], at(110)), None, "late and forgotten");
    }
}
