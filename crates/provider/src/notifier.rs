// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waking who sleeps: a descriptor that can be read once something has happened.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use crate::edge::Result;
use crate::event::Event;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// For those who sleep until something ends.
pub(crate) struct Notifier {
    event: Event,
    sleepers: AtomicUsize,
    /// The first of them is there, who sleeps for as long as it likes: nobody else stops the notifier before it has heard it.
    has_first: AtomicBool,
    /// The program has notified it, so that a wait ends without anything to tell.
    is_signalled: AtomicBool,
}

/// One of those who sleep at a notifier.
#[must_use]
pub(crate) struct Sleeper {
    is_first: bool,
}

/// Whoever comes to a notifier at which another sleeps: that one may stop it before this one has heard it.
const SHARED_SLEEP: Duration = Duration::from_millis(1);

impl Notifier {
    pub fn new() -> Result<Self> {
        let event = Event::new()?;
        Ok(Self {
            event,
            sleepers: AtomicUsize::new(0),
            has_first: AtomicBool::new(false),
            is_signalled: AtomicBool::new(false),
        })
    }

    /// Wakes who sleeps, and keeps the next from sleeping.
    pub fn notify(&self) {
        self.event.set();
    }

    /// Ends a wait: that of who sleeps, or the next.
    pub fn signal(&self) {
        self.is_signalled.store(true, Ordering::Relaxed);
        self.notify();
    }

    /// Whether it was signalled; true once for each.
    pub fn was_signalled(&self) -> bool {
        self.is_signalled.swap(false, Ordering::Relaxed)
    }

    #[inline]
    pub fn notify_if_awaited(&self) {
        if self.is_awaited() {
            self.notify();
        }
    }

    /// Whether somebody sleeps at it.
    pub fn is_awaited(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// From now on it is notified. Called with the domain's lock held, so that nothing ends unheard.
    pub fn await_it(&self) -> Sleeper {
        let is_first = self.sleepers.fetch_add(1, Ordering::AcqRel) == 0;
        if is_first {
            self.has_first.store(true, Ordering::Relaxed);
        }
        Sleeper { is_first }
    }

    /// Sleeps until it is notified, which is true, one of `others` can be read, or `patience` has passed.
    pub fn sleep(&self, sleeper: Sleeper, others: &[RawFd], patience: Option<Duration>) -> bool {
        let Sleeper { is_first } = sleeper;
        let patience = if is_first { patience } else { Some(patience.map_or(SHARED_SLEEP, |p| p.min(SHARED_SLEEP))) };
        let is_notified = self.event.wait(others, patience);
        // Nobody can become the first before this one has left.
        if is_first || !self.has_first.load(Ordering::Acquire) {
            self.event.take();
        }
        if is_first {
            self.has_first.store(false, Ordering::Release);
        }
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
        is_notified
    }

    /// Makes it silent again, unless somebody sleeps at it.
    pub fn stop(&self) {
        if !self.is_awaited() {
            self.event.take();
        }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.descriptor()
    }
}
