// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messenger: posts operations, makes progress, reports completions.

mod access;
mod disconnect;
mod fetch;
mod incoming;
mod receive;
mod removal;
mod send;
mod target;

use std::collections::VecDeque;
use std::time::Duration;

use barewire_endpoint::{Address, Ending, Endpoint, EndpointError, Event, HEAD_MAX, Priority, Report};
use barewire_link::Link;

use crate::completion::{Completion, Counts, Failure, Operation, Outcome, PostError};
use crate::config::Config;
use crate::header::Header;
use crate::matching::Matcher;
use crate::memory::CopiedBytes;
use crate::mutant::mutant;
use crate::peers::{Answer, Bulk, PeerId, Peers};
use crate::regions::Regions;
use crate::slab::{Key, Slab};
pub use access::AtomicParts;
pub(crate) use receive::RendezvousRequest;
pub use receive::{Claim, ReceiveOptions, Selector};
pub use removal::Removal;
pub(crate) use send::Message;
pub use send::{CompletionLevel, SendOptions};

/// These bits mark endpoint contexts that are not the key of a send. This one: an answer to the peer whose number is in
/// the low bits.
const ANSWER_CONTEXT: u64 = 1 << 63;
/// With [`ANSWER_CONTEXT`]: it answers an access.
const TO_ACCESS_CONTEXT: u64 = 1 << 32;
/// The low bits are the key of an access to a peer's memory.
const ACCESS_CONTEXT: u64 = 1 << 62;
/// The low bits are the key of a peer's read that this message answers.
const READ_CONTEXT: u64 = 1 << 61;
/// The low bits are the key of a rendezvous send, of whose data this message is a part.
const DATA_CONTEXT: u64 = 1 << 60;

/// Sends and receives messages of any length for one process. There is no background thread: all work is done in calls
/// of the messenger.
///
/// The memory given to an operation stays in use until [`poll`](Self::poll) has returned its completion, or the
/// messenger is dropped. For an operation without a completion: until [`counts`](Self::counts) has grown by the number
/// of operations of its kind posted up to it.
pub struct Messenger<L> {
    /// Declared first, so that it is dropped before the buffers it may still use.
    endpoint: Endpoint<L>,
    state: State,
    /// Scratch buffer that packs the parts of a short message.
    scratch: Vec<u8>,
    /// Messages sent since the last progress.
    posts_since_progress: u16,
    /// See [`take_unsent`](Self::take_unsent).
    is_unsent: bool,
}

/// The state that incoming messages change: the endpoint's sink.
struct State {
    config: Config,
    peers: Peers,
    sends: Slab<send::Send>,
    /// Bytes held in copies of messages.
    copied: CopiedBytes,
    /// Number of posted messages that wait, over all peers.
    queued: usize,
    /// Peers that may be stalled, with messages that wait and are not buffered yet; and polls since they were looked at.
    blocked: Vec<PeerId>,
    polls_blocked: u32,
    /// Peers whose messages wait for a connection or for progress, so that no [`Event::Room`] will follow.
    retried: Vec<PeerId>,
    /// Answers to peers, passed to the endpoint once it has received everything that has arrived.
    answers: VecDeque<(PeerId, Answer)>,
    receives: Slab<receive::Receive>,
    /// Bytes of the buffers of receives of single messages, wrapping: some programs give all of the address space.
    awaited_bytes: u64,
    /// See [`Messenger::take_unreceived`].
    is_unreceived: bool,
    tagged: Matcher<Key, Key>,
    untagged: Matcher<Key, Key>,
    unexpected: Slab<receive::Unexpected>,
    unexpected_bytes: usize,
    /// There is more room for unexpected messages than the endpoint knows.
    has_made_room: bool,
    regions: Regions,
    accesses: Slab<access::PendingAccess>,
    peer_reads: Slab<target::PeerRead>,
    /// Limit of an atomic operation's elements, in bytes.
    atomic_max: u64,
    /// Peers that were asked to use rendezvous for all messages.
    throttled: Vec<PeerId>,
    /// Peers whose bulk work can continue.
    pending: VecDeque<PeerId>,
    /// Bytes that the current progress has fetched from local peers.
    fetched: u64,
    /// Peers whose channels must be aborted for a protocol violation.
    broken: Vec<PeerId>,
    /// Peers to be removed once their channels have ended.
    removing: Vec<PeerId>,
    /// See [`Messenger::refuse_unsolicited`].
    refuses_unsolicited: bool,
    completions: VecDeque<Completion>,
    counts: Counts,
}

