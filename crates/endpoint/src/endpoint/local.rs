// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers on this host, or in this process: through shared memory, without a frame.

use std::time::Duration;

use barewire_link::Link;
use barewire_llc::Instant;
use barewire_shm::{Awaited, Fault, Listener, Pipe, connect};

use super::receive::{Given, give};
use super::{BUSY_TURNS_MAX, Endpoint, Event, LOOK_ROUND_EVERY};
use crate::address::Address;
use crate::channel::{Carrier, Channel, ChannelId};
use crate::error::{Ending, EndpointError, SendError};
use crate::sink::{Class, Sink};

/// What a pipe's message is: its first octet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A fragment of a channel's message.
    Fragment = 0,
    /// A datagram of either class.
    Unreliable = 1,
    Acknowledged = 3,
}

/// Messages taken from a pipe before others have their turn.
const MESSAGES_AT_ONCE: u32 = 16;
/// Local peers that are asked each time for messages: as many as a program speaks to at a time, in a halo or a tree.
const ASKED_ALWAYS: usize = 8;
/// Others that are asked each time, in their turn: of 128 local peers each in one of 30.
const OTHERS_ASKED: usize = 4;
/// Local peers that are looked after in one look round.
const SEEN_AT_ONCE: usize = 16;
/// A pipe that has been quiet for so long gives its memory back: some thousand times what it costs to get it again.
const QUIET: Duration = Duration::from_secs(1);
/// Sleep between two attempts to reach somebody who is not there yet.
const CONNECT_EVERY: Duration = Duration::from_millis(1);

/// What an endpoint's listener is called on its host.
pub(super) fn listener_name(address: Address) -> Vec<u8> {
    // As text: it is looked for in a list of lines.
    let digits: String = address.mac.iter().chain([&address.sap.byte()]).map(|byte| format!("{byte:02x}")).collect();
    format!("barewire-endpoint/{digits}").into_bytes()
}

/// What a pipe must have room for, where a frame carries so many bytes: the same behind its octet.
pub(super) const fn room_needed(room: usize) -> usize {
    1 + room
}

impl<L: Link> Endpoint<L> {
    /// Whether a peer is reached through shared memory: it has the same interface.
    pub(super) fn is_local(&self, peer: Address) -> bool {
        self.config.local.is_some() && peer.mac == self.address.mac
    }

    /// Tries to reach a peer on this host. What stands in the way may pass, so it is tried again until patience ends.
    pub(super) fn connect_local(&mut self, index: u16) {
        let (Some(config), Some(channel)) = (&self.config.local, self.channels.at(index)) else { return };
        let peer = channel.peer;
        let key = self.config.key_to(peer);
        let hello = [&self.address.to_bytes()[..], &key.to_be_bytes()].concat();
        match connect(&listener_name(peer), &hello, config) {
            Ok(Some(pipe)) => {
                channel.carrier = Carrier::Local { pipe: Box::new(pipe), other: None };
                self.take_turn(index);
            }
            Ok(None) => {}
            Err(error) => {
                if let Carrier::Connecting { is_exhausted, .. } = &mut channel.carrier {
                    *is_exhausted = error.is_exhaustion();
                }
            }
        }
    }

    /// Takes what local peers sent: each time of those that spoke last, and of some others in their turn, so that many
    /// who say nothing cost no more than few. Whether something was delivered.
    #[inline]
    pub(super) fn take_local(&mut self, sink: &mut impl Sink) -> bool {
        let (mut speakers, mut speaker) = (0, None);
        let asked = if self.has_slept { self.local_peers.len() } else { self.local_peers.len().min(ASKED_ALWAYS) };
        // Backwards, because one may end meanwhile.
        for place in (0..asked).rev() {
            let Some(&index) = self.local_peers.get(place) else { continue };
            if self.take_from(index, sink) {
                (speakers, speaker) = (speakers + 1, Some(index));
            }
        }
        if self.local_peers.len() > asked && self.ask_others(sink) {
            (speakers, speaker) = (speakers + 1, None);
        }
        if speakers > 0 {
            // Where several speak, each has its turn.
            self.only_speaker = speaker.filter(|_| speakers == 1);
        }
        speakers > 0
    }

