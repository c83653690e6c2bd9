// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One link over two: Ethernet frames and UDP datagrams.
//!
//! [`Carriers`] is a [`Link`] with one MAC address, that of its frames or, without these, of its UDP socket. For each peer
//! it sends by the better carrier that has been found to reach it: it asks by all that both ends have ([`probe`]), before
//! the first frame and again when a carrier is silent. A peer's station is told by name; its addresses below are this
//! crate's matter.
//!
//! ```text
//!              Endpoint, station:   names (MAC address, service access point)
//!                     |
//!                 Carriers          for each name: carriers that both ends have, the current one, the current question
//!                 |      |
//!       AF_PACKET, XDP   UDP        MAC addresses; MAC addresses made of port and IP address
//! ```

mod peer;
mod probe;

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use barewire_link::{Clock, Counters, Incoming, Link, LinkError, Locator, MacAddress, Outgoing, PeerAddress, UdpLink};

pub use peer::Carrier;
use peer::{Peer, Probed, Route};
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

/// The link for datagrams: its addresses are made of ports and IP addresses.
pub trait Datagrams: Link {
    /// Sends frames to one of this link's addresses, whatever their headers say; otherwise as [`Link::send`].
    ///
    /// # Errors
    /// As [`Link::send`].
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError>;

    /// As [`Link::receive`], with the frame's bytes to be changed.
    fn receive_mut(&mut self) -> Option<(&mut [u8], usize)>;

    /// The address of a socket; `None` if this link cannot reach it, because it has another version of IP.
    fn address_of(&mut self, ip: IpAddr, port: u16) -> Option<MacAddress>;

    /// What to wait on for datagrams.
    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2];
}

impl Datagrams for UdpLink {
    #[inline]
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        UdpLink::send_to(self, to, frames)
    }

    #[inline]
    fn receive_mut(&mut self) -> Option<(&mut [u8], usize)> {
        UdpLink::receive_mut(self)
    }

    fn address_of(&mut self, ip: IpAddr, port: u16) -> Option<MacAddress> {
        UdpLink::address_of(self, ip, port)
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.as_fd()), self.partner_descriptor()]
    }
}

/// A link that reaches each peer by frames or by UDP.
pub struct Carriers<F, U> {
    frames: Option<F>,
    udp: Option<U>,
    own: Name,
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
    /// Frames received since the rest was polled.
    frames_in_turn: u32,
    /// The carrier that did not accept a frame last.
    busy: Carrier,
}

impl<F: Link, U: Datagrams> Carriers<F, U> {
    /// A link over these; at least one of them.
    ///
    /// # Panics
    /// Without any.
    #[must_use]
    pub fn new(frames: Option<F>, udp: Option<U>) -> Self {
        let address = frames.as_ref().map(Link::address).or_else(|| udp.as_ref().map(Link::address));
        let own = Name::new(address.expect("there is a carrier").0, 0);
        Self {
            frames,
            udp,
            own,
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
            busy: Carrier::Frames,
        }
    }

    /// The link for frames.
    #[must_use]
    pub fn frames(&self) -> Option<&F> {
        self.frames.as_ref()
    }

    /// The link for datagrams.
    #[must_use]
    pub fn udp(&self) -> Option<&U> {
        self.udp.as_ref()
    }

