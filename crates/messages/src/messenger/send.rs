// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages out: eager or announced, copied or from where they lie.

use std::sync::atomic::Ordering::Relaxed;

use barewire_endpoint::{Acknowledge, ChannelId, ConnectError, HEAD_MAX};
use barewire_link::Link;

use super::{Messenger, OF_ACCESS, OF_DATA, OF_NO_SEND, OF_SERVED, State, WAS_COMPLETED, of_no_send};
use crate::completion::{Failure, Operation, Outcome, PostError};
use crate::config::Config;
use crate::header::{Header, Label};
use crate::memory::{Origin, Part};
use crate::mutant::mutant;
use crate::peers::{BACKGROUND, Out, PeerId, QUEUED, USUAL};
use crate::slab::Key;

/// How far a message must have got when its send is completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reaches {
    /// Its memory can be used again.
    #[default]
    Nowhere,
    /// The peer's endpoint has it.
    Endpoint,
    /// It lies in the memory of the receive that it matched, as of MPI's synchronous mode.
    Receive,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// What the completion names.
    pub context: u64,
    /// What it says besides: the caller's own.
    pub note: u32,
    /// What completes it.
    pub reaches: Reaches,
    /// Only a failure is told.
    pub is_silent: bool,
}

/// The longest head of an eager message: kind, tag, data, number.
const EAGER_HEAD_MAX: usize = 25;
/// Messages that a peer may have under way before it has answered: several peers that are not there must leave room.
const UNDER_WAY_UNOPENED: u16 = 2;

/// Long parts of data to a peer that the endpoint has, at most: more than the engine holds, and so few that peers which
/// take nothing leave descriptors to others.
const PARTS_UNDER_WAY: u16 = 3;
/// Frames of a part, at most.
const CUT_FRAMES_MAX: usize = 4096;

/// A send that is not completed.
pub(super) struct Send {
    pub peer: PeerId,
    pub options: SendOptions,
    label: Label,
    origin: Origin,
    pub stage: Stage,
    /// Messages of it that the endpoint has.
    pub under_way: u32,
    /// The receiver is to say that it has it.
    pub awaits_delivery: bool,
    /// It was completed when it was copied: only its loss is told.
    pub is_completed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// All of it was handed to the endpoint.
    Eager,
    /// It was announced, and perhaps lent to a local peer.
    Requested { length: u64, is_lent: bool },
    /// The receiver wants its beginning, and part of that was handed to the endpoint.
    Answered { receive: Key, wanted: u64, handed: u64 },
}

impl Send {
    #[inline]
    fn is_done(&self) -> bool {
        let is_handed = match self.stage {
            Stage::Eager => true,
            Stage::Requested { .. } => false,
            Stage::Answered { wanted, handed, .. } => handed == wanted,
        };
        is_handed && self.under_way == 0 && !self.awaits_delivery
    }

    /// Copies what lies from `offset` on. False: it has not as many bytes as `into`.
    pub fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        self.origin.copy(offset, into) == into.len()
    }
}

/// What is to be sent, before it is known how.
pub(crate) struct Message {
    label: Label,
    origin: Origin,
    pub options: SendOptions,
    /// As of a send.
    pub is_completed: bool,
}

/// The endpoint has no room for a message now.
struct Full;

/// A message that is copied.
#[derive(Clone, Copy)]
struct Short<'a> {
    label: Label,
    body: &'a [u8],
    options: SendOptions,
}

impl<L: Link> Messenger<L> {
    /// Bytes of the longest message that [`inject`](Self::inject) takes.
    #[must_use]
    pub fn inject_max(&self) -> usize {
        self.short_max().max(self.state.config.inject_bytes)
    }

