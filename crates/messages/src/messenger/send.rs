// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends: eager or rendezvous, copied or zero-copy.

use std::sync::atomic::Ordering::Relaxed;

use barewire_endpoint::{Acknowledge, ChannelId, ConnectError, HEAD_MAX};
use barewire_link::Link;

use super::{
    ACCESS_CONTEXT, COMPLETED_CONTEXT, DATA_CONTEXT, Messenger, PEER_CONTEXT, READ_CONTEXT, State, peer_context,
};
use crate::completion::{Failure, Operation, Outcome, PostError};
use crate::config::Config;
use crate::header::{Header, Label};
use crate::memory::{Origin, Part};
use crate::mutant::mutant;
use crate::peers::{BACKGROUND, FOREGROUND, Outgoing, PeerId, QUEUED};
use crate::slab::Key;

/// When a send completes: libfabric's completion levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompletionLevel {
    /// The buffer can be reused (FI_INJECT_COMPLETE).
    #[default]
    Inject,
    /// The peer's endpoint has the message (FI_TRANSMIT_COMPLETE).
    Transmit,
    /// The message is in the buffer of the receive that it matched (FI_DELIVERY_COMPLETE), as in MPI's synchronous
    /// mode.
    Delivery,
}

/// Options of a send or an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Returned by the completion.
    pub context: u64,
    /// Returned likewise, for the caller's own use.
    pub note: u32,
    /// When the send completes; accesses always complete at the target.
    pub level: CompletionLevel,
    /// Only a failure is reported.
    pub is_silent: bool,
}

/// Longest header of an eager message: kind, tag, data, number.
const EAGER_HEAD_MAX: usize = 25;
/// Messages in flight to a peer that has not accepted the connection yet: several unreachable peers must leave
/// descriptors to others.
const IN_FLIGHT_UNCONNECTED: u16 = 2;

/// Long chunks of data to a peer that the endpoint may have: more than the engine holds, and so few that stalled peers
/// leave descriptors to others.
const CHUNKS_IN_FLIGHT: u16 = 3;
/// Limit of a chunk, in frames.
const CHUNK_FRAMES_MAX: usize = 4096;

/// An outstanding send.
pub(super) struct Send {
    pub peer: PeerId,
    pub options: SendOptions,
    label: Label,
    origin: Origin,
    pub stage: Stage,
    /// Messages of it that the endpoint has.
    pub in_flight: u32,
    /// The receiver has not confirmed delivery yet.
    pub awaits_delivery: bool,
    /// It completed when it was copied; only its loss is reported.
    pub is_completed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The endpoint has all of it.
    Eager,
    /// The request is sent; with `is_lent`, it offers the memory to a local peer.
    Requested { length: u64, is_lent: bool },
    /// The receiver wants the first `wanted` bytes, of which the endpoint has `submitted`.
    Answered { receive: Key, wanted: u64, submitted: u64 },
}

impl Send {
    #[inline]
    fn is_done(&self) -> bool {
        let is_submitted = match self.stage {
            Stage::Eager => true,
            Stage::Requested { .. } => false,
            Stage::Answered { wanted, submitted, .. } => submitted == wanted,
        };
        is_submitted && self.in_flight == 0 && !self.awaits_delivery
    }

    /// Copies from `offset` on. False if fewer bytes than `into` are left.
    pub fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        self.origin.copy(offset, into) == into.len()
    }
}

/// A message to send, before the protocol is chosen.
pub(crate) struct Message {
    label: Label,
    origin: Origin,
    pub options: SendOptions,
    /// As in [`Send`].
    pub is_completed: bool,
}

/// The endpoint has no room for a message now.
struct Full;

/// A message to be copied.
#[derive(Clone, Copy)]
struct CopiedMessage<'a> {
    label: Label,
    body: &'a [u8],
    options: SendOptions,
}

impl<L: Link> Messenger<L> {
    /// Limit of [`inject`](Self::inject), in bytes.
    #[must_use]
    pub fn inject_max(&self) -> usize {
        self.short_max().max(self.state.config.inject_bytes)
    }

