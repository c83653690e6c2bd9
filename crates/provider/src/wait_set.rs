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
    /// The notifier of the queue or counter, which lives as long as this.
    notifier: RawFd,
    members: Vec<RawFd>,
}

impl WaitSet {
    pub fn new(notifier: &Notifier) -> Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(nix_errno)?;
        let notifier = notifier.descriptor();
        Ok(Self {
            epoll: epoll_of([notifier, timer.as_fd()])?,
            timer,
            notifier: notifier.as_raw_fd(),
            members: Vec::new(),
        })
    }

    /// Removes all members, including closed descriptors that a forked child still holds open: the kernel keeps these
    /// in the set, and no call can remove them.
    #[cold]
    fn renew(&mut self) -> Result<()> {
        // SAFETY: open as long as this is.
        let notifier = unsafe { BorrowedFd::borrow_raw(self.notifier) };
        let renewed = epoll_of([notifier, self.timer.as_fd()])?;
        // The program knows the descriptor by its number.
        // SAFETY: both are open, and this one is replaced by the kernel at once.
        if unsafe { libc::dup3(renewed.0.as_raw_fd(), self.descriptor(), libc::O_CLOEXEC) } < 0 {
            return Err(nix_errno(nix::Error::last()));
        }
        self.members.clear();
        Ok(())
    }

    pub fn descriptor(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    /// Makes it readable once one of `descriptors` is, or after `patience`.
    pub fn arm(&mut self, descriptors: &[RawFd], patience: Option<Duration>) -> Result<()> {
        let is_removed = |removed: &RawFd| {
            // SAFETY: for a closed descriptor, or another one with its number, the kernel returns an error.
            self.epoll.delete(unsafe { BorrowedFd::borrow_raw(*removed) }).is_ok()
        };
        if !self.members.iter().filter(|member| !descriptors.contains(member)).all(is_removed) {
            self.renew()?;
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

fn epoll_of(always: [BorrowedFd<'_>; 2]) -> Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(nix_errno)?;
    for one in always {
        epoll.add(one, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(nix_errno)?;
    }
    Ok(epoll)
}
