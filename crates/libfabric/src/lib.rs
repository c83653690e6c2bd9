// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libfabric from both sides: the declarations for a provider, and tagged messages over any provider for a program, as
//! an MPI library sends them.
//!
//! The library is loaded at run time on first use, so programs that do not use it run without it.

/// libfabric's declarations, generated from the headers of its version 1.17 by tools/bindings: later versions of
/// libfabric accept them, and neither headers nor libclang are needed to compile.
#[allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]
pub mod bindings;
mod endpoint;
mod error;
mod library;
mod tagged;

pub use endpoint::{Endpoint, Hints};
pub use error::FabricError;
pub use library::{LIBRARY_VARIABLE, Library};
pub use tagged::{Completions, SendStatus};
