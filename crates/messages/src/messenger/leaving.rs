// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that are forgotten.

use std::collections::VecDeque;

use barewire_link::Link;

use super::{Messenger, State};
use crate::completion::PostError;
use crate::peers::PeerId;

/// When a peer is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// As soon as what was posted for it has ended; posted receives that name it do not count.
    WhenDone,
    /// At once: what is under way fails.
    AtOnce,
}

impl<L: Link> Messenger<L> {
    /// Forgets a peer: nothing can be posted for its number from now on, and no other peer ever gets that. Its channel
    /// ends when `when` says, and with it all operations that still concern it; its messages that nobody has received
    /// are thrown away. At its address there is another peer from then on.
    ///
    /// # Errors
    /// [`PostError::NoSuchPeer`].
    pub fn remove_peer(&mut self, peer: PeerId, when: Removal) -> Result<(), PostError> {
        self.state.known(peer)?;
        self.state.peers.at(peer).is_leaving = true;
        self.state.peers.forget_address(peer);
        self.state.leaving.push(peer);
        if when == Removal::AtOnce
            && let Some(channel) = self.state.peers.at(peer).channel
        {
            let entry = self.state.peers.at(peer);
            entry.forget_answers();
            // Nothing of it is looked at any more.
            entry.is_broken = true;
            self.endpoint.abort(channel, barewire_endpoint::Ending::Closed);
        }
        self.see_off();
        Ok(())
    }

    /// Goes on with those who are leaving.
    #[cold]
    pub(super) fn see_off(&mut self) {
        for place in (0..self.state.leaving.len()).rev() {
            let peer = self.state.leaving[place];
            if let Some(channel) = self.state.peers.at(peer).channel {
                if self.state.is_idle(peer) {
                    self.endpoint.close(channel);
                }
                continue;
            }
            self.state.leaving.swap_remove(place);
            self.state.remove(peer);
        }
    }
}

impl State {
    /// Nothing that was posted for a peer is under way, nor an answer to it.
    fn is_idle(&self, peer: PeerId) -> bool {
        let has_none =
            self.peers.get(peer).is_some_and(|peer| peer.outgoing.iter().all(VecDeque::is_empty) && peer.accesses == 0);
        has_none && self.sends.keys_where(|send| send.peer == peer).is_empty()
    }

    /// Its channel has ended, or there never was one.
    fn remove(&mut self, peer: PeerId) {
        self.fail_queued(peer, barewire_endpoint::Ending::Closed);
        self.fail_receives(peer, barewire_endpoint::Ending::Closed);
        for key in self.held.keys_where(|held| held.envelope.source == peer) {
            self.lose(key, barewire_endpoint::Ending::Closed);
        }
        self.turns.retain(|turn| *turn != peer);
        self.broken.retain(|broken| *broken != peer);
        self.peers.remove(peer);
    }
}
