// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending: messages go into descriptors, and from there into frames or pipes.

use barewire_link::Link;
use barewire_llc::message::{FIRST_HEADER, Fragment, Fragmenter, OTHER_HEADER, whole};
use barewire_llc::{ConnectionHandle, Destination, Peer};

use super::local::Kind;
use super::{Endpoint, Event};
use crate::address::Address;
use crate::channel::{Carrier, Channel, ChannelId};
use crate::descriptors::{Content, DescriptorId, HEAD_MAX};
use crate::error::{EndpointError, SendError};
use crate::message_queue::Priority;
use crate::sink::Class;
use crate::slots::Lent;

/// Frames submitted before they are transmitted: few enough to be in the L1 cache when the kernel copies them.
const FRAMES_PER_TRANSMIT: u32 = 16;
/// Frames that a channel may send before the next channel is served.
const FRAMES_PER_TURN: u32 = 64;

/// When the peer acknowledges a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// With the peer's next frame, together with other messages, or after a delay.
    Eventually,
    /// On receipt: the last frame requests it.
    AtOnce,
}

/// Destination and options of a message.
#[derive(Clone, Copy)]
struct SendRequest {
    to: ChannelId,
    context: u64,
    priority: Priority,
    acknowledge: Acknowledge,
}

/// How much of a message was submitted to its carrier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submitted {
    All,
    /// Part of it or nothing; the carrier has no room now.
    Blocked,
    /// Part of it; other channels are served first.
    Yielded,
}

impl<L: Link> Endpoint<L> {
    /// Largest head and body that [`send`](Self::send) accepts, in bytes: they fit one frame.
    #[inline]
    #[must_use]
    pub fn copied_max(&self) -> usize {
        self.information_max - FIRST_HEADER
    }

    /// Size in bytes up to which copying a message costs less than lending it, on this machine.
    #[inline]
    #[must_use]
    pub fn copied_best(&self) -> usize {
        self.copied_max().min(self.config.tuning.copy_crossover_bytes)
    }

    /// Size of the largest datagram, in bytes.
    #[must_use]
    pub fn datagram_max(&self) -> usize {
        self.information_max
    }

    /// Sends a message that fits one frame; copies head and body. [`Event::Sent`] reports `context`.
    ///
    /// # Errors
    /// [`SendError`]; the message was not accepted.
    pub fn send(&mut self, to: ChannelId, head: &[u8], body: &[u8], context: u64) -> Result<(), SendError> {
        let priority = Priority::Normal { frames: 1 };
        self.copy(SendRequest { to, context, priority, acknowledge: Acknowledge::Eventually }, head, body)
    }

    /// As [`send`](Self::send), for a message whose [`Event::Sent`] the caller waits for.
    ///
    /// # Errors
    /// As for `send`.
    pub fn send_awaited(&mut self, to: ChannelId, head: &[u8], body: &[u8], context: u64) -> Result<(), SendError> {
        let priority = Priority::Normal { frames: 1 };
        self.copy(SendRequest { to, context, priority, acknowledge: Acknowledge::AtOnce }, head, body)
    }

    /// Whether [`send_copied`](Self::send_copied) accepts messages of this size to this peer: not for local peers, nor
    /// for sizes that need more slots than a message may have.
    #[must_use]
    pub fn takes_copies(&mut self, to: ChannelId, bytes: usize) -> bool {
        let frames_max = usize::from(self.config.slots.min(self.config.connection.queue)) / 2;
        let fits = self.frames_of(bytes) <= frames_max;
        let carrier = self.channels.get(to).map(|channel| &channel.carrier);
        fits && matches!(carrier, Some(Carrier::Wire { .. } | Carrier::Pending))
    }

