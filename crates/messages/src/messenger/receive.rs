// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives, and unexpected messages.

use barewire_endpoint::{ChannelId, Ending};
use barewire_link::Link;

use super::{Messenger, State};
use crate::completion::{Envelope, Failure, Operation, Outcome, PostError, Received, ReceivedNext};
use crate::config::Config;
use crate::header::{Header, Label};
use crate::matching::{Matcher, Pattern, Ticket};
use crate::memory::{Part, Target};
use crate::mutant::mutant;
use crate::peers::{Bulk, Peer, PeerId, Reassembly};
use crate::slab::Key;

/// Selects the messages that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Tagged messages that match the pattern.
    Tagged(Pattern),
    /// Untagged messages from one peer, or from any.
    Untagged(Option<PeerId>),
}

/// Options of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Returned by the completion.
    pub context: u64,
    /// Returned likewise, for the caller's own use.
    pub note: u32,
    /// Only a failure is reported.
    pub is_silent: bool,
}

/// A message claimed from matching, to be received later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim(Key);

/// Messages of more bytes than this exceed what a peer sends before anything is acknowledged, a window at an MTU of
/// 1500.
pub(super) const LONG_BYTES: u64 = 88 << 10;

impl Selector {
    pub(super) fn source(&self) -> Option<PeerId> {
        match self {
            Self::Tagged(pattern) => pattern.source,
            Self::Untagged(source) => *source,
        }
    }

    fn pattern(&self) -> Pattern {
        match *self {
            Self::Tagged(pattern) => pattern,
            Self::Untagged(source) => Pattern { source, tag: 0, ignore: 0 },
        }
    }

    fn is_tagged(&self) -> bool {
        matches!(self, Self::Tagged(_))
    }
}

/// An outstanding receive.
pub(super) struct Receive {
    pub target: Target,
    pub options: ReceiveOptions,
    pub stage: Stage,
}

pub(super) enum Stage {
    /// Without a message.
    Posted { selector: Selector, ticket: Ticket },
    /// A multi-receive: stores messages one after the other until fewer than `min_free` bytes are free; then it has no
    /// ticket.
    Multi { selector: Selector, ticket: Option<Ticket>, used: u64, min_free: u64, in_flight: u32 },
    /// Matched with a message.
    Matched(Matched),
}

/// State of a matched message.
pub(super) struct Matched {
    pub envelope: Envelope,
    /// Bytes to receive: all, or as many as fit.
    pub wanted: u64,
    /// Rendezvous: bytes received or requested so far, in order.
    pub received: u64,
    pub is_rendezvous: bool,
    /// The sender's key, if the sender needs a delivery confirmation.
    confirm: Option<Key>,
    /// The multi-receive that it is part of, and its offset there.
    multi: Option<(Key, u64)>,
}

/// An unexpected message.
pub(super) struct Unexpected {
    pub envelope: Envelope,
    pub content: Content,
    /// `None` once claimed.
    ticket: Option<Ticket>,
}

/// A rendezvous request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RendezvousRequest {
    pub number: Key,
    /// Address in the sender's process, if the sender lends the memory.
    pub address: Option<u64>,
}

pub(super) enum Content {
    /// The bytes received so far.
    Eager { bytes: Vec<u8>, confirm: Option<Key> },
    /// A request; no data yet.
    Request { request: RendezvousRequest, confirm: bool },
    /// Claimed, but lost with the peer's channel.
    Lost(Ending),
}

impl<L: Link> Messenger<L> {
    /// Receives one message into `parts`, which are filled in order. Fails if it names a source that cannot be reached.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    ///
    /// # Safety
    /// All parts must be valid for writes, disjoint, and used by nothing else until the receive completes, as
    /// [`Messenger`] describes.
    #[inline]
    pub unsafe fn receive(
        &mut self,
        selector: Selector,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        self.check_receive(&selector)?;
        // SAFETY: the caller's promise; the target is dropped when the receive completes.
        let target = unsafe { Target::new(parts) };
        if let Some(unexpected) = self.state.take_unexpected(&selector) {
            self.state.receive_unexpected(target, options, unexpected);
            return Ok(());
        }
        self.connect_source(&selector)?;
        let stage = Stage::Posted { selector, ticket: 0 };
        let key = self.state.add_single(Receive { target, options, stage });
        let posted_ticket = self.state.matcher(selector.is_tagged()).post(selector.pattern(), key);
        if let Some(Receive { stage: Stage::Posted { ticket, .. }, .. }) = self.state.receives.get(key) {
            *ticket = posted_ticket;
        }
        Ok(())
    }

