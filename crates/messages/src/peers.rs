// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers by number, by address and by channel; what is on its way to each and from it.

use std::collections::{HashMap, VecDeque};

use barewire_endpoint::{Address, ChannelId, Ending};

use crate::completion::PostError;
use crate::header::Header;
use crate::messenger::{Message, Requested};
use crate::regions::Refusal;
use crate::slab::Key;

/// The classes of messages to a peer that the endpoint has: what keeps its order, and data that was asked for, which lets
/// it pass.
pub(crate) const USUAL: usize = 0;
pub(crate) const BACKGROUND: usize = 1;
const CLASSES: usize = 2;
/// The class of messages that wait for the endpoint in the order in which they were posted. Answers are of the usual class,
/// and go first: peers wait for them.
pub(crate) const QUEUED: usize = 2;
pub(crate) const QUEUES: usize = 3;

/// Names a peer of a messenger, for as long as that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u32);

impl PeerId {
    /// Counted from 0 in the order in which peers became known.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The number back. Of one that no peer has, operations say so.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// One peer.
pub(crate) struct Peer {
    pub address: Address,
    pub channel: Option<ChannelId>,
    /// This process has named it, and not only heard from it.
    pub is_named: bool,
    /// The channel has come about.
    pub is_open: bool,
    /// It broke the protocol: nothing of it is believed until the channel has ended.
    pub is_broken: bool,
    /// It asked us to announce everything.
    pub wants_announcements: bool,
    /// Though it is local, it could not fetch what we lent it.
    pub cannot_fetch: bool,
    /// We asked it to.
    pub was_asked_to_announce: bool,
    /// Messages that the endpoint has of ours for it, in each class.
    pub under_way: [u16; CLASSES],
    /// What waits for the endpoint, in each class.
    pub outgoing: [VecDeque<Out>; QUEUES],
    pub in_turn: bool,
    /// Where the message goes of which pieces are to come.
    pub arriving: Arriving,
    /// Our accesses to its memory that are not answered.
    pub accesses: u16,
    /// Its accesses to ours whose answer is not with the endpoint.
    pub serving: u16,
    /// Its write of which more is to come.
    pub writing: Option<Writing>,
    /// A write to it is not wholly with the endpoint: nothing may overtake it.
    pub has_backlog: bool,
    /// It is forgotten when nothing is under way any more.
    pub is_leaving: bool,
    /// A message that was completed as it was copied did not get away.
    pub has_lost: bool,
    /// With the channel before, a message was lost that had been completed; the next operation says so.
    pub lost: Option<Ending>,
}

impl Peer {
    fn new(address: Address) -> Self {
        Self {
            address,
            channel: None,
            is_named: false,
            is_open: false,
            is_broken: false,
            wants_announcements: false,
            cannot_fetch: false,
            was_asked_to_announce: false,
            under_way: [0; CLASSES],
            outgoing: Default::default(),
            in_turn: false,
            arriving: Arriving::Nothing,
            accesses: 0,
            serving: 0,
            writing: None,
            has_backlog: false,
            is_leaving: false,
            has_lost: false,
            lost: None,
        }
    }

    /// Nothing more is said to it. What was posted for it stays, to be told of when its channel ends.
    pub fn forget_answers(&mut self) {
        self.outgoing[USUAL].clear();
        self.outgoing[BACKGROUND].clear();
    }

    /// Its channel is no more, with which perhaps something was lost.
    pub fn disconnected(&mut self, lost: Option<Ending>) {
        let lost = self.lost.or(lost);
        let Self { in_turn, is_leaving, is_named, .. } = *self;
        *self = Self { in_turn, is_leaving, is_named, lost, ..Self::new(self.address) };
    }

    /// The peer has opened a channel, perhaps before the end of the one before is told of.
    pub fn reconnected(&mut self) {
        if std::mem::take(&mut self.has_lost) {
            self.lost = Some(Ending::Restarted);
        } else if self.lost == Some(Ending::PeerClosed) {
            // Who closed in good order had what it wanted, and this is another.
            self.lost = None;
        }
    }

