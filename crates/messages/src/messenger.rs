// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messenger: operations posted, progress, completions.

mod access;
mod arrive;
mod ending;
mod fetch;
mod leaving;
mod receive;
mod send;
mod serve;

use std::collections::VecDeque;
use std::time::Duration;

use barewire_endpoint::{Address, Ending, Endpoint, EndpointError, Event, HEAD_MAX};
use barewire_link::Link;

use crate::completion::{Completion, Counts, Failure, Operation, Outcome, PostError};
use crate::config::Config;
use crate::header::Header;
use crate::matching::Matcher;
use crate::memory::CopiedBytes;
use crate::mutant::mutant;
use crate::peers::{BACKGROUND, Out, PeerId, Peers, QUEUED, USUAL};
use crate::regions::Regions;
use crate::slab::{Key, Slab};
pub use access::AtomicParts;
pub use leaving::Removal;
pub(crate) use receive::Requested;
pub use receive::{Claim, ReceiveOptions, Wanted};
pub(crate) use send::Message;
pub use send::{Reaches, SendOptions};

/// The context of a message of the endpoint's that belongs to no send: this, and the peer's number.
const OF_NO_SEND: u64 = 1 << 63;
/// With it: a message that was completed when it was copied.
const WAS_COMPLETED: u64 = 1 << 32;
/// Of one that belongs to an access to a peer's memory: this, and the access.
const OF_ACCESS: u64 = 1 << 62;
/// Of one that answers a peer's access: this, and the number of that here.
const OF_SERVED: u64 = 1 << 61;
/// Of data of a send that was asked for: this, and the send.
const OF_DATA: u64 = 1 << 60;

/// Sends and receives messages of any length for one process. Nothing happens behind its back: all work is done in its
/// calls.
///
/// Memory that an operation was given stays in use until its completion was taken with [`poll`](Self::poll), or until
/// the messenger is dropped. Of an operation that asked for no completion: until [`counts`](Self::counts) has grown by
/// as many operations of its kind as were posted up to it.
pub struct Messenger<L> {
    /// Dropped before the memory of messages that it still has.
    endpoint: Endpoint<L>,
    state: State,
    /// Where the parts of a short message come together.
    packed: Vec<u8>,
    /// Messages that went at once since the last progress.
    at_once: u16,
}

/// What the endpoint's pieces change.
struct State {
    config: Config,
    peers: Peers,
    sends: Slab<send::Send>,
    /// Bytes of messages that were copied and wait.
    copied: CopiedBytes,
    /// Messages in the queues of all peers.
    queued: usize,
    receives: Slab<receive::Receive>,
    tagged: Matcher<Key, Key>,
    untagged: Matcher<Key, Key>,
    held: Slab<receive::Held>,
    held_bytes: usize,
    regions: Regions,
    accesses: Slab<access::Accessing>,
    served: Slab<serve::Served>,
    /// Bytes of the elements that an atomic operation can have.
    atomic_max: u64,
    /// Peers that were asked to announce everything.
    asked_to_announce: Vec<PeerId>,
    /// Peers for which something waits for the endpoint.
    turns: VecDeque<PeerId>,
    /// Peers that have just broken the protocol.
    broken: Vec<PeerId>,
    /// Peers that are forgotten as soon as possible.
    leaving: Vec<PeerId>,
    /// See [`Messenger::refuse_unasked`].
    refuses_unasked: bool,
    completions: VecDeque<Completion>,
    counts: Counts,
}

impl<L: Link> Messenger<L> {
    /// On an endpoint to which nobody has a channel yet.
    #[must_use]
    pub fn new(endpoint: Endpoint<L>, config: Config) -> Self {
        let state = State {
            config,
            peers: Peers::new(),
            sends: Slab::new(),
            copied: CopiedBytes::default(),
            queued: 0,
            receives: Slab::new(),
            tagged: Matcher::new(),
            untagged: Matcher::new(),
            held: Slab::new(),
            held_bytes: 0,
            regions: Regions::new(),
            accesses: Slab::new(),
            served: Slab::new(),
            atomic_max: 0,
            asked_to_announce: Vec::new(),
            turns: VecDeque::new(),
            broken: Vec::new(),
            leaving: Vec::new(),
            refuses_unasked: false,
            completions: VecDeque::new(),
            counts: Counts::default(),
        };
        let mut messenger = Self { endpoint, state, packed: Vec::new(), at_once: 0 };
        messenger.state.atomic_max = messenger.atomic_max() as u64;
        messenger
    }

    /// Its own address, which is also a peer's.
    #[must_use]
    pub fn address(&self) -> Address {
        self.endpoint.address()
    }

    /// The endpoint below, for what it counts and whether it works.
    pub fn endpoint(&mut self) -> &mut Endpoint<L> {
        &mut self.endpoint
    }

