// SPDX-License-Identifier: Apache-2.0 OR MIT
//! U-Net's receive queue and free queue.
//!
//! Short messages lie in the receive queue's descriptors; longer ones in buffers that the user has put into the free
//! queue and gets back with the message.

use std::collections::VecDeque;

use barewire_llc::message::Piece;

use crate::address::Address;
use crate::channel::ChannelId;
use crate::sink::{Class, Sink};

/// Configuration of an inbox.
#[derive(Clone, Copy, Debug)]
pub struct InboxConfig {
    /// Descriptors of the receive queue: the maximum number of messages that wait for the user.
    pub receive_descriptors: usize,
    /// Initial number of buffers in the free queue.
    pub buffers: usize,
    /// Bytes of each buffer. The rest of a longer message is discarded; [`Received::total`] shows it.
    pub buffer_bytes: usize,
    /// Messages of up to this size lie in their descriptor; at most [`INLINE_BYTES`].
    pub inline_bytes: usize,
}

impl Default for InboxConfig {
    /// Two windows of short messages; buffers for a few long ones.
    fn default() -> Self {
        Self { receive_descriptors: 128, buffers: 16, buffer_bytes: 64 << 10, inline_bytes: INLINE_BYTES }
    }
}

/// Bytes of message data that a receive descriptor holds: measured, `docs/performance.md`.
pub const INLINE_BYTES: usize = 192;

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Where it came from.
    pub origin: Origin,
    /// Length of the whole message: greater than that of [`bytes`](Self::bytes) if no buffer was long enough.
    pub total: usize,
    content: Content,
}

/// Origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A channel; its messages are in order.
    Channel(ChannelId),
    /// A datagram.
    Datagram(Address, Class),
}

#[derive(Debug)]
enum Content {
    Inline { bytes: [u8; INLINE_BYTES], length: u8 },
    Buffer { bytes: Box<[u8]>, length: usize },
}

impl Received {
    /// The message's data.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Inline { bytes, length } => &bytes[..usize::from(*length)],
            Content::Buffer { bytes, length } => &bytes[..*length],
        }
    }
}

/// Receive queue and free queue.
#[derive(Debug)]
pub struct Inbox {
    received: VecDeque<Received>,
    receive_descriptors: usize,
    inline_bytes: usize,
    free: Vec<Box<[u8]>>,
    /// Incomplete messages, by channel.
    partial: Vec<(ChannelId, Received)>,
    /// Datagrams dropped for lack of a descriptor or a buffer.
    pub lost_datagrams: u64,
}

impl Inbox {
    /// An empty inbox with the configured buffers in its free queue.
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

    /// Puts a new buffer into the free queue unless it has one of at least this size.
    pub fn ensure_buffer(&mut self, bytes: usize) {
        if !self.free.iter().any(|buffer| buffer.len() >= bytes) {
            self.free.push(vec![0; bytes].into_boxed_slice());
        }
    }

    /// The next message, in order of arrival.
    #[inline]
    pub fn receive(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    /// Returns a message's buffer, if it has one, to the free queue.
    #[inline]
    pub fn done(&mut self, received: Received) {
        if let Content::Buffer { bytes, .. } = received.content {
            self.free.push(bytes);
        }
    }

    /// Whether the receive queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    fn has_descriptor(&self) -> bool {
        self.received.len() + self.partial.len() < self.receive_descriptors
    }

    /// A descriptor with memory for `total` bytes, or as much as the longest buffer has.
    #[inline]
    fn begin(&mut self, origin: Origin, total: usize) -> Option<Received> {
        if !self.has_descriptor() {
            return None;
        }
        let content = if total <= self.inline_bytes {
            Content::Inline { bytes: [0; INLINE_BYTES], length: 0 }
        } else {
            // The shortest buffer that is long enough, else the longest.
            let rank = |buffer: &[u8]| if buffer.len() >= total { (0, buffer.len()) } else { (1, !buffer.len()) };
            let index = (0..self.free.len()).min_by_key(|index| rank(&self.free[*index]))?;
            Content::Buffer { bytes: self.free.swap_remove(index), length: 0 }
        };
        Some(Received { origin, total, content })
    }
}

impl Received {
    #[inline]
    fn put(&mut self, offset: usize, piece: &[u8]) {
        let memory: &mut [u8] = match &mut self.content {
            Content::Inline { bytes, length } => {
                *length = (offset + piece.len()) as u8;
                bytes
            }
            Content::Buffer { bytes, length } => {
                *length = (offset + piece.len()).min(bytes.len());
                bytes
            }
        };
        let room = memory.len().saturating_sub(offset).min(piece.len());
        if room > 0 {
            barewire_copy::copy(&piece[..room], &mut memory[offset..offset + room]);
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
        let Some(index) = self.partial.iter().position(|(channel, _)| *channel == from) else { return true };
        self.partial[index].1.put(piece.offset as usize, piece.bytes);
        if piece.is_last() {
            let (_, message) = self.partial.swap_remove(index);
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
        if let Some(index) = self.partial.iter().position(|(channel, _)| *channel == from) {
            let (_, message) = self.partial.swap_remove(index);
            self.done(message);
        }
    }
}
