// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One link over several: Ethernet frames by one or more interfaces, and UDP datagrams.
//!
//! [`Carriers`] is a [`Link`] with one MAC address, that of its first interface for frames or, without these, of its
//! UDP socket. It sends to each peer by the best path known to reach it: it probes all paths that both ends have
//! ([`probe`]) before the first frame, and again when a path falls silent. Where several interfaces reach the peer,
//! long frames go by all of them in turn ([`spread`]). Callers identify a station by name; its addresses on each path
//! are internal.
//!
//! ```text
//!              Endpoint, station:      names (MAC address, service access point)
//!                     |
//!                 Carriers             for each name: paths that both ends have, the best one, the current question
//!               |     |      |
//!       AF_PACKET, XDP …    UDP        MAC addresses; MAC addresses made of port and IP address
//! ```

mod interface;
mod link;
mod lower;
mod mutant;
mod name;
mod path_mtu;
mod peer;
mod pieces;
mod probe;
mod questions;
mod spread;

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;

use barewire_link::{ETHERNET_HEADER_BYTES, Incoming, IncomingMut, Link, LinkError, MacAddress, Outgoing};

pub use interface::{INTERFACES_MAX, Interface, is_fast_enough};
pub use lower::{Datagrams, Lower};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
use name::Name;
pub use peer::Carrier;
use peer::{PATHS, Path, Peer, Route, UDP};
use pieces::Pieces;
use probe::{Probe, has_mark};

/// Frames to a peer that are kept until a carrier is found; more are lost, as on a wire.
const HELD_MAX: usize = 8;
/// Interval in nanoseconds at which the UDP socket is polled while no peer is reached by UDP: a poll is a system call,
/// which takes as long as ten polls of a ring.
const UDP_POLL_INTERVAL: u64 = 100_000;
/// Length in bytes of frames that go by the best path only: a message of one such frame arrives soonest there.
const SHORT_MAX: usize = 1024;
/// Length in bytes of a frame that every path by UDP carries, if it leaves by itself.
const DATAGRAM_MIN: usize = ETHERNET_HEADER_BYTES + path_mtu::MTU_MIN;
/// Number of long frames from which a batch goes by UDP, where that is faster: a datagram by itself takes longer.
const BATCH_MIN: usize = 4;
/// Time in nanoseconds for which more batches are awaited after one. Then the UDP link is polled …
const BATCHES_AWAITED: u64 = 1_000_000;
/// … after so many polls of the links for frames.
const POLLS_OF_FRAMES: u32 = 4;
/// Interval in nanoseconds at which idle peers are looked for.
const IDLE_CHECK_INTERVAL: u64 = 10_000_000_000;

/// Frames to a peer that no carrier is known to reach.
#[derive(Default)]
struct Held {
    frames: Vec<Vec<u8>>,
    /// How many of them have followed the last question by the first path.
    sent: usize,
}

