// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Succession of channels to the same peer (docs/decisions/0026).

use barewire_link::Link;

use super::{Endpoint, Event};
use crate::address::Address;
use crate::channel::ChannelId;
use crate::mutant::mutant;

impl<L: Link> Endpoint<L> {
    /// Reports a channel that a peer has opened, but not before the end of its predecessor. Until then a sink that
    /// keeps state by peer refuses the pieces of a channel that it does not know: it could not tell the two channels
    /// apart, and would join parts of both into one message.
    pub(super) fn report_opened(&mut self, channel: ChannelId, peer: Address) {
        self.unreported.push((channel, peer));
        self.report_successors();
    }

    pub(super) fn report_successors(&mut self) {
        let mut position = 0;
        while let Some(&(channel, peer)) = self.unreported.get(position) {
            if self.has_predecessor(peer) {
                position += 1;
            } else {
                self.unreported.remove(position);
                self.events.push_back(Event::Opened { channel, peer });
                // Until now the sink has refused its pieces.
                self.offer_again();
            }
        }
    }

    /// Whether an earlier channel to the peer was reported and has ended, but its end was not reported because the sink
    /// has not taken all its data.
    pub(super) fn has_predecessor(&mut self, peer: Address) -> bool {
        if mutant!(self.config, SuccessorAtOnce) {
            return false;
        }
        let Self { parked_channels, local_peers, channels, unreported, .. } = self;
        let current = channels.find(peer);
        parked_channels.iter().chain(&*local_peers).any(|index| {
            let id = channels.id(*index);
            let is_ending = channels.at(*index).is_some_and(|channel| channel.peer == peer && channel.ending.is_some());
            is_ending && current != Some(*index) && unreported.iter().all(|(unreported, _)| *unreported != id)
        })
    }
}
