// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers by number, address and channel, and the state of each.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use barewire_endpoint::{Address, ChannelId, Ending};

use crate::completion::PostError;
use crate::header::Header;
use crate::messenger::{Message, RendezvousRequest};
use crate::regions::Refusal;
use crate::slab::Key;

/// A peer's number, valid for the messenger's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u32);

impl PeerId {
    /// The number, from 0 in the order in which peers were added or connected.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The peer with this number. Operations return an error if there is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// State of a peer.
pub(crate) struct Peer {
    pub address: Address,
    pub channel: Option<ChannelId>,
    /// It violated the protocol: its messages are ignored until the channel has ended.
    pub is_broken: bool,
    /// Its channel ends once everything that it had sent is received.
    pub is_gone: bool,
    /// It has asked us to use rendezvous for all messages.
    pub rendezvous_only: bool,
    /// A local peer that could not fetch lent messages.
    pub cannot_fetch: bool,
    /// We have asked it to use rendezvous for all messages.
    pub is_throttled: bool,
    /// Posted messages that wait for room or for the connection, in order.
    pub waiting: VecDeque<Message>,
    /// When the first of them became the first.
    pub blocked_since: Duration,
    /// It has made no room since then, and all of them are buffered that can be.
    pub is_buffered: bool,
    /// Work on long messages with it, and that on its reads, each in order; they take turns.
    pub bulk: [VecDeque<Bulk>; 2],
    /// Whose turn it is.
    pub turn: usize,
    /// Messages of this work that the endpoint has.
    pub bulk_in_flight: u16,
    /// It is in the list of peers whose bulk work can continue.
    pub is_pending: bool,
    /// Destination of the message whose next piece is due.
    pub reassembly: Reassembly,
    /// Our unanswered accesses to its memory.
    pub accesses: u16,
    /// Its accesses to our memory whose answer has not left yet: the carrier does not have it, or the endpoint does not
    /// have all of a read's data.
    pub unanswered: u16,
    /// Answers to it that the carrier does not have yet.
    pub answers: u32,
    /// Its write to our memory of which more is due.
    pub write: Option<PeerWrite>,
    /// It is being removed: its state is dropped once its channel has ended.
    pub is_removing: bool,
    /// Its channel was told to close by the removal.
    pub is_closing: bool,
    /// Why a message was lost with the previous channel whose send had completed; the next operation reports it.
    pub lost: Option<Ending>,
}

impl Peer {
    /// Whether there is no work on long messages with it, nor on its reads.
    pub fn has_no_bulk(&self) -> bool {
        self.bulk.iter().all(VecDeque::is_empty)
    }

    fn new(address: Address) -> Self {
        Self {
            address,
            channel: None,
            is_broken: false,
            is_gone: false,
            rendezvous_only: false,
            cannot_fetch: false,
            is_throttled: false,
            waiting: VecDeque::new(),
            blocked_since: Duration::ZERO,
            is_buffered: false,
            bulk: [const { VecDeque::new() }; 2],
            turn: 0,
            bulk_in_flight: 0,
            is_pending: false,
            reassembly: Reassembly::Idle,
            accesses: 0,
            unanswered: 0,
            answers: 0,
            write: None,
            is_removing: false,
            is_closing: false,
            lost: None,
        }
    }

    /// Resets the state of the channel, which has ended; `lost` is set if completed messages were lost with it.
    pub fn disconnected(&mut self, lost: Option<Ending>) {
        let lost = self.lost.or(lost);
        let Self { is_pending, is_removing, .. } = *self;
        *self = Self { is_pending, is_removing, lost, ..Self::new(self.address) };
    }

    /// The peer has opened a channel.
    pub fn reconnected(&mut self, is_local: bool) {
        if self.lost == Some(Ending::PeerClosed) && !is_local {
            // The previous process closed its channel cleanly and missed nothing; this is a new process. On the same
            // host, the kernel closes the pipes of a process that crashes, and a failed message was certainly not
            // received.
            self.lost = None;
        }
    }

