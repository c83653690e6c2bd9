// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stations with carriers that are blocked, one way or both ways, in simulated time.

use std::cell::Cell;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_carriers::{Carrier, Carriers, Datagrams};
use barewire_link::{
    Counters, Faults, Incoming, Link, LinkError, Locator, MacAddress, MemoryLink, Outgoing, PeerAddress,
};

const SAP: u8 = 8;
const KEY: u64 = 77;
const MS: u64 = 1_000_000;

/// A link whose frames pass only while its gate is open. As a link for datagrams its addresses are the links' own.
struct Gated {
    link: MemoryLink,
    /// Whether what this end sends arrives.
    passes: Rc<Cell<bool>>,
    copy: Vec<u8>,
    sent: Rc<Cell<u32>>,
    carrier: Carrier,
}

impl Link for Gated {
    fn address(&self) -> MacAddress {
        let [.., last] = self.link.address().0;
        MacAddress([2, 0, 0, 0, self.carrier as u8, last])
    }

    fn mtu(&self) -> usize {
        self.link.mtu()
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.sent.set(self.sent.get() + frames.len() as u32);
        if self.passes.get() { self.link.send(frames) } else { Ok(frames.len()) }
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
        Locator::of_port(u16::from(self.address().0[5]), [IpAddr::from([127, 0, 0, 1])])
    }
}

impl Datagrams for Gated {
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        for frame in frames {
            let mut bytes = [frame.header, frame.payload].concat();
            bytes[..6].copy_from_slice(&to.0);
            bytes[6..12].copy_from_slice(&self.address().0);
            self.send(&[Outgoing { header: &bytes, payload: &[] }])?;
        }
        Ok(frames.len())
    }

    fn receive_mut(&mut self) -> Option<(&mut [u8], usize)> {
        let frame = self.link.receive()?;
        self.copy.clear();
        self.copy.extend_from_slice(frame.bytes);
        let bytes = self.copy.len();
        Some((&mut self.copy, bytes))
    }

    fn address_of(&mut self, _: IpAddr, port: u16) -> Option<MacAddress> {
        Some(MacAddress([2, 0, 0, 0, 1, port as u8]))
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None; 2]
    }
}

/// Two stations; gates by carrier and by sender.
struct World {
    ends: [Carriers<Gated, Gated>; 2],
    gates: [[Rc<Cell<bool>>; 2]; 2],
    sent: [[Rc<Cell<u32>>; 2]; 2],
    now: u64,
    number: u32,
}

impl World {
    /// `frames`: which ends have frames. Each has UDP.
    fn new(frames: [bool; 2], loss: f64, seed: u64) -> Self {
        let faults = Faults { loss, ..Faults::default() };
        let gates: [[Rc<Cell<bool>>; 2]; 2] =
            std::array::from_fn(|_| std::array::from_fn(|_| Rc::new(Cell::new(true))));
        let sent: [[Rc<Cell<u32>>; 2]; 2] = Default::default();
        let gated = |link, carrier: Carrier, end: usize| Gated {
            link,
            passes: gates[carrier as usize][end].clone(),
            copy: Vec::new(),
            sent: sent[carrier as usize][end].clone(),
            carrier,
        };
        let (a, b) = MemoryLink::pair(1500, faults, seed);
        let (c, d) = MemoryLink::pair(1470, faults, seed + 7);
        let mut ends = [
            Carriers::new(frames[0].then(|| gated(a, Carrier::Frames, 0)), Some(gated(c, Carrier::Udp, 0))),
            Carriers::new(frames[1].then(|| gated(b, Carrier::Frames, 1)), Some(gated(d, Carrier::Udp, 1))),
        ];
        for end in &mut ends {
            end.set_station(SAP, KEY);
        }
        Self { ends, gates, sent, now: 1, number: 0 }
    }

    fn block(&self, carrier: Carrier, end: usize, blocked: bool) {
        self.gates[carrier as usize][end].set(!blocked);
    }

    fn connect(&mut self, from: usize) {
        let peer = PeerAddress {
            mac: self.ends[1 - from].address(),
            sap: SAP,
            locator: self.ends[1 - from].locator(),
            key: KEY,
        };
        self.ends[from].add_peer(&peer);
    }

