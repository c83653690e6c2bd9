// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with a libfabric that this program uses.

use std::ffi::c_int;

use thiserror::Error;

use crate::library::LIBRARY_VARIABLE;

/// Why there are no messages through libfabric.
#[derive(Clone, Debug, Error)]
pub enum FabricError {
    /// No library.
    #[error(
        "libfabric cannot be loaded: {reason}; install it (Debian: apt install libfabric1), or name its file in \
         {LIBRARY_VARIABLE}"
    )]
    NoLibrary {
        /// What the loader said.
        reason: String,
    },
    /// The library has no provider of this name that offers reliable tagged messages here.
    #[error(
        "{library} has no provider '{provider}' that carries tagged messages here ({reason}); `fi_info -l` lists those \
         there are, FI_LOG_LEVEL=warn says what each thinks of it"
    )]
    NoProvider {
        /// Which library.
        library: String,
        /// The provider that was asked for.
        provider: String,
        /// What the library said.
        reason: String,
    },
    /// A message that is longer than any of the provider's.
    #[error("a message of {bytes} bytes: '{provider}' takes {most} at most")]
    TooLong {
        /// Of the message.
        bytes: usize,
        /// Of the longest.
        most: usize,
        /// Which provider.
        provider: String,
    },
    /// A call failed.
    #[error("{call}: {reason}")]
    Call {
        /// libfabric's name of the function.
        call: &'static str,
        /// Its error number, positive.
        number: c_int,
        /// What the library calls that.
        reason: String,
    },
}