    /// Reports a loss once.
    #[inline]
    pub fn take_loss(&mut self) -> Result<(), PostError> {
        let Some(ending) = self.lost else { return Ok(()) };
        self.lost = None;
        Err(PostError::Lost(ending))
    }
}

/// A peer's write to our memory, in progress.
pub(crate) struct PeerWrite {
    /// The peer's number for it.
    pub number: u64,
    /// The region, or why the write is refused.
    pub region: Result<Key, Refusal>,
    /// Start in the region, and length.
    pub offset: u64,
    pub length: u64,
    /// Bytes received, including all of the message in progress.
    pub received: u64,
    pub data: Option<u64>,
}

/// An answer to a peer's message, which the next progress hands to the endpoint.
pub(crate) enum Answer {
    Control(Header),
    /// Previous values that a peer's atomic operation fetches.
    Atomic {
        number: u64,
        bytes: Box<[u8]>,
    },
}

/// Work that is done in parts, between which other messages to the same peer pass.
#[derive(Clone, Copy)]
pub(crate) enum Bulk {
    /// Rendezvous data of a send.
    Data(Key),
    /// Data of a peer's read.
    ReadReply(Key),
    /// Fetches a receive's message, which a local peer lends.
    Fetch { receive: Key, request: RendezvousRequest },
}

/// Destination of the rest of a message that arrives in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reassembly {
    /// The next piece starts a message.
    Idle,
    /// A receive's buffer; offset `head` of the endpoint message belongs at offset `base`.
    Receive { receive: Key, head: u32, base: u64 },
    /// Appended to an unexpected message.
    Unexpected { message: Key, head: u32 },
    /// Registered memory, as the peer's `write` says; offset `head` of the endpoint message belongs at offset `base` of
    /// the write.
    Write { head: u32, base: u64 },
    /// The buffer of our own read or fetching atomic operation.
    Fetch { access: Key, head: u32, base: u64 },
}

/// All peers.
pub(crate) struct Peers {
    /// Indexed by peer number; a removed peer's number is never reused.
    entries: Vec<Option<Box<Peer>>>,
    known: usize,
    by_address: HashMap<Address, PeerId>,
    /// Indexed by channel. An ended channel's entry stays until the index is reused; the id tells them apart.
    by_channel: Vec<Option<(ChannelId, PeerId)>>,
}

impl Peers {
    pub fn new() -> Self {
        Self { entries: Vec::new(), known: 0, by_address: HashMap::new(), by_channel: Vec::new() }
    }

    /// Number of known peers.
    pub fn len(&self) -> usize {
        self.known
    }

    /// The peer at an address, if known.
    pub fn find(&self, address: Address) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// The peer at an address; added if it is not known.
    pub fn get_or_add(&mut self, address: Address) -> PeerId {
        let Self { entries, known, by_address, .. } = self;
        *by_address.entry(address).or_insert_with(|| {
            entries.push(Some(Box::new(Peer::new(address))));
            *known += 1;
            PeerId((entries.len() - 1) as u32)
        })
    }

    /// Detaches a peer from its address, so that the address can get a new peer.
    pub fn forget_address(&mut self, peer: PeerId) {
        if let Some(Some(entry)) = self.entries.get(peer.0 as usize)
            && self.by_address.get(&entry.address) == Some(&peer)
        {
            self.by_address.remove(&entry.address);
        }
    }

    /// Removes a peer; its number stays unused.
    pub fn remove(&mut self, peer: PeerId) {
        self.forget_address(peer);
        if self.entries.get_mut(peer.0 as usize).is_some_and(|entry| entry.take().is_some()) {
            self.known -= 1;
        }
    }

    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&Peer> {
        self.entries.get(peer.0 as usize)?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.entries.get_mut(peer.0 as usize)?.as_deref_mut()
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.entries.iter_mut().flatten().map(|peer| &mut **peer)
    }

    pub fn all(&self) -> impl Iterator<Item = (PeerId, Address)> {
        let entries = self.entries.iter().zip(0..);
        entries.filter_map(|(entry, number)| entry.as_ref().map(|peer| (PeerId(number), peer.address)))
    }

    /// A peer that must exist.
    #[inline]
    pub fn at(&mut self, peer: PeerId) -> &mut Peer {
        self.get_mut(peer).expect("a peer with outstanding messages is not removed")
    }

    #[inline]
    pub fn of_channel(&self, channel: ChannelId) -> Option<PeerId> {
        let (id, peer) = (*self.by_channel.get(channel.index())?)?;
        (id == channel).then_some(peer)
    }

    /// Assigns a channel to a peer.
    pub fn connect(&mut self, peer: PeerId, channel: ChannelId) {
        if self.by_channel.len() <= channel.index() {
            self.by_channel.resize(channel.index() + 1, None);
        }
        self.by_channel[channel.index()] = Some((channel, peer));
        self.at(peer).channel = Some(channel);
    }
}
