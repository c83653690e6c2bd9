// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that a test of the tests switches on.

/// See the module.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A receive gets the newest of the messages that are held for it.
    MatchesNewest,
    /// A send that was asked for its bytes is completed twice.
    CompletesTwice,
    /// Memory of messages whose delivery is to be told of is not given back.
    LeaksHeld,
    /// A message counts as delivered when it is held.
    DeliveredWhenHeld,
    /// What comes late of a long write goes to its beginning.
    WritesToBeginning,
    /// What comes of a read goes to where the first of it went.
    ReadsToBeginning,
    /// An atomic operation is done twice.
    ChangesTwice,
    /// The end of a receive of many messages is told of before its last messages.
    EndsFirst,
    /// Nobody is told that a message was lost that had been completed.
    LosesSilently,
}

/// Whether this messenger is to have a fault; never without the feature `mutants`.
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
