// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that tests of the tests inject.

/// An injected fault.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A receive matches the newest unexpected message instead of the oldest.
    MatchesNewest,
    /// A rendezvous send completes twice.
    CompletesTwice,
    /// Memory of unexpected messages with data is not released.
    LeaksUnexpected,
    /// Delivery of a long message is confirmed when it is announced, not when it is received.
    ConfirmsRequest,
    /// Later pieces of a long write go to its beginning.
    WritesToBeginning,
    /// Later pieces of a read's result go to its beginning.
    ReadsToBeginning,
    /// An atomic operation is applied twice.
    AppliesTwice,
    /// A multi-receive reports its end before its last messages.
    EndsEarly,
    /// The loss of a message whose send had completed is not reported.
    LosesSilently,
}

/// Whether this fault is injected; always false without the feature `mutants`.
#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($holder:expr, $fault:ident) => {
        $holder.config.mutant == Some(crate::mutant::Mutant::$fault)
    };
}
#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($holder:expr, $fault:ident) => {
        false
    };
}

pub(crate) use mutant;