    /// Sends a message that lies in `parts`, one after the other.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    ///
    /// # Safety
    /// All parts must be valid to be read, and unchanged, until the send is completed, as the messenger's description
    /// says.
    #[inline]
    pub unsafe fn send(
        &mut self,
        to: PeerId,
        label: Label,
        parts: &[Part],
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise; the origin is dropped when the send is completed.
        let origin = unsafe { Origin::new(parts) };
        let message = Message { label, origin, options, is_completed: false };
        match self.room_to_post(to)? {
            Some(channel) => self.hand_over(to, channel, message).or_else(|message| self.queue(to, message)),
            None => self.queue(to, message),
        }
    }

    /// Sends a short message that is copied; only a failure of the peer's tells of it, with the next operation, or as one
    /// of context 0.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    #[inline(always)]
    pub fn inject(&mut self, to: PeerId, label: Label, bytes: &[u8]) -> Result<(), PostError> {
        self.send_copy(to, label, bytes, SendOptions { is_silent: true, ..SendOptions::default() })
    }

    /// As [`send`](Self::send), of a message of [`inject_max`](Self::inject_max) bytes at most that is copied, so that
    /// its memory is the caller's again at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    #[inline(always)]
    pub fn send_copy(&mut self, to: PeerId, label: Label, bytes: &[u8], options: SendOptions) -> Result<(), PostError> {
        let message = Short { label, body: bytes, options };
        if let Some(channel) = self.room_to_post(to)?
            && bytes.len() <= self.short_max()
            && !self.state.peers.at(to).wants_announcements
            && self.copy(to, channel, &message, false).is_ok()
        {
            return Ok(());
        }
        self.send_long_copy(to, &message)
    }

    /// The same of one that is longer than a frame, or has to be announced, or to wait.
    #[cold]
    fn send_long_copy(&mut self, to: PeerId, message: &Short<'_>) -> Result<(), PostError> {
        let Short { label, body, options } = *message;
        let most = self.inject_max();
        if body.len() > most {
            return Err(PostError::TooLong { bytes: body.len(), most });
        }
        let completes = options.reaches == Reaches::Nowhere;
        let channel = self.room_to_post(to)?;
        if let Some(channel) = channel
            && completes
            && !self.state.peers.at(to).wants_announcements
            && self.copy_frames(to, channel, message, false).is_ok()
        {
            return Ok(());
        }
        let origin = self.state.copy_of(body)?;
        let message = Message { label, origin, options, is_completed: completes };
        let posted = match channel {
            Some(channel) => self.hand_over(to, channel, message).or_else(|message| self.queue(to, message)),
            None => self.queue(to, message),
        };
        if completes && posted.is_ok() {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
        }
        posted
    }

    /// Bytes of the longest message that goes in one frame.
    fn short_max(&self) -> usize {
        self.endpoint.copied_max() - EAGER_HEAD_MAX
    }

    /// Takes a send back of which nothing has been handed on, because its peer is not there yet or takes nothing: then it
    /// fails as cancelled, and the peer never hears of it. False: there is none with this context, or it is under way.
    pub fn cancel_send(&mut self, context: u64) -> bool {
        if let Some(message) = self.state.take_from_queue(context) {
            self.state.fail(context, message.options.note, Operation::Send, Failure::Cancelled);
            return true;
        }
        let is_meant = |send: &Send| {
            send.options.context == context
                && !send.is_completed
                && send.under_way == 1
                && matches!(send.stage, Stage::Eager | Stage::Requested { .. })
        };
        for key in self.state.sends.keys_where(is_meant) {
            if !self.endpoint.take_back(key) {
                continue;
            }
            if let Some(send) = self.state.sends.remove(key) {
                self.state.peers.at(send.peer).under_way[USUAL] -= 1;
                self.state.fail(context, send.options.note, Operation::Send, Failure::Cancelled);
                return true;
            }
        }
        false
    }

