// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removal of peers.

use std::collections::VecDeque;

use barewire_link::Link;

use super::{Messenger, State};
use crate::completion::PostError;
use crate::peers::PeerId;

/// When a peer is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Once all operations posted to it have ended, except for receives that name it.
    Drain,
    /// At once: outstanding operations fail.
    Abort,
}

impl<L: Link> Messenger<L> {
    /// Removes a peer. Its number becomes invalid at once and is never reused; its address can get a new peer. Its
    /// channel ends as `when` says. Then operations with it that are still outstanding fail, and its unexpected
    /// messages are discarded.
    ///
    /// # Errors
    /// [`PostError::NoSuchPeer`].
    pub fn remove_peer(&mut self, peer: PeerId, when: Removal) -> Result<(), PostError> {
        self.state.check_known(peer)?;
        self.state.peers.at(peer).is_removing = true;
        self.state.peers.forget_address(peer);
        self.state.removing.push(peer);
        if when == Removal::Abort
            && let Some(channel) = self.state.peers.at(peer).channel
        {
            let entry = self.state.peers.at(peer);
            entry.discard_answers();
            // Ignores its further messages.
            entry.is_broken = true;
            self.endpoint.abort(channel, barewire_endpoint::Ending::Closed);
        }
        self.finish_removals();
        Ok(())
    }

    /// Completes removals whose peers are idle or disconnected.
    #[cold]
    pub(super) fn finish_removals(&mut self) {
        for index in (0..self.state.removing.len()).rev() {
            let peer = self.state.removing[index];
            if let Some(channel) = self.state.peers.at(peer).channel {
                if self.state.is_idle(peer) {
                    self.endpoint.close(channel);
                }
                continue;
            }
            self.state.removing.swap_remove(index);
            self.state.remove(peer);
        }
    }
}

impl State {
    /// Whether no operation posted to a peer, and no answer to it, is outstanding.
    fn is_idle(&self, peer: PeerId) -> bool {
        let has_none =
            self.peers.get(peer).is_some_and(|peer| peer.outgoing.iter().all(VecDeque::is_empty) && peer.accesses == 0);
        has_none && self.sends.keys_where(|send| send.peer == peer).is_empty()
    }

    /// Removes a peer without a channel.
    fn remove(&mut self, peer: PeerId) {
        self.fail_queued(peer, barewire_endpoint::Ending::Closed);
        self.fail_receives(peer, barewire_endpoint::Ending::Closed);
        for key in self.unexpected.keys_where(|message| message.envelope.source == peer) {
            self.lose_unexpected(key, barewire_endpoint::Ending::Closed);
        }
        self.pending.retain(|pending| *pending != peer);
        self.broken.retain(|broken| *broken != peer);
        self.peers.remove(peer);
    }
}