    /// By what a peer is reached at present; `None` until an answer has come.
    #[must_use]
    pub fn carrier_to(&self, mac: MacAddress, sap: u8) -> Option<Carrier> {
        match (self.by_name.get(&Name::new(mac.0, sap)), &self.frames) {
            (Some(index), _) => self.peers[*index].current,
            // Nothing else is there, so it is used unasked.
            (None, Some(_)) => Some(Carrier::Frames),
            (None, None) => Some(Carrier::Udp),
        }
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

    /// Sends frames to one station, of which nothing more is known, or by one carrier.
    #[inline]
    fn send_by(&mut self, carrier: Carrier, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let sent = match (carrier, &mut self.frames, &mut self.udp) {
            (Carrier::Frames, Some(link), _) => link.send(frames),
            (Carrier::Udp, _, Some(link)) => link.send_to(to, frames),
            // Nothing is there: lost, as on a wire.
            _ => Ok(frames.len()),
        };
        if let Ok(accepted) = sent
            && accepted < frames.len()
        {
            self.busy = carrier;
        }
        sent
    }

    /// Sends frames to one station.
    #[inline]
    fn send_to_one(&mut self, name: Name, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let Some(index) = self.find(name) else {
            let carrier = if self.frames.is_some() { Carrier::Frames } else { Carrier::Udp };
            return self.send_by(carrier, MacAddress(name.mac()), frames);
        };
        let Self { peers, frames: link, udp, now, .. } = self;
        let peer = &mut peers[index];
        let route = peer.route(*now, || nonce(link, udp));
        let udp = peer.udp.unwrap_or_default();
        match route {
            Route::One(carrier) => self.send_by(carrier, udp, frames),
            Route::All => {
                self.question_due = self.question_due.min(self.now);
                self.only_frames_until = 0;
                // What was accepted by one may arrive; LLC drops what arrives twice.
                let current = self.peers[index].current.unwrap_or(Carrier::Frames);
                for other in Carrier::ALL.into_iter().filter(|other| *other != current) {
                    let _ = self.send_by(other, udp, frames);
                }
                self.send_by(current, udp, frames)
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

    /// Asks all questions that are due.
    #[cold]
    fn ask_due(&mut self) {
        self.question_due = u64::MAX;
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if peer.question_due().is_some_and(|due| due <= self.now) {
                let unknown: Vec<Carrier> = peer.unknown().collect();
                for carrier in unknown {
                    self.ask(index, carrier);
                }
                self.peers[index].asked(self.now);
            }
            let due = self.peers[index].question_due().unwrap_or(u64::MAX);
            self.question_due = self.question_due.min(due);
        }
    }

    /// Asks a peer by a carrier, at all addresses that it may have there.
    fn ask(&mut self, index: usize, carrier: Carrier) {
        if carrier == Carrier::Frames {
            return self.probe(index, carrier, MacAddress::default());
        }
        let known = self.peers[index].udp;
        if let Some(socket) = known {
            self.probe(index, carrier, socket);
        }
        for place in 0..self.peers[index].sockets.len() {
            let socket = self.peers[index].sockets[place];
            if known != Some(socket) {
                self.probe(index, carrier, socket);
            }
        }
    }

    /// Sends a probe to a peer, by UDP to this address. One that is lost is repeated.
    fn probe(&mut self, index: usize, carrier: Carrier, to: MacAddress) {
        let peer = &self.peers[index];
        let (nonce, echo) = peer.question(carrier);
        // A peer that is known only from its questions has this station's key.
        let frame = Probe { from: self.own, to: peer.name, nonce, echo }.to_frame(peer.key.unwrap_or(self.key));
        let _ = self.send_by(carrier, to, &[Outgoing { header: &frame, payload: &[] }]);
    }

    /// Handles a frame with a probe that came by `carrier` from `from`, an address of that carrier.
    #[cold]
    fn handle_probe(&mut self, carrier: Carrier, from: MacAddress, frame: &[u8]) {
        let Self { by_name, peers, key, .. } = &*self;
        let keys = |name: Name| [Some(*key), by_name.get(&name).and_then(|index| peers[*index].key)];
        let Some(probe) = Probe::of_frame(frame, keys) else { return };
        if probe.to != self.own || probe.from == self.own {
            return;
        }
        let index = match self.by_name.get(&probe.from) {
            Some(index) => *index,
            None if self.peers.len() < ASKING_PEERS_MAX => self.insert(probe.from, None),
            None => return,
        };
        let Probed { must_answer, is_found, is_first } = self.peers[index].probed(carrier, probe.nonce, probe.echo);
        if carrier == Carrier::Udp {
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
            self.probe(index, carrier, from);
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

    fn insert(&mut self, name: Name, key: Option<u64>) -> usize {
        let (index, nonce) = (self.peers.len(), nonce(&mut self.frames, &mut self.udp));
        self.by_name.insert(name, index);
        self.peers.push(Peer::new(name, key, nonce, self.now));
        self.last_named = (self.own, usize::MAX);
        index
    }

    fn count_udp_peers(&mut self) {
        self.only_frames_until = 0;
        let by_udp = |peer: &&Peer| peer.has(Carrier::Udp) && peer.current != Some(Carrier::Frames);
        self.udp_peers = self.peers.iter().filter(by_udp).count();
    }

    /// The next frame from the link for frames.
    #[inline]
    fn receive_frame(&mut self) -> Option<Incoming<'_>> {
        loop {
            let frame = self.frames.as_mut()?.receive()?;
            // SAFETY: the frame is valid until the next call on its link, and the result borrows `self`, so that there
            // can be none before.
            let frame = Incoming { bytes: unsafe { &*std::ptr::from_ref(frame.bytes) }, ..frame };
            if self.udp.is_none() {
                return Some(frame);
            }
            if Probe::is_in(frame.bytes) {
                let from = frame.bytes[6..].first_chunk().copied().unwrap_or_default();
                self.handle_probe(Carrier::Frames, MacAddress(from), frame.bytes);
                continue;
            }
            // Responses have bit 0 of the source's service access point.
            if let Some(index) = self.find(Name::in_frame(frame.bytes, 6, 15)) {
                self.peers[index].heard(Carrier::Frames);
            }
            return Some(frame);
        }
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
        if self.udp_peers == 0 && self.frames.is_some() {
            self.only_frames_until = self.question_due.min(self.now + UDP_POLL_INTERVAL);
        }
        None
    }

    /// The next frame from the UDP link, with the names of its stations.
    #[inline]
    fn receive_datagram(&mut self) -> Option<Incoming<'_>> {
        loop {
            let (bytes, frame_bytes) = self.udp.as_mut()?.receive_mut()?;
            // SAFETY: as above.
            let bytes = unsafe { &mut *std::ptr::from_mut(bytes) };
            let from = MacAddress(bytes[6..].first_chunk().copied().unwrap_or_default());
            if Probe::is_in(bytes) {
                self.handle_probe(Carrier::Udp, from, bytes);
                continue;
            }
            // A station without frames may send before it is known.
            if let Some(index) = self.find_udp(from) {
                let peer = &mut self.peers[index];
                peer.heard(Carrier::Udp);
                bytes[..6].copy_from_slice(&self.own.mac());
                bytes[6..12].copy_from_slice(&peer.name.mac());
            }
            return Some(Incoming { bytes, frame_bytes, vlan: None });
        }
    }
}

impl<F: Link, U: Datagrams> Link for Carriers<F, U> {
    fn address(&self) -> MacAddress {
        MacAddress(self.own.mac())
    }

    /// That of frames, if there are any.
    fn mtu(&self) -> usize {
        self.frames.as_ref().map_or_else(|| self.mtu_min(), |link| link.mtu().max(self.mtu_min()))
    }

    fn mtu_min(&self) -> usize {
        let all = [self.frames.as_ref().map(Link::mtu), self.udp.as_ref().map(Link::mtu)];
        all.into_iter().flatten().min().unwrap_or(0)
    }

    #[inline]
    fn mtu_to(&mut self, mac: MacAddress, sap: u8) -> usize {
        if self.udp.is_none() {
            return self.mtu();
        }
        let is_by_frames =
            self.find(Name::new(mac.0, sap)).is_some_and(|index| self.peers[index].current == Some(Carrier::Frames));
        if is_by_frames { self.mtu() } else { self.mtu_min() }
    }

    #[inline]
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        if let (Some(link), None) = (&mut self.frames, &self.udp) {
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
        if self.udp.is_none() {
            return self.frames.as_mut()?.receive();
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
        let Some(frames) = &mut self.frames else {
            return self.udp.as_mut().map_or(Ok(false), |udp| udp.wait_to_receive_or(others, timeout));
        };
        let Some(udp) = &self.udp else { return frames.wait_to_receive_or(others, timeout) };
        let all: Vec<BorrowedFd<'_>> = udp.descriptors().into_iter().flatten().chain(others.iter().copied()).collect();
        frames.wait_to_receive_or(&all, timeout).or_else(lost(false))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let waited = match (self.busy, &mut self.frames, &mut self.udp) {
            (Carrier::Frames, Some(link), _) => link.wait_to_send(timeout),
            (_, _, Some(link)) => link.wait_to_send(timeout),
            _ => Ok(true),
        };
        if self.udp.is_some() { waited.or_else(lost(true)) } else { waited }
    }

    fn check(&mut self) -> Result<(), LinkError> {
        // Callers check before they sleep, and whatever wakes them may be a datagram.
        self.only_frames_until = 0;
        let frames = self.frames.as_mut().map_or(Ok(()), Link::check);
        if self.udp.is_some() && matches!(frames, Err(LinkError::InterfaceGone(_))) {
            // It will not come back.
            self.frames = None;
        }
        match &mut self.udp {
            Some(udp) => frames.or_else(lost(())).and_then(|()| udp.check()),
            None => frames,
        }
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let frames = self.frames.as_mut().map_or(Ok(Counters::default()), Link::counters)?;
        let udp = self.udp.as_mut().map_or(Ok(Counters::default()), Link::counters)?;
        Ok(Counters {
            received: frames.received + udp.received,
            receive_dropped: frames.receive_dropped + udp.receive_dropped,
            truncated: frames.truncated + udp.truncated,
            sent: frames.sent + udp.sent,
            send_busy: frames.send_busy + udp.send_busy,
        })
    }

    fn is_local(&self, peer: MacAddress) -> bool {
        match (&self.frames, &self.udp) {
            (Some(link), _) => link.is_local(peer),
            (None, Some(link)) => link.is_local(peer),
            (None, None) => false,
        }
    }

    fn locator(&self) -> Locator {
        let mut locator = self.udp.as_ref().map_or(Locator::FRAMES, Link::locator);
        locator.has_frames = self.frames.is_some();
        locator
    }

    fn set_station(&mut self, sap: u8, key: u64) {
        self.own = Name::new(self.own.mac(), sap);
        self.key = key;
    }

    fn add_peer(&mut self, peer: &PeerAddress) {
        let Some(udp) = &mut self.udp else { return };
        let name = Name::new(peer.mac.0, peer.sap);
        let port = peer.locator.port;
        let ips = peer.locator.ips().filter(|_| port != 0);
        let sockets: Vec<MacAddress> = ips.filter_map(|ip| udp.address_of(ip, port)).collect();
        let has_frames = peer.locator.has_frames && self.frames.is_some();
        let index = match self.by_name.get(&name) {
            Some(index) => {
                let known = &self.peers[*index];
                let is_same = known.key == Some(peer.key) && (sockets.is_empty() || known.sockets == sockets);
                // A peer that has asked needs no locator.
                if is_same || !peer.locator.has_frames && port == 0 {
                    return;
                }
                *index
            }
            None => self.insert(name, None),
        };
        if self.peers[index].key.is_some() {
            // Another process has taken the station's place.
            let fresh = Peer::new(name, None, nonce(&mut self.frames, &mut self.udp), self.now);
            self.peers[index] = fresh;
            self.by_udp.retain(|_, other| *other != index);
        }
        // Stations that are named by their sockets need not tell their names.
        let is_named_by_socket = self.frames.is_none() && sockets == [peer.mac];
        let entry = &mut self.peers[index];
        entry.key = Some(peer.key);
        if has_frames {
            entry.add(Carrier::Frames, sockets.is_empty());
        }
        if !sockets.is_empty() {
            entry.add(Carrier::Udp, is_named_by_socket);
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
        self.frames.as_ref().is_some_and(Link::has_pending) || self.udp.as_ref().is_some_and(Link::has_pending)
    }

    #[inline]
    fn note_time(&mut self, nanoseconds: u64) {
        self.now = nanoseconds;
    }

    fn clock(&self) -> Clock {
        let frames = self.frames.as_ref().map(Link::clock);
        frames.or_else(|| self.udp.as_ref().map(Link::clock)).unwrap_or_default()
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

fn random_bits(frames: &mut Option<impl Link>, udp: &mut Option<impl Link>) -> u64 {
    match (frames, udp) {
        (Some(link), _) => link.random_bits(),
        (None, Some(link)) => link.random_bits(),
        (None, None) => 0,
    }
}

/// A question: a number that nobody can guess, and not 0.
fn nonce(frames: &mut Option<impl Link>, udp: &mut Option<impl Link>) -> u64 {
    random_bits(frames, udp).max(1)
}