    /// Offers the next message of the only local peer that spoke last, if it has come as a whole and none stands before
    /// it. What `take` refuses stays where it is, for [`progress`](Self::progress), as all does when that is due.
    #[inline(always)]
    pub fn offer_next<T>(&mut self, take: impl FnOnce(ChannelId, &[u8]) -> Option<T>) -> Option<T> {
        let index = self.only_speaker.filter(|_| self.busy_turns < BUSY_TURNS_MAX && self.owes_nothing())?;
        let id = self.channels.id(index);
        let Channel { carrier: Carrier::Local { pipe, other }, parked, reassembler, .. } = self.channels.at(index)?
        else {
            return None;
        };
        if !parked.is_empty() {
            return None;
        }
        // A peer sends into one of them only.
        let (pipe, message) = [Some(pipe), other.as_mut()].into_iter().flatten().find_map(|pipe| {
            let message: *const [u8] = pipe.receive()?;
            Some((pipe, message))
        })?;
        // SAFETY: the message lies in the pipe's shared memory, lent until the pipe's next call, which follows its last use.
        let message = unsafe { &*message };
        let taken = match message.split_first() {
            Some((&kind, fragment)) if kind == Kind::Fragment as u8 => {
                reassembler.whole(fragment).and_then(|message| take(id, message))
            }
            _ => None,
        };
        if taken.is_none() {
            pipe.put_back();
        } else {
            // As of a turn that delivers it.
            self.busy_turns += 1;
            self.port.looks += 1;
        }
        taken
    }

    /// Whether a channel leads to a process of this host that is there.
    #[inline]
    pub fn is_local_channel(&mut self, channel: ChannelId) -> bool {
        matches!(self.channels.get(channel), Some(Channel { carrier: Carrier::Local { .. }, .. }))
    }

    /// Copies memory of a local peer, which said where it lies and leaves it alone meanwhile. False if that is not
    /// possible, or the peer is gone.
    ///
    /// # Safety
    /// `into` must be valid to be written for `bytes`, and used by nothing else meanwhile.
    pub unsafe fn fetch(&mut self, from: ChannelId, address: u64, into: *mut u8, bytes: usize) -> bool {
        match self.channels.get(from) {
            // SAFETY: the caller's promise.
            Some(Channel { carrier: Carrier::Local { pipe, .. }, .. }) => unsafe {
                pipe.read_memory(address, into, bytes)
            },
            _ => false,
        }
    }

    fn ask_others(&mut self, sink: &mut impl Sink) -> bool {
        let mut delivered = false;
        for _ in 0..OTHERS_ASKED {
            self.last_asked =
                if self.last_asked + 1 < self.local_peers.len() { self.last_asked + 1 } else { ASKED_ALWAYS };
            let Some(index) = self.local_peers.get(self.last_asked).copied() else { break };
            if self.take_from(index, sink) {
                delivered = true;
                if self.local_peers.get(self.last_asked) == Some(&index) {
                    self.local_peers.swap(self.last_asked, self.next_first);
                    self.next_first = (self.next_first + 1) % ASKED_ALWAYS;
                }
            }
        }
        delivered
    }

