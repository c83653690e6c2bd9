// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stations with carriers that are blocked, one way or both ways, in simulated time.

use std::cell::Cell;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_carriers::{Carrier, Carriers, Datagrams, Lower};
use barewire_link::{
    Counters, Faults, Incoming, IncomingMut, Link, LinkError, Locator, MacAddress, MemoryLink, Outgoing, PORT_LABEL,
    PeerAddress,
};

const SAP: u8 = 8;
const KEY: u64 = 77;
/// Networks: one of frames, more of frames, and UDP's.
const FRAMES: u8 = 0;
const UDP: u8 = 4;
/// The byte of an address by UDP that tells a station's ports apart.
const PORT: usize = 3;
const MS: u64 = 1_000_000;
/// A path that carries everything.
const ANY: (usize, bool) = (1 << 16, true);

/// A link whose frames pass only while its gate is open. As a link for datagrams its addresses are the links' own, and
/// frames with the label of a port come from an address of that port.
struct Gated {
    link: MemoryLink,
    /// Whether what this end sends arrives.
    passes: Rc<Cell<bool>>,
    copy: Vec<u8>,
    sent: Rc<Cell<u32>>,
    network: u8,
    batching_peers: Rc<Cell<usize>>,
    /// Number of addresses of this end.
    addresses: Rc<Cell<u8>>,
    looked_up: Rc<Cell<u32>>,
    polled: Rc<Cell<u32>>,
    /// Sends from an address that is gone, so that nothing arrives until it is rerouted.
    is_stranded: Rc<Cell<bool>>,
    /// Tells this socket from those of earlier processes.
    socket: Rc<Cell<u8>>,
    /// What its path carries: largest payload of a frame, and whether batches.
    path: Rc<Cell<(usize, bool)>>,
}

impl Link for Gated {
    fn address(&self) -> MacAddress {
        let [.., last] = self.link.address().0;
        MacAddress([2, 0, self.socket.get(), 0, self.network, last])
    }

    fn mtu(&self) -> usize {
        self.link.mtu()
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.sent.set(self.sent.get() + frames.len() as u32);
        if self.passes.get() && !self.is_stranded.get() { self.link.send(frames) } else { Ok(frames.len()) }
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.link.receive()
    }

    fn wait_to_receive_or(&mut self, _: &[BorrowedFd<'_>], _: Duration) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn wait_to_send(&mut self, _: Duration) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.link.counters()
    }

    fn locator(&self) -> Locator {
        let ips = (1..=self.addresses.get()).map(|last| IpAddr::from([127, 0, 0, last]));
        Locator::of_port(u16::from(self.address().0[5]), ips)
    }
}

impl Lower for Gated {
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        for frame in frames {
            let mut bytes = [frame.header, frame.payload].concat();
            bytes[..6].copy_from_slice(&to.0);
            bytes[6..12].copy_from_slice(&self.address().0);
            bytes[6 + PORT] = if frame.label > PORT_LABEL { frame.label as u8 } else { 0 };
            let (longest, carries_batches) = self.path.get();
            if bytes.len() > 14 + longest || frames.len() > 1 && !carries_batches {
                self.sent.set(self.sent.get() + 1);
                continue;
            }
            self.send(&[Outgoing { header: &bytes, payload: &[], label: 0 }])?;
        }
        Ok(frames.len())
    }

    fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        self.polled.set(self.polled.get() + 1);
        let to = self.address();
        let frame = loop {
            let frame = self.link.receive()?;
            if frame.bytes.starts_with(&to.0) {
                break frame;
            }
        };
        self.copy.clear();
        self.copy.extend_from_slice(frame.bytes);
        Some(IncomingMut { frame_bytes: self.copy.len(), bytes: &mut self.copy, vlan: None })
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None; 2]
    }
}

impl Datagrams for Gated {
    fn address_of(&mut self, _: IpAddr, port: u16) -> Option<MacAddress> {
        self.looked_up.set(self.looked_up.get() + 1);
        Some(MacAddress([2, 0, 0, 0, UDP, port as u8]))
    }

    fn batching_peers(&self) -> usize {
        self.batching_peers.get()
    }

    fn station_of(&self, mut from: MacAddress) -> MacAddress {
        from.0[PORT] = 0;
        from
    }

    fn reroute(&mut self, to: MacAddress) {
        assert!(to.0[4] == UDP && to != self.address());
        self.is_stranded.set(false);
    }
}

/// Two stations; gates by network and by sender.
struct World {
    ends: [Carriers<Gated, Gated>; 2],
    gates: [[Rc<Cell<bool>>; 2]; 5],
    sent: [[Rc<Cell<u32>>; 2]; 5],
    /// From how many peers UDP receives batches, if it is fast for these.
    batching_peers: Rc<Cell<usize>>,
    /// Of UDP's links, by end.
    addresses: [Rc<Cell<u8>>; 2],
    /// How often a socket's address was looked up.
    looked_up: Rc<Cell<u32>>,
    /// How often UDP's links were polled, by end.
    polled: [Rc<Cell<u32>>; 2],
    are_stranded: [Rc<Cell<bool>>; 2],
    /// Of UDP's links, by end.
    sockets: [Rc<Cell<u8>>; 2],
    udp_paths: [Rc<Cell<(usize, bool)>>; 2],
    now: u64,
    number: u32,
    /// Of the frames that are sent.
    label: u16,
}

impl World {
    /// `frames`: which ends have frames. Each has UDP.
    fn new(frames: [bool; 2], loss: f64, seed: u64) -> Self {
        Self::on(frames.map(|has| if has { vec![FRAMES] } else { vec![] }), true, loss, seed)
    }

    /// `networks`: those of frames to which the ends have interfaces, in their order, of 1 Gb/s.
    fn on(networks: [Vec<u8>; 2], has_udp: bool, loss: f64, seed: u64) -> Self {
        Self::with(networks, has_udp, 1000, loss, seed)
    }

