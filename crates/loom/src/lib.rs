// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loom models of the provider's lock and notifier, and of the shared-memory pipe with its ring and sleep protocol.
//!
//! loom runs a model once for each interleaving of its threads, and lets each load return every value that the memory
//! model allows. (shuttle scales to more threads, but models sequential consistency only; this code uses weaker
//! orderings and fences.) The models check the code itself: its files are compiled a second time here, with this
//! crate's `sync`, `memory`, `socket` and `event` in place of their own. The kernel guarantees that a membarrier in one
//! thread and a compiler fence in the other act as a sequentially consistent fence in each; here they are such fences.
//!
//! `tests/` runs every model on the unmodified code, and with each [`Mutant`]: a model that catches none proves
//! nothing.

#![allow(dead_code, reason = "no model uses all of an included file")]

#[path = "../../shm/src/bounds.rs"]
mod bounds;
mod edge;
#[path = "../../shm/src/error.rs"]
mod error;
mod event;
#[path = "../../provider/src/lock.rs"]
mod lock;
mod memory;
pub mod models;
mod mutant;
#[path = "../../provider/src/notifier.rs"]
mod notifier;
#[path = "../../shm/src/pipe.rs"]
mod pipe;
mod process;
#[path = "../../shm/src/ring.rs"]
mod ring;
mod socket;
mod sync;

pub use bounds::RING_BYTES_MAX;
pub use mutant::Mutant;