    /// Sends a message of several frames, all of which are copied: the caller may reuse its memory on return.
    /// [`Event::Sent`] reports `context`.
    ///
    /// # Errors
    /// [`SendError`]; the message was not accepted. [`SendError::Full`] also before the peer has accepted the channel.
    pub fn send_copied(&mut self, to: ChannelId, head: &[u8], body: &[u8], context: u64) -> Result<(), SendError> {
        let frames = self.frames_of(head.len() + body.len());
        let priority = Priority::Normal { frames: frames as u32 };
        self.check_events()?;
        self.check_descriptors(priority)?;
        let channel = self.channels.get(to).filter(|channel| channel.accepts_messages()).ok_or(SendError::Ended)?;
        let Carrier::Wire { handle, is_open: true } = channel.carrier else { return Err(SendError::Full) };
        let Some(connection) = self.port.station.connection(handle) else { return Err(SendError::Ended) };
        // A connection gets no more slots than remain free, so that stalled peers leave some to the others.
        let (own, free) = (connection.unacknowledged(), self.port.slots.free_slots());
        let has_slots = frames <= free && (own == 0 || own + frames <= free);
        if !channel.queue.would_be_next(priority) || connection.room() < frames || !has_slots {
            return Err(SendError::Full);
        }
        channel.queue.count_overtaking(priority);
        let message =
            self.descriptors.add(context, Some(to.index), Content::Submitted, false).expect("a descriptor is free");
        // The next call of `progress` reports errors of the link.
        let _ = self.copy_to_engine(message, handle, head, body);
        Ok(())
    }

    /// Number of frames of a message of this size.
    fn frames_of(&self, bytes: usize) -> usize {
        let behind_first = bytes.saturating_sub(self.information_max - FIRST_HEADER);
        1 + behind_first.div_ceil(self.information_max - OTHER_HEADER)
    }

    /// Fragments a message into slots, of which there are enough, and sends them.
    fn copy_to_engine(
        &mut self,
        message: DescriptorId,
        handle: ConnectionHandle,
        head: &[u8],
        body: &[u8],
    ) -> Result<(), EndpointError> {
        let Self { port, descriptors, owners, information_max, last_sent_to, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Ok(()) };
        descriptor.is_submitted = true;
        *last_sent_to = Some(handle);
        let now = port.now();
        let mut sent = Ok(());
        let (mut fragmenter, mut next) = start_fragments(head.len() + body.len(), *information_max);
        while let Some(fragment) = next {
            let (start, end) = (fragment.start as usize, fragment.end as usize);
            let part = &body[start.saturating_sub(head.len())..end - head.len()];
            let prefix;
            let first = if start == 0 {
                prefix = Prefix::new(fragment.header(), head);
                prefix.bytes()
            } else {
                fragment.header()
            };
            let slot = port.slots.fill(first, part).expect("enough slots are free");
            owners[usize::from(slot)] = message;
            if port.station.send(handle, slot, now).is_err() {
                debug_assert!(false, "there is room in the connection's queue");
                port.slots.free(slot);
                break;
            }
            descriptor.outstanding += 1;
            next = fragmenter.next();
            if descriptor.outstanding % FRAMES_PER_TRANSMIT == 0 && next.is_some() {
                // Hands the rest to the engine even if the link fails.
                sent = sent.and(port.transmit());
            }
        }
        Ok(sent.and(port.transmit())?)
    }

    /// Sends a message that fits one frame to a local peer if its pipe has room; copies head and body. No event
    /// follows. Returns false if it was not sent; use [`send`](Self::send) then.
    #[inline(always)]
    pub fn send_at_once(&mut self, to: ChannelId, head: &[u8], body: &[u8]) -> bool {
        let bytes = head.len() + body.len();
        let Some(channel) = self.channels.get(to).filter(|channel| channel.accepts_messages()) else { return false };
        bytes <= self.information_max - FIRST_HEADER
            && send_to_pipe(channel, Priority::Normal { frames: 1 }, head, body)
    }

    /// As [`send`](Self::send), but with background priority: queued messages of normal priority overtake it.
    ///
    /// # Errors
    /// As for `send`.
    pub fn send_in_background(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        context: u64,
        acknowledge: Acknowledge,
    ) -> Result<(), SendError> {
        self.copy(SendRequest { to, context, priority: Priority::Background, acknowledge }, head, body)
    }

