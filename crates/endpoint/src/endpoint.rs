// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoint: channels to peers; sending and receiving of messages.

mod events;
mod local;
mod receive;
mod send;
mod succession;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use barewire_link::{Claim, Link, LinkError};
use barewire_llc::{ConnectionConfig, ConnectionHandle, Instant, Peer, StationConfig};
use barewire_shm::{Listener, Pipe, ShmError};

use crate::address::Address;
use crate::channel::{Carrier, Channel, ChannelId, Channels};
use crate::config::Config;
use crate::descriptors::Descriptors;
use crate::error::{ConnectError, Ending, EndpointError};
use crate::labels::Labels;
use crate::port::{Port, ignore_down, information_max, mtu_min};
use crate::sink::Sink;
use crate::token::JobToken;
use crate::tuning::Tuning;
use crate::waiting::WaitPolicy;

use send::Owner;

/// An event that an endpoint reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer opened a channel.
    Opened {
        /// The new channel.
        channel: ChannelId,
        /// The peer.
        peer: Address,
    },
    /// A message has reached the peer's endpoint or, for a local peer, the pipe; or, for
    /// [`Report::Copied`](crate::Report::Copied), was copied. The caller may reuse its memory.
    Sent {
        /// Context of the message.
        context: u64,
    },
    /// A message was given up; the peer may or may not have received it. The caller may reuse its memory.
    Failed {
        /// Context of the message.
        context: u64,
        /// Reason.
        ending: Ending,
    },
    /// The room that [`Endpoint::has_room`] did not find has become free; other messages may have taken it since.
    Room {
        /// The channel.
        channel: ChannelId,
    },
    /// A channel has ended. Its messages were reported before.
    Ended {
        /// The channel; this identifier is no longer valid.
        channel: ChannelId,
        /// The peer.
        peer: Address,
        /// Reason.
        ending: Ending,
        /// Whether the peer may have missed a message that no [`Event::Failed`] reports
        /// ([`Report::Loss`](crate::Report::Loss), [`Report::Copied`](crate::Report::Copied)).
        has_lost: bool,
    },
}

/// Counters of discarded, retransmitted and duplicate frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    /// Frames without an LLC PDU, and truncated frames.
    pub foreign: u64,
    /// Frames and local peers without the required job token, endpoint cookie or connection marks. With authentication:
    /// frames without a valid seal, including frames that were modified in transit.
    pub unauthenticated: u64,
    /// Authentic frames of a connection that were received before, or that more than a thousand later frames overtook.
    pub replayed: u64,
    /// Frames with a wrong check: corrupted in transit, or from a station of another implementation.
    pub damaged: u64,
    /// Fragments that do not continue the channel's message. Each ends its channel.
    pub malformed: u64,
    /// Frames retransmitted.
    pub repeated: u64,
    /// Frames received more than once.
    pub duplicate: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Number of times the link was too busy to accept a frame.
    pub send_busy: u64,
}

/// Maximum number of polls that deliver something before events are processed, so that slots become free.
const BUSY_POLLS_MAX: u32 = 16;
/// Polls between two readings of the clock, which costs as much as several polls.
const POLLS_PER_CLOCK_READ: u32 = 32;
/// Interval between checks of the listener and of the local peers' state. Each check is a system call.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(2);