    /// `speed`: of all interfaces, in Mbit/s.
    fn with(networks: [Vec<u8>; 2], has_udp: bool, speed: u32, loss: f64, seed: u64) -> Self {
        let faults = Faults { loss, ..Faults::default() };
        let gates: [[Rc<Cell<bool>>; 2]; 5] =
            std::array::from_fn(|_| std::array::from_fn(|_| Rc::new(Cell::new(true))));
        let sent: [[Rc<Cell<u32>>; 2]; 5] = Default::default();
        let batching_peers = Rc::new(Cell::new(0));
        let addresses = [(); 2].map(|()| Rc::new(Cell::new(1)));
        let looked_up: Rc<Cell<u32>> = Rc::default();
        let polled: [Rc<Cell<u32>>; 2] = Default::default();
        let are_stranded: [Rc<Cell<bool>>; 2] = Default::default();
        let sockets: [Rc<Cell<u8>>; 2] = Default::default();
        let udp_paths = [(); 2].map(|()| Rc::new(Cell::new(ANY)));
        let mut links: Vec<[Option<Gated>; 2]> = (0..=UDP)
            .map(|network| {
                let number = usize::from(network);
                let mtu = if network == UDP { 1470 } else { 1500 };
                let (a, b) = MemoryLink::pair(mtu, faults, seed + 7 * u64::from(network));
                let gated = |link, end: usize| Gated {
                    link,
                    passes: gates[number][end].clone(),
                    copy: Vec::new(),
                    sent: sent[number][end].clone(),
                    network,
                    batching_peers: batching_peers.clone(),
                    addresses: addresses[end].clone(),
                    looked_up: looked_up.clone(),
                    polled: if network == UDP { polled[end].clone() } else { Rc::default() },
                    is_stranded: if network == UDP { are_stranded[end].clone() } else { Rc::default() },
                    socket: if network == UDP { sockets[end].clone() } else { Rc::default() },
                    path: if network == UDP { udp_paths[end].clone() } else { Rc::new(Cell::new(ANY)) },
                };
                [Some(gated(a, 0)), Some(gated(b, 1))]
            })
            .collect();
        let mut ends = [0, 1].map(|end| {
            let frames = networks[end].iter().map(|network| (links[usize::from(*network)][end].take().unwrap(), speed));
            let frames = frames.collect();
            Carriers::new(frames, links[usize::from(UDP)][end].take().filter(|_| has_udp))
        });
        for end in &mut ends {
            end.set_station(SAP, KEY);
        }
        Self {
            ends,
            gates,
            sent,
            batching_peers,
            addresses,
            looked_up,
            polled,
            are_stranded,
            sockets,
            udp_paths,
            now: 1,
            number: 0,
            label: 0,
        }
    }

    fn block(&self, network: u8, end: usize, blocked: bool) {
        self.gates[usize::from(network)][end].set(!blocked);
    }

    fn sent(&self, network: u8, end: usize) -> u32 {
        self.sent[usize::from(network)][end].get()
    }

    fn connect(&mut self, from: usize) {
        self.connect_with(from, KEY);
    }

    fn connect_with(&mut self, from: usize, key: u64) {
        let to = &self.ends[1 - from];
        let peer = PeerAddress { mac: to.address(), sap: SAP, locator: to.locator(), key };
        self.ends[from].add_peer(&peer);
    }

    fn send(&mut self, from: usize) -> Vec<u8> {
        self.send_frames(from, 1, 4).pop().unwrap()
    }

    /// Sends frames with this much payload in one batch.
    fn send_frames(&mut self, from: usize, count: usize, bytes: usize) -> Vec<Vec<u8>> {
        self.send_batch(from, &vec![bytes; count])
    }

    /// The same with payloads of these sizes.
    fn send_batch(&mut self, from: usize, sizes: &[usize]) -> Vec<Vec<u8>> {
        let [own, peer] = [from, 1 - from].map(|end| self.ends[end].address().0);
        let header = [&peer[..], &own, &[0x88, 0x70, SAP, SAP, 0]].concat();
        let payloads: Vec<Vec<u8>> = sizes
            .iter()
            .map(|bytes| {
                self.number += 1;
                [&self.number.to_be_bytes()[..], &vec![7; bytes - 4]].concat()
            })
            .collect();
        self.ends[from].note_time(self.now);
        let label = self.label;
        let frames: Vec<_> = payloads.iter().map(|payload| Outgoing { header: &header, payload, label }).collect();
        assert_eq!(self.ends[from].send(&frames).unwrap(), frames.len());
        payloads.iter().map(|payload| [&header[..], payload].concat()).collect()
    }

    /// All frames that an end has received, with the addresses of stations, whatever carried them.
    fn receive(&mut self, end: usize) -> Vec<Vec<u8>> {
        self.ends[end].note_time(self.now);
        let mut received = Vec::new();
        // The UDP link is not polled each time.
        self.ends[end].check().unwrap();
        for _ in 0..200 {
            received.extend(self.ends[end].receive().map(|frame| frame.bytes.to_vec()));
        }
        received
    }

    /// An end polls every 10 ms for a time.
    fn wait(&mut self, end: usize, time: u64) {
        let until = self.now + time;
        while self.now < until {
            self.now += 10 * MS;
            self.ends[end].note_time(self.now);
            let _ = self.ends[end].receive();
        }
    }

    /// How often an end polls its UDP link in a hundred polls that follow each other at once.
    fn polls_of_udp(&mut self, end: usize) -> u32 {
        self.ends[end].note_time(self.now);
        let before = self.polled[end].get();
        for _ in 0..100 {
            let _ = self.ends[end].receive();
        }
        self.polled[end].get() - before
    }

    /// A frame and an answer, repeated after `wait` until both have arrived; returns the time that took.
    fn exchange(&mut self, from: usize, wait: u64) -> u64 {
        let started = self.now;
        let mut sent = Vec::new();
        for _ in 0..200 {
            sent.push(self.send(from));
            let (mut asked, mut answered) = (0, 0);
            for _ in 0..5 {
                let arrived = self.receive(1 - from);
                assert!(arrived.iter().all(|frame| sent.contains(frame) || frame[16] == 0));
                if !arrived.is_empty() {
                    asked += arrived.len();
                    self.send(1 - from);
                }
                answered += self.receive(from).len();
                self.now += 20_000;
            }
            if asked > 0 && answered > 0 {
                return self.now - started;
            }
            self.now += wait;
        }
        panic!("nothing gets through: {:?}, sent {:?}", self.carriers(), self.sent);
    }

    fn carriers(&self) -> [Option<Carrier>; 2] {
        self.paths().map(|paths| paths.map(|(carrier, _)| carrier))
    }

    fn paths(&self) -> [Option<(Carrier, usize)>; 2] {
        [0, 1].map(|end| self.ends[end].carrier_to(self.ends[1 - end].address(), SAP))
    }

    /// A batch of long frames and an answer; returns how many arrived, and the time until the answer did.
    fn stream(&mut self, from: usize, count: usize) -> usize {
        let sent = self.send_frames(from, count, 1400);
        self.now += 20_000;
        let arrived = self.receive(1 - from);
        assert!(arrived.iter().all(|frame| sent.contains(frame)));
        self.send(1 - from);
        self.receive(from);
        self.now += 200_000;
        arrived.len()
    }
}

