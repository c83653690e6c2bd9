// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals delivered through a socket, for poll (self-pipe).

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// Meaning of a signal.
pub enum Signal {
    /// SIGTERM, SIGINT.
    End,
    /// SIGHUP.
    Reload,
}

/// The receiving end of the self-pipe.
pub struct Signals {
    receiver: UnixStream,
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// # Errors
    /// The system's error.
    pub fn catch() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        let signals = Self { receiver, end: Arc::default(), reload: Arc::default() };
        // The flag must be set before the byte wakes poll.
        for (signal, pending) in [(SIGTERM, &signals.end), (SIGINT, &signals.end), (SIGHUP, &signals.reload)] {
            flag::register(signal, Arc::clone(pending))?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(signals)
    }

    /// The signals received since the last call.
    pub fn take(&mut self) -> Vec<Signal> {
        // One read suffices: unread bytes make poll return again.
        let _ = self.receiver.read(&mut [0; 64]);
        let mut received = vec![];
        if self.reload.swap(false, Ordering::AcqRel) {
            received.push(Signal::Reload);
        }
        if self.end.swap(false, Ordering::AcqRel) {
            received.push(Signal::End);
        }
        received
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}
