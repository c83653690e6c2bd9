// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pace of a sender without flow control: unlimited until messages are lost.

/// After loss the pace becomes this share of the delivered rate.
const BELOW_LOSS: f64 = 0.98;
/// After a block without loss the pace grows by this factor, which squares with each further one.
const GROWTH: f64 = 1.02;
const GROWTH_MAX: f64 = 2.0;

/// Searches for the highest rate without loss, in wire bits per second; `None` is unlimited.
pub struct RateSearch {
    /// Rate of the link, if known.
    limit_bit_s: Option<f64>,
    pace_bit_s: Option<f64>,
    growth: f64,
    was_lossy: bool,
}

impl RateSearch {
    pub fn new(limit_bit_s: Option<f64>) -> Self {
        Self { limit_bit_s, pace_bit_s: limit_bit_s, growth: GROWTH, was_lossy: false }
    }

    pub fn pace_bit_s(&self) -> Option<f64> {
        self.pace_bit_s
    }

    /// Records a block without loss. Earlier loss may have been transient: a stalled receiver, a burst of other
    /// traffic.
    pub fn succeeded(&mut self) {
        self.was_lossy = false;
        let limit = self.limit_bit_s.unwrap_or(f64::INFINITY);
        self.pace_bit_s = self.pace_bit_s.map(|pace| (pace * self.growth).min(limit));
        self.growth = (self.growth * self.growth).min(GROWTH_MAX);
    }

    /// Records a block with loss. `delivered_bit_s` is the sent rate times the share received, not the receiver's
    /// rate, which a single stall would make far too low. Only a second consecutive loss slows the sender down.
    pub fn lost(&mut self, delivered_bit_s: f64) {
        self.growth = GROWTH;
        if std::mem::replace(&mut self.was_lossy, true) {
            let pace = delivered_bit_s.min(self.pace_bit_s.unwrap_or(f64::INFINITY));
            self.pace_bit_s = Some(pace * BELOW_LOSS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paces of `blocks` blocks over a link of rate `capacity`, from a sender of rate `sender`.
    fn search(capacity: f64, sender: f64, blocks: usize) -> Vec<f64> {
        let mut search = RateSearch::new(None);
        (0..blocks)
            .map(|_| {
                let sent = search.pace_bit_s().unwrap_or(sender).min(sender);
                if sent > capacity {
                    search.lost(capacity)
                } else {
                    search.succeeded()
                }
                sent
            })
            .collect()
    }

    #[test]
    fn pace_converges_just_below_the_rate_of_a_slow_link() {
        let paces = search(1e9, 11e9, 30);
        let without_loss: Vec<_> = paces[3..].iter().filter(|pace| **pace <= 1e9).collect();
        assert!(without_loss.len() >= 12, "{paces:?}");
        assert!(without_loss.iter().all(|pace| **pace > 0.95e9), "{paces:?}");
    }

    #[test]
    fn one_lossy_block_changes_nothing_and_two_are_recovered_from() {
        let mut search = RateSearch::new(None);
        search.lost(1e6);
        search.succeeded();
        assert_eq!(search.pace_bit_s(), None);
        search.lost(1e6);
        search.lost(1e6);
        assert_eq!(search.pace_bit_s(), Some(0.98e6));
        (0..15).for_each(|_| search.succeeded());
        assert!(search.pace_bit_s().unwrap() > 1e9);
    }

    #[test]
    fn a_known_rate_is_never_exceeded() {
        let mut search = RateSearch::new(Some(1e9));
        (0..10).for_each(|_| search.succeeded());
        assert_eq!(search.pace_bit_s(), Some(1e9));
    }
}
