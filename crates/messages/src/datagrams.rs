// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of one frame that may be lost: LLC type 1, without channels, order or answers.

use std::collections::VecDeque;

use barewire_endpoint::{Address, ChannelId, Class, Endpoint, EndpointError, Piece, SendError, Sink};
use barewire_link::Link;

use crate::completion::{Completion, Counts, Envelope, Failure, Operation, Outcome, PostError, Received};
use crate::config::Config;
use crate::header::Label;
use crate::memory::{Origin, Part, Target};
use crate::messenger::ReceiveOptions;
use crate::peers::{PeerId, Peers};

/// Datagrams that came before their receives, at most; the next are dropped.
pub const HELD_DATAGRAMS: usize = 256;

/// Sends and receives datagrams over an endpoint of its own. A receive gets the oldest datagram, whoever sent it. What
/// comes before its receive is held as long as there is room, and then dropped and counted; nobody is told to wait.
pub struct Datagrams<L> {
    endpoint: Endpoint<L>,
    state: State,
    /// The parts of a datagram, together.
    packed: Vec<u8>,
    /// What the link said to a send: the next progress says so.
    broken: Option<EndpointError>,
}

struct State {
    config: Config,
    peers: Peers,
    receives: VecDeque<Posted>,
    held: VecDeque<(PeerId, Box<[u8]>)>,
    completions: VecDeque<Completion>,
    counts: Counts,
    dropped: u64,
}

struct Posted {
    target: Target,
    options: ReceiveOptions,
}

impl<L: Link> Datagrams<L> {
    /// On an endpoint of which nobody knows yet.
    #[must_use]
    pub fn new(endpoint: Endpoint<L>, config: Config) -> Self {
        let state = State {
            config,
            peers: Peers::new(),
            receives: VecDeque::new(),
            held: VecDeque::new(),
            completions: VecDeque::new(),
            counts: Counts::default(),
            dropped: 0,
        };
        Self { endpoint, state, packed: Vec::new(), broken: None }
    }

    /// Its own address, which is also a peer's.
    #[must_use]
    pub fn address(&self) -> Address {
        self.endpoint.address()
    }

    /// The endpoint below.
    pub fn endpoint(&mut self) -> &mut Endpoint<L> {
        &mut self.endpoint
    }

    /// The peer at an address.
    pub fn peer(&mut self, address: Address) -> PeerId {
        self.state.peers.at_address(address)
    }

