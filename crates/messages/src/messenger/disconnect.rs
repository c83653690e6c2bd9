// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a channel: operations with its peer fail, and no others.

use barewire_endpoint::{ChannelId, Ending};

use super::State;
use super::receive::{Content, Stage};
use super::send::SendOptions;
use crate::completion::{Failure, Operation};
use crate::mutant::mutant;
use crate::peers::PeerId;

impl State {
    /// Called after the endpoint has reported all messages of the channel; `has_lost` as in its event.
    pub(super) fn channel_ended(&mut self, channel: ChannelId, ending: Ending, has_lost: bool) {
        let Some(id) = self.peers.of_channel(channel) else { return };
        if self.peers.get(id).is_none_or(|peer| peer.channel != Some(channel)) {
            return;
        }
        self.discard_answers(id);
        let has_lost = self.fail_waiting(id, ending)
            || has_lost
            || !self.sends.keys_where(|send| send.peer == id && send.is_completed).is_empty();
        let peer = self.peers.at(id);
        let ending = if peer.is_broken && !peer.is_removing { Ending::Violation } else { ending };
        let is_reported = ending != Ending::Closed && !mutant!(self, LosesSilently);
        let lost = (has_lost && is_reported).then_some(ending);
        peer.disconnected(lost);
        // A peer that closes cleanly misses nothing.
        if lost.is_some_and(|ending| ending != Ending::PeerClosed) {
            self.fail(0, 0, Operation::Send, Failure::Peer { peer: id, ending });
        }
        self.throttled.retain(|throttled| *throttled != id);
        self.fail_sends(id, ending);
        self.fail_accesses(id, Failure::Peer { peer: id, ending });
        self.drop_peer_reads(id);
        self.fail_receives(id, ending);
        self.lose_incomplete(id, ending);
    }

    /// Fails posted messages that still wait. Returns whether there was one whose send had completed.
    pub(super) fn fail_waiting(&mut self, id: PeerId, ending: Ending) -> bool {
        let mut has_lost = false;
        for message in std::mem::take(&mut self.peers.at(id).waiting) {
            self.queued -= 1;
            has_lost |= message.is_completed;
            if !message.is_completed {
                let SendOptions { context, note, .. } = message.options;
                self.fail(context, note, Operation::Send, Failure::Peer { peer: id, ending });
            }
        }
        has_lost
    }

    fn fail_sends(&mut self, peer: PeerId, ending: Ending) {
        for key in self.sends.keys_where(|send| send.peer == peer) {
            let Some(send) = self.sends.remove(key) else { continue };
            debug_assert_eq!(send.in_flight, 0, "the endpoint reports messages before their channel's end");
            if send.is_completed {
                continue;
            }
            self.fail(send.options.context, send.options.note, Operation::Send, Failure::Peer { peer, ending });
        }
    }

    /// Fails receives that matched a message of the peer, or that accept no other source.
    pub(super) fn fail_receives(&mut self, peer: PeerId, ending: Ending) {
        let affected = self.receives.keys_where(|receive| match &receive.stage {
            Stage::Matched(matched) => matched.envelope.source == peer,
            Stage::Posted { selector, .. } | Stage::Multi { selector, .. } => selector.source() == Some(peer),
        });
        for key in affected {
            let failure = Failure::Peer { peer, ending };
            match self.receives.get(key).map(|receive| &receive.stage) {
                Some(Stage::Matched(_)) => self.fail_receive(key, failure),
                Some(_) => self.fail_posted(key, failure),
                None => {}
            }
        }
    }

    /// Complete unexpected messages stay, but their sender no longer awaits a confirmation; incomplete ones are lost.
    fn lose_incomplete(&mut self, peer: PeerId, ending: Ending) {
        for key in self.unexpected.keys_where(|message| message.envelope.source == peer) {
            let Some(message) = self.unexpected.get(key) else { continue };
            match &mut message.content {
                Content::Eager { bytes, confirm } if bytes.len() as u64 == message.envelope.length => *confirm = None,
                Content::Eager { .. } | Content::Request { .. } => self.lose_unexpected(key, ending),
                Content::Lost(_) => {}
            }
        }
    }
}
