// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport `endpoint`: messages in an endpoint's descriptors, events, no matching.

use std::time::Duration;

use barewire_endpoint::{
    Acknowledge, Address, ChannelId, Class, Endpoint, Event, INLINE_BYTES, Inbox, InboxConfig, Piece, Sink,
};
use barewire_link::Link;
use barewire_llc::message::FIRST_HEADER;

use super::{CONNECT_PATIENCE_NS, EARLY_BYTES_MAX, FRAME_HEADER_BYTES, Role, counters_of, failed};
use crate::transport::{Counters, Transport, borrowed_messages, fragments_wire_bytes};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// An endpoint with one channel.
pub struct Window<L> {
    endpoint: Endpoint<L>,
    peer: Address,
    role: Role,
    channel: Option<ChannelId>,
    arrivals: Arrivals,
    /// Messages that are still read from the caller's memory.
    borrowed: usize,
    received_messages: u32,
    mtu: usize,
}

/// The context of a message that was copied, and of one that was lent.
const COPIED: u64 = 0;
const LENT: u64 = 1;

impl<L: Link> Window<L> {
    pub fn new(endpoint: Endpoint<L>, peer: Address, role: Role, mtu: usize) -> Self {
        let (arrivals, channel) = (Arrivals::new(), None);
        Self { endpoint, peer, role, channel, arrivals, borrowed: 0, received_messages: 0, mtu }
    }

    /// Takes what the endpoint has to say.
    #[inline]
    fn hear(&mut self) -> Result<(), LaunchError> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Sent { context } => self.borrowed -= usize::from(context == LENT),
                Event::Opened { channel, peer } => {
                    if peer == self.peer {
                        self.channel = Some(channel);
                    }
                }
                Event::Failed { ending, .. } | Event::Ended { ending, .. } => {
                    return Err(LaunchError::Failed(ending.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Makes progress while there is no place for a message that comes.
    fn go_on(&mut self) -> Result<(), LaunchError> {
        let Self { endpoint, arrivals, .. } = self;
        endpoint.progress(&mut Into { place: None, arrivals }).map_err(failed)?;
        self.hear()
    }

    fn lends(&self, message_bytes: usize) -> bool {
        message_bytes > self.endpoint.copied_best()
    }

    /// Goes on receiving into `message`; whether that is complete.
    #[inline]
    fn take(&mut self, message: &mut [u8]) -> Result<bool, LaunchError> {
        if self.arrivals.take_early(message)? {
            return Ok(true);
        }
        let Self { endpoint, arrivals, .. } = self;
        endpoint.progress(&mut Into { place: Some(message), arrivals }).map_err(failed)?;
        self.hear()?;
        self.arrivals.finish()
    }
}

/// What has come: into the caller's memory, or, while it gives none, into the inbox.
struct Arrivals {
    /// Bytes of the present message that are in the caller's memory.
    placed: usize,
    is_complete: bool,
    /// Bytes of that message that came while there was no memory.
    aside: Vec<u8>,
    /// Whether a message is on its way into the caller's memory.
    is_direct: bool,
    inbox: Inbox,
    early_bytes: usize,
    wrong: Option<usize>,
}

impl Arrivals {
    fn new() -> Self {
        let inbox = Inbox::new(&InboxConfig { receive_descriptors: 256, buffers: 0, ..InboxConfig::default() });
        Self { placed: 0, is_complete: false, aside: Vec::new(), is_direct: false, inbox, early_bytes: 0, wrong: None }
    }

    /// Whether a message that begins now is the next for the user.
    #[inline]
    fn has_nothing(&self) -> bool {
        !self.is_complete && self.inbox.is_empty()
    }

    /// Takes what came before there was a place for it; whether that was a message.
    #[inline]
    fn take_early(&mut self, message: &mut [u8]) -> Result<bool, LaunchError> {
        if !self.aside.is_empty() {
            message[self.placed..self.placed + self.aside.len()].copy_from_slice(&self.aside);
            self.placed += self.aside.len();
            self.aside.clear();
        }
        if self.is_direct || self.is_complete {
            return self.finish();
        }
        let Some(received) = self.inbox.receive() else { return Ok(false) };
        let bytes = received.bytes();
        if bytes.len() != message.len() {
            return Err(unexpected(received.total, message.len()));
        }
        message.copy_from_slice(bytes);
        self.early_bytes = self.early_bytes.saturating_sub(bytes.len());
        self.inbox.done(received);
        Ok(true)
    }

    #[inline]
    fn finish(&mut self) -> Result<bool, LaunchError> {
        if let Some(bytes) = self.wrong {
            return Err(LaunchError::Failed(format!("a message of {bytes} bytes came, which nobody waits for")));
        }
        if !self.is_complete || !self.aside.is_empty() {
            return Ok(false);
        }
        (self.is_complete, self.placed) = (false, 0);
        Ok(true)
    }
}

fn unexpected(total: usize, awaited: usize) -> LaunchError {
    LaunchError::Failed(format!("a message of {total} bytes came instead of {awaited}"))
}

/// The sink of one call.
struct Into<'a> {
    place: Option<&'a mut [u8]>,
    arrivals: &'a mut Arrivals,
}

impl Sink for Into<'_> {
    #[inline]
    fn piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool {
        let arrivals = &mut *self.arrivals;
        if let (true, Some(place)) = (piece.is_first() && arrivals.has_nothing(), &self.place) {
            if piece.total as usize != place.len() {
                arrivals.wrong = Some(piece.total as usize);
                return true;
            }
            arrivals.is_direct = true;
        }
        if arrivals.is_direct {
            let offset = piece.offset as usize;
            match &mut self.place {
                Some(place) if arrivals.aside.is_empty() => {
                    place[offset..offset + piece.bytes.len()].copy_from_slice(piece.bytes);
                    arrivals.placed = offset + piece.bytes.len();
                }
                _ => arrivals.aside.extend_from_slice(piece.bytes),
            }
            (arrivals.is_complete, arrivals.is_direct) = (piece.is_last(), !piece.is_last());
            return true;
        }
        let total = piece.total as usize;
        if piece.is_first() && total > INLINE_BYTES {
            if arrivals.early_bytes > 0 && arrivals.early_bytes + total > EARLY_BYTES_MAX {
                return false;
            }
            arrivals.inbox.ensure_buffer(total);
            arrivals.early_bytes += total;
        }
        arrivals.inbox.piece(from, piece)
    }

    #[inline]
    fn has_enough(&self) -> bool {
        self.arrivals.is_complete
    }

    fn datagram(&mut self, _from: Address, _class: Class, _bytes: &[u8]) {}

    fn ended(&mut self, from: ChannelId) {
        self.arrivals.inbox.ended(from);
    }
}

impl<L: Link> Transport for Window<L> {
    fn establish(&mut self) -> Result<(), LaunchError> {
        if self.role == Role::Active {
            let channel = self.endpoint.connect(self.peer);
            self.channel = Some(channel.map_err(|error| LaunchError::Failed(error.to_string()))?);
        }
        let deadline_ns = now_ns() + CONNECT_PATIENCE_NS;
        while !self.channel.is_some_and(|channel| self.endpoint.is_open(channel)) {
            if now_ns() > deadline_ns {
                return Err(LaunchError::Failed("no channel came about within 10 s".to_owned()));
            }
            self.settle()?;
            std::thread::yield_now();
        }
        // What the peer waits for goes out.
        self.settle().map(|_| ())
    }

