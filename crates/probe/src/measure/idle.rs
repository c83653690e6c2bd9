// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a side waits: asking again and again, asleep in the kernel, or the one after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{INTERRUPTED, silence};
use crate::protocol::Wait;
use crate::transport::{LONGEST_SLEEP, Transport};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Turns of an idle loop between two looks at the clock, which costs as much as several turns.
const TURNS_PER_LOOK: u32 = 512;
/// The same while every microsecond counts.
const TURNS_PER_CLOSE_LOOK: u32 = 32;
/// Nothing was received for so long: look whether the transport is still there.
const CHECK_AFTER_NS: u64 = 1_000_000;
/// An adaptive side asks for so long before it sleeps. About what sleeping and waking costs (measured,
/// `docs/performance.md`): so its wait is never worse than twice the better of the two.
const SPIN_NS: u64 = 50_000;
/// After so many waits in a row that asking did not end …
const FRUITLESS_MAX: u32 = 4;
/// … it sleeps at once, and asks only in one of so many.
const ASKS_AGAIN_EVERY: u32 = 16;

/// What a side knows about its own waits.
pub struct Waiting {
    wait: Wait,
    give_way: bool,
    /// Waits in a row that asking did not end.
    fruitless: u32,
}

impl Waiting {
    pub fn new(wait: Wait, give_way: bool) -> Self {
        Self { wait, give_way, fruitless: 0 }
    }

    /// Whether a wait may sleep.
    pub fn sleeps(&self) -> bool {
        self.wait != Wait::Spin
    }

    /// Whether others want this core.
    pub fn gives_way(&self) -> bool {
        self.give_way
    }

    /// Whether the next wait begins with asking.
    fn spins(&self) -> bool {
        match self.wait {
            Wait::Spin => true,
            // Who shares its core keeps the other side from answering while it asks, and who gives the core away
            // again and again gets it back last (measured: two milliseconds instead of 20 µs).
            Wait::Adaptive => {
                !self.give_way && (self.fruitless < FRUITLESS_MAX || self.fruitless.is_multiple_of(ASKS_AGAIN_EVERY))
            }
            Wait::Block | Wait::Busypoll => false,
        }
    }

    /// A wait has ended.
    #[inline]
    pub fn learn(&mut self, idle: &Idle) {
        if self.wait == Wait::Adaptive {
            self.fruitless = if idle.spins { 0 } else { self.fruitless.wrapping_add(1) };
        }
    }
}

/// An idle loop's sense of time.
pub struct Idle {
    turns: u32,
    /// Turns between two looks at the clock.
    stride: u32,
    give_way: bool,
    /// Whether it still asks.
    spins: bool,
    /// When asking ends.
    spin_limit_ns: u64,
    began_ns: u64,
    checked_ns: u64,
}

impl Idle {
    pub fn new(waiting: &Waiting) -> Self {
        let spins = waiting.spins();
        // A turn that sleeps or gives way is long; one that spins costs less than reading the clock.
        let stride = match waiting.wait {
            _ if !spins || waiting.give_way => 1,
            Wait::Adaptive => TURNS_PER_CLOSE_LOOK,
            _ => TURNS_PER_LOOK,
        };
        let spin_limit_ns = if waiting.sleeps() { SPIN_NS } else { u64::MAX };
        Self { turns: 0, stride, give_way: waiting.give_way, spins, spin_limit_ns, began_ns: 0, checked_ns: 0 }
    }

    /// How long the next look may sleep.
    #[inline]
    pub fn patience(&self) -> Duration {
        if self.spins { Duration::ZERO } else { LONGEST_SLEEP }
    }

    pub fn since_ns(&self) -> u64 {
        if self.began_ns == 0 { 0 } else { now_ns() - self.began_ns }
    }

    /// One idle turn; `true` now and then, after looking whether the transport is still there.
    #[inline]
    pub fn looks(&mut self, transport: &mut dyn Transport) -> Result<bool, LaunchError> {
        self.turns += 1;
        if self.give_way {
            std::thread::yield_now();
        }
        if self.turns < self.stride {
            return Ok(false);
        }
        self.turns = 0;
        let now = now_ns();
        if self.began_ns == 0 {
            (self.began_ns, self.checked_ns) = (now, now);
        }
        if self.spins && now - self.began_ns > self.spin_limit_ns {
            (self.spins, self.stride) = (false, 1);
        }
        if now - self.checked_ns < CHECK_AFTER_NS {
            return Ok(false);
        }
        self.checked_ns = now;
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(LaunchError::Interrupted);
        }
        transport.check()?;
        Ok(true)
    }

    /// One idle turn of somebody who cannot give up.
    pub fn turn(&mut self, transport: &mut dyn Transport, limit_ns: u64) -> Result<(), LaunchError> {
        if self.looks(transport)? && self.since_ns() > limit_ns { Err(silence()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that asking ended, or did not.
    fn wait(waiting: &mut Waiting, is_ended_by_asking: bool) -> bool {
        let mut idle = Idle::new(waiting);
        let began_with_asking = idle.patience().is_zero();
        idle.spins &= is_ended_by_asking;
        waiting.learn(&idle);
        began_with_asking
    }

    #[test]
    fn an_adaptive_side_stops_asking_where_that_does_not_help_and_tries_again_now_and_then() {
        let mut waiting = Waiting::new(Wait::Adaptive, false);
        assert!((0..FRUITLESS_MAX).all(|_| wait(&mut waiting, false)));
        let asked = (0..10 * ASKS_AGAIN_EVERY).filter(|_| wait(&mut waiting, false)).count();
        assert_eq!(asked, 10);
        // As soon as asking helps, it asks.
        while !wait(&mut waiting, true) {}
        assert!((0..100).all(|_| wait(&mut waiting, true)));
    }

    #[test]
    fn who_shares_a_core_sleeps_at_once_unless_told_to_spin() {
        for (choice, expected) in [(Wait::Spin, true), (Wait::Adaptive, false), (Wait::Block, false)] {
            assert_eq!(Idle::new(&Waiting::new(choice, true)).patience().is_zero(), expected, "{choice:?}");
        }
    }
}
