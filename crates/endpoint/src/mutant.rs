// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that a test of the tests switches on.

/// See the module.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A frame's check, or its seal, is not looked at.
    CheckIgnored,
    /// A peer's next channel is told of although the sink has not taken all that came through the one before.
    SuccessorAtOnce,
    /// Of the pieces that the sink refused, the newest is offered first.
    ParkedReversed,
    /// A peer that was told to wait is never told to go on.
    StaysBusy,
    /// Each call that closes a channel is news, so that whoever repeats it cannot sleep.
    ClosesAgain,
    /// A message is told of as sent when its channel ends.
    FailedIsSent,
}

/// Whether this endpoint is to have a fault; never without the feature `mutants`.
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
