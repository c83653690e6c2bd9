// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast a sender without flow control may send: as fast as it can, until messages are lost.

/// After loss the pace becomes this share of what got through.
const BELOW_LOSS: f64 = 0.98;
/// After a block without loss the pace grows by this factor, and faster with each further one.
const GROWTH: f64 = 1.02;
const GROWTH_MOST: f64 = 2.0;

/// Looks for the highest rate without loss, in wire bits per second; `None` is no pace at all.
pub struct RateSearch {
    /// What the link carries, if that is known.
    limit_bit_s: Option<f64>,
    pace_bit_s: Option<f64>,
    growth: f64,
    lost_before: bool,
}

impl RateSearch {
    pub fn new(limit_bit_s: Option<f64>) -> Self {
        Self { limit_bit_s, pace_bit_s: limit_bit_s, growth: GROWTH, lost_before: false }
    }

    pub fn pace_bit_s(&self) -> Option<f64> {
        self.pace_bit_s
    }

    /// Notes a block without loss. Loss may have been a moment's: a receiver held up, a burst of others.
    pub fn succeeded(&mut self) {
        self.lost_before = false;
        let limit = self.limit_bit_s.unwrap_or(f64::INFINITY);
        self.pace_bit_s = self.pace_bit_s.map(|pace| (pace * self.growth).min(limit));
        self.growth = (self.growth * self.growth).min(GROWTH_MOST);
    }

    /// Notes a block with loss, of which this rate got through: the share received of the rate sent, and
    /// not the receiver's own rate, which one hold-up would make far too low. Only a second such
    /// block in a row slows the sender down.
    pub fn lost(&mut self, got_through_bit_s: f64) {
        self.growth = GROWTH;
        if std::mem::replace(&mut self.lost_before, true) {
            let pace = got_through_bit_s.min(self.pace_bit_s.unwrap_or(f64::INFINITY));
            self.pace_bit_s = Some(pace * BELOW_LOSS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that carries `capacity` and a sender that can do `most`, for so many blocks; the paces tried.
    fn search(capacity: f64, most: f64, blocks: usize) -> Vec<f64> {
        let mut search = RateSearch::new(None);
        (0..blocks)
            .map(|_| {
                let sent = search.pace_bit_s().unwrap_or(most).min(most);
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
    fn a_link_slower_than_its_sender_is_soon_used_just_below_its_rate() {
        let paces = search(1e9, 11e9, 30);
        let without_loss: Vec<_> = paces[3..].iter().filter(|pace| **pace <= 1e9).collect();
        assert!(without_loss.len() >= 12, "{paces:?}");
        assert!(without_loss.iter().all(|pace| **pace > 0.95e9), "{paces:?}");
    }

    #[test]
    fn one_moment_of_loss_changes_nothing_and_two_are_soon_forgotten() {
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
