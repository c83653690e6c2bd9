// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals as bytes in a socket, so that poll sees them.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// What a signal asks for.
pub enum Signal {
    /// SIGTERM, SIGINT.
    End,
    /// SIGHUP.
    Reload,
}

/// The receiving end.
pub struct Signals {
    woken: UnixStream,
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// # Errors
    /// What the system says.
    pub fn catch() -> io::Result<Self> {
        let (woken, wakes) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let signals = Self { woken, end: Arc::default(), reload: Arc::default() };
        // The flag comes before the byte that wakes.
        for (signal, said) in [(SIGTERM, &signals.end), (SIGINT, &signals.end), (SIGHUP, &signals.reload)] {
            flag::register(signal, Arc::clone(said))?;
            low_level::pipe::register(signal, wakes.try_clone()?)?;
        }
        Ok(signals)
    }

    /// What was asked since the last call.
    pub fn take(&mut self) -> Vec<Signal> {
        // Full or empty, one read leaves it quiet or comes again.
        let _ = self.woken.read(&mut [0; 64]);
        let mut asked = vec![];
        if self.reload.swap(false, Ordering::AcqRel) {
            asked.push(Signal::Reload);
        }
        if self.end.swap(false, Ordering::AcqRel) {
            asked.push(Signal::End);
        }
        asked
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}
