// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a domain's helper thread and the program know of each other without the domain's lock.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::bell::of_system;
use crate::edge::Result;

/// Whether the helper is needed. The program's side is written to by whoever has the domain's lock.
pub(crate) struct Attention {
    /// Grows whenever the program makes progress by itself.
    turns: AtomicU64,
    /// The helper looks whether the program still does.
    is_asked_for: AtomicBool,
    /// It always does.
    is_automatic: bool,
    /// Wakes it.
    timer: TimerFd,
}

/// A program that has not asked for so long is computing: less than a rendezvous of 64 KiB takes at 1 Gb/s.
pub(crate) const COMPUTES_AFTER: Duration = Duration::from_micros(200);

impl Attention {
    pub fn new(is_automatic: bool) -> Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(of_system)?;
        Ok(Self { turns: AtomicU64::new(0), is_asked_for: AtomicBool::new(is_automatic), is_automatic, timer })
    }

    /// The program makes progress by itself.
    #[inline]
    pub fn not_needed_now(&self) {
        self.turns.store(self.turns() + 1, Ordering::Relaxed);
    }

    /// How often it did.
    #[inline]
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_asked_for(&self) -> bool {
        self.is_asked_for.load(Ordering::Relaxed)
    }

    /// Something is under way: from now on the helper looks after it, should the program not.
    #[cold]
    pub fn ask_for(&self) {
        self.is_asked_for.store(true, Ordering::Relaxed);
        // A time within bounds; and without it the helper comes later by itself.
        let _ =
            self.timer.set(Expiration::OneShot(TimeSpec::from_duration(COMPUTES_AFTER)), TimerSetTimeFlags::empty());
    }

    /// Nothing is under way any more.
    pub fn dismiss(&self) {
        self.is_asked_for.store(self.is_automatic, Ordering::Relaxed);
    }

    /// What the helper sleeps on; can be read once it is asked for.
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_fd().as_raw_fd()
    }

    /// The helper is awake.
    pub fn heard(&self) {
        // Refused at most by a system that knows no such timers, which did not make it either.
        let _ = self.timer.unset();
    }
}
