// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoints: reliable (`FI_EP_RDM`), each with a messenger, or unreliable (`FI_EP_DGRAM`).

mod completions;
mod wire;

use std::ffi::c_void;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use barewire_endpoint::Address;
use barewire_messages::{Claim, Config, Counts, Datagrams, Messenger, PeerId};

use crate::bindings::*;
use crate::device::{self, Device};
use crate::edge::{Errno, Result};
use crate::link::AnyLink;
use crate::log::{info, warning};
use crate::parameters::{Parameters, Protection};
use crate::queue::Queue;
use crate::region::Region;
use crate::table::Table;
use crate::vector::{FI_ADDR_NOTAVAIL, Vector};
pub(crate) use wire::{Reliable, Wire, reliable};

/// An endpoint's part of its domain's state.
pub(crate) struct Endpoint {
    /// Present once enabled.
    pub wire: Option<Wire>,
    /// Whether it is `FI_EP_DGRAM`.
    is_unreliable: bool,
    pub vector: Option<usize>,
    pub transmit: Option<Bound>,
    pub receive: Option<Bound>,
    /// Default flags of calls without a flags argument.
    pub transmit_flags: u64,
    pub receive_flags: u64,
    /// Whether receives match the source that they name (`FI_DIRECTED_RECV`).
    pub is_directed: bool,
    /// Maximum bytes of an injected message.
    pub inject_size: usize,
    /// The messenger's peer numbers, by number in the address vector; [`NO_PEER`] before the first contact.
    peers: Vec<u32>,
    /// The peers' numbers in the address vector, by the messenger's peer number.
    sources: Vec<fi_addr_t>,
    /// Active multi-receives (`FI_MULTI_RECV`).
    pub multi_receives: Vec<MultiReceive>,
    /// Number of multi-receives posted so far.
    pub multi_receives_posted: u64,
    /// A multi-receive ends when fewer bytes are left (`FI_OPT_MIN_MULTI_RECV`).
    pub min_multi_recv: usize,
    /// Claimed messages, by the context of the call.
    pub claims: Vec<(usize, Claim)>,
    /// If bound to counters: the counts that these were last notified of.
    pub reported_counts: Option<Counts>,
    /// The receive queue has so many unread entries that peers are held back.
    is_flooded: bool,
    /// A link failure was logged.
    is_broken: bool,
    /// The lost peer that was logged last.
    last_lost: Option<PeerId>,
}

/// A binding to a completion queue.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub queue: usize,
    /// Whether only operations that request it produce completions (`FI_SELECTIVE_COMPLETION`).
    pub is_selective: bool,
}

/// A receive buffer for several messages.
pub(crate) struct MultiReceive {
    /// The messenger's context of the receive.
    pub number: u64,
    pub context: *mut c_void,
    pub base: *mut u8,
}

// SAFETY: the pointers are the program's, and only returned to it.
unsafe impl Send for MultiReceive {}

/// Set in the numbers of multi-receives: no pointer of a program has this bit, so they differ from contexts.
pub(crate) const MULTI_RECEIVE_BIT: u64 = 1 << 63;
const NO_PEER: u32 = u32::MAX;
/// Default of `FI_OPT_MIN_MULTI_RECV`.
const MIN_MULTI_RECV_DEFAULT: usize = 64;
/// Endpoints of one thread that were idle for this many turns and this long have nothing more to send to each other.
const IDLE_TURNS: u32 = 1000;
const IDLE_TIME: Duration = Duration::from_millis(50);

impl Endpoint {
    /// An endpoint without bindings.
    pub fn new(is_unreliable: bool) -> Self {
        Self {
            wire: None,
            is_unreliable,
            vector: None,
            transmit: None,
            receive: None,
            transmit_flags: 0,
            receive_flags: 0,
            is_directed: false,
            inject_size: usize::MAX,
            peers: Vec::new(),
            sources: Vec::new(),
            multi_receives: Vec::new(),
            multi_receives_posted: 0,
            min_multi_recv: MIN_MULTI_RECV_DEFAULT,
            claims: Vec::new(),
            reported_counts: None,
            is_flooded: false,
            is_broken: false,
            last_lost: None,
        }
    }