    /// Where a peer is; `None` if nobody has this number.
    #[must_use]
    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        self.state.peers.get(peer).map(|peer| peer.address)
    }

    /// Nobody has this number any more.
    pub fn remove_peer(&mut self, peer: PeerId) {
        self.state.peers.remove(peer);
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

    /// Whether nothing can be sent now, as of the endpoint's.
    #[inline]
    #[must_use]
    pub fn owes_nothing(&self) -> bool {
        self.endpoint.owes_nothing()
    }

    /// Operations that have ended.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Datagrams that were dropped because nobody asked for them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.state.dropped
    }

    /// Sends a datagram. It is copied, and with that complete: `told` is its completion's context and note, if there is
    /// to be one.
    ///
    /// # Errors
    /// [`PostError`]; nothing was sent then.
    ///
    /// # Safety
    /// All parts must be valid to be read during the call.
    pub unsafe fn send(&mut self, to: PeerId, parts: &[Part], told: Option<(u64, u32)>) -> Result<(), PostError> {
        let address = self.address_of(to).ok_or(PostError::NoSuchPeer)?;
        let most = self.endpoint.datagram_max();
        // SAFETY: the caller's promise.
        let origin = unsafe { Origin::new(parts) };
        let bytes = usize::try_from(origin.bytes()).unwrap_or(usize::MAX);
        if bytes > most {
            return Err(PostError::TooLong { bytes, most });
        }
        let body = if let [_] | [] = parts {
            origin.contiguous(0)
        } else {
            self.packed.resize(bytes, 0);
            origin.copy(0, &mut self.packed);
            &self.packed
        };
        match self.endpoint.send_datagram(address, Class::Unreliable, body, 0) {
            Ok(Ok(())) => {}
            Ok(Err(SendError::TooLong { bytes, most })) => return Err(PostError::TooLong { bytes, most }),
            Ok(Err(SendError::Full | SendError::Ended)) => return Err(PostError::Full),
            Err(error) => {
                self.broken = Some(error);
                return Err(PostError::Full);
            }
        }
        self.state.counts.sent += 1;
        if let Some((context, note)) = told {
            self.state.completions.push_back(Completion { context, note, outcome: Outcome::Sent });
        }
        Ok(())
    }

    /// Receives the oldest datagram, now or later.
    ///
    /// # Errors
    /// [`PostError::Full`]; nothing was posted then.
    ///
    /// # Safety
    /// All parts must be valid, disjoint, and used by nothing else until the receive is completed.
    pub unsafe fn receive(&mut self, parts: &[Part], options: ReceiveOptions) -> Result<(), PostError> {
        if self.state.receives.len() >= self.state.config.receives {
            return Err(PostError::Full);
        }
        // SAFETY: the caller's promise.
        let target = unsafe { Target::new(parts) };
        self.state.receives.push_back(Posted { target, options });
        if let Some((source, bytes)) = self.state.held.pop_front() {
            self.state.deliver(source, &bytes);
        }
        Ok(())
    }

    /// Takes a receive back, which fails as cancelled. False: there is none with this context.
    pub fn cancel(&mut self, context: u64) -> bool {
        let receives = &mut self.state.receives;
        let place = receives.iter().position(|posted| posted.options.context == context);
        let Some(posted) = place.and_then(|place| receives.remove(place)) else { return false };
        self.state.fail(posted.options, Failure::Cancelled, None);
        true
    }

    /// Does all there is to do now. True if a completion waits.
    ///
    /// # Errors
    /// When the link no longer works; then nothing does.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, EndpointError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        self.endpoint.progress(&mut self.state)?;
        // Of channels, which neighbours have: nothing follows from their ends.
        while self.endpoint.poll_event().is_some() {}
        Ok(!self.state.completions.is_empty())
    }
}

impl State {
    /// Gives a datagram to the oldest receive, which there must be.
    fn deliver(&mut self, source: PeerId, bytes: &[u8]) {
        let Some(Posted { mut target, options }) = self.receives.pop_front() else { return };
        target.write(0, bytes);
        let (length, room) = (bytes.len() as u64, target.bytes());
        let envelope = Envelope { source, label: Label { tag: None, data: None }, length };
        let received = Received { envelope, offset: 0, is_last: true };
        if length > room {
            return self.fail(options, Failure::Truncated { length, room }, Some(received));
        }
        self.counts.received += 1;
        if !options.is_silent {
            let outcome = Outcome::Received(received);
            self.completions.push_back(Completion { context: options.context, note: options.note, outcome });
        }
    }

    fn fail(&mut self, options: ReceiveOptions, failure: Failure, message: Option<Received>) {
        self.counts.receives_failed += 1;
        let outcome = Outcome::Failed { operation: Operation::Receive, failure, message };
        self.completions.push_back(Completion { context: options.context, note: options.note, outcome });
    }
}

impl Sink for State {
    /// Of a peer that takes us for a messenger: it is not heard.
    fn piece(&mut self, _: ChannelId, _: Piece<'_>) -> bool {
        true
    }

    fn datagram(&mut self, from: Address, class: Class, bytes: &[u8]) {
        let is_known = self.peers.known_at(from).is_some() || self.peers.len() < self.config.peers;
        let has_room = !self.receives.is_empty() || self.held.len() < HELD_DATAGRAMS;
        if class != Class::Unreliable || !is_known || !has_room {
            self.dropped += 1;
            return;
        }
        let source = self.peers.at_address(from);
        if self.receives.is_empty() {
            self.held.push_back((source, bytes.into()));
        } else {
            self.deliver(source, bytes);
        }
    }

    fn ended(&mut self, _: ChannelId) {}
}
