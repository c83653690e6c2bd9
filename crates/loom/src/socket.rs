// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replacement of a pipe's socket: room for one byte in each direction, the hardest case.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

use crate::mutant::Mutant;

/// Whether a byte is queued, and the sleepers that wait for it.
type Inbox = (Mutex<bool>, Condvar);

pub(crate) struct Socket(Arc<Inbox>, Arc<Inbox>);

impl Socket {
    pub(crate) fn pair() -> [Self; 2] {
        let [a, b] = [(); 2].map(|()| Arc::new((Mutex::new(false), Condvar::new())));
        [Self(a.clone(), b.clone()), Self(b, a)]
    }

    /// `poll` for reading.
    pub(crate) fn sleep(&self) {
        let mut is_readable = self.0.0.lock().unwrap();
        while !*is_readable {
            is_readable = self.0.1.wait(is_readable).unwrap();
        }
    }

    /// Another handle of this end.
    pub(crate) fn duplicate(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }

    pub(crate) fn wake(&self) {
        if !Mutant::NoWake.is() {
            *self.1.0.lock().unwrap() = true;
            self.1.1.notify_all();
        }
    }

    pub(crate) fn take_wakes(&self, _: &mut bool) -> bool {
        *self.0.0.lock().unwrap() = false;
        true
    }

    pub(crate) fn is_hung_up(&self, _: Option<BorrowedFd<'_>>) -> bool {
        false
    }

    pub(crate) fn shut_down(&self) {
        unreachable!("no end of a model violates the protocol")
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("a socket of a model has no descriptor")
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Socket")
    }
}