    #[inline]
    unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        if *done == message.len() {
            return Ok(true);
        }
        let channel = self.channel.ok_or_else(|| LaunchError::Failed("there is no channel yet".to_owned()))?;
        let lends = self.lends(message.len());
        if lends && self.borrowed >= self.borrows(message.len()) {
            self.go_on()?;
            if self.borrowed >= self.borrows(message.len()) {
                return Ok(false);
            }
        }
        for attempt in 0..2 {
            let sent = if lends {
                // SAFETY: the caller keeps the message as it is until `borrowed`, which the endpoint's events bring
                // down, has made room for so many others.
                unsafe { self.endpoint.send_lent(channel, &[], message, LENT, Acknowledge::Eventually) }
            } else {
                self.endpoint.send(channel, &[], message, COPIED)
            };
            match sent {
                Ok(()) => {
                    self.borrowed += usize::from(lends);
                    *done = message.len();
                    return Ok(true);
                }
                Err(barewire_endpoint::SendError::Full) if attempt == 0 => self.go_on()?,
                Err(barewire_endpoint::SendError::Full) => {}
                Err(error) => return Err(LaunchError::Failed(error.to_string())),
            }
        }
        Ok(false)
    }

    fn borrows(&self, message_bytes: usize) -> usize {
        if self.lends(message_bytes) { borrowed_messages(message_bytes) } else { 0 }
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        let mut is_complete = self.take(message)?;
        if !is_complete && !patience.is_zero() {
            self.endpoint.sleep(patience).map_err(failed)?;
            is_complete = self.take(message)?;
        }
        if !is_complete {
            return Ok(None);
        }
        self.received_messages = self.received_messages.wrapping_add(1);
        Ok(Some(self.received_messages.wrapping_sub(1)))
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        self.endpoint.sleep(patience).map_err(failed)
    }

    fn settle(&mut self) -> Result<bool, LaunchError> {
        let Self { endpoint, arrivals, .. } = self;
        let is_done = endpoint.settle(&mut Into { place: None, arrivals }).map_err(failed)?;
        self.hear()?;
        Ok(is_done)
    }

    fn is_lazy(&self) -> bool {
        true
    }

    fn set_pace(&mut self, _bit_s: Option<f64>) {}

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        fragments_wire_bytes(message_bytes, self.endpoint.copied_max() + FIRST_HEADER, FRAME_HEADER_BYTES)
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn check(&mut self) -> Result<(), LaunchError> {
        self.endpoint.check().map_err(failed)
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        counters_of(&mut self.endpoint)
    }

    fn mtu(&self) -> Option<usize> {
        Some(self.mtu)
    }
}
