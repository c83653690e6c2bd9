// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a side waits: spinning, sleeping in the kernel, or first one, then the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{INTERRUPTED, peer_silent};
use crate::protocol::Wait;
use crate::transport::{SLEEP_MAX, Transport};
use barewire_endpoint::{WaitPolicy, Waiting};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Idle iterations between two clock readings; a reading costs as much as several iterations.
const ITERATIONS_PER_CLOCK_READ: u32 = 512;
/// The same for adaptive waiting, whose limit is microseconds.
const ITERATIONS_PER_CLOCK_READ_ADAPTIVE: u32 = 32;
/// Interval of interrupt and transport checks while idle.
const CHECK_INTERVAL_NS: u64 = 1_000_000;

/// The waiting policy of a session.
pub fn patience_for(wait: Wait, yields: bool) -> WaitPolicy {
    let waiting = match wait {
        Wait::Spin => Waiting::Spin,
        Wait::Adaptive => Waiting::Adaptive,
        Wait::Block | Wait::Busypoll => Waiting::Block,
    };
    WaitPolicy::new(waiting, yields)
}

/// Time keeping of an idle loop.
pub struct Idle {
    iterations: u32,
    /// Iterations between two clock readings.
    stride: u32,
    yields: bool,
    /// Spins now; false once it sleeps.
    spins: bool,
    /// How long it spins.
    spin_limit_ns: u64,
    began_ns: u64,
    checked_ns: u64,
}

impl Idle {
    pub fn new(policy: &WaitPolicy) -> Self {
        let (spins, yields) = (policy.spins(), policy.shares_core());
        // Sleeping or yielding takes long; a spinning iteration costs less than reading the clock.
        let stride = match (spins && !yields, policy.sleeps()) {
            (false, _) => 1,
            (true, true) => ITERATIONS_PER_CLOCK_READ_ADAPTIVE,
            (true, false) => ITERATIONS_PER_CLOCK_READ,
        };
        let spin_limit_ns = if policy.sleeps() { WaitPolicy::SPIN_TIME.as_nanos() as u64 } else { u64::MAX };
        Self { iterations: 0, stride, yields, spins, spin_limit_ns, began_ns: 0, checked_ns: 0 }
    }

    /// Whether this wait has not slept yet.
    #[inline]
    pub fn is_spinning(&self) -> bool {
        self.spins
    }

    /// How long the next receive may sleep.
    #[inline]
    pub fn patience(&self) -> Duration {
        if self.spins { Duration::ZERO } else { SLEEP_MAX }
    }

    pub fn since_ns(&self) -> u64 {
        if self.began_ns == 0 { 0 } else { now_ns() - self.began_ns }
    }

    /// One idle iteration; `true` after each periodic check of the transport.
    #[inline]
    pub fn tick(&mut self, transport: &mut dyn Transport) -> Result<bool, LaunchError> {
        self.iterations += 1;
        if self.yields {
            std::thread::yield_now();
        }
        if self.iterations < self.stride {
            return Ok(false);
        }
        self.iterations = 0;
        let now = now_ns();
        if self.began_ns == 0 {
            (self.began_ns, self.checked_ns) = (now, now);
        }
        if self.spins && now - self.began_ns > self.spin_limit_ns {
            (self.spins, self.stride) = (false, 1);
        }
        if now - self.checked_ns < CHECK_INTERVAL_NS {
            return Ok(false);
        }
        self.checked_ns = now;
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(LaunchError::Interrupted);
        }
        transport.check()?;
        Ok(true)
    }

    /// One idle iteration; an error after `limit_ns`.
    pub fn tick_within(&mut self, transport: &mut dyn Transport, limit_ns: u64) -> Result<(), LaunchError> {
        if self.tick(transport)? && self.since_ns() > limit_ns { Err(peer_silent()) } else { Ok(()) }
    }
}
