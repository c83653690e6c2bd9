// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a channel: what concerned its peer fails, and nothing else does.

use barewire_endpoint::{ChannelId, Ending};

use super::State;
use super::receive::{Content, Stage};
use super::send::SendOptions;
use crate::completion::{Failure, Operation};
use crate::mutant::mutant;
use crate::peers::{Out, PeerId, QUEUED};

impl State {
    /// The endpoint has told of all messages of this channel before.
    pub(super) fn channel_ended(&mut self, channel: ChannelId, ending: Ending) {
        let Some(id) = self.peers.of_channel(channel) else { return };
        if self.peers.get(id).is_none_or(|peer| peer.channel != Some(channel)) {
            return;
        }
        self.fail_queued(id, ending);
        let peer = self.peers.at(id);
        let ending = if peer.is_broken && !peer.is_leaving { Ending::Violation } else { ending };
        let is_told = ending != Ending::Closed && !mutant!(self, LosesSilently);
        let lost = (peer.has_lost && is_told).then_some(ending);
        peer.disconnected(lost);
        // Who closes in good order has what it wanted.
        if lost.is_some_and(|ending| ending != Ending::PeerClosed) {
            self.fail(0, 0, Operation::Send, Failure::Peer { peer: id, ending });
        }
        self.asked_to_announce.retain(|asked| *asked != id);
        self.fail_sends(id, ending);
        self.fail_accesses(id, Failure::Peer { peer: id, ending });
        self.stop_serving(id);
        self.fail_receives(id, ending);
        self.lose_messages(id, ending);
    }

    /// What waited to be handed on, and what was completed before all of it was.
    pub(super) fn fail_queued(&mut self, id: PeerId, ending: Ending) {
        let queue = std::mem::take(&mut self.peers.at(id).outgoing[QUEUED]);
        let mut has_lost =
            self.sends.keys_where(|send| send.peer == id && send.is_completed).into_iter().next().is_some();
        for out in queue {
            let Out::Message(message) = out else { continue };
            self.queued -= 1;
            has_lost |= message.is_completed;
            if !message.is_completed {
                let SendOptions { context, note, .. } = message.options;
                self.fail(context, note, Operation::Send, Failure::Peer { peer: id, ending });
            }
        }
        self.peers.at(id).has_lost |= has_lost;
    }

    fn fail_sends(&mut self, peer: PeerId, ending: Ending) {
        for key in self.sends.keys_where(|send| send.peer == peer) {
            let Some(send) = self.sends.remove(key) else { continue };
            debug_assert_eq!(send.under_way, 0, "the endpoint tells of messages before their channel");
            if send.is_completed {
                continue;
            }
            self.fail(send.options.context, send.options.note, Operation::Send, Failure::Peer { peer, ending });
        }
    }

    /// Those that have a message of the peer's, and those that wait for nobody else's.
    pub(super) fn fail_receives(&mut self, peer: PeerId, ending: Ending) {
        let concerned = self.receives.keys_where(|receive| match &receive.stage {
            Stage::Matched(matched) => matched.envelope.source == peer,
            Stage::Posted { wanted, .. } | Stage::Many { wanted, .. } => wanted.source() == Some(peer),
        });
        for key in concerned {
            let failure = Failure::Peer { peer, ending };
            match self.receives.get(key).map(|receive| &receive.stage) {
                Some(Stage::Matched(_)) => self.receive_failed(key, failure),
                Some(_) => self.take_back(key, failure),
                None => {}
            }
        }
    }

    /// What is here stays; what is not will never come.
    fn lose_messages(&mut self, peer: PeerId, ending: Ending) {
        let lost = self.held.keys_where(|held| {
            held.envelope.source == peer
                && match &held.content {
                    Content::Eager { bytes, .. } => (bytes.len() as u64) < held.envelope.length,
                    Content::Request { .. } => true,
                    Content::Lost(_) => false,
                }
        });
        for key in lost {
            self.lose(key, ending);
        }
    }
}
