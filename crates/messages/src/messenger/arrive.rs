// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes in, piece by piece: straight to where it belongs.

use barewire_endpoint::{Address, ChannelId, Class, Piece, Sink};

use super::State;
use super::receive::{Content, Matched, Receive, Stage};
use crate::completion::Envelope;
use crate::header::{BadHeader, Header};
use crate::peers::{Arriving, PeerId};
use crate::slab::Key;

/// How a peer broke the protocol: its channel ends, and nothing else.
enum Violation {
    Header,
    /// It names an operation that does not exist, or that is not its own, or does not wait for this.
    Operation,
    /// Bytes where none belong, or none where some do.
    Length,
}

impl From<BadHeader> for Violation {
    fn from(_: BadHeader) -> Self {
        Self::Header
    }
}

impl Sink for State {
    #[inline]
    fn piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool {
        // The endpoint has not told yet who this is.
        let Some(peer) = self.peers.of_channel(from) else { return false };
        let (is_broken, arriving) = (self.peers.at(peer).is_broken, self.peers.at(peer).arriving);
        if is_broken {
            return true;
        }
        if arriving != Arriving::Nothing {
            self.go_on(peer, arriving, piece);
            return true;
        }
        self.begin(peer, piece).unwrap_or_else(|_| {
            self.peers.at(peer).is_broken = true;
            self.peers.at(peer).outgoing.clear();
            self.broken.push(peer);
            true
        })
    }

    /// A completion can be worked on while more comes.
    fn has_enough(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Only channels are spoken through.
    fn datagram(&mut self, _: Address, _: Class, _: &[u8]) {}

    /// The event that follows says so, and why.
    fn ended(&mut self, _: ChannelId) {}
}

impl State {
    /// The first piece of a message: it has the head. False: there is no room for it.
    #[inline]
    fn begin(&mut self, peer: PeerId, piece: Piece<'_>) -> Result<bool, Violation> {
        // Messages of no bytes need no memory of a receive that takes many.
        if self.completions.len() >= self.config.receives.max(1) {
            return Ok(false);
        }
        let (header, body) = Header::decode(piece.bytes)?;
        let head = piece.bytes.len() - body.len();
        let length = u64::from(piece.total) - head as u64;
        let is_awaited = match header {
            Header::Eager { label, confirm } => {
                let envelope = Envelope { source: peer, label, length };
                let arriving = if let Some(receive) = self.match_receive(envelope, false, confirm) {
                    self.place(receive, 0, body);
                    Arriving::Place { receive, head: head as u32, base: 0 }
                } else if self.has_room_to_hold(length) {
                    let mut bytes = Vec::with_capacity(length as usize);
                    bytes.extend_from_slice(body);
                    let held = self.hold(envelope, Content::Eager { bytes, confirm });
                    Arriving::Hold { held, head: head as u32 }
                } else {
                    return Ok(false);
                };
                self.arrived(peer, arriving, piece.is_last());
                return Ok(true);
            }
            Header::Data { receive, offset } => {
                let matched = self.announced_to(receive, peer)?;
                if offset != matched.placed || length == 0 || length > matched.wanted - matched.placed {
                    return Err(Violation::Length);
                }
                matched.placed += length;
                self.place(receive, offset, body);
                self.arrived(peer, Arriving::Place { receive, head: head as u32, base: offset }, piece.is_last());
                return Ok(true);
            }
            _ if length > 0 => return Err(Violation::Length),
            Header::Request { label, number, length, confirm } => {
                let envelope = Envelope { source: peer, label, length };
                if let Some(receive) = self.match_receive(envelope, true, confirm.then_some(number)) {
                    self.answer(receive, number);
                } else if self.has_room_to_hold(0) {
                    self.hold(envelope, Content::Request { number, confirm });
                } else {
                    return Ok(false);
                }
                true
            }
            Header::Answer { number, receive, wanted } => self.answered(peer, number, receive, wanted),
            Header::Delivered { number } => self.delivered(peer, number),
            Header::Announce | Header::Resume => {
                self.peers.at(peer).wants_announcements = header == Header::Announce;
                true
            }
        };
        if is_awaited { Ok(true) } else { Err(Violation::Operation) }
    }

    /// A further piece.
    #[inline]
    fn go_on(&mut self, peer: PeerId, arriving: Arriving, piece: Piece<'_>) {
        match arriving {
            Arriving::Place { receive, head, base } => {
                self.place(receive, base + u64::from(piece.offset - head), piece.bytes);
            }
            Arriving::Hold { held, .. } => {
                if let Some(super::receive::Held { content: Content::Eager { bytes, .. }, .. }) = self.held.get(held) {
                    bytes.extend_from_slice(piece.bytes);
                }
            }
            Arriving::Nothing => {}
        }
        self.arrived(peer, arriving, piece.is_last());
    }

    /// A piece is in its place.
    #[inline]
    fn arrived(&mut self, peer: PeerId, arriving: Arriving, is_last: bool) {
        self.peers.at(peer).arriving = if is_last { Arriving::Nothing } else { arriving };
        let (Arriving::Place { receive, .. }, true) = (arriving, is_last) else { return };
        if let Some(Receive { stage: Stage::Matched(matched), .. }) = self.receives.get(receive)
            && (!matched.is_announced || matched.placed == matched.wanted)
        {
            self.received(receive);
        }
    }

    /// A receive that waits for a peer's bytes.
    fn announced_to(&mut self, receive: Key, peer: PeerId) -> Result<&mut Matched, Violation> {
        match self.receives.get(receive) {
            Some(Receive { stage: Stage::Matched(matched), .. })
                if matched.is_announced && matched.envelope.source == peer =>
            {
                Ok(matched)
            }
            _ => Err(Violation::Operation),
        }
    }
}
