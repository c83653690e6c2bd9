// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replay protection: the counters that were received from a peer; each is accepted once.

/// The newest counter and the ones shortly before it.
///
/// ```text
///            old: refused  |  WIDTH counters, one bit each  | newest |  new: all accepted
/// ```
pub(crate) struct ReplayWindow {
    newest: u64,
    /// Bit `counter % WIDTH`: received.
    seen: [u64; WORDS],
}

/// How far frames of a connection may overtake each other: more than a window of them and its S PDUs.
pub(crate) const WIDTH: u64 = 1024;
const WORDS: usize = (WIDTH / 64) as usize;

impl ReplayWindow {
    /// A window for a peer whose first counter is `first`.
    pub fn new(first: u64) -> Self {
        let mut window = Self { newest: first, seen: [0; WORDS] };
        window.mark(first);
        window
    }

    /// Whether a counter is acceptable; records it as received. Counters wrap around.
    #[inline]
    pub fn accept(&mut self, counter: u64) -> bool {
        let ahead = counter.wrapping_sub(self.newest);
        if ahead as i64 > 0 {
            if ahead >= WIDTH {
                self.seen = [0; WORDS];
            } else {
                (1..=ahead).for_each(|step| self.clear(self.newest.wrapping_add(step)));
            }
            self.newest = counter;
        } else if ahead.wrapping_neg() >= WIDTH || self.is_marked(counter) {
            return false;
        }
        self.mark(counter);
        true
    }

    #[inline]
    fn bit_of(counter: u64) -> (usize, u64) {
        let bit = counter % WIDTH;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    #[inline]
    fn mark(&mut self, counter: u64) {
        let (word, bit) = Self::bit_of(counter);
        self.seen[word] |= bit;
    }

    #[inline]
    fn clear(&mut self, counter: u64) {
        let (word, bit) = Self::bit_of(counter);
        self.seen[word] &= !bit;
    }

    #[inline]
    fn is_marked(&self, counter: u64) -> bool {
        let (word, bit) = Self::bit_of(counter);
        self.seen[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Proves that a counter is accepted exactly if it is neither a repetition nor too old, for any first counter:
        /// against a set of all accepted counters.
        #[test]
        fn window_agrees_with_a_set(
            start in prop_oneof![Just(0_u64), Just(u64::MAX - 1500), any::<u64>()],
            steps in prop::collection::vec(prop_oneof![0_i64..3, -1100_i64..1100, -3000_i64..3000], 0..2000),
        ) {
            let mut window = ReplayWindow::new(start);
            // As distances from the start, which do not wrap around.
            let (mut newest, mut accepted) = (0_i64, HashSet::from([0_i64]));
            for step in steps {
                let counter = newest + step;
                let is_new = counter > newest - WIDTH as i64 && !accepted.contains(&counter);
                prop_assert_eq!(window.accept(start.wrapping_add_signed(counter)), is_new, "{} of {}", counter, newest);
                if is_new {
                    accepted.insert(counter);
                    newest = newest.max(counter);
                }
            }
        }
    }

    #[test]
    fn the_oldest_acceptable_counter_is_one_window_behind_the_newest() {
        let mut window = ReplayWindow::new(5000);
        assert!(!window.accept(5000 - WIDTH) && window.accept(5001 - WIDTH) && !window.accept(5001 - WIDTH));
        assert!(!window.accept(5000), "the first is a repetition");
    }
}