    /// Now and then: who connects, which local peer is gone, who is there at last.
    pub(super) fn look_round(&mut self, sink: &mut impl Sink, has_slept: bool) -> Result<(), EndpointError> {
        let now = self.port.now();
        if now < self.looked_round + LOOK_ROUND_EVERY {
            return Ok(());
        }
        self.looked_round = now;
        while let Some(pipe) = self.listener.as_mut().map_or(Ok(None), Listener::accept)? {
            self.accept_pipe(pipe, sink);
        }
        for place in (0..self.local_peers.len()).rev() {
            let index = self.local_peers[place];
            let Some(channel) = self.channels.at(index) else { continue };
            let is_done = channel.queue.is_empty() && channel.is_closing;
            match &channel.carrier {
                Carrier::Connecting { .. } | Carrier::Local { .. } if is_done => self.end(index, Ending::Closed, sink),
                Carrier::Connecting { until, is_exhausted } if now >= *until => {
                    let ending = if *is_exhausted { Ending::Exhausted } else { Ending::NoAnswer };
                    self.end(index, ending, sink);
                }
                _ => {}
            }
        }
        // What takes system calls, for some of them in their turn. After a sleep everybody is looked at: the end of any may
        // have been what woke us.
        let seen = if has_slept { usize::MAX } else { SEEN_AT_ONCE };
        for _ in 0..seen.min(self.local_peers.len()) {
            self.last_seen = if self.last_seen + 1 < self.local_peers.len() { self.last_seen + 1 } else { 0 };
            let Some(index) = self.local_peers.get(self.last_seen).copied() else { break };
            match self.channels.at(index).map(|channel| &channel.carrier) {
                Some(Carrier::Connecting { .. }) => self.connect_local(index),
                Some(Carrier::Local { .. }) => {
                    self.rest(index, now);
                    self.see_whether_gone(index, sink);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives the memory of a pipe back that has been quiet for long.
    fn rest(&mut self, index: u16, now: Instant) {
        let Some(channel) = self.channels.at(index) else { return };
        let Carrier::Local { pipe, other } = &mut channel.carrier else { return };
        let activity = pipe.activity() + other.as_ref().map_or(0, |other| other.activity());
        match channel.quiet {
            (last, _) if last != activity => channel.quiet = (activity, Some(now)),
            (_, Some(since)) if now >= since + QUIET => {
                channel.quiet.1 = None;
                pipe.release_memory();
                if let Some(other) = other {
                    other.release_memory();
                }
            }
            _ => {}
        }
    }

    /// A local peer that is gone gets no more messages; its channel ends when all that it had sent is taken.
    fn see_whether_gone(&mut self, index: u16, sink: &mut impl Sink) {
        let Some(channel) = self.channels.at(index) else { return };
        let Carrier::Local { pipe, other } = &mut channel.carrier else { return };
        // If both connected, the peer holds two ends as well, and both are gone with it: the one that it sends into
        // first.
        let hung_up = (pipe.is_hung_up(), other.as_mut().is_some_and(|other| other.is_hung_up()));
        if hung_up == (false, false) {
            return;
        }
        let fault = pipe.fault().or(other.as_ref().and_then(|other| other.fault()));
        let ending = match fault {
            Some(Fault::NoMemory) => Ending::Exhausted,
            Some(_) => Ending::Violation,
            None if pipe.is_refused() => Ending::Exhausted,
            None => Ending::PeerClosed,
        };
        let is_other_empty = !hung_up.1 || other.as_mut().is_none_or(|other| other.is_gone());
        let is_empty = (!hung_up.0 || pipe.is_gone()) && is_other_empty;
        if is_empty && channel.parked.is_empty() {
            self.end(index, ending, sink);
        } else if channel.ending.is_none() {
            channel.queue.clear();
            self.channels.retire(index, ending);
            self.fail_messages(index, ending);
        }
    }

    /// Makes ready to sleep for local peers, too: for how long, or `None` if one has something already.
    pub(super) fn arm_local_peers(&mut self, mut patience: Duration) -> Option<Duration> {
        for index in &self.local_peers {
            let Some(channel) = self.channels.at(*index) else { continue };
            let awaits_room = !channel.queue.is_empty();
            match &mut channel.carrier {
                // The next look round ends it.
                Carrier::Connecting { .. } | Carrier::Local { .. } if channel.is_closing && !awaits_room => {
                    return None;
                }
                Carrier::Connecting { .. } => patience = patience.min(CONNECT_EVERY),
                Carrier::Local { pipe, other } => {
                    let room = pipe.room();
                    // What is parked waits for the user, not for the peer, and so does what lies behind it.
                    let is_ready = match (channel.parked.is_empty(), awaits_room) {
                        (true, true) => pipe.arm(Awaited::MessageOrRoom(room)),
                        (true, false) => pipe.arm(Awaited::Message),
                        (false, true) => pipe.arm(Awaited::Room(room)),
                        (false, false) => false,
                    };
                    let other = other.as_mut().filter(|_| channel.parked.is_empty());
                    if is_ready | other.is_some_and(|other| other.arm(Awaited::Message)) {
                        return None;
                    }
                }
                Carrier::Wire { .. } | Carrier::Pending | Carrier::Over => {}
            }
        }
        Some(patience)
    }

    pub(super) fn send_local_datagram(
        &mut self,
        to: Address,
        class: Class,
        body: &[u8],
        context: u64,
    ) -> Result<(), SendError> {
        let is_new = self.channels.to(to).is_none();
        let id = self.connect(to).map_err(|_| SendError::Full)?;
        let kind = if class == Class::Unreliable { Kind::Unreliable } else { Kind::Acknowledged };
        let carrier = self.channels.get(id).map(|channel| &mut channel.carrier);
        let is_there = if let Some(Carrier::Local { pipe, .. }) = carrier {
            if !pipe.send([&[kind as u8], body]) {
                return Err(SendError::Full);
            }
            true
        } else {
            // Nobody is there. A datagram does not wait for anybody, and nobody shall hear of a channel that was none.
            if is_new {
                self.channels.remove(id.index);
                self.local_peers.retain(|local_peer| *local_peer != id.index);
            }
            false
        };
        if class == Class::Acknowledged {
            let unanswered = Event::Failed { context, ending: Ending::NoAnswer };
            self.events.push_back(if is_there { Event::Sent { context } } else { unanswered });
        }
        Ok(())
    }

    /// Ends a channel that this side has closed and of which nothing is left to send; a local one at the next look
    /// round.
    pub(super) fn close_if_asked(&mut self, index: u16) {
        let Some(channel) = self.channels.at(index).filter(|channel| channel.is_closing) else { return };
        if let Carrier::Wire { handle, .. } = channel.carrier {
            let now = self.port.now();
            // DISC says nothing of what has come before it: the peer shall know that its last message did. What goes
            // wrong with the link shows in the next progress.
            if self.port.hasten() {
                let _ = self.port.transmit();
            }
            self.port.station.request_ack(handle, now);
            if !self.port.station.finish(handle, now) {
                self.port.station.disconnect(handle, now);
            }
            // What has ended at once says so.
            self.unheard += 1;
        }
    }

    /// Somebody on this host opened a pipe to us.
    fn accept_pipe(&mut self, mut pipe: Pipe, sink: &mut impl Sink) {
        // The initiator has chosen its size.
        let is_large_enough = pipe.room() >= room_needed(self.room);
        let Some(peer) = self.peer_of(pipe.hello()).filter(|_| is_large_enough) else {
            self.unauthenticated += 1;
            return;
        };
        // It may have closed a channel or been started again, and begin anew.
        if let Some(index) = self.channels.to(peer) {
            self.see_whether_gone(index, sink);
        }
        // What is over already is a channel of its own: whoever has this address now may be another.
        let ending = pipe.is_hung_up().then_some(Ending::PeerClosed);
        let pipe = Box::new(pipe);
        if let (Some(index), None) = (self.channels.to(peer), ending) {
            let Some(channel) = self.channels.at(index) else { return };
            match &mut channel.carrier {
                // We connected at the same time: each sends into its own.
                Carrier::Local { other: other @ None, .. } => *other = Some(pipe),
                carrier @ Carrier::Connecting { .. } => *carrier = Carrier::Local { pipe, other: None },
                // A third one is no local peer of ours.
                Carrier::Local { .. } | Carrier::Wire { .. } | Carrier::Pending | Carrier::Over => {
                    self.unauthenticated += 1
                }
            }
            self.take_turn(index);
            return;
        }
        let channel = Channel { ending, ..Channel::new(peer, Carrier::Local { pipe, other: None }) };
        if let Some(channel) = self.config.accepts.then(|| self.channels.add(channel)).flatten() {
            self.local_peers.push(channel.index);
            self.tell_opened(channel, peer);
        }
    }

    /// Who says this hello, if it is one of our job's.
    fn peer_of(&self, hello: &[u8]) -> Option<Address> {
        let (address, key) = hello.split_first_chunk::<{ Address::BYTES }>()?;
        let is_of_job = key == self.config.key_to(self.address).to_be_bytes();
        Address::from_bytes(*address).filter(|peer| is_of_job && peer.mac == self.address.mac)
    }

    #[inline]
    fn take_from(&mut self, index: u16, sink: &mut impl Sink) -> bool {
        let mut delivered = false;
        for is_other in [false, true] {
            for _ in 0..MESSAGES_AT_ONCE {
                let Self { channels, waiting, .. } = self;
                let Some(channel) = channels.at(index) else { return delivered };
                let peer = channel.peer;
                let Carrier::Local { pipe, other } = &mut channel.carrier else { return delivered };
                let pipe = if is_other { other.as_mut() } else { Some(pipe) };
                // Nothing overtakes what waits.
                let (Some(pipe), true) = (pipe, channel.parked.is_empty()) else { return delivered };
                let Some(message) = pipe.receive() else { break };
                let message: *const [u8] = message;
                // SAFETY: the message lies in the pipe's shared memory, lent until the pipe's next call. That comes in
                // the next turn; until the last use of `message` the pipe is neither called nor dropped: `give` touches
                // other parts of the channel.
                let message = unsafe { &*message };
                match message.split_first() {
                    Some((&kind, fragment)) if kind == Kind::Fragment as u8 => {
                        match give(channels, waiting, sink, index, fragment) {
                            Given::Taken => {
                                delivered = true;
                                if sink.has_enough() {
                                    return true;
                                }
                            }
                            Given::Parked => return delivered,
                            Given::Broken => {
                                self.malformed += 1;
                                self.end(index, Ending::Violation, sink);
                                return delivered;
                            }
                        }
                    }
                    Some((&kind, body)) if kind == Kind::Unreliable as u8 => {
                        sink.datagram(peer, Class::Unreliable, body);
                        delivered = true;
                    }
                    Some((&kind, body)) if kind == Kind::Acknowledged as u8 => {
                        sink.datagram(peer, Class::Acknowledged, body);
                        delivered = true;
                    }
                    _ => {
                        self.malformed += 1;
                        self.end(index, Ending::Violation, sink);
                        return delivered;
                    }
                }
            }
        }
        delivered
    }
}
