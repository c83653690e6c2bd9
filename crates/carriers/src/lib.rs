// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One link over several: Ethernet frames by one or more interfaces, and UDP datagrams.
//!
//! [`Carriers`] is a [`Link`] with one MAC address, that of its first interface for frames or, without these, of its UDP
//! socket. For each peer it sends by the best path that has been found to reach it: it asks by all that both ends have
//! ([`probe`]), before the first frame and again when a path is silent. Where several interfaces reach the peer, long frames
//! go by all of them in turns ([`spread`]). A peer's station is told by name; its addresses below are this crate's matter.
//!
//! ```text
//!              Endpoint, station:      names (MAC address, service access point)
//!                     |
//!                 Carriers             for each name: paths that both ends have, the best one, the current question
//!               |     |      |
//!       AF_PACKET, XDP …    UDP        MAC addresses; MAC addresses made of port and IP address
//! ```

mod interface;
mod peer;
mod probe;
mod spread;

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use barewire_link::{
    Clock, Counters, Incoming, IncomingMut, Link, LinkError, Locator, MacAddress, Outgoing, PeerAddress, UdpLink,
};

pub use interface::{INTERFACES_MAX, Interface};
pub use peer::Carrier;
use peer::{Path, Peer, Probed, Route, UDP};
use probe::Probe;

/// Frames to a peer that are kept until a carrier is found; more are lost, as on a wire.
const HELD_MAX: usize = 8;
/// While no peer is reached by UDP, its socket is polled at intervals of so many nanoseconds: a system call, which takes as
/// long as ten polls of a ring.
const UDP_POLL_INTERVAL: u64 = 100_000;
/// Frames received before the rest is polled, so that they cannot keep datagrams and questions waiting.
const FRAMES_PER_TURN: u32 = 256;
/// Addresses of UDP sockets that are remembered for each peer, on average.
const SOCKETS_PER_PEER_MAX: usize = 16;
/// Length in bytes of frames that go by the best path only: a message of one such frame arrives soonest there.
const SHORT_MAX: usize = 1024;
/// Peers that may be known only from their questions. Each knows the job's token or this endpoint's cookie.
const ASKING_PEERS_MAX: usize = 65_536;

/// A station: MAC address and service access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(u64);

impl Name {
    pub const fn new(mac: [u8; 6], sap: u8) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([0, a, b, c, d, e, f, sap]))
    }

    /// The station in a frame whose MAC address and service access point are there; bit 0 of the latter is ignored.
    #[inline]
    pub fn in_frame(frame: &[u8], mac_at: usize, sap_at: usize) -> Self {
        let mac =
            frame.get(mac_at..).and_then(|bytes| bytes.first_chunk()).copied().map_or(0, u64::from_be_bytes) >> 16;
        Self(mac << 8 | u64::from(frame.get(sap_at).copied().unwrap_or_default() & !1))
    }

    pub fn mac(self) -> [u8; 6] {
        let [_, a, b, c, d, e, f, _] = self.0.to_be_bytes();
        [a, b, c, d, e, f]
    }

    pub const fn sap(self) -> u8 {
        self.0 as u8
    }

    pub fn to_bytes(self) -> [u8; 7] {
        let [_, bytes @ ..] = self.0.to_be_bytes();
        bytes
    }

    pub const fn from_bytes(bytes: [u8; 7]) -> Self {
        let [a, b, c, d, e, f, sap] = bytes;
        Self::new([a, b, c, d, e, f], sap)
    }
}

/// A link below this one, which sends and receives frames of stations with other addresses than its own.
pub trait Lower: Link {
    /// Sends frames to this address from the link's own, whatever their headers say; otherwise as [`Link::send`].
    ///
    /// # Errors
    /// As [`Link::send`].
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError>;

    /// As [`Link::receive`].
    fn receive_mut(&mut self) -> Option<IncomingMut<'_>>;

    /// What to wait on for frames.
    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2];
}

/// The link for datagrams: its addresses are made of ports and IP addresses.
pub trait Datagrams: Lower {
    /// The address of a socket; `None` if this link cannot reach it, because it has another version of IP.
    fn address_of(&mut self, ip: IpAddr, port: u16) -> Option<MacAddress>;
}

