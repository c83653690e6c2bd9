// SPDX-License-Identifier: Apache-2.0 OR MIT
//! U-Net endpoints: a process's own access to the network.
//!
//! An [`Endpoint`] owns a link that receives the frames of its SAP, a segment of slots to send from, and a queue of
//! send descriptors. Received messages go to a [`Sink`], such as an [`Inbox`] with its receive and free queues. Local
//! peers are reached through shared memory. [`Port`] is the layer below: a station of the LLC engine on a link.

mod address;
mod channel;
mod check;
mod clock;
mod config;
mod descriptors;
mod endpoint;
mod error;
mod framing;
mod inbox;
mod labels;
mod message_queue;
mod mutant;
mod open;
mod port;
mod reorder;
mod replay;
mod seal;
mod secret;
mod sink;
mod slots;
mod token;
mod tuning;
mod waiting;

pub use address::Address;
pub use barewire_llc::message::Piece;
pub use channel::ChannelId;
pub use config::Config;
pub use descriptors::{HEAD_MAX, LOCAL_PIECE_MAX, Report};
pub use endpoint::{Endpoint, EndpointCounters, Event, is_taken};
pub use error::{ConnectError, Ending, EndpointError, SendError};
pub use framing::{Encapsulation, Frame, Framing, parse};
pub use inbox::{INLINE_BYTES, Inbox, InboxConfig, Origin, Received};
pub use labels::Labels;
pub use message_queue::Priority;
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use open::{ClaimError, LinkScope, OpenError, PROTOCOL, claim, open_link};
pub use port::{Port, information_max, mtu_min};
pub use secret::{Authentication, Secret};
pub use sink::{Class, Sink};
pub use slots::{Slot, Slots};
pub use token::JobToken;
pub use tuning::{BadValue, TUNING_VARIABLE, Tuning, TuningError};
pub use waiting::{WaitPolicy, Waiting};
