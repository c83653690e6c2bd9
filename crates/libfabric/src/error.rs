// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of using libfabric.

use std::ffi::c_int;

use thiserror::Error;

use crate::library::LIBRARY_VARIABLE;

/// Why messages over libfabric are not possible.
#[derive(Clone, Debug, Error)]
pub enum FabricError {
    /// The library cannot be loaded.
    #[error(
        "libfabric cannot be loaded: {reason}; install it (Debian: apt install libfabric1), or set \
         {LIBRARY_VARIABLE} to its file"
    )]
    NoLibrary {
        /// The loader's reason.
        reason: String,
    },
    /// The library has no provider of this name for reliable tagged messages here.
    #[error(
        "{library} has no provider '{provider}' for tagged messages here ({reason}); `fi_info -l` lists the \
         providers, FI_LOG_LEVEL=warn logs why each declines"
    )]
    NoProvider {
        /// The library.
        library: String,
        /// The requested provider.
        provider: String,
        /// The library's reason.
        reason: String,
    },
    /// The message exceeds the provider's limit.
    #[error("a message of {bytes} bytes exceeds the limit of '{provider}', {limit} bytes")]
    TooLong {
        /// Length of the message.
        bytes: usize,
        /// The limit.
        limit: usize,
        /// The provider.
        provider: String,
    },
    /// A call failed.
    #[error("{call}: {reason}")]
    Call {
        /// Name of the libfabric function.
        call: &'static str,
        /// Error number, positive.
        number: c_int,
        /// The library's text for it.
        reason: String,
    },
}
