// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends: eager or rendezvous, copied or zero-copy.

use std::ops::RangeInclusive;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use barewire_endpoint::{ChannelId, ConnectError, Ending, Endpoint, HEAD_MAX, Priority, Report, SendError};
use barewire_link::Link;

use super::{ACCESS_CONTEXT, ANSWER_CONTEXT, Advance, DATA_CONTEXT, Messenger, READ_CONTEXT, State, TO_ACCESS_CONTEXT};
use crate::completion::{Failure, Operation, Outcome, PostError};
use crate::config::Config;
use crate::header::{Header, Label};
use crate::memory::{Origin, Part};
use crate::mutant::mutant;
use crate::peers::{Bulk, PeerId};
use crate::slab::Key;

/// When a send completes: libfabric's completion levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompletionLevel {
    /// The buffer can be reused (FI_INJECT_COMPLETE).
    #[default]
    Inject,
    /// The peer's endpoint has the message (FI_TRANSMIT_COMPLETE).
    Transmit,
    /// The peer's process has the message (FI_DELIVERY_COMPLETE): in the buffer of its receive, or in the peer's own
    /// memory if it is short and there is no receive yet. MPICH sends like this, and programs expect short messages to
    /// be buffered.
    Delivery,
    /// The message is in the buffer of the receive that it matched (FI_MATCH_COMPLETE).
    Match,
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
/// A peer that has made no room for so long does not receive, and may not for long. Others do within a round trip.
const STALLED_AFTER: Duration = Duration::from_micros(100);
/// Polls between two readings of the clock while messages wait.
const POLLS_PER_CLOCK_READ: u32 = 16;
/// Messages that are sent without progress. Then arrived messages are handled first: a peer that runs short of memory
/// may have asked for rendezvous.
const POSTS_WITHOUT_PROGRESS: u16 = 256;

/// Bytes of bulk work that the endpoint has for a peer, at least, and in frames: more than a window, so that no message
/// waits for the acknowledgement of an earlier one.
const BULK_BYTES: usize = 128 << 10;
const BULK_FRAMES: usize = 64;
/// Bounds of the number of messages in which it has them.
const BULK_IN_FLIGHT: RangeInclusive<usize> = 3..=32;
/// Limit of a chunk, in frames.
const CHUNK_FRAMES_MAX: usize = 4096;

/// A message to send, before the protocol is chosen.
pub(crate) struct Message {
    label: Label,
    origin: Origin,
    pub options: SendOptions,
    /// Its send completed when it was copied; only its loss is reported.
    pub is_completed: bool,
}

