// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine's events: connections that open and end, frames that were acknowledged or given up.

use barewire_link::Link;
use barewire_llc::{Cause, ConnectionEvent, ConnectionHandle, DatagramOutcome, Peer, StationEvent};

use super::send::Owner;
use super::{Endpoint, Event};
use crate::address::Address;
use crate::channel::{Carrier, Channel};
use crate::descriptors::Content;
use crate::error::Ending;
use crate::mutant::mutant;
use crate::sink::Sink;

impl<L: Link> Endpoint<L> {
    /// Processes the engine's events.
    pub(super) fn process_events(&mut self, sink: &mut impl Sink) {
        while let Some(event) = self.port.station.poll_event() {
            match event {
                StationEvent::Connection(handle, ConnectionEvent::Acknowledged(slot)) => {
                    self.slot_done(handle, slot, true);
                }
                StationEvent::Connection(handle, ConnectionEvent::Dropped(slot)) => self.slot_done(handle, slot, false),
                StationEvent::Connection(handle, ConnectionEvent::Incoming) => self.accept(handle),
                StationEvent::Connection(handle, ConnectionEvent::Connected) => {
                    let Some(index) = self.channels.find_connection(handle) else { continue };
                    if let Some(Channel { carrier: Carrier::Wire { is_open, .. }, .. }) = self.channels.at(index) {
                        *is_open = true;
                    }
                    self.mark_ready(index);
                }
                StationEvent::Connection(handle, ConnectionEvent::Reset(cause)) => self.reset(handle, cause, sink),
                StationEvent::Connection(_, ConnectionEvent::ResetDone) => {}
                StationEvent::Connection(handle, ConnectionEvent::Disconnected(cause)) => {
                    if let Some(connection) = self.port.station.connection(handle) {
                        self.repeated += connection.counters().information_repeated;
                        self.duplicate += connection.counters().received_again;
                    }
                    let Some(index) = self.channels.find_connection(handle) else { continue };
                    let carrier = self.channels.at(index).map(|channel| &channel.carrier);
                    let ending = match (Ending::from(cause), carrier) {
                        (Ending::NoAnswer, Some(Carrier::Wire { is_open: false, .. })) => Ending::NeverAnswered,
                        (ending, _) => ending,
                    };
                    self.retire(index, ending, sink);
                }
                StationEvent::Datagram(_, slot, outcome) => {
                    self.port.slots.free(slot);
                    let Owner::Message(id) = self.owners[usize::from(slot)] else { continue };
                    let Some(context) = self.descriptors.remove(id).and_then(|message| message.report.context()) else {
                        continue;
                    };
                    self.events.push_back(match outcome {
                        DatagramOutcome::Answered(status) if status.is_accepted() => Event::Sent { context },
                        DatagramOutcome::Answered(_) => Event::Failed { context, ending: Ending::Refused },
                        DatagramOutcome::NoAnswer => Event::Failed { context, ending: Ending::NoAnswer },
                    });
                }
            }
        }
        if !self.pending.is_empty() {
            self.connect_pending(sink);
        }
    }

    pub(super) fn connect_pending(&mut self, sink: &mut impl Sink) {
        let now = self.port.now();
        for position in (0..self.pending.len()).rev() {
            let index = self.pending[position];
            let Some(channel) = self.channels.at(index) else { continue };
            if channel.is_closing && channel.queue.is_empty() {
                self.end(index, Ending::Closed, sink);
                continue;
            }
            let peer = Peer { local: self.address.sap, mac: channel.peer.mac, remote: channel.peer.sap };
            let key = self.config.key_to(channel.peer);
            if let Ok(handle) = self.port.station.connect(peer, key, now) {
                self.pending.swap_remove(position);
                self.channels.set_connection(index, handle, false);
            }
        }
    }

    /// Handles a peer's connection request.
    pub(super) fn accept(&mut self, handle: ConnectionHandle) {
        let now = self.port.now();
        let Some(Peer { mac, remote, .. }) = self.port.station.peer(handle) else { return };
        let cookie = if self.config.framing.token.is_none() { self.port.station.peer_key(handle) } else { 0 };
        let peer = Address { cookie, ..Address::new(mac, remote) };
        let existing = self.channels.find(peer);
        if let Some(index) = existing
            && self.pending.contains(&index)
            && self.port.station.accept(handle, now)
        {
            self.pending.retain(|pending| *pending != index);
            self.channels.set_connection(index, handle, true);
            self.mark_ready(index);
            return;
        }
        if existing.is_some() || self.channels.is_full() || !self.port.station.accept(handle, now) {
            self.port.station.disconnect(handle, now);
            return;
        }
        if let Some(channel) = self.channels.add(Channel::new(peer, Carrier::Wire { handle, is_open: true })) {
            self.report_opened(channel, peer);
        }
    }