impl<L: Link> Messenger<L> {
    /// Creates a messenger on an endpoint without channels.
    #[must_use]
    pub fn new(mut endpoint: Endpoint<L>, config: Config) -> Self {
        // Bounded by `config.sends`.
        endpoint.set_send_descriptors(usize::MAX);
        let state = State {
            config,
            peers: Peers::new(),
            sends: Slab::new(),
            copied: CopiedBytes::default(),
            queued: 0,
            blocked: Vec::new(),
            polls_blocked: 0,
            retried: Vec::new(),
            answers: VecDeque::new(),
            receives: Slab::new(),
            awaited_bytes: 0,
            is_unreceived: false,
            tagged: Matcher::new(),
            untagged: Matcher::new(),
            unexpected: Slab::new(),
            unexpected_bytes: 0,
            has_made_room: false,
            regions: Regions::new(),
            accesses: Slab::new(),
            peer_reads: Slab::new(),
            atomic_max: 0,
            throttled: Vec::new(),
            pending: VecDeque::new(),
            fetched: 0,
            broken: Vec::new(),
            removing: Vec::new(),
            refuses_unsolicited: false,
            completions: VecDeque::new(),
            counts: Counts::default(),
        };
        let mut messenger = Self { endpoint, state, scratch: Vec::new(), posts_since_progress: 0, is_unsent: false };
        messenger.state.atomic_max = messenger.atomic_max() as u64;
        messenger
    }

    /// This messenger's own address, also valid as a peer's.
    #[must_use]
    pub fn address(&self) -> Address {
        self.endpoint.address()
    }

