// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers on this host, reached through shared memory instead of frames; they may be in this process.

use std::time::Duration;

use barewire_link::{Link, MacAddress};
use barewire_llc::Instant;
use barewire_shm::{Awaited, Fault, Listener, Pipe, ShmError, connect};

use super::receive::{Delivered, deliver};
use super::{BUSY_POLLS_MAX, Endpoint, Event, HOUSEKEEPING_INTERVAL};
use crate::address::Address;
use crate::channel::{Carrier, Channel, ChannelId};
use crate::error::{Ending, EndpointError, SendError};
use crate::sink::{Class, Sink};

/// Kind of a pipe's message; its first byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A fragment of a channel's message.
    Fragment = 0,
    /// A datagram, by its class.
    Unreliable = 1,
    Acknowledged = 3,
}

/// Messages received from one pipe before the next is polled.
const MESSAGES_AT_ONCE: u32 = 16;
/// Local peers that are polled every time: as many as a program exchanges messages with at a time, in a halo or a tree.
const ACTIVE_PEERS: usize = 8;
/// Inactive local peers polled per poll, round-robin: with 128 local peers, each is polled once in 30 polls.
const INACTIVE_PER_POLL: usize = 4;
/// Local peers whose state one housekeeping checks.
const CHECKS_PER_HOUSEKEEPING: usize = 16;
/// An idle pipe's memory is released after this time: about a thousand times the cost of allocating it again.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Interval between attempts to connect to a local peer that does not listen yet.
const CONNECT_RETRY: Duration = Duration::from_millis(1);

/// Name of an endpoint's listener on its host.
pub(super) fn listener_name(address: Address) -> Vec<u8> {
    // Text, because the name is searched for in a list of lines.
    let digits: String = address.mac.iter().chain([&address.sap.byte()]).map(|byte| format!("{byte:02x}")).collect();
    format!("barewire-endpoint/{digits}").into_bytes()
}

/// Bytes of the largest message that a pipe must take: a frame's information behind the kind.
pub(super) const fn pipe_message_bytes(information_max: usize) -> usize {
    1 + information_max
}

impl<L: Link> Endpoint<L> {
    /// Whether a peer is reached through shared memory: it is on this host, by its address.
    pub(super) fn is_local(&self, peer: Address) -> bool {
        let (own, other) = (self.config.host, peer.locator.host);
        let may_be_here = own == other || own == 0 || other == 0;
        self.config.local.is_some() && may_be_here && self.port.link.is_local(MacAddress(peer.mac))
    }

    /// Tries to connect to a local peer. Failures may be transient, so the attempt is repeated until the timeout.
    pub(super) fn connect_local(&mut self, index: u16) {
        let (Some(config), Some(channel)) = (&self.config.local, self.channels.at(index)) else { return };
        let peer = channel.peer;
        let key = self.config.key_to(peer);
        let hello = [&self.address.to_bytes()[..], &key.to_be_bytes()].concat();
        match connect(&listener_name(peer), &hello, config) {
            Ok(Some(pipe)) => {
                channel.carrier = Carrier::Local { pipe: Box::new(pipe), second: None };
                self.mark_ready(index);
            }
            Ok(None) => {}
            Err(error) => {
                if let Carrier::Connecting { is_exhausted, .. } = &mut channel.carrier {
                    *is_exhausted = error.is_exhaustion();
                }
            }
        }
    }

    /// Receives messages of local peers: polls all recent senders and some of the others round-robin, so that many idle
    /// peers cost no more than few. Returns whether something was delivered.
    #[inline]
    pub(super) fn poll_local_peers(&mut self, sink: &mut impl Sink) -> bool {
        let (mut senders, mut sender) = (0, None);
        let polled = if self.has_slept { self.local_peers.len() } else { self.local_peers.len().min(ACTIVE_PEERS) };
        // Backwards, because a channel may end in the loop.
        for position in (0..polled).rev() {
            let Some(&index) = self.local_peers.get(position) else { continue };
            if self.receive_local(index, sink) {
                (senders, sender) = (senders + 1, Some(index));
            }
        }
        if self.local_peers.len() > polled && self.poll_inactive(sink) {
            (senders, sender) = (senders + 1, None);
        }
        if senders > 0 {
            // With several senders, all are polled.
            self.only_sender = sender.filter(|_| senders == 1);
        }
        senders > 0
    }

