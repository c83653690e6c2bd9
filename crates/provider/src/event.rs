// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flag that a thread can sleep on, together with other descriptors.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use crate::edge::{Errno, Result};

pub(crate) struct Event(EventFd);

pub(crate) fn of_system(error: nix::Error) -> Errno {
    Errno(error as i32 as u32)
}

impl Event {
    pub fn new() -> Result<Self> {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(of_system).map(Self)
    }

    pub fn set(&self) {
        // Only a counter at its end refuses, and that one is set.
        let _ = self.0.write(1);
    }

    /// Takes it back.
    pub fn take(&self) {
        // An error says that it was not set.
        let _ = self.0.read();
    }

    /// Sleeps until it is set, which is true, one of `others` can be read, or `patience` has passed. It may return early.
    pub fn wait(&self, others: &[RawFd], patience: Option<Duration>) -> bool {
        // SAFETY: the descriptors belong to endpoints of this domain, which the program does not close while it sleeps
        // in a call on one of its objects.
        let others = others.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
        let mut all: Vec<PollFd<'_>> =
            others.chain([self.0.as_fd()]).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Whatever it says, progress is made next.
        let _ = ppoll(&mut all, patience.map(TimeSpec::from_duration), None);
        all.last().and_then(PollFd::any).unwrap_or(false)
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