    /// Prepares for a sleep as [`Endpoint::prepare_to_sleep`] does. `None` also if work that was interrupted so that
    /// other work could proceed can continue: no event would wake the sleeper for it.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    pub fn prepare_to_sleep(&mut self, patience: Duration) -> Result<Option<Duration>, EndpointError> {
        if self.has_work() {
            return Ok(None);
        }
        let longest = self.time_to_stall().map_or(patience, |time| time.min(patience));
        self.endpoint.prepare_to_sleep(longest)
    }

    /// Whether the next progress has something to do, whatever arrives.
    #[inline]
    fn has_work(&self) -> bool {
        let State { answers, pending, retried, peers, .. } = &self.state;
        // A peer without a channel waits for the end of the previous one.
        let can_retry = |peer: &PeerId| peers.get(*peer).is_some_and(|peer| peer.channel.is_some());
        !answers.is_empty() || !pending.is_empty() || !retried.is_empty() && retried.iter().any(can_retry)
    }

    /// The underlying endpoint, for its counters and link state.
    pub fn endpoint(&mut self) -> &mut Endpoint<L> {
        &mut self.endpoint
    }

    /// The peer at an address; added if it is not known. Nothing is sent before the first operation.
    pub fn peer(&mut self, address: Address) -> PeerId {
        // A new process may have the address now, with another cookie. What is sent to it must not go to the previous
        // one, whose end the next progress would notice.
        self.endpoint.check_local_peer(address, &mut self.state);
        self.handle_events();
        let peer = self.state.peers.get_or_add(address);
        self.state.peers.at(peer).address = address;
        peer
    }

    /// A peer's address; `None` if no peer has this number.
    #[must_use]
    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        self.state.peers.get(peer).map(|peer| peer.address)
    }

    /// All known peers.
    pub fn peers(&self) -> impl Iterator<Item = (PeerId, Address)> {
        self.state.peers.all()
    }

    /// The next completion, in order of completion.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        self.state.completions.pop_front()
    }

    /// Whether [`poll`](Self::poll) would return a completion.
    #[inline]
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.state.completions.is_empty()
    }

    /// Counters of ended operations.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Bytes of unexpected messages.
    #[must_use]
    pub fn unexpected_bytes(&self) -> usize {
        self.state.unexpected_bytes
    }

    /// Whether to hold back messages that complete without an operation of their own: writes with data, and messages
    /// for multi-receives. For callers that have too many unread completions.
    pub fn refuse_unsolicited(&mut self, refuses: bool) {
        self.state.refuses_unsolicited = refuses;
    }

    /// Does all pending work without blocking. True if a completion is available.
    ///
    /// # Errors
    /// When the link has failed, permanently.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, EndpointError> {
        let before = self.state.completions.len();
        self.endpoint.progress(&mut self.state)?;
        let received = self.state.completions.len();
        self.after_progress();
        // A received message may imply that a send has completed, so report it first. But a multi-receive's end must
        // stay behind the messages it received.
        if received > before && self.state.completions.len() > received {
            let ends_receive = |completion: &Completion| completion.outcome.is_receive();
            let completions = self.state.completions.make_contiguous();
            if !completions[received..].iter().any(ends_receive) || mutant!(self.state, EndsEarly) {
                completions[before..].rotate_left(received - before);
            }
        }
        Ok(self.has_completions())
    }

    /// Whether there is nothing to send now, so that peers lose nothing if the next progress comes later.
    #[inline]
    #[must_use]
    pub fn has_nothing_to_send(&self) -> bool {
        self.endpoint.has_nothing_to_send() && !self.has_work() && self.state.retried.is_empty()
    }

    /// Whether an operation is unsent or unacknowledged, and needs progress to be delivered.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.endpoint.has_messages() || self.has_work() || self.state.queued + self.state.sends.len() > 0
    }

    /// Whether the operation posted last, or one that waits for room or for the peer's answer, is still unsent.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.endpoint.is_blocked()
            || self.has_work()
            || self.state.queued + self.state.sends.len() + self.state.peer_reads.len() > 0
    }

    /// Whether a message was posted, since the last call of this, that waits for room or for the peer's answer.
    #[inline]
    #[must_use]
    pub fn take_unsent(&mut self) -> bool {
        std::mem::take(&mut self.is_unsent)
    }

    /// Whether a receive was posted since the last call of this, and receives wait for
    /// [more than fits a window](Self::awaits_long_messages).
    #[inline]
    #[must_use]
    pub fn take_unreceived(&mut self) -> bool {
        std::mem::take(&mut self.state.is_unreceived) && self.awaits_long_messages()
    }

    /// Whether receives wait for messages that together may be longer than what a peer sends before anything is
    /// acknowledged.
    #[inline]
    #[must_use]
    pub fn awaits_long_messages(&self) -> bool {
        self.state.awaited_bytes > receive::LONG_BYTES
    }

    /// Whether an operation waits for room, which progress may make.
    #[inline]
    #[must_use]
    pub fn is_waiting_for_room(&self) -> bool {
        self.state.queued > 0 || self.endpoint.is_blocked()
    }

    /// Makes progress until a completion is available or `patience` has elapsed, waiting as the endpoint is configured.
    /// False on timeout.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    pub fn wait(&mut self, patience: Duration) -> Result<bool, EndpointError> {
        if self.progress()? {
            return Ok(true);
        }
        let clock = self.endpoint.link().clock();
        let end = clock.now().saturating_add(patience);
        loop {
            let left = end.saturating_sub(clock.now());
            let longest_sleep = if self.has_work() { Duration::ZERO } else { left };
            let longest_sleep = self.time_to_stall().map_or(longest_sleep, |time| time.min(longest_sleep));
            self.endpoint.wait(&mut self.state, longest_sleep)?;
            self.after_progress();
            if !self.state.completions.is_empty() {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Makes progress with posted operations, without blocking; true once the peers' endpoints have all of it. Before a
    /// process ends, it calls this until it returns true.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    pub fn settle(&mut self) -> Result<bool, EndpointError> {
        let is_settled = self.endpoint.settle(&mut self.state)?;
        self.after_progress();
        let State { queued, sends, peer_reads, accesses, .. } = &self.state;
        Ok(is_settled && !self.has_work() && queued + sends.len() == 0 && peer_reads.len() == 0 && accesses.len() == 0)
    }

    /// Closes the channel to a peer after the endpoint has sent its queued messages. Outstanding operations with the
    /// peer then fail; the next operation connects again.
    pub fn close(&mut self, peer: PeerId) {
        if let Some(channel) = self.state.peers.get(peer).and_then(|peer| peer.channel) {
            self.endpoint.close(channel);
        }
    }

    /// Runs after the endpoint's progress: handles its events, answers peers, and continues bulk work.
    #[inline]
    fn after_progress(&mut self) {
        self.posts_since_progress = 0;
        self.handle_events();
        if !self.state.blocked.is_empty() {
            self.buffer_for_stalled();
        }
        if !self.state.retried.is_empty() {
            for peer in std::mem::take(&mut self.state.retried) {
                // A new allowance for each peer, since the endpoint's progress has received what this peer had sent.
                self.posts_since_progress = 0;
                self.send_waiting(peer);
            }
        }
        if !self.state.answers.is_empty() || !self.state.pending.is_empty() {
            self.do_work();
        }
        while let Some(peer) = self.state.broken.pop() {
            if let Some(channel) = self.state.peers.at(peer).channel {
                self.endpoint.abort(channel, Ending::Violation);
            }
        }
        if !self.state.removing.is_empty() {
            self.finish_removals();
        }
        // By the end of a channel, or of a peer: what the endpoint's progress has offered before was refused.
        if std::mem::take(&mut self.state.has_made_room) {
            self.endpoint.offer_again();
        }
    }

    /// Answers peers and continues bulk work.
    fn do_work(&mut self) {
        self.send_answers();
        self.continue_bulk();
        self.send_answers();
        // Messages to a pipe complete at once.
        self.handle_events();
    }

    #[inline]
    fn handle_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Sent { context } => self.state.message_done(context, true),
                // The channel's end follows, and fails the operations.
                Event::Failed { context, .. } => self.state.message_done(context, false),
                Event::Opened { channel, peer } => {
                    let peers = &mut self.state.peers;
                    if peers.find(peer).is_none() && peers.len() >= self.state.config.peers {
                        self.endpoint.close(channel);
                        continue;
                    }
                    let peer = peers.get_or_add(peer);
                    peers.connect(peer, channel);
                    peers.at(peer).reconnected(self.endpoint.is_local_channel(channel));
                }
                Event::Room { channel } => {
                    if let Some(peer) = self.state.peers.of_channel(channel) {
                        self.send_waiting(peer);
                    }
                }
                Event::Ended { channel, ending, has_lost, .. } => self.state.channel_ended(channel, ending, has_lost),
            }
        }
    }

    /// Hands answers to the endpoint.
    fn send_answers(&mut self) {
        if self.state.answers.is_empty() {
            return;
        }
        while let Some((to, answer)) = self.state.answers.pop_front() {
            let Some(channel) = self.state.peers.get(to).filter(|peer| !peer.is_broken).and_then(|peer| peer.channel)
            else {
                continue;
            };
            let (header, body) = match &answer {
                Answer::Control(header) => (*header, &[][..]),
                Answer::Atomic { number, bytes } => (Header::Returned { number: *number, offset: 0 }, &bytes[..]),
            };
            let is_to_access = matches!(header, Header::Done { .. } | Header::Returned { .. });
            let context = ANSWER_CONTEXT | if is_to_access { TO_ACCESS_CONTEXT } else { 0 } | u64::from(to.number());
            let report = Report::Copied { context, counts_loss: false };
            let mut head = [0; HEAD_MAX];
            let length = header.encode(&mut head);
            // If the channel has ended, its event follows.
            if self.endpoint.post(channel, &head[..length], body, Priority::Urgent, report) == Ok(true) {
                self.state.answer_sent(to, is_to_access);
            }
        }
        self.endpoint.flush();
    }

    /// Continues work on long messages, round-robin over the peers.
    fn continue_bulk(&mut self) {
        self.state.fetched = 0;
        for _ in 0..self.state.pending.len() {
            if self.state.fetched >= fetch::FETCH_BYTES {
                break;
            }
            let Some(peer) = self.state.pending.pop_front() else { break };
            self.state.peers.at(peer).is_pending = false;
            let mut is_other_blocked = false;
            loop {
                let entry = self.state.peers.at(peer);
                let turn = entry.turn;
                entry.turn = 1 - turn;
                let advance = match entry.bulk[turn].front().copied() {
                    None => Advance::Blocked,
                    Some(Bulk::Data(send)) => self.send_data(peer, send),
                    Some(Bulk::ReadReply(read)) => self.send_read_reply(peer, read),
                    Some(Bulk::Fetch { receive, request }) => self.fetch(peer, receive, request),
                };
                match advance {
                    Advance::Done => {
                        self.state.peers.at(peer).bulk[turn].pop_front();
                        is_other_blocked = false;
                    }
                    Advance::Blocked if is_other_blocked => break,
                    Advance::Blocked => is_other_blocked = true,
                    Advance::Yielded => {
                        self.state.mark_pending(peer);
                        break;
                    }
                }
            }
        }
    }
}