impl Lower for UdpLink {
    #[inline]
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        UdpLink::send_to(self, to, frames)
    }

    #[inline]
    fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        UdpLink::receive_mut(self)
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.as_fd()), self.partner_descriptor()]
    }
}

impl Datagrams for UdpLink {
    fn address_of(&mut self, ip: IpAddr, port: u16) -> Option<MacAddress> {
        UdpLink::address_of(self, ip, port)
    }
}

/// A link that reaches each peer by frames or by UDP.
pub struct Carriers<F, U> {
    /// By path; `None`: the interface is gone.
    frames: Vec<Option<F>>,
    udp: Option<U>,
    /// Whether there is only one path, so that there is nothing to find out.
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
    held: HashMap<usize, Vec<Vec<u8>>>,
    /// The last peer looked up, by name and by its UDP socket: mostly the next one.
    last_named: (Name, usize),
    last_udp: (MacAddress, usize),
    /// Number of peers that are reached by UDP or may be.
    udp_peers: usize,
    now: u64,
    /// When the next question is due.
    question_due: u64,
    /// Until then only frames are polled.
    only_frames_until: u64,
    /// Frames received since the rest was polled, and the interface to poll next.
    frames_in_turn: u32,
    turn: Path,
    /// The path that did not accept a frame last.
    busy: Path,
}

impl<F: Lower, U: Datagrams> Carriers<F, U> {
    /// A link over these; at least one of them. The first for frames is the best, to which the station's address belongs;
    /// all have its MTU or a larger one, and come with their speeds in Mbit/s, 0 if unknown.
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
            last_named: (own, usize::MAX),
            last_udp: (MacAddress::default(), usize::MAX),
            udp_peers: 0,
            now: 0,
            question_due: u64::MAX,
            only_frames_until: 0,
            frames_in_turn: 0,
            turn: 0,
            busy: 0,
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

    /// The link of the station's address, for frames.
    fn first(&self) -> Option<&F> {
        self.frames.first()?.as_ref()
    }

