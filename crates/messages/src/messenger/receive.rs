// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives: posted, matched, completed; and messages that are held until one is.

use barewire_endpoint::{ChannelId, Ending};
use barewire_link::Link;

use super::{Messenger, State};
use crate::completion::{Envelope, Failure, Operation, Outcome, PostError, Received, ReceivedNext};
use crate::header::{Header, Label};
use crate::matching::{Matcher, Pattern, Ticket};
use crate::memory::{Part, Target};
use crate::mutant::mutant;
use crate::peers::{Arriving, Out, Peer, PeerId};
use crate::slab::Key;

/// Which messages a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Tagged ones that fit.
    Tagged(Pattern),
    /// Untagged ones: of one peer, or of any.
    Untagged(Option<PeerId>),
}

/// How a receive is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// What the completion names.
    pub context: u64,
    /// What it says besides: the caller's own.
    pub note: u32,
    /// Only a failure is told.
    pub is_silent: bool,
}

/// A message that was taken out of matching, for a receive to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim(Key);

impl Wanted {
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

/// A receive that is not completed.
pub(super) struct Receive {
    pub target: Target,
    pub options: ReceiveOptions,
    pub stage: Stage,
}

pub(super) enum Stage {
    /// It has no message.
    Posted { wanted: Wanted, ticket: Ticket },
    /// Takes messages one behind the other, until less than `least` bytes are free; then it has no ticket.
    Many { wanted: Wanted, ticket: Option<Ticket>, used: u64, least: u64, under_way: u32 },
    /// It has one.
    Matched(Matched),
}

/// What a receive knows of its message.
pub(super) struct Matched {
    pub envelope: Envelope,
    /// How much of it is received: all, or what there is room for.
    pub wanted: u64,
    /// Of an announced one, in order: how much of that is there.
    pub placed: u64,
    pub is_announced: bool,
    /// Its sender's number for it, if the sender waits for it to be delivered.
    confirm: Option<Key>,
    /// The receive of many messages that this is one of, and where the message lies there.
    of: Option<(Key, u64)>,
}

/// A message that nobody has asked for yet.
pub(super) struct Held {
    pub envelope: Envelope,
    pub content: Content,
    /// `None`: it was claimed.
    ticket: Option<Ticket>,
}

/// An announced message, as its sender names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requested {
    pub number: Key,
    /// Where it lies in the memory of the sender's process, if that lends it.
    pub address: Option<u64>,
}

pub(super) enum Content {
    /// What has come of it.
    Eager { bytes: Vec<u8>, confirm: Option<Key> },
    /// It was announced.
    Request { request: Requested, confirm: bool },
    /// Its peer is gone, and it was claimed before.
    Lost(Ending),
}

impl<L: Link> Messenger<L> {
    /// Receives one message into `parts`, one after the other. If it names a source, and that cannot be reached, it
    /// fails.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    ///
    /// # Safety
    /// All parts must be valid to be written, disjoint, and used by nothing else until the receive is completed, as the
    /// messenger's description says.
    #[inline]
    pub unsafe fn receive(&mut self, wanted: Wanted, parts: &[Part], options: ReceiveOptions) -> Result<(), PostError> {
        self.room_to_receive(&wanted)?;
        // SAFETY: the caller's promise; the target is dropped when the receive is completed.
        let target = unsafe { Target::new(parts) };
        if let Some(held) = self.state.take_held(&wanted) {
            self.state.serve(target, options, held);
            return Ok(());
        }
        self.watch(&wanted)?;
        let stage = Stage::Posted { wanted, ticket: 0 };
        let key = self.state.receives.add(Receive { target, options, stage });
        let posted_as = self.state.matcher(wanted.is_tagged()).post(wanted.pattern(), key);
        if let Some(Receive { stage: Stage::Posted { ticket, .. }, .. }) = self.state.receives.get(key) {
            *ticket = posted_as;
        }
        Ok(())
    }