/// How far bulk work has come.
enum Advance {
    /// It is complete.
    Done,
    /// The endpoint has as much of it as it may have; a report continues it.
    Blocked,
    /// Other work is due.
    Yielded,
}

impl State {
    /// Answers a peer. One that is disconnected needs no answer.
    fn answer(&mut self, to: PeerId, answer: Answer) {
        if let Some(peer) = self.peers.get_mut(to).filter(|peer| peer.channel.is_some() && !peer.is_broken) {
            peer.answers += 1;
            self.answers.push_back((to, answer));
        }
    }

    /// The carrier has an answer.
    #[inline]
    fn answer_sent(&mut self, to: PeerId, is_to_access: bool) {
        if let Some(peer) = self.peers.get_mut(to) {
            peer.answers = peer.answers.saturating_sub(1);
            peer.unanswered = peer.unanswered.saturating_sub(u16::from(is_to_access));
        }
    }

    fn reply(&mut self, to: PeerId, header: Header) {
        self.answer(to, Answer::Control(header));
    }

    /// Starts bulk work with a peer, behind earlier work of its kind.
    fn add_bulk(&mut self, peer: PeerId, bulk: Bulk) {
        let entry = self.peers.at(peer);
        if entry.channel.is_some() && !entry.is_broken {
            entry.bulk[usize::from(matches!(bulk, Bulk::ReadReply(_)))].push_back(bulk);
            self.mark_pending(peer);
        }
    }

