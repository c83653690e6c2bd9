// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Poisoning of a domain. A panic leaves its state inconsistent, and a forked child shares rings and sockets with its
//! parent: in both cases every later call on the domain's objects returns an error and touches nothing.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::edge::{Errno, Result};
use crate::event::nix_errno;

/// Whether a domain is poisoned.
pub(crate) struct Poison {
    /// The error that every call returns; 0 unless poisoned.
    error: AtomicU32,
    /// Readable from the moment a panic poisons the domain; every sleep includes it.
    event: EventFd,
}

impl Poison {
    pub fn new() -> Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(nix_errno)?;
        Ok(Self { error: AtomicU32::new(0), event })
    }

    /// # Errors
    /// The reason, if the domain is poisoned.
    #[inline]
    pub fn check(&self) -> Result<()> {
        // The caller has the domain's lock, under which it was set, or checks again later.
        match self.error.load(Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(Errno(error)),
        }
    }

    /// Poisons the domain after a panic and wakes all sleepers, which then return with an error.
    #[cold]
    pub fn after_panic(&self) {
        self.error.store(Errno::OTHER.0, Ordering::Relaxed);
        // Fails only if the counter is at its maximum, and then it is readable.
        let _ = self.event.write(1);
    }

    /// Poisons the domain in a forked child. Wakes no sleepers, since the parent shares the event.
    pub fn in_child(&self) {
        self.error.store(Errno::BAD_STATE.0, Ordering::Relaxed);
    }

    /// The descriptor that becomes readable after a panic.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_fd().as_raw_fd()
    }
}
