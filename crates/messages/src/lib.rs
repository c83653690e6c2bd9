// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The message layer: what MPI libraries require of a network, over U-Net endpoints.
//!
//! A [`Messenger`] owns an endpoint. The caller posts sends and receives with a context of its own; each ends with a
//! [`Completion`]. Short messages are *eager*: they go from the frame straight into the buffer of the receive they
//! match, or into bounded memory until a receive is posted. Longer ones use *rendezvous*: a request first, and once it
//! is matched, the data goes from the sender's memory to the receiver's. Connections are opened on first use. Peers
//! write, read and atomically update *registered* memory while the target only calls progress. [`Datagrams`] is for
//! unreliable messages of one frame.
//!
//! ```
//! use barewire_endpoint::{Endpoint, Framing};
//! use barewire_link::{Faults, MemoryLink};
//! use barewire_messages::{Label, Messenger, Outcome, Part, Pattern, ReceiveOptions, Selector};
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
//! let wanted = Selector::Tagged(Pattern::exact(from, 7));
//! // SAFETY: `memory` is not accessed until the receive completes.
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
pub use datagrams::{Datagrams, UNEXPECTED_DATAGRAMS_MAX};
pub use header::Label;
pub use matching::{Matcher, Pattern, Ticket};
pub use memory::Part;
pub use messenger::{AtomicParts, Claim, CompletionLevel, Messenger, ReceiveOptions, Removal, Selector, SendOptions};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use peers::PeerId;
pub use regions::{Access, AccessCounts, Refusal, RemoteAddress};