#[test]
fn the_first_frame_goes_by_frames_if_they_get_through() {
    let mut world = World::new([true, true], 0.0, 1);
    world.connect(0);
    assert!(world.exchange(0, 20 * MS) < MS);
    assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
    let before = world.sent(UDP, 0);
    for _ in 0..100 {
        world.exchange(0, 20 * MS);
    }
    assert_eq!(world.sent(UDP, 0), before, "nothing goes by UDP any more");
}

#[test]
fn what_does_not_get_through_is_not_used_in_whichever_direction() {
    for blocked in [vec![0], vec![1], vec![0, 1]] {
        for first in [0, 1] {
            let mut world = World::new([true, true], 0.0, 2);
            blocked.iter().for_each(|end| world.block(FRAMES, *end, true));
            world.connect(first);
            assert!(world.exchange(first, 20 * MS) < 30 * MS);
            for _ in 0..100 {
                assert!(world.exchange(1 - first, 20 * MS) < MS);
            }
            assert_eq!(world.carriers(), [Some(Carrier::Udp); 2], "{blocked:?} blocked, {first} first");
        }
    }
    let mut world = World::new([true, true], 0.0, 3);
    [0, 1].into_iter().for_each(|end| world.block(UDP, end, true));
    world.connect(0);
    assert!(world.exchange(0, 20 * MS) < MS);
    assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
}

#[test]
fn a_station_without_frames_is_reached_and_reaches_others() {
    for frames in [[true, false], [false, true], [false, false]] {
        for first in [0, 1] {
            let mut world = World::new(frames, 0.0, 4);
            world.connect(first);
            assert!(world.exchange(first, 20 * MS) < 30 * MS, "{frames:?}");
            world.connect(1 - first);
            assert!(world.exchange(1 - first, 20 * MS) < MS);
        }
    }
}

#[test]
fn frames_from_all_ports_of_a_station_are_its_own() {
    for is_known in [true, false] {
        let mut world = World::new([false, false], 0.0, 31);
        world.connect(0);
        if is_known {
            world.connect(1);
        }
        for label in [PORT_LABEL + 1, 0, PORT_LABEL + 7, PORT_LABEL] {
            world.label = label;
            let sent = world.send(0);
            assert_eq!(world.receive(1), [sent], "label {label:#x}, known: {is_known}");
        }
        world.label = 0;
        assert!(world.exchange(1, 20 * MS) < MS);
    }
}

/// Proves that the first frames need not wait for the answer to a question, and that each arrives once: behind the
/// question by the first interface, or after the answer by the path that has brought it.
#[test]
fn the_first_frames_follow_the_question() {
    for (networks, blocked) in [
        ([vec![0], vec![0]], false),
        ([vec![0], vec![0]], true),
        ([vec![0, 1], vec![1, 0]], false),
        ([vec![1, 0], vec![0]], false),
    ] {
        let mut world = World::on(networks.clone(), true, 0.0, 10);
        world.block(FRAMES, 0, blocked);
        world.connect(0);
        let sent = world.send(0);
        let mut arrived = world.receive(1);
        let is_early = !blocked && networks[0][0] == networks[1][0];
        assert_eq!(arrived.len(), usize::from(is_early), "{networks:?}");
        let late = world.send(0);
        for _ in 0..5 {
            world.now += 20_000;
            world.receive(0);
            arrived.extend(world.receive(1));
        }
        assert_eq!(arrived, [sent, late], "{networks:?}, blocked {blocked}");
    }
}

/// Proves that a carrier that dies in one direction or both is replaced within 50 ms by senders that repeat after 5 ms,
/// and is used again once it works.
#[test]
fn a_carrier_that_dies_is_replaced_and_used_again() {
    for blocked in [vec![0], vec![1], vec![0, 1]] {
        let mut world = World::new([true, true], 0.0, 5);
        world.connect(0);
        for _ in 0..50 {
            world.exchange(0, 5 * MS);
        }
        blocked.iter().for_each(|end| world.block(FRAMES, *end, true));
        let took = world.exchange(0, 5 * MS);
        assert!(took < 50 * MS, "{blocked:?}: {took}");
        // Retransmissions of both sides find the other carrier soon.
        for turn in 0..2000 {
            let took = world.exchange(turn % 2, 5 * MS);
            assert!(took < if turn < 20 { 50 * MS } else { MS }, "{blocked:?}, turn {turn}: {took}");
        }
        assert_eq!(world.carriers(), [Some(Carrier::Udp); 2], "{blocked:?}");
        blocked.iter().for_each(|end| world.block(FRAMES, *end, false));
        for turn in 0..40 {
            world.now += 1000 * MS;
            world.exchange(turn % 2, 5 * MS);
        }
        assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
    }
}

/// Proves that a station that sleeps can be told when it must ask next.
#[test]
fn the_next_question_is_a_deadline() {
    let mut world = World::new([true, true], 0.0, 15);
    assert_eq!(world.ends[0].next_deadline(), None, "it knows nobody");
    world.connect(0);
    for _ in 0..10 {
        world.now = world.now.max(world.ends[0].next_deadline().unwrap());
        let sent = world.sent(UDP, 0);
        world.receive(0);
        assert_eq!(world.sent(UDP, 0), sent + 1, "it asks");
        assert!(world.ends[0].next_deadline().is_some_and(|due| due > world.now));
    }
    world.exchange(0, 20 * MS);
    world.now += 1000 * MS;
    world.receive(0);
    assert_eq!(world.ends[0].next_deadline(), None, "it knows all paths");
}

/// Proves that a station asks what is due, once, although it does not receive.
#[test]
fn due_questions_are_asked_without_a_poll() {
    let mut world = World::new([true, true], 0.0, 15);
    world.connect(0);
    for _ in 0..10 {
        world.now = world.now.max(world.ends[0].next_deadline().unwrap());
        world.ends[0].note_time(world.now);
        let sent = world.sent(UDP, 0);
        for _ in 0..2 {
            world.ends[0].send_due();
        }
        assert_eq!(world.sent(UDP, 0), sent + 1);
        assert!(world.ends[0].next_deadline().is_some_and(|due| due > world.now));
    }
}