/// A process's own access to the network. There is no background thread: all work is done in calls of its methods.
pub struct Endpoint<L> {
    port: Port<L>,
    config: Config,
    address: Address,
    listener: Option<Listener>,
    /// Pipes that were accepted and have no channel yet; the next housekeeping gives them one.
    accepted: VecDeque<Pipe>,
    /// Keeps other processes from using the same address.
    claims: Vec<Claim>,
    channels: Channels,
    descriptors: Descriptors,
    /// By slot: what occupies it.
    owners: Box<[Owner]>,
    /// Channels with something to send, served round-robin.
    ready: VecDeque<u16>,
    /// The link's error when a queued message was submitted, until it is reported.
    link_error: Option<LinkError>,
    /// Connection of the last message that was handed to the engine.
    last_sent_to: Option<ConnectionHandle>,
    /// Channels with pieces that the sink refused.
    parked_channels: Vec<u16>,
    /// Channels that wait for the engine to finish an earlier connection to the same peer.
    pending: Vec<u16>,
    /// Channels opened by peers and not reported yet, in order: the sink has not taken all data of the previous channel
    /// to the same peer.
    unreported: Vec<(ChannelId, Address)>,
    /// Channels to local peers. The most recent senders are among the first `local::ACTIVE_PEERS`.
    local_peers: Vec<u16>,
    /// Indices into `local_peers`: the active entry to be replaced next, the inactive entry polled last, and the entry
    /// whose state was checked last.
    next_active: usize,
    last_polled: usize,
    last_checked: usize,
    /// The local peer from which the last successful poll received, if it was the only one.
    only_sender: Option<u16>,
    events: VecDeque<Event>,
    /// Bytes of the information field of a frame to any peer.
    information_max: usize,
    /// Largest payload of a frame to some peers, in bytes.
    mtu_max: usize,
    /// Actions since events were last taken from the engine that may have produced events.
    pending_events: u32,
    /// Polls since then that delivered something.
    busy_polls: u32,
    /// Set by a sleep: the next call of `progress` must check everything.
    has_slept: bool,
    /// A poll has read the clock since the last housekeeping.
    is_check_due: bool,
    /// Whether the last call that received stopped before it had received all.
    stopped_early: bool,
    last_housekeeping: Instant,
    wait_policy: WaitPolicy,
    malformed: u64,
    unauthenticated: u64,
    /// Totals of connections that have ended.
    repeated: u64,
    duplicate: u64,
}

/// Whether an endpoint of this user on this host uses the address. Opening a link only to find that out would cost up
/// to 30 ms on some kernels.
#[must_use]
pub fn is_taken(address: Address) -> bool {
    matches!(Listener::open(&local::listener_name(address)), Err(ShmError::NameTaken(_)))
}