    /// Sends a message gathered from `parts`.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    ///
    /// # Safety
    /// All parts must be valid for reads and unchanged until the send completes, as [`Messenger`] describes.
    #[inline]
    pub unsafe fn send(
        &mut self,
        to: PeerId,
        label: Label,
        parts: &[Part],
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise; the origin is dropped when the send completes.
        let origin = unsafe { Origin::new(parts) };
        let message = Message { label, origin, options, is_completed: false };
        match self.channel_to_post(to)? {
            Some(channel) => self.submit(to, channel, message).or_else(|message| self.queue(to, message)),
            None => self.queue(to, message),
        }
    }

    /// Sends a short message, which is copied. Only a failure of the peer is reported: by the next operation, or by a
    /// completion with context 0.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    #[inline(always)]
    pub fn inject(&mut self, to: PeerId, label: Label, bytes: &[u8]) -> Result<(), PostError> {
        self.send_copy(to, label, bytes, SendOptions { is_silent: true, ..SendOptions::default() })
    }

    /// As [`send`](Self::send), but copies the message, at most [`inject_max`](Self::inject_max) bytes: the caller can
    /// reuse the buffer at once.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    #[inline(always)]
    pub fn send_copy(&mut self, to: PeerId, label: Label, bytes: &[u8], options: SendOptions) -> Result<(), PostError> {
        let message = CopiedMessage { label, body: bytes, options };
        if let Some(channel) = self.channel_to_post(to)?
            && bytes.len() <= self.short_max()
            && !self.state.peers.at(to).rendezvous_only
            && self.copy_frame(to, channel, &message, false).is_ok()
        {
            return Ok(());
        }
        self.send_long_copy(to, &message)
    }

    /// As [`send_copy`](Self::send_copy), for a message that exceeds a frame, needs rendezvous, or has to wait.
    #[cold]
    fn send_long_copy(&mut self, to: PeerId, message: &CopiedMessage<'_>) -> Result<(), PostError> {
        let CopiedMessage { label, body, options } = *message;
        let limit = self.inject_max();
        if body.len() > limit {
            return Err(PostError::TooLong { bytes: body.len(), limit });
        }
        let completes_now = options.level == CompletionLevel::Inject;
        let channel = self.channel_to_post(to)?;
        if let Some(channel) = channel
            && completes_now
            && !self.state.peers.at(to).rendezvous_only
            && self.copy_frames(to, channel, message, false).is_ok()
        {
            return Ok(());
        }
        let origin = self.state.copy_of(body)?;
        let message = Message { label, origin, options, is_completed: completes_now };
        let posted = match channel {
            Some(channel) => self.submit(to, channel, message).or_else(|message| self.queue(to, message)),
            None => self.queue(to, message),
        };
        if completes_now && posted.is_ok() {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
        }
        posted
    }

    /// Bytes of the longest message that one frame carries.
    fn short_max(&self) -> usize {
        self.endpoint.copied_max() - EAGER_HEAD_MAX
    }

    /// Cancels a send of which nothing has been sent, because its peer has not connected yet or is stalled. It fails as
    /// cancelled, and the peer does not see it. False if there is none with this context, or if part of it has been
    /// sent.
    pub fn cancel_send(&mut self, context: u64) -> bool {
        if let Some(message) = self.state.take_from_queue(context) {
            self.state.fail(context, message.options.note, Operation::Send, Failure::Cancelled);
            return true;
        }
        let is_match = |send: &Send| {
            send.options.context == context
                && !send.is_completed
                && send.in_flight == 1
                && matches!(send.stage, Stage::Eager | Stage::Requested { .. })
        };
        for key in self.state.sends.keys_where(is_match) {
            if !self.endpoint.cancel(key) {
                continue;
            }
            if let Some(send) = self.state.sends.remove(key) {
                self.state.peers.at(send.peer).in_flight[FOREGROUND] -= 1;
                self.state.fail(context, send.options.note, Operation::Send, Failure::Cancelled);
                return true;
            }
        }
        false
    }