    /// Offers the next message of the peer in `only_sender` to `take`, if it is a whole message and nothing precedes
    /// it. A refused message stays for [`progress`](Self::progress), as do all messages when `progress` is due.
    #[inline(always)]
    pub fn offer_next<T>(&mut self, take: impl FnOnce(ChannelId, &[u8]) -> Option<T>) -> Option<T> {
        let index = self.only_sender.filter(|_| self.busy_polls < BUSY_POLLS_MAX && self.has_nothing_to_send())?;
        let id = self.channels.id(index);
        let Channel { carrier: Carrier::Local { pipe, second }, parked, reassembler, .. } = self.channels.at(index)?
        else {
            return None;
        };
        if !parked.is_empty() {
            return None;
        }
        // A peer sends into only one of the two pipes.
        let (pipe, message) = [Some(pipe), second.as_mut()].into_iter().flatten().find_map(|pipe| {
            let message: *const [u8] = pipe.receive()?;
            Some((pipe, message))
        })?;
        // SAFETY: the message lies in the pipe's shared memory; its last use precedes the pipe's next call.
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
            // Counts as a poll that delivered something.
            self.busy_polls += 1;
            self.port.polls += 1;
        }
        taken
    }

    /// Whether a channel leads to a connected local peer.
    #[inline]
    pub fn is_local_channel(&mut self, channel: ChannelId) -> bool {
        matches!(self.channels.get(channel), Some(Channel { carrier: Carrier::Local { .. }, .. }))
    }

    /// Copies memory of a local peer, which has announced its address and does not change it meanwhile. Returns false
    /// if the system does not allow it, or the peer has ended.
    ///
    /// # Safety
    /// `into` must be valid for writes of `bytes`, and not be used by anything else meanwhile.
    pub unsafe fn fetch(&mut self, from: ChannelId, address: u64, into: *mut u8, bytes: usize) -> bool {
        match self.channels.get(from) {
            // SAFETY: as promised by the caller.
            Some(Channel { carrier: Carrier::Local { pipe, .. }, .. }) => unsafe {
                pipe.read_memory(address, into, bytes)
            },
            _ => false,
        }
    }

    fn poll_inactive(&mut self, sink: &mut impl Sink) -> bool {
        let mut delivered = false;
        for _ in 0..INACTIVE_PER_POLL {
            self.last_polled =
                if self.last_polled + 1 < self.local_peers.len() { self.last_polled + 1 } else { ACTIVE_PEERS };
            let Some(index) = self.local_peers.get(self.last_polled).copied() else { break };
            if self.receive_local(index, sink) {
                delivered = true;
                if self.local_peers.get(self.last_polled) == Some(&index) {
                    self.local_peers.swap(self.last_polled, self.next_active);
                    self.next_active = (self.next_active + 1) % ACTIVE_PEERS;
                }
            }
        }
        delivered
    }

    /// Periodically: accepts pipes, ends channels of local peers that have gone, and retries connects.
    pub(super) fn run_housekeeping(&mut self, sink: &mut impl Sink, has_slept: bool) -> Result<(), EndpointError> {
        let now = self.port.now();
        if now < self.last_housekeeping + HOUSEKEEPING_INTERVAL {
            return Ok(());
        }
        self.last_housekeeping = now;
        while let Some(pipe) = self.next_accepted()? {
            self.accept_pipe(pipe, sink);
        }
        for position in (0..self.local_peers.len()).rev() {
            let index = self.local_peers[position];
            let Some(channel) = self.channels.at(index) else { continue };
            let is_done = channel.queue.is_empty() && channel.is_closing;
            match &channel.carrier {
                Carrier::Connecting { .. } | Carrier::Local { .. } if is_done => self.end(index, Ending::Closed, sink),
                Carrier::Connecting { until, is_exhausted } if now >= *until => {
                    let ending = if *is_exhausted { Ending::Exhausted } else { Ending::NeverAnswered };
                    self.end(index, ending, sink);
                }
                _ => {}
            }
        }
        // System calls, so only for some channels; after a sleep for all, since any may have ended it.
        let checked = if has_slept { usize::MAX } else { CHECKS_PER_HOUSEKEEPING };
        for _ in 0..checked.min(self.local_peers.len()) {
            self.last_checked = if self.last_checked + 1 < self.local_peers.len() { self.last_checked + 1 } else { 0 };
            let Some(index) = self.local_peers.get(self.last_checked).copied() else { break };
            match self.channels.at(index).map(|channel| &channel.carrier) {
                Some(Carrier::Connecting { .. }) => self.connect_local(index),
                Some(Carrier::Local { .. }) => {
                    self.release_if_idle(index, now);
                    self.check_hang_up(index, sink);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Releases the memory of a pipe that has been idle for [`IDLE_MAX`].
    fn release_if_idle(&mut self, index: u16, now: Instant) {
        let Some(channel) = self.channels.at(index) else { return };
        let Carrier::Local { pipe, second } = &mut channel.carrier else { return };
        let activity = pipe.activity() + second.as_ref().map_or(0, |second| second.activity());
        match channel.idle {
            (last, _) if last != activity => channel.idle = (activity, Some(now)),
            (_, Some(since)) if now >= since + IDLE_MAX => {
                channel.idle.1 = None;
                pipe.release_memory();
                if let Some(second) = second {
                    second.release_memory();
                }
            }
            _ => {}
        }
    }

    /// Ends the channel to a local peer that has gone, if there is one, without waiting for the next check. Costs a
    /// system call.
    pub fn check_local_peer(&mut self, peer: Address, sink: &mut impl Sink) {
        if let Some(index) = self.channels.find(peer) {
            self.check_hang_up(index, sink);
        }
    }

    /// Stops sending to a local peer that has gone. Its channel ends when all received messages are taken.
    fn check_hang_up(&mut self, index: u16, sink: &mut impl Sink) {
        let Some(channel) = self.channels.at(index) else { return };
        let Carrier::Local { pipe, second } = &mut channel.carrier else { return };
        // If both sides connected, the peer closes two ends: first the one that it sends into.
        let hung_up = (pipe.is_hung_up(), second.as_mut().is_some_and(|second| second.is_hung_up()));
        if hung_up == (false, false) {
            return;
        }
        let fault = pipe.fault().or(second.as_ref().and_then(|second| second.fault()));
        let ending = match fault {
            Some(Fault::NoMemory) => Ending::Exhausted,
            Some(_) => Ending::Violation,
            None if pipe.is_refused() => Ending::Exhausted,
            None => Ending::PeerClosed,
        };
        // The kernel may not have closed the other end of a peer that has exited yet.
        let is_empty =
            is_drained(pipe, hung_up.0) && second.as_mut().is_none_or(|second| is_drained(second, hung_up.1));
        if is_empty && channel.parked.is_empty() {
            self.end(index, ending, sink);
        } else if channel.ending.is_none() {
            self.channels.retire(index, ending);
            self.fail_messages(index, ending);
            self.pending_events += u32::from(self.offer_parked(sink));
        }
    }

    /// Prepares the pipes of local peers for a sleep. Returns its maximum length, or `None` if there is work to do.
    pub(super) fn arm_local_peers(&mut self, mut timeout: Duration) -> Option<Duration> {
        for index in &self.local_peers {
            let Some(channel) = self.channels.at(*index) else { continue };
            let awaits_room = channel.has_more();
            match &mut channel.carrier {
                // The next housekeeping ends the channel.
                Carrier::Connecting { .. } | Carrier::Local { .. } if channel.is_closing && !awaits_room => {
                    return None;
                }
                Carrier::Connecting { .. } => timeout = timeout.min(CONNECT_RETRY),
                Carrier::Local { pipe, second } => {
                    let max = pipe.message_max();
                    // Parked pieces wait for the caller, not for the peer, and so do the messages behind them.
                    let is_ready = match (channel.parked.is_empty(), awaits_room) {
                        (true, true) => pipe.arm(Awaited::MessageOrRoom(max)),
                        (true, false) => pipe.arm(Awaited::Message),
                        (false, true) => pipe.arm(Awaited::Room(max)),
                        (false, false) => false,
                    };
                    let second = second.as_mut().filter(|_| channel.parked.is_empty());
                    if is_ready | second.is_some_and(|second| second.arm(Awaited::Message)) {
                        return None;
                    }
                }
                Carrier::Wire { .. } | Carrier::Pending | Carrier::Ended => {}
            }
        }
        Some(timeout)
    }

    pub(super) fn send_local_datagram(
        &mut self,
        to: Address,
        class: Class,
        body: &[u8],
        context: u64,
    ) -> Result<(), SendError> {
        let is_new = self.channels.find(to).is_none();
        let id = self.connect(to).map_err(|_| SendError::Full)?;
        let kind = if class == Class::Unreliable { Kind::Unreliable } else { Kind::Acknowledged };
        let carrier = self.channels.get(id).map(|channel| &mut channel.carrier);
        let is_connected = if let Some(Carrier::Local { pipe, .. }) = carrier {
            if !pipe.send([&[kind as u8], body]) {
                return Err(SendError::Full);
            }
            true
        } else {
            // Datagrams do not wait for a connection. A channel opened only for this one is removed without an event.
            if is_new {
                self.channels.remove(id.index);
                self.local_peers.retain(|local_peer| *local_peer != id.index);
            }
            false
        };
        if class == Class::Acknowledged {
            let no_answer = Event::Failed { context, ending: Ending::NoAnswer };
            self.events.push_back(if is_connected { Event::Sent { context } } else { no_answer });
        }
        Ok(())
    }

    /// Ends a channel closed by this side that has nothing left to send; a local one at the next housekeeping.
    pub(super) fn close_if_requested(&mut self, index: u16) {
        let Some(channel) = self.channels.at(index).filter(|channel| channel.is_closing) else { return };
        if let Carrier::Wire { handle, .. } = channel.carrier {
            let now = self.port.now();
            // DISC acknowledges nothing: acknowledge the peer's last messages before it. The next call of `progress`
            // reports errors of the link.
            if self.port.handle_due_soon() {
                let _ = self.port.transmit();
            }
            self.port.station.request_ack(handle, now);
            if !self.port.station.finish(handle, now) {
                self.port.station.disconnect(handle, now);
            }
            // A channel that ended at once has produced an event.
            self.pending_events += 1;
        }
    }

    /// Connects to a local peer, unless the peer has connected first. If the peer has closed its pipe since, the pipe's
    /// messages must be received before another is opened: the next housekeeping does both.
    pub(super) fn accept_or_connect(&mut self, index: u16) {
        // Errors of the listener are reported by the next housekeeping, which accepts again.
        while let Ok(Some(pipe)) = self.listener.as_mut().map_or(Ok(None), Listener::accept) {
            self.accepted.push_back(pipe);
        }
        let peer = self.channels.at(index).map(|channel| channel.peer);
        let from_peer = self.accepted.iter().position(|pipe| self.authenticate(pipe) == peer);
        if !self.accepted.is_empty() {
            (self.has_slept, self.last_housekeeping) = (true, Instant::from_nanos(0));
        }
        match from_peer {
            Some(position) if self.accepted[position].is_hung_up() => {}
            Some(position) => {
                if let (Some(pipe), Some(channel)) = (self.accepted.remove(position), self.channels.at(index)) {
                    channel.carrier = Carrier::Local { pipe: Box::new(pipe), second: None };
                    self.mark_ready(index);
                }
            }
            None => self.connect_local(index),
        }
    }

    fn next_accepted(&mut self) -> Result<Option<Pipe>, ShmError> {
        match self.accepted.pop_front() {
            Some(pipe) => Ok(Some(pipe)),
            None => self.listener.as_mut().map_or(Ok(None), Listener::accept),
        }
    }

    /// Handles a pipe that a process of this host has opened.
    fn accept_pipe(&mut self, mut pipe: Pipe, sink: &mut impl Sink) {
        let Some(peer) = self.authenticate(&pipe) else {
            self.unauthenticated += 1;
            return;
        };
        // The peer may have closed its channel, or restarted, and connect again.
        if let Some(index) = self.channels.find(peer) {
            self.check_hang_up(index, sink);
            // Otherwise the end of the attempt that this side has given up would be the pipe's, too.
            if self.channels.at(index).is_some_and(|channel| channel.is_given_up()) {
                self.end(index, Ending::Closed, sink);
            }
        }
        let ending = pipe.is_hung_up().then_some(Ending::PeerClosed);
        let pipe = Box::new(pipe);
        let Some(index) = self.channels.find(peer) else {
            let channel = Channel { ending, ..Channel::new(peer, Carrier::Local { pipe, second: None }) };
            if let Some(channel) = self.config.accepts.then(|| self.channels.add(channel)).flatten() {
                self.local_peers.push(channel.index);
                self.report_opened(channel, peer);
            }
            return;
        };
        let Some(channel) = self.channels.at(index) else { return };
        match &mut channel.carrier {
            // If the peer has exited since, its messages are received and those queued for it fail.
            carrier @ Carrier::Connecting { .. } => {
                *carrier = Carrier::Local { pipe, second: None };
                self.check_hang_up(index, sink);
            }
            // The peer closed this pipe, or its process ended, between our last look at the listener and our
            // connection.
            Carrier::Local { .. } if ending.is_some() => {}
            // Both sides connected at the same time. Each sends into its own pipe.
            Carrier::Local { second: second @ None, .. } => *second = Some(pipe),
            // No endpoint of ours opens a third pipe.
            Carrier::Local { .. } | Carrier::Wire { .. } | Carrier::Pending | Carrier::Ended => {
                self.unauthenticated += 1
            }
        }
        self.mark_ready(index);
    }

    /// The address in a pipe's hello, if its key is ours and the initiator has made the ring large enough.
    fn authenticate(&self, pipe: &Pipe) -> Option<Address> {
        let (address, key) = pipe.hello().split_first_chunk::<{ Address::BYTES }>()?;
        let has_key = key == self.config.key_to(self.address).to_be_bytes();
        let is_large_enough = pipe.message_max() >= pipe_message_bytes(self.information_max);
        Address::from_bytes(*address).filter(|peer| has_key && is_large_enough && self.is_local(*peer))
    }

    #[inline]
    fn receive_local(&mut self, index: u16, sink: &mut impl Sink) -> bool {
        let mut delivered = false;
        for is_second in [false, true] {
            for _ in 0..MESSAGES_AT_ONCE {
                let Self { channels, parked_channels, .. } = self;
                let Some(channel) = channels.at(index) else { return delivered };
                let peer = channel.peer;
                let Carrier::Local { pipe, second } = &mut channel.carrier else { return delivered };
                let pipe = if is_second { second.as_mut() } else { Some(pipe) };
                // Parked pieces come first.
                let (Some(pipe), true) = (pipe, channel.parked.is_empty()) else { return delivered };
                let Some(message) = pipe.receive() else { break };
                let message: *const [u8] = message;
                // SAFETY: the message lies in the pipe's shared memory and is lent until the pipe's next call, in the
                // next iteration. Until the last use of `message`, the pipe is neither called nor dropped: `deliver`
                // uses other fields of the channel.
                let message = unsafe { &*message };
                match message.split_first() {
                    Some((&kind, fragment)) if kind == Kind::Fragment as u8 => {
                        match deliver(channels, parked_channels, sink, index, fragment) {
                            Delivered::Accepted => {
                                delivered = true;
                                if sink.has_enough() {
                                    self.stopped_early = true;
                                    return true;
                                }
                            }
                            Delivered::Parked => return delivered,
                            Delivered::Malformed => {
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

/// Whether all messages of a pipe are received; if the peer has hung up, none can follow.
fn is_drained(pipe: &mut Pipe, has_hung_up: bool) -> bool {
    if has_hung_up {
        return pipe.is_gone();
    }
    let is_empty = pipe.receive().is_none();
    if !is_empty {
        pipe.put_back();
    }
    is_empty
}
