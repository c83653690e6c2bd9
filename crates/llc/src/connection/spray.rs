// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The label of each PDU, on networks where a label names one of several paths (`docs/protocol.md`, "Labels").
//!
//! Bursts take all labels in turns, other PDUs one, the *home* label. A label loses its turns while PDUs of it are
//! late, overtaken by many with other labels, and rests after a PDU of it was lost: for a round trip, doubled by each
//! further such PDU. Then it gets one PDU at a time until as many have arrived. Retransmissions leave with a label that
//! got through last, repeated polls and answers with several labels at once. Peers need not know labels: their
//! acknowledgements tell enough, since frames with one label take one path and stay in order. This follows REPS (Bonato
//! et al. 2024), which learns of congestion by ECN instead.

use alloc::boxed::Box;
use alloc::vec;

use crate::bounds;
use crate::time::Instant;

/// The labels of a connection, and those of its I PDUs in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spray {
    labels: Box<[Label]>,
    /// By the slot of `Machine::order`.
    in_flight: Box<[Sent]>,
    /// The label of acknowledgements, set-up and short messages: that of the poll answered last, unless it was left
    /// since.
    home: u8,
    /// The label that had its turn last.
    turn: u8,
    /// State of a generator of random labels (Knuth's, of 64 bits).
    random: u64,
    /// The label of the PDU transmitted last, if it had one.
    current: Option<u8>,
    /// The next set-up PDU has a label. The first has none, so that a network learns of this station by a frame for
    /// which it has no rule; repetitions alternate.
    labels_set_up: bool,
    /// Order of the newest I PDU that was sent, and of the newest that has arrived. A poll that has arrived counts as
    /// the I PDU sent after it.
    newest_sent: u32,
    newest: u32,
    /// How long the newest one took to arrive and be acknowledged.
    newest_round_trip_ns: u64,
    /// When to look again for PDUs that the peer lacks.
    pub judge_at: Instant,
    /// Number of I PDUs received when the peer polled last.
    pub polled_at: u64,
    /// Labels with which the next poll, and the next answer to one, are to leave besides the home label.
    copies: [u8; 2],
    /// The next S PDU is such a copy.
    is_copy: bool,
}

/// Purpose of an S PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervision {
    Poll,
    Answer,
    Plain,
}

/// What is known of a label's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Label {
    /// Unused until then, if `rests` is not 0.
    rests_until: Instant,
    /// Each doubles the next rest; a PDU that arrives takes one away. 0: the label is used in turn.
    rests: u8,
    /// Only I PDUs sent after this one, by order, tell anything new since its last rest began.
    rested_at: u32,
    /// Order of its newest I PDU that has arrived.
    newest: u32,
    /// Order of its newest I PDU that is late.
    late: Option<u32>,
}

/// An I PDU in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    /// In microseconds.
    at_us: u32,
    label: u8,
    /// A retransmission: its arrival may be that of an earlier transmission, with another label.
    is_repeated: bool,
    /// Was late.
    is_late: bool,
}

/// Verdict on an I PDU that the peer lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A later PDU with its label has arrived: it was lost.
    Lost,
    /// Later PDUs with other labels have arrived, for so long that its path is slow or dead.
    Overdue,
    /// Later PDUs with other labels have arrived. It is overdue at this time.
    OnItsWay(Instant),
}

impl Spray {
    pub fn new(labels: u8, in_flight: usize, random: u64) -> Self {
        let home = (random % u64::from(labels)) as u8;
        Self {
            labels: vec![Label::default(); usize::from(labels)].into_boxed_slice(),
            in_flight: vec![Sent::default(); in_flight].into_boxed_slice(),
            home,
            turn: home,
            random,
            current: None,
            labels_set_up: false,
            newest_sent: 0,
            newest: 0,
            newest_round_trip_ns: 0,
            judge_at: Instant::NEVER,
            polled_at: u64::MAX,
            copies: [0; 2],
            is_copy: false,
        }
    }

    /// The label of the PDU transmitted last, if it had one.
    #[inline]
    pub fn current(&self) -> Option<u8> {
        self.current
    }

    /// The next S PDU of this kind leaves with several labels, if `is_repeated`.
    pub fn copy(&mut self, kind: Supervision, is_repeated: bool) {
        let copies = bounds::POLL_LABELS.min(self.labels.len() as u8) - 1;
        self.copies[kind as usize] = if is_repeated { copies } else { 0 };
    }