/// Proves that the UDP link, of which a poll is a system call, is polled each time only while a peer may need it.
#[test]
fn the_udp_link_is_polled_each_time_only_for_peers_that_may_need_it() {
    let mut world = World::new([true, true], 0.0, 14);
    assert!(world.polls_of_udp(0) < 5);
    world.connect(0);
    assert!(world.polls_of_udp(0) > 95, "nothing is known yet");
    for blocked in [false, true, false] {
        [0, 1].into_iter().for_each(|end| world.block(FRAMES, end, blocked));
        for turn in 0..40 {
            world.now += 1000 * MS;
            world.exchange(turn % 2, 5 * MS);
        }
        assert_eq!(world.carriers(), [Some(if blocked { Carrier::Udp } else { Carrier::Frames }); 2]);
        for end in [0, 1] {
            let polls = world.polls_of_udp(end);
            assert!(if blocked { polls > 95 } else { polls < 5 }, "{polls} polls, frames blocked: {blocked}");
        }
    }
}

/// Proves that a peer that has exited costs little a minute later: it is asked rarely, and the UDP link is not polled
/// for it. If it is reached again, or has a successor, it is found as soon as ever, whichever end sends first.
#[test]
fn a_peer_that_has_exited_is_hardly_asked_until_it_is_needed() {
    for (first, key) in [(0, KEY), (1, KEY), (0, KEY + 1), (1, KEY + 1)] {
        let mut world = World::new([true, true], 0.0, 31);
        world.block(FRAMES, 0, true);
        world.connect(0);
        assert!(world.exchange(0, 20 * MS) < 30 * MS);
        assert!(world.polls_of_udp(0) > 95, "it is reached by UDP");
        let networks = [(FRAMES, 0), (FRAMES, 1), (UDP, 0), (UDP, 1)];
        networks.into_iter().for_each(|(network, end)| world.block(network, end, true));
        for _ in 0..100 {
            world.send(0);
            world.wait(0, 20 * MS);
        }
        world.wait(0, 60_000 * MS);
        assert!(world.polls_of_udp(0) < 5);
        let sent = |world: &World| world.sent(FRAMES, 0) + world.sent(UDP, 0);
        let before = sent(&world);
        world.wait(0, 300_000 * MS);
        let asked = sent(&world) - before;
        assert!((10..60).contains(&asked), "{asked} probes in five minutes");
        networks.into_iter().for_each(|(network, end)| world.block(network, end, false));
        if key != KEY {
            world.ends[1].set_station(SAP, key);
            if first == 0 {
                world.connect_with(0, key);
            } else {
                // It knows nothing of the paths, as after another key of the peer.
                [99, KEY].into_iter().for_each(|key| world.connect_with(1, key));
            }
        }
        for from in [first, 1 - first] {
            assert!(world.exchange(from, 20 * MS) < 30 * MS, "{from} sends, {first} did first, key {key}");
        }
        assert_eq!(world.carriers()[0], Some(Carrier::Frames), "{first} sent first, key {key}");
    }
}

/// As where many senders fill the queue of a port: answers take 40 ms. Frames by both carriers would fill it further.
#[test]
fn a_path_that_is_always_slow_is_not_suspected() {
    let mut world = World::new([true, true], 0.0, 30);
    world.connect(0);
    world.exchange(0, 20 * MS);
    let by_udp: Vec<u32> = (0..20)
        .map(|_| {
            let before = world.sent(UDP, 0);
            for _ in 0..8 {
                world.send(0);
                world.now += 5 * MS;
            }
            world.receive(1);
            world.send(1);
            world.receive(0);
            world.sent(UDP, 0) - before
        })
        .collect();
    assert!(by_udp[0] > 3 && by_udp[2..].iter().all(|frames| *frames == 0), "{by_udp:?}");
    world.block(FRAMES, 0, true);
    let slow = world.exchange(0, 20 * MS);
    assert!((60 * MS..300 * MS).contains(&slow), "the path died: {slow} ns");
    world.block(FRAMES, 0, false);
    world.now += 600 * MS;
    for _ in 0..100 {
        world.exchange(0, 20 * MS);
    }
    assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
    world.block(FRAMES, 0, true);
    let quick = world.exchange(0, 20 * MS);
    assert!(quick < 50 * MS, "as soon as ever once answers are quick again: {quick} ns");
}

/// Proves that two stations with a key each find each other, whichever of the keys each of them knows, at the same time
/// too; and a station's successor at the same address, which has another key.
#[test]
fn stations_with_keys_of_their_own_find_each_other() {
    for knows in [[true, false], [false, true], [true, true]] {
        let mut world = World::new([true, true], 0.0, 8);
        for (end, key) in [(0, 100), (1, 200)] {
            world.ends[end].set_station(SAP, key);
        }
        for (from, key) in [(0, 200), (1, 100)] {
            let to = &world.ends[1 - from];
            let peer = PeerAddress { mac: to.address(), sap: SAP, locator: to.locator(), key };
            if knows[from] {
                world.ends[from].add_peer(&peer);
                world.send(from);
            }
        }
        assert!(world.exchange(usize::from(!knows[0]), 20 * MS) < 30 * MS, "{knows:?}");
        assert!(world.exchange(usize::from(knows[0]), 20 * MS) < MS);
        assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
        if knows[0] {
            world.ends[1].set_station(SAP, 300);
            let to = &world.ends[1];
            let peer = PeerAddress { mac: to.address(), sap: SAP, locator: to.locator(), key: 300 };
            world.ends[0].add_peer(&peer);
            assert_eq!(world.carriers()[0], None);
            assert!(world.exchange(0, 20 * MS) < 30 * MS);
        }
    }
}

/// Proves that a station finds a path to a peer that knows its predecessor's key.
#[test]
fn a_successor_that_calls_first_is_answered_with_the_key_that_it_has() {
    let mut world = World::new([true, true], 0.0, 8);
    for (end, key) in [(0, 100), (1, 200)] {
        world.ends[end].set_station(SAP, key);
    }
    let add = |world: &mut World, from: usize, key| {
        let to = &world.ends[1 - from];
        let peer = PeerAddress { mac: to.address(), sap: SAP, locator: to.locator(), key };
        world.ends[from].add_peer(&peer);
    };
    add(&mut world, 0, 200);
    assert!(world.exchange(0, 20 * MS) < 30 * MS);
    // Its successor knows nothing of the paths, as after another key of the peer.
    world.ends[1].set_station(SAP, 300);
    add(&mut world, 1, 99);
    add(&mut world, 1, 100);
    assert_eq!(world.carriers()[1], None);
    assert!(world.exchange(1, 20 * MS) < 30 * MS);
    assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
}

