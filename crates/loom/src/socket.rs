// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In place of a pipe's socket: it has room for one byte in each direction, the hardest case there is.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

use crate::mutant::Mutant;

/// Whether a byte is there, and who sleeps until one is.
type Inbox = (Mutex<bool>, Condvar);

pub(crate) struct Socket(Arc<Inbox>, Arc<Inbox>);

impl Socket {
    pub(crate) fn pair() -> [Self; 2] {
        let [one, two] = [(); 2].map(|()| Arc::new((Mutex::new(false), Condvar::new())));
        [Self(one.clone(), two.clone()), Self(two, one)]
    }

    /// `poll` for reading.
    pub(crate) fn sleep(&self) {
        let mut is_there = self.0.0.lock().unwrap();
        while !*is_there {
            is_there = self.0.1.wait(is_there).unwrap();
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
        unreachable!("no end of a model breaks the rules")
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
