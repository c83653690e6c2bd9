// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C boundary: errors become negative numbers, and no panic crosses it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use barewire_endpoint::Ending;
use barewire_messages::{Failure, PostError, Refusal};

use crate::bindings::*;
use crate::log::warning;

/// One of libfabric's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub u32);

pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub const AGAIN: Self = Self(FI_EAGAIN);
    pub const INVALID: Self = Self(FI_EINVAL);
    pub const NO_MEMORY: Self = Self(FI_ENOMEM);
    pub const BUSY: Self = Self(FI_EBUSY);
    pub const NO_DATA: Self = Self(FI_ENODATA);
    pub const NOT_SUPPORTED: Self = Self(FI_ENOSYS);
    pub const OTHER: Self = Self(FI_EOTHER);
    /// An error entry is available.
    pub const AVAILABLE: Self = Self(FI_EAVAIL);
    pub const TOO_SMALL: Self = Self(FI_ETOOSMALL);
    pub const BAD_FLAGS: Self = Self(FI_EBADFLAGS);
    pub const BAD_STATE: Self = Self(FI_EOPBADSTATE);
    pub const NO_QUEUE: Self = Self(FI_ENOCQ);
    pub const NO_VECTOR: Self = Self(FI_ENOAV);
    pub const LINK_IS_DOWN: Self = Self(libc::ENETDOWN as u32);

    #[inline]
    pub const fn negative(self) -> isize {
        -(self.0 as isize)
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Full => Self::AGAIN,
            PostError::NoChannel(error) => {
                warning!(FI_LOG_EP_DATA, "{error} (FI_BAREWIRE_PEERS)");
                Self::NO_MEMORY
            }
            PostError::Lost(ending) => ending_errno(ending),
            PostError::TooLong { .. } => Self(libc::EMSGSIZE as u32),
            PostError::NoSuchPeer | PostError::NoSuchClaim | PostError::UnsupportedAtomic => Self::INVALID,
            PostError::KeyTaken(_) | PostError::NoSuchKey(_) => Self(FI_ENOKEY),
        }
    }
}

/// The error of a failed completion.
pub(crate) fn failure_errno(failure: Failure) -> Errno {
    match failure {
        Failure::Truncated { .. } => Errno(FI_ETRUNC),
        Failure::Cancelled => Errno(FI_ECANCELED),
        Failure::Refused { refusal, .. } => Errno(match refusal {
            Refusal::Key | Refusal::Deregistered => FI_EKEYREJECTED,
            Refusal::Access => FI_EACCES,
            Refusal::Range => libc::ERANGE as u32,
            Refusal::Operation => FI_EOPNOTSUPP,
        }),
        Failure::Peer { ending, .. } => ending_errno(ending),
    }
}

/// The error of a channel that has ended.
fn ending_errno(ending: Ending) -> Errno {
    Errno(match ending {
        Ending::Refused => FI_ECONNREFUSED,
        Ending::NoAnswer | Ending::NeverAnswered => libc::EHOSTUNREACH as u32,
        Ending::Stalled => FI_ETIMEDOUT,
        Ending::Closed => FI_ESHUTDOWN,
        Ending::PeerClosed | Ending::Restarted => FI_ECONNRESET,
        Ending::Violation => FI_ECONNABORTED,
        Ending::Exhausted => FI_ENOMEM,
    })
}

/// Runs the body of a C function and converts its result for C.
#[inline]
pub(crate) fn guard(call: &str, run: impl FnOnce() -> Result<isize>) -> isize {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => error.negative(),
        Err(panic) => {
            let message = panic.downcast_ref::<&str>().copied();
            let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason");
            warning!(
                FI_LOG_CORE,
                "{call}: internal error: {message}; all further calls on this domain fail; please report it"
            );
            Errno::OTHER.negative()
        }
    }
}

/// As [`guard`], for functions that return an `int` status.
#[inline]
pub(crate) fn guard_status(call: &str, run: impl FnOnce() -> Result<()>) -> c_int {
    guard(call, || run().map(|()| 0)) as c_int
}

/// Defines unsupported functions of a table, which return `-FI_ENOSYS`.
macro_rules! unsupported {
    ($($name:ident($($type:ty),*) -> $result:ty;)*) => { $(
        pub(crate) unsafe extern "C" fn $name($(_: $type),*) -> $result {
            $crate::edge::Errno::NOT_SUPPORTED.negative() as $result
        }
    )* };
}
pub(crate) use unsupported;