    /// Multi-receive: stores at least one message into `parts`, one after the other, until fewer than `min_free` bytes
    /// are free. Each message has a completion with its offset.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive), until the last completion.
    pub unsafe fn receive_multi(
        &mut self,
        selector: Selector,
        parts: &[Part],
        min_free: u64,
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        self.check_receive(&selector)?;
        self.connect_source(&selector)?;
        // SAFETY: the caller's promise; the target is dropped after the last message.
        let target = unsafe { Target::new(parts) };
        // A full buffer ends the receive; otherwise it would accept empty messages forever.
        let min_free = min_free.max(1);
        let stage = Stage::Multi { selector, ticket: None, used: 0, min_free, in_flight: 0 };
        let key = self.state.receives.add(Receive { target, options, stage });
        let posted_ticket = self.state.matcher(selector.is_tagged()).post(selector.pattern(), key);
        if let Some(Receive { stage: Stage::Multi { ticket, .. }, .. }) = self.state.receives.get(key) {
            *ticket = Some(posted_ticket);
        }
        self.state.fill_multi(key, &selector);
        Ok(())
    }

    /// The message that a receive would match now; it is not removed.
    #[must_use]
    pub fn peek(&mut self, selector: Selector) -> Option<Envelope> {
        let (_, key) = self.state.matcher(selector.is_tagged()).message_for(selector.pattern())?;
        self.state.unexpected.get(key).map(|message| message.envelope)
    }

    /// Claims the message that a receive would match now: from then on, only [`receive_claimed`](Self::receive_claimed)
    /// and [`discard`](Self::discard) find it.
    pub fn claim(&mut self, selector: Selector) -> Option<(Claim, Envelope)> {
        let matcher = self.state.matcher(selector.is_tagged());
        let (ticket, key) = matcher.message_for(selector.pattern())?;
        matcher.remove_message(ticket);
        let message = self.state.unexpected.get(key)?;
        message.ticket = None;
        Some((Claim(key), message.envelope))
    }

    /// Receives a claimed message.
    ///
    /// # Errors
    /// [`PostError::NoSuchClaim`].
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn receive_claimed(
        &mut self,
        claim: Claim,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        let Claim(key) = claim;
        self.state.unexpected.get(key).filter(|message| message.ticket.is_none()).ok_or(PostError::NoSuchClaim)?;
        // SAFETY: the caller's promise; the target is dropped when the receive completes.
        let target = unsafe { Target::new(parts) };
        self.state.receive_unexpected(target, options, key);
        Ok(())
    }

    /// Fast path: receives the next message of the only local peer that was active last, if all of it is here and it
    /// completes one receive. `None` otherwise; then call [`progress`](Self::progress).
    #[inline]
    pub fn receive_next(&mut self) -> Option<ReceivedNext> {
        let Self { endpoint, state, .. } = self;
        if !state.completions.is_empty() || !state.answers.is_empty() || !state.pending.is_empty() {
            return None;
        }
        endpoint.offer_next(|from, message| state.receive_next(from, message))
    }

    /// Discards a claimed message and returns its envelope; for the sender, it was received.
    ///
    /// # Errors
    /// [`PostError::NoSuchClaim`].
    pub fn discard(&mut self, claim: Claim) -> Result<Envelope, PostError> {
        let Claim(key) = claim;
        let message =
            self.state.unexpected.get(key).filter(|message| message.ticket.is_none()).ok_or(PostError::NoSuchClaim)?;
        let envelope = message.envelope;
        self.state.discard_unexpected(key);
        Ok(envelope)
    }

    /// Cancels a receive that has no message yet; it fails as cancelled. False if there is none with this context, or
    /// if it has matched a message: then it completes with that.
    pub fn cancel(&mut self, context: u64) -> bool {
        let is_match = |receive: &Receive| {
            receive.options.context == context
                && matches!(receive.stage, Stage::Posted { .. } | Stage::Multi { ticket: Some(_), .. })
        };
        let Some(key) = self.state.receives.keys_where(is_match).first().copied() else { return false };
        self.state.fail_posted(key, Failure::Cancelled);
        true
    }