    #[inline]
    fn copy(&mut self, request: SendRequest, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let SendRequest { to, context, priority, .. } = request;
        let bytes = head.len() + body.len();
        if head.len() > HEAD_MAX || bytes > self.copied_max() {
            return Err(SendError::TooLong { bytes, most: self.copied_max() });
        }
        self.check_events()?;
        let channel = self.channels.get(to).filter(|channel| channel.accepts_messages()).ok_or(SendError::Ended)?;
        if send_to_pipe(channel, priority, head, body) {
            self.events.push_back(Event::Sent { context });
            return Ok(());
        }
        self.check_descriptors(priority)?;
        let prefix = Prefix::new(&whole(bytes as u32), head);
        let slot = self.port.slots.fill(prefix.bytes(), body).ok_or(SendError::Full)?;
        let message = self.add(request, Content::Slot(slot));
        self.enqueue(to.index, message, priority);
        Ok(())
    }

    /// Adds a descriptor. The caller has checked that one is free.
    #[inline]
    fn add(&mut self, request: SendRequest, content: Content) -> DescriptorId {
        let wants_acknowledgement = request.acknowledge == Acknowledge::AtOnce;
        let added = self.descriptors.add(request.context, Some(request.to.index), content, wants_acknowledgement);
        added.expect("a descriptor is free")
    }

    /// Sends a message of up to 4 GiB from the caller's memory; only the head is copied.
    ///
    /// # Errors
    /// [`SendError`]; the message was not accepted.
    ///
    /// # Safety
    /// `body` must stay valid and unchanged until [`Event::Sent`] or [`Event::Failed`] reports `context`, or the
    /// endpoint is dropped.
    pub unsafe fn send_lent(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        context: u64,
        acknowledge: Acknowledge,
    ) -> Result<(), SendError> {
        let priority = Priority::Normal { frames: self.frames_of(head.len() + body.len()) as u32 };
        // SAFETY: as promised by the caller.
        unsafe { self.lend(SendRequest { to, context, priority, acknowledge }, head, body) }
    }