/// Proves that a peer that goes on asking a station's predecessor gets an answer, though the first one was lost: its
/// questions have a key that the successor does not know.
#[test]
fn a_successors_lost_answer_is_repeated() {
    let mut world = World::new([false, true], 0.0, 12);
    for (end, key) in [(0, 100), (1, 300)] {
        world.ends[end].set_station(SAP, key);
    }
    world.connect_with(0, 200);
    world.send(0);
    world.receive(0);
    world.connect_with(1, 100);
    world.send(1);
    world.receive(1);
    world.receive(0);
    world.block(UDP, 1, true);
    world.receive(1);
    assert_eq!(world.carriers(), [None, Some(Carrier::Udp)]);
    world.block(UDP, 1, false);
    world.now += 5 * MS;
    assert!(world.exchange(1, 5 * MS) < 30 * MS);
}

/// Proves that a successor passes the checks of a peer that knows its predecessor's key.
#[test]
fn a_successor_is_checked_with_a_key_that_it_has() {
    let mut world = World::on([vec![0, 1], vec![0, 1]], true, 0.0, 9);
    for (end, key) in [(0, 100), (1, 200)] {
        world.ends[end].set_station(SAP, key);
    }
    world.connect_with(0, 200);
    for _ in 0..5 {
        world.exchange(0, 5 * MS);
    }
    assert_eq!(world.paths()[0], Some((Carrier::Frames, 2)));
    world.ends[1].set_station(SAP, 300);
    world.connect_with(1, 99);
    world.connect_with(1, 100);
    for _ in 0..100 {
        assert!(world.exchange(1, 5 * MS) < MS);
        assert_eq!(world.stream(0, 16), 16, "none is sent twice");
        assert_eq!(world.paths()[0], Some((Carrier::Frames, 2)));
    }
}

/// Proves that a station finds a path to a successor that does not know it, although a question of the predecessor, which
/// did, arrives late.
#[test]
fn a_predecessors_late_question_does_not_hide_the_successor() {
    let mut world = World::new([false, true], 0.0, 12);
    for (end, key) in [(0, 100), (1, 200)] {
        world.ends[end].set_station(SAP, key);
    }
    world.connect_with(1, 100);
    world.send(1);
    world.receive(1);
    world.ends[1].set_station(SAP, 300);
    // It no longer knows the other's key.
    world.connect_with(1, 99);
    world.connect_with(0, 300);
    world.block(UDP, 0, true);
    world.receive(0);
    world.block(UDP, 0, false);
    assert!(world.exchange(0, 5 * MS) < 30 * MS);
}

/// Proves that a peer that is named before each datagram costs no look-up of its addresses, unless it has others.
#[test]
fn a_peer_that_is_named_again_is_not_looked_up_again() {
    let mut world = World::new([true, true], 0.0, 13);
    for (addresses, looked_up) in [(1, 1), (1, 1), (2, 3), (2, 3)] {
        world.addresses[1].set(addresses);
        world.connect(0);
        assert_eq!(world.looked_up.get(), looked_up, "{addresses} addresses");
    }
}

#[test]
fn lost_questions_are_repeated() {
    for seed in 0..200 {
        let mut world = World::new([true, true], 0.3, 1000 * seed);
        world.connect(0);
        for turn in 0..20 {
            assert!(world.exchange(turn % 2, 5 * MS) < 2000 * MS);
        }
    }
}

/// Station 0 has a path to station 1, whose questions have gone on for `time` without an answer that arrived.
fn with_lost_answers(time: u64) -> World {
    let mut world = World::new([false, true], 0.0, 12);
    world.connect(0);
    world.send(0);
    // It asks; the peer answers, and asks in turn.
    world.receive(0);
    world.receive(1);
    world.block(UDP, 0, true);
    world.wait(1, time);
    world.receive(0);
    assert_eq!(world.carriers(), [Some(Carrier::Udp), None]);
    world.block(UDP, 0, false);
    world.now += 5 * MS;
    world
}

/// Proves that a question is answered again if the answer was lost, though the peer itself has its answer.
#[test]
fn a_lost_answer_is_repeated() {
    assert!(with_lost_answers(0).exchange(1, 5 * MS) < 30 * MS);
}

/// Proves that a station whose questions have become rare asks a peer at once whose frames arrive, since it waits for
/// answers.
#[test]
fn a_peer_that_is_heard_is_asked_at_once() {
    assert!(with_lost_answers(2000 * MS).exchange(0, 10 * MS) < MS);
}

/// Proves that questions with another key have no effect: they are not answered, and neither station finds a path.
#[test]
fn forged_questions_change_nothing() {
    let mut world = World::new([true, true], 0.0, 6);
    world.ends[1].set_station(SAP, KEY + 1);
    let peer = PeerAddress { mac: world.ends[1].address(), sap: SAP, locator: world.ends[1].locator(), key: KEY };
    world.ends[0].add_peer(&peer);
    for _ in 0..100 {
        let sent = world.send(0);
        // Frames behind a question are delivered, as those of any station are.
        assert!(world.receive(1).iter().all(|frame| frame[14..] == sent[14..] || frame[16] == 0));
        assert!(world.receive(0).is_empty());
        world.now += 100 * MS;
    }
    assert_eq!(world.carriers()[0], None);
    let unknown = Some((Carrier::Frames, 1));
    assert_eq!(world.ends[1].carrier_to(world.ends[0].address(), SAP), unknown, "the peer has learnt nothing");
}

/// Two networks, each end with an interface to both, in either order.
fn two_networks(crossed: bool, has_udp: bool) -> World {
    let mut world = World::on([vec![0, 1], if crossed { vec![1, 0] } else { vec![0, 1] }], has_udp, 0.0, 9);
    world.connect(0);
    world
}

#[test]
fn long_frames_go_by_all_interfaces_in_turns_and_short_ones_by_the_best() {
    for (crossed, has_udp) in [(false, true), (true, true), (false, false)] {
        let mut world = two_networks(crossed, has_udp);
        if !has_udp {
            world.connect(1);
        }
        for _ in 0..5 {
            world.exchange(0, 5 * MS);
        }
        assert_eq!(world.paths(), [Some((Carrier::Frames, 2)); 2], "crossed {crossed}, UDP {has_udp}");
        let before = [0, 1].map(|network| world.sent(network, 0));
        for _ in 0..100 {
            world.exchange(0, 5 * MS);
        }
        let short = [0, 1].map(|network| world.sent(network, 0) - before[usize::from(network)]);
        // Besides the frames, the checks.
        assert!(short[0] >= 100 && short[1] < 50, "{short:?}");
        let before = [0, 1].map(|network| world.sent(network, 0));
        for _ in 0..100 {
            assert_eq!(world.stream(0, 32), 32);
            assert_eq!(world.stream(1, 3), 3);
        }
        let long = [0, 1].map(|network| world.sent(network, 0) - before[usize::from(network)]);
        assert!(long.iter().all(|count| (1600..1720).contains(count)), "{long:?}");
        assert!(world.sent(UDP, 0) <= 10, "UDP was only asked");
    }
}

