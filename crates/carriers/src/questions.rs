// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions to peers by their paths, and the handling of the answers.

use barewire_link::{ETHERNET_HEADER_BYTES, Link, MacAddress, Outgoing};

use crate::interface::{INTERFACES_MAX, Interface};
use crate::lower::{Datagrams, Lower};
use crate::name::Name;
use crate::path_mtu::{Padded, PathMtu};
use crate::peer::{Path, Peer, Probed, UDP};
use crate::probe::Probe;
use crate::{Carriers, IDLE_CHECK_INTERVAL, nonce};

/// Addresses of UDP sockets that are remembered for each peer, on average.
const SOCKETS_PER_PEER_MAX: usize = 16;
/// Number of known peers from which on questions of unknown stations are ignored. Whoever asks one knows the job's
/// token or this endpoint's cookie.
const ASKING_PEERS_MAX: usize = 65_536;

impl<F: Lower, U: Datagrams> Carriers<F, U> {
    /// Checks all paths to a peer that are used at the same time.
    #[cold]
    pub(crate) fn check_paths(&mut self, index: usize) {
        let [check, next] = [0; 2].map(|_| nonce(&mut self.frames, &mut self.udp));
        let check = self.peers[index].next_check(self.now, check, next);
        self.count_udp_peer(index);
        self.question_due = self.question_due.min(self.peers[index].due().unwrap_or(u64::MAX));
        for path in self.peers[index].checked() {
            let address = self.peers[index].address(path);
            let key = self.key_of(index);
            self.probe(index, path, address, key, [check, 0]);
        }
    }

