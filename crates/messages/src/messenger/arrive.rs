// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes in, piece by piece: straight to where it belongs.

use barewire_endpoint::{Address, ChannelId, Class, Piece, Sink};

use super::State;
use super::receive::{Content, Matched, Receive, Requested, Stage};
use crate::completion::Envelope;
use crate::header::{BadHeader, Header};
use crate::mutant::mutant;
use crate::peers::{Arriving, Peer, PeerId};
use crate::slab::Key;

/// How a peer broke the protocol: its channel ends, and nothing else.
pub(super) enum Violation {
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
        let &mut Peer { is_broken, arriving, .. } = self.peers.at(peer);
        if is_broken {
            return true;
        }
        if arriving != Arriving::Nothing {
            self.go_on(peer, arriving, piece);
            return true;
        }
        self.begin(peer, piece).unwrap_or_else(|_| {
            self.peers.at(peer).is_broken = true;
            self.peers.at(peer).forget_answers();
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
        let Header::Eager { label, confirm } = header else {
            return self.begin_other(peer, header, piece, body);
        };
        let envelope = Envelope { source: peer, label, length };
        let found = self.receive_for(&envelope);
        if self.refuses_unasked && found.is_some_and(|(_, receive)| self.takes_many(receive)) {
            return Ok(false);
        }
        if let Some(found) = found
            && piece.is_last()
            && self.receive_at_once(found, envelope, body, confirm)
        {
            return Ok(true);
        }
        let matched = found.and_then(|found| self.match_receive(found, envelope, false, confirm));
        let arriving = if let Some(receive) = matched {
            self.place(receive, 0, body);
            Arriving::Place { receive, head: head as u32, base: 0 }
        } else if self.has_room_to_hold(length) {
            let mut bytes = Vec::with_capacity(length as usize);
            barewire_copy::append(body, &mut bytes);
            let held = self.hold(envelope, Content::Eager { bytes, confirm });
            if let (Some(number), true) = (confirm, mutant!(self, DeliveredWhenHeld)) {
                self.enqueue(peer, crate::peers::Out::Control(Header::Delivered { number }));
            }
            Arriving::Hold { held, head: head as u32 }
        } else {
            return Ok(false);
        };
        self.arrived(peer, arriving, piece.is_last());
        Ok(true)
    }

    /// The first piece of one that is not eager.
    fn begin_other(&mut self, peer: PeerId, header: Header, piece: Piece<'_>, body: &[u8]) -> Result<bool, Violation> {
        let head = piece.bytes.len() - body.len();
        let length = u64::from(piece.total) - head as u64;
        if self.refuses_unasked && matches!(header, Header::Write { data: Some(_), .. }) {
            return Ok(false);
        }
        let is_awaited = match header {
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
            Header::Write { .. } | Header::Rest { .. } | Header::Returned { .. } | Header::Atomic { .. } => {
                self.begin_access(peer, header, head as u32, length, body)?;
                let arriving = self.peers.at(peer).arriving;
                self.arrived(peer, arriving, piece.is_last());
                return Ok(true);
            }
            _ if length > 0 => return Err(Violation::Length),
            Header::Read { number, at, length } => {
                self.read_begins(peer, number, at, length)?;
                true
            }
            Header::Done { number, result } => self.access_done(peer, number, result),
            Header::Request { label, number, length, confirm, address } => {
                let envelope = Envelope { source: peer, label, length };
                let found = self.receive_for(&envelope);
                let confirm_to = confirm.then_some(number);
                if let Some(receive) = found.and_then(|found| self.match_receive(found, envelope, true, confirm_to)) {
                    self.answer(receive, Requested { number, address });
                } else if self.has_room_to_hold(0) {
                    self.hold(envelope, Content::Request { request: Requested { number, address }, confirm });
                } else {
                    return Ok(false);
                }
                true
            }
            // `begin` has begun it.
            Header::Eager { .. } => return Err(Violation::Header),
            Header::Answer { number, receive, wanted } => self.answered(peer, number, receive, wanted),
            Header::Delivered { number } => self.delivered(peer, number),
            Header::Announce | Header::Resume => {
                self.peers.at(peer).wants_announcements = header == Header::Announce;
                true
            }
        };
        if is_awaited { Ok(true) } else { Err(Violation::Operation) }
    }

    /// The first piece of a message with bytes for registered memory, or from it: where the others go is set.
    fn begin_access(
        &mut self,
        peer: PeerId,
        header: Header,
        head: u32,
        length: u64,
        body: &[u8],
    ) -> Result<(), Violation> {
        let (number, base) = match header {
            Header::Write { number, at, length, data } => {
                self.write_begins(peer, number, at, length, data)?;
                (number, 0)
            }
            Header::Rest { number, offset } if length > 0 => (number, offset),
            Header::Returned { number, offset } => {
                if !self.returned(peer, number, offset, length) {
                    return Err(Violation::Operation);
                }
                self.place_returned(number, offset, body);
                self.peers.at(peer).arriving = Arriving::Returned { access: number, head, base: offset };
                return Ok(());
            }
            // It goes in one frame.
            Header::Atomic { number, at, atomic } if body.len() as u64 == length => {
                return self.change(peer, number, at, atomic, body);
            }
            _ => return Err(Violation::Length),
        };
        self.write_goes_on(peer, number, base, length)?;
        self.place_written(peer, base, body);
        self.peers.at(peer).arriving = Arriving::Write { head, base };
        Ok(())
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
                    barewire_copy::append(piece.bytes, bytes);
                }
            }
            Arriving::Write { head, base } => {
                let base = if mutant!(self, WritesToBeginning) { 0 } else { base };
                self.place_written(peer, base + u64::from(piece.offset - head), piece.bytes);
            }
            Arriving::Returned { access, head, base } => {
                let base = if mutant!(self, ReadsToBeginning) { 0 } else { base };
                self.place_returned(access, base + u64::from(piece.offset - head), piece.bytes);
            }
            Arriving::Nothing => {}
        }
        self.arrived(peer, arriving, piece.is_last());
    }

    /// A piece is in its place.
    #[inline]
    fn arrived(&mut self, peer: PeerId, arriving: Arriving, is_last: bool) {
        self.peers.at(peer).arriving = if is_last { Arriving::Nothing } else { arriving };
        match arriving {
            Arriving::Place { receive, .. } if is_last => {
                if let Some(Receive { stage: Stage::Matched(matched), .. }) = self.receives.get(receive)
                    && (!matched.is_announced || matched.placed == matched.wanted)
                {
                    self.received(receive);
                }
            }
            Arriving::Write { .. } if is_last => self.written(peer),
            Arriving::Returned { access, .. } if is_last => self.returned_wholly(access),
            _ => {}
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
