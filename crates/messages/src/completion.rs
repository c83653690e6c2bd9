// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How operations end, and why one was not begun.

use barewire_endpoint::{ConnectError, Ending};
use thiserror::Error;

use crate::header::Label;
use crate::peers::PeerId;
use crate::regions::Refusal;

/// An operation has ended; its memory is the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation's.
    pub context: u64,
    /// The operation's.
    pub note: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message got as far as was asked for.
    Sent,
    /// A message lies in the receive's memory.
    Received(Received),
    /// A peer's memory was written, read, or changed: what came of it lies in this operation's memory.
    Done(Operation),
    /// A peer has written to memory registered here, with data: of no operation, and so of context 0.
    Written(RemoteWrite),
    /// It did not work.
    Failed {
        /// What was tried.
        operation: Operation,
        /// Why it failed.
        failure: Failure,
        /// The message that a receive had matched.
        message: Option<Received>,
    },
}

impl Outcome {
    /// Whether a receive got a message, or has ended.
    pub(crate) fn is_of_receive(&self) -> bool {
        matches!(self, Self::Received(_) | Self::Failed { operation: Operation::Receive, .. })
    }
}

/// A message and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// From whom, what it is called, how long it is.
    pub envelope: Envelope,
    /// Where it begins in the receive's memory: not 0 only where that takes many messages.
    pub offset: u64,
    /// The receive takes no more messages: true of each that takes one.
    pub is_last: bool,
}

/// A receive of one message has ended well, and no completion tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedNext {
    /// The receive's.
    pub context: u64,
    /// The receive's.
    pub note: u32,
    /// The message.
    pub envelope: Envelope,
}

/// A peer's write that carried data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWrite {
    /// Who wrote.
    pub source: PeerId,
    /// What it says.
    pub data: u64,
    /// How much was written.
    pub length: u64,
}

/// What is known of a message before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// From whom.
    pub source: PeerId,
    /// Tag and data.
    pub label: Label,
    /// Its length in bytes.
    pub length: u64,
}

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To send.
    Send,
    /// To receive.
    Receive,
    /// To write to a peer's memory.
    Write,
    /// To read a peer's memory.
    Read,
    /// To change a peer's memory atomically.
    Atomic,
    /// To fetch what a peer's memory held before it was changed atomically.
    FetchAtomic,
}

impl Operation {
    /// Whether something comes back from the peer's memory.
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::FetchAtomic)
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The message is longer than the receive's memory, which holds its beginning.
    #[error("a message of {length} bytes was cut to the {room} bytes of its receive")]
    Truncated {
        /// Of the message.
        length: u64,
        /// What there was room for.
        room: u64,
    },
    /// It was taken back.
    #[error("cancelled")]
    Cancelled,
    /// The way to its peer has ended. Whether the peer has the message is not known.
    #[error("{ending}")]
    Peer {
        /// Whose.
        peer: PeerId,
        /// Why.
        ending: Ending,
    },
    /// The peer refused the access to its memory.
    #[error("{refusal}")]
    Refused {
        /// Which.
        peer: PeerId,
        /// Why.
        refusal: Refusal,
    },
}

/// Why an operation was not begun; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostError {
    /// Too much is under way: make progress and try again.
    #[error("too much is under way; make progress and try again")]
    Full,
    /// The endpoint has no room for one more peer.
    #[error(transparent)]
    NoChannel(#[from] ConnectError),
    /// The way to the peer had ended before a message had left that was completed when it was copied. Said once; what is
    /// posted next connects again.
    #[error("an earlier message to this peer is lost: {0}")]
    Lost(Ending),
    /// More bytes than can be injected.
    #[error("{bytes} bytes cannot be injected, {most} can")]
    TooLong {
        /// What was to be.
        bytes: usize,
        /// What can be.
        most: usize,
    },
    /// Nobody has this number.
    #[error("no peer has this number")]
    NoSuchPeer,
    /// Memory is registered under this key already.
    #[error("memory is registered under the key {0:#x} already; choose another, or none")]
    KeyTaken(u64),
    /// No memory is registered under this key.
    #[error("no memory is registered under the key {0:#x}")]
    NoSuchKey(u64),
    /// There is no such atomic operation on such elements, or operand, comparison and result differ in length.
    #[error("no such atomic operation: ask `AtomicType::has`; operand, comparison and result are of one length")]
    NoSuchAtomic,
    /// There is no such claim, or no longer.
    #[error("nothing was claimed under this number")]
    NoSuchClaim,
}

/// Operations that have ended, whether a completion told of them or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Sends that failed.
    pub sends_failed: u64,
    /// Receives that failed.
    pub receives_failed: u64,
    /// Writes to peers' memory, and atomic operations that fetch nothing.
    pub written: u64,
    /// Reads of peers' memory, and atomic operations that fetch.
    pub read: u64,
    /// Of the kinds of `written`, those that failed.
    pub writes_failed: u64,
    /// Of the kinds of `read`, those that failed.
    pub reads_failed: u64,
    /// Accesses of peers to memory registered here, of the kinds of `written`, as far as they were allowed.
    pub written_by_peers: u64,
    /// As `written_by_peers`, of the kinds of `read`.
    pub read_by_peers: u64,
}
