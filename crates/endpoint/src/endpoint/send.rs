// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages out: into descriptors, from there into frames or pipes.

use barewire_link::Link;
use barewire_llc::message::{FIRST_HEADER, Fragment, Fragmenter, OTHER_HEADER, whole};
use barewire_llc::{ConnectionHandle, Destination, Peer};

use super::local::Kind;
use super::{Endpoint, Event};
use crate::address::Address;
use crate::channel::{Carrier, Channel, ChannelId};
use crate::descriptors::{Content, DescriptorId, HEAD_MAX};
use crate::error::{EndpointError, SendError};
use crate::sink::Class;
use crate::slots::Lent;
use crate::waiting_messages::Order;

/// Frames handed to the engine before they are sent: so many are still in the nearest cache when the kernel copies
/// them.
const FRAMES_PER_TRANSMIT: u32 = 16;
/// Frames that a channel may send before it is another's turn.
const FRAMES_PER_TURN: u32 = 64;
/// When a message is to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// Nobody waits for it: with what the peer sends next, with others, or after a delay.
    Eventually,
    /// As soon as the peer has it, which is asked for it with the last frame.
    AtOnce,
}

/// What a message is sent with.
#[derive(Clone, Copy)]
struct Posting {
    to: ChannelId,
    context: u64,
    order: Order,
    acknowledge: Acknowledge,
}

/// How far a message could be handed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handed {
    All,
    /// Nothing more can be now.
    Stuck,
    /// More could, but it is another's turn.
    TurnOver,
}

impl<L: Link> Endpoint<L> {
    /// Bytes of head and body that [`send`](Self::send) takes: those of one frame.
    #[inline]
    #[must_use]
    pub fn copied_max(&self) -> usize {
        self.room - FIRST_HEADER
    }

    /// Bytes up to which a message is better copied than lent, on this machine.
    #[inline]
    #[must_use]
    pub fn copied_best(&self) -> usize {
        self.copied_max().min(self.config.tuning.copy_crossover_bytes)
    }

    /// Bytes of the longest datagram.
    #[must_use]
    pub fn datagram_max(&self) -> usize {
        self.room
    }

    /// Sends a message that fits one frame; both parts are copied. [`Event::Sent`] tells of `context`.
    ///
    /// # Errors
    /// [`SendError`]; nothing was taken then.
    pub fn send(&mut self, to: ChannelId, head: &[u8], body: &[u8], context: u64) -> Result<(), SendError> {
        let order = Order::Usual { frames: 1 };
        self.copy(Posting { to, context, order, acknowledge: Acknowledge::Eventually }, head, body)
    }

    /// As [`send`](Self::send), of a message for whose [`Event::Sent`] somebody waits.
    ///
    /// # Errors
    /// As of `send`.
    pub fn send_awaited(&mut self, to: ChannelId, head: &[u8], body: &[u8], context: u64) -> Result<(), SendError> {
        let order = Order::Usual { frames: 1 };
        self.copy(Posting { to, context, order, acknowledge: Acknowledge::AtOnce }, head, body)
    }

    /// Whether [`send_copied`](Self::send_copied) takes messages of so many bytes to this peer; not to a process of this
    /// host, and not what there never are enough slots for.
    #[must_use]
    pub fn takes_copies(&mut self, to: ChannelId, bytes: usize) -> bool {
        let most = usize::from(self.config.slots.min(self.config.connection.queue)) / 2;
        let fits = self.frames_of(bytes) <= most;
        let carrier = self.channels.get(to).map(|channel| &channel.carrier);
        fits && matches!(carrier, Some(Carrier::Wire { .. } | Carrier::Pending))
    }

    /// Sends a message of several frames, all of which are copied: its memory is the caller's again at once.
    /// [`Event::Sent`] tells of `context`.
    ///
    /// # Errors
    /// [`SendError`]; nothing was taken then. [`SendError::Full`] also while the peer has not answered yet.
    pub fn send_copied(&mut self, to: ChannelId, head: &[u8], body: &[u8], context: u64) -> Result<(), SendError> {
        let frames = self.frames_of(head.len() + body.len());
        let order = Order::Usual { frames: frames as u32 };
        self.check_events()?;
        self.check_descriptors(order)?;
        let channel = self.channels.get(to).filter(|channel| channel.takes_messages()).ok_or(SendError::Ended)?;
        let Carrier::Wire { handle, is_open: true } = channel.carrier else { return Err(SendError::Full) };
        let Some(connection) = self.port.station.connection(handle) else { return Err(SendError::Ended) };
        // Nobody has more slots than are free: so peers that take nothing leave some to the others.
        let (own, free) = (connection.unacknowledged(), self.port.slots.free_slots());
        let has_slots = frames <= free && (own == 0 || own + frames <= free);
        if !channel.queue.lets_pass(order) || connection.room() < frames || !has_slots {
            return Err(SendError::Full);
        }
        channel.queue.note_passing(order);
        let message =
            self.descriptors.add(context, Some(to.index), Content::Gone, false).expect("there is a descriptor");
        // What goes wrong with the link shows in the next progress.
        let _ = self.copy_to_engine(message, handle, head, body);
        Ok(())
    }

