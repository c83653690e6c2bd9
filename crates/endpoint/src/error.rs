// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors, sorted by whose fault they are.

use std::fmt;

use barewire_link::LinkError;
use barewire_llc::{Cause, ConfigError};
use barewire_shm::ShmError;
use thiserror::Error;

use crate::address::Address;

/// Why an endpoint could not be opened, or no longer works.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// Error of the link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Invalid value in the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Error of shared memory, the carrier to local peers.
    #[error(transparent)]
    Shm(#[from] ShmError),
    /// The rings to local peers are too small for a frame's message.
    #[error("a ring of {ring_bytes} bytes has room for messages of {room}; frames of this MTU need {needed}")]
    Ring {
        /// Configured size of a ring.
        ring_bytes: usize,
        /// Largest message of such a ring.
        room: usize,
        /// Required size of the largest message.
        needed: usize,
    },
    /// The interface's MTU is too small.
    #[error("frames of an MTU of {mtu} bytes have no room for a message's head; at least {least} are needed")]
    MtuTooSmall {
        /// MTU of the interface.
        mtu: usize,
        /// Smallest MTU that is large enough.
        least: usize,
    },
    /// The processor lacks the instructions that authentication needs.
    #[error("this processor has no AES instructions (aes and avx), without which frames cannot be authenticated")]
    NoAes,
}

/// Why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The send queue or the event queue is full: call [`progress`](crate::Endpoint::progress), take the events with
    /// [`poll_event`](crate::Endpoint::poll_event), and try again.
    #[error("the send queue is full; make progress, take the events and try again")]
    Full,
    /// The channel has ended.
    #[error("the channel has ended")]
    Ended,
    /// The message is longer than this call allows.
    #[error("a message of {bytes} bytes is too long; the maximum is {most}")]
    TooLong {
        /// Size of the message.
        bytes: usize,
        /// Maximum size.
        most: usize,
    },
}

/// Why a peer cannot be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// The configured number of channels is in use.
    #[error("no room for a channel to {0}: raise the maximum number of channels")]
    Full(Address),
    /// The previous channel to the peer has ended, but its messages were not all taken.
    #[error("the previous channel to {0} still has messages: take them and the event of its end, then try again")]
    Ending(Address),
}

/// Why a channel ended, or a message was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// This side closed it.
    Closed,
    /// The peer closed it, or its process ended.
    PeerClosed,
    /// No endpoint of the peer accepts channels.
    Refused,
    /// The peer does not answer.
    NoAnswer,
    /// The peer did not answer the connection request.
    NeverAnswered,
    /// The peer answers, but stopped receiving.
    Stalled,
    /// The peer was restarted.
    Restarted,
    /// The peer violated the protocol.
    Violation,
    /// This process or a local peer had no descriptor or memory left for the channel.
    Exhausted,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "this side closed the channel",
            Self::PeerClosed => "the peer closed the channel, or its process ended",
            Self::Refused => "the peer refused the channel",
            Self::NoAnswer => "the peer does not answer: is its process running, its host up, and the link?",
            Self::NeverAnswered => {
                "the peer does not answer a connection request: is its process running, and its host up?"
            }
            Self::Stalled => "the peer has stopped receiving",
            Self::Restarted => "the peer does not know the channel; was it restarted?",
            Self::Violation => "the peer violated the protocol",
            Self::Exhausted => {
                "this process or its peer on this host has no descriptors or memory left: ulimit -n, ulimit -v, \
                 vm.overcommit_memory"
            }
        })
    }
}

impl From<Cause> for Ending {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Requested => Self::Closed,
            Cause::PeerDisconnected => Self::PeerClosed,
            Cause::PeerRefused => Self::Refused,
            Cause::PeerNotConnected | Cause::PeerReset => Self::Restarted,
            Cause::PeerRejected(_) => Self::Violation,
            Cause::NoAnswer => Self::NoAnswer,
            Cause::Stalled => Self::Stalled,
        }
    }
}
