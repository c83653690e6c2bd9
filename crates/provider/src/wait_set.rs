// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The descriptor of a queue or counter that a program polls itself.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::edge::Result;
use crate::event::nix_errno;
use crate::notifier::Notifier;

/// One descriptor (`FI_WAIT_FD`) for everything that a queue or counter waits for.
pub(crate) struct WaitSet {
    epoll: Epoll,
    timer: TimerFd,
    members: Vec<RawFd>,
}

impl WaitSet {
    pub fn new(notifier: &Notifier) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(nix_errno)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(nix_errno)?;
        for always in [notifier.descriptor(), timer.as_fd()] {
            epoll.add(always, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(nix_errno)?;
        }
        Ok(Self { epoll, timer, members: Vec::new() })
    }

    pub fn descriptor(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    /// Makes it readable once one of `descriptors` is, or after `patience`.
    pub fn arm(&mut self, descriptors: &[RawFd], patience: Option<Duration>) -> Result<()> {
        for removed in self.members.iter().filter(|member| !descriptors.contains(member)) {
            // SAFETY: a closed descriptor is no longer a member, and the kernel returns an error.
            let _ = self.epoll.delete(unsafe { BorrowedFd::borrow_raw(*removed) });
        }
        for descriptor in descriptors {
            // SAFETY: open, as `Event::wait` says.
            let added = unsafe { BorrowedFd::borrow_raw(*descriptor) };
            match self.epoll.add(added, EpollEvent::new(EpollFlags::EPOLLIN, 0)) {
                Ok(()) | Err(nix::Error::EEXIST) => {}
                Err(error) => return Err(nix_errno(error)),
            }
        }
        self.members.clear();
        self.members.extend_from_slice(descriptors);
        match patience {
            Some(patience) => {
                let due = Expiration::OneShot(TimeSpec::from_duration(patience.max(Duration::from_nanos(1))));
                self.timer.set(due, TimerSetTimeFlags::empty()).map_err(nix_errno)
            }
            None => self.timer.unset().map_err(nix_errno),
        }
    }
}
