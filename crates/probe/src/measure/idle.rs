// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a side waits: asking again and again, asleep in the kernel, or the one after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{INTERRUPTED, silence};
use crate::protocol::Wait;
use crate::transport::{LONGEST_SLEEP, Transport};
use barewire_endpoint::{WaitPolicy, Waiting};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Turns of an idle loop between two looks at the clock, which costs as much as several turns.
const TURNS_PER_LOOK: u32 = 512;
/// The same while every microsecond counts.
const TURNS_PER_CLOSE_LOOK: u32 = 32;
/// Nothing was received for so long: look whether the transport is still there.
const CHECK_AFTER_NS: u64 = 1_000_000;
/// How a side that waits as the session says asks and sleeps.
pub fn patience_of(wait: Wait, give_way: bool) -> WaitPolicy {
    let waiting = match wait {
        Wait::Spin => Waiting::Spin,
        Wait::Adaptive => Waiting::Adaptive,
        Wait::Block | Wait::Busypoll => Waiting::Block,
    };
    WaitPolicy::new(waiting, give_way)
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
    pub fn new(patience: &WaitPolicy) -> Self {
        let (spins, give_way) = (patience.spins(), patience.shares_core());
        // A turn that sleeps or gives way is long; one that spins costs less than reading the clock.
        let stride = match (spins && !give_way, patience.sleeps()) {
            (false, _) => 1,
            (true, true) => TURNS_PER_CLOSE_LOOK,
            (true, false) => TURNS_PER_LOOK,
        };
        let spin_limit_ns = if patience.sleeps() { WaitPolicy::SPIN_TIME.as_nanos() as u64 } else { u64::MAX };
        Self { turns: 0, stride, give_way, spins, spin_limit_ns, began_ns: 0, checked_ns: 0 }
    }

    /// Whether the wait that ends now never slept.
    #[inline]
    pub fn still_asks(&self) -> bool {
        self.spins
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
