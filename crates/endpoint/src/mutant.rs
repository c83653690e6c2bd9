// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Injected faults, which prove the checkers.

/// An injected fault.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A frame's check or seal is not verified.
    CheckIgnored,
    /// A peer's next channel is reported although the sink has not taken all data of the previous one.
    SuccessorAtOnce,
    /// Parked pieces are offered newest first.
    ParkedReversed,
    /// A paused peer is never resumed.
    StaysBusy,
    /// Unsent messages of an ended channel are reported as sent.
    FailedIsSent,
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
