// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoints: unconnected, and either reliable (`FI_EP_RDM`), a messenger each, or not (`FI_EP_DGRAM`).

mod completions;
mod wire;

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use barewire_endpoint::Address;
use barewire_link::Interface;
use barewire_messages::{Claim, Config, Counts, Datagrams, Messenger, PeerId, PostError};

use crate::bindings::*;
use crate::device;
use crate::edge::{Errno, Result};
use crate::log::{info, warning};
use crate::parameters::{Parameters, Protection};
use crate::queue::Queue;
use crate::region::Region;
use crate::table::Table;
use crate::vector::{FI_ADDR_NOTAVAIL, Vector};
pub(crate) use wire::{Reliable, Wire, reliable};

/// An endpoint's part of its domain's state.
pub(crate) struct Endpoint {
    /// From `fi_enable` on.
    pub wire: Option<Wire>,
    /// It is `FI_EP_DGRAM`.
    is_unreliable: bool,
    pub vector: Option<usize>,
    pub transmit: Option<Bound>,
    pub receive: Option<Bound>,
    /// Flags of the calls that have none.
    pub transmit_flags: u64,
    pub receive_flags: u64,
    /// Receives heed the source that they name (`FI_DIRECTED_RECV`).
    pub is_directed: bool,
    /// Peers may access memory that the address vector does not have.
    serves_unknown_peers: bool,
    /// Bytes of the longest message that is injected.
    pub inject_size: usize,
    /// By the peer's number in the address vector; [`NOBODY`] where nothing was sent to it yet.
    peers: Vec<u32>,
    /// By the messenger's number of a peer: its number in the address vector.
    sources: Vec<fi_addr_t>,
    /// Receives of many messages.
    pub many: Vec<Many>,
    /// How many there were.
    pub many_numbered: u64,
    /// A receive of many messages ends when less is left (`FI_OPT_MIN_MULTI_RECV`).
    pub least: usize,
    /// Messages that were claimed, by the context of the call.
    pub claims: Vec<(usize, Claim)>,
    /// It is bound to counters, which have heard of so much.
    pub counted: Option<Counts>,
    /// The queue of what is received has so many entries that peers wait.
    is_flooded: bool,
    /// Somebody was told that the link does not work any more.
    is_broken: bool,
    /// The log was told last that the way to this peer ended.
    lost: Option<PeerId>,
}

/// Where completions go.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub queue: usize,
    /// Only those that ask for it (`FI_SELECTIVE_COMPLETION`).
    pub is_selective: bool,
}

/// A receive of many messages.
pub(crate) struct Many {
    /// The messenger's context for it.
    pub number: u64,
    pub context: *mut c_void,
    pub base: *mut u8,
}

// SAFETY: the pointers in it are the program's, and only handed back to it.
unsafe impl Send for Many {}

/// Set in the numbers of receives of many messages: no pointer of a program's has it.
pub(crate) const OF_MANY: u64 = 1 << 63;
const NOBODY: u32 = u32::MAX;
/// Of the smallest memory for many messages that is left, as long as nobody says.
const LEAST: usize = 64;
/// Endpoints of one thread that have had so many turns, for so long, and sent nothing have nothing more for each other.
const STILL_TURNS: u32 = 1000;
const STILL: Duration = Duration::from_millis(50);

