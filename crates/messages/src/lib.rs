// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The message layer: what MPI libraries ask of a network, over U-Net endpoints.
//!
//! A [`Messenger`] owns an endpoint. Sends and receives are posted with a context of the caller's, and end with a
//! [`Completion`]. Short messages go *eagerly*: from the frame straight into the memory of the receive they match, or
//! into bounded memory until one is posted. Longer ones are requested first, and go from the sender's memory to the
//! receiver's once they are matched (*rendezvous*). Peers are connected to on first use.

mod completion;
mod config;
mod header;
mod matching;
mod memory;
mod messenger;
mod peers;
mod slab;

pub use completion::{Completion, Counts, Envelope, Failure, Operation, Outcome, PostError, Received};
pub use config::Config;
pub use header::Label;
pub use matching::{Matcher, Pattern, Ticket};
pub use memory::Part;
pub use messenger::{Claim, Messenger, Reaches, ReceiveOptions, SendOptions, Wanted};
pub use peers::PeerId;
