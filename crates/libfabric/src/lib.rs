// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libfabric from both sides: the declarations that a provider is written against, and a program's way to tagged
//! messages over any provider, as an MPI library takes it.
//!
//! The library is loaded when a program asks for it, so that one that does not runs where there is none.

pub mod bindings;
mod endpoint;
mod error;
mod library;
mod tagged;

pub use endpoint::{Endpoint, Wishes};
pub use error::FabricError;
pub use library::{LIBRARY_VARIABLE, Library};
pub use tagged::{Done, Posted};
