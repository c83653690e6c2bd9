// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong, sorted by whose fault it is.

use std::fmt;

use barewire_link::LinkError;
use barewire_llc::{Cause, ConfigError};
use barewire_shm::ShmError;
use thiserror::Error;

use crate::address::Address;

/// Why an endpoint could not be opened, or works no more.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A value of the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Shared memory, which carries to processes of this host.
    #[error(transparent)]
    Shm(#[from] ShmError),
    /// The pipes to processes of this host are too short for a frame's message.
    #[error("a ring of {ring_bytes} bytes takes messages of {room}; frames of this MTU need {needed}")]
    Ring {
        /// As configured.
        ring_bytes: usize,
        /// What there is.
        room: usize,
        /// What is needed.
        needed: usize,
    },
    /// The interface's MTU leaves no room.
    #[error("frames of an MTU of {mtu} bytes have no room for a message's head; at least {least} are needed")]
    MtuTooSmall {
        /// What there is.
        mtu: usize,
        /// What is needed.
        least: usize,
    },
    /// The processor cannot do what authentication needs.
    #[error("this processor has no AES instructions (aes and avx), without which frames cannot be authenticated")]
    NoAes,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The send queue is full, or as many events wait: go on with [`progress`](crate::Endpoint::progress) and take
    /// what [`poll_event`](crate::Endpoint::poll_event) has, then try again.
    #[error("the send queue is full; make progress, take the events and try again")]
    Full,
    /// The channel has ended.
    #[error("the channel has ended")]
    Ended,
    /// There is no service of this kind for it.
    #[error("{bytes} bytes do not fit; this takes {most} at most")]
    TooLong {
        /// What was to be sent.
        bytes: usize,
        /// What can be.
        most: usize,
    },
}

/// Why a peer cannot be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// As many channels as were configured.
    #[error("no room for a channel to {0}: raise how many there may be")]
    Full(Address),
    /// The last channel to the peer is over, and not all that came through it was taken.
    #[error("messages of the last channel to {0} wait: take them and the event of its end, then try again")]
    Ending(Address),
}

/// Why a channel ended, or a message was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// This side closed it.
    Closed,
    /// The peer closed it, or its process ended.
    PeerClosed,
    /// Nobody accepts at the peer.
    Refused,
    /// The peer does not answer.
    NoAnswer,
    /// The peer answers, and takes nothing.
    Stalled,
    /// The peer was started again.
    Restarted,
    /// The peer broke the protocol.
    Violation,
    /// For a channel to a process of this host there was no descriptor or memory left, here or there.
    Exhausted,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "this side closed the channel",
            Self::PeerClosed => "the peer closed the channel, or its process ended",
            Self::Refused => "the peer refused the channel",
            Self::NoAnswer => "the peer does not answer: is its process running, its host up, and the link?",
            Self::Stalled => "the peer takes nothing",
            Self::Restarted => "the peer knows of no channel; was it started again?",
            Self::Violation => "the peer broke the protocol",
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