/// An outstanding send.
pub(super) struct Send {
    pub peer: PeerId,
    pub options: SendOptions,
    origin: Origin,
    pub stage: Stage,
    /// Messages of it that the endpoint has.
    pub in_flight: u32,
    /// The receiver has not confirmed delivery yet.
    pub awaits_delivery: bool,
    /// As in [`Message`].
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
        if let [part] = parts
            && options.level == CompletionLevel::Inject
            && let Some(channel) = self.channel_to_post(to)?
            && !self.needs_request(to, channel, part.bytes as u64)
        {
            // SAFETY: the caller's promise.
            let body = if part.bytes == 0 { &[] } else { unsafe { slice::from_raw_parts(part.address, part.bytes) } };
            if self.send_now(channel, label, body) {
                self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
                return Ok(());
            }
        }
        // SAFETY: the caller's promise; the origin is dropped when the send completes.
        let origin = unsafe { Origin::new(parts) };
        self.post(to, Message { label, origin, options, is_completed: false })
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
        if let Some(channel) = self.channel_to_post(to)?
            && options.level == CompletionLevel::Inject
            && bytes.len() <= self.short_max()
            && !self.state.peers.at(to).rendezvous_only
            && self.send_now(channel, label, bytes)
        {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
            return Ok(());
        }
        self.send_long_copy(to, label, bytes, options)
    }

    /// As [`send_copy`](Self::send_copy), for a message that exceeds a frame, needs rendezvous, or has to wait.
    #[cold]
    fn send_long_copy(&mut self, to: PeerId, label: Label, body: &[u8], options: SendOptions) -> Result<(), PostError> {
        let limit = self.inject_max();
        if body.len() > limit {
            return Err(PostError::TooLong { bytes: body.len(), limit });
        }
        let is_completed = options.level == CompletionLevel::Inject;
        let origin = self.state.copy_of(body)?;
        self.post(to, Message { label, origin, options, is_completed })?;
        if is_completed {
            self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
        }
        Ok(())
    }

    /// Bytes of the longest message that one frame carries.
    fn short_max(&self) -> usize {
        self.endpoint.copied_max() - EAGER_HEAD_MAX
    }

    /// Cancels a send of which nothing has been sent, because its peer has not connected yet or is stalled. It fails as
    /// cancelled, and the peer does not see it. False if there is none with this context, or if part of it has been
    /// sent.
    pub fn cancel_send(&mut self, context: u64) -> bool {
        if let Some(message) = self.state.take_waiting(context) {
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
            if self.endpoint.cancel(key)
                && let Some(send) = self.state.sends.remove(key)
            {
                self.state.fail(context, send.options.note, Operation::Send, Failure::Cancelled);
                return true;
            }
        }
        false
    }

    /// The channel for a new operation, opened on first use; `None` if it has to wait behind others, for the end of the
    /// previous channel, or for progress.
    #[inline]
    pub(super) fn channel_to_post(&mut self, to: PeerId) -> Result<Option<ChannelId>, PostError> {
        let peer = self.state.peers.get_mut(to).filter(|peer| !peer.is_removing).ok_or(PostError::NoSuchPeer)?;
        peer.take_loss()?;
        if self.state.sends.len() >= self.state.config.sends || peer.is_broken {
            return Err(PostError::Full);
        }
        if !peer.waiting.is_empty() || self.posts_since_progress >= POSTS_WITHOUT_PROGRESS {
            return Ok(None);
        }
        match peer.channel {
            Some(channel) => Ok(Some(channel)),
            None => self.connect(to),
        }
    }

    /// Connects to a peer; `None` if its previous channel has not ended yet.
    pub(super) fn connect(&mut self, to: PeerId) -> Result<Option<ChannelId>, PostError> {
        let channel = match self.endpoint.connect(self.state.peers.at(to).address) {
            Err(ConnectError::Ending(_)) => return Ok(None),
            connected => connected?,
        };
        // The peer that had this address before is being removed.
        if self.state.peers.of_channel(channel).is_some_and(|other| other != to) {
            return Ok(None);
        }
        self.state.peers.connect(to, channel);
        Ok(Some(channel))
    }

    fn post(&mut self, to: PeerId, message: Message) -> Result<(), PostError> {
        let channel = self.channel_to_post(to)?;
        let Err(message) = self.try_send(to, channel, message) else { return Ok(()) };
        if self.state.queued >= self.state.config.sends {
            return Err(PostError::Full);
        }
        self.is_unsent = true;
        self.state.queued += 1;
        let peer = self.state.peers.at(to);
        peer.waiting.push_back(message);
        let newest = peer.waiting.len() - 1;
        if newest == 0 {
            self.note_blocked(to);
            if channel.is_none() {
                self.state.retry(to);
            }
        } else if peer.is_buffered {
            self.state.peers.at(to).is_buffered = self.state.buffer_waiting(to, newest);
        }
        Ok(())
    }

    /// The first of the messages that wait for a peer is another one now.
    fn note_blocked(&mut self, to: PeerId) {
        let now = self.endpoint.link().clock().now();
        let peer = self.state.peers.at(to);
        (peer.blocked_since, peer.is_buffered) = (now, false);
        if !self.state.blocked.contains(&to) {
            self.state.blocked.push(to);
        }
    }

    /// How long a sleep may take at most while messages wait that are buffered when their peer has stalled.
    pub(super) fn time_to_stall(&mut self) -> Option<Duration> {
        let Self { endpoint, state, .. } = self;
        let can_stall = |to: &PeerId| {
            let peer = state.peers.get(*to).filter(|peer| !peer.waiting.is_empty());
            peer.and_then(|peer| peer.channel).is_some_and(|channel| endpoint.is_open(channel))
        };
        if !state.blocked.iter().any(can_stall) {
            return None;
        }
        // The poll that follows reads the clock.
        state.polls_blocked = POLLS_PER_CLOCK_READ;
        Some(STALLED_AFTER)
    }

    /// Buffers the messages that wait for stalled peers, so that their sends complete, as over TCP. Those posted later
    /// are buffered at once.
    #[cold]
    pub(super) fn buffer_for_stalled(&mut self) {
        self.state.polls_blocked += 1;
        if self.state.polls_blocked < POLLS_PER_CLOCK_READ {
            return;
        }
        self.state.polls_blocked = 0;
        let now = self.endpoint.link().clock().now();
        for to in std::mem::take(&mut self.state.blocked) {
            let Some(peer) = self.state.peers.get_mut(to).filter(|peer| !peer.waiting.is_empty()) else { continue };
            let is_open = peer.channel.is_some_and(|channel| self.endpoint.is_open(channel));
            if !is_open || now.saturating_sub(peer.blocked_since) < STALLED_AFTER {
                self.state.blocked.push(to);
                continue;
            }
            self.state.peers.at(to).is_buffered = self.buffer(to);
        }
    }

    /// Buffers the messages to a peer in the order of their sends, so that these complete in order: first what the
    /// endpoint has, then what waits. False if there is no room for one.
    fn buffer(&mut self, to: PeerId) -> bool {
        let needs_memory = |send: &Send| {
            let is_bufferable = send.stage == Stage::Eager && send.options.level == CompletionLevel::Inject;
            send.peer == to && is_bufferable && !send.is_completed
        };
        for key in self.state.sends.keys_where(needs_memory) {
            self.endpoint.copy_lent(key);
            let Some(send) = self.state.sends.get(key) else { continue };
            send.is_completed = true;
            let SendOptions { context, note, is_silent, .. } = send.options;
            self.state.complete(context, note, Outcome::Sent, is_silent);
        }
        let waiting = self.state.peers.at(to).waiting.len();
        (0..waiting).all(|index| self.state.buffer_waiting(to, index))
    }

    /// Sends messages that waited, as long as there is room.
    #[cold]
    pub(super) fn send_waiting(&mut self, to: PeerId) {
        while let Some(message) = self.state.peers.get_mut(to).and_then(|peer| peer.waiting.pop_front()) {
            if self.posts_since_progress >= POSTS_WITHOUT_PROGRESS {
                self.state.peers.at(to).waiting.push_front(message);
                return self.state.retry(to);
            }
            let channel = match self.state.peers.at(to).channel {
                Some(channel) => Some(channel),
                None => match self.connect(to) {
                    Ok(channel) => channel,
                    // As a call that connects reports it: no channel is free.
                    Err(_) => {
                        self.state.peers.at(to).waiting.push_front(message);
                        let has_lost = self.state.fail_waiting(to, Ending::Exhausted);
                        let peer = self.state.peers.at(to);
                        peer.lost = peer.lost.or(has_lost.then_some(Ending::Exhausted));
                        return;
                    }
                },
            };
            let Err(message) = self.try_send(to, channel, message) else {
                self.state.queued -= 1;
                self.note_blocked(to);
                continue;
            };
            self.state.peers.at(to).waiting.push_front(message);
            if channel.is_none() {
                self.state.retry(to);
            }
            return;
        }
    }

    /// Sends a message, or returns it if it has to wait: if there is a channel, the endpoint tells when there is room.
    fn try_send(&mut self, to: PeerId, channel: Option<ChannelId>, message: Message) -> Result<(), Message> {
        let Some(channel) = channel else { return Err(message) };
        let Message { label, ref origin, options, is_completed } = message;
        let length = origin.bytes();
        if options.level == CompletionLevel::Match || self.needs_request(to, channel, length) {
            return self.send_request(to, channel, message);
        }
        let body = origin.contiguous(0);
        if body.len() as u64 != length {
            return self.send_parts(to, channel, message);
        }
        if options.level == CompletionLevel::Inject && self.send_now(channel, label, body) {
            if !is_completed {
                self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
            }
            return Ok(());
        }
        if !self.endpoint.has_room(channel, body.len() + EAGER_HEAD_MAX) {
            return Err(message);
        }
        let body: *const [u8] = body;
        self.track(to, message, Stage::Eager, |endpoint, send| {
            let mut head = [0; HEAD_MAX];
            let (confirm, report) = confirmation(options.level, send);
            let length = Header::Eager { label, confirm }.encode(&mut head);
            // SAFETY: the caller promised that the memory stays valid until the send completes, or the send owns a
            // copy; it does not complete before the endpoint has reported `send`.
            unsafe { endpoint.post_lent(channel, &head[..length], &*body, Priority::Normal, report) }
        })
    }

    /// Whether a message is sent on request only.
    #[inline]
    fn needs_request(&mut self, to: PeerId, channel: ChannelId, length: u64) -> bool {
        let Config { eager_bytes, fetched_bytes, .. } = self.state.config;
        length > eager_bytes as u64
            || self.state.peers.at(to).rendezvous_only
            || length >= fetched_bytes as u64 && self.lends_to(to, channel)
    }

    /// Sends an eager message, copied, or returns false.
    #[inline(always)]
    fn send_now(&mut self, channel: ChannelId, label: Label, body: &[u8]) -> bool {
        let mut head = [0; HEAD_MAX];
        let length = Header::Eager { label, confirm: None }.encode(&mut head);
        let is_sent = self.endpoint.send_now(channel, &head[..length], body);
        self.posts_since_progress += u16::from(is_sent);
        is_sent
    }

    /// As [`try_send`](Self::try_send), for an eager message in several parts.
    fn send_parts(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        let Message { label, ref origin, options, .. } = message;
        let length = origin.bytes() as usize;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(length, 0);
        origin.copy(0, &mut scratch);
        let sent = if options.level == CompletionLevel::Inject {
            if self.send_now(channel, label, &scratch) {
                self.state.complete(options.context, options.note, Outcome::Sent, options.is_silent);
                Ok(())
            } else if self.endpoint.has_room(channel, length + EAGER_HEAD_MAX) {
                // It can be copied only in parts.
                self.send_request(to, channel, message)
            } else {
                Err(message)
            }
        } else if self.endpoint.has_room(channel, length + EAGER_HEAD_MAX) {
            self.track(to, message, Stage::Eager, |endpoint, send| {
                let mut head = [0; HEAD_MAX];
                let (confirm, report) = confirmation(options.level, send);
                let length = Header::Eager { label, confirm }.encode(&mut head);
                endpoint.post(channel, &head[..length], &scratch, Priority::Normal, report)
            })
        } else {
            Err(message)
        };
        self.scratch = scratch;
        sent
    }

    /// Sends a rendezvous request.
    fn send_request(&mut self, to: PeerId, channel: ChannelId, message: Message) -> Result<(), Message> {
        if !self.endpoint.has_room(channel, HEAD_MAX) {
            return Err(message);
        }
        self.is_unsent = true;
        let (label, length) = (message.label, message.origin.bytes());
        let confirm = message.options.level >= CompletionLevel::Delivery;
        let body = message.origin.contiguous(0);
        let is_lent = body.len() as u64 == length && self.lends_to(to, channel);
        let address = is_lent.then_some(body.as_ptr() as u64);
        self.track(to, message, Stage::Requested { length, is_lent }, |endpoint, send| {
            let mut head = [0; HEAD_MAX];
            let length = Header::Request { label, number: send, length, confirm, address }.encode(&mut head);
            endpoint.post(channel, &head[..length], &[], Priority::Normal, Report::Acknowledged(send))
        })
    }

    /// Adds a send and posts its first message, which the endpoint reports under the send's key. Returns the message if
    /// the channel has ended.
    fn track(
        &mut self,
        peer: PeerId,
        message: Message,
        stage: Stage,
        post: impl FnOnce(&mut Endpoint<L>, Key) -> Result<bool, SendError>,
    ) -> Result<(), Message> {
        let Message { label, origin, options, is_completed } = message;
        let awaits_delivery = options.level >= CompletionLevel::Delivery;
        let key =
            self.state.sends.add(Send { peer, options, origin, stage, in_flight: 1, awaits_delivery, is_completed });
        match post(&mut self.endpoint, key) {
            Ok(is_sent) => {
                self.posts_since_progress += 1;
                // Copied at once, which no event reports.
                if is_sent && options.level == CompletionLevel::Inject && stage == Stage::Eager {
                    self.state.message_done(key, true);
                }
                Ok(())
            }
            Err(_) => match self.state.sends.remove(key) {
                Some(Send { origin, .. }) => Err(Message { label, origin, options, is_completed }),
                None => Ok(()),
            },
        }
    }

    /// Hands bulk work's next message to the endpoint, unless it has enough of this peer's. Returns whether it took it.
    pub(super) fn post_bulk(&mut self, to: PeerId, head: &[u8], body: BulkBody<'_>, report: Report) -> bool {
        let peer = self.state.peers.at(to);
        let bytes = match body {
            BulkBody::Lent(part) => part.len(),
            BulkBody::Copied(bytes) => bytes.len(),
        };
        let bulk_bytes = BULK_BYTES.max(BULK_FRAMES * self.endpoint.copied_max());
        let limit = (bulk_bytes / bytes.max(1)).clamp(*BULK_IN_FLIGHT.start(), *BULK_IN_FLIGHT.end());
        let is_busy = usize::from(peer.bulk_in_flight) >= limit;
        let Some(channel) = peer.channel.filter(|_| !is_busy) else { return false };
        let posted = match body {
            // SAFETY: the memory of a send stays valid until the send completes, which it does only when the endpoint
            // has reported all its messages; registered memory until it is deregistered, when the endpoint copies what
            // it still needs.
            BulkBody::Lent(part) => unsafe {
                self.endpoint.post_lent(channel, head, &*part, Priority::Background, report)
            },
            BulkBody::Copied(bytes) => self.endpoint.post(channel, head, bytes, Priority::Background, report),
        };
        self.state.peers.at(to).bulk_in_flight += u16::from(posted.is_ok());
        posted.is_ok()
    }

    /// Sends rendezvous data.
    pub(super) fn send_data(&mut self, to: PeerId, key: Key) -> Advance {
        loop {
            let Some(send) = self.state.sends.get(key) else { return Advance::Done };
            let Stage::Answered { receive, wanted, submitted } = send.stage else { return Advance::Done };
            if submitted == wanted {
                self.state.complete_if_done(key);
                return Advance::Done;
            }
            let mut head = [0; HEAD_MAX];
            let head_bytes = Header::Data { receive, offset: submitted }.encode(&mut head);
            let head = &head[..head_bytes];
            let rest = usize::try_from(wanted - submitted).unwrap_or(usize::MAX);
            let part = send.origin.contiguous(submitted);
            let part = &part[..rest.min(part.len())];
            let copied_max = self.endpoint.copied_max() - head_bytes;
            let mut scratch = std::mem::take(&mut self.scratch);
            let (body, bytes) = if part.len() > copied_max.min(self.endpoint.copied_best()) {
                let frames = self.state.config.rendezvous_chunk_frames.clamp(1, CHUNK_FRAMES_MAX);
                let channel = self.state.peers.at(to).channel;
                let part = &part[..part.len().min(self.endpoint.body_of_frames(channel, frames, head_bytes))];
                (BulkBody::Lent(part), part.len())
            } else {
                // Short parts share one frame.
                scratch.resize(copied_max.min(rest), 0);
                let bytes = send.origin.copy(submitted, &mut scratch);
                (BulkBody::Copied(&scratch[..bytes]), bytes)
            };
            // The last message's acknowledgement completes the send, unless delivery is confirmed.
            let report = match send.awaits_delivery {
                false if bytes == rest => Report::AcknowledgedAtOnce(DATA_CONTEXT | key),
                _ => Report::Acknowledged(DATA_CONTEXT | key),
            };
            let is_taken = self.post_bulk(to, head, body, report);
            self.scratch = scratch;
            if !is_taken {
                return Advance::Blocked;
            }
            if let Some(Send { stage: Stage::Answered { submitted, .. }, in_flight, .. }) = self.state.sends.get(key) {
                *submitted += bytes as u64;
                *in_flight += 1;
            }
        }
    }
}

