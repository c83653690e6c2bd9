// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The message layer: what MPI libraries ask of a network, over U-Net endpoints.
//!
//! A [`Messenger`] owns an endpoint. Sends and receives are posted with a context of the caller's, and end with a
//! [`Completion`]. Short messages go *eagerly*: from the frame straight into the memory of the receive they match, or
//! into bounded memory until one is posted. Longer ones are requested first, and go from the sender's memory to the
//! receiver's once they are matched (*rendezvous*). Peers are connected to on first use. Memory that was *registered* is
//! written, read and changed atomically by peers without any call but for progress. [`Datagrams`] is for messages of one
//! frame that may be lost.
//!
//! ```
//! use barewire_endpoint::{Endpoint, Framing};
//! use barewire_link::{Faults, MemoryLink};
//! use barewire_messages::{Label, Messenger, Outcome, Part, Pattern, ReceiveOptions, Wanted};
//!
//! let (a, b) = MemoryLink::pair(1500, Faults::default(), 1);
//! let [mut a, mut b] = [a, b].map(|link| {
//!     let mut config = barewire_endpoint::Config::new(barewire_llc::Lsap::new(0x20).unwrap(), Framing::default());
//!     config.local = None;
//!     Messenger::new(Endpoint::open(link, config, None).unwrap(), Default::default())
//! });
//! let (to, from) = (a.peer(b.address()), b.peer(a.address()));
//!
//! let mut memory = [0; 5];
//! let wanted = Wanted::Tagged(Pattern::exact(from, 7));
//! // SAFETY: `memory` is left alone until the receive is completed.
//! unsafe { b.receive(wanted, &[Part::into(&mut memory)], ReceiveOptions::default())? };
//! a.inject(to, Label { tag: Some(7), data: None }, b"hello")?;
//! while !b.progress()? {
//!     a.progress()?;
//! }
//! assert!(matches!(b.poll().unwrap().outcome, Outcome::Received(_)));
//! assert_eq!(memory, *b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod atomic;
mod completion;
mod config;
mod datagrams;
mod header;
mod matching;
mod memory;
mod messenger;
mod mutant;
mod peers;
mod regions;
mod slab;

pub use atomic::{AtomicOperation, AtomicType};
pub use completion::{
    Completion, Counts, Envelope, Failure, Operation, Outcome, PostError, Received, ReceivedNext, RemoteWrite,
};
pub use config::Config;
pub use datagrams::{Datagrams, HELD_DATAGRAMS};
pub use header::Label;
pub use matching::{Matcher, Pattern, Ticket};
pub use memory::Part;
pub use messenger::{AtomicParts, Claim, Messenger, Reaches, ReceiveOptions, Removal, SendOptions, Wanted};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use peers::PeerId;
pub use regions::{Access, Refusal, Remote};
