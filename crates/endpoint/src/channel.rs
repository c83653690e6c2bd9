// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A channel to one peer: its carrier, its send queue, and what was received from it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use barewire_llc::message::{Piece, Reassembler};
use barewire_llc::{ConnectionHandle, Instant};
use barewire_shm::Pipe;

use crate::address::Address;
use crate::error::Ending;
use crate::message_queue::MessageQueue;

/// Identifies a channel of an endpoint; one that has ended is recognised. The default is the endpoint's first channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChannelId {
    pub(crate) index: u16,
    generation: u32,
}

impl ChannelId {
    /// A number below the endpoint's `channels`, unique among the channels that exist at a time.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

/// A channel to a peer, open or being opened.
pub(crate) struct Channel {
    pub peer: Address,
    pub carrier: Carrier,
    /// Messages that are not completely submitted to the carrier.
    pub queue: MessageQueue,
    /// Whether it is in the endpoint's list of channels with something to send.
    pub is_queued: bool,
    pub reassembler: Reassembler,
    /// Pieces that the sink refused.
    pub parked: VecDeque<Parked>,
    /// Size of the message for which the caller awaits room.
    pub awaits_room: Option<usize>,
    /// Whether a message without an event of its own was lost.
    pub has_lost: bool,
    /// Closed by this side; ends once the queue is empty.
    pub is_closing: bool,
    /// Reason of the end, if known before the carrier has ended.
    pub ending: Option<Ending>,
    /// For a pipe: the last observed activity, and since when it has not changed; `None` once its memory was released.
    pub idle: (u64, Option<Instant>),
}

/// What transports a channel's messages.
pub(crate) enum Carrier {
    /// A connection over the link.
    Wire { handle: ConnectionHandle, is_open: bool },
    /// Waits for the engine: for the last events of an earlier connection, or for a connection request of the peer.
    Pending,
    /// A local peer that is not connected yet: the time at which to give up, and whether the last attempt failed for
    /// lack of descriptors or memory.
    Connecting { until: Instant, is_exhausted: bool },
    /// A local peer. Messages are sent into the first pipe and received from both, if both sides connected.
    Local { pipe: Box<Pipe>, second: Option<Box<Pipe>> },
    /// Gone, but the sink has not taken all received data.
    Ended,
}

/// A copy of a piece that the sink refused.
pub(crate) struct Parked {
    total: u32,
    offset: u32,
    bytes: Vec<u8>,
}

impl Parked {
    pub fn new(piece: Piece<'_>) -> Self {
        Self { total: piece.total, offset: piece.offset, bytes: piece.bytes.to_vec() }
    }

    pub fn piece(&self) -> Piece<'_> {
        Piece { total: self.total, offset: self.offset, bytes: &self.bytes }
    }
}

impl Channel {
    pub fn new(peer: Address, carrier: Carrier) -> Self {
        Self {
            peer,
            carrier,
            queue: MessageQueue::default(),
            is_queued: false,
            reassembler: Reassembler::new(),
            parked: VecDeque::new(),
            awaits_room: None,
            has_lost: false,
            is_closing: false,
            ending: None,
            idle: (0, None),
        }
    }

    /// Whether this side has closed it, with nothing left to send, before a local peer was connected.
    pub fn is_given_up(&self) -> bool {
        matches!(self.carrier, Carrier::Connecting { .. }) && self.is_closing && self.queue.is_empty()
    }

    fn connection(&self) -> Option<ConnectionHandle> {
        if let Carrier::Wire { handle, .. } = self.carrier { Some(handle) } else { None }
    }

    /// Whether there is more to send than the carrier has.
    #[inline]
    pub fn has_more(&self) -> bool {
        !self.queue.is_empty() || self.awaits_room.is_some()
    }

    /// Whether messages to the peer are accepted.
    #[inline]
    pub fn accepts_messages(&self) -> bool {
        !self.is_closing && self.ending.is_none()
    }
}

/// The channels of an endpoint, found by index, by the peer's address, and by the engine's connection.
pub(crate) struct Channels {
    entries: Vec<(u32, Option<Channel>)>,
    free: Vec<u16>,
    by_address: HashMap<Address, u16>,
    /// By a connection's index: the channel's.
    by_connection: Vec<u16>,
}

const NONE: u16 = u16::MAX;

