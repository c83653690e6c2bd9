// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that the program and a domain's progress thread share without the domain's lock.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::edge::Result;
use crate::event::nix_errno;

/// Whether the progress thread is needed. Requested with the domain's lock held.
pub(crate) struct ProgressRequest {
    /// Counts the program's own progress.
    program_progress: AtomicU64,
    /// Value of `program_progress` at the progress thread's last check, or when it was requested.
    seen_progress: AtomicU64,
    /// Messages are under way.
    is_requested: AtomicBool,
    /// Some of them could not be sent yet.
    is_urgent: AtomicBool,
    /// Automatic progress: always requested and urgent.
    is_automatic: bool,
    /// Nanoseconds until the next urgent check.
    interval: AtomicU64,
    /// Wakes the progress thread.
    timer: TimerFd,
}

/// A program that has made no progress for this long is computing: less than a rendezvous of 64 KiB takes at 1 Gbit/s.
const INTERVAL_MIN: Duration = Duration::from_micros(200);
/// Limit of the interval between urgent checks of a program that makes progress by itself. Each check takes the core
/// from the program, so each doubles the interval.
const INTERVAL_MAX: Duration = Duration::from_millis(2);
/// Interval between checks that are not urgent: detecting a lost frame takes as long.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

impl ProgressRequest {
    pub fn new(is_automatic: bool) -> Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(nix_errno)?;
        let [is_requested, is_urgent] = [is_automatic; 2].map(AtomicBool::new);
        let interval = AtomicU64::new(INTERVAL_MIN.as_nanos() as u64);
        let [program_progress, seen_progress] = [0; 2].map(AtomicU64::new);
        Ok(Self { program_progress, seen_progress, is_requested, is_urgent, is_automatic, interval, timer })
    }

    /// The program makes progress by itself.
    #[inline]
    pub fn note_program_progress(&self) {
        self.program_progress.store(self.program_progress.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// Requests progress in case the program makes none.
    #[cold]
    pub fn request(&self, is_urgent: bool) {
        self.seen_progress.store(self.program_progress.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_requested.store(true, Ordering::Relaxed);
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
        let after = if is_urgent { self.interval() } else { IDLE_INTERVAL };
        // The time is within bounds; and if the timer failed, the progress thread would check later anyway.
        let _ = self.timer.set(Expiration::OneShot(TimeSpec::from_duration(after)), TimerSetTimeFlags::empty());
    }

    /// Whether the program has made progress since the progress thread's last check, or since the request.
    pub fn has_program_progressed(&self) -> bool {
        let now = self.program_progress.load(Ordering::Relaxed);
        self.seen_progress.swap(now, Ordering::Relaxed) != now
    }

    /// The time until the next check of a program that makes progress by itself.
    pub fn next_interval(&self) -> Duration {
        if !self.is_urgent() {
            return IDLE_INTERVAL;
        }
        let after = (2 * self.interval()).min(INTERVAL_MAX);
        self.interval.store(after.as_nanos() as u64, Ordering::Relaxed);
        after
    }

    /// The longest time until the next check of a program that is not known to make progress.
    pub fn longest_interval(&self) -> Duration {
        if self.is_urgent() { INTERVAL_MAX } else { IDLE_INTERVAL }
    }

    /// Everything could be sent.
    pub fn clear_urgency(&self) {
        self.is_urgent.store(self.is_automatic, Ordering::Relaxed);
    }

    /// The program computes: urgent checks start again with the shortest interval.
    pub fn reset_interval(&self) {
        self.interval.store(INTERVAL_MIN.as_nanos() as u64, Ordering::Relaxed);
    }

    /// No message is under way any more.
    pub fn cancel(&self) {
        self.is_requested.store(self.is_automatic, Ordering::Relaxed);
        self.clear_urgency();
    }

    fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval.load(Ordering::Relaxed))
    }

    /// The descriptor that the progress thread sleeps on; readable when a check is due.
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_fd().as_raw_fd()
    }

    /// Stops the timer: the progress thread is awake.
    pub fn disarm(&self) {
        // Cannot fail for a valid timer.
        let _ = self.timer.unset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_makes_progress_is_checked_less_often() {
        let progress_request = ProgressRequest::new(false).unwrap();
        assert!(!progress_request.is_requested() && !progress_request.has_program_progressed());
        progress_request.note_program_progress();
        progress_request.request(true);
        assert!(progress_request.is_requested() && progress_request.is_urgent());
        assert!(!progress_request.has_program_progressed(), "progress before the request does not count");
        for doubled in [2, 4, 8] {
            progress_request.note_program_progress();
            assert!(progress_request.has_program_progressed());
            assert_eq!(progress_request.next_interval(), INTERVAL_MIN * doubled);
        }
        assert_eq!([progress_request.next_interval(), progress_request.next_interval()], [INTERVAL_MAX; 2]);
        progress_request.clear_urgency();
        assert_eq!((progress_request.is_requested(), progress_request.next_interval()), (true, IDLE_INTERVAL));
        progress_request.reset_interval();
        progress_request.request(true);
        assert_eq!(progress_request.next_interval(), 2 * INTERVAL_MIN);
        progress_request.cancel();
        assert!(!progress_request.is_requested() && !progress_request.is_urgent());
    }

    #[test]
    fn automatic_progress_needs_no_request_and_cannot_be_cancelled() {
        let progress_request = ProgressRequest::new(true).unwrap();
        progress_request.clear_urgency();
        progress_request.cancel();
        assert!(progress_request.is_requested() && progress_request.is_urgent());
    }
}
