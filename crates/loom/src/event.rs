// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replacement of an eventfd. As in the kernel, setting it wakes all sleepers, and those go back to sleep if another
//! has reset it before they run.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::edge::Result;
use crate::mutant::Mutant;

pub(crate) struct Event(Mutex<bool>, Condvar);

impl Event {
    pub fn new() -> Result<Self> {
        Ok(Self(Mutex::new(false), Condvar::new()))
    }

    pub fn set(&self) {
        if !Mutant::NoWake.is() {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }
    }

    pub fn take(&self) {
        *self.0.lock().unwrap() = false;
    }

    /// A timeout may expire at any moment.
    pub fn wait(&self, _: &[RawFd], patience: Option<Duration>) -> bool {
        if patience.is_some() {
            loom::thread::yield_now();
        }
        let mut is_set = self.0.lock().unwrap();
        while !*is_set && patience.is_none() {
            is_set = self.1.wait(is_set).unwrap();
        }
        *is_set
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        unreachable!("an event of a model has no descriptor")
    }
}
