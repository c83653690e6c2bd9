// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long messages between processes of one host: the receiver copies them once, straight from the sender's memory.
//!
//! The request carries the message's address, and the sender leaves the memory alone until it is answered. Once the
//! message is matched, the receiver copies it and answers that it wants no bytes. Where the system forbids that
//! (another user, a hardened kernel, a container without the privilege), the receiver asks for the bytes as it would
//! over the wire, and the sender no longer offers its memory to that peer.

use std::slice;

use barewire_endpoint::ChannelId;
use barewire_link::Link;

use super::receive::{Receive, RendezvousRequest, Stage};
use super::{Advance, Messenger, State};
use crate::header::Header;
use crate::peers::PeerId;
use crate::slab::Key;

/// Bytes to fetch before yielding to other work: some 100 µs.
pub(super) const FETCH_BYTES: u64 = 1 << 20;

impl<L: Link> Messenger<L> {
    /// Whether a peer fetches long messages itself.
    #[inline]
    pub(super) fn lends_to(&mut self, to: PeerId, channel: ChannelId) -> bool {
        self.state.config.fetched_bytes > 0
            && !self.state.peers.at(to).cannot_fetch
            && self.endpoint.is_local_channel(channel)
    }

    /// Fetches some of a receive's message.
    pub(super) fn fetch(&mut self, from: PeerId, receive: Key, request: RendezvousRequest) -> Advance {
        let Self { endpoint, state, .. } = self;
        let State { peers, sends, receives, fetched, .. } = state;
        let (Some(address), number) = (request.address, request.number) else { return Advance::Done };
        let Some(channel) = peers.at(from).channel else { return Advance::Done };
        let Some(Receive { target, stage: Stage::Matched(matched), .. }) = receives.get(receive) else {
            return Advance::Done;
        };
        // Messages to itself are copied directly.
        let own = if peers.at(from).address == endpoint.address() { sends.get(number) } else { None };
        let end = matched.wanted.min(matched.received + FETCH_BYTES.saturating_sub(*fetched));
        while matched.received < end {
            let Some(part) = target.part_at(matched.received) else { break };
            let bytes = part.bytes.min((end - matched.received) as usize);
            let is_fetched = match &own {
                // SAFETY: inside a part of the target, which the receive's caller lent until it completes.
                Some(send) => send.copy(matched.received, unsafe { slice::from_raw_parts_mut(part.address, bytes) }),
                // SAFETY: as above.
                None => unsafe { endpoint.fetch(channel, address.wrapping_add(matched.received), part.address, bytes) },
            };
            if !is_fetched {
                // Asks for all of it as over the wire. If the peer is gone, the end of its channel follows.
                matched.received = 0;
                let answer = Header::Answer { number, receive, wanted: matched.wanted };
                state.reply(from, answer);
                return Advance::Done;
            }
            matched.received += bytes as u64;
            *fetched += bytes as u64;
        }
        if matched.received < matched.wanted {
            return Advance::Yielded;
        }
        // Returns the memory to the sender.
        state.reply(from, Header::Answer { number, receive: 0, wanted: 0 });
        state.finish_receive(receive);
        Advance::Done
    }
}