    /// Receives messages into `parts`, one behind the other, until less than `least` bytes are free, but at least one.
    /// Each has a completion with its offset.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    ///
    /// # Safety
    /// As of [`receive`](Self::receive), until the last completion.
    pub unsafe fn receive_many(
        &mut self,
        wanted: Wanted,
        parts: &[Part],
        least: u64,
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        self.room_to_receive(&wanted)?;
        self.watch(&wanted)?;
        // SAFETY: the caller's promise; the target is dropped when all its messages are there.
        let target = unsafe { Target::new(parts) };
        // At least one message; and ones of no bytes not for ever.
        let least = least.max(1);
        let stage = Stage::Many { wanted, ticket: None, used: 0, least, under_way: 0 };
        let key = self.state.receives.add(Receive { target, options, stage });
        let posted_as = self.state.matcher(wanted.is_tagged()).post(wanted.pattern(), key);
        if let Some(Receive { stage: Stage::Many { ticket, .. }, .. }) = self.state.receives.get(key) {
            *ticket = Some(posted_as);
        }
        self.state.serve_many(key, &wanted);
        Ok(())
    }

    /// The message that a receive would match now; it stays.
    #[must_use]
    pub fn peek(&mut self, wanted: Wanted) -> Option<Envelope> {
        let (_, key) = self.state.matcher(wanted.is_tagged()).message_for(wanted.pattern())?;
        self.state.held.get(key).map(|held| held.envelope)
    }

    /// The message that a receive would match now; only [`receive_claimed`](Self::receive_claimed) and
    /// [`discard`](Self::discard) find it from now on.
    pub fn claim(&mut self, wanted: Wanted) -> Option<(Claim, Envelope)> {
        let matcher = self.state.matcher(wanted.is_tagged());
        let (ticket, key) = matcher.message_for(wanted.pattern())?;
        matcher.remove_message(ticket);
        let held = self.state.held.get(key)?;
        held.ticket = None;
        Some((Claim(key), held.envelope))
    }

    /// Receives a message that was claimed.
    ///
    /// # Errors
    /// [`PostError::NoSuchClaim`].
    ///
    /// # Safety
    /// As of [`receive`](Self::receive).
    pub unsafe fn receive_claimed(
        &mut self,
        claim: Claim,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        let Claim(key) = claim;
        self.state.held.get(key).filter(|held| held.ticket.is_none()).ok_or(PostError::NoSuchClaim)?;
        // SAFETY: the caller's promise; the target is dropped when the receive is completed.
        let target = unsafe { Target::new(parts) };
        self.state.serve(target, options, key);
        Ok(())
    }

    /// Receives the next message of the only neighbour that spoke last, if all of it is here, and if there is nothing else to
    /// tell of it than what is returned here. `None`: [`progress`](Self::progress) finds what there is, or is due.
    #[inline]
    pub fn receive_next(&mut self) -> Option<ReceivedNext> {
        let Self { endpoint, state, .. } = self;
        if !state.completions.is_empty() || !state.turns.is_empty() {
            return None;
        }
        endpoint.offer_next(|from, message| state.receive_next(from, message))
    }

    /// Throws a claimed message away, and says which that was; for its sender it was received.
    ///
    /// # Errors
    /// [`PostError::NoSuchClaim`].
    pub fn discard(&mut self, claim: Claim) -> Result<Envelope, PostError> {
        let Claim(key) = claim;
        let held = self.state.held.get(key).filter(|held| held.ticket.is_none()).ok_or(PostError::NoSuchClaim)?;
        let envelope = held.envelope;
        self.state.throw_away(key);
        Ok(envelope)
    }