    /// As [`send_lent`](Self::send_lent), but with background priority: while it is queued, later messages of normal
    /// priority overtake it. They do not interrupt it, so send a long message in parts of
    /// [`body_of_frames`](Self::body_of_frames).
    ///
    /// # Errors
    /// As for `send_lent`.
    ///
    /// # Safety
    /// As for `send_lent`.
    pub unsafe fn send_lent_in_background(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        context: u64,
        acknowledge: Acknowledge,
    ) -> Result<(), SendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.lend(SendRequest { to, context, priority: Priority::Background, acknowledge }, head, body) }
    }

    /// Size in bytes of the body that fills `frames` frames behind a head.
    #[must_use]
    pub fn body_of_frames(&self, frames: usize, head_bytes: usize) -> usize {
        frames * (self.information_max - OTHER_HEADER) - (FIRST_HEADER - OTHER_HEADER) - head_bytes
    }

    /// # Safety
    /// As for `send_lent`.
    unsafe fn lend(&mut self, request: SendRequest, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let SendRequest { to, priority, .. } = request;
        let bytes = head.len() + body.len();
        if head.len() > HEAD_MAX || u32::try_from(bytes).is_err() {
            return Err(SendError::TooLong { bytes, most: u32::MAX as usize });
        }
        self.check_events()?;
        self.channels.get(to).filter(|channel| channel.accepts_messages()).ok_or(SendError::Ended)?;
        self.check_descriptors(priority)?;
        let mut copy = [0; HEAD_MAX];
        copy[..head.len()].copy_from_slice(head);
        // SAFETY: as promised by the caller.
        let body = unsafe { Lent::new(body) };
        let content = Content::Lent { head: copy, head_bytes: head.len() as u8, body, fragments: None };
        let message = self.add(request, content);
        self.enqueue(to.index, message, priority);
        Ok(())
    }

    /// Sends a datagram: a message that fits one frame. It needs no channel, except to a local peer, to which one is
    /// opened. For an acknowledged datagram, [`Event::Sent`] or [`Event::Failed`] reports `context`; a peer can have
    /// only one outstanding.
    ///
    /// # Errors
    /// Inner [`SendError`]: the datagram was not accepted. Outer: an error of the link.
    pub fn send_datagram(
        &mut self,
        to: Address,
        class: Class,
        body: &[u8],
        context: u64,
    ) -> Result<Result<(), SendError>, EndpointError> {
        if body.len() > self.datagram_max() {
            return Ok(Err(SendError::TooLong { bytes: body.len(), most: self.datagram_max() }));
        }
        if let Err(full) = self.check_events() {
            return Ok(Err(full));
        }
        if self.is_local(to) {
            return Ok(self.send_local_datagram(to, class, body, context));
        }
        match class {
            Class::Unreliable => self.send_unreliable(to, body),
            Class::Acknowledged => Ok(self.send_acknowledged(to, body, context)),
        }
    }

    /// Cancels a message of which nothing has been submitted to its carrier: it is not sent, and no event reports
    /// `context`. Returns false if there is no such message.
    pub fn cancel(&mut self, context: u64) -> bool {
        for id in self.descriptors.with_context(context) {
            let Some(message) = self.descriptors.at(id) else { continue };
            let Some(channel) = message.channel.filter(|_| message.content.is_unsent()) else { continue };
            if let Content::Slot(slot) = message.content {
                self.port.slots.free(slot);
            }
            if let Some(channel) = self.channels.at(channel) {
                channel.queue.remove(id);
            }
            self.descriptors.remove(id);
            return true;
        }
        false
    }

    /// Returns the memory of all lent messages with `context` to the caller; what is still needed is copied. Events
    /// report them as before.
    pub fn copy_lent(&mut self, context: u64) {
        for id in self.descriptors.with_context(context) {
            let Some(message) = self.descriptors.at(id) else { continue };
            let Some(lent) = message.lent else { continue };
            let copy = lent.bytes().to_vec().into_boxed_slice();
            // SAFETY: the descriptor owns the copy and stays until no frame of the message is outstanding.
            let own = unsafe { Lent::new(&copy) };
            if let Content::Lent { body, .. } = &mut message.content {
                *body = own;
            }
            (message.lent, message.copy) = (Some(own), Some(copy));
            for (slot, owner) in (0..).zip(&self.owners) {
                if *owner == id {
                    self.port.slots.move_lent(slot, lent, own);
                }
            }
        }
    }

    /// Bounds the event queue by the number of descriptors.
    #[inline]
    fn check_events(&self) -> Result<(), SendError> {
        if self.events.len() < usize::from(self.config.send_descriptors) { Ok(()) } else { Err(SendError::Full) }
    }

    /// Background messages leave a quarter of the descriptors to normal ones.
    #[inline]
    pub(super) fn check_descriptors(&self, priority: Priority) -> Result<(), SendError> {
        let is_full = match priority {
            Priority::Normal { .. } => self.descriptors.is_full(),
            Priority::Background => self.descriptors.are_scarce(),
        };
        if is_full { Err(SendError::Full) } else { Ok(()) }
    }

    /// Submits queued messages of all channels, as far as their carriers take them now.
    pub(super) fn pump(&mut self) -> Result<(), EndpointError> {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            if let Some(channel) = self.channels.at(index) {
                channel.is_queued = false;
            }
            self.pump_channel(index)?;
        }
        Ok(())
    }

    /// Submits a message if it is the next of its channel; queues it otherwise.
    #[inline]
    fn enqueue(&mut self, index: u16, message: DescriptorId, priority: Priority) {
        let is_next = self.channels.at(index).is_some_and(|channel| channel.queue.would_be_next(priority));
        // The next call of `progress` reports errors of the link.
        let is_done = is_next && self.submit(message).is_ok_and(|submitted| submitted == Submitted::All);
        let is_started = !is_done && self.is_started(message);
        if let Some(channel) = self.channels.at(index) {
            if is_done {
                return channel.queue.count_overtaking(priority);
            }
            channel.queue.push(message, priority, is_started);
        }
        self.mark_ready(index);
    }

    fn pump_channel(&mut self, index: u16) -> Result<(), EndpointError> {
        while let Some(message) = self.channels.at(index).and_then(|channel| channel.queue.next()) {
            if self.submit(message)? != Submitted::All {
                if self.is_started(message)
                    && let Some(channel) = self.channels.at(index)
                {
                    channel.queue.start_next();
                }
                self.mark_ready(index);
                return Ok(());
            }
            if let Some(channel) = self.channels.at(index) {
                channel.queue.pop();
            }
        }
        self.close_if_requested(index);
        Ok(())
    }

    fn is_started(&mut self, message: DescriptorId) -> bool {
        self.descriptors.at(message).is_some_and(|message| !message.content.is_unsent())
    }

    /// Submits as much of a message as its carrier takes now.
    #[inline]
    fn submit(&mut self, message: DescriptorId) -> Result<Submitted, EndpointError> {
        let Some(index) = self.descriptors.at(message).and_then(|descriptor| descriptor.channel) else {
            return Ok(Submitted::All);
        };
        match self.channels.at(index).map(|channel| &channel.carrier) {
            Some(Carrier::Wire { handle, is_open: true }) => {
                let handle = *handle;
                self.submit_to_engine(message, handle)
            }
            Some(Carrier::Local { .. }) => Ok(self.submit_to_pipe(message, index)),
            _ => Ok(Submitted::Blocked),
        }
    }

    #[inline]
    fn submit_to_engine(
        &mut self,
        message: DescriptorId,
        handle: ConnectionHandle,
    ) -> Result<Submitted, EndpointError> {
        let Self { port, descriptors, owners, information_max, last_sent_to, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Ok(Submitted::All) };
        *last_sent_to = Some(handle);
        let now = port.now();
        let (head, body, fragments) = match &mut descriptor.content {
            Content::Slot(slot) => {
                let slot = *slot;
                owners[usize::from(slot)] = message;
                if port.station.send(handle, slot, now).is_err() {
                    return Ok(Submitted::Blocked);
                }
                (descriptor.content, descriptor.outstanding, descriptor.is_submitted) = (Content::Submitted, 1, true);
                if descriptor.wants_acknowledgement {
                    port.station.request_ack(handle, now);
                }
                port.transmit_one()?;
                return Ok(Submitted::All);
            }
            Content::Lent { head, head_bytes, body, fragments } => {
                (&head[..usize::from(*head_bytes)], *body, fragments)
            }
            Content::Submitted => return Ok(Submitted::All),
        };
        let (fragmenter, next) =
            fragments.get_or_insert_with(|| start_fragments(head.len() + body.len(), *information_max));
        let mut submitted = 0;
        // Long messages leave a quarter of the slots to short ones.
        let heads_max = owners.len() as u16 - owners.len() as u16 / 4;
        while let Some(fragment) = next
            && submitted < FRAMES_PER_TURN
            && port.slots.heads() < heads_max
        {
            let part = body_part(fragment, head, &body);
            // Only the first fragment has more than its header; for the others, a prefix would only add a copy.
            let prefix: Prefix;
            let first = if fragment.start == 0 {
                prefix = Prefix::new(fragment.header(), head);
                prefix.bytes()
            } else {
                fragment.header()
            };
            // SAFETY: the body is unchanged until its owner gets an event, which follows the release of all its slots.
            let Some(slot) = (unsafe { port.slots.lend(first, part) }) else { break };
            owners[usize::from(slot)] = message;
            if port.station.send(handle, slot, now).is_err() {
                port.slots.free(slot);
                break;
            }
            descriptor.outstanding += 1;
            *next = fragmenter.next();
            submitted += 1;
            if submitted % FRAMES_PER_TRANSMIT == 0 {
                port.transmit()?;
            }
        }
        let is_done = next.is_none();
        let is_unsent = next.is_some_and(|fragment| fragment.start == 0);
        if is_done {
            (descriptor.content, descriptor.is_submitted) = (Content::Submitted, true);
            if descriptor.wants_acknowledgement {
                port.station.request_ack(handle, now);
            }
        } else if is_unsent {
            *fragments = None;
        }
        port.transmit()?;
        Ok(match submitted {
            _ if is_done => Submitted::All,
            FRAMES_PER_TURN => Submitted::Yielded,
            _ => Submitted::Blocked,
        })
    }

    fn submit_to_pipe(&mut self, message: DescriptorId, index: u16) -> Submitted {
        let Self { port, descriptors, channels, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Submitted::All };
        let Some(Carrier::Local { pipe, .. }) = channels.at(index).map(|channel| &mut channel.carrier) else {
            return Submitted::Blocked;
        };
        match &mut descriptor.content {
            Content::Slot(slot) => {
                let slot = *slot;
                if !pipe.send([&[Kind::Fragment as u8], port.slots.information(slot)]) {
                    return Submitted::Blocked;
                }
                port.slots.free(slot);
            }
            Content::Lent { head, head_bytes, body, fragments } => {
                let head = &head[..usize::from(*head_bytes)];
                let (fragmenter, next) =
                    fragments.get_or_insert_with(|| start_fragments(head.len() + body.len(), pipe_piece_max(pipe)));
                let mut submitted = 0;
                while let Some(fragment) = next {
                    if submitted == FRAMES_PER_TURN {
                        return Submitted::Yielded;
                    }
                    let part = body_part(fragment, head, body);
                    let first = if fragment.start == 0 { head } else { &[] };
                    if !pipe.send([&[Kind::Fragment as u8], fragment.header(), first, part]) {
                        if fragment.start == 0 {
                            *fragments = None;
                        }
                        return Submitted::Blocked;
                    }
                    *next = fragmenter.next();
                    submitted += 1;
                }
            }
            Content::Submitted => {}
        }
        let context = descriptor.context;
        self.descriptors.remove(message);
        self.events.push_back(Event::Sent { context });
        Submitted::All
    }

    fn send_unreliable(&mut self, to: Address, body: &[u8]) -> Result<Result<(), SendError>, EndpointError> {
        let destination = Destination::Individual(to.sap);
        let key = self.config.key_to(to);
        let addressed = self.port.station.datagram(self.address.sap, destination, key);
        let (header, extra) = addressed.expect("the endpoint's SAP is active");
        let is_sent = self.port.send_datagram(to.mac, &header, &extra, body)?;
        Ok(if is_sent { Ok(()) } else { Err(SendError::Full) })
    }

    fn send_acknowledged(&mut self, to: Address, body: &[u8], context: u64) -> Result<(), SendError> {
        if self.descriptors.is_full() {
            return Err(SendError::Full);
        }
        let slot = self.port.slots.fill(body, &[]).ok_or(SendError::Full)?;
        let peer = Peer { local: self.address.sap, mac: to.mac, remote: to.sap };
        let (key, now) = (self.config.key_to(to), self.port.now());
        if self.port.station.send_datagram(peer, key, slot, now).is_err() {
            self.port.slots.free(slot);
            return Err(SendError::Full);
        }
        let added = self.descriptors.add(context, None, Content::Submitted, true);
        self.owners[usize::from(slot)] = added.expect("a descriptor is free");
        Ok(())
    }
}

