// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completion counters.

use barewire_endpoint::WaitPolicy;

use crate::notifier::Notifier;
use crate::wait_set::WaitSet;

/// What a counter is bound to, by its number in the domain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Endpoint(usize),
    Region(usize),
}

/// A completion counter. The counts themselves are kept by the endpoints and regions.
pub(crate) struct Counter {
    /// Added by the program and by endpoints and regions that were closed, less the counts from before each binding.
    pub value: u64,
    pub errors: u64,
    /// The endpoints and regions that it is bound to, each with the binding's flags.
    pub bound: Vec<(Counted, u64)>,
    pub notifier: Notifier,
    /// The descriptor that the program sleeps on, if it requested one.
    pub set: Option<WaitSet>,
    /// A waiter may be blocked on `set`.
    pub is_armed: bool,
    pub patience: WaitPolicy,
}

impl Counter {
    pub fn new(notifier: Notifier, set: Option<WaitSet>, patience: WaitPolicy) -> Self {
        Self { value: 0, errors: 0, bound: Vec::new(), notifier, set, is_armed: false, patience }
    }

    /// Unbinds an endpoint or region that is closed, and keeps its counts.
    pub fn unbind(&mut self, closed: Counted, completed: impl Fn(u64) -> (u64, u64)) {
        for (_, flags) in self.bound.extract_if(.., |(counted, _)| *counted == closed) {
            let (succeeded, failed) = completed(flags);
            self.value = self.value.wrapping_add(succeeded);
            self.errors = self.errors.wrapping_add(failed);
        }
    }

    /// Wakes all threads that wait for a change.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.notifier.notify();
        }
        self.notifier.notify_if_awaited();
    }
}
