// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program sleeps on by itself: all that its queue waits for, behind one descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::edge::Result;
use crate::event::of_system;
use crate::notifier::Notifier;

/// One descriptor for a program to sleep on (`FI_WAIT_FD`).
pub(crate) struct WaitSet {
    epoll: Epoll,
    timer: TimerFd,
    members: Vec<RawFd>,
}

impl WaitSet {
    pub fn new(notifier: &Notifier) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(of_system)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(of_system)?;
        for always in [notifier.descriptor(), timer.as_fd()] {
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
            // SAFETY: open, as `Event::wait` says.
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