    /// Takes a receive back that has no message yet: then it fails as cancelled. False: there is none with this
    /// context, or it has matched a message, and completes with that.
    pub fn cancel(&mut self, context: u64) -> bool {
        let is_meant = |receive: &Receive| {
            receive.options.context == context
                && matches!(receive.stage, Stage::Posted { .. } | Stage::Many { ticket: Some(_), .. })
        };
        let Some(key) = self.state.receives.keys_where(is_meant).first().copied() else { return false };
        self.state.take_back(key, Failure::Cancelled);
        true
    }

    fn room_to_receive(&mut self, wanted: &Wanted) -> Result<(), PostError> {
        wanted.source().map_or(Ok(()), |source| self.state.known(source))?;
        if self.state.receives.len() < self.state.config.receives { Ok(()) } else { Err(PostError::Full) }
    }

    /// Sees to it that a receive's only source is heard of if it is gone.
    #[inline]
    fn watch(&mut self, wanted: &Wanted) -> Result<(), PostError> {
        let Some(source) = wanted.source() else { return Ok(()) };
        let peer = self.state.peers.at(source);
        peer.tell_of_loss()?;
        if peer.channel.is_none() {
            self.connect(source)?;
        }
        Ok(())
    }
}

impl State {
    #[inline]
    pub(super) fn matcher(&mut self, is_tagged: bool) -> &mut Matcher<Key, Key> {
        if is_tagged { &mut self.tagged } else { &mut self.untagged }
    }

    /// The receive that a message matches which has just come.
    #[inline]
    pub(super) fn receive_for(&mut self, envelope: &Envelope) -> Option<(Ticket, Key)> {
        let tag = envelope.label.tag;
        self.matcher(tag.is_some()).receive_for(envelope.source, tag.unwrap_or(0))
    }

    /// Gives a receive its message: that, with its message.
    #[inline]
    pub(super) fn match_receive(
        &mut self,
        (ticket, key): (Ticket, Key),
        envelope: Envelope,
        announced: bool,
        confirm: Option<Key>,
    ) -> Option<Key> {
        let receive = self.receives.get(key)?;
        if matches!(receive.stage, Stage::Many { .. }) {
            return self.one_of_many(key, envelope, announced, confirm);
        }
        receive.stage = Stage::Matched(Matched::new(envelope, &receive.target, announced, confirm));
        self.matcher(envelope.label.tag.is_some()).remove_receive(ticket);
        Some(key)
    }

    /// Receives a message that is here as a whole. `None`, and nothing has changed: it takes more than that.
    #[inline(always)]
    fn receive_next(&mut self, from: ChannelId, message: &[u8]) -> Option<ReceivedNext> {
        let peer = self.peers.of_channel(from)?;
        let &mut Peer { is_broken, arriving, .. } = self.peers.at(peer);
        let (Header::Eager { label, confirm: None }, body) = Header::decode(message).ok()? else { return None };
        if is_broken || arriving != Arriving::Nothing {
            return None;
        }
        let envelope = Envelope { source: peer, label, length: body.len() as u64 };
        let found = self.receive_for(&envelope)?;
        let (options, _) =
            self.fill(found, label, body, |options, room| !options.is_silent && envelope.length <= room)?;
        self.counts.received += 1;
        Some(ReceivedNext { context: options.context, note: options.note, envelope })
    }

    /// Completes a receive of one message with one that is here as a whole. False: it takes many.
    #[inline]
    pub(super) fn receive_at_once(
        &mut self,
        found: (Ticket, Key),
        envelope: Envelope,
        body: &[u8],
        confirm: Option<Key>,
    ) -> bool {
        let Some((options, room)) = self.fill(found, envelope.label, body, |_, _| true) else { return false };
        self.end_receive(options, Received { envelope, offset: 0, is_last: true }, room, confirm);
        true
    }

