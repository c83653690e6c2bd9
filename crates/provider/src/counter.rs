// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted of operations that have ended.

use barewire_endpoint::Patience;

use crate::notifier::Notifier;
use crate::wait_set::WaitSet;

/// What it counts is kept by the endpoints; here is what was added by hand.
pub(crate) struct Counter {
    pub value: u64,
    pub errors: u64,
    /// Endpoints that it is bound to, and what of theirs it counts.
    pub bound: Vec<(usize, u64)>,
    pub notifier: Notifier,
    /// The descriptor that a program sleeps on, if it asked for one.
    pub set: Option<WaitSet>,
    /// Perhaps it does now.
    pub is_armed: bool,
    pub patience: Patience,
}

impl Counter {
    pub fn new(notifier: Notifier, set: Option<WaitSet>, patience: Patience) -> Self {
        Self { value: 0, errors: 0, bound: Vec::new(), notifier, set, is_armed: false, patience }
    }

    /// An endpoint is closed; what it counted stays.
    pub fn unbind(&mut self, endpoint: usize, ended: impl Fn(u64) -> (u64, u64)) {
        for (_, what) in self.bound.extract_if(.., |(number, _)| *number == endpoint) {
            let (worked, failed) = ended(what);
            self.value = self.value.wrapping_add(worked);
            self.errors = self.errors.wrapping_add(failed);
        }
    }

    /// Something that it counts has changed.
    pub fn changed(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.notifier.notify();
        }
        self.notifier.notify_if_awaited();
    }
}
