// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completions and errors of operations.

use barewire_endpoint::{ConnectError, Ending};
use thiserror::Error;

use crate::header::Label;
use crate::peers::PeerId;
use crate::regions::Refusal;

/// An operation has ended; its buffer belongs to the caller again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation's own.
    pub context: u64,
    /// The operation's own.
    pub note: u32,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The send reached its [`CompletionLevel`](crate::CompletionLevel).
    Sent,
    /// A message is in the receive's buffer.
    Received(Received),
    /// A remote write, read or atomic operation is done; fetched data is in its buffer.
    Done(Operation),
    /// A peer wrote to memory registered here, with data. Belongs to no operation: context and note are 0.
    Written(RemoteWrite),
    /// The operation failed.
    Failed {
        /// The kind of operation.
        operation: Operation,
        /// The reason.
        failure: Failure,
        /// The message that a failed receive had matched.
        message: Option<Received>,
    },
}

impl Outcome {
    /// Whether this is a receive's message, or a receive's end.
    pub(crate) fn is_receive(&self) -> bool {
        matches!(self, Self::Received(_) | Self::Failed { operation: Operation::Receive, .. })
    }
}

/// A received message and its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Source, label and length.
    pub envelope: Envelope,
    /// Offset in the receive's buffer; other than 0 only in multi-receives.
    pub offset: u64,
    /// The receive has ended; always true unless it is a multi-receive.
    pub is_last: bool,
}

/// A receive of one message that completed without a [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedNext {
    /// The receive's own.
    pub context: u64,
    /// The receive's own.
    pub note: u32,
    /// The message's envelope.
    pub envelope: Envelope,
}

/// A peer's write with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWrite {
    /// The writer.
    pub source: PeerId,
    /// The data.
    pub data: u64,
    /// Bytes written.
    pub length: u64,
}

/// A message's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub source: PeerId,
    /// Tag and data.
    pub label: Label,
    /// Length in bytes.
    pub length: u64,
}

/// The kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A send.
    Send,
    /// A receive.
    Receive,
    /// A remote write.
    Write,
    /// A remote read.
    Read,
    /// A remote atomic operation that returns nothing.
    Atomic,
    /// A remote atomic operation that returns the previous values.
    FetchAtomic,
}

impl Operation {
    /// Whether the operation returns data from the peer's memory.
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::FetchAtomic)
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The message is longer than the receive's buffer, which holds its beginning.
    #[error("a message of {length} bytes was truncated to its receive's {room} bytes")]
    Truncated {
        /// Length of the message, in bytes.
        length: u64,
        /// Length of the buffer, in bytes.
        room: u64,
    },
    /// The operation was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The channel to the peer has ended. It is unknown whether the peer has the message.
    #[error("{ending}")]
    Peer {
        /// The peer.
        peer: PeerId,
        /// The reason.
        ending: Ending,
    },
    /// The peer refused the access to its memory.
    #[error("{refusal}")]
    Refused {
        /// The peer.
        peer: PeerId,
        /// The reason.
        refusal: Refusal,
    },
}

/// Why an operation could not be posted. The operation had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostError {
    /// A resource limit is reached: make progress and try again.
    #[error("a resource limit is reached; make progress and try again")]
    Full,
    /// The endpoint cannot connect to the peer.
    #[error(transparent)]
    NoChannel(#[from] ConnectError),
    /// The channel ended before a message was delivered whose send had already completed. Reported once; the next
    /// operation connects again.
    #[error("an earlier message to this peer was lost: {0}")]
    Lost(Ending),
    /// The message is longer than the limit of this call.
    #[error("{bytes} bytes exceed the limit of {limit}")]
    TooLong {
        /// Length of the message.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// No peer has this number.
    #[error("no peer has this number")]
    NoSuchPeer,
    /// The key is in use.
    #[error("the key {0:#x} is in use; choose another, or none")]
    KeyTaken(u64),
    /// No memory is registered under this key.
    #[error("no memory is registered under the key {0:#x}")]
    NoSuchKey(u64),
    /// The type does not support the operation, or operand, comparison and result differ in length.
    #[error("unsupported atomic operation: see `AtomicType::supports`; operand, comparison and result have one length")]
    UnsupportedAtomic,
    /// The claim does not exist, or was used already.
    #[error("no such claim")]
    NoSuchClaim,
}

/// Counters of ended operations, with or without a completion.
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
    /// Remote writes, and atomic operations that return nothing.
    pub written: u64,
    /// Remote reads, and atomic operations that fetch.
    pub read: u64,
    /// Failed operations of the kinds in `written`.
    pub writes_failed: u64,
    /// Failed operations of the kinds in `read`.
    pub reads_failed: u64,
    /// Permitted accesses by peers to memory registered here, of the kinds in `written`.
    pub written_by_peers: u64,
    /// The same of the kinds in `read`.
    pub read_by_peers: u64,
}
