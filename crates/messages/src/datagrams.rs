// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unreliable datagrams of one frame: LLC type 1, without connections, order or acknowledgements.

use std::collections::VecDeque;

use barewire_endpoint::{Address, ChannelId, Class, Endpoint, EndpointError, Piece, SendError, Sink};
use barewire_link::Link;

use crate::completion::{Completion, Counts, Envelope, Failure, Operation, Outcome, PostError, Received};
use crate::config::Config;
use crate::header::Label;
use crate::memory::{Origin, Part, Target};
use crate::messenger::ReceiveOptions;
use crate::peers::{PeerId, Peers};

/// Limit of datagrams without a receive; further ones are dropped.
pub const UNEXPECTED_DATAGRAMS_MAX: usize = 256;

/// Sends and receives datagrams over its own endpoint. A receive gets the oldest datagram, from any source. Datagrams
/// without a receive are kept up to [`UNEXPECTED_DATAGRAMS_MAX`], then dropped and counted: there is no flow control.
pub struct Datagrams<L> {
    endpoint: Endpoint<L>,
    state: State,
    /// Scratch buffer that packs a datagram's parts.
    scratch: Vec<u8>,
    /// A send's link error, which the next progress returns.
    link_error: Option<EndpointError>,
}

struct State {
    config: Config,
    peers: Peers,
    receives: VecDeque<Posted>,
    unexpected: VecDeque<(PeerId, Box<[u8]>)>,
    completions: VecDeque<Completion>,
    counts: Counts,
    dropped: u64,
}

struct Posted {
    target: Target,
    options: ReceiveOptions,
}

impl<L: Link> Datagrams<L> {
    /// Creates datagrams on an unused endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint<L>, config: Config) -> Self {
        let state = State {
            config,
            peers: Peers::new(),
            receives: VecDeque::new(),
            unexpected: VecDeque::new(),
            completions: VecDeque::new(),
            counts: Counts::default(),
            dropped: 0,
        };
        Self { endpoint, state, scratch: Vec::new(), link_error: None }
    }

    /// Its own address, also valid as a peer's.
    #[must_use]
    pub fn address(&self) -> Address {
        self.endpoint.address()
    }

    /// The underlying endpoint.
    pub fn endpoint(&mut self) -> &mut Endpoint<L> {
        &mut self.endpoint
    }

    /// The peer at an address; added if it is not known.
    pub fn peer(&mut self, address: Address) -> PeerId {
        let peer = self.state.peers.get_or_add(address);
        // A peer whose datagram arrived first is known without its cookie, and a new process may have the address now.
        self.state.peers.at(peer).address = address;
        peer
    }

    /// A peer's address; `None` if no peer has this number.
    #[must_use]
    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        self.state.peers.get(peer).map(|peer| peer.address)
    }

    /// Removes a peer; its number stays unused.
    pub fn remove_peer(&mut self, peer: PeerId) {
        self.state.peers.remove(peer);
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

    /// Whether there is nothing to send now, so that peers lose nothing if the next progress comes later.
    #[inline]
    #[must_use]
    pub fn has_nothing_to_send(&self) -> bool {
        self.endpoint.has_nothing_to_send()
    }

    /// Counters of ended operations.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Datagrams dropped for lack of a receive, for lack of room for a new peer, or for being of another class.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.state.dropped
    }

    /// Sends a datagram. It is copied, which completes the send: with a completion of this context and note if
    /// `completion` is given.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was sent.
    ///
    /// # Safety
    /// All parts must be valid for reads during the call.
    pub unsafe fn send(&mut self, to: PeerId, parts: &[Part], completion: Option<(u64, u32)>) -> Result<(), PostError> {
        let address = self.address_of(to).ok_or(PostError::NoSuchPeer)?;
        let limit = self.endpoint.datagram_max();
        // SAFETY: the caller's promise.
        let origin = unsafe { Origin::new(parts) };
        let bytes = usize::try_from(origin.bytes()).unwrap_or(usize::MAX);
        if bytes > limit {
            return Err(PostError::TooLong { bytes, limit });
        }
        let body = if let [_] | [] = parts {
            origin.contiguous(0)
        } else {
            self.scratch.resize(bytes, 0);
            origin.copy(0, &mut self.scratch);
            &self.scratch
        };
        match self.endpoint.send_datagram(address, Class::Unreliable, body, 0) {
            Ok(Ok(())) => {}
            Ok(Err(SendError::TooLong { bytes, most })) => return Err(PostError::TooLong { bytes, limit: most }),
            Ok(Err(SendError::Full | SendError::Ended)) => return Err(PostError::Full),
            Err(error) => {
                self.link_error = Some(error);
                return Err(PostError::Full);
            }
        }
        self.state.counts.sent += 1;
        if let Some((context, note)) = completion {
            self.state.completions.push_back(Completion { context, note, outcome: Outcome::Sent });
        }
        Ok(())
    }

    /// Posts a receive, which the oldest datagram completes, now or later.
    ///
    /// # Errors
    /// [`PostError::Full`]; then nothing was posted.
    ///
    /// # Safety
    /// All parts must be valid for writes, disjoint, and used by nothing else until the receive completes.
    pub unsafe fn receive(&mut self, parts: &[Part], options: ReceiveOptions) -> Result<(), PostError> {
        if self.state.receives.len() >= self.state.config.receives {
            return Err(PostError::Full);
        }
        // SAFETY: the caller's promise.
        let target = unsafe { Target::new(parts) };
        self.state.receives.push_back(Posted { target, options });
        if let Some((source, bytes)) = self.state.unexpected.pop_front() {
            self.state.deliver(source, &bytes);
        }
        Ok(())
    }

    /// Cancels a receive, which fails as cancelled. False if no receive has this context.
    pub fn cancel(&mut self, context: u64) -> bool {
        let receives = &mut self.state.receives;
        let index = receives.iter().position(|posted| posted.options.context == context);
        let Some(posted) = index.and_then(|index| receives.remove(index)) else { return false };
        self.state.fail(posted.options, Failure::Cancelled, None);
        true
    }

    /// Does all pending work without blocking. True if a completion is available.
    ///
    /// # Errors
    /// When the link has failed, permanently.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, EndpointError> {
        if let Some(error) = self.link_error.take() {
            return Err(error);
        }
        self.endpoint.progress(&mut self.state)?;
        // Channels that local peers opened are not used; their events are discarded.
        while self.endpoint.poll_event().is_some() {}
        Ok(!self.state.completions.is_empty())
    }
}

impl State {
    /// Delivers a datagram to the oldest receive, which must exist.
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
    /// From a peer that mistakes this endpoint for a messenger's: discarded.
    fn piece(&mut self, _: ChannelId, _: Piece<'_>) -> bool {
        true
    }

    fn datagram(&mut self, from: Address, class: Class, bytes: &[u8]) {
        let is_known = self.peers.find(from).is_some() || self.peers.len() < self.config.peers;
        let has_room = !self.receives.is_empty() || self.unexpected.len() < UNEXPECTED_DATAGRAMS_MAX;
        if class != Class::Unreliable || !is_known || !has_room {
            self.dropped += 1;
            return;
        }
        let source = self.peers.get_or_add(from);
        if self.receives.is_empty() {
            self.unexpected.push_back((source, bytes.into()));
        } else {
            self.deliver(source, bytes);
        }
    }

    fn ended(&mut self, _: ChannelId) {}
}