impl Endpoint {
    /// One that is bound to nothing.
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
            serves_unknown_peers: true,
            inject_size: usize::MAX,
            peers: Vec::new(),
            sources: Vec::new(),
            many: Vec::new(),
            many_numbered: 0,
            least: LEAST,
            claims: Vec::new(),
            counted: None,
            is_flooded: false,
            is_broken: false,
            lost: None,
        }
    }

    /// Opens the way to the network.
    pub fn enable(&mut self, interface: &Interface, parameters: &Parameters, vectors: &Table<Vector>) -> Result<()> {
        if self.wire.is_some() {
            return Err(Errno::BAD_STATE);
        }
        let vector = self.vector.ok_or(Errno::NO_VECTOR)?;
        if self.transmit.is_none() && self.receive.is_none() && self.counted.is_none() {
            return Err(Errno::NO_QUEUE);
        }
        let endpoint = device::open(interface, parameters).map_err(|error| {
            warning!(FI_LOG_EP_CTRL, "{}: {error}", interface.name);
            error.exhausted().unwrap_or(Errno::LINK_IS_DOWN)
        })?;
        // Frames with the job's token come from the job.
        self.serves_unknown_peers = parameters.token.is_some();
        let config = Config {
            inject_bytes: Config::INJECT_BYTES,
            serves_unknown_peers: self.serves_unknown_peers,
            ..Config::tuned(endpoint.tuning())
        };
        let wire = if self.is_unreliable {
            Wire::Unreliable(Box::new(Datagrams::new(endpoint, config)))
        } else {
            Wire::Reliable(Messenger::new(endpoint, config))
        };
        info!(FI_LOG_EP_CTRL, "{} on {}, token from {}", wire.address(), interface.name, parameters.token_source);
        if parameters.protection != Protection::None {
            let (name, source) = (parameters.protection.name(), parameters.secret_source);
            info!(FI_LOG_EP_CTRL, "frames are protected: {name}, secret from {source}");
        }
        self.wire = Some(wire);
        if !self.serves_unknown_peers {
            (0..vectors[vector].addresses.len()).for_each(|number| self.name(vectors, number));
        }
        Ok(())
    }

    /// The program has put a peer into its address vector: that may access memory, without a token, too, until it is
    /// taken out.
    pub fn name(&mut self, vectors: &Table<Vector>, number: usize) {
        if self.serves_unknown_peers || self.wire.is_none() {
            return;
        }
        let addresses = self.vector.map_or(&[][..], |vector| &vectors[vector].addresses);
        // Under its first number only: with that it goes.
        if addresses.get(number).is_some_and(|address| !addresses[..number].contains(address)) {
            // One of the vector's: there is nothing to fail but an endpoint that is not reliable.
            let _ = self.peer(vectors, number as fi_addr_t);
        }
    }

    /// Sends what there is to send and takes leave of all peers, for `patience` at most.
    ///
    /// The domain's other endpoints, at the addresses `siblings`, get on meanwhile by `progress`, which says whether they
    /// have nothing to send. What is still under way to one of them or to this one itself when nothing moves any more
    /// waits for the program, which waits for this call: it is given up.
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
        let (mut still_since, mut still_turns) = (Instant::now(), 0);
        while Instant::now() < until {
            match messenger.settle() {
                Ok(true) => break,
                Ok(false) => std::thread::yield_now(),
                Err(_) => return,
            }
            // Nobody is told any more.
            while messenger.poll().is_some() {}
            if !progress() || !messenger.has_nothing_to_send() {
                (still_since, still_turns) = (Instant::now(), 0);
            }
            still_turns += 1;
            if still_turns > STILL_TURNS && still_since.elapsed() > STILL {
                let own = messenger.address();
                leave(&mut messenger, |address| address == own || siblings.contains(&address));
            }
        }
        leave(&mut messenger, |_| true);
        // What is said last is said in the next steps; an answer is not waited for.
        for _ in 0..3 {
            let _ = messenger.settle();
        }
    }

    /// Makes progress; what has ended goes to its queue. True if a counter shows something else now.
    ///
    /// # Errors
    /// When the interface no longer works.
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
            // What had ended before is still told.
            self.collect(queues, vectors);
            return Err(Errno::LINK_IS_DOWN);
        }
        let has_counted = self.counted.as_mut().is_some_and(|counted| {
            let counts = wire.counts();
            std::mem::replace(counted, counts) != counts
        });
        self.collect(queues, vectors);
        Ok(has_counted)
    }

    /// Whether nothing can be sent or told now.
    #[inline]
    pub fn owes_nothing(&self) -> bool {
        self.wire.as_ref().is_none_or(Wire::owes_nothing)
    }

    /// Whether a message waits, or is not acknowledged.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.wire.as_ref().is_some_and(Wire::has_messages)
    }

    /// Whether what was posted last, or something that waits for room or for the peer's answer, could not be sent yet.
    #[inline]
    pub fn is_held_up(&self) -> bool {
        self.wire.as_ref().is_some_and(Wire::is_held_up)
    }

    /// Whether something that was posted waits for room that progress may make.
    #[inline]
    pub fn waits_for_room(&self) -> bool {
        matches!(&self.wire, Some(Wire::Reliable(messenger)) if messenger.is_waiting_for_room())
    }

    /// As of the messenger's: what to sleep on, and for how long at most; `None`: there is something to do.
    pub fn prepare_to_sleep(&mut self, patience: Duration, others: &mut Vec<RawFd>) -> Result<Option<Duration>> {
        let Some(wire) = &mut self.wire else { return Ok(Some(patience)) };
        let endpoint = wire.endpoint();
        let Ok(patience) = endpoint.prepare_to_sleep(patience) else { return Err(Errno::LINK_IS_DOWN) };
        others.extend(endpoint.awaited().map(|descriptor| descriptor.as_raw_fd()));
        others.push(endpoint.link().as_fd().as_raw_fd());
        Ok(patience)
    }

    /// Operations that have ended, of those that `what` names: those that worked, and those that did not.
    pub fn ended(&self, what: u64) -> (u64, u64) {
        let counts = self.wire.as_ref().map(Wire::counts).unwrap_or_default();
        let of = |flag: u64, (worked, failed): (u64, u64)| if what & flag != 0 { (worked, failed) } else { (0, 0) };
        let all = [
            of(FI_SEND, (counts.sent, counts.sends_failed)),
            of(FI_RECV, (counts.received, counts.receives_failed)),
            of(FI_WRITE, (counts.written, counts.writes_failed)),
            of(FI_READ, (counts.read, counts.reads_failed)),
            of(FI_REMOTE_WRITE, (counts.written_by_peers, 0)),
            of(FI_REMOTE_READ, (counts.read_by_peers, 0)),
        ];
        all.into_iter().fold((0, 0), |sum, (worked, failed)| (sum.0 + worked, sum.1 + failed))
    }

    pub fn address(&self) -> Option<Address> {
        self.wire.as_ref().map(Wire::address)
    }

    pub fn uses(&self, vector: usize) -> bool {
        self.vector == Some(vector)
    }

    /// A number in the address vector means nothing any more.
    pub fn forget(&mut self, number: usize) {
        let Some(peer) = self.peers.get_mut(number) else { return };
        let peer = std::mem::replace(peer, NOBODY);
        if let Some(source) = self.sources.get_mut(peer as usize) {
            *source = FI_ADDR_NOTAVAIL;
        }
        if let (Some(wire), true) = (&mut self.wire, peer != NOBODY) {
            wire.remove_peer(PeerId::from_number(peer));
        }
    }

    /// Lets peers access memory from now on, if there is a way for them.
    ///
    /// # Safety
    /// As of [`Messenger::register`].
    pub unsafe fn register(&mut self, region: &Region) -> Result<()> {
        let Some(Wire::Reliable(messenger)) = &mut self.wire else { return Ok(()) };
        // SAFETY: the caller's promise.
        match unsafe { messenger.register(&[region.part], region.access, Some(region.key)) } {
            Ok(_) => Ok(()),
            Err(PostError::KeyTaken(_)) => Err(Errno(FI_ENOKEY)),
            Err(error) => Err(error.into()),
        }
    }

    pub fn deregister(&mut self, key: u64) {
        if let Some(Wire::Reliable(messenger)) = &mut self.wire {
            // It was enabled later than the region was closed, or knows it.
            let _ = messenger.deregister(key);
        }
    }

    #[inline]
    pub fn wire(&mut self) -> Result<&mut Wire> {
        self.wire.as_mut().ok_or(Errno::BAD_STATE)
    }

    /// Whom a number in the address vector means.
    #[inline]
    pub fn peer(&mut self, vectors: &Table<Vector>, number: fi_addr_t) -> Result<PeerId> {
        match self.peers.get(number as usize) {
            Some(&peer) if peer != NOBODY => Ok(PeerId::from_number(peer)),
            _ => self.new_peer(vectors, number),
        }
    }

    #[cold]
    fn new_peer(&mut self, vectors: &Table<Vector>, number: fi_addr_t) -> Result<PeerId> {
        let vector = &vectors[self.vector.ok_or(Errno::NO_VECTOR)?].addresses;
        let place = usize::try_from(number).ok().filter(|place| *place < vector.len()).ok_or(Errno::INVALID)?;
        let address = vector[place].ok_or(Errno::INVALID)?;
        let peer = self.wire()?.peer(address);
        if self.peers.len() < vector.len() {
            self.peers.resize(vector.len(), NOBODY);
        }
        self.peers[place] = peer.number();
        self.remember_source(peer, number);
        Ok(peer)
    }

    fn remember_source(&mut self, peer: PeerId, number: fi_addr_t) {
        let place = peer.number() as usize;
        if self.sources.len() <= place {
            self.sources.resize(place + 1, FI_ADDR_NOTAVAIL);
        }
        self.sources[place] = number;
    }

    /// The first number that a peer's address has in the vector, which is asked once for each peer.
    #[cold]
    fn find_source(&mut self, vectors: &Table<Vector>, peer: PeerId) -> fi_addr_t {
        let address: Option<Address> = self.wire.as_ref().and_then(|wire| wire.address_of(peer));
        let Some(vector) = self.vector else { return FI_ADDR_NOTAVAIL };
        let place = vectors[vector].addresses.iter().position(|known| known.is_some() && *known == address);
        let Some(place) = place else { return FI_ADDR_NOTAVAIL };
        self.remember_source(peer, place as fi_addr_t);
        place as fi_addr_t
    }
}

/// Ends the channels to peers at these addresses.
fn leave(messenger: &mut Reliable, is_meant: impl Fn(Address) -> bool) {
    let meant = messenger.peers().filter(|(_, address)| is_meant(*address));
    let meant: Vec<PeerId> = meant.map(|(peer, _)| peer).collect();
    meant.into_iter().for_each(|peer| messenger.close(peer));
}