/// A link that reaches each peer by frames or by UDP.
pub struct Carriers<F, U> {
    /// By path; `None`: the interface is gone.
    frames: Vec<Option<F>>,
    udp: Option<U>,
    /// The MTU of frames, also after their interfaces are gone; `None` without frames.
    mtu: Option<usize>,
    /// Whether there is only one path, so that nothing needs to be probed.
    is_single: bool,
    own: Name,
    /// The interfaces of `frames`; addresses of zeros are none.
    interfaces: [Interface; INTERFACES_MAX],
    /// Key of the probes to this station.
    key: u64,
    peers: Vec<Peer>,
    by_name: HashMap<Name, usize>,
    by_udp: HashMap<MacAddress, usize>,
    /// Frames to peers without a carrier.
    held: HashMap<usize, Held>,
    /// Frames that come in pieces, and the number of the last one sent so; 0 before the first.
    pieces: Pieces,
    cut_frames: u64,
    /// The last peer looked up, by name and by its UDP socket: mostly the next one.
    last_named: (Name, usize),
    last_udp: (MacAddress, usize),
    /// Peers that are reached by UDP or may be.
    udp_peers: HashSet<usize>,
    /// Number of idle peers, and when they are looked for next.
    idle_peers: usize,
    idle_check_due: u64,
    now: u64,
    /// When the next question is due.
    question_due: u64,
    /// Until then only frames are polled.
    only_frames_until: u64,
    /// Until then more batches may come by UDP.
    batches_until: u64,
    /// Polls of the links for frames until the next of the UDP link.
    polls_of_frames: u32,
    /// Frames received since the rest was polled, and the interface to poll next.
    frames_in_turn: u32,
    turn: Path,
    /// The path that did not accept a frame last.
    busy: Path,
    /// Injected fault.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl<F: Lower, U: Datagrams> Carriers<F, U> {
    /// A link over these links, at least one. The first link for frames is the best one, and its address is the
    /// station's; the MTU is the smallest of all. Links for frames come with their speeds in Mbit/s, 0 if unknown.
    ///
    /// # Panics
    /// Without any, or with more than [`INTERFACES_MAX`] for frames.
    #[must_use]
    pub fn new(frames: Vec<(F, u32)>, udp: Option<U>) -> Self {
        let mut interfaces = [Interface::default(); INTERFACES_MAX];
        for (number, (link, speed)) in frames.iter().enumerate() {
            interfaces[number] = Interface { mac: link.address(), speed: *speed };
        }
        let address = frames.first().map(|(link, _)| link.address()).or_else(|| udp.as_ref().map(Link::address));
        let own = Name::new(address.expect("there is a carrier").0, 0);
        Self {
            mtu: frames.iter().map(|(link, _)| link.mtu()).min(),
            is_single: udp.is_none() && frames.len() == 1,
            frames: frames.into_iter().map(|(link, _)| Some(link)).collect(),
            udp,
            own,
            interfaces,
            key: 0,
            peers: Vec::new(),
            by_name: HashMap::new(),
            by_udp: HashMap::new(),
            held: HashMap::new(),
            pieces: Pieces::default(),
            cut_frames: 0,
            last_named: (own, usize::MAX),
            last_udp: (MacAddress::default(), usize::MAX),
            udp_peers: HashSet::new(),
            idle_peers: 0,
            idle_check_due: 0,
            now: 0,
            question_due: u64::MAX,
            only_frames_until: 0,
            batches_until: 0,
            polls_of_frames: 0,
            frames_in_turn: 0,
            turn: 0,
            busy: 0,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Takes the links for frames out, to be closed.
    pub fn take_frames(&mut self) -> impl Iterator<Item = F> + use<F, U> {
        std::mem::take(&mut self.frames).into_iter().flatten()
    }

    /// The links for frames that are left.
    fn frames(&self) -> impl Iterator<Item = &F> {
        self.frames.iter().flatten()
    }

    /// What to wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_frames = self.frames().flat_map(|link| link.descriptors());
        let of_udp = self.udp.iter().flat_map(|link| link.descriptors());
        of_frames.chain(of_udp).flatten()
    }

    /// The carrier that reaches a peer at present, and by how many interfaces; `None` until the peer has answered.
    #[must_use]
    pub fn carrier_to(&self, mac: MacAddress, sap: u8) -> Option<(Carrier, usize)> {
        let Some(index) = self.by_name.get(&Name::new(mac.0, sap)) else {
            // There is no alternative, so it is used without a probe.
            return Some((if self.frames.is_empty() { Carrier::Udp } else { Carrier::Frames }, 1));
        };
        let peer = &self.peers[*index];
        let spread = (0..INTERFACES_MAX).filter(|path| peer.spreads_over(*path)).count();
        let carrier = |path| match (path == UDP, self.sends_batches_to(peer)) {
            (true, _) => Carrier::Udp,
            (false, true) => Carrier::FramesAndUdp,
            (false, false) => Carrier::Frames,
        };
        peer.current.map(|path| (carrier(path), spread.max(1)))
    }

    /// Whether datagrams leave from one address of this station only.
    fn has_one_address(&self) -> bool {
        self.udp.as_ref().is_some_and(|udp| udp.locator().ips().count() == 1)
    }

    #[inline]
    fn find(&mut self, name: Name) -> Option<usize> {
        if self.last_named.0 != name {
            self.last_named = (name, *self.by_name.get(&name)?);
        }
        Some(self.last_named.1).filter(|index| *index != usize::MAX)
    }

    fn find_udp(&mut self, from: MacAddress) -> Option<usize> {
        if self.last_udp.0 != from || self.last_udp.1 == usize::MAX {
            self.last_udp = (from, *self.by_udp.get(&from)?);
        }
        Some(self.last_udp.1)
    }

    /// Sends frames by one path, to this address.
    #[inline]
    fn send_by(&mut self, path: Path, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let sent = if path == UDP {
            self.udp.as_mut().map(|link| link.send_to(to, frames))
        } else {
            let link = self.frames.get_mut(path).and_then(Option::as_mut);
            // The headers have these addresses.
            let is_named = path == 0 && frames.first().is_some_and(|frame| frame.header.starts_with(&to.0));
            link.map(|link| if is_named { link.send(frames) } else { link.send_to(to, frames) })
        };
        // The link is gone: the frames are lost, as on a wire.
        let sent = sent.unwrap_or(Ok(frames.len()));
        if let Ok(accepted) = sent
            && accepted < frames.len()
        {
            self.busy = path;
        }
        sent
    }

    /// Sends frames to a peer by one path.
    #[inline]
    fn send_along(&mut self, index: usize, path: Path, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let peer = &mut self.peers[index];
        let to = peer.address(path);
        if path != UDP {
            return self.send_by(path, to, frames);
        }
        peer.has_risked_since_poll |= frames.len() > 1 || frames.iter().any(|frame| frame.len() > DATAGRAM_MIN);
        let longest = ETHERNET_HEADER_BYTES + peer.path_mtu.mtu();
        if peer.path_mtu.is_singly() || frames.iter().any(|frame| frame.len() > longest) {
            return self.send_fitting(index, frames);
        }
        let sent = self.send_by(UDP, to, frames);
        if let [frame] = frames
            && is_poll(frame)
        {
            self.note_poll(index);
        }
        sent
    }

    /// Sends frames by UDP to a peer whose path does not carry all of them as they are: long ones in pieces, and one by
    /// one if batches are lost.
    #[cold]
    fn send_fitting(&mut self, index: usize, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let path_mtu = &self.peers[index].path_mtu;
        let (mtu, is_singly, to) = (path_mtu.mtu(), path_mtu.is_singly(), self.peers[index].address(UDP));
        let mut sent = 0;
        while let Some(frame) = frames.get(sent) {
            let fits = |frame: &&Outgoing<'_>| frame.len() <= ETHERNET_HEADER_BYTES + mtu;
            let run = frames[sent..].iter().take_while(fits).count();
            let pieces = if run == 0 { pieces::cut(frame, mtu, self.next_cut_frame()) } else { Vec::new() };
            if pieces.is_empty() {
                // What would take too many pieces leaves whole, and IP may fragment it.
                let count = if is_singly { 1 } else { run.max(1) };
                let accepted = self.send_by(UDP, to, &frames[sent..sent + count])?;
                sent += accepted;
                if accepted < count {
                    break;
                }
                continue;
            }
            let pieces: Vec<_> =
                pieces.iter().map(|piece| Outgoing { header: piece, payload: &[], label: frame.label }).collect();
            for together in pieces.chunks(if is_singly { 1 } else { pieces.len() }) {
                if self.send_by(UDP, to, together)? < together.len() {
                    // The frame is cut anew.
                    return Ok(sent);
                }
            }
            sent += 1;
        }
        if let [frame] = frames
            && is_poll(frame)
        {
            self.note_poll(index);
        }
        Ok(sent)
    }

    /// The number of the next frame that is cut. A successor at the same address begins elsewhere.
    fn next_cut_frame(&mut self) -> u64 {
        if self.cut_frames == 0 {
            self.cut_frames = random_bits(&mut self.frames, &mut self.udp);
        }
        self.cut_frames = self.cut_frames.wrapping_add(1);
        self.cut_frames
    }

    /// Whether frames to a station leave by the first interface, to the address in their headers.
    fn goes_by_first(&mut self, name: Name) -> bool {
        let Some(index) = self.find(name) else { return !self.frames.is_empty() };
        let Self { peers, frames, udp, now, .. } = self;
        let peer = &mut peers[index];
        !peer.is_idle
            && peer.has_one_path()
            && peer.address(0).0 == name.mac()
            && peer.route(*now, || nonce(frames, udp)) == Route::One(0)
    }

    /// Sends frames to one station.
    #[inline]
    fn send_to_one(&mut self, name: Name, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let Some(index) = self.find(name) else {
            let path = if self.frames.is_empty() { UDP } else { 0 };
            return self.send_by(path, MacAddress(name.mac()), frames);
        };
        if self.peers[index].is_idle {
            self.resume(index);
        }
        if self.peers[index].must_check(self.now) {
            self.check_paths(index);
        }
        let Self { peers, frames: links, udp, now, .. } = self;
        match peers[index].route(*now, || nonce(links, udp)) {
            Route::One(path) => self.send_along(index, path, frames),
            Route::Spread if self.peers[index].batches_by_udp => self.send_batch(index, frames),
            Route::Spread => self.send_spread(index, frames),
            Route::All => {
                self.question_due = self.question_due.min(self.now);
                self.only_frames_until = 0;
                // A frame that any path accepts may arrive; LLC drops duplicates.
                let current = self.peers[index].current.unwrap_or(0);
                for other in self.peers[index].candidates().filter(|other| *other != current) {
                    let _ = self.send_along(index, other, frames);
                }
                self.send_along(index, current, frames)
            }
            Route::Hold => {
                let held = &mut self.held.entry(index).or_default().frames;
                let room = HELD_MAX - held.len();
                held.extend(frames.iter().take(room).map(|frame| [frame.header, frame.payload].concat()));
                self.peers[index].held();
                self.ask_due();
                Ok(frames.len())
            }
        }
    }

    /// Whether batches to a peer go by UDP. The peers are taken to be alike: each receives from as many as this station
    /// has, without those that are idle.
    #[inline]
    pub(crate) fn sends_batches_to(&self, peer: &Peer) -> bool {
        let peers = self.peers.len() - self.idle_peers;
        peer.batches_by_udp && peers <= self.udp.as_ref().map_or(0, Datagrams::batching_peers)
    }

    /// Sends frames to a peer that both carriers reach: batches of long frames by UDP, from time to time behind a first
    /// long frame by Ethernet, which makes the peer poll for datagrams.
    #[inline]
    fn send_batch(&mut self, index: usize, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        // The answer to a poll that overtakes batches, which a peer that computes has not read yet, would say that they
        // are lost.
        if let [frame] = frames
            && is_poll(frame)
        {
            self.note_poll(index);
            if self.peers[index].has_unproved_batches {
                return self.send_run(index, UDP, frames);
            }
        }
        let current = self.peers[index].current.unwrap_or(0);
        let is_long = |frame: &Outgoing<'_>| frame.len() > SHORT_MAX;
        let long = || frames.iter().filter(|frame| is_long(frame)).count();
        // UDP carries no tags.
        let has_tag = frames.first().is_some_and(|frame| frame.tag() != 0);
        if has_tag || frames.len() < BATCH_MIN || long() < BATCH_MIN || !self.sends_batches_to(&self.peers[index]) {
            return self.send_by(current, self.peers[index].address(current), frames);
        }
        let mut sent = 0;
        if !self.peers[index].is_batch_awaited(self.now) {
            let first = 1 + frames.iter().position(is_long).unwrap_or(0);
            sent = self.send_run(index, current, &frames[..first])?;
            if sent < first {
                return Ok(sent);
            }
            self.peers[index].awaits_batches_until = self.now + BATCHES_AWAITED / 2;
        }
        Ok(sent + self.send_run(index, UDP, &frames[sent..])?)
    }

    /// Sends frames to a peer that several paths reach: long ones by all in turns, others by the best.
    #[inline(never)]
    fn send_spread(&mut self, index: usize, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let path_of = |peer: &mut Peer, frame: &Outgoing<'_>| {
            if frame.len() > SHORT_MAX { peer.next_in_spread(frame.len()) } else { peer.current.unwrap_or(0) }
        };
        let (mut start, mut path) = (0, path_of(&mut self.peers[index], &frames[0]));
        for end in 1..=frames.len() {
            let next = frames.get(end).map(|frame| path_of(&mut self.peers[index], frame));
            if next == Some(path) {
                continue;
            }
            let sent = self.send_run(index, path, &frames[start..end])?;
            start += sent;
            if start < end {
                break;
            }
            path = next.unwrap_or(path);
        }
        Ok(start)
    }