    /// Frames that a message of so many bytes takes.
    fn frames_of(&self, bytes: usize) -> usize {
        let behind_first = bytes.saturating_sub(self.room - FIRST_HEADER);
        1 + behind_first.div_ceil(self.room - OTHER_HEADER)
    }

    /// Cuts a message into slots, for which there is room, and sends them.
    fn copy_to_engine(
        &mut self,
        message: DescriptorId,
        handle: ConnectionHandle,
        head: &[u8],
        body: &[u8],
    ) -> Result<(), EndpointError> {
        let Self { port, descriptors, owners, room, last_sent_to, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Ok(()) };
        descriptor.is_cut = true;
        *last_sent_to = Some(handle);
        let now = port.now();
        let mut sent = Ok(());
        let (mut fragmenter, mut next) = begin(head.len() + body.len(), *room);
        while let Some(fragment) = next {
            let (start, end) = (fragment.start as usize, fragment.end as usize);
            let part = &body[start.saturating_sub(head.len())..end - head.len()];
            let front;
            let first = if start == 0 {
                front = Front::new(fragment.header(), head);
                front.bytes()
            } else {
                fragment.header()
            };
            let slot = port.slots.fill(first, part).expect("there are slots");
            owners[usize::from(slot)] = message;
            if port.station.send(handle, slot, now).is_err() {
                debug_assert!(false, "there is room in the connection's queue");
                port.slots.free(slot);
                break;
            }
            descriptor.outstanding += 1;
            next = fragmenter.next();
            if descriptor.outstanding % FRAMES_PER_TRANSMIT == 0 && next.is_some() {
                // The rest is handed to the engine, too, whatever the link says.
                sent = sent.and(port.transmit());
            }
        }
        Ok(sent.and(port.transmit())?)
    }

    /// Sends a message that fits one frame to a local peer whose pipe has room; both parts are copied, and
    /// nothing tells of it. False: then [`send`](Self::send) does.
    #[inline(always)]
    pub fn send_at_once(&mut self, to: ChannelId, head: &[u8], body: &[u8]) -> bool {
        let bytes = head.len() + body.len();
        let Some(channel) = self.channels.get(to).filter(|channel| channel.takes_messages()) else { return false };
        bytes <= self.room - FIRST_HEADER && into_pipe(channel, Order::Usual { frames: 1 }, head, body)
    }

    /// As [`send`](Self::send); while it waits, messages that are sent later pass it, but for those in the background.
    ///
    /// # Errors
    /// As of `send`.
    pub fn send_in_background(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        context: u64,
        acknowledge: Acknowledge,
    ) -> Result<(), SendError> {
        self.copy(Posting { to, context, order: Order::Background, acknowledge }, head, body)
    }

    #[inline]
    fn copy(&mut self, posting: Posting, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let Posting { to, context, order, .. } = posting;
        let bytes = head.len() + body.len();
        if head.len() > HEAD_MAX || bytes > self.copied_max() {
            return Err(SendError::TooLong { bytes, most: self.copied_max() });
        }
        self.check_events()?;
        let channel = self.channels.get(to).filter(|channel| channel.takes_messages()).ok_or(SendError::Ended)?;
        if into_pipe(channel, order, head, body) {
            self.events.push_back(Event::Sent { context });
            return Ok(());
        }
        self.check_descriptors(order)?;
        let front = Front::new(&whole(bytes as u32), head);
        let slot = self.port.slots.fill(front.bytes(), body).ok_or(SendError::Full)?;
        let message = self.add(posting, Content::Slot(slot));
        self.enqueue(to.index, message, order);
        Ok(())
    }

    /// A new descriptor, of which there is one.
    #[inline]
    fn add(&mut self, posting: Posting, content: Content) -> DescriptorId {
        let asks = posting.acknowledge == Acknowledge::AtOnce;
        let added = self.descriptors.add(posting.context, Some(posting.to.index), content, asks);
        added.expect("there is a descriptor")
    }

