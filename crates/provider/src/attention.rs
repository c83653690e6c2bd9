// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a domain's progress thread and the program know of each other without the domain's lock.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::edge::Result;
use crate::event::of_system;

/// Whether the progress thread is needed. Whoever has the domain's lock asks for it.
pub(crate) struct Attention {
    /// Grows whenever the program makes progress by itself.
    turns: AtomicU64,
    /// What it was when the progress thread looked last, or was asked.
    seen: AtomicU64,
    /// Something is under way.
    is_asked_for: AtomicBool,
    /// And something could not be sent yet.
    is_urgent: AtomicBool,
    /// The progress thread does all that the program does not, asked or not.
    is_automatic: bool,
    /// Nanoseconds to the progress thread's next look, if that is urgent.
    look_after: AtomicU64,
    /// Wakes it.
    timer: TimerFd,
}

/// A program that has made no progress for so long is computing: less than a rendezvous of 64 KiB takes at 1 Gb/s.
const COMPUTES_AFTER: Duration = Duration::from_micros(200);
/// Between two urgent looks at a program that makes progress by itself: each takes the core from it, so the next comes
/// after twice the time, up to this.
const LOOK_AFTER_MAX: Duration = Duration::from_millis(2);
/// Between two looks that are not urgent: a lost frame takes as long to be noticed.
const WATCH_AFTER: Duration = Duration::from_millis(20);

impl Attention {
    pub fn new(is_automatic: bool) -> Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(of_system)?;
        let [is_asked_for, is_urgent] = [is_automatic; 2].map(AtomicBool::new);
        let look_after = AtomicU64::new(COMPUTES_AFTER.as_nanos() as u64);
        let [turns, seen] = [0; 2].map(AtomicU64::new);
        Ok(Self { turns, seen, is_asked_for, is_urgent, is_automatic, look_after, timer })
    }

    /// The program makes progress by itself.
    #[inline]
    pub fn not_needed_now(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_asked_for(&self) -> bool {
        self.is_asked_for.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// From now on the progress thread looks after what is under way, should the program not.
    #[cold]
    pub fn ask_for(&self, is_urgent: bool) {
        self.seen.store(self.turns.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_asked_for.store(true, Ordering::Relaxed);
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
        let after = if is_urgent { self.look_after() } else { WATCH_AFTER };
        // The time is within bounds; and without it the progress thread comes later by itself.
        let _ = self.timer.set(Expiration::OneShot(TimeSpec::from_duration(after)), TimerSetTimeFlags::empty());
    }

    /// Whether the program has made progress since the progress thread's last look, or since it was asked for.
    pub fn has_turned(&self) -> bool {
        let now = self.turns.load(Ordering::Relaxed);
        self.seen.swap(now, Ordering::Relaxed) != now
    }

    /// The program makes progress by itself; after how long the progress thread looks again, if nothing changes.
    pub fn watch(&self) -> Duration {
        if !self.is_urgent() {
            return WATCH_AFTER;
        }
        let after = (2 * self.look_after()).min(LOOK_AFTER_MAX);
        self.look_after.store(after.as_nanos() as u64, Ordering::Relaxed);
        after
    }

    /// All could be sent.
    pub fn calm_down(&self) {
        self.is_urgent.store(self.is_automatic, Ordering::Relaxed);
    }

    /// The program computes.
    pub fn take_over(&self) {
        self.look_after.store(COMPUTES_AFTER.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Nothing is under way any more.
    pub fn dismiss(&self) {
        self.is_asked_for.store(self.is_automatic, Ordering::Relaxed);
        self.calm_down();
    }

    fn look_after(&self) -> Duration {
        Duration::from_nanos(self.look_after.load(Ordering::Relaxed))
    }

    /// What the progress thread sleeps on; can be read once it is to look.
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_fd().as_raw_fd()
    }

    /// The progress thread is awake.
    pub fn heard(&self) {
        // Nothing of the timer's that could be wrong.
        let _ = self.timer.unset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_makes_progress_is_looked_at_less_often_and_one_that_does_not_computes() {
        let attention = Attention::new(false).unwrap();
        assert!(!attention.is_asked_for() && !attention.has_turned());
        attention.not_needed_now();
        attention.ask_for(true);
        assert!(attention.is_asked_for() && attention.is_urgent());
        assert!(!attention.has_turned(), "what was before it was asked does not count");
        for doubled in [2, 4, 8] {
            attention.not_needed_now();
            assert!(attention.has_turned());
            assert_eq!(attention.watch(), COMPUTES_AFTER * doubled);
        }
        assert_eq!([attention.watch(), attention.watch()], [LOOK_AFTER_MAX; 2]);
        attention.calm_down();
        assert_eq!((attention.is_asked_for(), attention.watch()), (true, WATCH_AFTER));
        attention.take_over();
        attention.ask_for(true);
        assert_eq!(attention.watch(), 2 * COMPUTES_AFTER);
        attention.dismiss();
        assert!(!attention.is_asked_for() && !attention.is_urgent());
    }

    #[test]
    fn automatic_progress_needs_no_asking_and_cannot_be_dismissed() {
        let attention = Attention::new(true).unwrap();
        attention.calm_down();
        attention.dismiss();
        assert!(attention.is_asked_for() && attention.is_urgent());
    }
}
