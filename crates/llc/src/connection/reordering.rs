// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a gap is given to close by itself: on a network that keeps the order not at all, since a gap is a loss there; on
//! one whose paths have unequal delays as long as PDUs were late. The sender marks what it sends again, so that the late
//! ones are known.

use crate::bounds;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reordering {
    /// When the last gap was seen.
    seen: Instant,
    wait_ns: u64,
}

impl Default for Reordering {
    fn default() -> Self {
        Self { seen: Instant::NEVER, wait_ns: 0 }
    }
}

impl Reordering {
    #[inline]
    pub fn wait_ns(&self) -> u64 {
        self.wait_ns
    }

    /// A PDU came that lies behind a gap, a known one or not.
    pub fn gap_seen(&mut self, is_known: bool, now: Instant) {
        if !is_known {
            self.seen = now;
        }
    }

    /// What was missing came: late, or sent again.
    pub fn gap_closed(&mut self, was_sent_again: bool, now: Instant) {
        if was_sent_again {
            self.wait_ns -= self.wait_ns / 8;
            if self.wait_ns < SHORTEST_NS {
                self.wait_ns = 0;
            }
        } else {
            self.was_late(now);
        }
    }

    /// What was sent again in the meantime came for the first time.
    pub fn came_after_all(&mut self, was_sent_again: bool, now: Instant) {
        if !was_sent_again {
            self.was_late(now);
        }
    }

    fn was_late(&mut self, now: Instant) {
        if self.seen == Instant::NEVER {
            return;
        }
        let late_ns = now.nanos_since(self.seen);
        // What comes as late as that was held up, not overtaken.
        if late_ns <= MOST_NS {
            self.wait_ns = self.wait_ns.max(late_ns + late_ns / 2).clamp(SHORTEST_NS, MOST_NS);
        }
    }
}

const MOST_NS: u64 = bounds::REORDERING_MAX.as_nanos() as u64;
const SHORTEST_NS: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ns: u64) -> Instant {
        Instant::from_nanos(now_ns)
    }

    #[test]
    fn on_an_ordered_network_a_gap_is_a_loss_at_once() {
        let mut reordering = Reordering::default();
        for n in 0..100 {
            reordering.gap_seen(false, at(n * 1000));
            reordering.gap_closed(true, at(n * 1000 + 50_000));
            assert_eq!(reordering.wait_ns(), 0);
        }
    }

    #[test]
    fn a_gap_is_given_as_long_as_pdus_were_late_until_they_are_lost_instead() {
        let mut reordering = Reordering::default();
        reordering.gap_seen(false, at(1000));
        reordering.gap_seen(true, at(30_000));
        reordering.gap_closed(false, at(41_000));
        assert_eq!(reordering.wait_ns(), 60_000);
        for n in 1..50 {
            reordering.gap_seen(false, at(n * 1_000_000));
            reordering.gap_closed(true, at(n * 1_000_000 + 300_000));
        }
        assert_eq!(reordering.wait_ns(), 0);
    }

    #[test]
    fn what_was_sent_again_in_vain_shows_how_late_the_first_was_and_what_took_far_longer_shows_nothing() {
        let mut reordering = Reordering::default();
        reordering.gap_seen(false, at(1000));
        reordering.gap_closed(true, at(50_000));
        reordering.came_after_all(false, at(101_000));
        assert_eq!(reordering.wait_ns(), 150_000);
        reordering.came_after_all(false, at(1 << 40));
        reordering.came_after_all(true, at(200_000));
        assert_eq!(reordering.wait_ns(), 150_000);
    }
}