    /// Says once that something was lost.
    #[inline]
    pub fn tell_of_loss(&mut self) -> Result<(), PostError> {
        let Some(ending) = self.lost else { return Ok(()) };
        self.lost = None;
        Err(PostError::Lost(ending))
    }
}

/// A peer's write to memory registered here.
pub(crate) struct Writing {
    /// Its own name for it.
    pub number: u64,
    /// Where, unless it was refused.
    pub region: Result<Key, Refusal>,
    /// Where in the region it begins, and how long it is.
    pub offset: u64,
    pub length: u64,
    /// What has come, with the message that is under way.
    pub placed: u64,
    pub data: Option<u64>,
}

/// What waits for the endpoint to have room.
pub(crate) enum Out {
    /// A message of which nothing was handed on.
    Message(Message),
    Control(Header),
    /// Bytes of a send that were asked for.
    Data(Key),
    /// The rest of a write to the peer's memory.
    Write(Key),
    /// A receive's message, which a local peer lends.
    Fetch {
        receive: Key,
        request: Requested,
    },
    /// Memory that the peer reads.
    Served(Key),
    /// What an atomic operation found.
    Found {
        number: u64,
        bytes: Box<[u8]>,
    },
}

impl Out {
    pub fn class(&self) -> usize {
        match self {
            Self::Message(_) => QUEUED,
            Self::Data(_) | Self::Fetch { .. } | Self::Served(_) => BACKGROUND,
            Self::Control(_) | Self::Write(_) | Self::Found { .. } => USUAL,
        }
    }
}

/// Where the rest of a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arriving {
    /// The next piece begins a message.
    Nothing,
    /// Into a receive's memory: what lies `head` bytes behind the message's beginning belongs to `base`.
    Place { receive: Key, head: u32, base: u64 },
    /// Behind what came before.
    Hold { held: Key, head: u32 },
    /// Into registered memory, as the peer's `writing` says: what lies `head` bytes behind the beginning is `base` bytes
    /// behind the write's.
    Write { head: u32, base: u64 },
    /// Into the memory of an access of ours.
    Returned { access: Key, head: u32, base: u64 },
}

/// All of them.
pub(crate) struct Peers {
    /// By number; one that was removed leaves its number behind, which is never another's.
    entries: Vec<Option<Box<Peer>>>,
    known: usize,
    by_address: HashMap<Address, PeerId>,
    /// By a channel's index; one that has ended stays until its index is used again, as its name is not.
    by_channel: Vec<Option<(ChannelId, PeerId)>>,
}

impl Peers {
    pub fn new() -> Self {
        Self { entries: Vec::new(), known: 0, by_address: HashMap::new(), by_channel: Vec::new() }
    }

    /// Those that are known.
    pub fn len(&self) -> usize {
        self.known
    }

    /// The peer at an address, if it is known.
    pub fn known_at(&self, address: Address) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// The peer at an address, which is known from now on.
    pub fn at_address(&mut self, address: Address) -> PeerId {
        let Self { entries, known, by_address, .. } = self;
        *by_address.entry(address).or_insert_with(|| {
            entries.push(Some(Box::new(Peer::new(address))));
            *known += 1;
            PeerId((entries.len() - 1) as u32)
        })
    }

    /// From now on its address is somebody else's.
    pub fn forget_address(&mut self, peer: PeerId) {
        if let Some(Some(entry)) = self.entries.get(peer.0 as usize)
            && self.by_address.get(&entry.address) == Some(&peer)
        {
            self.by_address.remove(&entry.address);
        }
    }

    /// Nobody has its number from now on.
    pub fn remove(&mut self, peer: PeerId) {
        self.forget_address(peer);
        if self.entries[peer.0 as usize].take().is_some() {
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

    /// One that is known.
    #[inline]
    pub fn at(&mut self, peer: PeerId) -> &mut Peer {
        self.get_mut(peer).expect("a peer that something is under way to is not removed")
    }

    #[inline]
    pub fn of_channel(&self, channel: ChannelId) -> Option<PeerId> {
        let (id, peer) = (*self.by_channel.get(channel.index())?)?;
        (id == channel).then_some(peer)
    }

    /// A channel leads to a peer from now on.
    pub fn connect(&mut self, peer: PeerId, channel: ChannelId) {
        if self.by_channel.len() <= channel.index() {
            self.by_channel.resize(channel.index() + 1, None);
        }
        self.by_channel[channel.index()] = Some((channel, peer));
        self.at(peer).channel = Some(channel);
    }
}
