// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for a message: by spinning, by sleeping in the kernel, or by spinning first.

use std::time::Duration;

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Spin: lowest latency, at the cost of a core.
    Spin,
    /// Spin for a while, then sleep: costs at most twice the better of the two.
    #[default]
    Adaptive,
    /// Sleep without spinning.
    Block,
}

/// After this many consecutive waits that spinning did not end …
const FUTILE_SPINS_MAX: u32 = 4;
/// … an adaptive waiter sleeps at once, and spins only in every n-th wait.
const SPIN_INTERVAL: u32 = 16;

/// A waiting policy with what was learnt from earlier waits.
#[derive(Clone, Debug)]
pub struct WaitPolicy {
    waiting: Waiting,
    shares_core: bool,
    /// Consecutive waits that spinning did not end.
    futile_spins: u32,
}

impl WaitPolicy {
    /// How long an adaptive waiter spins before it sleeps: about the cost of sleeping and waking (measured,
    /// `docs/performance.md`).
    pub const SPIN_TIME: Duration = Duration::from_micros(50);

    /// `shares_core`: other threads need the core.
    #[must_use]
    pub const fn new(waiting: Waiting, shares_core: bool) -> Self {
        Self { waiting, shares_core, futile_spins: 0 }
    }

    /// Whether a wait may sleep.
    #[inline]
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.waiting != Waiting::Spin
    }

    /// Whether other threads need the core.
    #[inline]
    #[must_use]
    pub const fn shares_core(&self) -> bool {
        self.shares_core
    }

    /// Whether the next wait starts by spinning.
    #[inline]
    #[must_use]
    pub fn spins(&self) -> bool {
        match self.waiting {
            Waiting::Spin => true,
            // On a shared core, spinning keeps the other side from answering, and a thread that yields repeatedly is
            // scheduled last (measured: 2 ms instead of 20 µs).
            Waiting::Adaptive => {
                !self.shares_core
                    && (self.futile_spins < FUTILE_SPINS_MAX || self.futile_spins.is_multiple_of(SPIN_INTERVAL))
            }
            Waiting::Block => false,
        }
    }

    /// Records how a wait has ended: while spinning, or after a sleep.
    #[inline]
    pub fn learn(&mut self, ended_spinning: bool) {
        if self.waiting == Waiting::Adaptive {
            self.futile_spins = if ended_spinning { 0 } else { self.futile_spins.wrapping_add(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that spinning ended or did not; returns whether it started by spinning.
    fn wait(policy: &mut WaitPolicy, ended_spinning: bool) -> bool {
        let spins = policy.spins();
        policy.learn(spins && ended_spinning);
        spins
    }

    #[test]
    fn an_adaptive_waiter_stops_spinning_when_it_is_futile_and_retries_periodically() {
        let mut policy = WaitPolicy::new(Waiting::Adaptive, false);
        assert!((0..FUTILE_SPINS_MAX).all(|_| wait(&mut policy, false)));
        let spinning = (0..10 * SPIN_INTERVAL).filter(|_| wait(&mut policy, false)).count();
        assert_eq!(spinning, 10);
        // Once spinning ends a wait, every wait spins again.
        while !wait(&mut policy, true) {}
        assert!((0..100).all(|_| wait(&mut policy, true)));
    }

    #[test]
    fn a_waiter_on_a_shared_core_sleeps_at_once_unless_the_policy_is_to_spin() {
        for (waiting, expected) in [(Waiting::Spin, true), (Waiting::Adaptive, false), (Waiting::Block, false)] {
            assert_eq!(WaitPolicy::new(waiting, true).spins(), expected, "{waiting:?}");
        }
    }
}
