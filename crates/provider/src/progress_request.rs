// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that the program and a domain's progress thread share without the domain's lock.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::backoff::CoreSharing;
use crate::edge::Result;
use crate::event::nix_errno;

/// What a program posts that does not complete at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// What could not be sent.
    Send,
    /// A receive, while receives wait for more than fits a window.
    Receive,
}

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
    /// Bit n: the program has posted the nth of [`Posted`], and made no progress since.
    waiting: AtomicU8,
    /// By [`Posted`]: since when, in nanoseconds after `origin`.
    waiting_since: [AtomicU64; 2],
    origin: Instant,
    /// By [`Posted`]: the program computed when it last did so.
    computes_next: [AtomicBool; 2],
    /// More ranks than cores: a program without a core seems to compute.
    is_oversubscribed: bool,
    /// Wakes the progress thread.
    timer: TimerFd,
}

/// A program that has made no progress for this long after a post computes, if it computed after the previous one.
const PROMPT_INTERVAL: Duration = Duration::from_micros(50);
/// A program that has made no progress for this long is computing: less than a rendezvous of 64 KiB takes at 1 Gbit/s.
const INTERVAL_MIN: Duration = Duration::from_micros(200);
/// Limit of the interval between urgent checks of a program that makes progress by itself. Each check takes the core
/// from the program, so each doubles the interval.
const INTERVAL_MAX: Duration = Duration::from_millis(2);
/// Interval between checks that are not urgent: detecting a lost frame takes as long.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

impl ProgressRequest {
    pub fn new(is_automatic: bool, core_sharing: CoreSharing) -> Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(nix_errno)?;
        let [is_requested, is_urgent] = [is_automatic; 2].map(AtomicBool::new);
        let interval = AtomicU64::new(INTERVAL_MIN.as_nanos() as u64);
        let [program_progress, seen_progress] = [0; 2].map(AtomicU64::new);
        let origin = Instant::now();
        Ok(Self {
            program_progress,
            seen_progress,
            is_requested,
            is_urgent,
            is_automatic,
            interval,
            waiting: AtomicU8::new(0),
            waiting_since: [0; 2].map(AtomicU64::new),
            origin,
            computes_next: [false; 2].map(AtomicBool::new),
            is_oversubscribed: core_sharing == CoreSharing::Oversubscribed,
            timer,
        })
    }

    /// The program makes progress by itself.
    #[inline]
    pub fn note_program_progress(&self) {
        self.program_progress.store(self.program_progress.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.note_progress_after_post();
        }
    }

    /// The program has posted what does not complete at once. If it computed after such a post before, progress is
    /// requested promptly.
    #[cold]
    pub fn note_waiting(&self, posted: Posted) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if self.is_oversubscribed || waiting & 1 << posted as u8 != 0 {
            return;
        }
        self.waiting.store(waiting | 1 << posted as u8, Ordering::Relaxed);
        self.waiting_since[posted as usize].store(self.origin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if self.computes_next[posted as usize].load(Ordering::Relaxed) {
            self.request_after(PROMPT_INTERVAL, true);
        }
    }

    #[cold]
    fn note_progress_after_post(&self) {
        let now = self.origin.elapsed();
        let waiting = self.waiting.swap(0, Ordering::Relaxed);
        for posted in [Posted::Send, Posted::Receive].into_iter().filter(|posted| waiting & 1 << *posted as u8 != 0) {
            let since = Duration::from_nanos(self.waiting_since[posted as usize].load(Ordering::Relaxed));
            self.learn(posted, now.saturating_sub(since));
        }
    }

    /// The program has made no progress for so long after a post.
    fn learn(&self, posted: Posted, after: Duration) {
        let has_computed = after >= PROMPT_INTERVAL;
        if self.computes_next[posted as usize].swap(has_computed, Ordering::Relaxed) && !has_computed {
            // The prompt request was not needed.
            self.set_timer(self.interval());
        }
    }

    #[inline]
    pub fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// Whether the progress thread makes all progress while the program makes none.
    pub fn is_automatic(&self) -> bool {
        self.is_automatic
    }

    /// More ranks than cores.
    pub fn is_oversubscribed(&self) -> bool {
        self.is_oversubscribed
    }

    /// Requests progress in case the program makes none.
    #[cold]
    pub fn request(&self, is_urgent: bool) {
        self.request_after(if is_urgent { self.interval() } else { IDLE_INTERVAL }, is_urgent);
    }

    fn request_after(&self, after: Duration, is_urgent: bool) {
        self.seen_progress.store(self.program_progress.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_requested.store(true, Ordering::Relaxed);
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
        self.set_timer(after);
    }

    fn set_timer(&self, after: Duration) {
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
        let progress_request = ProgressRequest::new(false, CoreSharing::Unknown).unwrap();
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

    /// Proves that a program that computes after posts gets progress promptly, and one that polls is left alone.
    #[test]
    fn a_program_that_computes_after_posts_gets_progress_promptly() {
        let due = |request: &ProgressRequest| match request.timer.get().unwrap() {
            Some(Expiration::OneShot(due)) => Some(Duration::from(due)),
            _ => None,
        };
        let progress_request = ProgressRequest::new(false, CoreSharing::Unknown).unwrap();
        let other = |posted| if posted == Posted::Send { Posted::Receive } else { Posted::Send };
        for posted in [Posted::Send, Posted::Receive] {
            let learn = |after| {
                progress_request.waiting.store(0, Ordering::Relaxed);
                progress_request.learn(posted, after);
            };
            progress_request.note_waiting(posted);
            assert_eq!(due(&progress_request), None, "nothing is known of the program yet");
            learn(PROMPT_INTERVAL);
            progress_request.note_waiting(other(posted));
            assert_eq!(due(&progress_request), None, "nothing is known of the other kind");
            progress_request.note_waiting(posted);
            // Already over, on a busy machine.
            assert!(due(&progress_request).is_none_or(|due| due <= PROMPT_INTERVAL));
            assert!(progress_request.is_urgent() && !progress_request.has_program_progressed());
            learn(PROMPT_INTERVAL / 2);
            assert!(due(&progress_request).is_none_or(|due| due <= INTERVAL_MIN));
            progress_request.disarm();
            progress_request.note_waiting(posted);
            assert_eq!(due(&progress_request), None, "the program polled after its last post");
            progress_request.note_program_progress();
            assert_eq!(progress_request.waiting.load(Ordering::Relaxed), 0);
            // Whatever this took.
            learn(Duration::ZERO);
            progress_request.disarm();
        }
    }

    #[test]
    fn automatic_progress_needs_no_request_and_cannot_be_cancelled() {
        let progress_request = ProgressRequest::new(true, CoreSharing::Unknown).unwrap();
        progress_request.clear_urgency();
        progress_request.cancel();
        assert!(progress_request.is_requested() && progress_request.is_urgent());
    }
}