    /// Puts a message into the memory of a receive of one, which is no more: its options, and how much room there was.
    #[inline(always)]
    fn fill(
        &mut self,
        (ticket, key): (Ticket, Key),
        label: Label,
        body: &[u8],
        is_wanted: impl FnOnce(&ReceiveOptions, u64) -> bool,
    ) -> Option<(ReceiveOptions, u64)> {
        let Receive { target, options, stage: Stage::Posted { .. } } = self.receives.get(key)? else { return None };
        let (options, room) = (*options, target.bytes());
        if !is_wanted(&options, room) {
            return None;
        }
        target.write(0, body);
        self.receives.free(key);
        self.matcher(label.tag.is_some()).remove_receive(ticket);
        Some((options, room))
    }

    pub(super) fn takes_many(&mut self, receive: Key) -> bool {
        matches!(self.receives.get(receive), Some(Receive { stage: Stage::Many { .. }, .. }))
    }

    /// A receive for one message of those that `many` takes.
    fn one_of_many(&mut self, many: Key, envelope: Envelope, announced: bool, confirm: Option<Key>) -> Option<Key> {
        let Receive { target, options, stage } = self.receives.get(many)?;
        let Stage::Many { wanted, ticket, used, least, under_way } = stage else { return None };
        let offset = *used;
        let part = target.split(offset, envelope.length.min(target.bytes() - offset));
        *used += part.bytes();
        *under_way += 1;
        let is_full = target.bytes() - *used < *least;
        let done = if is_full { ticket.take() } else { None };
        let (is_tagged, options) = (wanted.is_tagged(), *options);
        if let Some(ticket) = done {
            self.matcher(is_tagged).remove_receive(ticket);
        }
        let mut matched = Matched::new(envelope, &part, announced, confirm);
        matched.of = Some((many, offset));
        Some(self.receives.add(Receive { target: part, options, stage: Stage::Matched(matched) }))
    }

    /// Takes the message that a receive matches out of matching.
    #[inline]
    fn take_held(&mut self, wanted: &Wanted) -> Option<Key> {
        #[cfg(feature = "mutants")]
        if mutant!(self, MatchesNewest) {
            let matcher = self.matcher(wanted.is_tagged());
            let (ticket, key) = matcher.newest_for(wanted.pattern())?;
            matcher.remove_message(ticket);
            return Some(key);
        }
        let matcher = self.matcher(wanted.is_tagged());
        let (ticket, key) = matcher.message_for(wanted.pattern())?;
        matcher.remove_message(ticket);
        Some(key)
    }

    /// Receives a message that is held and was taken out of matching.
    fn serve(&mut self, target: Target, options: ReceiveOptions, held: Key) {
        let Some(message) = self.held.get(held) else { return };
        let (announced, confirm) = message.content.how();
        let matched = Matched::new(message.envelope, &target, announced, confirm);
        let receive = self.receives.add(Receive { target, options, stage: Stage::Matched(matched) });
        self.bring(receive, held);
    }

    /// Gives a receive of many messages those that are held.
    fn serve_many(&mut self, many: Key, wanted: &Wanted) {
        while let Some(Receive { stage: Stage::Many { ticket: Some(_), .. }, .. }) = self.receives.get(many)
            && let Some(held) = self.take_held(wanted)
            && let Some(message) = self.held.get(held)
        {
            let (envelope, (announced, confirm)) = (message.envelope, message.content.how());
            if let Some(receive) = self.one_of_many(many, envelope, announced, confirm) {
                self.bring(receive, held);
            }
        }
    }

    /// Brings a held message into the memory of its receive.
    fn bring(&mut self, receive: Key, held: Key) {
        let Some(message) = self.release(held) else { return };
        let source = message.envelope.source;
        match message.content {
            Content::Request { request, .. } => self.answer(receive, request),
            Content::Eager { bytes, .. } => {
                self.place(receive, 0, &bytes);
                if bytes.len() as u64 == message.envelope.length {
                    self.received(receive);
                } else if let Arriving::Hold { held: arriving, head } = self.peers.at(source).arriving
                    && arriving == held
                {
                    self.peers.at(source).arriving = Arriving::Place { receive, head, base: 0 };
                }
            }
            Content::Lost(ending) => self.receive_failed(receive, Failure::Peer { peer: source, ending }),
        }
    }

