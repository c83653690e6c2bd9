// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport `endpoint`: messages through an endpoint's descriptors and events, without matching.

use std::time::Duration;

use barewire_endpoint::{
    Address, ChannelId, Class, Endpoint, Event, INLINE_BYTES, Inbox, InboxConfig, Piece, Priority, Report, Sink,
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
    /// Messages still read from the caller's memory.
    borrowed: usize,
    received_messages: u32,
    mtu: usize,
}

/// Contexts of copied and of lent messages.
const COPIED: u64 = 0;
const LENT: u64 = 1;

impl<L: Link> Window<L> {
    pub fn new(endpoint: Endpoint<L>, peer: Address, role: Role, mtu: usize) -> Self {
        let (arrivals, channel) = (Arrivals::new(), None);
        Self { endpoint, peer, role, channel, arrivals, borrowed: 0, received_messages: 0, mtu }
    }

    /// Polls the endpoint's events.
    #[inline]
    fn poll_events(&mut self) -> Result<(), LaunchError> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Room { .. } => {}
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

    /// Makes progress without a receive buffer.
    fn make_progress(&mut self) -> Result<(), LaunchError> {
        let Self { endpoint, arrivals, .. } = self;
        endpoint.progress(&mut ReceiveSink { buffer: None, arrivals }).map_err(failed)?;
        self.poll_events()
    }

    fn lends(&self, message_bytes: usize) -> bool {
        message_bytes > self.endpoint.copied_best()
    }

    /// Continues receiving into `message`; true once it is complete.
    #[inline]
    fn receive_into(&mut self, message: &mut [u8]) -> Result<bool, LaunchError> {
        if self.arrivals.take_buffered(message)? {
            return Ok(true);
        }
        let Self { endpoint, arrivals, .. } = self;
        endpoint.progress(&mut ReceiveSink { buffer: Some(message), arrivals }).map_err(failed)?;
        self.poll_events()?;
        self.arrivals.finish()
    }
}

/// Received messages: the current one in the caller's memory, those that arrive without a buffer in the inbox.
struct Arrivals {
    /// Bytes of the current message in the caller's memory.
    placed: usize,
    is_complete: bool,
    /// Bytes of the current message that arrived while there was no buffer.
    held: Vec<u8>,
    /// Whether the current message is received into the caller's memory.
    is_direct: bool,
    inbox: Inbox,
    early_bytes: usize,
    wrong_length: Option<usize>,
}

impl Arrivals {
    fn new() -> Self {
        let inbox = Inbox::new(&InboxConfig { receive_descriptors: 256, buffers: 0, ..InboxConfig::default() });
        Self {
            placed: 0,
            is_complete: false,
            held: Vec::new(),
            is_direct: false,
            inbox,
            early_bytes: 0,
            wrong_length: None,
        }
    }

    /// Whether a message that begins now is the next one to deliver.
    #[inline]
    fn is_idle(&self) -> bool {
        !self.is_complete && self.inbox.is_empty()
    }

    /// Copies data that arrived before `message` was given; true if that completes it.
    #[inline]
    fn take_buffered(&mut self, message: &mut [u8]) -> Result<bool, LaunchError> {
        if !self.held.is_empty() {
            message[self.placed..self.placed + self.held.len()].copy_from_slice(&self.held);
            self.placed += self.held.len();
            self.held.clear();
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
        if let Some(bytes) = self.wrong_length {
            return Err(LaunchError::Failed(format!(
                "a message of {bytes} bytes arrived instead of the expected length"
            )));
        }
        if !self.is_complete || !self.held.is_empty() {
            return Ok(false);
        }
        (self.is_complete, self.placed) = (false, 0);
        Ok(true)
    }
}

fn unexpected(total: usize, awaited: usize) -> LaunchError {
    LaunchError::Failed(format!("a message of {total} bytes came instead of {awaited}"))
}

/// Sink of one call.
struct ReceiveSink<'a> {
    buffer: Option<&'a mut [u8]>,
    arrivals: &'a mut Arrivals,
}

impl Sink for ReceiveSink<'_> {
    #[inline]
    fn piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool {
        let arrivals = &mut *self.arrivals;
        if let (true, Some(buffer)) = (piece.is_first() && arrivals.is_idle(), &self.buffer) {
            if piece.total as usize != buffer.len() {
                arrivals.wrong_length = Some(piece.total as usize);
                return true;
            }
            arrivals.is_direct = true;
        }
        if arrivals.is_direct {
            let offset = piece.offset as usize;
            match &mut self.buffer {
                Some(buffer) if arrivals.held.is_empty() => {
                    buffer[offset..offset + piece.bytes.len()].copy_from_slice(piece.bytes);
                    arrivals.placed = offset + piece.bytes.len();
                }
                _ => arrivals.held.extend_from_slice(piece.bytes),
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
                return Err(LaunchError::Failed("no channel was established within 10 s".to_owned()));
            }
            self.settle()?;
            std::thread::yield_now();
        }
        // Flushes the acknowledgements that the peer waits for.
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
            self.make_progress()?;
            if self.borrowed >= self.borrows(message.len()) {
                return Ok(false);
            }
        }
        for attempt in 0..2 {
            let sent = if lends {
                let report = Report::Acknowledged(LENT);
                // SAFETY: the caller keeps the message unchanged until `borrows` later messages are sent; `borrowed`,
                // which events decrement, allows no more.
                unsafe { self.endpoint.post_lent(channel, &[], message, Priority::Normal, report) }.map(|_| ())
            } else {
                self.endpoint.send(channel, &[], message, COPIED)
            };
            match sent {
                Ok(()) => {
                    self.borrowed += usize::from(lends);
                    *done = message.len();
                    return Ok(true);
                }
                Err(barewire_endpoint::SendError::Full) if attempt == 0 => self.make_progress()?,
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
        let mut is_complete = self.receive_into(message)?;
        if !is_complete && !patience.is_zero() {
            self.endpoint.sleep(patience).map_err(failed)?;
            is_complete = self.receive_into(message)?;
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
        let is_done = endpoint.settle(&mut ReceiveSink { buffer: None, arrivals }).map_err(failed)?;
        self.poll_events()?;
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