    /// The peer at an address. Nothing is sent to it before there is something to send.
    pub fn peer(&mut self, address: Address) -> PeerId {
        let peer = self.state.peers.at_address(address);
        let entry = self.state.peers.at(peer);
        // Another process may be there now, which wants another cookie.
        (entry.address, entry.is_named) = (address, true);
        peer
    }

    /// Where a peer is; `None` if nobody has this number.
    #[must_use]
    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        self.state.peers.get(peer).map(|peer| peer.address)
    }

    /// All peers that are known.
    pub fn peers(&self) -> impl Iterator<Item = (PeerId, Address)> {
        self.state.peers.all()
    }

    /// The next completion, in the order in which operations ended.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        self.state.completions.pop_front()
    }

    /// Whether [`poll`](Self::poll) has one.
    #[inline]
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.state.completions.is_empty()
    }

    /// Operations that have ended.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Bytes of messages that nobody has asked for yet.
    #[must_use]
    pub fn unexpected_bytes(&self) -> usize {
        self.state.held_bytes
    }

    /// Whether peers wait with what ends in a completion that no operation of this process was posted for: writes with data,
    /// and messages for receives that take many. For a caller whose own reader leaves too many unread.
    pub fn refuse_unasked(&mut self, refuses: bool) {
        self.state.refuses_unasked = refuses;
    }

    /// Does all there is to do now. True if a completion waits.
    ///
    /// # Errors
    /// When the link no longer works; then nothing does.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, EndpointError> {
        let told = self.state.completions.len();
        self.endpoint.progress(&mut self.state)?;
        let received = self.state.completions.len();
        self.follow_up();
        // What was received may show that a send has ended, so the program is told of that first. But the end of a receive
        // stays behind the messages that it took.
        if received > told && self.state.completions.len() > received {
            let ends_receive = |completion: &Completion| completion.outcome.is_of_receive();
            let completions = self.state.completions.make_contiguous();
            if !completions[received..].iter().any(ends_receive) || mutant!(self.state, EndsFirst) {
                completions[told..].rotate_left(received - told);
            }
        }
        Ok(self.has_completions())
    }

    /// Whether nothing can be sent now, as of the endpoint's.
    #[inline]
    #[must_use]
    pub fn owes_nothing(&self) -> bool {
        self.endpoint.owes_nothing() && self.state.turns.is_empty()
    }

    /// Whether something that was posted waits to be sent, or is not acknowledged: it needs progress to arrive.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.endpoint.has_messages() || !self.state.turns.is_empty() || self.state.sends.len() > 0
    }

    /// Whether what was posted last, or something that waits for room or for the peer's answer, could not be sent yet.
    #[inline]
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.endpoint.is_held_up() || !self.state.turns.is_empty() || self.state.sends.len() > 0
    }

    /// Whether something that was posted waits for room, here or in the endpoint, which progress may make.
    #[inline]
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.state.queued > 0 || self.endpoint.is_held_up()
    }

    /// Makes progress until a completion waits, for `patience` at most, and waits meanwhile as the endpoint is
    /// configured. False if none came.
    ///
    /// # Errors
    /// As of [`progress`](Self::progress).
    pub fn wait(&mut self, patience: Duration) -> Result<bool, EndpointError> {
        if self.progress()? {
            return Ok(true);
        }
        let clock = self.endpoint.link().clock();
        let end = clock.now().saturating_add(patience);
        loop {
            let left = end.saturating_sub(clock.now());
            self.endpoint.wait(&mut self.state, left)?;
            self.follow_up();
            if !self.state.completions.is_empty() {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Goes on with what was posted to be sent, without waiting; true once all of it is with the peers' endpoints.
    /// Before a process ends, its messenger is asked until it says so.
    ///
    /// # Errors
    /// As of [`progress`](Self::progress).
    pub fn settle(&mut self) -> Result<bool, EndpointError> {
        let is_settled = self.endpoint.settle(&mut self.state)?;
        self.follow_up();
        let is_handed_over = self.state.sends.len() == 0 && self.state.queued == 0 && self.state.served.len() == 0;
        Ok(is_settled && self.state.turns.is_empty() && is_handed_over && self.state.accesses.len() == 0)
    }

    /// Ends the channel to a peer once what the endpoint has for it is sent. Then all operations that concern the peer
    /// and are not completed fail; the next one connects again.
    pub fn close(&mut self, peer: PeerId) {
        if let Some(channel) = self.state.peers.get(peer).and_then(|peer| peer.channel) {
            self.endpoint.close(channel);
        }
    }

    /// After the endpoint has made progress: hears what became of messages, and sends what has become due.
    #[inline]
    fn follow_up(&mut self) {
        self.at_once = 0;
        self.hear();
        if !self.state.turns.is_empty() {
            self.send_due();
            // A pipe takes messages at once.
            self.hear();
        }
        while let Some(peer) = self.state.broken.pop() {
            if let Some(channel) = self.state.peers.at(peer).channel {
                self.endpoint.abort(channel, Ending::Violation);
            }
        }
        if !self.state.leaving.is_empty() {
            self.see_off();
        }
    }

    #[inline]
    fn hear(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Sent { context } => self.state.handed_over(context, true),
                // The channel's end follows and says of which operations.
                Event::Failed { context, .. } => self.state.handed_over(context, false),
                Event::Opened { channel, peer } => {
                    let peers = &mut self.state.peers;
                    if peers.known_at(peer).is_none() && peers.len() >= self.state.config.peers {
                        self.endpoint.close(channel);
                        continue;
                    }
                    let peer = peers.at_address(peer);
                    peers.connect(peer, channel);
                    peers.at(peer).reconnected();
                }
                Event::Ended { channel, ending, .. } => self.state.channel_ended(channel, ending),
            }
        }
    }

    /// Gives the endpoint what waits for it, each peer in its turn.
    fn send_due(&mut self) {
        for _ in 0..self.state.turns.len() {
            let Some(peer) = self.state.turns.pop_front() else { break };
            if !self.send_due_to(peer) {
                self.state.turns.push_back(peer);
                continue;
            }
            self.state.peers.at(peer).in_turn = false;
        }
    }

    /// False if something is left.
    fn send_due_to(&mut self, peer: PeerId) -> bool {
        // Each of them may have room that the other has not. What was fetched in the background is answered at once.
        [USUAL, BACKGROUND, USUAL, QUEUED].map(|class| self.send_class_to(peer, class)) == [true; 4]
    }

    fn send_class_to(&mut self, peer: PeerId, class: usize) -> bool {
        while let Some(out) = self.state.peers.at(peer).outgoing[class].pop_front() {
            let out = match out {
                Out::Message(message) => match self.send_queued(peer, message) {
                    Ok(()) => continue,
                    Err(message) => Out::Message(message),
                },
                out => out,
            };
            let is_done = match &out {
                Out::Message(_) => false,
                Out::Control(header) => {
                    let is_sent = self.send_copied(peer, header, &[]);
                    if is_sent && matches!(header, Header::Done { .. }) {
                        self.state.peers.at(peer).serving -= 1;
                    }
                    is_sent
                }
                Out::Data(send) => self.send_data(peer, *send),
                Out::Fetch { receive, request } => self.fetch(peer, *receive, *request),
                Out::Write(access) => self.send_write(peer, *access),
                Out::Served(served) => self.send_served(peer, *served),
                Out::Found { number, bytes } => self.send_found(peer, *number, bytes),
            };
            if !is_done {
                self.state.peers.at(peer).outgoing[class].push_front(out);
                return false;
            }
        }
        true
    }

    /// Hands a message on that had to wait, or gives it back.
    fn send_queued(&mut self, to: PeerId, message: Message) -> Result<(), Message> {
        let Ok(channel) = self.room_for(to) else { return Err(message) };
        self.hand_over(to, channel, message)?;
        self.state.queued -= 1;
        Ok(())
    }

    /// Sends a message that belongs to no send.
    fn send_copied(&mut self, to: PeerId, header: &Header, body: &[u8]) -> bool {
        let Ok(channel) = self.room_for(to) else { return false };
        let mut head = [0; HEAD_MAX];
        let length = header.encode(&mut head);
        let is_sent = self.endpoint.send(channel, &head[..length], body, of_no_send(to)).is_ok();
        self.state.peers.at(to).under_way[USUAL] += u16::from(is_sent);
        is_sent
    }
}

