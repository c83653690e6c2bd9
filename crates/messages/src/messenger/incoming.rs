// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Incoming messages: each piece goes straight to its destination.

use barewire_endpoint::{Address, ChannelId, Class, Piece, Sink};

use super::State;
use super::receive::{Content, Matched, Receive, RendezvousRequest, Stage, Unexpected};
use crate::completion::Envelope;
use crate::header::{Header, HeaderError};
use crate::mutant::mutant;
use crate::peers::{Peer, PeerId, Reassembly};
use crate::slab::Key;

/// Limit of unsent answers to a peer, at which no more of its messages are accepted until it receives some: more than
/// two honest peers ever have for each other.
const ANSWERS_MAX: u32 = 1 << 20;

/// A peer's protocol violation: its channel is aborted, and nothing else is affected.
pub(super) enum Violation {
    Header,
    /// It refers to an operation that does not exist, is another peer's, or does not expect this message.
    Operation,
    /// Unexpected payload, or missing payload.
    Length,
}

impl From<HeaderError> for Violation {
    fn from(_: HeaderError) -> Self {
        Self::Header
    }
}

impl Sink for State {
    #[inline]
    fn piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool {
        // `Event::Opened` has not named the peer yet.
        let Some(peer) = self.peers.of_channel(from) else { return false };
        let &mut Peer { is_broken, reassembly, .. } = self.peers.at(peer);
        if is_broken {
            return true;
        }
        if reassembly != Reassembly::Idle {
            self.continue_message(peer, reassembly, piece);
            return true;
        }
        self.begin_message(peer, piece).unwrap_or_else(|_| {
            self.peers.at(peer).is_broken = true;
            self.discard_answers(peer);
            self.broken.push(peer);
            true
        })
    }

    /// While a peer's messages wait for room, the end of its channel is not reported, and operations with it do not
    /// fail: the program may wait for one of them before it makes room.
    #[cold]
    fn left_piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool {
        let Some(peer) = self.peers.of_channel(from) else { return false };
        self.peers.at(peer).is_gone = true;
        self.piece(from, piece)
    }

