// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where messages go that come in.

use barewire_llc::message::Piece;

use crate::address::Address;
use crate::channel::ChannelId;

/// How a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Type 1: perhaps.
    Unreliable,
    /// Type 3: once, or its sender hears that nobody answered.
    Acknowledged,
}

/// Takes what an endpoint receives, while it makes progress: [`Inbox`](crate::Inbox) queues it; a message layer may
/// know at once where a message belongs.
pub trait Sink {
    /// Takes the next piece of a channel's messages, in order, one message after the other. False: no room now. Then it
    /// is offered again later, the channel's others wait behind it, and the peer is told to wait.
    fn piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool;

    /// Whether nothing more is wanted for now, although there is room: asked after each piece. What has come stays in
    /// the link's ring.
    fn has_enough(&self) -> bool {
        false
    }

    /// Takes a datagram; what it has no room for is lost.
    fn datagram(&mut self, from: Address, class: Class, bytes: &[u8]);

    /// The channel has ended: a message of which only pieces came stays as it is.
    fn ended(&mut self, from: ChannelId);
}
