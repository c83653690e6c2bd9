// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long to wait for a gap to close by itself: not at all on a network that preserves order, where a gap is a loss;
//! as long as PDUs were late on one with paths of unequal delay. The sender flags retransmissions, so that the receiver
//! recognises late originals.

use crate::bounds;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reordering {
    /// When the last gap was detected.
    gap_since: Instant,
    wait_ns: u64,
}

impl Default for Reordering {
    fn default() -> Self {
        Self { gap_since: Instant::NEVER, wait_ns: 0 }
    }
}

impl Reordering {
    #[inline]
    pub fn wait_ns(&self) -> u64 {
        self.wait_ns
    }

    /// A PDU ahead of sequence was received. `is_known`: the gap was detected before.
    pub fn gap_detected(&mut self, is_known: bool, now: Instant) {
        if !is_known {
            self.gap_since = now;
        }
    }

    /// The missing PDU was received: a late original or a retransmission.
    pub fn gap_closed(&mut self, is_retransmission: bool, now: Instant) {
        if is_retransmission {
            self.wait_ns -= self.wait_ns / 8;
            if self.wait_ns < WAIT_MIN_NS {
                self.wait_ns = 0;
            }
        } else {
            self.was_late(now);
        }
    }

    /// A duplicate was received; if it is the original, the PDU was retransmitted needlessly.
    pub fn duplicate_received(&mut self, is_retransmission: bool, now: Instant) {
        if !is_retransmission {
            self.was_late(now);
        }
    }

    fn was_late(&mut self, now: Instant) {
        if self.gap_since == Instant::NEVER {
            return;
        }
        let late_ns = now.nanos_since(self.gap_since);
        // A PDU later than this was delayed, not reordered.
        if late_ns <= WAIT_MAX_NS {
            self.wait_ns = self.wait_ns.max(late_ns + late_ns / 2).clamp(WAIT_MIN_NS, WAIT_MAX_NS);
        }
    }
}

const WAIT_MAX_NS: u64 = bounds::REORDERING_MAX.as_nanos() as u64;
const WAIT_MIN_NS: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ns: u64) -> Instant {
        Instant::from_nanos(now_ns)
    }

    #[test]
    fn gap_on_an_ordered_network_is_a_loss_at_once() {
        let mut reordering = Reordering::default();
        for n in 0..100 {
            reordering.gap_detected(false, at(n * 1000));
            reordering.gap_closed(true, at(n * 1000 + 50_000));
            assert_eq!(reordering.wait_ns(), 0);
        }
    }

    #[test]
    fn wait_follows_lateness_and_decays_with_loss() {
        let mut reordering = Reordering::default();
        reordering.gap_detected(false, at(1000));
        reordering.gap_detected(true, at(30_000));
        reordering.gap_closed(false, at(41_000));
        assert_eq!(reordering.wait_ns(), 60_000);
        for n in 1..50 {
            reordering.gap_detected(false, at(n * 1_000_000));
            reordering.gap_closed(true, at(n * 1_000_000 + 300_000));
        }
        assert_eq!(reordering.wait_ns(), 0);
    }

    #[test]
    fn late_original_sets_the_wait_unless_far_too_late() {
        let mut reordering = Reordering::default();
        reordering.gap_detected(false, at(1000));
        reordering.gap_closed(true, at(50_000));
        reordering.duplicate_received(false, at(101_000));
        assert_eq!(reordering.wait_ns(), 150_000);
        reordering.duplicate_received(false, at(1 << 40));
        reordering.duplicate_received(true, at(200_000));
        assert_eq!(reordering.wait_ns(), 150_000);
    }
}
