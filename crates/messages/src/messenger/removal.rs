// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removal of peers.

use barewire_link::Link;

use super::{Messenger, State};
use crate::completion::PostError;
use crate::peers::{Peer, PeerId};

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
        if when == Removal::Abort {
            // Ignores its further messages, and sends none that still waits for a channel.
            self.state.peers.at(peer).is_broken = true;
            if let Some(channel) = self.state.peers.at(peer).channel {
                self.state.discard_answers(peer);
                self.endpoint.abort(channel, barewire_endpoint::Ending::Closed);
            }
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
                if !self.state.peers.at(peer).is_closing && self.state.is_idle(peer) {
                    self.state.peers.at(peer).is_closing = true;
                    self.endpoint.close(channel);
                }
                continue;
            }
            // Messages wait until the channel of the previous peer with this address has ended. They fail if the next
            // peer has a channel already, because an operation was posted to it: that channel may never end.
            let Peer { is_broken, waiting, address, .. } = self.state.peers.at(peer);
            let (is_done, address) = (*is_broken || waiting.is_empty(), *address);
            let peers = &mut self.state.peers;
            if !is_done && peers.find(address).is_none_or(|next| peers.at(next).channel.is_none()) {
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
        let has_none = |peer: &Peer| peer.waiting.is_empty() && peer.has_no_bulk() && peer.accesses == 0;
        self.peers.get(peer).is_some_and(has_none)
            && self.answers.iter().all(|(to, _)| *to != peer)
            && self.sends.keys_where(|send| send.peer == peer).is_empty()
    }

    /// Removes a peer without a channel.
    fn remove(&mut self, peer: PeerId) {
        self.fail_waiting(peer, barewire_endpoint::Ending::Closed);
        self.fail_receives(peer, barewire_endpoint::Ending::Closed);
        for key in self.unexpected.keys_where(|message| message.envelope.source == peer) {
            self.lose_unexpected(key, barewire_endpoint::Ending::Closed);
        }
        self.pending.retain(|pending| *pending != peer);
        self.retried.retain(|retried| *retried != peer);
        self.broken.retain(|broken| *broken != peer);
        self.peers.remove(peer);
    }
}
