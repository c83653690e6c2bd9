// SPDX-License-Identifier: Apache-2.0 OR MIT
//! U-Net's receive queue and free queue.
//!
//! Short messages lie inside the receive queue's descriptors; longer ones in buffers that the user has put into the free
//! queue, and takes back with the message.

use std::collections::VecDeque;

use barewire_llc::message::Piece;

use crate::address::Address;
use crate::channel::ChannelId;
use crate::sink::{Class, Sink};

/// How an inbox is made.
#[derive(Clone, Copy, Debug)]
pub struct InboxConfig {
    /// Descriptors of the receive queue: messages that wait for the user, at most.
    pub receive_descriptors: usize,
    /// Buffers in the free queue at the beginning.
    pub buffers: usize,
    /// Bytes of each. The rest of a longer message is lost, and the message says so.
    pub buffer_bytes: usize,
    /// Up to so many bytes a message lies inside its descriptor; at most [`INLINE_BYTES`].
    pub inline_bytes: usize,
}

impl Default for InboxConfig {
    /// Two windows of short messages; buffers for a few long ones.
    fn default() -> Self {
        Self { receive_descriptors: 128, buffers: 16, buffer_bytes: 64 << 10, inline_bytes: INLINE_BYTES }
    }
}

/// Bytes that a receive descriptor holds: measured, `docs/performance.md`.
pub const INLINE_BYTES: usize = 192;

/// A message that has come.
#[derive(Debug)]
pub struct Received {
    /// From whom.
    pub origin: Origin,
    /// Length of the whole message; more than there is if no buffer was long enough.
    pub total: usize,
    content: Content,
}

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Over a channel, in order.
    Channel(ChannelId),
    /// As a datagram.
    Datagram(Address, Class),
}

#[derive(Debug)]
enum Content {
    Inline { bytes: [u8; INLINE_BYTES], length: u8 },
    Buffer { bytes: Box<[u8]>, length: usize },
}

impl Received {
    /// The message.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Inline { bytes, length } => &bytes[..usize::from(*length)],
            Content::Buffer { bytes, length } => &bytes[..*length],
        }
    }
}

/// The two queues.
#[derive(Debug)]
pub struct Inbox {
    received: VecDeque<Received>,
    receive_descriptors: usize,
    inline_bytes: usize,
    free: Vec<Box<[u8]>>,
    /// Messages of which pieces are missing, by channel.
    partial: Vec<(ChannelId, Received)>,
    /// Datagrams that found no room.
    pub lost_datagrams: u64,
}

impl Inbox {
    /// Empty, with the buffers in the free queue.
    #[must_use]
    pub fn new(config: &InboxConfig) -> Self {
        Self {
            received: VecDeque::with_capacity(config.receive_descriptors),
            receive_descriptors: config.receive_descriptors,
            inline_bytes: config.inline_bytes.min(INLINE_BYTES),
            free: (0..config.buffers).map(|_| vec![0; config.buffer_bytes].into_boxed_slice()).collect(),
            partial: Vec::new(),
            lost_datagrams: 0,
        }
    }

    /// Puts a buffer into the free queue.
    pub fn offer(&mut self, buffer: Box<[u8]>) {
        self.free.push(buffer);
    }

    /// Puts a new buffer into the free queue unless it has one of so many bytes.
    pub fn ensure_buffer(&mut self, bytes: usize) {
        if !self.free.iter().any(|buffer| buffer.len() >= bytes) {
            self.free.push(vec![0; bytes].into_boxed_slice());
        }
    }

    /// The next message, in the order of arrival.
    #[inline]
    pub fn receive(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    /// Gives a message's buffer, if it has one, back to the free queue.
    #[inline]
    pub fn done(&mut self, received: Received) {
        if let Content::Buffer { bytes, .. } = received.content {
            self.free.push(bytes);
        }
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    fn has_descriptor(&self) -> bool {
        self.received.len() + self.partial.len() < self.receive_descriptors
    }

    /// A descriptor with a place for so many bytes, or as many as there is a buffer for.
    #[inline]
    fn begin(&mut self, origin: Origin, total: usize) -> Option<Received> {
        if !self.has_descriptor() {
            return None;
        }
        let content = if total <= self.inline_bytes {
            Content::Inline { bytes: [0; INLINE_BYTES], length: 0 }
        } else {
            // The shortest that is long enough, or else the longest.
            let fits = |buffer: &[u8]| if buffer.len() >= total { (0, buffer.len()) } else { (1, !buffer.len()) };
            let place = (0..self.free.len()).min_by_key(|place| fits(&self.free[*place]))?;
            Content::Buffer { bytes: self.free.swap_remove(place), length: 0 }
        };
        Some(Received { origin, total, content })
    }
}

impl Received {
    #[inline]
    fn put(&mut self, offset: usize, piece: &[u8]) {
        let place: &mut [u8] = match &mut self.content {
            Content::Inline { bytes, length } => {
                *length = (offset + piece.len()) as u8;
                bytes
            }
            Content::Buffer { bytes, length } => {
                *length = (offset + piece.len()).min(bytes.len());
                bytes
            }
        };
        let room = place.len().saturating_sub(offset).min(piece.len());
        if room > 0 {
            barewire_copy::copy(&piece[..room], &mut place[offset..offset + room]);
        }
    }
}

impl Sink for Inbox {
    #[inline]
    fn piece(&mut self, from: ChannelId, piece: Piece<'_>) -> bool {
        if piece.is_first() {
            let Some(mut message) = self.begin(Origin::Channel(from), piece.total as usize) else { return false };
            message.put(0, piece.bytes);
            if piece.is_last() {
                self.received.push_back(message);
            } else {
                self.partial.push((from, message));
            }
            return true;
        }
        let Some(place) = self.partial.iter().position(|(channel, _)| *channel == from) else { return true };
        self.partial[place].1.put(piece.offset as usize, piece.bytes);
        if piece.is_last() {
            let (_, message) = self.partial.swap_remove(place);
            self.received.push_back(message);
        }
        true
    }

    fn datagram(&mut self, from: Address, class: Class, bytes: &[u8]) {
        match self.begin(Origin::Datagram(from, class), bytes.len()) {
            Some(mut message) => {
                message.put(0, bytes);
                self.received.push_back(message);
            }
            None => self.lost_datagrams += 1,
        }
    }

    fn ended(&mut self, from: ChannelId) {
        if let Some(place) = self.partial.iter().position(|(channel, _)| *channel == from) {
            let (_, message) = self.partial.swap_remove(place);
            self.done(message);
        }
    }
}
