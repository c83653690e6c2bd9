// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A domain out of service. A panic leaves its state half changed, and a forked child shares rings and sockets with its
//! parent: in both cases every later call on the domain's objects returns an error and touches nothing.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::edge::{Errno, Result};
use crate::event::of_system;

/// Whether a domain is in service.
pub(crate) struct Poison {
    /// What every call returns; 0 while the domain is in service.
    error: AtomicU32,
    /// Readable for good once a panic has put the domain out of service: sleepers await it.
    event: EventFd,
}

impl Poison {
    pub fn new() -> Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(of_system)?;
        Ok(Self { error: AtomicU32::new(0), event })
    }

    /// # Errors
    /// The reason, once the domain is out of service.
    #[inline]
    pub fn check(&self) -> Result<()> {
        // The caller has the domain's lock, under which it was set, or looks again later.
        match self.error.load(Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(Errno(error)),
        }
    }

    /// A panic has left the state half changed: wakes all who sleep, so that they return with an error.
    #[cold]
    pub fn after_panic(&self) {
        self.error.store(Errno::OTHER.0, Ordering::Relaxed);
        // Only a counter at its end refuses, and that one is readable.
        let _ = self.event.write(1);
    }

    /// This process is a child of the one that opened the domain. Wakes nobody: the event is the parent's, too.
    pub fn in_child(&self) {
        self.error.store(Errno::BAD_STATE.0, Ordering::Relaxed);
    }

    /// What sleepers await.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_fd().as_raw_fd()
    }
}