    /// Receives a held message and tells nobody here.
    fn throw_away(&mut self, held: Key) {
        let Some(message) = self.release(held) else { return };
        let source = message.envelope.source;
        if let Content::Request { request: Requested { number, .. }, .. } = message.content {
            // No byte is wanted, so that no receive is needed.
            self.enqueue(source, Out::Control(Header::Answer { number, receive: 0, wanted: 0 }));
        }
        if let (_, Some(number)) = message.content.how() {
            self.enqueue(source, Out::Control(Header::Delivered { number }));
        }
    }

    /// Asks for the bytes of a message that was announced, or fetches them.
    pub(super) fn answer(&mut self, receive: Key, request: Requested) {
        let Some(Receive { stage: Stage::Matched(matched), .. }) = self.receives.get(receive) else { return };
        let (source, wanted) = (matched.envelope.source, matched.wanted);
        if request.address.is_some() && wanted > 0 {
            self.enqueue(source, Out::Fetch { receive, request });
            return;
        }
        self.enqueue(source, Out::Control(Header::Answer { number: request.number, receive, wanted }));
        if wanted == 0 {
            self.received(receive);
        }
    }

    #[inline]
    pub(super) fn place(&mut self, receive: Key, offset: u64, bytes: &[u8]) {
        if let Some(receive) = self.receives.get(receive) {
            receive.target.write(offset, bytes);
        }
    }

    /// All of a receive's message has come.
    #[inline]
    pub(super) fn received(&mut self, key: Key) {
        let Some(Receive { options, stage: Stage::Matched(matched), .. }) = self.receives.remove(key) else { return };
        let message = self.release_memory(&matched);
        self.end_receive(options, message, matched.wanted, matched.confirm);
    }

    /// Tells that a receive has its message, as much of it as there was room for.
    #[inline(always)]
    fn end_receive(&mut self, options: ReceiveOptions, message: Received, room: u64, confirm: Option<Key>) {
        let Envelope { source, length, .. } = message.envelope;
        if let Some(number) = confirm {
            self.enqueue(source, Out::Control(Header::Delivered { number }));
        }
        let outcome = if length <= room {
            Outcome::Received(message)
        } else {
            let failure = Failure::Truncated { length, room };
            Outcome::Failed { operation: Operation::Receive, failure, message: Some(message) }
        };
        self.complete(options.context, options.note, outcome, options.is_silent);
    }

    /// A receive that had matched a message does not get it.
    pub(super) fn receive_failed(&mut self, key: Key, failure: Failure) {
        let Some(Receive { options, stage: Stage::Matched(matched), .. }) = self.receives.remove(key) else { return };
        let message = Some(self.release_memory(&matched));
        let outcome = Outcome::Failed { operation: Operation::Receive, failure, message };
        self.complete(options.context, options.note, outcome, false);
    }

    /// Where a message lies; what takes many messages, and no more, is done with the last of them.
    #[inline]
    fn release_memory(&mut self, matched: &Matched) -> Received {
        let envelope = matched.envelope;
        let Some((many, offset)) = matched.of else { return Received { envelope, offset: 0, is_last: true } };
        let mut is_last = false;
        if let Some(Receive { stage: Stage::Many { ticket, under_way, .. }, .. }) = self.receives.get(many) {
            *under_way -= 1;
            is_last = ticket.is_none() && *under_way == 0;
        }
        if is_last {
            self.receives.remove(many);
        }
        Received { envelope, offset, is_last }
    }