/// Proves that an interface that dies, in one direction or both, costs what was on its way and nothing after 35 ms, and
/// is used again once it works.
#[test]
fn an_interface_that_dies_costs_its_share_for_a_short_time() {
    for crossed in [false, true] {
        for network in [0, 1] {
            for blocked in [vec![0], vec![1], vec![0, 1]] {
                let mut world = two_networks(crossed, true);
                for _ in 0..100 {
                    world.exchange(0, 5 * MS);
                    assert_eq!(world.stream(0, 16), 16);
                }
                blocked.iter().for_each(|end| world.block(network, *end, true));
                let died = world.now;
                let mut last_loss = died;
                while world.now < died + 500 * MS {
                    let mut lost = 32 - world.stream(0, 16) - world.stream(1, 16);
                    // What is still lost may be what the other direction does not need.
                    lost = lost.min(32);
                    if lost > 0 {
                        last_loss = world.now;
                    }
                }
                let took = (last_loss - died) / MS;
                assert!(took <= 35, "crossed {crossed}, {network} blocked for {blocked:?}: {took} ms");
                blocked.iter().for_each(|end| world.block(network, *end, false));
                for _ in 0..40 {
                    world.now += 1000 * MS;
                    world.stream(0, 16);
                    world.stream(1, 16);
                }
                assert_eq!(world.paths(), [Some((Carrier::Frames, 2)); 2]);
            }
        }
    }
}

/// Proves that a path that died is found out even if the peer takes longer to answer than a check lasts.
#[test]
fn a_dead_path_to_a_slow_peer_is_dropped() {
    for delay in [5, 30, 300] {
        let mut world = two_networks(false, true);
        for _ in 0..20 {
            world.exchange(0, 5 * MS);
            world.stream(0, 16);
        }
        world.block(1, 0, true);
        for _ in 0..8 {
            // It polls once in `delay` milliseconds.
            for _ in 0..delay {
                world.send_frames(0, 2, 1400);
                world.now += MS;
                world.receive(0);
            }
            world.receive(1);
            world.send(1);
        }
        assert_eq!(world.paths()[0], Some((Carrier::Frames, 1)), "polled each {delay} ms");
    }
}

/// Proves that interfaces that lead elsewhere, and a peer with fewer of them, do no harm.
#[test]
fn interfaces_that_reach_nobody_are_not_used() {
    for networks in [[vec![0, 1, 2], vec![0, 3]], [vec![1, 0], vec![0]], [vec![2, 0, 1], vec![1, 3]]] {
        for first in [0, 1] {
            let mut world = World::on(networks.clone(), true, 0.0, 10);
            world.connect(first);
            for turn in 0..100 {
                assert!(world.exchange(turn % 2, 5 * MS) < 30 * MS);
                assert_eq!(world.stream(0, 16), 16, "{networks:?}");
            }
            assert_eq!(world.paths(), [Some((Carrier::Frames, 1)); 2], "{networks:?}");
        }
    }
}

/// Proves that paths of unknown speed are not used at once, but replace each other.
#[test]
fn paths_of_unknown_speed_stand_in_for_each_other() {
    let mut world = World::with([vec![0, 1], vec![0, 1]], true, 0, 0.0, 11);
    world.connect(0);
    for _ in 0..20 {
        world.exchange(0, 5 * MS);
        assert_eq!(world.stream(0, 16), 16);
    }
    assert_eq!(world.paths(), [Some((Carrier::Frames, 1)); 2]);
    [0, 1].into_iter().for_each(|end| world.block(0, end, true));
    assert!(world.exchange(0, 5 * MS) < 50 * MS);
    assert_eq!(world.carriers(), [Some(Carrier::Frames); 2], "by the other interface, not by UDP");
}

#[test]
fn a_busy_peer_is_no_dead_path() {
    let mut world = two_networks(false, true);
    for turn in 0..20 {
        world.exchange(0, 5 * MS);
        for _ in 0..10 {
            // It computes, and receives nothing.
            world.send_frames(0, 4, 1400);
            world.now += 12 * MS;
        }
        let _ = world.receive(1);
        world.exchange(1, 5 * MS);
        world.receive(0);
        assert_eq!(world.paths()[0], Some((Carrier::Frames, 2)), "turn {turn}");
    }
}

/// Two stations with one interface each and UDP that is fast in batches, which have exchanged frames.
fn with_fast_udp() -> World {
    let mut world = World::new([true, true], 0.0, 12);
    world.batching_peers.set(1);
    world.connect(0);
    world.exchange(0, 20 * MS);
    world.exchange(1, 20 * MS);
    assert_eq!(world.carriers(), [Some(Carrier::FramesAndUdp); 2]);
    world
}

#[test]
fn batches_go_by_udp_the_first_behind_a_frame_and_all_else_by_frames() {
    let mut world = with_fast_udp();
    let peer = world.ends[1].address();
    assert_eq!(world.ends[0].mtu_to(peer, SAP), 1470, "each frame fits into a datagram");
    let cases =
        [(0, 16, 1400, 15), (0, 16, 1400, 16), (0, 4, 1400, 4), (0, 3, 1400, 0), (0, 16, 100, 0), (MS, 4, 1400, 3)];
    for (pause, count, bytes, by_udp) in cases {
        world.now += pause;
        let before = [FRAMES, UDP].map(|network| world.sent(network, 0));
        let sent = world.send_frames(0, count, bytes);
        assert_eq!(world.sent(UDP, 0) - before[1], by_udp, "{count} of {bytes} bytes");
        assert_eq!(world.sent(FRAMES, 0) - before[0], count as u32 - by_udp);
        assert_eq!(world.receive(1), sent, "in order, since the datagrams are received behind the frame");
        world.send(1);
        world.receive(0);
    }
}

