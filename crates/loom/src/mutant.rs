// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a model must catch.

use std::cell::Cell;

use loom::sync::atomic::Ordering;

/// A mistake in the code under a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Neither side of a pipe fences between its own word and the other's.
    NoFence,
    /// The program's thread does not order its flag and the keeper's.
    NoLightFence,
    /// Nor does the keeper.
    NoHeavyFence,
    /// Stores to words of this name publish nothing.
    RelaxedStores(&'static str),
    /// Loads of words of this name acquire nothing.
    RelaxedLoads(&'static str),
    /// A wake-up is dropped.
    NoWake,
}

thread_local! {
    // loom runs all threads of a model on the one that started it.
    static NOW: Cell<Option<Mutant>> = const { Cell::new(None) };
}

impl Mutant {
    /// From now on, the code of this thread's models has this mistake, or none.
    pub(crate) fn set(mutant: Option<Self>) {
        NOW.set(mutant);
    }

    pub(crate) fn is(self) -> bool {
        NOW.get() == Some(self)
    }

    pub(crate) fn of_store(name: &'static str, order: Ordering) -> Ordering {
        if Self::RelaxedStores(name).is() { Ordering::Relaxed } else { order }
    }

    pub(crate) fn of_load(name: &'static str, order: Ordering) -> Ordering {
        if Self::RelaxedLoads(name).is() { Ordering::Relaxed } else { order }
    }
}