    /// Ends a receive that waits for a message; one of many ends with the last that is under way.
    pub(super) fn take_back(&mut self, key: Key, failure: Failure) {
        let Some(receive) = self.receives.get(key) else { return };
        let ReceiveOptions { context, note, .. } = receive.options;
        let (wanted, ticket, is_over) = match &mut receive.stage {
            Stage::Posted { wanted, ticket } => (*wanted, *ticket, true),
            Stage::Many { wanted, ticket, under_way, .. } => {
                let Some(ticket) = ticket.take() else { return };
                (*wanted, ticket, *under_way == 0)
            }
            Stage::Matched(_) => return,
        };
        self.matcher(wanted.is_tagged()).remove_receive(ticket);
        if is_over {
            self.receives.remove(key);
            self.fail(context, note, Operation::Receive, failure);
        }
    }

    /// Whether one more message of so many bytes can be held.
    pub(super) fn has_room_to_hold(&self, bytes: u64) -> bool {
        self.held.len() < self.config.unexpected_messages
            && self.held_bytes as u64 + bytes <= self.config.unexpected_bytes as u64
    }

    /// Keeps a message until somebody asks for it.
    pub(super) fn hold(&mut self, envelope: Envelope, content: Content) -> Key {
        self.held_bytes += content.reserved(&envelope);
        let key = self.held.add(Held { envelope, content, ticket: None });
        let Label { tag, .. } = envelope.label;
        let ticket = self.matcher(tag.is_some()).hold(envelope.source, tag.unwrap_or(0), key);
        if let Some(held) = self.held.get(key) {
            held.ticket = Some(ticket);
        }
        let runs_short =
            self.held_bytes > self.config.unexpected_bytes / 2 || self.held.len() > self.config.unexpected_messages / 2;
        if runs_short && !self.peers.at(envelope.source).was_asked_to_announce {
            self.peers.at(envelope.source).was_asked_to_announce = true;
            self.asked_to_announce.push(envelope.source);
            self.enqueue(envelope.source, Out::Control(Header::Announce));
        }
        key
    }

    /// A message is held no longer.
    fn release(&mut self, key: Key) -> Option<Held> {
        let held = self.held.remove(key)?;
        let is_leaking = mutant!(self, LeaksHeld) && held.content.how().1.is_some();
        self.held_bytes -= if is_leaking { 0 } else { held.content.reserved(&held.envelope) };
        let has_plenty = self.held_bytes < self.config.unexpected_bytes / 4
            && self.held.len() <= self.config.unexpected_messages / 4;
        if has_plenty {
            while let Some(peer) = self.asked_to_announce.pop() {
                self.peers.at(peer).was_asked_to_announce = false;
                self.enqueue(peer, Out::Control(Header::Resume));
            }
        }
        Some(held)
    }

    /// A message's peer is gone before all of it has come.
    pub(super) fn lose(&mut self, key: Key, ending: Ending) {
        let Some(held) = self.held.get(key) else { return };
        let Some(ticket) = held.ticket else {
            self.held_bytes -= held.content.reserved(&held.envelope);
            held.content = Content::Lost(ending);
            return;
        };
        let is_tagged = held.envelope.label.tag.is_some();
        self.matcher(is_tagged).remove_message(ticket);
        self.release(key);
    }
}

impl Matched {
    #[inline]
    fn new(envelope: Envelope, target: &Target, is_announced: bool, confirm: Option<Key>) -> Self {
        let wanted = envelope.length.min(target.bytes());
        Self { envelope, wanted, placed: 0, is_announced, confirm, of: None }
    }
}

impl Content {
    /// Whether it was announced, and whom to tell when it is delivered.
    fn how(&self) -> (bool, Option<Key>) {
        match *self {
            Self::Eager { confirm, .. } => (false, confirm),
            Self::Request { request, confirm } => (true, confirm.then_some(request.number)),
            Self::Lost(_) => (false, None),
        }
    }

    /// Bytes of a message that count as held.
    fn reserved(&self, envelope: &Envelope) -> usize {
        if matches!(self, Self::Eager { .. }) { envelope.length as usize } else { 0 }
    }
}
