// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The endpoint: channels to peers, messages out and in.

mod local;
mod receive;
mod send;
mod succession;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use barewire_link::{Claim, Link};
use barewire_llc::{
    Cause, ConnectionConfig, ConnectionEvent, ConnectionHandle, DatagramOutcome, Instant, Peer, StationConfig,
    StationEvent,
};
use barewire_shm::{Listener, ShmError};

use crate::address::Address;
use crate::channel::{Carrier, Channel, ChannelId, Channels};
use crate::config::Config;
use crate::descriptors::{Content, DescriptorId, Descriptors};
use crate::error::{ConnectError, Ending, EndpointError};
use crate::mutant::mutant;
use crate::port::{Port, information_max, mtu_min, unless_down};
use crate::sink::Sink;
use crate::token::JobToken;
use crate::tuning::Tuning;
use crate::waiting::Patience;

pub use send::Acknowledge;

/// What an endpoint has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer opened a channel.
    Opened {
        /// Which.
        channel: ChannelId,
        /// Who.
        peer: Address,
    },
    /// The peer's endpoint has a message, or the pipe to a peer of this host; its memory is the caller's again.
    Sent {
        /// The message's.
        context: u64,
    },
    /// A message was given up: whether the peer has it is not known. Its memory is the caller's again.
    Failed {
        /// The message's.
        context: u64,
        /// Why.
        ending: Ending,
    },
    /// A channel has ended; its messages were reported before.
    Ended {
        /// Which; it means nothing any more.
        channel: ChannelId,
        /// To whom.
        peer: Address,
        /// Why.
        ending: Ending,
    },
}

/// What came in that was for nobody, and what was sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    /// Frames that carried no LLC PDU, or were cut.
    pub foreign: u64,
    /// Frames and local peers that do not know what they must: the job's token, the endpoint's cookie, the connection's
    /// marks; where frames are authenticated, its secret: also frames that were changed.
    pub unauthenticated: u64,
    /// Authentic frames of a connection that had come before, or were overtaken by a thousand others.
    pub replayed: u64,
    /// Frames whose check is wrong: changed on their way, or of a station that is none of ours.
    pub damaged: u64,
    /// Pieces of messages that did not fit; each ended its channel.
    pub malformed: u64,
    /// Frames sent more than once.
    pub repeated: u64,
    /// Frames received more than once.
    pub duplicate: u64,
    /// Frames that found the receive ring full.
    pub ring_full: u64,
    /// Times that the link was too busy to take a frame.
    pub send_busy: u64,
}

/// Events are taken at least once in so many turns that deliver something, so that slots become free.
const BUSY_TURNS_MAX: u32 = 16;
/// Questions between two looks at the clock, which costs as much as several.
const TURNS_PER_CLOCK: u32 = 32;
/// Time between two looks at the listener and at who is gone: each is a system call.
const LOOK_ROUND_EVERY: Duration = Duration::from_millis(2);

/// A process's window onto the network. Nothing happens behind its back: all work is done in its calls.
pub struct Endpoint<L> {
    port: Port<L>,
    config: Config,
    address: Address,
    listener: Option<Listener>,
    /// What keeps other processes from the same address.
    claim: Option<Claim>,
    channels: Channels,
    descriptors: Descriptors,
    /// Of each slot under way: the message it belongs to.
    owners: Box<[DescriptorId]>,
    /// Channels with something to send, each in its turn.
    turns: VecDeque<u16>,
    /// Whom the engine was given something for last.
    last_sent_to: Option<ConnectionHandle>,
    /// Channels whose sink refused a piece.
    waiting: Vec<u16>,
    /// Channels whose peer has another connection still, of which the engine has more to say.
    pending: Vec<u16>,
    /// Channels that peers have opened and nobody was told of yet, in their order: of the one before to the same peer the
    /// sink has not taken all that came.
    untold: Vec<(ChannelId, Address)>,
    /// Channels to processes of this host. Those that spoke last are among the first.
    local_peers: Vec<u16>,
    /// Places in it: of the next that makes room for one that speaks, of the last of the others that was asked, and of the
    /// last that was looked after.
    next_first: usize,
    last_asked: usize,
    last_seen: usize,
    /// The local peer that spoke last, if no other did in that turn.
    only_speaker: Option<u16>,
    events: VecDeque<Event>,
    /// Information that a frame carries.
    room: usize,
    /// Frames' messages since events were taken from the engine, and other things that may have made some.
    unheard: u32,
    /// Turns that delivered something since then.
    busy_turns: u32,
    /// Nobody knows what has happened since the last progress.
    has_slept: bool,
    looked_round: Instant,
    patience: Patience,
    malformed: u64,
    unauthenticated: u64,
    /// What the connections that have ended had counted.
    repeated: u64,
    duplicate: u64,
}

