// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A peer's channels one after the other (docs/decisions/0026).

use barewire_link::Link;

use super::{Endpoint, Event};
use crate::address::Address;
use crate::channel::ChannelId;
use crate::mutant::mutant;

impl<L: Link> Endpoint<L> {
    /// Tells of a channel that a peer has opened; not before the end of the one before it. Until then the sink, which
    /// does not know it, takes nothing of it: what came through the two would become one message.
    pub(super) fn tell_opened(&mut self, channel: ChannelId, peer: Address) {
        self.untold.push((channel, peer));
        self.tell_successors();
    }

    pub(super) fn tell_successors(&mut self) {
        let mut place = 0;
        while let Some(&(channel, peer)) = self.untold.get(place) {
            if self.has_predecessor(peer) {
                place += 1;
            } else {
                self.untold.remove(place);
                self.events.push_back(Event::Opened { channel, peer });
            }
        }
    }

    /// Whether a channel to a peer is over that was told of, and its end was not: the sink has not taken all that came.
    pub(super) fn has_predecessor(&mut self, peer: Address) -> bool {
        if mutant!(self.config, SuccessorAtOnce) {
            return false;
        }
        let Self { waiting, local_peers, channels, untold, .. } = self;
        let current = channels.to(peer);
        waiting.iter().chain(&*local_peers).any(|index| {
            let id = channels.id(*index);
            let is_over = channels.at(*index).is_some_and(|one| one.peer == peer && one.ending.is_some());
            is_over && current != Some(*index) && untold.iter().all(|(untold, _)| *untold != id)
        })
    }
}