    /// Opens the endpoint on the network (`fi_enable`).
    pub fn enable(&mut self, device: &Device, parameters: &Parameters) -> Result<()> {
        if self.wire.is_some() {
            return Err(Errno::BAD_STATE);
        }
        self.vector.ok_or(Errno::NO_VECTOR)?;
        if self.transmit.is_none() && self.receive.is_none() && self.reported_counts.is_none() {
            return Err(Errno::NO_QUEUE);
        }
        let endpoint = device::open(device, parameters).map_err(|error| {
            warning!(FI_LOG_EP_CTRL, "{}: {error}", device.name);
            error.exhausted().unwrap_or(Errno::LINK_IS_DOWN)
        })?;
        let config = Config { inject_bytes: Config::INJECT_BYTES, ..Config::tuned(endpoint.tuning()) };
        let address = self.start(endpoint, config);
        info!(FI_LOG_EP_CTRL, "{} on {}, token from {}", address, device.name, parameters.token_source);
        if parameters.protection != Protection::None {
            let (name, source) = (parameters.protection.name(), parameters.secret_source);
            info!(FI_LOG_EP_CTRL, "frames are protected: {name}, secret from {source}");
        }
        Ok(())
    }

    /// Starts on an open endpoint of the network; returns its address.
    pub fn start(&mut self, endpoint: barewire_endpoint::Endpoint<AnyLink>, config: Config) -> Address {
        let wire = if self.is_unreliable {
            Wire::Unreliable(Box::new(Datagrams::new(endpoint, config)))
        } else {
            Wire::Reliable(Messenger::new(endpoint, config))
        };
        let address = wire.address();
        self.wire = Some(wire);
        address
    }

    /// Completes all sends and closes the channels to all peers, within `patience`.
    ///
    /// `progress` makes progress on the domain's other endpoints, at the addresses `siblings`, and returns whether they
    /// are idle. Once all are idle, a message still under way to a sibling or to this endpoint itself waits for the
    /// program, which is in this call: it is abandoned.
    pub fn finish(&mut self, patience: Duration, siblings: &[Address], mut progress: impl FnMut() -> bool) {
        let mut messenger = match self.wire.take() {
            Some(Wire::Reliable(messenger)) => messenger,
            Some(Wire::Unreliable(datagrams)) => {
                if datagrams.dropped() > 0 {
                    info!(FI_LOG_EP_DATA, "{} datagrams found no receive and were dropped", datagrams.dropped());
                }
                return;
            }
            None => return,
        };
        let until = Instant::now() + patience;
        let (mut idle_since, mut idle_turns) = (Instant::now(), 0);
        while Instant::now() < until {
            match messenger.settle() {
                Ok(true) => break,
                Ok(false) => std::thread::yield_now(),
                Err(_) => return,
            }
            // Completions of a closed endpoint are discarded.
            while messenger.poll().is_some() {}
            if !progress() || !messenger.has_nothing_to_send() {
                (idle_since, idle_turns) = (Instant::now(), 0);
            }
            idle_turns += 1;
            if idle_turns > IDLE_TURNS && idle_since.elapsed() > IDLE_TIME {
                let own = messenger.address();
                close_channels(&mut messenger, |address| address == own || siblings.contains(&address));
            }
        }
        close_channels(&mut messenger, |_| true);
        // Sends the final frames; answers are not awaited.
        for _ in 0..3 {
            let _ = messenger.settle();
        }
    }

    /// Makes progress and queues completions. True if a counter has changed.
    ///
    /// # Errors
    /// The interface no longer works.
    #[inline]
    pub fn progress(&mut self, queues: &mut Table<Queue>, vectors: &Table<Vector>) -> Result<bool> {
        if self.is_flooded {
            self.bound_unread(queues);
        }
        let Some(wire) = &mut self.wire else { return Ok(false) };
        if let Err(error) = wire.progress() {
            if !std::mem::replace(&mut self.is_broken, true) {
                warning!(FI_LOG_EP_DATA, "{error}");
            }
            // Earlier completions are still reported.
            self.collect(queues, vectors);
            return Err(Errno::LINK_IS_DOWN);
        }
        let has_counted = self.reported_counts.as_mut().is_some_and(|reported_counts| {
            let counts = wire.counts();
            std::mem::replace(reported_counts, counts) != counts
        });
        self.collect(queues, vectors);
        Ok(has_counted)
    }

