// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One peer: how it is reached, what waits to be sent to it, and what comes from it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use barewire_llc::message::{Piece, Reassembler};
use barewire_llc::{ConnectionHandle, Instant};
use barewire_shm::Pipe;

use crate::address::Address;
use crate::error::Ending;
use crate::waiting_messages::WaitingMessages;

/// Names a channel of an endpoint; one that has ended is recognised. The default is the first there ever was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChannelId {
    pub(crate) index: u16,
    generation: u32,
}

impl ChannelId {
    /// A number below the endpoint's `channels` that no other channel has at the same time.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

/// A connection to a peer by some carrier, or one that is being opened.
pub(crate) struct Channel {
    pub peer: Address,
    pub carrier: Carrier,
    /// Messages that are not wholly handed to the carrier yet.
    pub queue: WaitingMessages,
    /// Whether it waits for its turn to send.
    pub in_turn: bool,
    pub reassembler: Reassembler,
    /// Pieces that the sink refused.
    pub parked: VecDeque<Parked>,
    /// Closed by this side once the queue is empty.
    pub is_closing: bool,
    /// Known before the carrier has ended.
    pub ending: Option<Ending>,
    /// Of a pipe: its activity as last seen, and since when that is so; `None` once its memory was given back.
    pub quiet: (u64, Option<Instant>),
}

/// How a peer is reached.
pub(crate) enum Carrier {
    /// Over the link.
    Wire { handle: ConnectionHandle, is_open: bool },
    /// Over the link, once the engine has said all of an earlier connection, or that the peer was faster.
    Pending,
    /// On this host, and nobody is there yet: until when it is tried, and whether descriptors or memory were used up when it
    /// was last.
    Connecting { until: Instant, is_exhausted: bool },
    /// On this host. Messages go into the pipe that was there first, and come from both.
    Local { pipe: Box<Pipe>, other: Option<Box<Pipe>> },
    /// Not any more; what has come and was refused by the sink still waits for it.
    Over,
}

/// A piece that waits, with its bytes.
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
            queue: WaitingMessages::default(),
            in_turn: false,
            reassembler: Reassembler::new(),
            parked: VecDeque::new(),
            is_closing: false,
            ending: None,
            quiet: (0, None),
        }
    }

    fn connection(&self) -> Option<ConnectionHandle> {
        if let Carrier::Wire { handle, .. } = self.carrier { Some(handle) } else { None }
    }

    /// Whether messages to the peer are still accepted.
    #[inline]
    pub fn takes_messages(&self) -> bool {
        !self.is_closing && self.ending.is_none()
    }
}

/// All channels of an endpoint, found by number, by the peer's address, and by the engine's connection.
pub(crate) struct Channels {
    entries: Vec<(u32, Option<Channel>)>,
    free: Vec<u16>,
    by_address: HashMap<Address, u16>,
    /// By a connection's number: the channel's.
    by_connection: Vec<u16>,
}

const NONE: u16 = u16::MAX;

impl Channels {
    pub fn new(most: u16) -> Self {
        Self {
            entries: (0..most).map(|_| (0, None)).collect(),
            free: (0..most).rev().collect(),
            by_address: HashMap::new(),
            by_connection: vec![NONE; usize::from(most)],
        }
    }

    /// A new channel, its peer's if it does not end already; `None` if there is no room.
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

    /// Gives a channel that waited for it its connection.
    pub fn begin(&mut self, index: u16, handle: ConnectionHandle, is_open: bool) {
        if let Some(channel) = self.at(index) {
            channel.carrier = Carrier::Wire { handle, is_open };
            self.by_connection[handle.index()] = index;
        }
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes a channel out; its identifier means nothing any more.
    pub fn remove(&mut self, index: u16) -> Option<Channel> {
        let (generation, entry) = &mut self.entries[usize::from(index)];
        let channel = entry.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(index);
        let (peer, connection) = (channel.peer, channel.connection());
        self.unlist(index, peer, connection);
        Some(channel)
    }

    /// Ends a channel towards its peer, who may open another; what it has received stays.
    pub fn retire(&mut self, index: u16, ending: Ending) {
        let Some(channel) = self.at(index) else { return };
        channel.ending.get_or_insert(ending);
        let (peer, connection) = (channel.peer, channel.connection());
        if connection.is_some() {
            channel.carrier = Carrier::Over;
        }
        self.unlist(index, peer, connection);
    }

    fn unlist(&mut self, index: u16, peer: Address, connection: Option<ConnectionHandle>) {
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

    /// The connections of all channels over the link.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        self.entries.iter().filter_map(|(_, channel)| channel.as_ref()?.connection())
    }

    /// What to sleep on for a channel on this host.
    pub fn descriptors_of(&self, index: u16) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipes = match &self.entries[usize::from(index)].1 {
            Some(Channel { carrier: Carrier::Local { pipe, other }, queue, parked, .. }) => {
                let awaits_message = parked.is_empty();
                [Some(pipe).filter(|_| awaits_message || !queue.is_empty()), other.as_ref().filter(|_| awaits_message)]
            }
            _ => [None, None],
        };
        pipes.into_iter().flatten().flat_map(|pipe| [Some(pipe.as_fd()), pipe.process()].into_iter().flatten())
    }

    pub fn to(&self, peer: Address) -> Option<u16> {
        self.by_address.get(&peer).copied()
    }

    #[inline]
    pub fn of_connection(&self, handle: ConnectionHandle) -> Option<u16> {
        Some(self.by_connection[handle.index()]).filter(|index| *index != NONE)
    }
}