    /// Sends a message of any length up to 4 GiB from where it lies; only the head is copied.
    ///
    /// # Errors
    /// [`SendError`]; nothing was taken then.
    ///
    /// # Safety
    /// `body` must stay valid and unchanged until [`Event::Sent`] or [`Event::Failed`] has told of `context`, or the
    /// endpoint is dropped.
    pub unsafe fn send_lent(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        context: u64,
        acknowledge: Acknowledge,
    ) -> Result<(), SendError> {
        let order = Order::Usual { frames: self.frames_of(head.len() + body.len()) as u32 };
        // SAFETY: the caller's promise.
        unsafe { self.lend(Posting { to, context, order, acknowledge }, head, body) }
    }

    /// As [`send_lent`](Self::send_lent); while it waits, messages that are sent later pass it, but for those in the
    /// background. So a long message is best sent in parts of [`body_of_frames`](Self::body_of_frames).
    ///
    /// # Errors
    /// As of `send_lent`.
    ///
    /// # Safety
    /// As of `send_lent`.
    pub unsafe fn send_lent_in_background(
        &mut self,
        to: ChannelId,
        head: &[u8],
        body: &[u8],
        context: u64,
        acknowledge: Acknowledge,
    ) -> Result<(), SendError> {
        // SAFETY: the caller's promise.
        unsafe { self.lend(Posting { to, context, order: Order::Background, acknowledge }, head, body) }
    }

    /// Bytes of a body that fill so many frames, behind a head.
    #[must_use]
    pub fn body_of_frames(&self, frames: usize, head_bytes: usize) -> usize {
        frames * (self.room - OTHER_HEADER) - (FIRST_HEADER - OTHER_HEADER) - head_bytes
    }

    /// # Safety
    /// As of `send_lent`.
    unsafe fn lend(&mut self, posting: Posting, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let Posting { to, order, .. } = posting;
        let bytes = head.len() + body.len();
        if head.len() > HEAD_MAX || u32::try_from(bytes).is_err() {
            return Err(SendError::TooLong { bytes, most: u32::MAX as usize });
        }
        self.check_events()?;
        self.channels.get(to).filter(|channel| channel.takes_messages()).ok_or(SendError::Ended)?;
        self.check_descriptors(order)?;
        let mut copy = [0; HEAD_MAX];
        copy[..head.len()].copy_from_slice(head);
        // SAFETY: the caller's promise.
        let body = unsafe { Lent::new(body) };
        let content = Content::Lent { head: copy, head_bytes: head.len() as u8, body, cut: None };
        let message = self.add(posting, content);
        self.enqueue(to.index, message, order);
        Ok(())
    }

    /// Sends a datagram: a message that fits one frame, without a channel (but to a process of this host it opens one). Of an acknowledged one [`Event::Sent`] or
    /// [`Event::Failed`] tells of `context`; only one to each peer can be under way.
    ///
    /// # Errors
    /// [`SendError`], and nothing was taken then; outside of it, what the link says.
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

    /// Takes a message back of which nothing has been handed on, so that its peer never hears of it: nothing tells of
    /// `context` then. False: there is none, or it is under way.
    pub fn take_back(&mut self, context: u64) -> bool {
        for id in self.descriptors.with_context(context) {
            let Some(message) = self.descriptors.at(id) else { continue };
            let Some(channel) = message.channel.filter(|_| message.content.is_untouched()) else { continue };
            if let Content::Slot(slot) = message.content {
                self.port.slots.free(slot);
            }
            if let Some(channel) = self.channels.at(channel) {
                channel.queue.take_back(id);
            }
            self.descriptors.remove(id);
            return true;
        }
        false
    }