/// The body of a message of bulk work.
pub(super) enum BulkBody<'a> {
    Lent(*const [u8]),
    Copied(&'a [u8]),
}

/// How a tracked eager message is reported: the number that the receiver confirms, and the endpoint's report.
fn confirmation(level: CompletionLevel, send: Key) -> (Option<Key>, Report) {
    match level {
        CompletionLevel::Inject => (None, Report::Copied { context: send, counts_loss: true }),
        CompletionLevel::Transmit => (None, Report::AcknowledgedAtOnce(send)),
        // The confirmation acknowledges it.
        CompletionLevel::Delivery | CompletionLevel::Match => (Some(send), Report::Acknowledged(send)),
    }
}

impl State {
    /// A copy of `bytes`, if there is room for it.
    pub(super) fn copy_of(&self, bytes: &[u8]) -> Result<Origin, PostError> {
        let is_full = self.copied.load(Relaxed) + bytes.len() > self.config.copied_bytes;
        if is_full { Err(PostError::Full) } else { Ok(Origin::copy_of(bytes, &self.copied)) }
    }

    /// Buffers a message that waits for a peer and completes its send, if it is short enough to be sent without the
    /// peer's request and needs no more than its buffer. False if there is no room for it.
    fn buffer_waiting(&mut self, to: PeerId, index: usize) -> bool {
        let Some(message) = self.peers.at(to).waiting.get_mut(index) else { return true };
        let length = message.origin.bytes() as usize;
        let is_bufferable = message.options.level == CompletionLevel::Inject && length <= self.config.eager_bytes;
        if message.is_completed || !is_bufferable {
            return true;
        }
        if self.copied.load(Relaxed) + length > self.config.buffered_bytes {
            return false;
        }
        let mut bytes = vec![0; length];
        message.origin.copy(0, &mut bytes);
        message.origin = Origin::copied(bytes, &self.copied);
        message.is_completed = true;
        let SendOptions { context, note, is_silent, .. } = message.options;
        self.complete(context, note, Outcome::Sent, is_silent);
        true
    }