/// Sends a message that fits one frame into the pipe of a local peer, unless others are queued before it.
#[inline(always)]
fn send_to_pipe(channel: &mut Channel, priority: Priority, head: &[u8], body: &[u8]) -> bool {
    let Carrier::Local { pipe, .. } = &mut channel.carrier else { return false };
    let header = whole((head.len() + body.len()) as u32);
    let is_sent = channel.queue.would_be_next(priority) && pipe.send([&[Kind::Fragment as u8], &header, head, body]);
    if is_sent {
        channel.queue.count_overtaking(priority);
    }
    is_sent
}

/// Size of a fragment in a pipe: the L1 cache holds about two of them.
fn pipe_piece_max(pipe: &barewire_shm::Pipe) -> usize {
    (pipe.message_max() - 1).min(16 << 10)
}

fn start_fragments(bytes: usize, room: usize) -> (Fragmenter, Option<Fragment>) {
    let mut fragmenter = Fragmenter::new(bytes as u32, room as u32).expect("there is room for a fragment");
    let first = fragmenter.next();
    (fragmenter, first)
}

/// The part of a message's body that belongs to a fragment. The first fragment has room for the whole head.
#[inline]
fn body_part<'a>(fragment: &Fragment, head: &[u8], body: &'a Lent) -> &'a [u8] {
    let (start, end) = (fragment.start as usize, fragment.end as usize);
    &body.bytes()[start.saturating_sub(head.len())..end - head.len()]
}

/// A fragment's header and, in the first fragment, the message's head.
struct Prefix {
    bytes: [u8; FIRST_HEADER + HEAD_MAX],
    length: usize,
}

impl Prefix {
    #[inline]
    fn new(header: &[u8], head: &[u8]) -> Self {
        let mut bytes = [0; FIRST_HEADER + HEAD_MAX];
        bytes[..header.len()].copy_from_slice(header);
        let length = header.len() + head.len();
        bytes[header.len()..length].copy_from_slice(head);
        Self { bytes, length }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