    /// The way to a peer, if it may have one more message under way; opened on first use.
    #[inline]
    pub(super) fn room_for(&mut self, to: PeerId) -> Result<ChannelId, PostError> {
        let most = self.state.config.descriptors_per_peer;
        let peer = self.state.peers.at(to);
        let Some(channel) = peer.channel else { return self.connect(to) };
        if peer.under_way[USUAL] >= UNDER_WAY_UNOPENED {
            peer.is_open = peer.is_open || self.endpoint.is_open(channel);
            let has_data = peer.under_way[BACKGROUND] > 0 || !peer.outgoing[BACKGROUND].is_empty();
            let most = if has_data { most.div_ceil(2) } else { most };
            if !peer.is_open || peer.under_way[USUAL] >= most {
                return Err(PostError::Full);
            }
        }
        Ok(channel)
    }

    /// The same for data, and how many long parts of it there is room for: neither it nor what passes it takes all of the
    /// room, so that both go on.
    pub(super) fn room_in_background(&mut self, to: PeerId) -> Option<(ChannelId, u16)> {
        let most = self.state.config.descriptors_per_peer;
        let peer = self.state.peers.at(to);
        let [usual, background] = peer.under_way;
        let channel = peer.channel.filter(|_| background < most.div_ceil(2) && usual + background < most.max(2))?;
        Some((channel, PARTS_UNDER_WAY.saturating_sub(background)))
    }