/// Whether an endpoint of this user on this host has an address now: who looks for one that is free saves a link, which
/// some kernels need 30 ms to open and to close.
#[must_use]
pub fn is_taken(address: Address) -> bool {
    matches!(Listener::open(&local::listener_name(address)), Err(ShmError::NameTaken(_)))
}

impl<L: Link> Endpoint<L> {
    /// An endpoint on a link that hears its tag's frames; `mtu` is the smallest on the segment, where that is less
    /// than the link's.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn open(mut link: L, config: Config, mtu: Option<usize>) -> Result<Self, EndpointError> {
        let mtu = link.mtu().min(mtu.unwrap_or(usize::MAX));
        let (guard, least) = (config.guard(), mtu_min(config.guard()));
        if mtu < least {
            return Err(EndpointError::MtuTooSmall { mtu, least });
        }
        if config.authentication.is_some() && !has_aes() {
            return Err(EndpointError::NoAes);
        }
        let room = information_max(mtu, guard);
        if let Some(config) = &config.local {
            let (pipe, needed) = (config.room()?, local::room_needed(room));
            if pipe < needed {
                return Err(EndpointError::Ring { ring_bytes: config.ring_bytes, room: pipe, needed });
            }
        }
        let connection =
            ConnectionConfig { information_max: room as u16, is_extended: true, ..config.connection.clone() };
        let token = config.framing.token;
        let cookie = if token.is_none() { config.cookie } else { 0 };
        let station = StationConfig {
            connection,
            connections: config.channels,
            backlog: config.channels.min(128),
            hash_seed: link.random_bits(),
            key: token.map_or(cookie, JobToken::key),
            sends_key: cookie != 0,
            ..StationConfig::default()
        };
        let address = Address { mac: link.address().0, sap: config.sap, cookie };
        let (encapsulation, authentication) = (config.framing.encapsulation, config.authentication.as_ref());
        let mut port = Port::new(link, &station, config.slots, encapsulation, authentication)?;
        port.slots.checks_all = config.checks_all;
        port.station.activate(config.sap);
        port.station.listen(config.sap, config.accepts);
        let looked_round = port.now();
        #[cfg(feature = "mutants")]
        {
            port.mutant = config.mutant;
        }
        let listener = config.local.as_ref().map(|_| Listener::open(&local::listener_name(address))).transpose()?;
        Ok(Self {
            port,
            address,
            listener,
            claim: None,
            channels: Channels::new(config.channels),
            descriptors: Descriptors::new(config.send_descriptors),
            owners: vec![0; usize::from(config.slots)].into_boxed_slice(),
            turns: VecDeque::with_capacity(usize::from(config.channels)),
            last_sent_to: None,
            waiting: Vec::new(),
            pending: Vec::new(),
            untold: Vec::new(),
            local_peers: Vec::new(),
            next_first: 0,
            last_asked: 0,
            last_seen: 0,
            only_speaker: None,
            events: VecDeque::with_capacity(usize::from(config.send_descriptors)),
            room,
            unheard: 0,
            busy_turns: 0,
            has_slept: false,
            looked_round,
            patience: Patience::new(config.waiting, config.shares_core),
            malformed: 0,
            unauthenticated: 0,
            repeated: 0,
            duplicate: 0,
            config,
        })
    }

    /// Its own address.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Keeps what was claimed for its address for as long as it lives.
    pub fn keep(&mut self, claim: Option<Claim>) {
        self.claim = claim;
    }

    /// What it was told of this machine.
    #[must_use]
    pub fn tuning(&self) -> &Tuning {
        &self.config.tuning
    }

    /// The link below.
    #[must_use]
    pub fn link(&mut self) -> &mut L {
        &mut self.port.link
    }

    /// A channel to a peer: the one there is, or a new one, into which can be sent at once. Whether the peer is there
    /// turns out later.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, peer: Address) -> Result<ChannelId, ConnectError> {
        if let (Some(index), true) = (self.channels.to(peer), self.untold.is_empty()) {
            return Ok(self.channels.id(index));
        }
        if self.untold.iter().any(|(_, of)| *of == peer) || self.has_predecessor(peer) {
            return Err(ConnectError::Ending(peer));
        }
        if let Some(index) = self.channels.to(peer) {
            return Ok(self.channels.id(index));
        }
        if self.channels.is_full() {
            return Err(ConnectError::Full(peer));
        }
        if self.is_local(peer) {
            let carrier =
                Carrier::Connecting { until: self.port.now() + self.config.local_patience, is_exhausted: false };
            let id = self.channels.add(Channel::new(peer, carrier)).ok_or(ConnectError::Full(peer))?;
            self.local_peers.push(id.index);
            self.connect_local(id.index);
            return Ok(id);
        }
        let at = Peer { local: self.address.sap, mac: peer.mac, remote: peer.sap };
        let now = self.port.now();
        let key = self.config.key_to(peer);
        let carrier = match self.port.station.connect(at, key, now) {
            Ok(handle) => Carrier::Wire { handle, is_open: false },
            Err(barewire_llc::ConnectError::Exists) => Carrier::Pending,
            Err(_) => return Err(ConnectError::Full(peer)),
        };
        let is_pending = matches!(carrier, Carrier::Pending);
        let id = self.channels.add(Channel::new(peer, carrier)).ok_or(ConnectError::Full(peer))?;
        if is_pending {
            self.pending.push(id.index);
            self.unheard += 1;
        }
        Ok(id)
    }

    /// Whom a channel leads to; `None` once it has ended.
    pub fn peer(&mut self, channel: ChannelId) -> Option<Address> {
        self.channels.get(channel).map(|channel| channel.peer)
    }

    /// Whether a channel has come about: its peer is there.
    pub fn is_open(&mut self, channel: ChannelId) -> bool {
        let carrier = self.channels.get(channel).map(|channel| &channel.carrier);
        matches!(carrier, Some(Carrier::Wire { is_open: true, .. } | Carrier::Local { .. }))
    }

    /// Ends a channel once all that was given to it is sent. [`Event::Ended`] tells.
    pub fn close(&mut self, channel: ChannelId) {
        // Again is nothing new: whoever says it each time must be able to sleep.
        if let Some(entry) =
            self.channels.get(channel).filter(|entry| !entry.is_closing || mutant!(self.config, ClosesAgain))
        {
            entry.is_closing = true;
            self.unheard += 1;
            self.take_turn(channel.index);
        }
    }

    /// Breaks a channel off, whatever its peer does: messages that are not sent fail, and [`Event::Ended`] tells soon, with
    /// this ending.
    pub fn abort(&mut self, channel: ChannelId, ending: Ending) {
        let Some(entry) = self.channels.get(channel) else { return };
        entry.ending.get_or_insert(ending);
        entry.is_closing = true;
        self.unheard += 1;
        match entry.carrier {
            Carrier::Wire { handle, .. } => {
                let now = self.port.now();
                self.port.station.abort(handle, now);
            }
            // Ends when the sink has taken what it refused.
            Carrier::Over => {}
            Carrier::Pending | Carrier::Connecting { .. } | Carrier::Local { .. } => {
                entry.queue.clear();
                self.fail_messages(channel.index, ending);
                // The next look round ends it.
                self.looked_round = Instant::from_nanos(0);
            }
        }
    }

    /// The next event, until there is none.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Does all there is to do now: takes what has come and gives it to `sink`, sends what can be sent. True if
    /// something was received or an event waits.
    ///
    /// # Errors
    /// When the link no longer works.
    #[inline]
    pub fn progress(&mut self, sink: &mut impl Sink) -> Result<bool, EndpointError> {
        let was_parked = !self.waiting.is_empty() && self.offer_again(sink);
        let (mut is_news, of_frames) = self.take_frames(sink)?;
        // A local peer's message leaves nothing to hear or to say.
        self.unheard += u32::from(was_parked || of_frames);
        let received = (!self.local_peers.is_empty() && self.take_local(sink)) || was_parked || of_frames;
        self.busy_turns += u32::from(received);
        // Whoever asked for an acknowledgement waits for it, while what was received may keep the caller busy for long.
        if received && self.port.station.is_answer_due() {
            self.port.transmit()?;
        }
        // What was received may show that a message has arrived: whoever is told of the one is told of the other.
        if of_frames && self.descriptors.has_awaited() {
            self.hear(sink);
        }
        // A message is handed over first; what else there is to do can wait for a quieter moment, but not for ever: the
        // acknowledgement that it brought may be what a sender waits for, who sleeps next.
        is_news |= self.has_slept;
        let is_quiet = (is_news || self.unheard > 0) && !received;
        if is_quiet || self.busy_turns >= BUSY_TURNS_MAX || !self.turns.is_empty() {
            (self.unheard, self.busy_turns) = (0, 0);
            let has_slept = std::mem::take(&mut self.has_slept);
            if is_news && self.listener.is_some() {
                self.look_round(sink, has_slept)?;
            }
            self.port.transmit()?;
            self.hear(sink);
            self.pump()?;
            self.port.transmit()?;
        }
        Ok(received || !self.events.is_empty())
    }

    /// Whether nothing can be sent now, so that a peer loses nothing if the next progress comes later: it would look
    /// whether something has come, and hear what was acknowledged.
    #[inline]
    #[must_use]
    pub fn owes_nothing(&self) -> bool {
        self.turns.is_empty() && self.events.is_empty() && !self.port.station.has_frames()
    }

    /// Whether a message waits to be sent, or is not acknowledged.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        !self.descriptors.are_all_free()
    }

    /// Whether the last message, or one that waits for room, could not be sent: until its peer takes or acknowledges others.
    #[inline]
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        !self.turns.is_empty() || self.last_sent_to.is_some_and(|connection| self.port.holds_up(connection))
    }

    /// Makes progress until something was received or an event waits, for `patience` at most, and waits meanwhile as
    /// configured. False if nothing came.
    ///
    /// # Errors
    /// When the link no longer works.
    pub fn wait(&mut self, sink: &mut impl Sink, patience: Duration) -> Result<bool, EndpointError> {
        let (mut asks, mut turns) = (self.patience.asks(), 0_u32);
        let began = self.port.now();
        let end = began + patience;
        let last_question = if self.patience.sleeps() { end.min(began + Patience::ASKING) } else { end };
        loop {
            if self.progress(sink)? {
                self.patience.learn(asks);
                return Ok(true);
            }
            if asks {
                turns += 1;
                if self.patience.shares_core() {
                    std::thread::yield_now();
                } else if !turns.is_multiple_of(TURNS_PER_CLOCK) {
                    continue;
                }
                asks = self.port.now() < last_question;
            } else {
                let left = end.as_nanos().saturating_sub(self.port.now().as_nanos());
                if left == 0 {
                    self.patience.learn(false);
                    return Ok(false);
                }
                self.check()?;
                self.sleep(Duration::from_nanos(left))?;
            }
        }
    }

    /// Goes on with what was given to the endpoint and is not done, without waiting; true once nothing is left.
    ///
    /// # Errors
    /// When the link no longer works.
    pub fn settle(&mut self, sink: &mut impl Sink) -> Result<bool, EndpointError> {
        self.port.tell_time();
        self.has_slept = true;
        self.looked_round = Instant::from_nanos(0);
        let now = self.port.now();
        for handle in self.channels.connections() {
            self.port.station.request_ack(handle, now);
        }
        self.progress(sink)?;
        self.hear(sink);
        self.pump()?;
        self.port.transmit()?;
        Ok(self.descriptors.are_all_free())
    }

    /// Sleeps until something comes, something is due, or for `patience`; uses no processor meanwhile.
    ///
    /// # Errors
    /// When the link no longer works.
    pub fn sleep(&mut self, patience: Duration) -> Result<(), EndpointError> {
        let Some(patience) = self.prepare_to_sleep(patience)? else { return Ok(()) };
        let others: Vec<BorrowedFd<'_>> = awaited(&self.listener, &self.local_peers, &self.channels).collect();
        unless_down(self.port.link.wait_to_receive_or(&others, patience))?;
        self.port.tell_time();
        Ok(())
    }

    /// Makes ready for a sleep that the caller sleeps: until the link or one of [`awaited`](Self::awaited) can be read,
    /// for as long as is returned at most; `None`: there is something to do. [`progress`](Self::progress) comes next.
    ///
    /// # Errors
    /// When the link no longer works.
    pub fn prepare_to_sleep(&mut self, patience: Duration) -> Result<Option<Duration>, EndpointError> {
        // The next progress looks everywhere, whatever wakes us.
        self.has_slept = true;
        self.looked_round = Instant::from_nanos(0);
        if self.unheard > 0 || !self.events.is_empty() {
            return Ok(None);
        }
        // A socket whose interface went down wakes every sleeper, until somebody has asked it why.
        self.check()?;
        let patience = self.port.prepare_to_sleep(patience)?;
        Ok(self.arm_local_peers(patience).filter(|patience| !patience.is_zero()))
    }

    /// What a sleeper awaits besides the link: that somebody of this host connects, or has something for us.
    pub fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        awaited(&self.listener, &self.local_peers, &self.channels)
    }

    /// Asks whether the link still works, for callers that spin. One that is down may come up again.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&mut self) -> Result<(), EndpointError> {
        Ok(unless_down(self.port.link.check())?)
    }

    /// What has been counted so far.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn counters(&mut self) -> Result<EndpointCounters, EndpointError> {
        let link = self.port.link.counters()?;
        let station = self.port.station.counters();
        let mut counters = EndpointCounters {
            foreign: self.port.foreign,
            unauthenticated: self.unauthenticated
                + self.port.unauthentic
                + station.unauthenticated
                + station.ended_connections.unauthenticated,
            replayed: self.port.replayed,
            damaged: self.port.damaged,
            malformed: self.malformed,
            repeated: self.repeated,
            duplicate: self.duplicate,
            ring_full: link.receive_dropped,
            send_busy: link.send_busy,
        };
        for handle in self.channels.connections() {
            let Some(connection) = self.port.station.connection(handle) else { continue };
            counters.repeated += connection.counters().information_repeated;
            counters.duplicate += connection.counters().received_again;
            counters.unauthenticated += connection.counters().unauthenticated;
        }
        Ok(counters)
    }

    /// Takes what the engine has to say.
    fn hear(&mut self, sink: &mut impl Sink) {
        while let Some(event) = self.port.station.poll_event() {
            match event {
                StationEvent::Connection(_, ConnectionEvent::Acknowledged(slot)) => self.slot_done(slot, true),
                StationEvent::Connection(_, ConnectionEvent::Dropped(slot)) => self.slot_done(slot, false),
                StationEvent::Connection(handle, ConnectionEvent::Incoming) => self.accept(handle),
                StationEvent::Connection(handle, ConnectionEvent::Connected) => {
                    let Some(index) = self.channels.of_connection(handle) else { continue };
                    if let Some(Channel { carrier: Carrier::Wire { is_open, .. }, .. }) = self.channels.at(index) {
                        *is_open = true;
                    }
                    self.take_turn(index);
                }
                StationEvent::Connection(handle, ConnectionEvent::Reset(cause)) => self.reset(handle, cause, sink),
                StationEvent::Connection(_, ConnectionEvent::ResetDone) => {}
                StationEvent::Connection(handle, ConnectionEvent::Disconnected(cause)) => {
                    if let Some(connection) = self.port.station.connection(handle) {
                        self.repeated += connection.counters().information_repeated;
                        self.duplicate += connection.counters().received_again;
                    }
                    if let Some(index) = self.channels.of_connection(handle) {
                        self.retire(index, cause.into(), sink);
                    }
                }
                StationEvent::Datagram(_, slot, outcome) => {
                    self.port.slots.free(slot);
                    let Some(message) = self.descriptors.remove(self.owners[usize::from(slot)]) else { continue };
                    let context = message.context;
                    self.events.push_back(match outcome {
                        DatagramOutcome::Answered(status) if status.is_accepted() => Event::Sent { context },
                        DatagramOutcome::Answered(_) => Event::Failed { context, ending: Ending::Refused },
                        DatagramOutcome::NoAnswer => Event::Failed { context, ending: Ending::NoAnswer },
                    });
                }
                StationEvent::AddressChecked { .. } => {}
            }
        }
        if !self.pending.is_empty() {
            self.connect_pending(sink);
        }
    }

    fn connect_pending(&mut self, sink: &mut impl Sink) {
        let now = self.port.now();
        for place in (0..self.pending.len()).rev() {
            let index = self.pending[place];
            let Some(channel) = self.channels.at(index) else { continue };
            if channel.is_closing && channel.queue.is_empty() {
                self.end(index, Ending::Closed, sink);
                continue;
            }
            let peer = Peer { local: self.address.sap, mac: channel.peer.mac, remote: channel.peer.sap };
            let key = self.config.key_to(channel.peer);
            if let Ok(handle) = self.port.station.connect(peer, key, now) {
                self.pending.swap_remove(place);
                self.channels.begin(index, handle, false);
            }
        }
    }

    /// A peer asks for a channel.
    fn accept(&mut self, handle: ConnectionHandle) {
        let now = self.port.now();
        let Some(Peer { mac, remote, .. }) = self.port.station.peer(handle) else { return };
        let cookie = if self.config.framing.token.is_none() { self.port.station.peer_key(handle) } else { 0 };
        let peer = Address { mac, sap: remote, cookie };
        let known = self.channels.to(peer);
        if let Some(index) = known
            && self.pending.contains(&index)
            && self.port.station.accept(handle, now)
        {
            self.pending.retain(|pending| *pending != index);
            self.channels.begin(index, handle, true);
            self.take_turn(index);
            return;
        }
        if known.is_some() || self.channels.is_full() || !self.port.station.accept(handle, now) {
            self.port.station.disconnect(handle, now);
            return;
        }
        if let Some(channel) = self.channels.add(Channel::new(peer, Carrier::Wire { handle, is_open: true })) {
            self.tell_opened(channel, peer);
        }
    }

    /// What was under way is lost, so the channel ends. If it was the peer that wants to number anew, it was started
    /// again: it has asked for a channel, and nobody is asked twice.
    fn reset(&mut self, handle: ConnectionHandle, cause: Cause, sink: &mut impl Sink) {
        let now = self.port.now();
        if cause != Cause::PeerReset || !self.config.accepts {
            self.end_connection(handle, cause.into());
            return;
        }
        let Some(index) = self.channels.of_connection(handle) else { return };
        let Some(peer) = self.channels.at(index).map(|channel| channel.peer) else { return };
        self.retire(index, cause.into(), sink);
        self.port.station.accept_reset(handle, now);
        if let Some(channel) = self.channels.add(Channel::new(peer, Carrier::Wire { handle, is_open: true })) {
            self.tell_opened(channel, peer);
        }
    }

    /// Breaks a connection off; the engine says when it has ended.
    fn end_connection(&mut self, handle: ConnectionHandle, ending: Ending) {
        if let Some(channel) = self.channels.of_connection(handle).and_then(|index| self.channels.at(index)) {
            channel.ending = Some(ending);
        }
        let now = self.port.now();
        self.port.station.abort(handle, now);
    }

    /// The engine has done with a slot.
    #[inline]
    fn slot_done(&mut self, slot: crate::Slot, is_acknowledged: bool) {
        self.port.slots.free(slot);
        let id = self.owners[usize::from(slot)];
        let Some(message) = self.descriptors.at(id) else { return };
        message.outstanding -= 1;
        message.is_lost |= !is_acknowledged;
        if message.outstanding == 0 && message.is_cut && !message.is_lost {
            self.events.push_back(Event::Sent { context: message.context });
            self.descriptors.remove(id);
        }
    }

    /// A peer's carrier is no more: messages to it are reported at once, and the channel ends when all that it has
    /// received was taken, which was acknowledged.
    fn retire(&mut self, index: u16, ending: Ending, sink: &mut impl Sink) {
        match self.channels.at(index) {
            Some(channel) if !channel.parked.is_empty() && !channel.is_closing => {
                let ending = *channel.ending.get_or_insert(ending);
                channel.queue.clear();
                self.channels.retire(index, ending);
                self.fail_messages(index, ending);
            }
            _ => self.end(index, ending, sink),
        }
    }

    /// A channel is no more: its messages are reported, then it.
    fn end(&mut self, index: u16, ending: Ending, sink: &mut impl Sink) {
        let id = self.channels.id(index);
        let Some(channel) = self.channels.remove(index) else { return };
        let ending = channel.ending.unwrap_or(ending);
        self.waiting.retain(|waiting| *waiting != index);
        self.local_peers.retain(|local_peer| *local_peer != index);
        self.turns.retain(|turn| *turn != index);
        self.pending.retain(|pending| *pending != index);
        self.fail_messages(index, ending);
        if self.untold.iter().any(|(untold, _)| *untold == id) {
            self.untold.retain(|(untold, _)| *untold != id);
            return;
        }
        sink.ended(id);
        self.events.push_back(Event::Ended { channel: id, peer: channel.peer, ending });
        if !self.untold.is_empty() {
            self.tell_successors();
        }
    }

    fn fail_messages(&mut self, index: u16, ending: Ending) {
        for message in self.descriptors.of_channel(index) {
            let Some(message) = self.descriptors.remove(message) else { continue };
            debug_assert_eq!(message.outstanding, 0, "the engine has done with all of its slots");
            if let Content::Slot(slot) = message.content {
                self.port.slots.free(slot);
            }
            let context = message.context;
            let is_failed = !mutant!(self.config, FailedIsSent);
            self.events.push_back(if is_failed { Event::Failed { context, ending } } else { Event::Sent { context } });
        }
    }

    /// Queues a channel for sending.
    #[inline]
    fn take_turn(&mut self, index: u16) {
        if let Some(channel) = self.channels.at(index)
            && !channel.in_turn
        {
            channel.in_turn = true;
            self.turns.push_back(index);
        }
    }
}

/// Whether this processor has what authentication is computed with.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("aes") && is_x86_feature_detected!("avx");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

fn awaited<'a>(
    listener: &'a Option<Listener>,
    local_peers: &'a [u16],
    channels: &'a Channels,
) -> impl Iterator<Item = BorrowedFd<'a>> {
    let of_local_peers = local_peers.iter().flat_map(|index| channels.descriptors_of(*index));
    listener.as_ref().map(std::os::fd::AsFd::as_fd).into_iter().chain(of_local_peers)
}
