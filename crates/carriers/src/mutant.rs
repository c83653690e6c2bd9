// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Injected faults, which prove the checkers.

/// An injected fault.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A path that fails its checks is kept.
    KeepsDeadPaths,
    /// A silent path is never suspected.
    NeverSuspects,
    /// What arrives from any interface of the peer answers what was sent to another.
    HeardFromAny,
    /// A peer that sends is taken for one that receives, though it answers no check.
    TrustsAnyFrame,
    /// A peer's answer is assumed to have arrived.
    AnswersOnce,
    /// Frames stay as long as this station's link takes them.
    KeepsLength,
}

/// Whether a fault is injected; always false without the feature `mutants`.
#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($holder:expr, $fault:ident) => {
        $holder.mutant == Some(crate::mutant::Mutant::$fault)
    };
}
#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($holder:expr, $fault:ident) => {
        false
    };
}

pub(crate) use mutant;