    /// What to wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_frames = self.frames().flat_map(|link| link.descriptors());
        let of_udp = self.udp.iter().flat_map(|link| link.descriptors());
        of_frames.chain(of_udp).flatten()
    }

    /// By what a peer is reached at present, and by how many paths; `None` until an answer has come.
    #[must_use]
    pub fn carrier_to(&self, mac: MacAddress, sap: u8) -> Option<(Carrier, usize)> {
        let Some(index) = self.by_name.get(&Name::new(mac.0, sap)) else {
            // Nothing else is there, so it is used unasked.
            return Some((if self.frames.is_empty() { Carrier::Udp } else { Carrier::Frames }, 1));
        };
        let peer = &self.peers[*index];
        let spread = (0..INTERFACES_MAX).filter(|path| peer.spreads_over(*path)).count();
        peer.current.map(|path| (if path == UDP { Carrier::Udp } else { Carrier::Frames }, spread.max(1)))
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
        // Nothing is there: lost, as on a wire.
        let sent = sent.unwrap_or(Ok(frames.len()));
        if let Ok(accepted) = sent
            && accepted < frames.len()
        {
            self.busy = path;
        }
        sent
    }

    /// Sends frames to one station.
    #[inline]
    fn send_to_one(&mut self, name: Name, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let Some(index) = self.find(name) else {
            let path = if self.frames.is_empty() { UDP } else { 0 };
            return self.send_by(path, MacAddress(name.mac()), frames);
        };
        let Self { peers, frames: links, udp, now, .. } = self;
        let peer = &mut peers[index];
        let route = peer.route(*now, || nonce(links, udp));
        if peer.must_check(*now) {
            self.check_paths(index);
        }
        match route {
            Route::One(path) => self.send_by(path, self.peers[index].address(path), frames),
            Route::Spread => self.send_spread(index, frames),
            Route::All => {
                self.question_due = self.question_due.min(self.now);
                self.only_frames_until = 0;
                // What was accepted by one may arrive; LLC drops what arrives twice.
                let current = self.peers[index].current.unwrap_or(0);
                for other in self.peers[index].candidates().filter(|other| *other != current) {
                    let _ = self.send_by(other, self.peers[index].address(other), frames);
                }
                self.send_by(current, self.peers[index].address(current), frames)
            }
            Route::Hold => {
                let held = self.held.entry(index).or_default();
                for frame in frames.iter().take(HELD_MAX - held.len().min(HELD_MAX)) {
                    held.push([frame.header, frame.payload].concat());
                }
                self.ask_due();
                Ok(frames.len())
            }
        }
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
        let others = (0..INTERFACES_MAX).filter(|other| *other != path);
        let mut accepted = 0;
        for path in [path].into_iter().chain(others) {
            if accepted == frames.len() {
                break;
            }
            if !self.peers[index].spreads_over(path) && self.peers[index].current != Some(path) {
                continue;
            }
            match self.send_by(path, self.peers[index].address(path), &frames[accepted..]) {
                Ok(sent) => accepted += sent,
                Err(LinkError::InterfaceDown(_) | LinkError::InterfaceGone(_)) => {
                    let nonce = nonce(&mut self.frames, &mut self.udp);
                    self.peers[index].drop_path(path, self.now, nonce);
                    self.question_due = self.now;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(accepted)
    }

    /// Checks all paths by frames to a peer.
    #[cold]
    fn check_paths(&mut self, index: usize) {
        let [check, next] = [0; 2].map(|_| nonce(&mut self.frames, &mut self.udp));
        let check = self.peers[index].next_check(self.now, check, next);
        self.question_due = self.question_due.min(self.peers[index].question_due().unwrap_or(u64::MAX));
        for path in self.peers[index].working_frames() {
            let address = self.peers[index].address(path);
            self.probe(index, path, address, Some(check));
        }
    }

    /// Asks all questions that are due.
    #[cold]
    fn ask_due(&mut self) {
        self.question_due = u64::MAX;
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if peer.question_due().is_some_and(|due| due <= self.now) {
                for path in peer.unknown() {
                    self.ask(index, path);
                }
                self.peers[index].asked(self.now);
            }
            let due = self.peers[index].question_due().unwrap_or(u64::MAX);
            self.question_due = self.question_due.min(due);
        }
    }

    /// Asks a peer by a path, at all addresses that it may have there.
    fn ask(&mut self, index: usize, path: Path) {
        let peer = &self.peers[index];
        let addresses: Vec<MacAddress> = if path == UDP {
            let others = peer.sockets.iter().filter(|socket| peer.udp != Some(**socket));
            peer.udp.iter().chain(others).copied().collect()
        } else {
            peer.interfaces.iter().map(|interface| interface.mac).collect()
        };
        for address in addresses {
            self.probe(index, path, address, None);
        }
    }

    /// Sends a probe to a peer, to this address of the path, with its current question or a check. One that is lost is
    /// repeated.
    fn probe(&mut self, index: usize, path: Path, to: MacAddress, check: Option<u64>) {
        let peer = &self.peers[index];
        let interface = if path == UDP { 0 } else { peer.interface(to) };
        let (question, echo) = peer.question(path, interface);
        let nonce = check.unwrap_or(question);
        let probe = Probe { from: self.own, to: peer.name, nonce, echo, interfaces: self.interfaces };
        // A peer that is known only from its questions has this station's key.
        let frame = probe.to_frame(peer.key.unwrap_or(self.key));
        let _ = self.send_by(path, to, &[Outgoing { header: &frame, payload: &[] }]);
    }

    /// Handles a frame with a probe that came by `path` from `from`, an address there.
    #[cold]
    fn handle_probe(&mut self, path: Path, from: MacAddress, frame: &[u8]) {
        let Self { by_name, peers, key, .. } = &*self;
        let keys = |name: Name| [Some(*key), by_name.get(&name).and_then(|index| peers[*index].key)];
        let Some(probe) = Probe::of_frame(frame, keys) else { return };
        if probe.to != self.own || probe.from == self.own {
            return;
        }
        let index = match self.by_name.get(&probe.from) {
            Some(index) if self.peers[*index].name == probe.from => *index,
            _ if self.peers.len() < ASKING_PEERS_MAX => self.insert(probe.from, None),
            _ => return,
        };
        self.learn(index, &probe.interfaces);
        let interface = if path == UDP { 0 } else { self.peers[index].interface(from) };
        let Probed { must_answer, is_found, is_first } =
            self.peers[index].probed(path, interface, probe.nonce, probe.echo);
        if path == UDP {
            // A peer with several interfaces sends from several addresses.
            if self.by_udp.len() < SOCKETS_PER_PEER_MAX * self.peers.len() {
                self.by_udp.insert(from, index);
            }
            // The first that answers a question stays until the next question.
            if is_found || self.peers[index].udp.is_none() {
                self.peers[index].udp = Some(from);
            }
        }
        if must_answer {
            self.probe(index, path, from, None);
        }
        self.count_udp_peers();
        self.question_due = self.question_due.min(self.peers[index].question_due().unwrap_or(u64::MAX));
        if is_first && let Some(held) = self.held.remove(&index) {
            let name = self.peers[index].name;
            for frame in held {
                // Not accepted: lost, as on a wire.
                let _ = self.send_to_one(name, &[Outgoing { header: &frame, payload: &[] }]);
            }
        }
    }

    /// Notes a peer's interfaces, from which its frames may come.
    fn learn(&mut self, index: usize, interfaces: &[Interface; INTERFACES_MAX]) {
        let count = interfaces.iter().take_while(|interface| interface.mac != MacAddress::default()).count();
        let peer = &mut self.peers[index];
        if !peer.learn(&interfaces[..count], self.now) {
            return;
        }
        for path in 0..self.frames.len() {
            peer.add(path, false);
        }
        let sap = peer.name.sap();
        for interface in &interfaces[1..count.max(1)] {
            self.by_name.entry(Name::new(interface.mac.0, sap)).or_insert(index);
        }
    }

    fn insert(&mut self, name: Name, key: Option<u64>) -> usize {
        let index = self.peers.len();
        let peer = self.new_peer(name, key);
        self.by_name.insert(name, index);
        self.peers.push(peer);
        self.last_named = (self.own, usize::MAX);
        index
    }

    fn new_peer(&mut self, name: Name, key: Option<u64>) -> Peer {
        let nonce = nonce(&mut self.frames, &mut self.udp);
        Peer::new(name, key, self.interfaces.map(|interface| interface.speed), nonce, self.now)
    }

    fn count_udp_peers(&mut self) {
        self.only_frames_until = 0;
        let by_udp = |peer: &&Peer| peer.has(UDP) && peer.current.is_none_or(|path| path == UDP);
        self.udp_peers = self.peers.iter().filter(by_udp).count();
    }

    /// The next frame by frames, with the names of its stations. The interfaces take turns, as they do for the peers that
    /// spread frames over them, so that most come in order.
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
                continue;
            }
            // Responses have bit 0 of the source's service access point.
            let from = Name::in_frame(frame.bytes, 6, 15);
            if let Some(index) = self.find(from) {
                let peer = &mut self.peers[index];
                peer.heard(path);
                if path != 0 || peer.name != from {
                    frame.bytes[..6].copy_from_slice(&self.own.mac());
                    frame.bytes[6..12].copy_from_slice(&peer.name.mac());
                }
            }
            return Some(frame.into());
        }
        None
    }

    /// Asks what is due, and polls the UDP link.
    fn receive_other(&mut self) -> Option<Incoming<'_>> {
        if self.now >= self.question_due {
            self.ask_due();
        }
        let this: *mut Self = self;
        // SAFETY: what follows a call that found nothing borrows nothing of its result.
        if let Some(frame) = unsafe { &mut *this }.receive_datagram() {
            return Some(frame);
        }
        if self.udp_peers == 0 && !self.frames.is_empty() {
            self.only_frames_until = self.question_due.min(self.now + UDP_POLL_INTERVAL);
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
            // A station without frames may send before it is known.
            if let Some(index) = self.find_udp(from) {
                let peer = &mut self.peers[index];
                peer.heard(UDP);
                bytes[..6].copy_from_slice(&self.own.mac());
                bytes[6..12].copy_from_slice(&peer.name.mac());
            }
            return Some(Incoming { bytes, frame_bytes, vlan });
        }
    }
}

