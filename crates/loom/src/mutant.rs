// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bugs that the models must catch.

use std::cell::Cell;

use loom::sync::atomic::Ordering;

/// A bug in the modelled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// No fence between a side's store to its own word and its load of the other side's, in a pipe.
    NoFence,
    /// No fence between the program thread's flag and the progress thread's.
    NoLightFence,
    /// No membarrier in the progress thread.
    NoHeavyFence,
    /// Stores to words of this name are relaxed.
    RelaxedStores(&'static str),
    /// Loads of words of this name are relaxed.
    RelaxedLoads(&'static str),
    /// A wake-up is dropped.
    NoWake,
}

thread_local! {
    // loom runs all threads of a model on the one that started it.
    static CURRENT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

impl Mutant {
    /// Sets the bug of this thread's models.
    pub(crate) fn set(mutant: Option<Self>) {
        CURRENT.set(mutant);
    }

    pub(crate) fn is(self) -> bool {
        CURRENT.get() == Some(self)
    }

    pub(crate) fn of_store(name: &'static str, order: Ordering) -> Ordering {
        if Self::RelaxedStores(name).is() { Ordering::Relaxed } else { order }
    }

    pub(crate) fn of_load(name: &'static str, order: Ordering) -> Ordering {
        if Self::RelaxedLoads(name).is() { Ordering::Relaxed } else { order }
    }
}
