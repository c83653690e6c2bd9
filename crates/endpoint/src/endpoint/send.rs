// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending: a message goes into frames or a pipe at once, or is queued with a descriptor until there is room.

use barewire_link::Link;
use barewire_llc::message::{FIRST_HEADER, Fragment, Fragmenter, OTHER_HEADER, whole};
use barewire_llc::{ConnectionHandle, Destination, Peer};

use super::local::Kind;
use super::{Endpoint, Event};
use crate::address::Address;
use crate::channel::{Carrier, Channel, ChannelId};
use crate::descriptors::{Content, DescriptorId, HEAD_MAX, LOCAL_PIECE_MAX, Report};
use crate::error::{EndpointError, SendError};
use crate::message_queue::Priority;
use crate::port::BATCH_FRAMES;
use crate::sink::Class;
use crate::slots::{Lent, Slot, Slots};

/// Frames submitted before they are transmitted.
const FRAMES_PER_TRANSMIT: u32 = BATCH_FRAMES as u32;
/// Frames that a channel may send before the next channel is served.
const FRAMES_PER_TURN: u32 = 64;

/// What a slot's frame belongs to: a message with a descriptor, or one without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Message(DescriptorId),
    /// A message whose loss counts.
    Counted,
    Nobody,
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

    /// Size in bytes of the body that fills `frames` frames behind a head, to a channel's peer or else to any.
    #[must_use]
    pub fn body_of_frames(&mut self, channel: Option<ChannelId>, frames: usize, head_bytes: usize) -> usize {
        let connection = match channel.and_then(|id| self.channels.get(id)).map(|channel| &channel.carrier) {
            Some(Carrier::Wire { handle, .. }) => Some(*handle),
            _ => None,
        };
        let information = connection.and_then(|connection| self.port.information_to(connection, self.mtu_max));
        let information = information.unwrap_or(self.information_max);
        frames * (information - OTHER_HEADER) - (FIRST_HEADER - OTHER_HEADER) - head_bytes
    }

    /// Bytes of user data in each frame of a message of this size to a peer at present, and the number of its frames.
    #[inline]
    fn frames_to(&mut self, handle: ConnectionHandle, bytes: usize) -> (usize, usize) {
        // One frame may always be as long as to any peer.
        let information = if bytes > self.copied_max() { self.port.information_to(handle, self.mtu_max) } else { None };
        let information = information.unwrap_or(self.information_max);
        (information, frames_of(bytes, information))
    }

    /// Sets the maximum number of outstanding messages, for a caller that bounds them itself.
    pub fn set_send_descriptors(&mut self, limit: usize) {
        self.config.send_descriptors = limit;
    }

    /// Sends a message that fits one frame: U-Net's send queue. It is copied. [`Event::Sent`] reports `context` when
    /// the peer's endpoint, or the pipe to a local peer, has it.
    ///
    /// # Errors
    /// [`SendError`]; the message was not accepted.
    pub fn send(&mut self, to: ChannelId, head: &[u8], body: &[u8], context: u64) -> Result<(), SendError> {
        let bytes = head.len() + body.len();
        if bytes > self.copied_max() {
            return Err(SendError::TooLong { bytes, most: self.copied_max() });
        }
        self.post(to, head, body, Priority::Normal, Report::Acknowledged(context)).map(|_| ())
    }

    /// Sends all of a message now, copied, or nothing of it: false if others are queued before it, or there is no room.
    /// Only a loss is reported.
    #[inline(always)]
    pub fn send_now(&mut self, to: ChannelId, head: &[u8], body: &[u8]) -> bool {
        let Some(channel) = self.channels.get(to).filter(|channel| channel.accepts_messages()) else { return false };
        match &channel.carrier {
            Carrier::Local { .. } => send_to_pipe(channel, Priority::Normal, head, body),
            Carrier::Wire { .. } => self.copy_to_engine(to.index, head, body, Priority::Normal, Report::Loss),
            _ => false,
        }
    }

    /// Whether a message of this size can start to leave now: as much of it as an eighth of the slots holds, or one
    /// piece of a pipe; on an idle connection, one frame. If not, [`Event::Room`] tells when to ask again, unless the
    /// channel ends.
    pub fn has_room(&mut self, to: ChannelId, bytes: usize) -> bool {
        let is_valid = self.channels.get(to).is_some_and(|channel| channel.accepts_messages());
        let has_room = is_valid && self.room_for(to.index, bytes);
        if is_valid && !has_room {
            self.await_room(to.index, bytes);
        }
        has_room
    }

    fn await_room(&mut self, index: u16, bytes: usize) {
        if let Some(channel) = self.channels.at(index) {
            channel.awaits_room = Some(bytes);
            self.mark_ready(index);
        }
    }

    fn room_for(&mut self, index: u16, bytes: usize) -> bool {
        let frames_max = usize::from(self.config.slots.min(self.config.connection.queue)) / 8;
        let Some(channel) = self.channels.at(index) else { return false };
        channel.queue.would_be_next(Priority::Normal)
            && match &mut channel.carrier {
                Carrier::Local { pipe, .. } => {
                    let piece = pipe_piece_max(pipe);
                    pipe.has_room(1 + piece.min(FIRST_HEADER + bytes))
                }
                Carrier::Wire { handle, is_open: true } => {
                    let handle = *handle;
                    // Where stalled peers left only a few slots, an idle connection starts with those.
                    let is_idle = self.port.station.connection(handle).is_some_and(|own| own.unacknowledged() == 0);
                    let frames = if is_idle { 1 } else { self.frames_to(handle, bytes).1.min(frames_max.max(1)) };
                    self.has_frames(handle, frames)
                }
                _ => false,
            }
    }

    /// Whether a connection takes this many frames now. It gets no more slots than remain free, so that stalled peers
    /// leave some to the others.
    #[inline]
    fn has_frames(&self, handle: ConnectionHandle, frames: usize) -> bool {
        let Some(connection) = self.port.station.connection(handle) else { return false };
        let (own, free) = (connection.unacknowledged(), self.port.slots.free_slots());
        connection.room() >= frames && frames <= free && (own == 0 || own + frames <= free)
    }

    /// Tells a caller that awaits room of a channel that there is some.
    fn offer_room(&mut self, index: u16) {
        let Some(channel) = self.channels.at(index) else { return };
        let Some(bytes) = channel.awaits_room.take().filter(|_| channel.accepts_messages()) else { return };
        if self.room_for(index, bytes) {
            self.events.push_back(Event::Room { channel: self.channels.id(index) });
        } else {
            self.await_room(index, bytes);
        }
    }

    /// Sends a message, which is copied: at once if there is room and nothing is queued before it, which is the result;
    /// else it is queued. An urgent one leaves with the next [`flush`](Self::flush). `report` says which event follows;
    /// none for [`Report::Copied`] of a message sent at once.
    ///
    /// # Errors
    /// [`SendError`]; the message was not accepted. Urgent and background messages are not bounded by
    /// [`Config::send_descriptors`](crate::Config::send_descriptors).
    #[inline]
    pub fn post(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        priority: Priority,
        report: Report,
    ) -> Result<bool, SendError> {
        self.check_message(to, head, body, priority)?;
        if self.copy_now(to.index, head, body, priority, report) {
            return Ok(true);
        }
        let copy = Box::from(body);
        // SAFETY: the descriptor owns the copy, whose address does not change.
        let body = unsafe { Lent::new(&copy) };
        self.enqueue(to.index, Content::new(head, body), Some(copy), priority, report);
        Ok(false)
    }

    /// As [`post`](Self::post), for a body of up to 4 GiB that is queued without a copy. If the report waits for the
    /// acknowledgement, a message beyond [`copied_best`](Self::copied_best) is sent without one, too.
    ///
    /// # Errors
    /// As for `post`.
    ///
    /// # Safety
    /// `body` must stay valid and unchanged until the context of `report` was reported, or the endpoint is dropped.
    pub unsafe fn post_lent(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        priority: Priority,
        report: Report,
    ) -> Result<bool, SendError> {
        self.check_message(to, head, body, priority)?;
        let is_copied = !report.is_acknowledgement() || head.len() + body.len() <= self.copied_best();
        if is_copied && self.copy_now(to.index, head, body, priority, report) {
            return Ok(true);
        }
        // SAFETY: as promised by the caller.
        let body = unsafe { Lent::new(body) };
        self.enqueue(to.index, Content::new(head, body), None, priority, report);
        Ok(false)
    }

    /// Checks that a message can be accepted.
    #[inline]
    fn check_message(&mut self, to: ChannelId, head: &[u8], body: &[u8], priority: Priority) -> Result<(), SendError> {
        let bytes = head.len() + body.len();
        if head.len() > HEAD_MAX || u32::try_from(bytes).is_err() {
            return Err(SendError::TooLong { bytes, most: u32::MAX as usize });
        }
        self.channels.get(to).filter(|channel| channel.accepts_messages()).ok_or(SendError::Ended)?;
        // Bounds the events as well.
        let limit = self.config.send_descriptors;
        let is_full = self.descriptors.len() >= limit || self.events.len() >= limit;
        if priority == Priority::Normal && is_full { Err(SendError::Full) } else { Ok(()) }
    }

    /// Sends all of a message, copied, if it is next in its channel's queue and there is room for all of it.
    fn copy_now(&mut self, index: u16, head: &[u8], body: &[u8], priority: Priority, report: Report) -> bool {
        let Some(channel) = self.channels.at(index) else { return false };
        match &channel.carrier {
            Carrier::Local { .. } => {
                let is_sent = send_to_pipe(channel, priority, head, body);
                if let (true, Report::Acknowledged(context) | Report::AcknowledgedAtOnce(context)) = (is_sent, report) {
                    self.events.push_back(Event::Sent { context });
                }
                is_sent
            }
            Carrier::Wire { .. } => self.copy_to_engine(index, head, body, priority, report),
            _ => false,
        }
    }

    /// The same over the link.
    fn copy_to_engine(&mut self, index: u16, head: &[u8], body: &[u8], priority: Priority, report: Report) -> bool {
        let Some(channel) = self.channels.at(index).filter(|channel| channel.queue.would_be_next(priority)) else {
            return false;
        };
        let Carrier::Wire { handle, is_open: true } = channel.carrier else { return false };
        let bytes = head.len() + body.len();
        let (information, frames) = self.frames_to(handle, bytes);
        if !self.has_frames(handle, frames) {
            return false;
        }
        let Self { port, channels, descriptors, owners, last_sent_to, .. } = self;
        let owner = owner(report, || descriptors.add(Some(index), report, Content::Submitted, None));
        *last_sent_to = Some(handle);
        let now = port.now();
        let (mut fragmenter, mut next) = start_fragments(bytes, information);
        let mut submitted = 0_u32;
        while let Some(fragment) = next {
            let part = body_part(&fragment, head, body);
            let slot = fill(&mut port.slots, &fragment, head, part).expect("enough slots are free");
            owners[usize::from(slot)] = owner;
            // Refused if the connection is ending, of which no event has told yet.
            if port.station.send(handle, slot, now).is_err() {
                debug_assert_eq!(submitted, 0, "there is room in the connection's queue");
                port.slots.free(slot);
                if let Owner::Message(id) = owner {
                    descriptors.remove(id);
                }
                return false;
            }
            submitted += 1;
            next = fragmenter.next();
            // The next call of `progress` reports errors of the link.
            if submitted.is_multiple_of(FRAMES_PER_TRANSMIT) && next.is_some() {
                let _ = port.transmit();
            }
        }
        if let Owner::Message(id) = owner
            && let Some(descriptor) = descriptors.at(id)
        {
            descriptor.outstanding = submitted;
        }
        if let Report::AcknowledgedAtOnce(_) = report {
            port.station.request_ack(handle, now);
        }
        // Urgent messages leave together.
        if priority != Priority::Urgent {
            let _ = if submitted == 1 { port.transmit_one() } else { port.transmit() };
        }
        if let Some(channel) = channels.at(index) {
            channel.queue.count_overtaking(priority, submitted);
        }
        true
    }

    /// Queues a message, and submits as much of it as there is room for if it is next.
    fn enqueue(&mut self, index: u16, content: Content, copy: Option<Box<[u8]>>, priority: Priority, report: Report) {
        let Content::Queued { head_bytes, ref body, .. } = content else { return };
        let frames = frames_of(usize::from(head_bytes) + body.len(), self.information_max) as u32;
        let message = self.descriptors.add(Some(index), report, content, copy);
        let is_next = self.channels.at(index).is_some_and(|channel| channel.queue.would_be_next(priority));
        let is_done = is_next && self.submit(message) == Submitted::All;
        let is_started = !is_done && self.is_started(message);
        if let Some(channel) = self.channels.at(index) {
            if is_done {
                return channel.queue.count_overtaking(priority, frames);
            }
            channel.queue.push(message, priority, frames);
            if is_started {
                channel.queue.start_next();
            }
        }
        self.mark_ready(index);
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
        if self.events.len() >= self.config.send_descriptors {
            return Ok(Err(SendError::Full));
        }
        if self.is_local(to) {
            return Ok(self.send_local_datagram(to, class, body, context));
        }
        match class {
            Class::Unreliable => self.send_unreliable(to, body),
            Class::Acknowledged => Ok(self.send_acknowledged(to, body, context)),
        }
    }

    /// Transmits the urgent messages that were posted. [`progress`](Self::progress) does so, too, and reports errors.
    pub fn flush(&mut self) {
        let _ = self.port.transmit();
    }

    /// Cancels a message of which nothing has been submitted to its carrier: it is not sent, and no event reports
    /// `context`. Returns false if there is no such message.
    pub fn cancel(&mut self, context: u64) -> bool {
        for id in self.descriptors.with_context(context) {
            let Some(message) = self.descriptors.at(id) else { continue };
            let Some(index) = message.channel.filter(|_| message.content.is_unsent()) else { continue };
            if let Some(channel) = self.channels.at(index) {
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
            let Some((lent, own)) = self.descriptors.copy_lent(id) else { continue };
            for (slot, owner) in (0..).zip(&self.owners) {
                if *owner == Owner::Message(id) {
                    self.port.slots.move_lent(slot, lent, own);
                }
            }
        }
    }

    /// Submits queued messages of all channels, as far as their carriers take them now.
    pub(super) fn pump(&mut self) -> Result<(), EndpointError> {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            if let Some(channel) = self.channels.at(index) {
                channel.is_queued = false;
            }
            self.pump_channel(index);
        }
        self.link_error.take().map_or(Ok(()), |error| Err(error.into()))
    }

    fn pump_channel(&mut self, index: u16) {
        while let Some(channel) = self.channels.at(index)
            && let Some(message) = channel.queue.next()
        {
            // What waits for room passes background messages, too.
            if channel.awaits_room.is_some() && channel.queue.would_be_next(Priority::Normal) {
                self.offer_room(index);
                return self.mark_ready(index);
            }
            if self.submit(message) != Submitted::All {
                if self.is_started(message)
                    && let Some(channel) = self.channels.at(index)
                {
                    channel.queue.start_next();
                }
                return self.mark_ready(index);
            }
            if let Some(channel) = self.channels.at(index) {
                channel.queue.pop();
            }
        }
        self.offer_room(index);
        self.close_if_requested(index);
    }

    fn is_started(&mut self, message: DescriptorId) -> bool {
        self.descriptors.at(message).is_some_and(|message| !message.content.is_unsent())
    }

    /// Submits as much of a message as its carrier takes now. [`pump`](Self::pump) reports errors of the link.
    #[inline]
    fn submit(&mut self, message: DescriptorId) -> Submitted {
        let Some(index) = self.descriptors.at(message).and_then(|descriptor| descriptor.channel) else {
            return Submitted::All;
        };
        match self.channels.at(index).map(|channel| &channel.carrier) {
            Some(Carrier::Wire { handle, is_open: true }) => {
                let handle = *handle;
                self.submit_to_engine(message, handle)
            }
            Some(Carrier::Local { .. }) => self.submit_to_pipe(message, index),
            _ => Submitted::Blocked,
        }
    }

    #[inline]
    fn submit_to_engine(&mut self, message: DescriptorId, handle: ConnectionHandle) -> Submitted {
        let copied_best = self.copied_best();
        let Self { port, descriptors, owners, events, information_max, mtu_max, last_sent_to, link_error, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Submitted::All };
        let Content::Queued { head, head_bytes, body, fragments } = &mut descriptor.content else {
            return Submitted::All;
        };
        let (report, head, body) = (descriptor.report, &head[..usize::from(*head_bytes)], *body);
        // Until all of it is submitted, its end is reported by an event, and the loss of a part is not counted besides.
        let is_kept = report.is_acknowledgement() || report.counts_loss();
        let owner = if is_kept { Owner::Message(message) } else { Owner::Nobody };
        let lends = report.is_acknowledgement() && head.len() + body.len() > copied_best;
        *last_sent_to = Some(handle);
        // Stalled peers leave slots to the others, and long messages leave a quarter of them to short ones.
        let connection = port.station.connection(handle);
        let (own, room) = connection.map_or((0, 0), |connection| (connection.unacknowledged(), connection.room()));
        let free = port.slots.free_slots();
        let quota = (free.saturating_sub(own) / 2).max(usize::from(own == 0)).min(free).min(room);
        let limit = FRAMES_PER_TURN.min(quota as u32);
        let heads_max = owners.len() as u16 - owners.len() as u16 / 4;
        if limit == 0 || lends && port.slots.heads() >= heads_max {
            // Each poll asks this of all blocked channels, so it must not read the clock.
            return Submitted::Blocked;
        }
        let now = port.now();
        let (fragmenter, next) = fragments.get_or_insert_with(|| {
            let information = port.information_to(handle, *mtu_max).unwrap_or(*information_max);
            start_fragments(head.len() + body.len(), information)
        });
        let mut submitted = 0;
        while let Some(fragment) = next
            && submitted < limit
            && (!lends || port.slots.heads() < heads_max)
        {
            let part = body_part(fragment, head, body.bytes());
            let slot = if lends {
                // SAFETY: the body is unchanged until its owner gets an event, which follows the release of all its
                // slots.
                unsafe { lend(&mut port.slots, fragment, head, part) }
            } else {
                fill(&mut port.slots, fragment, head, part)
            };
            let Some(slot) = slot else { break };
            owners[usize::from(slot)] = owner;
            if port.station.send(handle, slot, now).is_err() {
                port.slots.free(slot);
                break;
            }
            descriptor.outstanding += u32::from(is_kept);
            *next = fragmenter.next();
            submitted += 1;
            if submitted.is_multiple_of(FRAMES_PER_TRANSMIT) && next.is_some() {
                *link_error = link_error.take().or(port.transmit().err());
            }
        }
        let is_done = next.is_none();
        if is_done {
            descriptor.content = Content::Submitted;
            if let Report::AcknowledgedAtOnce(_) = report {
                port.station.request_ack(handle, now);
            }
            if !report.is_acknowledgement() {
                events.extend(report.context().map(|context| Event::Sent { context }));
                descriptor.report = Report::Loss;
            }
            if !is_kept {
                descriptors.remove(message);
            }
        } else if next.is_some_and(|fragment| fragment.start == 0) {
            *fragments = None;
        }
        *link_error = link_error.take().or(port.transmit().err());
        match submitted {
            _ if is_done => Submitted::All,
            FRAMES_PER_TURN => Submitted::Yielded,
            _ => Submitted::Blocked,
        }
    }

    fn submit_to_pipe(&mut self, message: DescriptorId, index: u16) -> Submitted {
        let Self { descriptors, channels, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Submitted::All };
        let Some(Carrier::Local { pipe, .. }) = channels.at(index).map(|channel| &mut channel.carrier) else {
            return Submitted::Blocked;
        };
        if let Content::Queued { head, head_bytes, body, fragments } = &mut descriptor.content {
            let head = &head[..usize::from(*head_bytes)];
            let (fragmenter, next) =
                fragments.get_or_insert_with(|| start_fragments(head.len() + body.len(), pipe_piece_max(pipe)));
            let mut submitted = 0;
            while let Some(fragment) = next {
                if submitted == FRAMES_PER_TURN {
                    return Submitted::Yielded;
                }
                let part = body_part(fragment, head, body.bytes());
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
        let report = descriptor.report;
        self.descriptors.remove(message);
        self.events.extend(report.context().map(|context| Event::Sent { context }));
        Submitted::All
    }

    fn send_unreliable(&mut self, to: Address, body: &[u8]) -> Result<Result<(), SendError>, EndpointError> {
        let destination = Destination::Individual(to.sap);
        let key = self.config.key_to(to);
        let addressed = self.port.station.datagram(self.address.sap, destination, key);
        let (header, extra) = addressed.expect("the endpoint's SAP is active");
        self.port.add_peer(to, self.config.key_to(to));
        let is_sent = self.port.send_datagram(to.mac, &header, &extra, body)?;
        Ok(if is_sent { Ok(()) } else { Err(SendError::Full) })
    }

    fn send_acknowledged(&mut self, to: Address, body: &[u8], context: u64) -> Result<(), SendError> {
        if self.descriptors.len() >= self.config.send_descriptors {
            return Err(SendError::Full);
        }
        let slot = self.port.slots.fill(body, &[]).ok_or(SendError::Full)?;
        let peer = Peer { local: self.address.sap, mac: to.mac, remote: to.sap };
        let (key, now) = (self.config.key_to(to), self.port.now());
        if self.port.station.send_datagram(peer, key, slot, now).is_err() {
            self.port.slots.free(slot);
            return Err(SendError::Full);
        }
        self.port.add_peer(to, key);
        let report = Report::AcknowledgedAtOnce(context);
        self.owners[usize::from(slot)] = Owner::Message(self.descriptors.add(None, report, Content::Submitted, None));
        Ok(())
    }
}

/// Number of frames of a message of this size, of which each carries so much user data at most.
fn frames_of(bytes: usize, information: usize) -> usize {
    1 + bytes.saturating_sub(information - FIRST_HEADER).div_ceil(information - OTHER_HEADER)
}

/// The owner of a message's frames. A descriptor is needed only to count acknowledgements.
#[inline]
fn owner(report: Report, descriptor: impl FnOnce() -> DescriptorId) -> Owner {
    match report {
        Report::Acknowledged(_) | Report::AcknowledgedAtOnce(_) => Owner::Message(descriptor()),
        Report::Loss | Report::Copied { counts_loss: true, .. } => Owner::Counted,
        Report::Never | Report::Copied { .. } => Owner::Nobody,
    }
}

/// Copies a fragment into a free slot; `None` if there is none.
#[inline]
fn fill(slots: &mut Slots, fragment: &Fragment, head: &[u8], part: &[u8]) -> Option<Slot> {
    // Only the first fragment has more than its header; for the others, a prefix would only add a copy.
    if fragment.start == 0 {
        slots.fill(Prefix::new(fragment.header(), head).bytes(), part)
    } else {
        slots.fill(fragment.header(), part)
    }
}

/// The same, but the body's part stays where it is.
///
/// # Safety
/// As for [`Slots::lend`].
#[inline]
unsafe fn lend(slots: &mut Slots, fragment: &Fragment, head: &[u8], part: &[u8]) -> Option<Slot> {
    // SAFETY: as promised by the caller.
    unsafe {
        if fragment.start == 0 {
            slots.lend(Prefix::new(fragment.header(), head).bytes(), part)
        } else {
            slots.lend(fragment.header(), part)
        }
    }
}

/// Sends a message that is next in its channel's queue into the pipe of a local peer, if one piece holds it.
#[inline(always)]
fn send_to_pipe(channel: &mut Channel, priority: Priority, head: &[u8], body: &[u8]) -> bool {
    let Carrier::Local { pipe, .. } = &mut channel.carrier else { return false };
    let bytes = head.len() + body.len();
    let header = whole(bytes as u32);
    let is_sent = channel.queue.would_be_next(priority)
        && FIRST_HEADER + bytes <= pipe_piece_max(pipe)
        && pipe.send([&[Kind::Fragment as u8], &header, head, body]);
    if is_sent {
        channel.queue.count_overtaking(priority, 1);
    }
    is_sent
}

/// Size of a fragment in a pipe: the L1 cache holds about two of them. A message of 16 KiB is one.
#[inline]
fn pipe_piece_max(pipe: &barewire_shm::Pipe) -> usize {
    (pipe.message_max() - 1).min(FIRST_HEADER + LOCAL_PIECE_MAX)
}

fn start_fragments(bytes: usize, room: usize) -> (Fragmenter, Option<Fragment>) {
    let mut fragmenter = Fragmenter::new(bytes as u32, room as u32).expect("there is room for a fragment");
    let first = fragmenter.next();
    (fragmenter, first)
}

/// The part of a message's body that belongs to a fragment. The first fragment has room for the whole head.
#[inline]
fn body_part<'a>(fragment: &Fragment, head: &[u8], body: &'a [u8]) -> &'a [u8] {
    let (start, end) = (fragment.start as usize, fragment.end as usize);
    &body[start.saturating_sub(head.len())..end - head.len()]
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