    /// Messages in flight are lost, so the channel ends. A reset by the peer means that it was restarted and asks for a
    /// new channel. An endpoint that accepts takes the reset as that request: a peer is never asked to repeat it.
    pub(super) fn reset(&mut self, handle: ConnectionHandle, cause: Cause, sink: &mut impl Sink) {
        let now = self.port.now();
        // A successor of the peer at its address repeats its request, and gets a connection of its own.
        let is_by_successor =
            self.port.station.connection(handle).is_some_and(|connection| connection.is_reset_by_successor());
        if cause != Cause::PeerReset || !self.config.accepts || is_by_successor {
            self.abort_connection(handle, cause.into());
            return;
        }
        let Some(index) = self.channels.find_connection(handle) else { return };
        let Some(peer) = self.channels.at(index).map(|channel| channel.peer) else { return };
        self.retire(index, cause.into(), sink);
        self.port.station.accept_reset(handle, now);
        if let Some(channel) = self.channels.add(Channel::new(peer, Carrier::Wire { handle, is_open: true })) {
            self.report_opened(channel, peer);
        }
    }

    /// Aborts a connection. The engine reports its end.
    pub(super) fn abort_connection(&mut self, handle: ConnectionHandle, ending: Ending) {
        if let Some(channel) = self.channels.find_connection(handle).and_then(|index| self.channels.at(index)) {
            channel.ending = Some(ending);
        }
        let now = self.port.now();
        self.port.station.abort(handle, now);
    }

    /// Handles a slot that the engine no longer needs.
    #[inline]
    pub(super) fn slot_done(&mut self, handle: ConnectionHandle, slot: crate::Slot, is_acknowledged: bool) {
        self.port.slots.free(slot);
        let id = match self.owners[usize::from(slot)] {
            Owner::Message(id) => id,
            Owner::Counted if !is_acknowledged => {
                let index = self.channels.find_connection(handle);
                if let Some(channel) = index.and_then(|index| self.channels.at(index)) {
                    channel.has_lost = true;
                }
                return;
            }
            Owner::Counted | Owner::Nobody => return,
        };
        let Some(message) = self.descriptors.at(id) else { return };
        message.outstanding -= 1;
        message.is_lost |= !is_acknowledged;
        if message.outstanding == 0 && !message.is_lost && matches!(message.content, Content::Submitted) {
            self.events.extend(message.report.context().map(|context| Event::Sent { context }));
            self.descriptors.remove(id);
        }
    }

    /// Handles the end of a peer's carrier: its messages fail at once. The channel ends when the sink has taken all
    /// received data, which was acknowledged.
    pub(super) fn retire(&mut self, index: u16, ending: Ending, sink: &mut impl Sink) {
        match self.channels.at(index) {
            Some(channel) if !channel.parked.is_empty() && !channel.is_closing => {
                let ending = *channel.ending.get_or_insert(ending);
                self.channels.retire(index, ending);
                self.fail_messages(index, ending);
                self.pending_events += u32::from(self.offer_parked(sink));
            }
            _ => self.end(index, ending, sink),
        }
    }

    /// Removes a channel; its messages are reported first, then its end.
    pub(super) fn end(&mut self, index: u16, ending: Ending, sink: &mut impl Sink) {
        let id = self.channels.id(index);
        let Some(ending) = self.channels.at(index).map(|channel| channel.ending.unwrap_or(ending)) else { return };
        self.fail_messages(index, ending);
        let Some(Channel { peer, has_lost, .. }) = self.channels.remove(index) else { return };
        self.parked_channels.retain(|parked| *parked != index);
        self.local_peers.retain(|local_peer| *local_peer != index);
        self.ready.retain(|ready| *ready != index);
        self.pending.retain(|pending| *pending != index);
        if self.unreported.iter().any(|(unreported, _)| *unreported == id) {
            self.unreported.retain(|(unreported, _)| *unreported != id);
            return;
        }
        sink.ended(id);
        self.events.push_back(Event::Ended { channel: id, peer, ending, has_lost });
        if !self.unreported.is_empty() {
            self.report_successors();
        }
    }

    /// Drops the messages of a channel, and reports those that are to be reported.
    pub(super) fn fail_messages(&mut self, index: u16, ending: Ending) {
        let mut has_lost = false;
        for message in self.descriptors.of_channel(index) {
            let Some(message) = self.descriptors.remove(message) else { continue };
            debug_assert_eq!(message.outstanding, 0, "the engine has released all of its slots");
            let is_failed = !mutant!(self.config, FailedIsSent);
            match message.report.context() {
                Some(context) if is_failed => self.events.push_back(Event::Failed { context, ending }),
                Some(context) => self.events.push_back(Event::Sent { context }),
                None => has_lost |= message.report.counts_loss(),
            }
        }
        if let Some(channel) = self.channels.at(index) {
            channel.queue.clear();
            channel.has_lost |= has_lost;
        }
    }
}