    /// Gives the caller the memory back of all lent messages with `context`: what is still needed of it is copied. They
    /// are told of as before.
    pub fn take_over(&mut self, context: u64) {
        for id in self.descriptors.with_context(context) {
            let Some(message) = self.descriptors.at(id) else { continue };
            let Some(lent) = message.lent else { continue };
            let copy = lent.bytes().to_vec().into_boxed_slice();
            // SAFETY: it belongs to the descriptor, which stays until nothing of the message is under way.
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

    /// No more messages than there are descriptors may wait to be told of.
    #[inline]
    fn check_events(&self) -> Result<(), SendError> {
        if self.events.len() < usize::from(self.config.send_descriptors) { Ok(()) } else { Err(SendError::Full) }
    }

    /// What goes in the background leaves a quarter of the descriptors to what does not.
    #[inline]
    fn check_descriptors(&self, order: Order) -> Result<(), SendError> {
        let is_full = match order {
            Order::Usual { .. } => self.descriptors.is_full(),
            Order::Background => self.descriptors.are_scarce(),
        };
        if is_full { Err(SendError::Full) } else { Ok(()) }
    }

    /// Hands on messages of all channels, as far as they can go now.
    pub(super) fn pump(&mut self) -> Result<(), EndpointError> {
        for _ in 0..self.turns.len() {
            let Some(index) = self.turns.pop_front() else { break };
            if let Some(channel) = self.channels.at(index) {
                channel.in_turn = false;
            }
            self.pump_channel(index)?;
        }
        Ok(())
    }

    /// Hands a message on if nothing of its channel goes before it, or lets it wait.
    #[inline]
    fn enqueue(&mut self, index: u16, message: DescriptorId, order: Order) {
        let is_next = self.channels.at(index).is_some_and(|channel| channel.queue.lets_pass(order));
        // What goes wrong with the link shows in the next progress.
        let is_done = is_next && self.hand_on(message).is_ok_and(|handed| handed == Handed::All);
        let is_begun = !is_done && self.is_begun(message);
        if let Some(channel) = self.channels.at(index) {
            if is_done {
                return channel.queue.note_passing(order);
            }
            channel.queue.push(message, order, is_begun);
        }
        self.take_turn(index);
    }

    fn pump_channel(&mut self, index: u16) -> Result<(), EndpointError> {
        while let Some(message) = self.channels.at(index).and_then(|channel| channel.queue.next()) {
            if self.hand_on(message)? != Handed::All {
                if self.is_begun(message)
                    && let Some(channel) = self.channels.at(index)
                {
                    channel.queue.begin();
                }
                self.take_turn(index);
                return Ok(());
            }
            if let Some(channel) = self.channels.at(index) {
                channel.queue.pop();
            }
        }
        self.close_if_asked(index);
        Ok(())
    }

    fn is_begun(&mut self, message: DescriptorId) -> bool {
        self.descriptors.at(message).is_some_and(|message| !message.content.is_untouched())
    }

    /// Hands on as much of a message as its channel takes now.
    #[inline]
    fn hand_on(&mut self, message: DescriptorId) -> Result<Handed, EndpointError> {
        let Some(index) = self.descriptors.at(message).and_then(|descriptor| descriptor.channel) else {
            return Ok(Handed::All);
        };
        match self.channels.at(index).map(|channel| &channel.carrier) {
            Some(Carrier::Wire { handle, is_open: true }) => {
                let handle = *handle;
                self.hand_to_engine(message, handle)
            }
            Some(Carrier::Local { .. }) => Ok(self.hand_to_pipe(message, index)),
            _ => Ok(Handed::Stuck),
        }
    }

    #[inline]
    fn hand_to_engine(&mut self, message: DescriptorId, handle: ConnectionHandle) -> Result<Handed, EndpointError> {
        let Self { port, descriptors, owners, room, last_sent_to, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Ok(Handed::All) };
        *last_sent_to = Some(handle);
        let now = port.now();
        let (head, body, cut) = match &mut descriptor.content {
            Content::Slot(slot) => {
                let slot = *slot;
                owners[usize::from(slot)] = message;
                if port.station.send(handle, slot, now).is_err() {
                    return Ok(Handed::Stuck);
                }
                (descriptor.content, descriptor.outstanding, descriptor.is_cut) = (Content::Gone, 1, true);
                if descriptor.asks {
                    port.station.request_ack(handle, now);
                }
                port.transmit_one()?;
                return Ok(Handed::All);
            }
            Content::Lent { head, head_bytes, body, cut } => (&head[..usize::from(*head_bytes)], *body, cut),
            Content::Gone => return Ok(Handed::All),
        };
        let (fragmenter, next) = cut.get_or_insert_with(|| begin(head.len() + body.len(), *room));
        let mut handed = 0;
        // Long messages leave slots to short ones.
        let most_heads = owners.len() as u16 - owners.len() as u16 / 4;
        while let Some(fragment) = next
            && handed < FRAMES_PER_TURN
            && port.slots.heads() < most_heads
        {
            let part = part_of(fragment, head, &body);
            // Only the first has more than its header; for the others a front would be a copy that waits for a copy.
            let front: Front;
            let first = if fragment.start == 0 {
                front = Front::new(fragment.header(), head);
                front.bytes()
            } else {
                fragment.header()
            };
            // SAFETY: the body stays as it is until its owner is told, after all of the message's slots are free.
            let Some(slot) = (unsafe { port.slots.lend(first, part) }) else { break };
            owners[usize::from(slot)] = message;
            if port.station.send(handle, slot, now).is_err() {
                port.slots.free(slot);
                break;
            }
            descriptor.outstanding += 1;
            *next = fragmenter.next();
            handed += 1;
            if handed % FRAMES_PER_TRANSMIT == 0 {
                port.transmit()?;
            }
        }
        let is_done = next.is_none();
        let is_untouched = next.is_some_and(|fragment| fragment.start == 0);
        if is_done {
            (descriptor.content, descriptor.is_cut) = (Content::Gone, true);
            if descriptor.asks {
                port.station.request_ack(handle, now);
            }
        } else if is_untouched {
            *cut = None;
        }
        port.transmit()?;
        Ok(match handed {
            _ if is_done => Handed::All,
            FRAMES_PER_TURN => Handed::TurnOver,
            _ => Handed::Stuck,
        })
    }

    fn hand_to_pipe(&mut self, message: DescriptorId, index: u16) -> Handed {
        let Self { port, descriptors, channels, .. } = self;
        let Some(descriptor) = descriptors.at(message) else { return Handed::All };
        let Some(Carrier::Local { pipe, .. }) = channels.at(index).map(|channel| &mut channel.carrier) else {
            return Handed::Stuck;
        };
        match &mut descriptor.content {
            Content::Slot(slot) => {
                let slot = *slot;
                if !pipe.send([&[Kind::Fragment as u8], port.slots.information(slot)]) {
                    return Handed::Stuck;
                }
                port.slots.free(slot);
            }
            Content::Lent { head, head_bytes, body, cut } => {
                let head = &head[..usize::from(*head_bytes)];
                let (fragmenter, next) = cut.get_or_insert_with(|| begin(head.len() + body.len(), piece_room(pipe)));
                let mut handed = 0;
                while let Some(fragment) = next {
                    if handed == FRAMES_PER_TURN {
                        return Handed::TurnOver;
                    }
                    let part = part_of(fragment, head, body);
                    let first = if fragment.start == 0 { head } else { &[] };
                    if !pipe.send([&[Kind::Fragment as u8], fragment.header(), first, part]) {
                        if fragment.start == 0 {
                            *cut = None;
                        }
                        return Handed::Stuck;
                    }
                    *next = fragmenter.next();
                    handed += 1;
                }
            }
            Content::Gone => {}
        }
        let context = descriptor.context;
        self.descriptors.remove(message);
        self.events.push_back(Event::Sent { context });
        Handed::All
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
        let added = self.descriptors.add(context, None, Content::Gone, true);
        self.owners[usize::from(slot)] = added.expect("there is a descriptor");
        Ok(())
    }
}

/// Hands on a message that fits one frame, if its peer is local and it need not wait.
#[inline(always)]
fn into_pipe(channel: &mut Channel, order: Order, head: &[u8], body: &[u8]) -> bool {
    let Carrier::Local { pipe, .. } = &mut channel.carrier else { return false };
    let header = whole((head.len() + body.len()) as u32);
    let is_sent = channel.queue.lets_pass(order) && pipe.send([&[Kind::Fragment as u8], &header, head, body]);
    if is_sent {
        channel.queue.note_passing(order);
    }
    is_sent
}

/// Bytes of a fragment in a pipe: not much more than the nearest cache holds twice.
fn piece_room(pipe: &barewire_shm::Pipe) -> usize {
    (pipe.room() - 1).min(16 << 10)
}

fn begin(bytes: usize, room: usize) -> (Fragmenter, Option<Fragment>) {
    let mut fragmenter = Fragmenter::new(bytes as u32, room as u32).expect("there is room for a fragment");
    let first = fragmenter.next();
    (fragmenter, first)
}

/// What of a message's body belongs to a fragment; the first one has room for all of the head.
#[inline]
fn part_of<'a>(fragment: &Fragment, head: &[u8], body: &'a Lent) -> &'a [u8] {
    let (start, end) = (fragment.start as usize, fragment.end as usize);
    &body.bytes()[start.saturating_sub(head.len())..end - head.len()]
}

/// A fragment's header, and what of the message's head belongs to it.
struct Front {
    bytes: [u8; FIRST_HEADER + HEAD_MAX],
    length: usize,
}

impl Front {
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
