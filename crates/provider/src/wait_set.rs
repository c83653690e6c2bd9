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

/// One descriptor (`FI_WAIT_FD`) for everything that a queue or counter waits for. It stays the same, since a program
/// adds it to its own set once.
pub(crate) struct WaitSet {
    /// The notifier of the queue or counter, `timer`, and `members`.
    epoll: Epoll,
    timer: TimerFd,
    members: Epoll,
    /// Those in `members`.
    descriptors: Vec<RawFd>,
}

impl WaitSet {
    pub fn new(notifier: &Notifier) -> Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(nix_errno)?;
        let (epoll, members) = (new_epoll()?, new_epoll()?);
        for descriptor in [notifier.descriptor(), timer.as_fd(), members.0.as_fd()] {
            add(&epoll, descriptor)?;
        }
        Ok(Self { epoll, timer, members, descriptors: Vec::new() })
    }

    /// Removes all members, including closed descriptors that a forked child still holds open: the kernel keeps these
    /// in the set, and no call can remove them.
    #[cold]
    fn renew(&mut self) -> Result<()> {
        let members = new_epoll()?;
        add(&self.epoll, members.0.as_fd())?;
        // A forked child may hold it open, too.
        self.epoll.delete(&self.members.0).map_err(nix_errno)?;
        self.members = members;
        self.descriptors.clear();
        Ok(())
    }

    pub fn descriptor(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    /// Makes it readable once one of `descriptors` is, or after `patience`.
    pub fn arm(&mut self, descriptors: &[RawFd], patience: Option<Duration>) -> Result<()> {
        let is_removed = |removed: &RawFd| {
            // SAFETY: for a closed descriptor, or another one with its number, the kernel returns an error.
            self.members.delete(unsafe { BorrowedFd::borrow_raw(*removed) }).is_ok()
        };
        if !self.descriptors.iter().filter(|member| !descriptors.contains(member)).all(is_removed) {
            self.renew()?;
        }
        for descriptor in descriptors {
            // SAFETY: open, as `Event::wait` says.
            add(&self.members, unsafe { BorrowedFd::borrow_raw(*descriptor) })?;
        }
        self.descriptors.clear();
        self.descriptors.extend_from_slice(descriptors);
        match patience {
            Some(patience) => {
                let due = Expiration::OneShot(TimeSpec::from_duration(patience.max(Duration::from_nanos(1))));
                self.timer.set(due, TimerSetTimeFlags::empty()).map_err(nix_errno)
            }
            None => self.timer.unset().map_err(nix_errno),
        }
    }
}

fn new_epoll() -> Result<Epoll> {
    Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(nix_errno)
}

fn add(epoll: &Epoll, descriptor: BorrowedFd<'_>) -> Result<()> {
    match epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, 0)) {
        Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
        Err(error) => Err(nix_errno(error)),
    }
}
