// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes early and what is missing before it, at both ends: between stations of ours only.

use super::{Machine, State};
use crate::bounds;
use crate::config::AfterLoss;
use crate::connection::Cause;
use crate::connection::state::Event;
use crate::time::Instant;

impl Machine {
    /// The user keeps an I PDU that was [`Taken::Early`].
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

    /// The number of a PDU that is kept, if it is the next in order: it counts as delivered then.
    #[inline]
    pub fn next_kept(&mut self, now: Instant) -> Option<u16> {
        if self.kept == 0 || !self.state.is_connected() {
            return None;
        }
        if self.kept & 1 == 0 {
            // What is kept lies behind another gap.
            if self.state.is_in(State::Normal.bit() | State::Await.bit()) {
                self.reordering.gap_seen(false, now);
                self.dispatch(Event::AheadC0, self.context(now, Cause::Requested));
            }
            return None;
        }
        let number = self.received as u16 & self.number_mask();
        self.deliver();
        self.acknowledge_later(now);
        Some(number)
    }

    /// Whether the user keeps something.
    #[inline]
    pub fn has_kept(&self) -> bool {
        self.kept != 0
    }

    /// Of what the peer has not received, that goes out again which left before something that the peer keeps. The window
    /// shrinks by as many: less than when all behind a gap is sent again, since less is in vain.
    pub(super) fn resend_gaps(&mut self) {
        let order =
            |machine: &Self, bit: u32| machine.order[machine.order_slot(machine.acknowledged.wrapping_add(bit))];
        let end = u128::BITS - self.peer_kept.leading_zeros();
        let kept = (1..end).filter(|bit| self.peer_kept >> bit & 1 == 1);
        let newest = kept.map(|bit| order(self, bit)).reduce(|a, b| if (a.wrapping_sub(b) as i32) < 0 { b } else { a });
        let Some(newest) = newest else { return };
        let left = self.next.wrapping_sub(self.acknowledged);
        let mut lost = 0;
        for bit in 0..end.min(left) {
            let is_lost = (order(self, bit).wrapping_sub(newest) as i32) < 0;
            if is_lost && (self.peer_kept | self.to_resend) >> bit & 1 == 0 {
                self.to_resend |= 1 << bit;
                lost += 1;
            }
        }
        if lost == 0 {
            return;
        }
        self.counters.recoveries += 1;
        self.round_trip.cancel();
        self.round_trip.lost(&self.parameters);
        let least = bounds::HALVED_WINDOW_MIN.min(self.parameters.window);
        self.window = match self.parameters.after_loss {
            AfterLoss::Keep => self.window,
            AfterLoss::Halve => self.window.saturating_sub(lost).max(least).min(self.window),
            AfterLoss::One => 1,
        };
        self.grown = 0;
    }

    /// The peer keeps these, counted from V(A).
    pub(super) fn note_kept(&mut self, kept: u128) {
        let under_way = self.outstanding();
        let mask = if under_way >= u128::BITS { u128::MAX } else { (1 << under_way) - 1 };
        self.peer_kept |= kept & mask & !1;
        self.to_resend &= !self.peer_kept;
        self.next = self.beyond_kept(self.next);
    }

    /// From an index on, the first PDU that is to be sent: what the peer keeps is left out.
    #[inline]
    pub(super) fn beyond_kept(&self, index: u32) -> u32 {
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