    #[inline(always)]
    fn check_receive(&mut self, selector: &Selector) -> Result<(), PostError> {
        selector.source().map_or(Ok(()), |source| self.state.check_known(source))?;
        if self.state.receives.len() < self.state.config.receives { Ok(()) } else { Err(PostError::Full) }
    }

    /// Connects to a receive's only source, so that the receive fails if the source does.
    #[inline]
    fn connect_source(&mut self, selector: &Selector) -> Result<(), PostError> {
        let Some(source) = selector.source() else { return Ok(()) };
        let peer = self.state.peers.at(source);
        peer.take_loss()?;
        if peer.channel.is_none() {
            self.connect(source)?.ok_or(PostError::Full)?;
        }
        Ok(())
    }
}

impl State {
    #[inline]
    pub(super) fn matcher(&mut self, is_tagged: bool) -> &mut Matcher<Key, Key> {
        if is_tagged { &mut self.tagged } else { &mut self.untagged }
    }

    /// The receive that a new message matches.
    #[inline]
    pub(super) fn receive_for(&mut self, envelope: &Envelope) -> Option<(Ticket, Key)> {
        let tag = envelope.label.tag;
        self.matcher(tag.is_some()).receive_for(envelope.source, tag.unwrap_or(0))
    }

    /// Matches a message with a receive; returns the receive that holds the message.
    #[inline]
    pub(super) fn match_receive(
        &mut self,
        (ticket, key): (Ticket, Key),
        envelope: Envelope,
        is_rendezvous: bool,
        confirm: Option<Key>,
    ) -> Option<Key> {
        let receive = self.receives.get(key)?;
        if matches!(receive.stage, Stage::Multi { .. }) {
            return self.add_multi_part(key, envelope, is_rendezvous, confirm);
        }
        receive.stage = Stage::Matched(Matched::new(envelope, &receive.target, is_rendezvous, confirm));
        self.matcher(envelope.label.tag.is_some()).remove_receive(ticket);
        Some(key)
    }

    /// Receives a complete message on the fast path. `None`, without effect, if that is not possible.
    #[inline(always)]
    fn receive_next(&mut self, from: ChannelId, message: &[u8]) -> Option<ReceivedNext> {
        let peer = self.peers.of_channel(from)?;
        let &mut Peer { is_broken, reassembly, .. } = self.peers.at(peer);
        let (Header::Eager { label, confirm: None }, body) = Header::decode(message).ok()? else { return None };
        if is_broken || reassembly != Reassembly::Idle {
            return None;
        }
        let envelope = Envelope { source: peer, label, length: body.len() as u64 };
        let found = self.receive_for(&envelope)?;
        let (options, _) =
            self.fill(found, label, body, |options, room| !options.is_silent && envelope.length <= room)?;
        self.counts.received += 1;
        Some(ReceivedNext { context: options.context, note: options.note, envelope })
    }

    /// Completes a receive with a complete message. False if it is a multi-receive.
    #[inline]
    pub(super) fn receive_whole(
        &mut self,
        found: (Ticket, Key),
        envelope: Envelope,
        body: &[u8],
        confirm: Option<Key>,
    ) -> bool {
        let Some((options, room)) = self.fill(found, envelope.label, body, |_, _| true) else { return false };
        self.complete_receive(options, Received { envelope, offset: 0, is_last: true }, room, confirm);
        true
    }

    /// Copies a message into a single receive and removes that; returns its options and the size of its buffer.
    #[inline(always)]
    fn fill(
        &mut self,
        (ticket, key): (Ticket, Key),
        label: Label,
        body: &[u8],
        accepts: impl FnOnce(&ReceiveOptions, u64) -> bool,
    ) -> Option<(ReceiveOptions, u64)> {
        let Receive { target, options, stage: Stage::Posted { .. } } = self.receives.get(key)? else { return None };
        let (options, room) = (*options, target.bytes());
        if !accepts(&options, room) {
            return None;
        }
        target.write(0, body);
        self.receives.free(key);
        self.awaited_bytes = self.awaited_bytes.wrapping_sub(room);
        self.matcher(label.tag.is_some()).remove_receive(ticket);
        Some((options, room))
    }