    /// Sends frames by a path, or what it does not accept by others.
    fn send_run(&mut self, index: usize, path: Path, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let others = (0..PATHS).filter(|other| *other != path);
        let mut accepted = 0;
        for path in [path].into_iter().chain(others) {
            if accepted == frames.len() {
                break;
            }
            let peer = &self.peers[index];
            if !peer.spreads_over(path) && peer.current != Some(path) {
                continue;
            }
            match self.send_along(index, path, &frames[accepted..]) {
                Ok(sent) => accepted += sent,
                Err(LinkError::InterfaceDown(_) | LinkError::InterfaceGone(_)) => {
                    let nonce = nonce(&mut self.frames, &mut self.udp);
                    self.peers[index].drop_path(path, self.now, nonce);
                    self.count_udp_peer(index);
                    self.question_due = self.now;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(accepted)
    }

    /// The next Ethernet frame, with the names of its stations. The interfaces are polled in turn, as peers that spread
    /// frames over them use them in turn, so that most frames arrive in order.
    #[inline]
    fn receive_frame(&mut self) -> Option<Incoming<'_>> {
        let mut idle = 0;
        while idle < self.frames.len() {
            let path = self.turn;
            self.turn = if path + 1 < self.frames.len() { path + 1 } else { 0 };
            let Some(frame) = self.frames[path].as_mut().and_then(Lower::receive_mut) else {
                idle += 1;
                continue;
            };
            // SAFETY: the frame is valid until the next call on its link, and the result borrows `self`, so that there
            // can be none before.
            let frame = IncomingMut { bytes: unsafe { &mut *std::ptr::from_mut(frame.bytes) }, ..frame };
            if Probe::is_in(frame.bytes) {
                let from = frame.bytes[6..].first_chunk().copied().unwrap_or_default();
                self.handle_probe(path, MacAddress(from), frame.bytes);
                idle = 0;
                continue;
            }
            // Responses have bit 0 of the source's service access point.
            let from = Name::in_frame(frame.bytes, 6, 15);
            if let Some(index) = self.find(from) {
                let peer = &mut self.peers[index];
                peer.heard(path, from, self.now);
                if frame.bytes.len() > SHORT_MAX && peer.takes_hint() {
                    (self.batches_until, self.only_frames_until) = (self.now + BATCHES_AWAITED, 0);
                }
                if path != 0 || peer.name != from {
                    frame.bytes[..6].copy_from_slice(&self.own.mac());
                    frame.bytes[6..12].copy_from_slice(&peer.name.mac());
                }
            }
            return Some(frame.into());
        }
        None
    }

    /// Asks the questions that are due, and polls the UDP link.
    fn receive_other(&mut self) -> Option<Incoming<'_>> {
        if self.now >= self.idle_check_due {
            self.note_idle_peers();
        }
        self.send_due();
        let this: *mut Self = self;
        // SAFETY: what follows a call that found nothing borrows nothing of its result.
        if let Some(frame) = unsafe { &mut *this }.receive_datagram() {
            return Some(frame);
        }
        if self.udp_peers.is_empty() && !self.frames.is_empty() {
            if self.now < self.batches_until {
                self.polls_of_frames = POLLS_OF_FRAMES;
            } else {
                self.only_frames_until = self.question_due.min(self.now + UDP_POLL_INTERVAL);
            }
        }
        None
    }

    /// The next frame from the UDP link, with the names of its stations.
    #[inline]
    fn receive_datagram(&mut self) -> Option<Incoming<'_>> {
        loop {
            let IncomingMut { bytes, frame_bytes, vlan } = self.udp.as_mut()?.receive_mut()?;
            // SAFETY: as above.
            let bytes = unsafe { &mut *std::ptr::from_mut(bytes) };
            let from = MacAddress(bytes[6..].first_chunk().copied().unwrap_or_default());
            if Probe::is_in(bytes) {
                self.handle_probe(UDP, from, bytes);
                continue;
            }
            let (bytes, frame_bytes) = if has_mark(bytes, pieces::MAGIC) {
                let Some(whole) = self.pieces.take(from, bytes) else { continue };
                // SAFETY: as above: the frame is valid until the next piece is taken.
                let whole = unsafe { &mut *std::ptr::from_mut(whole) };
                let frame_bytes = whole.len();
                (whole, frame_bytes)
            } else {
                (bytes, frame_bytes)
            };
            let station = self.udp.as_ref()?.station_of(from);
            let known = self.find_udp(from).map(|index| (index, from));
            if let Some((index, from)) = known.or_else(|| self.find_udp(station).map(|index| (index, station))) {
                let peer = &mut self.peers[index];
                peer.heard_datagram(from, self.now);
                self.batches_until = self.now + BATCHES_AWAITED;
                bytes[..6].copy_from_slice(&self.own.mac());
                bytes[6..12].copy_from_slice(&peer.name.mac());
            } else {
                // A station without frames may send before it is known.
                bytes[6..12].copy_from_slice(&station.0);
            }
            return Some(Incoming { bytes, frame_bytes, vlan });
        }
    }
}

/// Whether a frame is a supervisory command with the poll bit: RR, RNR or REJ of IEEE 802.2.
fn is_poll(frame: &Outgoing<'_>) -> bool {
    let Some([_, source, control, poll]) = frame.header.get(14..18) else { return false };
    source & 1 == 0 && control & 3 == 1 && poll & 1 == 1
}

fn random_bits(frames: &mut [Option<impl Link>], udp: &mut Option<impl Link>) -> u64 {
    match (frames.iter_mut().flatten().next(), udp) {
        (Some(link), _) => link.random_bits(),
        (None, Some(link)) => link.random_bits(),
        (None, None) => 0,
    }
}

/// A question: a number that nobody can guess, and not 0.
fn nonce(frames: &mut [Option<impl Link>], udp: &mut Option<impl Link>) -> u64 {
    random_bits(frames, udp).max(1)
}