    /// Lets the caller process a completion while more arrives.
    fn has_enough(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Messengers use channels only.
    fn datagram(&mut self, _: Address, _: Class, _: &[u8]) {}

    /// `Event::Ended`, which follows, reports it with the reason.
    fn ended(&mut self, _: ChannelId) {}
}

impl State {
    /// Handles a message's first piece, which contains its header. False if there is no room for it.
    #[inline]
    fn begin_message(&mut self, peer: PeerId, piece: Piece<'_>) -> Result<bool, Violation> {
        // Bounds the completions, since empty messages use up no memory of a multi-receive, and the answers to a peer
        // that does not receive them.
        if self.completions.len() >= self.config.receives.max(1) || self.peers.at(peer).answers >= ANSWERS_MAX {
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
        if self.refuses_unsolicited && found.is_some_and(|(_, receive)| self.is_multi(receive)) {
            return Ok(false);
        }
        if let Some(found) = found
            && piece.is_last()
            && self.receive_whole(found, envelope, body, confirm)
        {
            return Ok(true);
        }
        let matched = found.and_then(|found| self.match_receive(found, envelope, false, confirm));
        let reassembly = if let Some(receive) = matched {
            self.store(receive, 0, body);
            Reassembly::Receive { receive, head: head as u32, base: 0 }
        } else if self.has_unexpected_room(peer, length) {
            let mut bytes = Vec::with_capacity(length as usize);
            barewire_copy::append(body, &mut bytes);
            let message = self.add_unexpected(envelope, Content::Eager { bytes, confirm });
            Reassembly::Unexpected { message, head: head as u32 }
        } else {
            return Ok(false);
        };
        self.piece_stored(peer, reassembly, piece.is_last());
        Ok(true)
    }

    /// Handles the first piece of a message that is not eager.
    fn begin_other(&mut self, peer: PeerId, header: Header, piece: Piece<'_>, body: &[u8]) -> Result<bool, Violation> {
        let head = piece.bytes.len() - body.len();
        let length = u64::from(piece.total) - head as u64;
        if self.refuses_unsolicited && matches!(header, Header::Write { data: Some(_), .. }) {
            return Ok(false);
        }
        let is_expected = match header {
            Header::Data { receive, offset } => {
                let matched = self.rendezvous_match(receive, peer)?;
                if offset != matched.received || length == 0 || length > matched.wanted - matched.received {
                    return Err(Violation::Length);
                }
                matched.received += length;
                self.store(receive, offset, body);
                self.piece_stored(
                    peer,
                    Reassembly::Receive { receive, head: head as u32, base: offset },
                    piece.is_last(),
                );
                return Ok(true);
            }
            Header::Write { .. } | Header::Rest { .. } | Header::Returned { .. } | Header::Atomic { .. } => {
                self.begin_access(peer, header, head as u32, length, body)?;
                let reassembly = self.peers.at(peer).reassembly;
                self.piece_stored(peer, reassembly, piece.is_last());
                return Ok(true);
            }
            _ if length > 0 => return Err(Violation::Length),
            Header::Read { number, at, length } => {
                self.start_read(peer, number, at, length)?;
                true
            }
            Header::Done { number, result } => self.access_answered(peer, number, result),
            Header::Request { label, number, length, confirm, address } => {
                let envelope = Envelope { source: peer, label, length };
                let found = self.receive_for(&envelope);
                let confirm_to = confirm.then_some(number);
                if let Some(receive) = found.and_then(|found| self.match_receive(found, envelope, true, confirm_to)) {
                    self.answer_request(receive, RendezvousRequest { number, address });
                } else if self.has_unexpected_room(peer, 0) {
                    self.add_unexpected(
                        envelope,
                        Content::Request { request: RendezvousRequest { number, address }, confirm },
                    );
                    if confirm && mutant!(self, ConfirmsRequest) {
                        self.reply(peer, Header::Delivered { number });
                    }
                } else {
                    return Ok(false);
                }
                true
            }
            // Handled by `begin_message`.
            Header::Eager { .. } => return Err(Violation::Header),
            Header::Answer { number, receive, wanted } => self.request_answered(peer, number, receive, wanted),
            Header::Delivered { number } => self.delivery_confirmed(peer, number),
            Header::Announce | Header::Resume => {
                self.peers.at(peer).rendezvous_only = header == Header::Announce;
                true
            }
        };
        if is_expected { Ok(true) } else { Err(Violation::Operation) }
    }

    /// Handles the first piece of a message of a remote access, and sets the destination of the others.
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
                self.start_write(peer, number, at, length, data)?;
                (number, 0)
            }
            Header::Rest { number, offset } if length > 0 => (number, offset),
            Header::Returned { number, offset } => {
                if !self.accept_returned(peer, number, offset, length) {
                    return Err(Violation::Operation);
                }
                self.store_returned(number, offset, body);
                self.peers.at(peer).reassembly = Reassembly::Fetch { access: number, head, base: offset };
                return Ok(());
            }
            // Atomic operations fit one frame, or one piece of a pipe.
            Header::Atomic { number, at, atomic } if body.len() as u64 == length => {
                return self.apply_atomic(peer, number, at, atomic, body);
            }
            _ => return Err(Violation::Length),
        };
        self.continue_write(peer, number, base, length)?;
        self.store_written(peer, base, body);
        self.peers.at(peer).reassembly = Reassembly::Write { head, base };
        Ok(())
    }

    /// Handles a further piece.
    #[inline]
    fn continue_message(&mut self, peer: PeerId, reassembly: Reassembly, piece: Piece<'_>) {
        match reassembly {
            Reassembly::Receive { receive, head, base } => {
                self.store(receive, base + u64::from(piece.offset - head), piece.bytes);
            }
            Reassembly::Unexpected { message, .. } => {
                if let Some(Unexpected { content: Content::Eager { bytes, .. }, .. }) = self.unexpected.get(message) {
                    barewire_copy::append(piece.bytes, bytes);
                }
            }
            Reassembly::Write { head, base } => {
                let base = if mutant!(self, WritesToBeginning) { 0 } else { base };
                self.store_written(peer, base + u64::from(piece.offset - head), piece.bytes);
            }
            Reassembly::Fetch { access, head, base } => {
                let base = if mutant!(self, ReadsToBeginning) { 0 } else { base };
                self.store_returned(access, base + u64::from(piece.offset - head), piece.bytes);
            }
            Reassembly::Idle => {}
        }
        self.piece_stored(peer, reassembly, piece.is_last());
    }

    /// A piece has been stored; the last one ends the message.
    #[inline]
    fn piece_stored(&mut self, peer: PeerId, reassembly: Reassembly, is_last: bool) {
        self.peers.at(peer).reassembly = if is_last { Reassembly::Idle } else { reassembly };
        match reassembly {
            Reassembly::Receive { receive, .. } if is_last => {
                if let Some(Receive { stage: Stage::Matched(matched), .. }) = self.receives.get(receive)
                    && (!matched.is_rendezvous || matched.received == matched.wanted)
                {
                    self.finish_receive(receive);
                }
            }
            Reassembly::Unexpected { message, .. } if is_last => {
                if let Some(Unexpected { content: Content::Eager { confirm, .. }, .. }) = self.unexpected.get(message)
                    && let Some(number) = confirm.take()
                {
                    self.reply(peer, Header::Delivered { number });
                }
            }
            Reassembly::Write { .. } if is_last => self.written_message_done(peer),
            Reassembly::Fetch { access, .. } if is_last => self.returned_message_done(access),
            _ => {}
        }
    }

    /// The matched rendezvous message of a receive, if it is this peer's.
    fn rendezvous_match(&mut self, receive: Key, peer: PeerId) -> Result<&mut Matched, Violation> {
        match self.receives.get(receive) {
            Some(Receive { stage: Stage::Matched(matched), .. })
                if matched.is_rendezvous && matched.envelope.source == peer =>
            {
                Ok(matched)
            }
            _ => Err(Violation::Operation),
        }
    }
}
