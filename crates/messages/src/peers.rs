// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers by number, by address and by channel; what is on its way to each and from it.

use std::collections::{HashMap, VecDeque};

use barewire_endpoint::{Address, ChannelId};

use crate::header::Header;
use crate::slab::Key;

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
    /// The channel has come about.
    pub is_open: bool,
    /// It broke the protocol: nothing of it is believed until the channel has ended.
    pub is_broken: bool,
    /// It asked us to announce everything.
    pub wants_announcements: bool,
    /// We asked it to.
    pub was_asked_to_announce: bool,
    /// Messages that the endpoint has of ours for it.
    pub under_way: u16,
    /// What waits for the endpoint.
    pub outgoing: VecDeque<Out>,
    pub in_turn: bool,
    /// Where the message goes of which pieces are to come.
    pub arriving: Arriving,
}

/// What waits for the endpoint to have room.
pub(crate) enum Out {
    Control(Header),
    /// Bytes of a send that were asked for.
    Data(Key),
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
}

/// All of them.
pub(crate) struct Peers {
    entries: Vec<Peer>,
    by_address: HashMap<Address, PeerId>,
    /// By a channel's index; one that has ended stays until its index is used again, as its name is not.
    by_channel: Vec<Option<(ChannelId, PeerId)>>,
}

impl Peers {
    pub fn new() -> Self {
        Self { entries: Vec::new(), by_address: HashMap::new(), by_channel: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The peer at an address, if it is known.
    pub fn known_at(&self, address: Address) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// The peer at an address, which is known from now on.
    pub fn at_address(&mut self, address: Address) -> PeerId {
        let Self { entries, by_address, .. } = self;
        *by_address.entry(address).or_insert_with(|| {
            entries.push(Peer {
                address,
                channel: None,
                is_open: false,
                is_broken: false,
                wants_announcements: false,
                was_asked_to_announce: false,
                under_way: 0,
                outgoing: VecDeque::new(),
                in_turn: false,
                arriving: Arriving::Nothing,
            });
            PeerId((entries.len() - 1) as u32)
        })
    }

    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&Peer> {
        self.entries.get(peer.0 as usize)
    }

    /// One that is known.
    #[inline]
    pub fn at(&mut self, peer: PeerId) -> &mut Peer {
        &mut self.entries[peer.0 as usize]
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