    /// Chooses the label of an S PDU. Returns whether it is to leave with another one, too.
    pub fn send_supervisory(&mut self, kind: Supervision, round_trip_ns: u64, now: Instant) -> bool {
        let label = if self.is_copy { self.next_label(round_trip_ns, now) } else { self.home_at(round_trip_ns, now) };
        self.current = Some(label);
        self.is_copy = self.copies.get(kind as usize).is_some_and(|copies| *copies > 0);
        if self.is_copy {
            self.copies[kind as usize] -= 1;
        }
        self.is_copy
    }

    /// Chooses the label of a U PDU.
    pub fn send_unnumbered(&mut self) {
        self.current = self.labels_set_up.then_some(self.home);
        self.labels_set_up = !self.labels_set_up;
    }

    /// Chooses the label of an I PDU, and records it. Retransmissions leave with another label than before, if
    /// possible.
    #[inline]
    pub fn send_information(
        &mut self,
        slot: usize,
        order: u32,
        is_burst: bool,
        is_repeated: bool,
        round_trip_ns: u64,
        now: Instant,
    ) {
        self.newest_sent = order;
        let before = self.in_flight[slot];
        if is_repeated && before.is_late {
            // Its arrival would tell nothing of that label.
            self.labels[usize::from(before.label)].late = None;
        }
        let label = if is_repeated {
            self.proven_label(round_trip_ns, now)
        } else if is_burst {
            self.next_label(round_trip_ns, now)
        } else {
            self.home_at(round_trip_ns, now)
        };
        let chosen = &mut self.labels[usize::from(label)];
        (chosen.newest, chosen.rested_at) = (recent(chosen.newest, order), recent(chosen.rested_at, order));
        self.current = Some(label);
        self.in_flight[slot] = Sent { at_us: micros(now), label, is_repeated, is_late: false };
    }

