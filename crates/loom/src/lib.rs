// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The provider's lock and notifier, and the shared-memory pipe with its ring and its sleeping protocol, under loom.
//!
//! loom runs a model once for each interleaving of its threads, and lets each load return each value that the memory model
//! allows; shuttle, which scales to more threads, knows sequential consistency only, and the code here is made of weaker
//! orderings and fences. What is checked is the code itself: its files are compiled here a second time, with `sync`,
//! `memory`, `socket` and `event` of this crate in place of those of theirs. A membarrier in one thread with a compiler
//! fence in the other is, by what the kernel promises, a sequentially consistent fence in each; here it is just that.
//!
//! `tests/` runs every model as the code is, and with each [`Mutant`]: a model that none can break proves nothing.

#![allow(dead_code, reason = "no model uses all of the files included")]

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