    fn send(&mut self, from: usize) -> Vec<u8> {
        self.number += 1;
        let [own, peer] = [from, 1 - from].map(|end| self.ends[end].address().0);
        let header = [&peer[..], &own, &[0x88, 0x70, SAP, SAP, 0]].concat();
        let payload = self.number.to_be_bytes();
        self.ends[from].note_time(self.now);
        assert_eq!(self.ends[from].send(&[Outgoing { header: &header, payload: &payload }]).unwrap(), 1);
        [&header[..], &payload].concat()
    }

    /// All frames that an end has; with the addresses of stations, whatever carried them.
    fn receive(&mut self, end: usize) -> Vec<Vec<u8>> {
        self.ends[end].note_time(self.now);
        let mut received = Vec::new();
        // The UDP link is not polled each time.
        self.ends[end].check().unwrap();
        for _ in 0..20 {
            received.extend(self.ends[end].receive().map(|frame| frame.bytes.to_vec()));
        }
        received
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
        [0, 1].map(|end| self.ends[end].carrier_to(self.ends[1 - end].address(), SAP))
    }
}

#[test]
fn the_first_frame_goes_by_frames_if_they_get_through() {
    let mut world = World::new([true, true], 0.0, 1);
    world.connect(0);
    assert!(world.exchange(0, 20 * MS) < MS);
    assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
    let before = world.sent[1][0].get();
    for _ in 0..100 {
        world.exchange(0, 20 * MS);
    }
    assert_eq!(world.sent[1][0].get(), before, "nothing goes by UDP any more");
}

#[test]
fn what_does_not_get_through_is_not_used_in_whichever_direction() {
    for blocked in [vec![0], vec![1], vec![0, 1]] {
        for first in [0, 1] {
            let mut world = World::new([true, true], 0.0, 2);
            blocked.iter().for_each(|end| world.block(Carrier::Frames, *end, true));
            world.connect(first);
            assert!(world.exchange(first, 20 * MS) < 30 * MS);
            for _ in 0..100 {
                assert!(world.exchange(1 - first, 20 * MS) < MS);
            }
            assert_eq!(world.carriers(), [Some(Carrier::Udp); 2], "{blocked:?} blocked, {first} first");
        }
    }
    let mut world = World::new([true, true], 0.0, 3);
    [0, 1].into_iter().for_each(|end| world.block(Carrier::Udp, end, true));
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

/// Proves that a carrier that dies in one direction or both is replaced within 50 ms by senders that repeat after 5 ms, and
/// is used again once it works.
#[test]
fn a_carrier_that_dies_is_replaced_and_used_again() {
    for blocked in [vec![0], vec![1], vec![0, 1]] {
        let mut world = World::new([true, true], 0.0, 5);
        world.connect(0);
        for _ in 0..50 {
            world.exchange(0, 5 * MS);
        }
        blocked.iter().for_each(|end| world.block(Carrier::Frames, *end, true));
        let took = world.exchange(0, 5 * MS);
        assert!(took < 50 * MS, "{blocked:?}: {took}");
        // What is repeated on both sides finds the other carrier soon.
        for turn in 0..2000 {
            let took = world.exchange(turn % 2, 5 * MS);
            assert!(took < if turn < 20 { 50 * MS } else { MS }, "{blocked:?}, turn {turn}: {took}");
        }
        assert_eq!(world.carriers(), [Some(Carrier::Udp); 2], "{blocked:?}");
        blocked.iter().for_each(|end| world.block(Carrier::Frames, *end, false));
        for turn in 0..40 {
            world.now += 1000 * MS;
            world.exchange(turn % 2, 5 * MS);
        }
        assert_eq!(world.carriers(), [Some(Carrier::Frames); 2]);
    }
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

/// Proves that questions without the key, for another station or with changed bytes have no effect, and that a station
/// that is named by somebody else cannot be moved to another address.
#[test]
fn forged_questions_change_nothing() {
    let mut world = World::new([true, true], 0.0, 6);
    world.ends[1].set_station(SAP, KEY + 1);
    let peer = PeerAddress { mac: world.ends[1].address(), sap: SAP, locator: world.ends[1].locator(), key: KEY };
    world.ends[0].add_peer(&peer);
    for _ in 0..100 {
        world.send(0);
        assert!(world.receive(1).is_empty() && world.receive(0).is_empty());
        world.now += 100 * MS;
    }
    assert_eq!(world.carriers()[0], None);
}