impl Channels {
    pub fn new(channels: u16) -> Self {
        Self {
            entries: (0..channels).map(|_| (0, None)).collect(),
            free: (0..channels).rev().collect(),
            by_address: HashMap::new(),
            by_connection: vec![NONE; usize::from(channels)],
        }
    }

    /// Adds a channel, and makes it the current channel to its peer unless it is ending. `None` if there is no room.
    pub fn add(&mut self, channel: Channel) -> Option<ChannelId> {
        let index = self.free.pop()?;
        if channel.ending.is_none() {
            self.by_address.insert(channel.peer, index);
        }
        if let Carrier::Wire { handle, .. } = channel.carrier {
            self.by_connection[handle.index()] = index;
        }
        let entry = &mut self.entries[usize::from(index)];
        entry.1 = Some(channel);
        Some(ChannelId { index, generation: entry.0 })
    }

    /// Sets the connection of a channel that waited for it.
    pub fn set_connection(&mut self, index: u16, handle: ConnectionHandle, is_open: bool) {
        if let Some(channel) = self.at(index) {
            channel.carrier = Carrier::Wire { handle, is_open };
            self.by_connection[handle.index()] = index;
        }
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Removes a channel; its identifier is no longer valid.
    pub fn remove(&mut self, index: u16) -> Option<Channel> {
        let (generation, entry) = &mut self.entries[usize::from(index)];
        let channel = entry.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(index);
        let (peer, connection) = (channel.peer, channel.connection());
        self.unindex(index, peer, connection);
        Some(channel)
    }

    /// Ends a channel towards its peer, which may open another. Its received data stays.
    pub fn retire(&mut self, index: u16, ending: Ending) {
        let Some(channel) = self.at(index) else { return };
        channel.ending.get_or_insert(ending);
        let (peer, connection) = (channel.peer, channel.connection());
        if connection.is_some() {
            channel.carrier = Carrier::Ended;
        }
        self.unindex(index, peer, connection);
    }

    fn unindex(&mut self, index: u16, peer: Address, connection: Option<ConnectionHandle>) {
        if self.by_address.get(&peer) == Some(&index) {
            self.by_address.remove(&peer);
        }
        if let Some(handle) = connection {
            self.by_connection[handle.index()] = NONE;
        }
    }

    #[inline]
    pub fn id(&self, index: u16) -> ChannelId {
        ChannelId { index, generation: self.entries[usize::from(index)].0 }
    }

    #[inline]
    pub fn at(&mut self, index: u16) -> Option<&mut Channel> {
        self.entries[usize::from(index)].1.as_mut()
    }

    #[inline]
    pub fn get(&mut self, id: ChannelId) -> Option<&mut Channel> {
        let (generation, channel) = self.entries.get_mut(id.index())?;
        if *generation == id.generation { channel.as_mut() } else { None }
    }

    /// The connections of all channels on the link.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        self.entries.iter().filter_map(|(_, channel)| channel.as_ref()?.connection())
    }

    /// The peers of all channels, and whether each is on this host.
    pub fn peers(&self) -> impl Iterator<Item = (Address, bool)> + '_ {
        let channels = self.entries.iter().filter_map(|(_, channel)| channel.as_ref());
        channels.map(|channel| {
            (channel.peer, matches!(channel.carrier, Carrier::Local { .. } | Carrier::Connecting { .. }))
        })
    }

    /// Descriptors to wait on for a channel to a local peer.
    pub fn file_descriptors(&self, index: u16) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipes = match &self.entries[usize::from(index)].1 {
            Some(channel @ Channel { carrier: Carrier::Local { pipe, second }, parked, .. }) => {
                let awaits_message = parked.is_empty();
                [
                    Some(pipe).filter(|_| awaits_message || channel.has_more()),
                    second.as_ref().filter(|_| awaits_message),
                ]
            }
            _ => [None, None],
        };
        pipes.into_iter().flatten().flat_map(|pipe| [Some(pipe.as_fd()), pipe.process()].into_iter().flatten())
    }

    pub fn find(&self, peer: Address) -> Option<u16> {
        self.by_address.get(&peer).copied()
    }

    #[inline]
    pub fn find_connection(&self, handle: ConnectionHandle) -> Option<u16> {
        Some(self.by_connection[handle.index()]).filter(|index| *index != NONE)
    }
}
