// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors: of the caller, of the system, and of the other end.

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
    /// The listener's name is too short or too long.
    #[error("a listener's name has 1 to {NAME_BYTES_MAX} bytes, not {0}")]
    NameLength(usize),
    /// The hello is too long.
    #[error("a hello has at most {HELLO_BYTES_MAX} bytes, not {0}")]
    HelloLength(usize),
    /// The ring's size is invalid.
    #[error("a ring's size is a power of two from {page_bytes} (a page) to {RING_BYTES_MAX}, not {ring_bytes}")]
    RingBytes {
        /// Requested size.
        ring_bytes: usize,
        /// The system's page size.
        page_bytes: usize,
    },
    /// Another user's listener has the name. Nothing was sent to it.
    #[error("the listener '{name}' belongs to user {user}; choose another name")]
    OtherUser {
        /// Name of the listener.
        name: String,
        /// User of the listener's process.
        user: u32,
    },
    /// The backlog of the listener is full.
    #[error("too many processes connect to '{0}' at once; try again when its process has had time to accept")]
    Busy(String),
    /// There is no memory for a pipe: the host, the process or the size of files is limited.
    #[error("no memory for two rings of {ring_bytes} bytes: {source} (ulimit -v, -f; vm.overcommit_memory)")]
    Memory {
        /// Requested size of a ring.
        ring_bytes: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{operation} failed: {source}")]
    System {
        /// Name of the system call.
        operation: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl ShmError {
    /// Whether this process or its host has no memory or descriptors left, which may be transient.
    #[must_use]
    pub fn is_exhaustion(&self) -> bool {
        match self {
            Self::Memory { .. } => true,
            Self::System { source, .. } => source.raw_os_error().map(Errno::from_raw).is_some_and(is_exhaustion),
            _ => false,
        }
    }

    /// For `map_err`: reports that `operation` failed.
    pub(crate) fn system<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { operation, source: error.into() }
    }
}

/// Whether the error says that memory or descriptors are exhausted.
pub(crate) fn is_exhaustion(error: Errno) -> bool {
    matches!(error, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS | Errno::ENOSPC)
}

/// Why a pipe is broken: the other end corrupted the shared memory, or the system has no more memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The system has no memory for the next message.
    #[error("the system has no more memory for the pipe")]
    NoMemory,
    /// The word in front of a message does not belong to this position.
    #[error("the other end wrote the word {0:#018x} in front of a message, which is wrong at this position")]
    Word(u64),
    /// A message exceeds the maximum length.
    #[error("the other end wrote a message of {0} bytes, which exceeds the maximum")]
    Length(usize),
    /// The other end acknowledged data that was not sent, or less than before.
    #[error("the other end acknowledged {acknowledged} bytes, after {before}, of {sent} sent")]
    Acknowledged {
        /// Total bytes acknowledged.
        acknowledged: u64,
        /// Total bytes acknowledged before.
        before: u64,
        /// Total bytes sent.
        sent: u64,
    },
}