fn of_no_send(peer: PeerId) -> u64 {
    OF_NO_SEND | u64::from(peer.number())
}

impl State {
    /// Lets something wait for the endpoint.
    fn enqueue(&mut self, to: PeerId, out: Out) {
        // Whoever is gone needs no answer.
        let is_gone = |peer: &crate::peers::Peer| peer.channel.is_none() || peer.is_broken;
        if out.class() != QUEUED && self.peers.get(to).is_none_or(is_gone) {
            return;
        }
        let peer = self.peers.at(to);
        peer.outgoing[out.class()].push_back(out);
        if !peer.in_turn {
            peer.in_turn = true;
            self.turns.push_back(to);
        }
    }

    #[inline]
    fn complete(&mut self, context: u64, note: u32, outcome: Outcome, is_silent: bool) {
        match outcome {
            Outcome::Sent => self.counts.sent += 1,
            Outcome::Received(_) => self.counts.received += 1,
            Outcome::Done(operation) if operation.fetches() => self.counts.read += 1,
            Outcome::Done(_) => self.counts.written += 1,
            // Counted with those that carried no data.
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

    fn fail(&mut self, context: u64, note: u32, operation: Operation, failure: Failure) {
        self.complete(context, note, Outcome::Failed { operation, failure, message: None }, false);
    }

    fn known(&self, peer: PeerId) -> Result<(), PostError> {
        self.peers.get(peer).filter(|peer| !peer.is_leaving).map(|_| ()).ok_or(PostError::NoSuchPeer)
    }
}
