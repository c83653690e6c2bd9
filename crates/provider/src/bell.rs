// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waking who sleeps: a descriptor that can be read once something has happened.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::edge::{Errno, Result};

/// For those who sleep until something ends.
pub(crate) struct Bell {
    event: EventFd,
    sleepers: AtomicUsize,
    /// The program has rung it, so that a wait ends without anything to tell.
    is_signalled: AtomicBool,
}

/// Two who sleep at one bell: the first may stop it before the second has heard it.
const SHARED_SLEEP: Duration = Duration::from_millis(1);

pub(crate) fn of_system(error: nix::Error) -> Errno {
    Errno(error as i32 as u32)
}

impl Bell {
    pub fn new() -> Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(of_system)?;
        Ok(Self { event, sleepers: AtomicUsize::new(0), is_signalled: AtomicBool::new(false) })
    }

    /// Wakes who sleeps, and keeps the next from sleeping.
    pub fn ring(&self) {
        // Only a counter at its end refuses, and that one rings.
        let _ = self.event.write(1);
    }

    /// Ends a wait: that of who sleeps, or the next.
    pub fn signal(&self) {
        self.is_signalled.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Whether it was signalled; true once for each.
    pub fn was_signalled(&self) -> bool {
        self.is_signalled.swap(false, Ordering::Relaxed)
    }

    #[inline]
    pub fn ring_if_awaited(&self) {
        if self.is_awaited() {
            self.ring();
        }
    }

    /// Whether somebody sleeps at it.
    pub fn is_awaited(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// From now on it is rung. Called with the domain's lock held, so that nothing ends unheard.
    pub fn await_it(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// Sleeps until it rings, which is true, one of `others` can be read, or `patience` has passed.
    pub fn sleep(&self, others: &[RawFd], patience: Option<Duration>) -> bool {
        let shared = self.sleepers.load(Ordering::Relaxed) > 1;
        let patience = if shared { Some(patience.map_or(SHARED_SLEEP, |p| p.min(SHARED_SLEEP))) } else { patience };
        // SAFETY: the descriptors belong to endpoints of this domain, which the program does not close while it sleeps
        // in a call on one of its objects.
        let others = others.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
        let mut all: Vec<PollFd<'_>> =
            others.chain([self.event.as_fd()]).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Whatever it says, progress is made next.
        let _ = ppoll(&mut all, patience.map(TimeSpec::from_duration), None);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.stop()
    }

    /// Makes it silent again; whether it rang.
    pub fn stop(&self) -> bool {
        self.event.read().is_ok()
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// One descriptor for a program to sleep on (`FI_WAIT_FD`).
pub(crate) struct WaitSet {
    epoll: Epoll,
    timer: TimerFd,
    members: Vec<RawFd>,
}

impl WaitSet {
    pub fn new(bell: &Bell) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(of_system)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(of_system)?;
        for always in [bell.descriptor(), timer.as_fd()] {
            epoll.add(always, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(of_system)?;
        }
        Ok(Self { epoll, timer, members: Vec::new() })
    }

    pub fn descriptor(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    /// Can be read from now on once one of `others` can, or `patience` has passed.
    pub fn arm(&mut self, others: &[RawFd], patience: Option<Duration>) -> Result<()> {
        for gone in self.members.iter().filter(|member| !others.contains(member)) {
            // SAFETY: if it is closed by now, it is no member any more, and the kernel says so.
            let _ = self.epoll.delete(unsafe { BorrowedFd::borrow_raw(*gone) });
        }
        for other in others {
            // SAFETY: open, as `Bell::sleep` says.
            let added = unsafe { BorrowedFd::borrow_raw(*other) };
            match self.epoll.add(added, EpollEvent::new(EpollFlags::EPOLLIN, 0)) {
                Ok(()) | Err(nix::Error::EEXIST) => {}
                Err(error) => return Err(of_system(error)),
            }
        }
        self.members.clear();
        self.members.extend_from_slice(others);
        match patience {
            Some(patience) => {
                let due = Expiration::OneShot(TimeSpec::from_duration(patience.max(Duration::from_nanos(1))));
                self.timer.set(due, TimerSetTimeFlags::empty()).map_err(of_system)
            }
            None => self.timer.unset().map_err(of_system),
        }
    }
}
