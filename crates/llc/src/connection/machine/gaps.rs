// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selective acknowledgement and retransmission: PDUs received early and the gaps before them. Extended stations only.

use super::transmit::Pending;
use super::{Machine, State};
use crate::bounds;
use crate::config::AfterLoss;
use crate::connection::Cause;
use crate::connection::state::Event;
use crate::time::Instant;

impl Machine {
    /// Records that the user keeps an I PDU with [`Disposition::Early`](super::Disposition::Early).
    pub fn keep(&mut self, number: u16) {
        let ahead = self.ahead_of(number, self.received);
        if (1..128).contains(&ahead) {
            self.kept |= 1 << ahead;
        }
    }

    pub fn is_kept(&self, number: u16) -> bool {
        let ahead = self.ahead_of(number, self.received);
        self.kept.checked_shr(u32::from(ahead)).is_some_and(|bits| bits & 1 == 1)
    }

    /// The number of the next PDU in sequence if it is kept; it then counts as delivered. If it polled, the peer waits
    /// for its acknowledgement, and the user may not receive again for long.
    #[inline]
    pub fn next_kept(&mut self, now: Instant) -> Option<u16> {
        if self.kept == 0 || !self.state.is_connected() {
            return None;
        }
        if self.kept & 1 == 0 {
            // The kept PDUs follow another gap.
            if self.state.is_in(State::Normal.bit() | State::Await.bit()) {
                self.reordering.gap_detected(false, now);
                self.dispatch(Event::AheadC0, self.context(now, Cause::Requested));
            }
            return None;
        }
        let number = self.received as u16 & self.number_mask();
        self.deliver();
        self.delay_ack(now);
        if self.polled_early == Some(number) {
            self.polled_early = None;
            self.pending |= Pending::FINAL;
        }
        Some(number)
    }

    /// Whether the user keeps any PDU.
    #[inline]
    pub fn has_kept(&self) -> bool {
        self.kept != 0
    }

    /// Retransmits the PDUs that the peer lacks and that left before one that it keeps. The window shrinks by their
    /// number: less than after a go-back-N retransmission, which sends more PDUs needlessly.
    pub(super) fn resend_gaps(&mut self) {
        let order =
            |machine: &Self, bit: u32| machine.order[machine.order_slot(machine.acknowledged.wrapping_add(bit))];
        let end = u128::BITS - self.peer_kept.leading_zeros();
        let kept = (1..end).filter(|bit| self.peer_kept >> bit & 1 == 1);
        let newest = kept.map(|bit| order(self, bit)).reduce(|a, b| if (a.wrapping_sub(b) as i32) < 0 { b } else { a });
        let Some(newest) = newest else { return };
        let transmitted = self.next.wrapping_sub(self.acknowledged);
        let mut lost = 0;
        for bit in 0..end.min(transmitted) {
            let is_lost = (order(self, bit).wrapping_sub(newest) as i32) < 0;
            if is_lost && (self.peer_kept | self.to_resend) >> bit & 1 == 0 {
                self.to_resend |= 1 << bit;
                lost += 1;
            }
        }
        self.shrink_window(lost);
    }

    /// Some PDUs were lost, and are retransmitted.
    pub(super) fn shrink_window(&mut self, lost: u8) {
        if lost == 0 {
            return;
        }
        self.counters.recoveries += 1;
        self.round_trip.cancel();
        self.round_trip.lost(&self.parameters);
        let window_min = bounds::HALVED_WINDOW_MIN.min(self.parameters.window);
        self.window = match self.parameters.after_loss {
            AfterLoss::Keep => self.window,
            AfterLoss::Halve => self.window.saturating_sub(lost).max(window_min).min(self.window),
            AfterLoss::One => 1,
        };
        self.growth_credit = 0;
    }

    /// Records the PDUs that the peer keeps: bit i is PDU V(A) + i.
    pub(super) fn set_peer_kept(&mut self, kept: u128, now: Instant) {
        let in_flight = self.outstanding();
        let mask = if in_flight >= u128::BITS { u128::MAX } else { (1 << in_flight) - 1 };
        let new = kept & mask & !1 & !self.peer_kept;
        self.peer_kept |= new;
        self.to_resend &= !self.peer_kept;
        self.next = self.skip_peer_kept(self.next);
        if self.spray.is_some() {
            self.labels_arrived(new, now);
            self.judge_labels(now);
        }
    }

    /// The first index from `index` on that the peer does not keep.
    #[inline]
    pub(super) fn skip_peer_kept(&self, index: u32) -> u32 {
        let mut next = index;
        if self.peer_kept != 0 {
            let is_kept = |index: u32| self.peer_kept.checked_shr(index.wrapping_sub(self.acknowledged));
            while next != self.sent && is_kept(next).is_some_and(|bits| bits & 1 == 1) {
                next = next.wrapping_add(1);
            }
        }
        next
    }

    #[inline]
    pub(super) fn order_slot(&self, index: u32) -> usize {
        index as usize & (self.order.len() - 1)
    }
}
