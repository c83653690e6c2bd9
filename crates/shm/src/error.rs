// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with a pipe: the caller's part, the system's, the other end's.

use std::io;

use nix::errno::Errno;
use thiserror::Error;

use crate::bounds::{HELLO_BYTES_MAX, NAME_BYTES_MAX, RING_BYTES_MAX};

/// Why there is no listener or no pipe.
#[derive(Debug, Error)]
pub enum ShmError {
    /// Another listener of this network namespace has the name.
    #[error("the name '{0}' is taken by another process, or another listener of this one")]
    NameTaken(String),
    /// A listener's name has a length that no name has.
    #[error("a listener's name has 1 to {NAME_BYTES_MAX} bytes, not {0}")]
    NameLength(usize),
    /// What an initiator says is short.
    #[error("a hello has at most {HELLO_BYTES_MAX} bytes, not {0}")]
    HelloLength(usize),
    /// A ring has a size that none has.
    #[error("a ring's size is a power of two from {page_bytes} (a page) to {RING_BYTES_MAX}, not {ring_bytes}")]
    RingBytes {
        /// What was asked for.
        ring_bytes: usize,
        /// The system's.
        page_bytes: usize,
    },
    /// Somebody else's listener has the name: nothing was said to it.
    #[error("the listener '{name}' belongs to user {user}, not to ours; choose another name")]
    OtherUser {
        /// The listener's name.
        name: String,
        /// Whose it is.
        user: u32,
    },
    /// More initiators wait than the system lets wait.
    #[error("too many connect at '{0}' at once; try again when its process has had time to accept")]
    Busy(String),
    /// There is no memory for a pipe: that of the host, of this process, or of a file is limited.
    #[error("no memory for two rings of {ring_bytes} bytes: {source} (ulimit -v, -f; vm.overcommit_memory)")]
    Memory {
        /// What was asked for.
        ring_bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{operation} failed: {source}")]
    System {
        /// The call.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl ShmError {
    /// Whether memory or descriptors of this process or its host are used up, which may pass.
    #[must_use]
    pub fn is_exhaustion(&self) -> bool {
        match self {
            Self::Memory { .. } => true,
            Self::System { source, .. } => source.raw_os_error().map(Errno::from_raw).is_some_and(is_exhaustion),
            _ => false,
        }
    }

    /// For `map_err`: that `operation` failed.
    pub(crate) fn system<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { operation, source: error.into() }
    }
}

/// Whether the system says that memory or descriptors are used up.
pub(crate) fn is_exhaustion(error: Errno) -> bool {
    matches!(error, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS | Errno::ENOSPC)
}

/// Why a pipe is of no use any more: what the other end did to the shared memory that no end does, or that the system has
/// no more memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The system has no memory for what is to be sent next.
    #[error("the system has no more memory for the pipe")]
    NoMemory,
    /// The word in front of a message is none of this place.
    #[error("the other end wrote a message's word {0:#018x} that belongs elsewhere")]
    Word(u64),
    /// A message is longer than the longest.
    #[error("the other end wrote a message of {0} bytes, more than there is room for")]
    Length(usize),
    /// The other end says to have taken what was not there, or to have given back what it has.
    #[error("the other end says it has taken {told} bytes, after {before}, of {sent}")]
    Taken {
        /// Bytes since the beginning, as it says now.
        told: u64,
        /// As it said before.
        before: u64,
        /// What was sent.
        sent: u64,
    },
}
