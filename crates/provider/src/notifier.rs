// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakes sleeping threads by a descriptor that is readable once something has happened.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use crate::edge::Result;
use crate::event::Event;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// Wakes threads that sleep until an operation has completed.
pub(crate) struct Notifier {
    event: Event,
    sleepers: AtomicUsize,
    /// The first sleeper, which sleeps for its full patience, is present: no other thread clears the event before it
    /// has seen it.
    has_first_sleeper: AtomicBool,
    /// Set by `fi_cq_signal`: the wait ends without a completion.
    is_signalled: AtomicBool,
}

/// A registration for one call of [`Notifier::sleep`].
#[must_use]
pub(crate) struct Sleeper {
    is_first: bool,
}

/// Longest sleep of all but the first sleeper: the first may clear the event before the others have seen it.
const SHARED_SLEEP_MAX: Duration = Duration::from_millis(1);

impl Notifier {
    pub fn new() -> Result<Self> {
        let event = Event::new()?;
        Ok(Self {
            event,
            sleepers: AtomicUsize::new(0),
            has_first_sleeper: AtomicBool::new(false),
            is_signalled: AtomicBool::new(false),
        })
    }

    /// Wakes the sleepers; if there are none, the next sleep returns at once.
    pub fn notify(&self) {
        self.event.set();
    }

    /// Ends the current wait, or the next one.
    pub fn signal(&self) {
        self.is_signalled.store(true, Ordering::Relaxed);
        self.notify();
    }

    /// Whether it was signalled; clears the signal.
    pub fn was_signalled(&self) -> bool {
        self.is_signalled.load(Ordering::Relaxed) && self.is_signalled.swap(false, Ordering::Relaxed)
    }

    #[inline]
    pub fn notify_if_awaited(&self) {
        if self.is_awaited() {
            self.notify();
        }
    }

    /// Whether a thread sleeps, or is about to.
    pub fn is_awaited(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Announces a sleeper. Called with the domain's lock held, so that no completion is missed.
    pub fn register(&self) -> Sleeper {
        let is_first = self.sleepers.fetch_add(1, Ordering::AcqRel) == 0;
        if is_first {
            self.has_first_sleeper.store(true, Ordering::Relaxed);
        }
        Sleeper { is_first }
    }

    /// Sleeps until notified, until one of `descriptors` is readable, or for `patience`. True if notified.
    pub fn sleep(&self, sleeper: Sleeper, descriptors: &[RawFd], patience: Option<Duration>) -> bool {
        let Sleeper { is_first } = sleeper;
        let patience =
            if is_first { patience } else { Some(patience.map_or(SHARED_SLEEP_MAX, |p| p.min(SHARED_SLEEP_MAX))) };
        let is_notified = self.event.wait(descriptors, patience);
        // No other thread becomes the first before this one has left.
        if is_first || !self.has_first_sleeper.load(Ordering::Acquire) {
            self.event.take();
        }
        if is_first {
            self.has_first_sleeper.store(false, Ordering::Release);
        }
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
        is_notified
    }

    /// Clears the event, unless a thread sleeps on it.
    pub fn clear(&self) {
        if !self.is_awaited() {
            self.event.take();
        }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.descriptor()
    }
}