    pub(super) fn is_multi(&mut self, receive: Key) -> bool {
        matches!(self.receives.get(receive), Some(Receive { stage: Stage::Multi { .. }, .. }))
    }

    /// Adds a receive for one message of a multi-receive.
    fn add_multi_part(
        &mut self,
        multi: Key,
        envelope: Envelope,
        is_rendezvous: bool,
        confirm: Option<Key>,
    ) -> Option<Key> {
        let Receive { target, options, stage } = self.receives.get(multi)?;
        let Stage::Multi { selector, ticket, used, min_free, in_flight } = stage else { return None };
        let offset = *used;
        let part = target.split(offset, envelope.length.min(target.bytes() - offset));
        *used += part.bytes();
        *in_flight += 1;
        let is_full = target.bytes() - *used < *min_free;
        let done = if is_full { ticket.take() } else { None };
        let (is_tagged, options) = (selector.is_tagged(), *options);
        if let Some(ticket) = done {
            self.matcher(is_tagged).remove_receive(ticket);
        }
        let mut matched = Matched::new(envelope, &part, is_rendezvous, confirm);
        matched.multi = Some((multi, offset));
        Some(self.receives.add(Receive { target: part, options, stage: Stage::Matched(matched) }))
    }

    /// Removes the message that a receive matches from matching.
    #[inline]
    fn take_unexpected(&mut self, selector: &Selector) -> Option<Key> {
        #[cfg(feature = "mutants")]
        if mutant!(self, MatchesNewest) {
            let matcher = self.matcher(selector.is_tagged());
            let (ticket, key) = matcher.newest_for(selector.pattern())?;
            matcher.remove_message(ticket);
            return Some(key);
        }
        let matcher = self.matcher(selector.is_tagged());
        let (ticket, key) = matcher.message_for(selector.pattern())?;
        matcher.remove_message(ticket);
        Some(key)
    }

    /// Receives an unexpected message that was removed from matching.
    fn receive_unexpected(&mut self, target: Target, options: ReceiveOptions, key: Key) {
        let Some(message) = self.unexpected.get(key) else { return };
        let (is_rendezvous, confirm) = message.content.protocol();
        let matched = Matched::new(message.envelope, &target, is_rendezvous, confirm);
        let receive = self.add_single(Receive { target, options, stage: Stage::Matched(matched) });
        self.deliver(receive, key);
    }

    /// Adds a receive of a single message.
    #[inline]
    fn add_single(&mut self, receive: Receive) -> Key {
        self.awaited_bytes = self.awaited_bytes.wrapping_add(receive.target.bytes());
        self.is_unreceived = true;
        self.receives.add(receive)
    }

    /// Fills a multi-receive with unexpected messages.
    fn fill_multi(&mut self, multi: Key, selector: &Selector) {
        while let Some(Receive { stage: Stage::Multi { ticket: Some(_), .. }, .. }) = self.receives.get(multi)
            && let Some(key) = self.take_unexpected(selector)
            && let Some(message) = self.unexpected.get(key)
        {
            let (envelope, (is_rendezvous, confirm)) = (message.envelope, message.content.protocol());
            if let Some(receive) = self.add_multi_part(multi, envelope, is_rendezvous, confirm) {
                self.deliver(receive, key);
            }
        }
    }

    /// Moves an unexpected message into its receive.
    fn deliver(&mut self, receive: Key, key: Key) {
        let Some(message) = self.remove_unexpected(key) else { return };
        let source = message.envelope.source;
        match message.content {
            Content::Request { request, .. } => self.answer_request(receive, request),
            Content::Eager { bytes, .. } => {
                self.store(receive, 0, &bytes);
                if bytes.len() as u64 == message.envelope.length {
                    self.finish_receive(receive);
                } else if let Reassembly::Unexpected { message: incoming, head } = self.peers.at(source).reassembly
                    && incoming == key
                {
                    self.peers.at(source).reassembly = Reassembly::Receive { receive, head, base: 0 };
                }
            }
            Content::Lost(ending) => self.fail_receive(receive, Failure::Peer { peer: source, ending }),
        }
    }