    /// The channel to a peer, opened on first use, if the peer may have one more message in flight.
    #[inline]
    pub(super) fn channel_for(&mut self, to: PeerId) -> Result<ChannelId, PostError> {
        let limit = self.state.config.descriptors_per_peer;
        let peer = self.state.peers.at(to);
        let Some(channel) = peer.channel else { return self.connect(to) };
        if peer.in_flight[FOREGROUND] >= IN_FLIGHT_UNCONNECTED {
            peer.is_open = peer.is_open || self.endpoint.is_open(channel);
            let has_data = peer.in_flight[BACKGROUND] > 0 || !peer.outgoing[BACKGROUND].is_empty();
            let limit = if has_data { limit.div_ceil(2) } else { limit };
            if !peer.is_open || peer.in_flight[FOREGROUND] >= limit {
                return Err(PostError::Full);
            }
        }
        Ok(channel)
    }

    /// The same for background data, with the number of long chunks that there is room for. Neither class may take all
    /// of the room, so that both progress.
    pub(super) fn background_channel(&mut self, to: PeerId) -> Option<(ChannelId, u16)> {
        let limit = self.state.config.descriptors_per_peer;
        let peer = self.state.peers.at(to);
        let [foreground, background] = peer.in_flight;
        let channel =
            peer.channel.filter(|_| background < limit.div_ceil(2) && foreground + background < limit.max(2))?;
        Some((channel, CHUNKS_IN_FLIGHT.saturating_sub(background)))
    }

