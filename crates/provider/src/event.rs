// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An event that a thread can wait for together with other descriptors.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use crate::edge::{Errno, Result};

pub(crate) struct Event(EventFd);

pub(crate) fn nix_errno(error: nix::Error) -> Errno {
    Errno(error as i32 as u32)
}

impl Event {
    pub fn new() -> Result<Self> {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(nix_errno).map(Self)
    }

    pub fn set(&self) {
        // Fails only if the counter is at its maximum, and then it is set.
        let _ = self.0.write(1);
    }

    /// Clears it.
    pub fn take(&self) {
        // Fails if it is not set.
        let _ = self.0.read();
    }

    /// Sleeps until it is set, until one of `descriptors` is readable, or for `patience`. True if set. May return
    /// early.
    pub fn wait(&self, descriptors: &[RawFd], patience: Option<Duration>) -> bool {
        // SAFETY: the program does not close an endpoint of a domain while it sleeps in a call on one of that domain's
        // objects. An endpoint may be closed while another domain's sleep or the progress thread's includes its
        // descriptors; ppoll accepts a closed descriptor or a new one with its number, and at worst returns early.
        let descriptors = descriptors.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
        let mut all: Vec<PollFd<'_>> =
            descriptors.chain([self.0.as_fd()]).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // The caller makes progress in any case, also after an error.
        let _ = ppoll(&mut all, patience.map(TimeSpec::from_duration), None);
        all.last().and_then(PollFd::any).unwrap_or(false)
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