#[test]
fn a_poll_stays_behind_the_batches_before_it() {
    let mut world = with_fast_udp();
    let [own, peer] = [0, 1].map(|end| world.ends[end].address().0);
    // RR: a command with and without the poll bit, and a response with the final bit.
    let (poll, rr, answer) = ([SAP, SAP, 1, 1], [SAP, SAP, 1, 0], [SAP, SAP | 1, 1, 1]);
    let send = |world: &mut World, pdu: [u8; 4]| {
        let header = [&peer[..], &own, &[0x88, 0x70], &pdu].concat();
        let before = world.sent(UDP, 0);
        assert_eq!(world.ends[0].send(&[Outgoing { header: &header, payload: &[], label: 0 }]).unwrap(), 1);
        world.receive(1);
        world.sent(UDP, 0) - before
    };
    assert_eq!([poll, rr, answer].map(|pdu| send(&mut world, pdu)), [0; 3], "there are none");
    world.send_frames(0, 16, 1400);
    world.receive(1);
    assert_eq!([poll, rr, answer].map(|pdu| send(&mut world, pdu)), [1, 0, 0]);
    // A check by UDP proves that what went before it has arrived.
    for _ in 0..3 {
        world.now += 20 * MS;
        world.exchange(0, 20 * MS);
    }
    assert_eq!(send(&mut world, poll), 0, "neither the poll nor probes of the path MTU");
}

#[test]
fn batches_go_by_frames_where_too_many_peers_might_send_them_at_once() {
    let mut world = with_fast_udp();
    let before = world.sent(UDP, 0);
    let other = PeerAddress { mac: MacAddress([2; 6]), sap: SAP, locator: world.ends[1].locator(), key: KEY };
    world.ends[0].add_peer(&other);
    world.send_frames(0, 16, 1400);
    assert!(world.sent(UDP, 0) - before < 3, "but questions to the new peer");
    assert_eq!(world.carriers()[0], Some(Carrier::Frames));
    world.batching_peers.set(2);
    world.send_frames(0, 16, 1400);
    assert_eq!(world.sent(UDP, 0) - before, 15);
}

#[test]
fn peers_that_are_gone_do_not_keep_batches_from_udp() {
    let mut world = with_fast_udp();
    let gone = PeerAddress { mac: MacAddress([2; 6]), sap: SAP, locator: world.ends[1].locator(), key: KEY };
    world.ends[0].add_peer(&gone);
    assert_eq!(world.carriers()[0], Some(Carrier::Frames), "it may send batches, too");
    for _ in 0..50 {
        world.now += 1000 * MS;
        world.exchange(0, 20 * MS);
    }
    assert_eq!(world.carriers()[0], Some(Carrier::FramesAndUdp));
    world.ends[0].add_peer(&PeerAddress { key: KEY + 1, ..gone });
    assert_eq!(world.carriers()[0], Some(Carrier::Frames), "it has a successor");
}

#[test]
fn a_receiver_looks_for_datagrams_behind_the_first_long_frame_of_a_batch() {
    let mut world = with_fast_udp();
    for turn in 0..10 {
        // Long enough for the receiver to look for frames only.
        for _ in 0..300 {
            world.now += 5000;
            world.ends[1].note_time(world.now);
            assert!(world.ends[1].receive().is_none());
        }
        // Short frames, which say nothing of datagrams, may be before it.
        let sizes = [vec![64; turn % 3], vec![1400; 30]].concat();
        let sent = world.send_batch(0, &sizes);
        let started = world.now;
        let mut arrived = 0;
        while arrived < sent.len() {
            world.now += 1000;
            world.ends[1].note_time(world.now);
            arrived += usize::from(world.ends[1].receive().is_some());
        }
        let waited = world.now - started - 1000 * sent.len() as u64;
        assert!(waited <= 2000, "turn {turn}: {waited} ns");
        world.send(1);
        world.receive(0);
    }
}

#[test]
fn batches_go_by_frames_while_udp_is_blocked() {
    for directions in [vec![0], vec![1], vec![0, 1]] {
        let mut world = with_fast_udp();
        directions.iter().for_each(|end| world.block(UDP, *end, true));
        let since = world.now;
        while world.stream(0, 16) < 16 || world.carriers()[0] != Some(Carrier::Frames) {
            world.now += MS;
            assert!(world.now - since < 50 * MS, "{directions:?}");
        }
        assert!((0..100).all(|_| world.stream(0, 16) == 16));
        directions.iter().for_each(|end| world.block(UDP, *end, false));
        let since = world.now;
        while world.carriers()[0] != Some(Carrier::FramesAndUdp) {
            assert_eq!(world.stream(0, 16), 16);
            world.now += 10 * MS;
            assert!(world.now - since < 31_000 * MS, "{directions:?}");
        }
    }
}

#[test]
fn a_receiver_of_batches_does_not_suspect_the_carrier_of_its_acknowledgements() {
    let mut world = with_fast_udp();
    let asked = world.sent(UDP, 1);
    for _ in 0..2000 {
        world.send_frames(0, 32, 1400);
        world.now += 30_000;
        assert_eq!(world.receive(1).len(), 32);
        // Acknowledgements.
        world.send(1);
        world.receive(0);
    }
    // Over 60 ms, the answers to six checks.
    assert!(world.sent(UDP, 1) - asked < 10, "{} datagrams", world.sent(UDP, 1) - asked);
}

/// A process that takes a station's place has another socket, and asks from there. The peer, which knew the station by
/// its questions only, must not go on sending to the old one.
#[test]
fn a_successor_with_another_socket_is_answered() {
    let mut world = World::new([true, false], 0.0, 31);
    world.connect(0);
    for end in [0, 1] {
        world.exchange(end, 20 * MS);
    }
    for socket in 1..20 {
        world.sockets[0].set(socket);
        // As a new process it knows nothing of the peer.
        world.connect_with(0, KEY + 1);
        world.connect_with(0, KEY);
        assert!(world.exchange(0, 5 * MS) < 20 * MS, "socket {socket}");
        assert!(world.exchange(1, 5 * MS) < 20 * MS, "socket {socket}");
    }
}

/// Proves that a station that is checked does not take the checks for a question that is repeated in vain: each is another.
#[test]
fn a_station_that_is_checked_for_long_suspects_no_path() {
    let mut world = with_fast_udp();
    let (mut checks, asked) = (0, world.sent(UDP, 1));
    for _ in 0..100 {
        let before = world.sent(UDP, 0);
        world.send_frames(0, 32, 1400);
        checks += world.sent(UDP, 0) - before - 31;
        world.now += 10 * MS;
        world.receive(1);
        world.send(1);
        world.receive(0);
    }
    assert!(checks >= 50 && world.sent(UDP, 1) - asked <= checks, "{} for {checks}", world.sent(UDP, 1) - asked);
}

#[test]
fn who_sends_no_batches_checks_nothing() {
    let mut world = with_fast_udp();
    world.stream(0, 16);
    world.exchange(0, 20 * MS);
    world.now += 20 * MS;
    world.stream(0, 16);
    let before = world.sent(UDP, 0);
    for _ in 0..200 {
        world.exchange(0, 20 * MS);
        world.now += MS;
    }
    assert!(world.sent(UDP, 0) - before <= 2);
}