    /// The home label may not get through: a random other label replaces it, or both ends could miss each other
    /// forever.
    pub fn leave_home(&mut self, round_trip_ns: u64, now: Instant) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.turn = ((self.random >> 33) % self.labels.len() as u64) as u8;
        for _ in 0..2 {
            let label = self.next_label(round_trip_ns, now);
            if label != self.home {
                self.home = label;
                break;
            }
        }
    }

    /// An I PDU has arrived at the peer.
    #[inline]
    pub fn arrived(&mut self, slot: usize, order: u32, now: Instant) {
        let sent = self.in_flight[slot];
        if sent.is_repeated {
            return;
        }
        let label = &mut self.labels[usize::from(sent.label)];
        label.newest = newer(label.newest, order);
        label.late = label.late.filter(|late| is_older(order, *late));
        if is_older(self.newest, order) {
            (self.newest, self.newest_round_trip_ns) = (order, age_ns(&sent, now));
        }
        if label.rests > 0 && !sent.is_late && is_older(label.rested_at, order) {
            (label.rests, label.rests_until) = (label.rests - 1, now);
        }
    }

    /// A poll has arrived at the peer. `order`: that of the first I PDU sent after it.
    pub fn polled(&mut self, order: u32, round_trip_ns: u64, label: Option<u8>, now: Instant) {
        if is_older(self.newest, order) {
            (self.newest, self.newest_round_trip_ns) = (order, round_trip_ns);
        }
        // This label gets through: repetitions leave with it.
        if let Some(label) = label {
            self.home = label;
            let label = &mut self.labels[usize::from(label)];
            label.newest = newer(label.newest, order);
            if label.rests > 0 && is_older(label.rested_at, order) {
                (label.rests, label.rests_until) = (label.rests - 1, now);
            }
        }
    }

    /// Whether something that was sent after an I PDU has arrived.
    #[inline]
    pub fn is_overtaken(&self, order: u32) -> bool {
        is_older(order, self.newest)
    }

    /// An I PDU that the peer lacks is retransmitted: its label rests, unless the PDU was sent before its last rest.
    pub fn lost(&mut self, slot: usize, order: u32, round_trip_ns: u64, now: Instant) {
        let label = &mut self.labels[usize::from(self.in_flight[slot].label)];
        label.late = None;
        if label.rests > 0 && !is_older(label.rested_at, order) {
            return;
        }
        let longest_ns = bounds::LOST_LABEL_REST_MAX.as_nanos() as u64;
        if label.rests == 0 || rest_ns(label.rests, round_trip_ns) < longest_ns {
            label.rests = label.rests.saturating_add(1);
        }
        label.rests_until = now.after(rest_ns(label.rests, round_trip_ns));
        label.rested_at = self.newest_sent;
    }

    /// Judges an I PDU that the peer lacks; `None` if nothing sent after it has arrived. Its label loses its turns if
    /// it is late and `may_leave`.
    pub fn judge(
        &mut self,
        slot: usize,
        order: u32,
        overdue_ns: u64,
        may_leave: bool,
        now: Instant,
    ) -> Option<Verdict> {
        let sent = self.in_flight[slot];
        if !self.is_overtaken(order) {
            return None;
        }
        let late_after = (4 * self.labels.len() as u32).clamp(LATE_AFTER_MIN, LATE_AFTER_MAX);
        let label = &mut self.labels[usize::from(sent.label)];
        if is_older(order, label.newest) {
            return Some(Verdict::Lost);
        }
        // Queues on a good path may be several times as long as those on another.
        let is_trusted = label.rests == 0;
        let newest_ns = OVERDUE_ROUND_TRIPS * self.newest_round_trip_ns;
        // Smoothed round trips are too long for a while after acknowledgements were lost.
        let most_ns = if newest_ns == 0 { overdue_ns } else { (2 * newest_ns).max(overdue_ns / 2) };
        let overdue_ns = overdue_ns.min(most_ns).max(if is_trusted { newest_ns } else { 0 });
        let age_ns = age_ns(&sent, now);
        if age_ns >= overdue_ns {
            return Some(Verdict::Overdue);
        }
        if may_leave && !sent.is_late && self.newest.wrapping_sub(order) > late_after {
            self.in_flight[slot].is_late = true;
            label.late = Some(label.late.map_or(order, |late| newer(late, order)));
        }
        // Ages are in whole microseconds.
        Some(Verdict::OnItsWay(now.after((overdue_ns - age_ns).max(1000))))
    }

    /// Sequence numbers begin anew: nothing is in flight.
    pub fn reset(&mut self) {
        self.judge_at = Instant::NEVER;
        self.labels.iter_mut().for_each(|label| label.late = None);
    }

    fn home_at(&mut self, round_trip_ns: u64, now: Instant) -> u8 {
        if self.labels[usize::from(self.home)].rests > 0 {
            self.home = self.next_label(round_trip_ns, now);
        }
        self.home
    }

    /// The label by which a PDU has arrived last, of those that do not rest.
    fn proven_label(&mut self, round_trip_ns: u64, now: Instant) -> u8 {
        let newest = self.newest;
        let labels = self.labels.iter().enumerate();
        let proven =
            labels.filter(|(_, label)| label.rests == 0).min_by_key(|(_, label)| newest.wrapping_sub(label.newest));
        match proven {
            Some((index, _)) => index as u8,
            None => self.next_label(round_trip_ns, now),
        }
    }

    /// The next label in turn that does not rest, not late if possible; if all rest, the one whose rest ends first.
    fn next_label(&mut self, round_trip_ns: u64, now: Instant) -> u8 {
        let count = self.labels.len();
        let in_turn = (1..=count).map(|step| (usize::from(self.turn) + step) % count);
        let is_free = |index: &usize| self.labels[*index].rests == 0 || self.labels[*index].rests_until <= now;
        let is_prompt = |index: &usize| self.labels[*index].late.is_none() && is_free(index);
        let free = in_turn.clone().find(is_prompt).or_else(|| in_turn.clone().find(is_free));
        let chosen = free.or_else(|| in_turn.min_by_key(|index| self.labels[*index].rests_until)).unwrap_or(0);
        let label = &mut self.labels[chosen];
        if label.rests > 0 {
            // On trial: unused again until this PDU has arrived.
            label.rests_until = now.after(rest_ns(label.rests, round_trip_ns));
        }
        self.turn = chosen as u8;
        self.turn
    }
}

/// Duration of a label's rest.
fn rest_ns(rests: u8, round_trip_ns: u64) -> u64 {
    (round_trip_ns << (rests - 1).min(20)).min(bounds::LOST_LABEL_REST_MAX.as_nanos() as u64)
}

/// How many PDUs sent later must have arrived for a PDU to be late: four of each other label, which a short queue's
/// jitter does not cause, but less than a window.
const LATE_AFTER_MIN: u32 = 8;
const LATE_AFTER_MAX: u32 = 32;
/// Round trips of the newest PDU that has arrived, after which one that was sent earlier, with a label that does not
/// rest, is overdue.
const OVERDUE_ROUND_TRIPS: u64 = 4;

