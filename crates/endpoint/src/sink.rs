// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The consumer of received messages.

use barewire_llc::message::Piece;

use crate::address::Address;
use crate::channel::ChannelId;

/// How a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Type 1: may be lost.
    Unreliable,
    /// Type 3: delivered once, or the sender learns that there was no acknowledgement.
    Acknowledged,
}

/// Consumes what an endpoint receives. [`Inbox`](crate::Inbox) queues it; a message layer may place it directly.
pub trait Sink {
    /// Takes the next piece of a channel's messages; pieces come in order, one message after the other. Returns false
    /// if there is no room: the piece is offered again later, the channel's next pieces wait, and the peer is told to
    /// pause.
    fn piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool;

    /// Takes a piece that [`piece`](Self::piece) has refused, of a channel whose peer is gone. Nothing more will arrive,
    /// but the channel's end is reported, and its peer reached again, only when the sink has taken what did: a sink
    /// whose caller may wait for that should make an exception of its limits. Returns false like `piece`.
    fn left_piece(&mut self, _from: ChannelId, _piece: Piece<'_>) -> bool {
        false
    }

    /// Whether to stop receiving for now, despite room. Called after each piece; further frames stay in the ring.
    fn has_enough(&self) -> bool {
        false
    }

    /// Takes a datagram; drops it if there is no room.
    fn datagram(&mut self, from: Address, class: Class, bytes: &[u8]);

    /// Handles the end of a channel. An incomplete message stays incomplete.
    fn ended(&mut self, from: ChannelId);
}