    /// The endpoint has reported a message of bulk work.
    fn bulk_message_done(&mut self, peer: PeerId) {
        let entry = self.peers.at(peer);
        entry.bulk_in_flight -= 1;
        if !entry.has_no_bulk() {
            self.mark_pending(peer);
        }
    }

    fn mark_pending(&mut self, peer: PeerId) {
        let entry = self.peers.at(peer);
        if !std::mem::replace(&mut entry.is_pending, true) {
            self.pending.push_back(peer);
        }
    }

    /// Drops answers and bulk work for a peer.
    fn discard_answers(&mut self, peer: PeerId) {
        self.answers.retain(|(to, _)| *to != peer);
        self.peers.at(peer).bulk.iter_mut().for_each(VecDeque::clear);
    }

    #[inline(always)]
    fn complete(&mut self, context: u64, note: u32, outcome: Outcome, is_silent: bool) {
        match outcome {
            Outcome::Sent => self.counts.sent += 1,
            Outcome::Received(_) => self.counts.received += 1,
            Outcome::Done(operation) if operation.fetches() => self.counts.read += 1,
            Outcome::Done(_) => self.counts.written += 1,
            // Counted in `written_by_peers`.
            Outcome::Written(_) => {}
            Outcome::Failed { operation: Operation::Send, .. } => self.counts.sends_failed += 1,
            Outcome::Failed { operation: Operation::Receive, .. } => self.counts.receives_failed += 1,
            Outcome::Failed { operation, .. } => {
                if operation.fetches() {
                    self.counts.reads_failed += 1;
                } else {
                    self.counts.writes_failed += 1;
                }
            }
        }
        if !is_silent || matches!(outcome, Outcome::Failed { .. }) {
            self.completions.push_back(Completion { context, note, outcome });
        }
    }

    #[cold]
    fn fail(&mut self, context: u64, note: u32, operation: Operation, failure: Failure) {
        self.complete(context, note, Outcome::Failed { operation, failure, message: None }, false);
    }

    fn check_known(&self, peer: PeerId) -> Result<(), PostError> {
        self.peers.get(peer).filter(|peer| !peer.is_removing).map(|_| ()).ok_or(PostError::NoSuchPeer)
    }
}