    /// Handles the timers that are due; the next [`progress`](Self::progress) reports what they cause.
    ///
    /// # Errors
    /// The interface no longer works.
    pub fn run_timers(&mut self) -> Result<()> {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        wire.endpoint().run_timers().map_err(|_| Errno::LINK_IS_DOWN)
    }

    /// Whether the last progress left messages that had arrived.
    pub fn has_more_to_receive(&mut self) -> bool {
        self.wire.as_mut().is_some_and(|wire| wire.endpoint().has_more_to_receive())
    }

    /// Whether nothing can be sent or reported now.
    #[inline]
    pub fn has_nothing_to_send(&self) -> bool {
        self.wire.as_ref().is_none_or(Wire::has_nothing_to_send)
    }

    /// Whether a message waits to be sent, or is not acknowledged.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.wire.as_ref().is_some_and(Wire::has_messages)
    }

    /// Whether the last post, or anything that waits for room or for the peer's answer, could not be sent yet.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.wire.as_ref().is_some_and(Wire::is_blocked)
    }

    /// Whether something was posted, since the last call of this, that could not be sent at once.
    #[inline]
    pub fn take_unsent(&mut self) -> bool {
        match &mut self.wire {
            Some(Wire::Reliable(messenger)) => messenger.take_unsent(),
            _ => false,
        }
    }

    /// Whether a receive was posted since the last call of this, and receives wait for more than fits a window.
    #[inline]
    pub fn take_unreceived(&mut self) -> bool {
        match &mut self.wire {
            Some(Wire::Reliable(messenger)) => messenger.take_unreceived(),
            _ => false,
        }
    }

    /// Whether receives wait for more than fits a window.
    pub fn awaits_long_messages(&self) -> bool {
        matches!(&self.wire, Some(Wire::Reliable(messenger)) if messenger.awaits_long_messages())
    }

    /// Whether a posted operation waits for room that progress may free.
    #[inline]
    pub fn is_waiting_for_room(&self) -> bool {
        matches!(&self.wire, Some(Wire::Reliable(messenger)) if messenger.is_waiting_for_room())
    }

    /// Prepares for a sleep: adds to `descriptors` what to sleep on, and returns the longest sleep, or `None` if there
    /// is work.
    pub fn prepare_to_sleep(&mut self, patience: Duration, descriptors: &mut Vec<RawFd>) -> Result<Option<Duration>> {
        let Some(wire) = &mut self.wire else { return Ok(Some(patience)) };
        let Ok(patience) = wire.prepare_to_sleep(patience) else { return Err(Errno::LINK_IS_DOWN) };
        let endpoint = wire.endpoint();
        descriptors.extend(endpoint.awaited().map(|descriptor| descriptor.as_raw_fd()));
        descriptors.extend(endpoint.link().descriptors().map(|descriptor| descriptor.as_raw_fd()));
        Ok(patience)
    }

    /// Numbers of successful and failed operations, of the kinds in a counter binding's `flags`.
    pub fn completed(&self, flags: u64) -> (u64, u64) {
        let counts = self.wire.as_ref().map(Wire::counts).unwrap_or_default();
        let all = [
            (FI_SEND, counts.sent, counts.sends_failed),
            (FI_RECV, counts.received, counts.receives_failed),
            (FI_WRITE, counts.written, counts.writes_failed),
            (FI_READ, counts.read, counts.reads_failed),
            (FI_REMOTE_WRITE, counts.written_by_peers, 0),
            (FI_REMOTE_READ, counts.read_by_peers, 0),
        ];
        let selected = all.into_iter().filter(|(kind, ..)| flags & kind != 0);
        selected.fold((0, 0), |sum, (_, succeeded, failed)| (sum.0 + succeeded, sum.1 + failed))
    }

    pub fn address(&self) -> Option<Address> {
        self.wire.as_ref().map(Wire::address)
    }

    pub fn uses(&self, vector: usize) -> bool {
        self.vector == Some(vector)
    }

    /// Removes the peer of a number that was removed from the address vector.
    pub fn remove_peer(&mut self, number: usize) {
        // Also if it was only received from.
        for source in self.sources.iter_mut().filter(|source| **source == number as fi_addr_t) {
            *source = FI_ADDR_NOTAVAIL;
        }
        let Some(peer) = self.peers.get_mut(number) else { return };
        let peer = std::mem::replace(peer, NO_PEER);
        // Its address may have another number, too.
        if peer == NO_PEER || self.peers.contains(&peer) {
            return;
        }
        if let Some(wire) = &mut self.wire {
            wire.remove_peer(PeerId::from_number(peer));
        }
    }

    /// Registers memory for access by peers, if the endpoint is reliable and enabled.
    ///
    /// # Safety
    /// As for [`Messenger::register`].
    pub unsafe fn register(&mut self, region: &Region) -> Result<()> {
        let Some(Wire::Reliable(messenger)) = &mut self.wire else { return Ok(()) };
        // SAFETY: the caller's promise.
        unsafe { messenger.register(&[region.part], region.access, Some(region.key)) }?;
        self.count_accesses(region);
        Ok(())
    }

    /// Counts peers' accesses to a registered region, if a counter is bound to it.
    pub fn count_accesses(&mut self, region: &Region) {
        let (Some(Wire::Reliable(messenger)), Some(counts)) = (&mut self.wire, &region.counts) else { return };
        if region.is_reachable() {
            // Fails only if the region is not registered here.
            let _ = messenger.count_accesses(region.key, counts.clone());
            // Accesses change these counts as well, which wakes the counter's waiters.
            self.reported_counts.get_or_insert_default();
        }
    }

    pub fn deregister(&mut self, key: u64) {
        if let Some(Wire::Reliable(messenger)) = &mut self.wire {
            // Fails only if the region is not registered here.
            let _ = messenger.deregister(key);
        }
    }

    #[inline]
    pub fn wire(&mut self) -> Result<&mut Wire> {
        self.wire.as_mut().ok_or(Errno::BAD_STATE)
    }

    /// The peer with a number in the address vector.
    #[inline]
    pub fn peer(&mut self, vectors: &Table<Vector>, number: fi_addr_t) -> Result<PeerId> {
        match self.peers.get(number as usize) {
            Some(&peer) if peer != NO_PEER => Ok(PeerId::from_number(peer)),
            _ => self.new_peer(vectors, number),
        }
    }

    #[cold]
    fn new_peer(&mut self, vectors: &Table<Vector>, number: fi_addr_t) -> Result<PeerId> {
        let vector = &vectors[self.vector.ok_or(Errno::NO_VECTOR)?].addresses;
        let index = usize::try_from(number).ok().filter(|index| *index < vector.len()).ok_or(Errno::INVALID)?;
        let address = vector[index].ok_or(Errno::INVALID)?;
        let peer = self.wire()?.peer(address);
        if self.peers.len() < vector.len() {
            self.peers.resize(vector.len(), NO_PEER);
        }
        self.peers[index] = peer.number();
        self.set_source(peer, number);
        Ok(peer)
    }

    fn set_source(&mut self, peer: PeerId, number: fi_addr_t) {
        let index = peer.number() as usize;
        if self.sources.len() <= index {
            self.sources.resize(index + 1, FI_ADDR_NOTAVAIL);
        }
        self.sources[index] = number;
    }

    /// Looks up the first number of a peer's address in the vector, once for each peer.
    #[cold]
    fn find_source(&mut self, vectors: &Table<Vector>, peer: PeerId) -> fi_addr_t {
        let address: Option<Address> = self.wire.as_ref().and_then(|wire| wire.address_of(peer));
        let Some(vector) = self.vector else { return FI_ADDR_NOTAVAIL };
        let index = vectors[vector].addresses.iter().position(|known| known.is_some() && *known == address);
        let Some(index) = index else { return FI_ADDR_NOTAVAIL };
        self.set_source(peer, index as fi_addr_t);
        index as fi_addr_t
    }
}

/// Closes the channels to the selected addresses.
fn close_channels(messenger: &mut Reliable, is_selected: impl Fn(Address) -> bool) {
    let selected = messenger.peers().filter(|(_, address)| is_selected(*address));
    let selected: Vec<PeerId> = selected.map(|(peer, _)| peer).collect();
    selected.into_iter().for_each(|peer| messenger.close(peer));
}
