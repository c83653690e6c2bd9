// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libfabric from both sides: the declarations for a provider, and tagged messages over any provider for a program, as
//! an MPI library sends them.
//!
//! The library is loaded at run time on first use, so programs that do not use it run without it.

pub mod bindings;
mod endpoint;
mod error;
mod library;
mod tagged;

pub use endpoint::{Endpoint, Hints};
pub use error::FabricError;
pub use library::{LIBRARY_VARIABLE, Library};
pub use tagged::{Completions, SendStatus};