    /// Makes the next progress retry the messages that wait for a peer.
    fn retry(&mut self, peer: PeerId) {
        if !self.retried.contains(&peer) {
            self.retried.push(peer);
        }
    }

    /// Removes a message with this context from its peer's queue, unless its send has completed.
    fn take_waiting(&mut self, context: u64) -> Option<Message> {
        if self.queued == 0 {
            return None;
        }
        let is_match = |message: &Message| message.options.context == context && !message.is_completed;
        let message = self.peers.all_mut().find_map(|peer| {
            let index = peer.waiting.iter().position(is_match)?;
            peer.waiting.remove(index)
        })?;
        self.queued -= 1;
        Some(message)
    }

    /// The endpoint has reported a message: it was sent, or the channel is about to end.
    #[inline]
    pub(super) fn message_done(&mut self, context: u64, is_sent: bool) {
        match context {
            _ if context & ANSWER_CONTEXT != 0 => {
                self.answer_sent(PeerId::from_number(context as u32), context & TO_ACCESS_CONTEXT != 0);
            }
            _ if context & ACCESS_CONTEXT != 0 => self.access_message_done(context & !ACCESS_CONTEXT),
            _ if context & READ_CONTEXT != 0 => self.read_message_done(context & !READ_CONTEXT),
            _ => {
                let key = context & !DATA_CONTEXT;
                let Some(send) = self.sends.get(key) else { return };
                send.in_flight -= 1;
                let peer = send.peer;
                if context & DATA_CONTEXT != 0 {
                    self.bulk_message_done(peer);
                }
                if is_sent {
                    self.complete_if_done(key);
                }
            }
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
        self.add_bulk(from, Bulk::Data(number));
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