impl<F: Lower, U: Datagrams> Link for Carriers<F, U> {
    fn address(&self) -> MacAddress {
        MacAddress(self.own.mac())
    }

    /// That of frames, if there are any.
    fn mtu(&self) -> usize {
        self.first().map_or_else(|| self.mtu_min(), |link| link.mtu().max(self.mtu_min()))
    }

    fn mtu_min(&self) -> usize {
        let all = [self.first().map(Link::mtu), self.udp.as_ref().map(Link::mtu)];
        all.into_iter().flatten().min().unwrap_or(0)
    }

    #[inline]
    fn mtu_to(&mut self, mac: MacAddress, sap: u8) -> usize {
        if self.udp.is_none() {
            return self.mtu();
        }
        let index = self.find(Name::new(mac.0, sap));
        let is_by_frames = index.and_then(|index| self.peers[index].current).is_some_and(|path| path != UDP);
        if is_by_frames { self.mtu() } else { self.mtu_min() }
    }

    #[inline]
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        if self.is_single
            && let Some(Some(link)) = self.frames.first_mut()
        {
            return link.send(frames);
        }
        if let [frame] = frames {
            return self.send_to_one(destination(frame), frames).or_else(lost(1));
        }
        let mut accepted = 0;
        while let Some(first) = frames.get(accepted) {
            let name = destination(first);
            let count = frames[accepted..].iter().take_while(|frame| destination(frame) == name).count();
            let sent = self.send_to_one(name, &frames[accepted..accepted + count]).or_else(lost(count))?;
            accepted += sent;
            if sent < count {
                break;
            }
        }
        Ok(accepted)
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        if self.is_single {
            return self.frames.first_mut()?.as_mut()?.receive();
        }
        let this: *mut Self = self;
        if self.frames_in_turn < FRAMES_PER_TURN {
            // SAFETY: what follows a call that found nothing borrows nothing of its result.
            if let Some(frame) = unsafe { &mut *this }.receive_frame() {
                self.frames_in_turn += 1;
                return Some(frame);
            }
        }
        self.frames_in_turn = 0;
        if self.now < self.only_frames_until { None } else { self.receive_other() }
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        if self.has_pending() {
            return Ok(true);
        }
        let due = Duration::from_nanos(self.question_due.saturating_sub(self.now));
        let timeout = timeout.min(due);
        let Self { frames, udp, is_single, .. } = self;
        let mut links = frames.iter_mut().flatten();
        let Some(first) = links.next() else {
            return udp.as_mut().map_or(Ok(false), |udp| udp.wait_to_receive_or(others, timeout));
        };
        if *is_single {
            return first.wait_to_receive_or(others, timeout);
        }
        let of_frames = links.flat_map(|link| link.descriptors());
        let of_udp = udp.iter().flat_map(|link| link.descriptors());
        let all: Vec<BorrowedFd<'_>> = of_frames.chain(of_udp).flatten().chain(others.iter().copied()).collect();
        first.wait_to_receive_or(&all, timeout).or_else(lost(false))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let waited = match (self.frames.get_mut(self.busy), &mut self.udp) {
            (Some(Some(link)), _) => link.wait_to_send(timeout),
            (None, Some(link)) => link.wait_to_send(timeout),
            _ => Ok(true),
        };
        if self.is_single { waited } else { waited.or_else(lost(true)) }
    }

    fn check(&mut self) -> Result<(), LinkError> {
        // Callers check before they sleep, and whatever wakes them may be a datagram.
        self.only_frames_until = 0;
        if self.is_single {
            return self.frames.iter_mut().flatten().try_for_each(Link::check);
        }
        let mut found = Ok(());
        for link in &mut self.frames {
            match link.as_mut().map(Link::check) {
                Some(Err(error @ LinkError::InterfaceGone(_))) => {
                    // It will not come back.
                    *link = None;
                    found = found.and(Err(error));
                }
                Some(Err(error)) => found = found.and(Err(error)),
                Some(Ok(())) | None => {}
            }
        }
        let is_left = self.udp.is_some() || self.frames().next().is_some();
        let found = if is_left { found.or_else(lost(())) } else { found };
        found.and_then(|()| self.udp.as_mut().map_or(Ok(()), Link::check))
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let of_frames = self.frames.iter_mut().flatten().map(Link::counters);
        of_frames.chain(self.udp.as_mut().map(Link::counters)).try_fold(Counters::default(), |sum, link| {
            let link = link?;
            Ok(Counters {
                received: sum.received + link.received,
                receive_dropped: sum.receive_dropped + link.receive_dropped,
                truncated: sum.truncated + link.truncated,
                sent: sum.sent + link.sent,
                send_busy: sum.send_busy + link.send_busy,
            })
        })
    }

    fn is_local(&self, peer: MacAddress) -> bool {
        match (self.frames.is_empty(), &self.udp) {
            (true, Some(link)) => link.is_local(peer),
            _ => peer == self.address(),
        }
    }

    fn locator(&self) -> Locator {
        let mut locator = self.udp.as_ref().map_or(Locator::FRAMES, Link::locator);
        locator.has_frames = !self.frames.is_empty();
        locator
    }

    fn set_station(&mut self, sap: u8, key: u64) {
        self.own = Name::new(self.own.mac(), sap);
        self.key = key;
    }

    fn add_peer(&mut self, peer: &PeerAddress) {
        if self.is_single {
            return;
        }
        let name = Name::new(peer.mac.0, peer.sap);
        let port = peer.locator.port;
        let ips = peer.locator.ips().filter(|_| port != 0);
        let sockets: Vec<MacAddress> = match &mut self.udp {
            Some(udp) => ips.filter_map(|ip| udp.address_of(ip, port)).collect(),
            None => Vec::new(),
        };
        let has_frames = peer.locator.has_frames && !self.frames.is_empty();
        let index = match self.by_name.get(&name) {
            Some(index) if self.peers[*index].name == name => {
                let known = &self.peers[*index];
                let is_same = known.key == Some(peer.key) && (sockets.is_empty() || known.sockets == sockets);
                // A peer that has asked needs no locator.
                if is_same || !peer.locator.has_frames && port == 0 {
                    return;
                }
                *index
            }
            _ => self.insert(name, None),
        };
        if self.peers[index].key.is_some() {
            // Another process has taken the station's place.
            self.peers[index] = self.new_peer(name, None);
            self.by_udp.retain(|_, other| *other != index);
        }
        // Stations that are named by their sockets need not tell their names.
        let is_named_by_socket = self.frames.is_empty() && sockets == [peer.mac];
        let entry = &mut self.peers[index];
        entry.key = Some(peer.key);
        if has_frames {
            // A peer without UDP need not answer by the first.
            (0..self.frames.len()).for_each(|path| entry.add(path, path == 0 && sockets.is_empty()));
        }
        if !sockets.is_empty() {
            entry.add(UDP, is_named_by_socket);
        }
        if is_named_by_socket {
            entry.udp = Some(peer.mac);
            self.by_udp.insert(peer.mac, index);
        }
        entry.sockets = sockets;
        self.last_udp = (MacAddress::default(), usize::MAX);
        self.count_udp_peers();
        self.question_due = self.question_due.min(self.peers[index].question_due().unwrap_or(u64::MAX));
    }

    fn has_pending(&self) -> bool {
        self.frames().any(Link::has_pending) || self.udp.as_ref().is_some_and(Link::has_pending)
    }

    #[inline]
    fn note_time(&mut self, nanoseconds: u64) {
        self.now = nanoseconds;
    }

    fn clock(&self) -> Clock {
        let clock = self.frames().next().map(Link::clock);
        clock.or_else(|| self.udp.as_ref().map(Link::clock)).unwrap_or_default()
    }

    fn random_bits(&mut self) -> u64 {
        random_bits(&mut self.frames, &mut self.udp)
    }
}

/// Takes the refusal of an interface that is down or gone for `instead`: frames are lost then, as on a wire that is
/// unplugged, and if UDP works, it will be found.
fn lost<T>(instead: T) -> impl FnOnce(LinkError) -> Result<T, LinkError> {
    move |error| {
        if matches!(error, LinkError::InterfaceDown(_) | LinkError::InterfaceGone(_)) {
            Ok(instead)
        } else {
            Err(error)
        }
    }
}

/// The station to which a frame goes.
#[inline]
fn destination(frame: &Outgoing<'_>) -> Name {
    Name::in_frame(frame.header, 0, 14)
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