impl<L: Link> Endpoint<L> {
    /// Opens an endpoint on a link that receives the frames of its SAP. `mtu` is the smallest MTU on the segment, if it
    /// is less than the link's.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn open(mut link: L, config: Config, mtu: Option<usize>) -> Result<Self, EndpointError> {
        let limit = mtu.unwrap_or(usize::MAX);
        let (mtu, mtu_max) = (link.mtu_min().min(limit), link.mtu().min(limit));
        let (guard, least) = (config.guard(), mtu_min(config.guard()));
        if mtu < least {
            return Err(EndpointError::MtuTooSmall { mtu, least });
        }
        if config.authentication.is_some() && !has_aes() {
            return Err(EndpointError::NoAes);
        }
        let (frame_max, information_max) = (information_max(mtu_max, guard), information_max(mtu, guard));
        if let Some(config) = &config.local {
            let (pipe, needed) = (config.message_max()?, local::pipe_message_bytes(frame_max));
            if pipe < needed {
                return Err(EndpointError::Ring { ring_bytes: config.ring_bytes, room: pipe, needed });
            }
        }
        // A peer may have a longer MTU: what the link delivers is accepted.
        let mut connection =
            ConnectionConfig { information_max: u16::MAX, is_extended: true, ..config.connection.clone() };
        connection.labels = config.labels.map_or(0, Labels::count);
        let token = config.framing.token;
        let cookie = if token.is_none() { config.cookie } else { 0 };
        let station = StationConfig {
            connection,
            connections: config.channels,
            // Any peer that has the key may connect, even all at the same time.
            backlog: config.channels,
            hash_seed: link.random_bits(),
            key: token.map_or(cookie, JobToken::key),
            sends_key: cookie != 0,
            ..StationConfig::default()
        };
        let mut locator = link.locator();
        locator.host = config.host;
        let address = Address { mac: link.address().0, sap: config.sap, cookie, locator };
        link.set_station(config.sap.byte(), config.key_to(address));
        let (encapsulation, authentication) = (config.framing.encapsulation, config.authentication.as_ref());
        let mut port = Port::new(link, &station, config.slots, encapsulation, authentication)?;
        port.labels = config.labels;
        port.slots.checks_all = config.checks_all;
        port.station.activate(config.sap);
        port.station.listen(config.sap, config.accepts);
        let last_housekeeping = port.now();
        #[cfg(feature = "mutants")]
        {
            port.mutant = config.mutant;
        }
        let listener = config.local.as_ref().map(|_| Listener::open(&local::listener_name(address))).transpose()?;
        Ok(Self {
            port,
            address,
            listener,
            accepted: VecDeque::new(),
            claims: Vec::new(),
            channels: Channels::new(config.channels),
            descriptors: Descriptors::with_capacity(config.send_descriptors),
            owners: vec![Owner::Nobody; usize::from(config.slots)].into_boxed_slice(),
            ready: VecDeque::with_capacity(usize::from(config.channels)),
            link_error: None,
            last_sent_to: None,
            parked_channels: Vec::new(),
            pending: Vec::new(),
            unreported: Vec::new(),
            local_peers: Vec::new(),
            next_active: 0,
            last_polled: 0,
            last_checked: 0,
            only_sender: None,
            events: VecDeque::with_capacity(config.send_descriptors),
            information_max,
            mtu_max,
            pending_events: 0,
            busy_polls: 0,
            has_slept: false,
            is_check_due: false,
            stopped_early: false,
            last_housekeeping,
            wait_policy: WaitPolicy::new(config.waiting, config.shares_core),
            malformed: 0,
            unauthenticated: 0,
            repeated: 0,
            duplicate: 0,
            config,
        })
    }

    /// The endpoint's address.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Holds the claims on its address, and on those of its other interfaces, until the endpoint is dropped.
    pub fn hold_claims(&mut self, claims: impl IntoIterator<Item = Claim>) {
        self.claims.extend(claims);
    }

    /// Tuning values in use.
    #[must_use]
    pub fn tuning(&self) -> &Tuning {
        &self.config.tuning
    }

    /// The underlying link.
    #[must_use]
    pub fn link(&mut self) -> &mut L {
        &mut self.port.link
    }

    /// Returns the channel to a peer, or opens one. Messages can be sent at once; failure to connect is reported later.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, peer: Address) -> Result<ChannelId, ConnectError> {
        if let (Some(index), true) = (self.channels.find(peer), self.unreported.is_empty()) {
            return Ok(self.channels.id(index));
        }
        if self.unreported.iter().any(|(_, unreported)| *unreported == peer) || self.has_predecessor(peer) {
            return Err(ConnectError::Ending(peer));
        }
        if let Some(index) = self.channels.find(peer) {
            return Ok(self.channels.id(index));
        }
        if self.channels.is_full() {
            return Err(ConnectError::Full(peer));
        }
        if self.is_local(peer) {
            let carrier =
                Carrier::Connecting { until: self.port.now() + self.config.connect_timeout, is_exhausted: false };
            let id = self.channels.add(Channel::new(peer, carrier)).ok_or(ConnectError::Full(peer))?;
            self.local_peers.push(id.index);
            self.accept_or_connect(id.index);
            return Ok(id);
        }
        let ends = Peer { local: self.address.sap, mac: peer.mac, remote: peer.sap };
        let now = self.port.now();
        let key = self.config.key_to(peer);
        let carrier = match self.port.station.connect(ends, key, now) {
            Ok(handle) => Carrier::Wire { handle, is_open: false },
            Err(barewire_llc::ConnectError::Exists) => Carrier::Pending,
            Err(_) => return Err(ConnectError::Full(peer)),
        };
        // Not before: the link never forgets a peer.
        self.port.add_peer(peer, key);
        let is_pending = matches!(carrier, Carrier::Pending);
        let id = self.channels.add(Channel::new(peer, carrier)).ok_or(ConnectError::Full(peer))?;
        if is_pending {
            self.pending.push(id.index);
            self.pending_events += 1;
        }
        Ok(id)
    }

    /// The peer of a channel; `None` once the channel has ended.
    pub fn peer(&mut self, channel: ChannelId) -> Option<Address> {
        self.channels.get(channel).map(|channel| channel.peer)
    }

    /// The peers of all channels, and whether each is reached through shared memory.
    #[must_use]
    pub fn peers(&self) -> Vec<(Address, bool)> {
        self.channels.peers().collect()
    }

    /// Whether the peer has accepted the channel.
    pub fn is_open(&mut self, channel: ChannelId) -> bool {
        let carrier = self.channels.get(channel).map(|channel| &channel.carrier);
        matches!(carrier, Some(Carrier::Wire { is_open: true, .. } | Carrier::Local { .. }))
    }

    /// Ends a channel once everything queued on it is sent, and reports [`Event::Ended`].
    pub fn close(&mut self, channel: ChannelId) {
        // A repeated call must not count as new work: a caller that repeats it could never sleep.
        if let Some(entry) = self.channels.get(channel).filter(|entry| !entry.is_closing) {
            entry.is_closing = true;
            self.pending_events += 1;
            self.mark_ready(channel.index);
        }
    }

    /// Aborts a channel without waiting for the peer: unsent messages fail, and [`Event::Ended`] follows with it.
    pub fn abort(&mut self, channel: ChannelId, ending: Ending) {
        let Some(entry) = self.channels.get(channel) else { return };
        entry.ending.get_or_insert(ending);
        entry.is_closing = true;
        self.pending_events += 1;
        match entry.carrier {
            Carrier::Wire { handle, .. } => {
                let now = self.port.now();
                self.port.station.abort(handle, now);
            }
            // Ends when the sink has taken the parked pieces.
            Carrier::Ended => {}
            Carrier::Pending | Carrier::Connecting { .. } | Carrier::Local { .. } => {
                self.fail_messages(channel.index, ending);
                // The next housekeeping ends the channel.
                self.last_housekeeping = Instant::from_nanos(0);
            }
        }
    }

    /// The next event, if any.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Does all work that is due: receives into `sink`, sends what can be sent. Returns true if something was received
    /// or an event is queued.
    ///
    /// # Errors
    /// If the link no longer works.
    #[inline]
    pub fn progress(&mut self, sink: &mut impl Sink) -> Result<bool, EndpointError> {
        let was_parked = !self.parked_channels.is_empty() && self.offer_parked(sink);
        let (mut has_changed, from_frames) = self.receive_frames(sink)?;
        // Receiving from a pipe produces no engine events and no frames.
        self.pending_events += u32::from(was_parked || from_frames);
        let received = (!self.local_peers.is_empty() && self.poll_local_peers(sink)) || was_parked || from_frames;
        self.busy_polls += u32::from(received);
        // The peer waits for a requested acknowledgement, and the caller may process what it received for a long time.
        if received && self.port.station.is_answer_due() {
            self.port.transmit()?;
        }
        // A received frame may acknowledge a message for which the caller waits: report both in the same call.
        if from_frames && self.descriptors.has_awaited() {
            self.process_events(sink);
        }
        // Messages are delivered first. Other work waits for a poll that receives nothing, but only for a bounded
        // number of polls: a sender that is about to sleep may wait for an acknowledgement received with a message.
        has_changed |= self.has_slept;
        // While the messages of local peers arrive without a pause, other work is done in one poll, and the clock may
        // always be read in another.
        self.is_check_due |= has_changed && !from_frames;
        let is_idle = (has_changed || self.pending_events > 0) && !received;
        if is_idle || self.busy_polls >= BUSY_POLLS_MAX || !self.ready.is_empty() {
            (self.pending_events, self.busy_polls) = (0, 0);
            let has_slept = std::mem::take(&mut self.has_slept);
            if (std::mem::take(&mut self.is_check_due) || has_changed) && self.listener.is_some() {
                self.run_housekeeping(sink, has_slept)?;
            }
            self.port.transmit()?;
            self.process_events(sink);
            self.pump()?;
            self.port.transmit()?;
        }
        Ok(received || !self.events.is_empty())
    }

    /// Whether nothing is to be sent and no event is queued, so that delaying `progress` delays no peer: it would only
    /// receive frames and process acknowledgements.
    #[inline]
    #[must_use]
    pub fn has_nothing_to_send(&self) -> bool {
        self.ready.is_empty() && self.events.is_empty() && !self.port.station.has_frames()
    }

    /// Whether a message is unsent or unacknowledged.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.descriptors.len() > 0 || !self.port.slots.are_all_free()
    }

    /// Whether the last message, or one that waits for room, is blocked until its peer receives or acknowledges others.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.ready.is_empty() || self.last_sent_to.is_some_and(|connection| self.port.is_blocked(connection))
    }

    /// Makes progress until something is received or an event is queued, for at most `timeout`; waits as configured.
    /// Returns false on timeout.
    ///
    /// # Errors
    /// If the link no longer works.
    pub fn wait(&mut self, sink: &mut impl Sink, timeout: Duration) -> Result<bool, EndpointError> {
        let (mut spins, mut polls) = (self.wait_policy.spins(), 0_u32);
        let began = self.port.now();
        let end = began + timeout;
        let spin_end = if self.wait_policy.sleeps() { end.min(began + WaitPolicy::SPIN_TIME) } else { end };
        loop {
            if self.progress(sink)? {
                self.wait_policy.learn(spins);
                return Ok(true);
            }
            if spins {
                polls += 1;
                if self.wait_policy.shares_core() {
                    std::thread::yield_now();
                } else if !polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
                    continue;
                }
                spins = self.port.now() < spin_end;
            } else {
                let left = end.as_nanos().saturating_sub(self.port.now().as_nanos());
                if left == 0 {
                    self.wait_policy.learn(false);
                    return Ok(false);
                }
                self.check()?;
                self.sleep(Duration::from_nanos(left))?;
            }
        }
    }

    /// Continues to send what is queued, without waiting. Returns true once no message is unsent or unacknowledged.
    ///
    /// # Errors
    /// If the link no longer works.
    pub fn settle(&mut self, sink: &mut impl Sink) -> Result<bool, EndpointError> {
        self.port.update_time();
        self.has_slept = true;
        self.last_housekeeping = Instant::from_nanos(0);
        let now = self.port.now();
        for handle in self.channels.connections() {
            self.port.station.request_ack(handle, now);
        }
        self.progress(sink)?;
        self.process_events(sink);
        self.pump()?;
        self.port.transmit()?;
        Ok(!self.has_messages())
    }

    /// Sleeps until there is something to receive, a timer expires, or for `timeout`.
    ///
    /// # Errors
    /// If the link no longer works.
    pub fn sleep(&mut self, timeout: Duration) -> Result<(), EndpointError> {
        let Some(timeout) = self.prepare_to_sleep(timeout)? else { return Ok(()) };
        let descriptors: Vec<BorrowedFd<'_>> = awaited(&self.listener, &self.local_peers, &self.channels).collect();
        ignore_down(self.port.link.wait_to_receive_or(&descriptors, timeout))?;
        self.port.update_time();
        Ok(())
    }

    /// Prepares for a sleep of the caller: until the link or one of [`awaited`](Self::awaited) becomes readable, for at
    /// most the returned time. `None` if there is work to do. Call [`progress`](Self::progress) after the sleep.
    ///
    /// # Errors
    /// If the link no longer works.
    pub fn prepare_to_sleep(&mut self, timeout: Duration) -> Result<Option<Duration>, EndpointError> {
        // The next call of `progress` must check everything, whatever ends the sleep.
        self.has_slept = true;
        self.last_housekeeping = Instant::from_nanos(0);
        if self.pending_events > 0 || !self.events.is_empty() || !self.accepted.is_empty() {
            return Ok(None);
        }
        if self.port.link.has_pending() || self.port.has_reordered() {
            return Ok(None);
        }
        // A socket whose interface went down wakes every sleeper until its error is read.
        self.check()?;
        let timeout = self.port.prepare_to_sleep(timeout)?;
        Ok(self.arm_local_peers(timeout).filter(|timeout| !timeout.is_zero()))
    }

    /// Whether the last [`progress`](Self::progress) left messages that had arrived, as it does after one that its
    /// caller waited for.
    #[inline]
    #[must_use]
    pub fn has_more_to_receive(&self) -> bool {
        self.stopped_early
    }

    /// Handles the timers that are due and sends the resulting frames, for a caller that rarely makes progress:
    /// [`progress`](Self::progress) reads the clock only in every n-th call. The next call processes the events.
    ///
    /// # Errors
    /// If the link no longer works.
    pub fn run_timers(&mut self) -> Result<(), EndpointError> {
        self.pending_events += 1;
        self.port.prepare_to_sleep(Duration::ZERO)?;
        Ok(())
    }

    /// Descriptors to wait on besides the link's: the listener's, for new local peers, and those of local peers.
    pub fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        awaited(&self.listener, &self.local_peers, &self.channels)
    }

    /// Tells that the sink may take pieces now that it has refused. They are offered by the next
    /// [`progress`](Self::progress), which no sleep must delay: nothing else would wake the sleeper for them.
    pub fn offer_again(&mut self) {
        self.pending_events += u32::from(!self.parked_channels.is_empty());
    }

    /// Checks whether the link still works, for callers that spin. A link that is down may come up again.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&mut self) -> Result<(), EndpointError> {
        Ok(ignore_down(self.port.link.check())?)
    }

    /// Counters since the endpoint was opened.
    ///
    /// # Errors
    /// If the system does not provide them.
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

    /// Queues a channel for sending.
    #[inline]
    fn mark_ready(&mut self, index: u16) {
        if let Some(channel) = self.channels.at(index)
            && !channel.is_queued
        {
            channel.is_queued = true;
            self.ready.push_back(index);
        }
    }
}

/// Whether the processor has the AES instructions that authentication needs.
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
    let of_local_peers = local_peers.iter().flat_map(|index| channels.file_descriptors(*index));
    listener.as_ref().map(std::os::fd::AsFd::as_fd).into_iter().chain(of_local_peers)
}