    /// Discards an unexpected message; its sender is answered as if it was received.
    fn discard_unexpected(&mut self, key: Key) {
        let Some(message) = self.remove_unexpected(key) else { return };
        let source = message.envelope.source;
        if let Content::Request { request: RendezvousRequest { number, .. }, .. } = message.content {
            // 0 bytes wanted, so no receive is needed.
            self.reply(source, Header::Answer { number, receive: 0, wanted: 0 });
        }
        if let (_, Some(number)) = message.content.protocol() {
            self.reply(source, Header::Delivered { number });
        }
    }

    /// Requests the data of a rendezvous message, or fetches it.
    pub(super) fn answer_request(&mut self, receive: Key, request: RendezvousRequest) {
        let Some(Receive { stage: Stage::Matched(matched), .. }) = self.receives.get(receive) else { return };
        let (source, wanted) = (matched.envelope.source, matched.wanted);
        if request.address.is_some() && wanted > 0 {
            self.add_bulk(source, Bulk::Fetch { receive, request });
            return;
        }
        self.reply(source, Header::Answer { number: request.number, receive, wanted });
        if wanted == 0 {
            self.finish_receive(receive);
        }
    }

    #[inline]
    pub(super) fn store(&mut self, receive: Key, offset: u64, bytes: &[u8]) {
        if let Some(receive) = self.receives.get(receive) {
            receive.target.write(offset, bytes);
        }
    }

    /// All of a receive's message has arrived.
    #[inline]
    pub(super) fn finish_receive(&mut self, key: Key) {
        let Some((options, matched)) = self.remove_matched(key) else { return };
        let message = self.finish_part(&matched);
        // The end of a multi-receive is reported always: its buffer is the program's again.
        let is_silent = options.is_silent && !(matched.multi.is_some() && message.is_last);
        self.complete_receive(ReceiveOptions { is_silent, ..options }, message, matched.wanted, matched.confirm);
    }

    /// Completes a receive, as truncated if the buffer was too small.
    #[inline(always)]
    fn complete_receive(&mut self, options: ReceiveOptions, message: Received, room: u64, confirm: Option<Key>) {
        let Envelope { source, length, .. } = message.envelope;
        if let Some(number) = confirm {
            self.reply(source, Header::Delivered { number });
        }
        let outcome = if length <= room {
            Outcome::Received(message)
        } else {
            let failure = Failure::Truncated { length, room };
            Outcome::Failed { operation: Operation::Receive, failure, message: Some(message) }
        };
        self.complete(options.context, options.note, outcome, options.is_silent);
    }

    /// Fails a receive that had matched a message.
    pub(super) fn fail_receive(&mut self, key: Key, failure: Failure) {
        let Some((options, matched)) = self.remove_matched(key) else { return };
        let message = Some(self.finish_part(&matched));
        let outcome = Outcome::Failed { operation: Operation::Receive, failure, message };
        self.complete(options.context, options.note, outcome, false);
    }

    /// Removes a receive that had matched a message.
    #[inline]
    fn remove_matched(&mut self, key: Key) -> Option<(ReceiveOptions, Matched)> {
        let Receive { target, options, stage: Stage::Matched(matched) } = self.receives.remove(key)? else {
            return None;
        };
        if matched.multi.is_none() {
            self.awaited_bytes = self.awaited_bytes.wrapping_sub(target.bytes());
        }
        Some((options, matched))
    }

    /// The location of a message; removes a multi-receive after its last one.
    #[inline]
    fn finish_part(&mut self, matched: &Matched) -> Received {
        let envelope = matched.envelope;
        let Some((multi, offset)) = matched.multi else { return Received { envelope, offset: 0, is_last: true } };
        let mut is_last = false;
        if let Some(Receive { stage: Stage::Multi { ticket, in_flight, .. }, .. }) = self.receives.get(multi) {
            *in_flight -= 1;
            is_last = ticket.is_none() && *in_flight == 0;
        }
        if is_last {
            self.receives.remove(multi);
        }
        Received { envelope, offset, is_last }
    }

    /// Fails a receive that waits for a message; a multi-receive with messages in progress ends with the last of them.
    pub(super) fn fail_posted(&mut self, key: Key, failure: Failure) {
        let Some(receive) = self.receives.get(key) else { return };
        let ReceiveOptions { context, note, .. } = receive.options;
        let room = receive.target.bytes();
        let (selector, ticket, is_done) = match &mut receive.stage {
            Stage::Posted { selector, ticket } => {
                let found = (*selector, *ticket, true);
                self.awaited_bytes = self.awaited_bytes.wrapping_sub(room);
                found
            }
            Stage::Multi { selector, ticket, in_flight, .. } => {
                let Some(ticket) = ticket.take() else { return };
                (*selector, ticket, *in_flight == 0)
            }
            Stage::Matched(_) => return,
        };
        self.matcher(selector.is_tagged()).remove_receive(ticket);
        if is_done {
            self.receives.remove(key);
            self.fail(context, note, Operation::Receive, failure);
        }
    }

