// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How to wait for a message: asking again and again, asleep in the kernel, or the one after the other.

use std::time::Duration;

/// The policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Ask again and again: the shortest wait, and a core for it.
    Spin,
    /// Ask for a while, then sleep: never worse than twice the better of the two.
    #[default]
    Adaptive,
    /// Sleep at once.
    Block,
}

/// After so many waits in a row that asking did not end …
const FRUITLESS_MAX: u32 = 4;
/// … an adaptive waiter sleeps at once, and asks only in one of so many.
const ASKS_AGAIN_EVERY: u32 = 16;

/// A policy, and what a waiter has learnt about its own waits.
#[derive(Clone, Debug)]
pub struct Patience {
    waiting: Waiting,
    shares_core: bool,
    /// Waits in a row that asking did not end.
    fruitless: u32,
}

impl Patience {
    /// An adaptive waiter asks for so long before it sleeps. About what sleeping and waking costs (measured,
    /// `docs/performance.md`).
    pub const ASKING: Duration = Duration::from_micros(50);

    /// For a waiter that others want the core of, or not.
    #[must_use]
    pub const fn new(waiting: Waiting, shares_core: bool) -> Self {
        Self { waiting, shares_core, fruitless: 0 }
    }

    /// Whether a wait may sleep.
    #[inline]
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.waiting != Waiting::Spin
    }

    /// Whether others want the core.
    #[inline]
    #[must_use]
    pub const fn shares_core(&self) -> bool {
        self.shares_core
    }

    /// Whether the next wait begins with asking.
    #[inline]
    #[must_use]
    pub fn asks(&self) -> bool {
        match self.waiting {
            Waiting::Spin => true,
            // Who shares its core keeps the other side from answering while it asks, and who gives the core away
            // again and again gets it back last (measured: two milliseconds instead of 20 µs).
            Waiting::Adaptive => {
                !self.shares_core && (self.fruitless < FRUITLESS_MAX || self.fruitless.is_multiple_of(ASKS_AGAIN_EVERY))
            }
            Waiting::Block => false,
        }
    }

    /// A wait has ended: by asking, or after a sleep.
    #[inline]
    pub fn learn(&mut self, is_ended_by_asking: bool) {
        if self.waiting == Waiting::Adaptive {
            self.fruitless = if is_ended_by_asking { 0 } else { self.fruitless.wrapping_add(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that asking ended, or did not; whether it began with asking.
    fn wait(patience: &mut Patience, is_ended_by_asking: bool) -> bool {
        let asks = patience.asks();
        patience.learn(asks && is_ended_by_asking);
        asks
    }

    #[test]
    fn an_adaptive_waiter_stops_asking_where_that_does_not_help_and_tries_again_now_and_then() {
        let mut patience = Patience::new(Waiting::Adaptive, false);
        assert!((0..FRUITLESS_MAX).all(|_| wait(&mut patience, false)));
        let asked = (0..10 * ASKS_AGAIN_EVERY).filter(|_| wait(&mut patience, false)).count();
        assert_eq!(asked, 10);
        // As soon as asking helps, it asks.
        while !wait(&mut patience, true) {}
        assert!((0..100).all(|_| wait(&mut patience, true)));
    }

    #[test]
    fn who_shares_a_core_sleeps_at_once_unless_told_to_spin() {
        for (waiting, expected) in [(Waiting::Spin, true), (Waiting::Adaptive, false), (Waiting::Block, false)] {
            assert_eq!(Patience::new(waiting, true).asks(), expected, "{waiting:?}");
        }
    }
}