/// Proves that either end finds out, whichever sends: the one whose address is gone receives nothing, and the other one
/// asks, and gets an answer from another address.
#[test]
fn datagrams_are_rerouted_when_the_address_that_they_come_from_is_gone() {
    for stranded in [0, 1] {
        let mut world = World::new([false, false], 0.0, 21);
        world.addresses[stranded].set(2);
        world.connect(0);
        world.connect(1);
        for turn in 0..100 {
            world.are_stranded[stranded].set(turn % 10 == 5);
            assert!(world.exchange(0, 5 * MS) < if turn % 10 == 5 { 60 * MS } else { MS }, "{stranded}, turn {turn}");
        }
        assert_eq!(world.carriers(), [Some(Carrier::Udp); 2]);
    }
}

impl World {
    /// Engines' work: an end sends frames of these lengths until all have arrived, polls when some are missing, and waits
    /// a millisecond for what comes of it. Returns the time that it took.
    fn deliver(&mut self, from: usize, sizes: &[usize]) -> u64 {
        let started = self.now;
        let [own, peer] = [from, 1 - from].map(|end| self.ends[end].address().0);
        let sent = self.send_batch(from, sizes);
        let mut missing = sent.clone();
        loop {
            for _ in 0..10 {
                self.now += 100_000;
                let arrived = self.receive(1 - from);
                missing.retain(|frame| !arrived.contains(frame));
                assert!(arrived.iter().all(|frame| sent.contains(frame) || is_poll(frame)));
                if !arrived.is_empty() {
                    self.send(1 - from);
                }
                self.receive(from);
            }
            if missing.is_empty() {
                return self.now - started;
            }
            assert!(self.now - started < 1000 * MS, "{} of {} missing", missing.len(), sent.len());
            let poll = [&peer[..], &own, &[0x88, 0x70, SAP, SAP, 1, 1]].concat();
            for frames in [std::slice::from_ref(&poll), &missing[..]] {
                let frames: Vec<_> =
                    frames.iter().map(|frame| Outgoing { header: frame, payload: &[], label: 0 }).collect();
                assert_eq!(self.ends[from].send(&frames).unwrap(), frames.len());
            }
        }
    }

    fn mtu(&mut self, from: usize) -> usize {
        let peer = self.ends[1 - from].address();
        self.ends[from].mtu_to(peer, SAP)
    }
}

fn is_poll(frame: &[u8]) -> bool {
    frame[16..] == [1, 1]
}

/// Proves that what was under way when a path began to drop long datagrams arrives within 40 ms, and that frames then have
/// the length that it carries, and as soon as it carries more, that one. The other direction is not concerned.
#[test]
fn a_path_that_drops_long_datagrams_gets_as_long_ones_as_it_carries() {
    for (carries, batches) in [(1000, true), (1400, true), (600, true), (1470, false), (1000, false)] {
        for frames in [false, true] {
            let mut world = World::new([frames; 2], 0.0, 41);
            [0, 1].into_iter().for_each(|end| world.block(FRAMES, end, true));
            world.connect(0);
            world.connect(1);
            world.exchange(0, 5 * MS);
            assert_eq!(world.deliver(0, &[1450; 40]), MS);
            world.udp_paths[0].set((carries, batches));
            let took = world.deliver(0, &[1450; 40]);
            assert!(took <= if batches { 40 * MS } else { 80 * MS }, "{carries}, {batches}: {} ms", took / MS);
            for _ in 0..40 {
                world.deliver(0, &[64; 2]);
            }
            let mtu = world.mtu(0);
            assert!(mtu <= carries && mtu + 8 >= carries, "{carries}, {batches}: {mtu}");
            let before = world.sent(UDP, 0);
            assert_eq!(world.deliver(0, &[mtu - 3; 40]), MS, "{carries}, {batches}");
            assert!(world.sent(UDP, 0) - before < 60);
            // A frame that was made before, or for Ethernet.
            assert_eq!(world.deliver(0, &[1470, 8, 1497, 1400]), MS);
            assert_eq!((world.mtu(1), world.deliver(1, &[1450; 40])), (1470, MS));
            world.udp_paths[0].set(ANY);
            for _ in 0..100 {
                world.now += 310 * MS;
                world.deliver(0, &[64; 2]);
            }
            let before = world.sent(UDP, 0);
            assert_eq!((world.mtu(0), world.deliver(0, &[1450; 40])), (1470, MS));
            assert_eq!(world.sent(UDP, 0) - before, 40);
        }
    }
}

/// Proves that batches leave a path that does not carry them, and return to it once it does.
#[test]
fn long_messages_go_by_frames_while_udp_drops_them() {
    for path in [(1000, true), (1470, false)] {
        let mut world = with_fast_udp();
        assert_eq!(world.deliver(0, &[1450; 40]), MS);
        for _ in 0..2 {
            world.udp_paths[0].set(path);
            let took = world.deliver(0, &[1450; 40]);
            assert!(took <= 40 * MS, "{path:?}: {} ms", took / MS);
            for _ in 0..20 {
                assert_eq!(world.deliver(0, &[1450; 40]), MS, "{path:?}");
            }
            assert_eq!((world.carriers()[0], world.mtu(0)), (Some(Carrier::Frames), 1500));
            world.udp_paths[0].set(ANY);
            for _ in 0..100 {
                world.now += 310 * MS;
                assert_eq!(world.deliver(0, &[1450; 40]), MS);
            }
            assert_eq!(world.carriers()[0], Some(Carrier::FramesAndUdp));
        }
    }
}

/// Proves that a path that loses one datagram of a hundred keeps its length.
#[test]
fn chance_shortens_no_frames() {
    let mut world = World::new([false, false], 0.01, 42);
    world.connect(0);
    world.connect(1);
    for _ in 0..500 {
        world.deliver(0, &[1450; 20]);
        assert_eq!(world.mtu(0), 1470);
    }
}

/// Proves that frames cut for Ethernet arrive by UDP where IP's fragments do not.
#[test]
fn frames_for_ethernet_arrive_where_fragments_are_dropped() {
    let mut world = World::new([true, true], 0.0, 43);
    world.udp_paths[0].set((1470, true));
    world.connect(0);
    world.exchange(0, 5 * MS);
    world.exchange(1, 5 * MS);
    assert_eq!(world.deliver(0, &[1497; 40]), MS);
    world.block(FRAMES, 0, true);
    assert!(world.deliver(0, &[1497; 40]) < 40 * MS);
}
