// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long messages between processes of one host: the receiver fetches them from where they lie, in one copy.
//!
//! The sender announces where its message lies, and leaves it alone until it is answered. The receiver copies it from
//! there once it is matched, and answers that it wants no bytes. Where the system does not let it (another user, a
//! hardened kernel, a container without the right), it asks for the bytes as it would over the wire, and the sender
//! lends that peer no more.

use std::slice;

use barewire_endpoint::ChannelId;
use barewire_link::Link;

use super::receive::{Receive, Requested, Stage};
use super::{Messenger, State};
use crate::header::Header;
use crate::peers::{Out, PeerId};
use crate::slab::Key;

/// Bytes that are fetched before others have their turn: some 100 µs.
const BYTES_AT_ONCE: u64 = 1 << 20;

impl<L: Link> Messenger<L> {
    /// Whether a peer fetches long messages itself.
    #[inline]
    pub(super) fn lends_to(&mut self, to: PeerId, channel: ChannelId) -> bool {
        self.state.config.fetched_bytes > 0
            && !self.state.peers.at(to).cannot_fetch
            && self.endpoint.is_local_channel(channel)
    }

    /// Fetches some of a receive's message. False if something is left.
    pub(super) fn fetch(&mut self, from: PeerId, receive: Key, request: Requested) -> bool {
        let Self { endpoint, state, .. } = self;
        let State { peers, sends, receives, .. } = state;
        let (Some(address), number) = (request.address, request.number) else { return true };
        let Some(channel) = peers.at(from).channel else { return true };
        let Some(Receive { target, stage: Stage::Matched(matched), .. }) = receives.get(receive) else { return true };
        // What this endpoint sends to itself it knows where to find.
        let own = if peers.at(from).address == endpoint.address() { sends.get(number) } else { None };
        let end = matched.wanted.min(matched.placed + BYTES_AT_ONCE);
        while matched.placed < end {
            let Some(part) = target.part_at(matched.placed) else { break };
            let bytes = part.bytes.min((end - matched.placed) as usize);
            let is_fetched = match &own {
                // SAFETY: inside a part of the target, which whoever posted the receive lent us until it is completed.
                Some(send) => send.copy(matched.placed, unsafe { slice::from_raw_parts_mut(part.address, bytes) }),
                // SAFETY: as above.
                None => unsafe { endpoint.fetch(channel, address.wrapping_add(matched.placed), part.address, bytes) },
            };
            if !is_fetched {
                // All of it as over the wire. If the peer is gone, the end of its channel follows.
                matched.placed = 0;
                let answer = Header::Answer { number, receive, wanted: matched.wanted };
                state.enqueue(from, Out::Control(answer));
                return true;
            }
            matched.placed += bytes as u64;
        }
        if matched.placed < matched.wanted {
            return false;
        }
        // The sender has its memory again.
        state.enqueue(from, Out::Control(Header::Answer { number, receive: 0, wanted: 0 }));
        state.received(receive);
        true
    }
}