    /// The channel for a new operation, or `None` if it has to wait behind others or for room.
    #[inline]
    pub(super) fn channel_to_post(&mut self, to: PeerId) -> Result<Option<ChannelId>, PostError> {
        let peer = self.state.peers.get_mut(to).filter(|peer| !peer.is_removing).ok_or(PostError::NoSuchPeer)?;
        peer.take_loss()?;
        if self.state.sends.len() >= self.state.config.sends || peer.is_broken || peer.has_backlog {
            return Err(PostError::Full);
        }
        if !peer.outgoing[QUEUED].is_empty() {
            return Ok(None);
        }
        match self.channel_for(to) {
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
        // The peer that had this address before is being removed.
        if self.state.peers.of_channel(channel).is_some_and(|other| other != to) {
            return Err(PostError::Full);
        }
        self.state.peers.connect(to, channel);
        Ok(channel)
    }

    /// Queues a message until there is room; messages of one peer stay in order.
    fn queue(&mut self, to: PeerId, message: Message) -> Result<(), PostError> {
        if self.state.queued >= self.state.config.sends {
            return Err(PostError::Full);
        }
        self.state.queued += 1;
        self.state.enqueue(to, Outgoing::Message(message));
        Ok(())
    }

    /// Submits a message to the endpoint, which has room for a message to this peer, or returns it.
    #[inline]
    pub(super) fn submit(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        let length = message.origin.bytes();
        let Config { eager_bytes, fetched_bytes, .. } = self.state.config;
        if length > eager_bytes as u64 || self.state.peers.at(to).rendezvous_only {
            return self.send_request(to, channel, message);
        }
        if length >= fetched_bytes as u64 && self.lends_to(to, channel) {
            return self.send_request(to, channel, message);
        }
        let body = message.origin.contiguous(0);
        if body.len() as u64 != length {
            return self.submit_parts(to, channel, message, length as usize);
        }
        let Message { label, options, is_completed, .. } = message;
        let bytes = length as usize + EAGER_HEAD_MAX;
        let short = CopiedMessage { label, body, options };
        let copied = if bytes <= self.endpoint.copied_best() {
            self.copy_frame(to, channel, &short, is_completed)
        } else if options.level == CompletionLevel::Inject && self.endpoint.takes_copies(channel, bytes) {
            self.copy_frames(to, channel, &short, is_completed)
        } else {
            return self.lend(to, channel, message);
        };
        copied.map_err(|Full| message)
    }

    /// The same for a message in several parts.
    fn submit_parts(&mut self, to: PeerId, channel: ChannelId, message: Message, length: usize) -> Result<(), Message> {
        let Message { label, ref origin, options, is_completed } = message;
        let bytes = length + EAGER_HEAD_MAX;
        let is_short = bytes <= self.endpoint.copied_max();
        if !is_short && (options.level != CompletionLevel::Inject || !self.endpoint.takes_copies(channel, bytes)) {
            return self.send_request(to, channel, message);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(length, 0);
        origin.copy(0, &mut scratch);
        let short = CopiedMessage { label, body: &scratch, options };
        let copied = if is_short {
            self.copy_frame(to, channel, &short, is_completed)
        } else {
            self.copy_frames(to, channel, &short, is_completed)
        };
        self.scratch = scratch;
        copied.map_err(|Full| message)
    }

    /// Sends an eager message of one frame.
    #[inline(always)]
    fn copy_frame(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        message: &CopiedMessage<'_>,
        is_completed: bool,
    ) -> Result<(), Full> {
        let CopiedMessage { label, body, options } = *message;
        if options.level != CompletionLevel::Inject {
            return self.copy_tracked(to, channel, message);
        }
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Eager { label, confirm: None }.encode(&mut head);
        let head = &head[..head_bytes];
        // Bounded: without progress, this side does not see that the peer runs short of memory.
        let may_send_now = self.immediate_sends < self.state.config.descriptors_per_peer;
        if may_send_now && self.endpoint.send_at_once(channel, head, body) {
            self.immediate_sends += 1;
        } else {
            self.endpoint.send(channel, head, body, peer_context(to) | COMPLETED_CONTEXT).map_err(|_| Full)?;
            self.state.peers.at(to).in_flight[FOREGROUND] += 1;
        }
        if !is_completed {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
        }
        Ok(())
    }

    /// The same for several frames.
    fn copy_frames(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        message: &CopiedMessage<'_>,
        is_completed: bool,
    ) -> Result<(), Full> {
        let CopiedMessage { label, body, options } = *message;
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Eager { label, confirm: None }.encode(&mut head);
        let context = peer_context(to) | COMPLETED_CONTEXT;
        self.endpoint.send_copied(channel, &head[..head_bytes], body, context).map_err(|_| Full)?;
        self.state.peers.at(to).in_flight[FOREGROUND] += 1;
        if !is_completed {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
        }
        Ok(())
    }

    /// The same for a send that completes at the peer.
    fn copy_tracked(&mut self, to: PeerId, channel: ChannelId, message: &CopiedMessage<'_>) -> Result<(), Full> {
        let CopiedMessage { label, body, options } = *message;
        let mut head = [0; HEAD_MAX];
        let awaits_delivery = options.level == CompletionLevel::Delivery;
        // The source of the copy is not needed any more.
        // SAFETY: no parts, nothing that must be valid.
        let origin = unsafe { Origin::new(&[]) };
        let message = Message { label, origin, options, is_completed: false };
        let send = self.state.sends.add(Send::new(to, message, Stage::Eager, awaits_delivery));
        let head_bytes = Header::Eager { label, confirm: awaits_delivery.then_some(send) }.encode(&mut head);
        let head = &head[..head_bytes];
        // The delivery confirmation acknowledges it.
        let sent = if awaits_delivery {
            self.endpoint.send(channel, head, body, send)
        } else {
            self.endpoint.send_awaited(channel, head, body, send)
        };
        self.submitted(to, send, sent.is_ok()).map_err(|_| Full)
    }

    /// Sends an eager message zero-copy.
    fn lend(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        let label = message.label;
        let body: *const [u8] = message.origin.contiguous(0);
        let awaits_delivery = message.options.level == CompletionLevel::Delivery;
        let send = self.state.sends.add(Send::new(to, message, Stage::Eager, awaits_delivery));
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Eager { label, confirm: awaits_delivery.then_some(send) }.encode(&mut head);
        let acknowledge = if awaits_delivery { Acknowledge::Eventually } else { Acknowledge::AtOnce };
        // SAFETY: the caller promised that the memory stays valid until the send completes, or the send owns a copy; it
        // does not complete before the endpoint has reported `send`.
        let sent = unsafe { self.endpoint.send_lent(channel, &head[..head_bytes], &*body, send, acknowledge) };
        self.submitted(to, send, sent.is_ok())
    }

    /// Sends a rendezvous request.
    fn send_request(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        let (label, length) = (message.label, message.origin.bytes());
        let confirm = message.options.level == CompletionLevel::Delivery;
        let body = message.origin.contiguous(0);
        let is_lent = body.len() as u64 == length && self.lends_to(to, channel);
        let address = is_lent.then_some(body.as_ptr() as u64);
        let send = self.state.sends.add(Send::new(to, message, Stage::Requested { length, is_lent }, confirm));
        let mut head = [0; HEAD_MAX];
        let head_bytes = Header::Request { label, number: send, length, confirm, address }.encode(&mut head);
        let sent = self.endpoint.send(channel, &head[..head_bytes], &[], send);
        self.submitted(to, send, sent.is_ok())
    }

    /// Accounts for a new send's first message, or drops the send if the endpoint did not take it.
    fn submitted(&mut self, to: PeerId, send: Key, is_taken: bool) -> Result<(), Message> {
        if is_taken {
            self.state.count_submitted(to, send, FOREGROUND);
            return Ok(());
        }
        let Some(send) = self.state.sends.remove(send) else { return Ok(()) };
        Err(Message { label: send.label, origin: send.origin, options: send.options, is_completed: send.is_completed })
    }

    /// Sends rendezvous data. False if some is left.
    pub(super) fn send_data(&mut self, to: PeerId, send: Key) -> bool {
        loop {
            let Some((channel, chunks_left)) = self.background_channel(to) else { return false };
            let Some(Send { origin, awaits_delivery, stage: Stage::Answered { receive, wanted, submitted }, .. }) =
                self.state.sends.get(send)
            else {
                return true;
            };
            if submitted == wanted {
                self.state.complete_if_done(send);
                return true;
            }
            let mut head = [0; HEAD_MAX];
            let head_bytes = Header::Data { receive: *receive, offset: *submitted }.encode(&mut head);
            let head = &head[..head_bytes];
            let rest = *wanted - *submitted;
            let part = origin.contiguous(*submitted);
            let part = &part[..rest.min(part.len() as u64) as usize];
            let copied_max = self.endpoint.copied_max() - head_bytes;
            let context = DATA_CONTEXT | send;
            // The last chunk's acknowledgement completes the send, unless delivery is confirmed.
            let acknowledge = |bytes: usize| match *awaits_delivery {
                false if bytes as u64 == rest => Acknowledge::AtOnce,
                _ => Acknowledge::Eventually,
            };
            let (sent, bytes) = if part.len() > copied_max.min(self.endpoint.copied_best()) {
                if chunks_left == 0 {
                    return false;
                }
                let frames = self.state.config.rendezvous_chunk_frames.clamp(1, CHUNK_FRAMES_MAX);
                let limit = self.endpoint.body_of_frames(frames, head_bytes);
                let part = &part[..part.len().min(limit)];
                let acknowledge = acknowledge(part.len());
                // SAFETY: as for a lent eager message; a rendezvous send completes only when the endpoint has reported
                // all its messages.
                let sent = unsafe { self.endpoint.send_lent_in_background(channel, head, part, context, acknowledge) };
                (sent, part.len())
            } else {
                // Short parts share one frame.
                self.scratch.resize(copied_max.min(rest.try_into().unwrap_or(usize::MAX)), 0);
                let bytes = origin.copy(*submitted, &mut self.scratch);
                let (body, acknowledge) = (&self.scratch[..bytes], acknowledge(bytes));
                (self.endpoint.send_in_background(channel, head, body, context, acknowledge), bytes)
            };
            if sent.is_err() {
                return false;
            }
            *submitted += bytes as u64;
            self.state.count_submitted(to, send, BACKGROUND);
        }
    }
}

impl Send {
    fn new(peer: PeerId, message: Message, stage: Stage, awaits_delivery: bool) -> Self {
        let Message { label, origin, options, is_completed } = message;
        Self { peer, options, label, origin, stage, in_flight: 0, awaits_delivery, is_completed }
    }
}

impl State {
    /// A copy of `bytes`, if there is room for it.
    pub(super) fn copy_of(&self, bytes: &[u8]) -> Result<Origin, PostError> {
        let is_full = self.copied.load(Relaxed) + bytes.len() > self.config.copied_bytes;
        if is_full { Err(PostError::Full) } else { Ok(Origin::copy_of(bytes, &self.copied)) }
    }

    /// Removes a message with this context from its peer's queue, unless its send has completed.
    fn take_from_queue(&mut self, context: u64) -> Option<Message> {
        if self.queued == 0 {
            return None;
        }
        let message = self.peers.all_mut().find_map(|peer| {
            let queue = &mut peer.outgoing[QUEUED];
            let is_match =
                |out: &Outgoing| matches!(out, Outgoing::Message(m) if m.options.context == context && !m.is_completed);
            let index = queue.iter().position(is_match)?;
            match queue.remove(index) {
                Some(Outgoing::Message(message)) => Some(message),
                _ => None,
            }
        })?;
        self.queued -= 1;
        Some(message)
    }

    /// The endpoint has one more message of a send.
    #[inline]
    fn count_submitted(&mut self, to: PeerId, send: Key, class: usize) {
        self.peers.at(to).in_flight[class] += 1;
        if let Some(send) = self.sends.get(send) {
            send.in_flight += 1;
        }
    }

    /// The endpoint has reported a message: the peer's endpoint has it, or the channel is about to end.
    #[inline]
    pub(super) fn message_done(&mut self, context: u64, is_sent: bool) {
        if context & (PEER_CONTEXT | ACCESS_CONTEXT | READ_CONTEXT) != 0 {
            match context {
                _ if context & PEER_CONTEXT != 0 => {
                    let peer = self.peers.at(PeerId::from_number(context as u32));
                    peer.in_flight[FOREGROUND] -= 1;
                    peer.has_lost |= !is_sent && context & COMPLETED_CONTEXT != 0;
                }
                _ if context & ACCESS_CONTEXT != 0 => self.access_message_done(context & !ACCESS_CONTEXT),
                _ => self.read_message_done(context & !READ_CONTEXT),
            }
            return;
        }
        let class = if context & DATA_CONTEXT == 0 { FOREGROUND } else { BACKGROUND };
        let key = context & !DATA_CONTEXT;
        let Some(send) = self.sends.get(key) else { return };
        send.in_flight -= 1;
        let peer = send.peer;
        self.peers.at(peer).in_flight[class] -= 1;
        if is_sent {
            self.complete_if_done(key);
        }
    }

    /// Handles the answer to a request. False if there is no such request.
    pub(super) fn request_answered(&mut self, from: PeerId, number: Key, receive: Key, wanted: u64) -> bool {
        let Some(send) = self.sends.get(number).filter(|send| send.peer == from) else { return false };
        let Stage::Requested { length, is_lent } = send.stage else { return false };
        if wanted > length {
            return false;
        }
        self.peers.at(from).cannot_fetch |= is_lent && wanted > 0;
        send.stage = Stage::Answered { receive, wanted, submitted: 0 };
        self.enqueue(from, Outgoing::Data(number));
        true
    }

    /// Handles a delivery confirmation. False if none is due.
    pub(super) fn delivery_confirmed(&mut self, from: PeerId, number: Key) -> bool {
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