fn age_ns(sent: &Sent, now: Instant) -> u64 {
    u64::from(micros(now).wrapping_sub(sent.at_us)) * 1000
}

fn micros(now: Instant) -> u32 {
    (now.as_nanos() / 1000) as u32
}

/// Whether one order is before another; both wrap.
#[inline]
fn is_older(order: u32, other: u32) -> bool {
    (order.wrapping_sub(other) as i32) < 0
}

#[inline]
fn newer(order: u32, other: u32) -> u32 {
    if is_older(order, other) { other } else { order }
}

/// Moves an order of long ago forward, so that it stays older than `now`: orders wrap.
#[inline]
fn recent(order: u32, now: u32) -> u32 {
    if now.wrapping_sub(order) > LONG_AGO { now.wrapping_sub(LONG_AGO) } else { order }
}

/// More PDUs than can be in flight, less than half of all numbers.
const LONG_AGO: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const ROUND_TRIP_NS: u64 = 10_000;

    /// A spray over four labels, and a clock.
    struct Sender {
        spray: Spray,
        order: u32,
        now: Instant,
    }

    impl Sender {
        fn new() -> Self {
            Self { spray: Spray::new(4, 64, 2), order: 0, now: Instant::from_nanos(1_000_000) }
        }

        /// Sends an I PDU a microsecond later. Returns its label, and its order, which is also its slot.
        fn send(&mut self, is_burst: bool) -> (u8, u32) {
            self.now = self.now.after(1000);
            self.order = self.order.wrapping_add(1);
            let slot = self.order as usize % 64;
            self.spray.send_information(slot, self.order, is_burst, false, ROUND_TRIP_NS, self.now);
            (self.spray.current().unwrap(), self.order)
        }

        /// Sends an S PDU. Returns its label, and whether a copy is to follow.
        fn supervise(&mut self, kind: Supervision) -> (u8, bool) {
            let is_copied = self.spray.send_supervisory(kind, ROUND_TRIP_NS, self.now);
            (self.spray.current().unwrap(), is_copied)
        }

        fn arrived(&mut self, order: u32) {
            self.spray.arrived(order as usize % 64, order, self.now);
        }

        fn judge(&mut self, order: u32) -> Option<Verdict> {
            self.spray.judge(order as usize % 64, order, 15_000, true, self.now)
        }

        fn lost(&mut self, order: u32) {
            self.spray.lost(order as usize % 64, order, ROUND_TRIP_NS, self.now);
        }

        /// Shares of the labels in the next PDUs, all of which arrive, except those of the dead label.
        fn shares(&mut self, pdus: u32, dead: Option<u8>) -> [u32; 4] {
            let mut shares = [0; 4];
            for _ in 0..pdus {
                let (label, order) = self.send(true);
                shares[usize::from(label)] += 1;
                if Some(label) == dead { self.lost(order) } else { self.arrived(order) }
            }
            shares
        }
    }

    #[test]
    fn bursts_take_all_labels_in_turns_and_short_messages_one() {
        let mut sender = Sender::new();
        assert_eq!(sender.shares(400, None), [100; 4]);
        let homes: Vec<u8> = (0..10).map(|_| sender.send(false).0).collect();
        assert_eq!(homes, [2; 10]);
    }

    #[test]
    fn first_set_up_pdu_has_no_label_and_its_repetition_has() {
        let mut sender = Sender::new();
        let labels = [(); 4].map(|()| {
            sender.spray.send_unnumbered();
            sender.spray.current()
        });
        assert_eq!(labels, [None, Some(2), None, Some(2)]);
    }

    #[test]
    fn dead_label_is_left_at_once_and_tried_ever_more_rarely() {
        let mut sender = Sender::new();
        let shares = sender.shares(100_000, Some(1));
        // A rest doubles from 10 us, within 100 ms: some 14 trials.
        assert!((10..20).contains(&shares[1]), "{shares:?}");
        assert!(shares[0].abs_diff(shares[2]) < 20, "{shares:?}");
        // It is used again in full as soon as its PDUs arrive.
        sender.now = sender.now.after(1_000_000_000);
        let shares = sender.shares(4000, None);
        assert!(shares[1] > 900, "{shares:?}");
    }

    #[test]
    fn rest_is_bounded_when_the_round_trip_has_grown() {
        let mut sender = Sender::new();
        sender.shares(1_000_000, Some(1));
        assert!(sender.spray.labels[1].rests > 10);
        let mut last = sender.now;
        for _ in 0..10_000 {
            sender.now = sender.now.after(1_000_000);
            sender.order += 1;
            let slot = sender.order as usize % 64;
            sender.spray.send_information(slot, sender.order, true, false, 1000 * ROUND_TRIP_NS, sender.now);
            if sender.spray.current() == Some(1) {
                last = sender.now;
            }
            assert!(sender.now <= last.after(1_010_000_000), "no trial for more than a second");
        }
    }

    #[test]
    fn orders_wrap() {
        for first in [0, 1 << 30, (1 << 31) + 10, u32::MAX - 4] {
            let mut sender = Sender::new();
            sender.order = first;
            let sent: Vec<(u8, u32)> = (0..9).map(|_| sender.send(true)).collect();
            sender.arrived(sent[1].1);
            let verdict = sender.judge(sent[0].1);
            assert!(matches!(verdict, Some(Verdict::OnItsWay(_))), "{first}: {verdict:?}");
            // A label that rested long ago.
            let (label, lost) = sent[2];
            sender.lost(lost);
            sender.order = sender.order.wrapping_add((1 << 31) + 10);
            sender.now = sender.now.after(1_000_000_000);
            let trial = (0..8).map(|_| sender.send(true)).find(|(at, _)| *at == label).unwrap().1;
            sender.arrived(trial);
            assert_eq!(sender.spray.labels[usize::from(label)].rests, 0, "{first}");
        }
    }

    #[test]
    fn many_losses_at_once_are_one() {
        let mut sender = Sender::new();
        let sent: Vec<(u8, u32)> = (0..40).map(|_| sender.send(true)).collect();
        for (label, order) in sent {
            if label == 3 { sender.lost(order) } else { sender.arrived(order) }
        }
        assert_eq!(sender.spray.labels[3].rests, 1);
        sender.now = sender.now.after(2 * ROUND_TRIP_NS);
        let trial = (0..8).map(|_| sender.send(true)).find(|(label, _)| *label == 3).unwrap().1;
        sender.lost(trial);
        assert_eq!(sender.spray.labels[3].rests, 2);
    }

    #[test]
    fn pdu_is_lost_if_a_later_one_with_its_label_has_arrived_or_when_it_is_overdue() {
        let mut sender = Sender::new();
        let sent: Vec<u32> = (0..9).map(|_| sender.send(true).1).collect();
        assert_eq!(sender.judge(sent[0]), None, "nothing has arrived");
        sender.arrived(sent[1]);
        let Some(Verdict::OnItsWay(until)) = sender.judge(sent[0]) else { panic!("may be late") };
        assert_eq!(sender.judge(sent[2]), None, "nothing sent later has arrived");
        sender.arrived(sent[4]);
        assert_eq!(sender.judge(sent[0]), Some(Verdict::Lost), "the same label");
        assert!(matches!(sender.judge(sent[2]), Some(Verdict::OnItsWay(_))));
        sender.now = until.after(2000);
        assert_eq!(sender.judge(sent[2]), Some(Verdict::Overdue));
    }

    #[test]
    fn label_has_no_turns_while_a_pdu_of_it_is_late() {
        let mut sender = Sender::new();
        let sent: Vec<(u8, u32)> = (0..24).map(|_| sender.send(true)).collect();
        let (slow, _) = sent[0];
        for (_, order) in sent.iter().filter(|(label, _)| *label != slow) {
            sender.arrived(*order);
        }
        let of_slow: Vec<u32> = sent.iter().filter(|(label, _)| *label == slow).map(|(_, order)| *order).collect();
        let late = &of_slow[..2];
        for order in late {
            sender.spray.judge(*order as usize, *order, u64::MAX, true, sender.now);
        }
        assert!((0..9).all(|_| sender.send(true).0 != slow));
        sender.arrived(late[0]);
        assert!((0..9).all(|_| sender.send(true).0 != slow), "another one is late");
        sender.arrived(late[1]);
        assert_eq!((0..4).filter(|_| sender.send(true).0 == slow).count(), 1);
        assert_eq!(sender.spray.labels[usize::from(slow)].rests, 0);
    }

    /// Proves that a label gets its turns back although the PDU that made it late can no longer tell anything.
    #[test]
    fn label_is_not_late_after_a_reset_or_a_retransmission() {
        let late = || {
            let mut sender = Sender::new();
            let sent: Vec<(u8, u32)> = (0..24).map(|_| sender.send(true)).collect();
            let (slow, first) = sent[0];
            sent[20..].iter().filter(|(label, _)| *label != slow).for_each(|(_, order)| sender.arrived(*order));
            sender.spray.judge(first as usize, first, u64::MAX, true, sender.now);
            assert!((0..9).all(|_| sender.send(true).0 != slow));
            (sender, slow, first)
        };
        let (mut sender, slow, _) = late();
        sender.spray.reset();
        assert_eq!((0..4).filter(|_| sender.send(true).0 == slow).count(), 1);
        let (mut sender, slow, first) = late();
        sender.order += 1;
        sender.spray.send_information(first as usize, sender.order, true, true, ROUND_TRIP_NS, sender.now);
        assert_eq!((0..4).filter(|_| sender.send(true).0 == slow).count(), 1);
    }

    #[test]
    fn pdu_is_not_overdue_while_others_take_a_quarter_of_its_time() {
        let mut sender = Sender::new();
        let sent: Vec<u32> = (0..3).map(|_| sender.send(true).1).collect();
        sender.now = sender.now.after(50_000);
        sender.arrived(sent[2]);
        sender.now = sender.now.after(140_000);
        assert!(
            matches!(sender.judge(sent[0]), Some(Verdict::OnItsWay(_))),
            "four times 50 us, and 2 us until the third"
        );
        sender.now = sender.now.after(20_000);
        assert_eq!(sender.judge(sent[0]), Some(Verdict::Overdue));
    }

    #[test]
    fn poll_that_has_arrived_overtakes_all_pdus() {
        let mut sender = Sender::new();
        let (_, order) = sender.send(false);
        assert_eq!(sender.judge(order), None);
        sender.spray.polled(order + 1, ROUND_TRIP_NS, None, sender.now);
        assert!(matches!(sender.judge(order), Some(Verdict::OnItsWay(_))));
        sender.now = sender.now.after(OVERDUE_ROUND_TRIPS * ROUND_TRIP_NS);
        assert_eq!(sender.judge(order), Some(Verdict::Overdue));
        let (_, next) = sender.send(false);
        assert_eq!(sender.judge(next), None, "sent after the poll");
    }

    #[test]
    fn short_messages_leave_a_label_that_suffers() {
        let mut sender = Sender::new();
        let (home, order) = sender.send(false);
        sender.lost(order);
        let (next, _) = sender.send(false);
        assert_ne!(home, next);
        assert_eq!(sender.send(false).0, next);
        sender.spray.leave_home(ROUND_TRIP_NS, sender.now);
        assert_ne!(sender.send(false).0, next);
    }

    #[test]
    fn a_repeated_poll_leaves_with_several_labels_and_the_next_one_with_one() {
        let mut sender = Sender::new();
        assert_eq!(sender.supervise(Supervision::Poll), (2, false));
        sender.spray.copy(Supervision::Poll, true);
        assert_eq!(sender.supervise(Supervision::Answer), (2, false), "the answer to another poll");
        let labels: [_; 4] = core::array::from_fn(|_| sender.supervise(Supervision::Poll));
        assert_eq!(labels, [(2, true), (3, true), (0, true), (1, false)]);
        assert_eq!(sender.supervise(Supervision::Poll), (2, false));
    }

    /// Proves that what is repeated leaves with the label of the poll that was answered, short messages too.
    #[test]
    fn a_label_whose_poll_was_answered_gets_through() {
        let mut sender = Sender::new();
        let sent: Vec<(u8, u32)> = (0..8).map(|_| sender.send(true)).collect();
        let (through, _) = sent[1];
        sender.spray.polled(sender.order + 1, ROUND_TRIP_NS, Some(through), sender.now);
        assert_eq!(sender.judge(sent[1].1), Some(Verdict::Lost), "the poll was sent later with the same label");
        for (_, order) in &sent {
            sender.order += 1;
            let (slot, order) = (*order as usize % 64, sender.order);
            sender.spray.send_information(slot, order, true, true, ROUND_TRIP_NS, sender.now);
            assert_eq!(sender.spray.current(), Some(through));
        }
        assert_eq!(sender.send(false).0, through);
    }

    #[test]
    fn if_all_labels_rest_the_one_that_has_rested_longest_is_used() {
        let mut sender = Sender::new();
        let sent: Vec<(u8, u32)> = (0..4).map(|_| sender.send(true)).collect();
        for (_, order) in &sent {
            sender.now = sender.now.after(10);
            sender.lost(*order);
        }
        assert_eq!(sender.send(true).0, sent[0].0);
    }
}
