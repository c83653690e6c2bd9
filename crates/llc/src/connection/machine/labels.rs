// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels of PDUs: when each is chosen, and what acknowledgements tell of it. Where the network has none, nothing is
//! done.

use super::Machine;
use crate::bounds;
use crate::connection::spray::{Supervision, Verdict};
use crate::time::Instant;

impl Machine {
    /// Chooses the label of an S PDU. Returns whether another copy of it is to leave with another label.
    #[inline]
    pub(super) fn label_supervisory(&mut self, kind: Supervision, now: Instant) -> bool {
        let Some(spray) = &mut self.spray else { return false };
        spray.send_supervisory(kind, self.round_trip.estimate_ns(), now)
    }

    /// Lets the next poll leave with several labels if it repeats one that was not answered.
    pub(super) fn copy_poll(&mut self, is_repeated: bool) {
        if let Some(spray) = &mut self.spray {
            spray.copy(Supervision::Poll, is_repeated);
        }
    }

    /// Chooses the label of a U PDU.
    pub(super) fn label_unnumbered(&mut self) {
        if let Some(spray) = &mut self.spray {
            spray.send_unnumbered();
        }
    }

    /// Chooses the label of an I PDU that is in this slot of `order`.
    pub(super) fn label_information(&mut self, slot: usize, is_retransmission: bool, now: Instant) {
        let is_burst = self.queued.wrapping_sub(self.acknowledged) > bounds::BURST_PDUS;
        if let Some(spray) = &mut self.spray {
            let round_trip_ns = self.round_trip.estimate_ns();
            spray.send_information(slot, self.order[slot], is_burst, is_retransmission, round_trip_ns, now);
        }
    }

    /// Acknowledgements or PDUs of the peer may be lost: short messages and acknowledgements take another label.
    pub(super) fn leave_home(&mut self, now: Instant) {
        if mutant!(self, LabelsKept) {
            return;
        }
        if let Some(spray) = &mut self.spray {
            spray.leave_home(self.round_trip.estimate_ns(), now);
        }
    }

    /// The peer has polled. If it does so again, and sends nothing meanwhile, it has missed the answer.
    pub(super) fn label_polled(&mut self, now: Instant) {
        let received = self.counters.information_received;
        let Some(spray) = &mut self.spray else { return };
        let is_repeated = core::mem::replace(&mut spray.polled_at, received) == received;
        spray.copy(Supervision::Answer, is_repeated);
        if is_repeated {
            self.leave_home(now);
        }
    }

    /// The peer has received I PDUs: bit i is PDU V(A) + i.
    pub(super) fn labels_arrived(&mut self, arrived: u128, now: Instant) {
        for bit in bits(arrived) {
            let slot = self.order_slot(self.acknowledged.wrapping_add(bit));
            if let Some(spray) = &mut self.spray {
                spray.arrived(slot, self.order[slot], now);
            }
        }
    }

    /// All I PDUs in flight that the peer does not keep are retransmitted.
    pub(super) fn labels_lost(&mut self, now: Instant) {
        if mutant!(self, LabelsKept) {
            return;
        }
        let in_flight = self.outstanding().min(u128::BITS);
        let round_trip_ns = self.round_trip.estimate_ns();
        for bit in (0..in_flight).filter(|bit| self.peer_kept >> bit & 1 == 0) {
            let slot = self.order_slot(self.acknowledged.wrapping_add(bit));
            if let Some(spray) = &mut self.spray {
                spray.lost(slot, self.order[slot], round_trip_ns, now);
            }
        }
    }

    /// A poll has arrived at the peer, and its answer here. It may have overtaken I PDUs with other labels.
    pub(super) fn judge_labels_after_poll(&mut self, now: Instant) {
        self.next = self.sent;
        let answer = self.numbered_polls.accepted();
        if let Some(spray) = &mut self.spray {
            spray.polled(
                answer.order,
                answer.round_trip_ns.unwrap_or(self.round_trip.estimate_ns()),
                answer.label,
                now,
            );
        }
        self.judge_labels(now);
        if self.outstanding() > 0 {
            self.start_ack_timer(now);
        }
    }

    /// Retransmits I PDUs that were lost with their labels, and leaves these labels. PDUs that others have overtaken on
    /// faster paths are judged again when they are overdue.
    pub(super) fn judge_labels(&mut self, now: Instant) {
        let Some(mut spray) = self.spray.take() else { return };
        spray.judge_at = Instant::NEVER;
        let may_leave = !mutant!(self, LabelsKept);
        let (mut lost, mut overdue) = (0, 0);
        let is_any_overtaken =
            self.peer_kept != 0 || spray.is_overtaken(self.order[self.order_slot(self.acknowledged)]);
        if is_any_overtaken && self.state.is_connected() {
            let transmitted = self.next.wrapping_sub(self.acknowledged).min(u128::BITS);
            let (round_trip_ns, overdue_ns) = (self.round_trip.estimate_ns(), self.round_trip.overdue_ns());
            let settled = self.peer_kept | self.to_resend;
            for bit in (0..transmitted).filter(|bit| settled >> bit & 1 == 0) {
                let slot = self.order_slot(self.acknowledged.wrapping_add(bit));
                match spray.judge(slot, self.order[slot], overdue_ns, may_leave, now) {
                    Some(verdict @ (Verdict::Lost | Verdict::Overdue)) => {
                        self.to_resend |= 1 << bit;
                        lost += u8::from(verdict == Verdict::Lost);
                        overdue += u8::from(verdict == Verdict::Overdue);
                        if may_leave {
                            spray.lost(slot, self.order[slot], round_trip_ns, now);
                        }
                    }
                    Some(Verdict::OnItsWay(until)) => spray.judge_at = spray.judge_at.min(until),
                    None => {}
                }
            }
            self.wake = self.wake.min(spray.judge_at);
        }
        self.spray = Some(spray);
        // A path that is slow or dead is no reason to send less over the others.
        self.counters.recoveries += u64::from(lost == 0 && overdue > 0);
        self.shrink_window(lost);
    }
}

/// The numbers of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros());
        set &= set.wrapping_sub(1);
        lowest
    })
}