    /// Whether there is room for an unexpected message of this size. What a peer that is gone has sent may exceed the
    /// limits, by as much again.
    pub(super) fn has_unexpected_room(&self, from: PeerId, bytes: u64) -> bool {
        let Config { unexpected_messages, unexpected_bytes, .. } = self.config;
        let times = if self.peers.get(from).is_some_and(|peer| peer.is_gone) { 2 } else { 1 };
        self.unexpected.len() < unexpected_messages.saturating_mul(times)
            && self.unexpected_bytes as u64 + bytes <= unexpected_bytes.saturating_mul(times) as u64
    }

    /// Adds an unexpected message.
    pub(super) fn add_unexpected(&mut self, envelope: Envelope, content: Content) -> Key {
        self.unexpected_bytes += content.reserved_bytes(&envelope);
        let key = self.unexpected.add(Unexpected { envelope, content, ticket: None });
        let Label { tag, .. } = envelope.label;
        let ticket = self.matcher(tag.is_some()).add_unexpected(envelope.source, tag.unwrap_or(0), key);
        if let Some(message) = self.unexpected.get(key) {
            message.ticket = Some(ticket);
        }
        let is_short = self.unexpected_bytes > self.config.unexpected_bytes / 2
            || self.unexpected.len() > self.config.unexpected_messages / 2;
        if is_short && !self.peers.at(envelope.source).is_throttled {
            self.peers.at(envelope.source).is_throttled = true;
            self.throttled.push(envelope.source);
            self.reply(envelope.source, Header::Announce);
        }
        key
    }

    /// Removes an unexpected message.
    fn remove_unexpected(&mut self, key: Key) -> Option<Unexpected> {
        let message = self.unexpected.remove(key)?;
        self.has_made_room = true;
        let is_leaking = mutant!(self, LeaksUnexpected) && message.envelope.label.data.is_some();
        self.unexpected_bytes -= if is_leaking { 0 } else { message.content.reserved_bytes(&message.envelope) };
        let has_plenty = self.unexpected_bytes < self.config.unexpected_bytes / 4
            && self.unexpected.len() <= self.config.unexpected_messages / 4;
        if has_plenty {
            while let Some(peer) = self.throttled.pop() {
                self.peers.at(peer).is_throttled = false;
                self.reply(peer, Header::Resume);
            }
        }
        Some(message)
    }

    /// Drops an unexpected message whose peer is gone before all of it arrived, or is being removed.
    pub(super) fn lose_unexpected(&mut self, key: Key, ending: Ending) {
        let Some(message) = self.unexpected.get(key) else { return };
        let Some(ticket) = message.ticket else {
            self.unexpected_bytes -= message.content.reserved_bytes(&message.envelope);
            message.content = Content::Lost(ending);
            self.has_made_room = true;
            return;
        };
        let is_tagged = message.envelope.label.tag.is_some();
        self.matcher(is_tagged).remove_message(ticket);
        self.remove_unexpected(key);
    }
}

impl Matched {
    #[inline]
    fn new(envelope: Envelope, target: &Target, is_rendezvous: bool, confirm: Option<Key>) -> Self {
        let wanted = envelope.length.min(target.bytes());
        Self { envelope, wanted, received: 0, is_rendezvous, confirm, multi: None }
    }
}

impl Content {
    /// Whether it uses rendezvous, and the sender's key if it needs a delivery confirmation.
    fn protocol(&self) -> (bool, Option<Key>) {
        match *self {
            Self::Eager { confirm, .. } => (false, confirm),
            Self::Request { request, confirm } => (true, confirm.then_some(request.number)),
            Self::Lost(_) => (false, None),
        }
    }

    /// Bytes that count as unexpected.
    fn reserved_bytes(&self, envelope: &Envelope) -> usize {
        if matches!(self, Self::Eager { .. }) { envelope.length as usize } else { 0 }
    }
}