    /// And for one more operation: the channel, or `None` if it has to wait behind others or for room.
    #[inline]
    pub(super) fn room_to_post(&mut self, to: PeerId) -> Result<Option<ChannelId>, PostError> {
        let peer = self.state.peers.get_mut(to).filter(|peer| !peer.is_leaving).ok_or(PostError::NoSuchPeer)?;
        peer.tell_of_loss()?;
        if self.state.sends.len() >= self.state.config.sends || peer.is_broken || peer.has_backlog {
            return Err(PostError::Full);
        }
        if !peer.outgoing[QUEUED].is_empty() {
            return Ok(None);
        }
        match self.room_for(to) {
            Ok(channel) => Ok(Some(channel)),
            Err(PostError::Full) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn connect(&mut self, to: PeerId) -> Result<ChannelId, PostError> {
        let channel = match self.endpoint.connect(self.state.peers.at(to).address) {
            Err(ConnectError::Ending(_)) => return Err(PostError::Full),
            connected => connected?,
        };
        // Who was at this address before is about to leave.
        if self.state.peers.of_channel(channel).is_some_and(|other| other != to) {
            return Err(PostError::Full);
        }
        self.state.peers.connect(to, channel);
        Ok(channel)
    }

    /// Lets a message wait until there is room for it; those of one peer in their order.
    fn queue(&mut self, to: PeerId, message: Message) -> Result<(), PostError> {
        if self.state.queued >= self.state.config.sends {
            return Err(PostError::Full);
        }
        self.state.queued += 1;
        self.state.enqueue(to, Out::Message(message));
        Ok(())
    }

    /// Hands a message to the endpoint, which has room for some message to this peer, or gives it back.
    #[inline]
    pub(super) fn hand_over(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        let length = message.origin.bytes();
        let Config { eager_bytes, fetched_bytes, .. } = self.state.config;
        if length > eager_bytes as u64 || self.state.peers.at(to).wants_announcements {
            return self.request(to, channel, message);
        }
        if length >= fetched_bytes as u64 && self.lends_to(to, channel) {
            return self.request(to, channel, message);
        }
        let body = message.origin.contiguous(0);
        if body.len() as u64 != length {
            return self.hand_over_parts(to, channel, message, length as usize);
        }
        let Message { label, options, is_completed, .. } = message;
        let bytes = length as usize + EAGER_HEAD_MAX;
        let short = Short { label, body, options };
        let copied = if bytes <= self.endpoint.copied_best() {
            self.copy(to, channel, &short, is_completed)
        } else if options.reaches == Reaches::Nowhere && self.endpoint.takes_copies(channel, bytes) {
            self.copy_frames(to, channel, &short, is_completed)
        } else {
            return self.lend(to, channel, message);
        };
        copied.map_err(|Full| message)
    }

    /// The same of one that lies in several parts.
    fn hand_over_parts(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        message: Message,
        length: usize,
    ) -> Result<(), Message> {
        let Message { label, ref origin, options, is_completed } = message;
        let bytes = length + EAGER_HEAD_MAX;
        let is_short = bytes <= self.endpoint.copied_max();
        if !is_short && (options.reaches != Reaches::Nowhere || !self.endpoint.takes_copies(channel, bytes)) {
            return self.request(to, channel, message);
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(length, 0);
        origin.copy(0, &mut packed);
        let short = Short { label, body: &packed, options };
        let copied = if is_short {
            self.copy(to, channel, &short, is_completed)
        } else {
            self.copy_frames(to, channel, &short, is_completed)
        };
        self.packed = packed;
        copied.map_err(|Full| message)
    }

    /// Sends an eager message that fits a frame.
    #[inline(always)]
    fn copy(&mut self, to: PeerId, channel: ChannelId, message: &Short<'_>, is_completed: bool) -> Result<(), Full> {
        let Short { label, body, options } = *message;
        if options.reaches != Reaches::Nowhere {
            return self.copy_and_hear(to, channel, message);
        }
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Eager { label, confirm: None }.encode(&mut head);
        let head = &head[..head_bytes];
        // Not without end: whoever makes no progress does not hear that a peer's memory runs short.
        let may_go = self.at_once < self.state.config.descriptors_per_peer;
        if may_go && self.endpoint.send_at_once(channel, head, body) {
            self.at_once += 1;
        } else {
            self.endpoint.send(channel, head, body, of_no_send(to) | WAS_COMPLETED).map_err(|_| Full)?;
            self.state.peers.at(to).under_way[USUAL] += 1;
        }
        if !is_completed {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
        }
        Ok(())
    }

    /// The same of one that takes several.
    fn copy_frames(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        message: &Short<'_>,
        is_completed: bool,
    ) -> Result<(), Full> {
        let Short { label, body, options } = *message;
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Eager { label, confirm: None }.encode(&mut head);
        let context = of_no_send(to) | WAS_COMPLETED;
        self.endpoint.send_copied(channel, &head[..head_bytes], body, context).map_err(|_| Full)?;
        self.state.peers.at(to).under_way[USUAL] += 1;
        if !is_completed {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
        }
        Ok(())
    }

    /// The same of one that is to reach the peer.
    fn copy_and_hear(&mut self, to: PeerId, channel: ChannelId, message: &Short<'_>) -> Result<(), Full> {
        let Short { label, body, options } = *message;
        let mut head = [0; HEAD_MAX];
        let awaits_delivery = options.reaches == Reaches::Receive;
        // What it was copied from is not needed any more.
        // SAFETY: there is nothing to be valid.
        let origin = unsafe { Origin::new(&[]) };
        let message = Message { label, origin, options, is_completed: false };
        let send = self.state.sends.add(Send::new(to, message, Stage::Eager, awaits_delivery));
        let head_bytes = Header::Eager { label, confirm: awaits_delivery.then_some(send) }.encode(&mut head);
        let head = &head[..head_bytes];
        // Its delivery is told of in a message, which acknowledges it.
        let sent = if awaits_delivery {
            self.endpoint.send(channel, head, body, send)
        } else {
            self.endpoint.send_awaited(channel, head, body, send)
        };
        self.posted(to, send, sent.is_ok()).map_err(|_| Full)
    }

    /// Sends an eager message from where it lies.
    fn lend(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        let label = message.label;
        let body: *const [u8] = message.origin.contiguous(0);
        let awaits_delivery = message.options.reaches == Reaches::Receive;
        let send = self.state.sends.add(Send::new(to, message, Stage::Eager, awaits_delivery));
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Eager { label, confirm: awaits_delivery.then_some(send) }.encode(&mut head);
        let acknowledge = if awaits_delivery { Acknowledge::Eventually } else { Acknowledge::AtOnce };
        // SAFETY: whoever posted the send promised that its memory stays until it is completed, or the send has a copy; it
        // is not completed before the endpoint has told of `send`.
        let sent = unsafe { self.endpoint.send_lent(channel, &head[..head_bytes], &*body, send, acknowledge) };
        self.posted(to, send, sent.is_ok())
    }

    /// Announces a message.
    fn request(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        let (label, length) = (message.label, message.origin.bytes());
        let confirm = message.options.reaches == Reaches::Receive;
        let body = message.origin.contiguous(0);
        let is_lent = body.len() as u64 == length && self.lends_to(to, channel);
        let address = is_lent.then_some(body.as_ptr() as u64);
        let send = self.state.sends.add(Send::new(to, message, Stage::Requested { length, is_lent }, confirm));
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Request { label, number: send, length, confirm, address }.encode(&mut head);
        let sent = self.endpoint.send(channel, &head[..head_bytes], &[], send);
        self.posted(to, send, sent.is_ok())
    }

    /// The endpoint has taken a new send's first message, or has not: then there is no such send.
    fn posted(&mut self, to: PeerId, send: Key, is_taken: bool) -> Result<(), Message> {
        if is_taken {
            self.state.handed(to, send, USUAL);
            return Ok(());
        }
        let Some(send) = self.state.sends.remove(send) else { return Ok(()) };
        Err(Message { label: send.label, origin: send.origin, options: send.options, is_completed: send.is_completed })
    }

    /// Sends what the receiver wants. False if something is left.
    pub(super) fn send_data(&mut self, to: PeerId, send: Key) -> bool {
        loop {
            let Some((channel, parts_left)) = self.room_in_background(to) else { return false };
            let Some(Send { origin, awaits_delivery, stage: Stage::Answered { receive, wanted, handed }, .. }) =
                self.state.sends.get(send)
            else {
                return true;
            };
            if handed == wanted {
                self.state.complete_if_done(send);
                return true;
            }
            let mut head = [0; HEAD_MAX];
            let head_bytes = Header::Data { receive: *receive, offset: *handed }.encode(&mut head);
            let head = &head[..head_bytes];
            let rest = *wanted - *handed;
            let part = origin.contiguous(*handed);
            let part = &part[..rest.min(part.len() as u64) as usize];
            let copied_max = self.endpoint.copied_max() - head_bytes;
            let context = OF_DATA | send;
            // The last of it completes the send, unless its delivery is told of.
            let acknowledge = |bytes: usize| match *awaits_delivery {
                false if bytes as u64 == rest => Acknowledge::AtOnce,
                _ => Acknowledge::Eventually,
            };
            let (sent, bytes) = if part.len() > copied_max.min(self.endpoint.copied_best()) {
                if parts_left == 0 {
                    return false;
                }
                let frames = self.state.config.cut_frames.clamp(1, CUT_FRAMES_MAX);
                let most = self.endpoint.body_of_frames(frames, head_bytes);
                let part = &part[..part.len().min(most)];
                let acknowledge = acknowledge(part.len());
                // SAFETY: as of an eager message that is lent; a send that was asked for is completed only when the
                // endpoint has told of all its messages.
                let sent = unsafe { self.endpoint.send_lent_in_background(channel, head, part, context, acknowledge) };
                (sent, part.len())
            } else {
                // Parts that are short go together in one frame.
                self.packed.resize(copied_max.min(rest.try_into().unwrap_or(usize::MAX)), 0);
                let bytes = origin.copy(*handed, &mut self.packed);
                let (body, acknowledge) = (&self.packed[..bytes], acknowledge(bytes));
                (self.endpoint.send_in_background(channel, head, body, context, acknowledge), bytes)
            };
            if sent.is_err() {
                return false;
            }
            *handed += bytes as u64;
            self.state.handed(to, send, BACKGROUND);
        }
    }
}

impl Send {
    fn new(peer: PeerId, message: Message, stage: Stage, awaits_delivery: bool) -> Self {
        let Message { label, origin, options, is_completed } = message;
        Self { peer, options, label, origin, stage, under_way: 0, awaits_delivery, is_completed }
    }
}

impl State {
    /// A copy of what is to be sent, if there is room for it.
    pub(super) fn copy_of(&self, bytes: &[u8]) -> Result<Origin, PostError> {
        let is_full = self.copied.load(Relaxed) + bytes.len() > self.config.copied_bytes;
        if is_full { Err(PostError::Full) } else { Ok(Origin::copy_of(bytes, &self.copied)) }
    }

    /// Takes a message with this context out of its peer's queue, unless it has been completed.
    fn take_from_queue(&mut self, context: u64) -> Option<Message> {
        if self.queued == 0 {
            return None;
        }
        let message = self.peers.all_mut().find_map(|peer| {
            let queue = &mut peer.outgoing[QUEUED];
            let is_meant =
                |out: &Out| matches!(out, Out::Message(m) if m.options.context == context && !m.is_completed);
            let place = queue.iter().position(is_meant)?;
            match queue.remove(place) {
                Some(Out::Message(message)) => Some(message),
                _ => None,
            }
        })?;
        self.queued -= 1;
        Some(message)
    }

    /// The endpoint has one more message of a send's.
    #[inline]
    fn handed(&mut self, to: PeerId, send: Key, class: usize) {
        self.peers.at(to).under_way[class] += 1;
        if let Some(send) = self.sends.get(send) {
            send.under_way += 1;
        }
    }

    /// The endpoint has done with a message: the peer's has it, or the channel is about to end.
    #[inline]
    pub(super) fn handed_over(&mut self, context: u64, is_sent: bool) {
        if context & (OF_NO_SEND | OF_ACCESS | OF_SERVED) != 0 {
            match context {
                _ if context & OF_NO_SEND != 0 => {
                    let peer = self.peers.at(PeerId::from_number(context as u32));
                    peer.under_way[USUAL] -= 1;
                    peer.has_lost |= !is_sent && context & WAS_COMPLETED != 0;
                }
                _ if context & OF_ACCESS != 0 => self.access_handed_over(context & !OF_ACCESS),
                _ => self.served_handed_over(context & !OF_SERVED),
            }
            return;
        }
        let class = if context & OF_DATA == 0 { USUAL } else { BACKGROUND };
        let key = context & !OF_DATA;
        let Some(send) = self.sends.get(key) else { return };
        send.under_way -= 1;
        let peer = send.peer;
        self.peers.at(peer).under_way[class] -= 1;
        if is_sent {
            self.complete_if_done(key);
        }
    }

    /// The receiver of an announced message wants its first bytes. False: it was not asked.
    pub(super) fn answered(&mut self, from: PeerId, number: Key, receive: Key, wanted: u64) -> bool {
        let Some(send) = self.sends.get(number).filter(|send| send.peer == from) else { return false };
        let Stage::Requested { length, is_lent } = send.stage else { return false };
        if wanted > length {
            return false;
        }
        self.peers.at(from).cannot_fetch |= is_lent && wanted > 0;
        send.stage = Stage::Answered { receive, wanted, handed: 0 };
        self.enqueue(from, Out::Data(number));
        true
    }

    /// The receiver has a message where it belongs. False: it was not asked.
    pub(super) fn delivered(&mut self, from: PeerId, number: Key) -> bool {
        let Some(send) = self.sends.get(number).filter(|send| send.peer == from && send.awaits_delivery) else {
            return false;
        };
        send.awaits_delivery = false;
        self.complete_if_done(number);
        true
    }

    #[inline]
    pub(super) fn complete_if_done(&mut self, key: Key) {
        if self.sends.get(key).is_some_and(|send| send.is_done())
            && let Some(send) = self.sends.remove(key)
            && !send.is_completed
        {
            if mutant!(self, CompletesTwice) && matches!(send.stage, Stage::Answered { .. }) {
                self.complete(send.options.context, send.options.note, Outcome::Sent, send.options.is_silent);
            }
            self.complete(send.options.context, send.options.note, Outcome::Sent, send.options.is_silent);
        }
    }
}