    /// Asks all questions that are due.
    #[cold]
    pub(crate) fn ask_due(&mut self) {
        self.question_due = u64::MAX;
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if peer.question_due().is_some_and(|due| due <= self.now) {
                let is_first = peer.is_first_question();
                for path in peer.unknown() {
                    self.ask(index, path);
                    if path == 0 {
                        self.send_held(index, is_first);
                    }
                }
                self.peers[index].asked(self.now);
            }
            if self.peers[index].mtu_due().is_some_and(|due| due <= self.now) {
                self.probe_mtu(index);
            }
            self.question_due = self.question_due.min(self.peers[index].due().unwrap_or(u64::MAX));
        }
    }

    /// Notes a poll of the engine, after which the path MTU by UDP may be checked.
    #[cold]
    pub(crate) fn note_poll(&mut self, index: usize) {
        self.peers[index].polled(self.now);
        if self.peers[index].mtu_due().is_some_and(|due| due <= self.now) {
            self.probe_mtu(index);
        }
        self.question_due = self.question_due.min(self.peers[index].due().unwrap_or(u64::MAX));
    }

    /// Sends the probes of the path MTU by UDP that are due.
    fn probe_mtu(&mut self, index: usize) {
        let nonce = nonce(&mut self.frames, &mut self.udp);
        let probes = self.peers[index].path_mtu.probes(self.now, nonce);
        // A check may have failed.
        self.peers[index].spread_anew();
        let (to, key) = (self.peers[index].address(UDP), self.key_of(index));
        for Padded { nonce, bytes, count } in probes {
            let frame = self.probe_to(index, [nonce, 0]).to_frame(key);
            let padding = vec![0; (ETHERNET_HEADER_BYTES + bytes).saturating_sub(frame.len())];
            let frames = vec![Outgoing { header: &frame, payload: &padding, label: 0 }; count];
            // Not accepted: lost, as on a wire.
            let _ = self.send_by(UDP, to, &frames);
        }
    }

    /// Sends the frames held for a peer right behind its first question by the first path, which usually reaches it, so
    /// that a connection need not wait for the answer. Later questions, to a peer that has not answered, go alone.
    fn send_held(&mut self, index: usize, is_first: bool) {
        let Some(mut held) = self.held.remove(&index) else { return };
        held.sent = 0;
        if is_first {
            let frames: Vec<_> =
                held.frames.iter().map(|frame| Outgoing { header: frame, payload: &[], label: 0 }).collect();
            // Not accepted: sent once the question is answered.
            held.sent = self.send_by(0, MacAddress(self.peers[index].name.mac()), &frames).unwrap_or(0);
        }
        self.held.insert(index, held);
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
        let (question, keys) = (self.peers[index].question(), self.keys_of(index));
        for address in addresses {
            for key in &keys {
                self.probe(index, path, address, *key, [question, 0]);
            }
        }
    }

    /// The keys of a question to a peer. A repeated one has both that the peer may know: a successor knows this station's
    /// if it has named this station, and a late probe of its predecessor hides whether it has.
    fn keys_of(&self, index: usize) -> Vec<u64> {
        let peer = &self.peers[index];
        if peer.is_first_question() {
            return vec![self.key_of(index)];
        }
        let mut keys: Vec<u64> = peer.key.into_iter().chain([self.key]).collect();
        keys.dedup();
        keys
    }

    /// The key of probes to a peer: the peer's, or this station's if the peer's last probe had that, or if the peer is known
    /// only from its questions.
    fn key_of(&self, index: usize) -> u64 {
        let peer = &self.peers[index];
        peer.key.filter(|_| !peer.uses_station_key).unwrap_or(self.key)
    }

    /// Sends a probe to a peer, to this address of the path: a question or check without an echo, which the peer
    /// answers whenever it arrives, or an answer. One that is lost is repeated.
    fn probe(&mut self, index: usize, path: Path, to: MacAddress, key: u64, [nonce, echo]: [u64; 2]) {
        let frame = self.probe_to(index, [nonce, echo]).to_frame(key);
        if path == UDP
            && let Some(udp) = &mut self.udp
        {
            // The peer takes the address from which a probe comes, so it must be right.
            udp.reroute(to);
        }
        let _ = self.send_by(path, to, &[Outgoing { header: &frame, payload: &[], label: 0 }]);
    }

    fn probe_to(&self, index: usize, [nonce, echo]: [u64; 2]) -> Probe {
        Probe { from: self.own, to: self.peers[index].name, nonce, echo, interfaces: self.interfaces }
    }

    /// Handles a frame with a probe that came by `path` from `from`, an address there.
    #[cold]
    pub(crate) fn handle_probe(&mut self, path: Path, from: MacAddress, frame: &[u8]) {
        let Self { by_name, peers, key, .. } = &*self;
        let keys = |name: Name| [Some(*key), by_name.get(&name).and_then(|index| peers[*index].key)];
        let Some((probe, key)) = Probe::of_frame(frame, keys) else { return };
        if probe.to != self.own || probe.from == self.own {
            return;
        }
        let index = match self.by_name.get(&probe.from) {
            Some(index) if self.peers[*index].name == probe.from => *index,
            _ if self.peers.len() < ASKING_PEERS_MAX => self.insert(probe.from, None),
            _ => return,
        };
        self.peers[index].uses_station_key = key == self.key;
        self.learn(index, &probe.interfaces);
        let interface = if path == UDP { 0 } else { self.peers[index].interface(from) };
        let Probed { must_answer, is_found, is_first, lacks_answers } =
            self.peers[index].probed(path, interface, probe.nonce, probe.echo, self.now);
        if is_found && self.peers[index].is_idle {
            self.resume(index);
        }
        // Another process may have taken the station's place, with another socket.
        let has_new_socket = path == UDP && self.learn_socket(from, index) && !is_found;
        if lacks_answers || has_new_socket {
            let Self { peers, frames, udp, now, .. } = self;
            peers[index].suspect(*now, || nonce(frames, udp));
        }
        if path == UDP {
            // The first address that answers a question stays in use until the next question.
            let peer = &mut self.peers[index];
            if (is_found || peer.udp.is_none()) && peer.udp != Some(from) {
                (peer.udp, peer.path_mtu) = (Some(from), peer.path_mtu.renewed());
                peer.spread_anew();
            }
        }
        if must_answer {
            // With the question's key: a successor of the peer may have another one than is known here.
            self.probe(index, path, from, key, [self.peers[index].question(), probe.nonce]);
        }
        self.count_udp_peer(index);
        self.question_due = self.question_due.min(self.peers[index].due().unwrap_or(u64::MAX));
        if is_first && let Some(held) = self.held.remove(&index) {
            let name = self.peers[index].name;
            // What the peer's first interface has answered was followed by these frames.
            let arrived = if path == 0 && interface == 0 { held.sent } else { 0 };
            for frame in &held.frames[arrived..] {
                // Not accepted: lost, as on a wire.
                let _ = self.send_to_one(name, &[Outgoing { header: frame, payload: &[], label: 0 }]);
            }
        }
    }

    /// Records an address from which a peer sends. A peer with several interfaces has several, and earlier processes
    /// with its name had others. Returns whether it was not known to be the peer's, and is now.
    fn learn_socket(&mut self, from: MacAddress, index: usize) -> bool {
        if self.by_udp.get(&from) == Some(&index) {
            return false;
        }
        if self.by_udp.len() >= SOCKETS_PER_PEER_MAX * self.peers.len() {
            let peer = &self.peers[index];
            self.by_udp.retain(|address, other| {
                *other != index || peer.udp == Some(*address) || peer.sockets.contains(address)
            });
        }
        let has_room = self.by_udp.len() < SOCKETS_PER_PEER_MAX * self.peers.len() || self.by_udp.contains_key(&from);
        if has_room {
            self.by_udp.insert(from, index);
            self.last_udp = (MacAddress::default(), usize::MAX);
        }
        has_room
    }

    /// Records a peer's interfaces, from which its frames may come.
    fn learn(&mut self, index: usize, interfaces: &[Interface; INTERFACES_MAX]) {
        let count = interfaces.iter().take_while(|interface| interface.mac != MacAddress::default()).count();
        let peer = &mut self.peers[index];
        if !peer.learn(&interfaces[..count], self.now) {
            return;
        }
        for path in 0..self.frames.len() {
            peer.add(path);
        }
        let sap = peer.name.sap();
        for interface in &interfaces[1..count.max(1)] {
            self.by_name.entry(Name::new(interface.mac.0, sap)).or_insert(index);
        }
    }

    pub(crate) fn insert(&mut self, name: Name, key: Option<u64>) -> usize {
        let index = self.peers.len();
        let peer = self.new_peer(name, key);
        self.by_name.insert(name, index);
        self.peers.push(peer);
        self.last_named = (self.own, usize::MAX);
        index
    }

    pub(crate) fn new_peer(&mut self, name: Name, key: Option<u64>) -> Peer {
        let nonce = nonce(&mut self.frames, &mut self.udp);
        let speeds = self.interfaces.map(|interface| interface.speed);
        let has_fast_udp = self.udp.as_ref().is_some_and(|udp| udp.batching_peers() > 0);
        let mut peer = Peer::new(name, key, (speeds, has_fast_udp), nonce, self.now);
        peer.has_several_sources = !self.has_one_address();
        peer.path_mtu = PathMtu::new(self.udp.as_ref().map_or(0, Link::mtu));
        #[cfg(feature = "mutants")]
        {
            peer.mutant = self.mutant;
        }
        peer
    }

    /// Notes which peers are idle.
    #[cold]
    pub(crate) fn note_idle_peers(&mut self) {
        self.idle_check_due = self.now.saturating_add(IDLE_CHECK_INTERVAL);
        self.idle_peers = 0;
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let was_idle = peer.is_idle;
            peer.note_idle(self.now);
            let is_idle = peer.is_idle;
            self.idle_peers += usize::from(is_idle);
            if is_idle != was_idle {
                self.count_udp_peer(index);
            }
        }
    }

    /// Asks an idle peer as often as any other again.
    #[cold]
    pub(crate) fn resume(&mut self, index: usize) {
        self.idle_peers -= usize::from(self.peers[index].is_idle);
        self.peers[index].resume(self.now);
        self.count_udp_peer(index);
        self.question_due = self.question_due.min(self.peers[index].due().unwrap_or(u64::MAX));
    }

    /// Counts a peer that has changed among those that are reached by UDP or may be, or no longer.
    pub(crate) fn count_udp_peer(&mut self, index: usize) {
        self.only_frames_until = 0;
        if self.peers[index].may_need_udp() {
            self.udp_peers.insert(index);
        } else {
            self.udp_peers.remove(&index);
        }
    }
}
