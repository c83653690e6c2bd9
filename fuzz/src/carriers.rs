// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stations with several interfaces and sockets, and a third party that sees every frame: it drops, delays, repeats and
//! changes them, delivers them elsewhere, and sends its own. Then it falls silent, and each station must reach the other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_carriers::{Carriers, Datagrams, INTERFACES_MAX, Lower};
use barewire_link::{Counters, Incoming, IncomingMut, Link, LinkError, Locator, MacAddress, Outgoing, PeerAddress};

use crate::input::Input;

const SAP: u8 = 8;
const KEY: u64 = 77;
/// Number of the device for datagrams; those before it are interfaces for frames.
const UDP: usize = INTERFACES_MAX;
const DEVICES: usize = INTERFACES_MAX + 1;
/// Addresses, length or EtherType, service access points and control field.
const HEADER_BYTES: usize = 12 + 2 + 3;
/// What a frame of data has in place of a probe's control field.
const DATA: u8 = 0;
const UI: u8 = 3;
const PROBE: &[u8] = b"BWPA\x02";
/// Frames seen that the third party keeps.
const SEEN_MAX: usize = 64;
/// Frames that a station sends in answer to one that it receives, at most: an answer, those that were held, and questions
/// that have become due, by all devices to all addresses.
const ANSWERS_MAX: usize = 1 + 8 + DEVICES * INTERFACES_MAX;
/// In the end: the time between two frames, and the number of them until the other station is reached. A station that was
/// not reached asks every half second at least.
const STEP_NS: u64 = 50_000_000;
const STEPS_MAX: usize = 40;

/// A frame on its way from a device.
#[derive(Clone)]
struct Sent {
    from: (usize, usize),
    bytes: Vec<u8>,
}

type Network = Rc<RefCell<Vec<Sent>>>;
/// Frames that a device has received.
type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

struct Device {
    station: usize,
    number: usize,
    sent: Network,
    inbound: Queue,
    current: Vec<u8>,
    random: u64,
}

fn address(station: usize, device: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, device as u8, station as u8])
}

impl Link for Device {
    fn address(&self) -> MacAddress {
        address(self.station, self.number)
    }

    fn mtu(&self) -> usize {
        if self.number == UDP { 1470 } else { 1500 }
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let from = (self.station, self.number);
        let sent = frames.iter().map(|frame| Sent { from, bytes: [frame.header, frame.payload].concat() });
        self.sent.borrow_mut().extend(sent);
        Ok(frames.len())
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.receive_mut().map(Incoming::from)
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
        Ok(Counters::default())
    }

    fn locator(&self) -> Locator {
        Locator::of_port(self.station as u16 + 1, [IpAddr::from([127, 0, 0, 1])])
    }

    fn random_bits(&mut self) -> u64 {
        // Reproducible, and different for each station and call.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random
    }
}

impl Lower for Device {
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        for frame in frames {
            let mut bytes = [frame.header, frame.payload].concat();
            bytes[..6].copy_from_slice(&to.0);
            bytes[6..12].copy_from_slice(&self.address().0);
            self.sent.borrow_mut().push(Sent { from: (self.station, self.number), bytes });
        }
        Ok(frames.len())
    }

    fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        self.current = self.inbound.borrow_mut().pop_front()?;
        Some(IncomingMut { frame_bytes: self.current.len(), bytes: &mut self.current, vlan: None })
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None; 2]
    }
}

impl Datagrams for Device {
    fn address_of(&mut self, _: IpAddr, port: u16) -> Option<MacAddress> {
        Some(address(usize::from(port).wrapping_sub(1), UDP))
    }

    fn batching_peers(&self) -> usize {
        1
    }
}

struct World {
    stations: [Carriers<Device, Device>; 2],
    /// By station, the devices that it has.
    devices: [Vec<usize>; 2],
    inbound: [[Queue; DEVICES]; 2],
    sent: Network,
    /// What the third party can repeat.
    seen: VecDeque<Sent>,
    now: u64,
    /// Number of the last frame with data.
    number: u32,
}

/// Lets the third party do as the input says, and then nothing.
pub fn carriers(data: &[u8]) {
    let mut input = Input::new(&data[..data.len().min(1024)]);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.operate(&mut input);
    }
    world.fall_silent();
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let sent = Network::default();
        let inbound: [[Queue; DEVICES]; 2] = Default::default();
        let mut devices = [0, 1].map(|_| {
            let choice = input.byte();
            let frames = 0..usize::from(choice & 3);
            frames.chain((choice & 4 != 0).then_some(UDP)).collect::<Vec<_>>()
        });
        // One carrier that both have.
        if !devices[0].iter().any(|device| devices[1].contains(device)) {
            devices.iter_mut().filter(|devices| !devices.contains(&UDP)).for_each(|devices| devices.push(UDP));
        }
        let mut stations = [0, 1].map(|station| {
            let open = |number: usize| Device {
                station,
                number,
                sent: sent.clone(),
                inbound: inbound[station][number].clone(),
                current: Vec::new(),
                random: (station * DEVICES + number) as u64,
            };
            let of_frames = devices[station].iter().filter(|device| **device != UDP);
            let frames = of_frames.map(|number| (open(*number), 1000)).collect();
            Carriers::new(frames, devices[station].contains(&UDP).then(|| open(UDP)))
        });
        stations.iter_mut().for_each(|station| station.set_station(SAP, KEY));
        let mut world = Self { stations, devices, inbound, sent, seen: VecDeque::new(), now: 1, number: 0 };
        world.name_peer(0);
        if input.flag() {
            world.name_peer(1);
        }
        world
    }

    fn name_peer(&mut self, of: usize) {
        let other = &self.stations[1 - of];
        let peer = PeerAddress { mac: other.address(), sap: SAP, locator: other.locator(), key: KEY };
        self.stations[of].add_peer(&peer);
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let (station, amount) = (usize::from(choice >> 7), u32::from(choice >> 4 & 7));
        match choice & 15 {
            0 | 1 => self.send(station, input.of(&[20, 20, 1400])),
            2..=4 => self.deliver_all(),
            5 => drop(self.poll(station)),
            6 => self.now += 1000 << (3 * amount),
            7 => self.name_peer(station),
            8 => drop(self.take(input)),
            9 => {
                let Some(frame) = self.seen(input) else { return };
                let device = self.device(station, input);
                self.deliver(station, device, frame.bytes);
            }
            10 | 11 => self.deliver_changed(station, input),
            12 | 13 => self.deliver_forged(station, input),
            14 => {
                let Some(Sent { from, bytes }) = self.take(input) else { return };
                let device = self.device(1 - from.0, input);
                self.deliver(1 - from.0, device, bytes);
            }
            _ => {
                if let Some(sent) = self.take(input) {
                    self.pass(sent);
                }
            }
        }
    }

    /// A station sends a frame with data.
    fn send(&mut self, from: usize, bytes: usize) {
        let [own, peer] = [from, 1 - from].map(|station| self.stations[station].address().0);
        self.number += 1;
        let mut header = [&peer[..], &own, &[0x88, 0x70, SAP, SAP, DATA]].concat();
        header.extend(self.number.to_be_bytes());
        self.stations[from].note_time(self.now);
        let frame = Outgoing { header: &header, payload: &vec![7; bytes], label: 0 };
        assert_eq!(self.stations[from].send(&[frame]).expect("the links work"), 1);
    }

    /// A frame on its way.
    fn take(&mut self, input: &mut Input<'_>) -> Option<Sent> {
        let number = usize::from(input.byte());
        let mut sent = self.sent.borrow_mut();
        let number = number % sent.len().max(1);
        (number < sent.len()).then(|| sent.remove(number))
    }

    /// A frame that was delivered before.
    fn seen(&self, input: &mut Input<'_>) -> Option<Sent> {
        let number = usize::from(input.byte());
        self.seen.get(number % self.seen.len().max(1)).cloned()
    }

    fn device(&self, station: usize, input: &mut Input<'_>) -> usize {
        input.of(&self.devices[station])
    }

    /// The device that has a frame's destination address, on the network by which the frame was sent.
    fn receiver(&self, sent: &Sent) -> Option<(usize, usize)> {
        let [to_device, to_station] = [4, 5].map(|at| usize::from(sent.bytes[at]));
        let is_there = self.devices.get(to_station).is_some_and(|devices| devices.contains(&to_device));
        // All interfaces for frames are on one segment.
        (is_there && (to_device == UDP) == (sent.from.1 == UDP)).then_some((to_station, to_device))
    }

    fn pass(&mut self, sent: Sent) {
        let Some((station, device)) = self.receiver(&sent) else { return };
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(sent.clone());
        self.deliver(station, device, sent.bytes);
    }

    /// Delivers all that is on its way, and all that is sent in answer.
    fn deliver_all(&mut self) {
        for round in 0.. {
            let sent = std::mem::take(&mut *self.sent.borrow_mut());
            if sent.is_empty() {
                return;
            }
            assert!(round < 10, "probes are answered for ever");
            sent.into_iter().for_each(|sent| self.pass(sent));
        }
    }

    /// A probe of which a bit or more was changed behind its addresses has no effect.
    fn deliver_changed(&mut self, station: usize, input: &mut Input<'_>) {
        let Some(Sent { mut bytes, .. }) = self.seen(input) else { return };
        let is_probe = bytes[HEADER_BYTES - 1] == UI;
        let (at, changed) = (usize::from(input.byte()), input.byte());
        let at = HEADER_BYTES + at % (bytes.len() - HEADER_BYTES);
        bytes[at] ^= changed;
        let device = self.device(station, input);
        if is_probe && changed != 0 {
            self.deliver_without_effect(station, device, bytes);
        } else {
            self.deliver(station, device, bytes);
        }
    }

    /// Any bytes, or a probe with any contents, from any address.
    fn deliver_forged(&mut self, station: usize, input: &mut Input<'_>) {
        let device = self.device(station, input);
        let from = address(input.of(&[0, 1, 7]), input.of(&[0, 1, UDP, 9]));
        let form = input.byte();
        let length = usize::from(input.byte());
        let contents = input.take(length);
        let mut bytes = [&address(station, device).0[..], &from.0].concat();
        match form % 4 {
            0 => bytes.extend([&[0x88, 0x70, SAP, SAP, UI][..], PROBE, contents].concat()),
            1 => bytes.extend([&[0x88, 0x70, SAP, SAP, UI][..], PROBE, contents, &[0; 120]].concat()),
            2 => bytes.extend([&[0, 40, SAP, SAP, UI][..], contents].concat()),
            _ => bytes.extend([&[0x88, 0x70][..], contents].concat()),
        }
        self.deliver_without_effect(station, device, bytes);
    }

    fn deliver_without_effect(&mut self, station: usize, device: usize, bytes: Vec<u8>) {
        // What is due is asked now.
        self.poll(station);
        let other = (self.stations[1 - station].address(), SAP);
        let before = self.stations[station].carrier_to(other.0, other.1);
        let sent = self.sent.borrow().len();
        self.deliver(station, device, bytes);
        assert_eq!(self.stations[station].carrier_to(other.0, other.1), before, "a forged frame had an effect");
        assert_eq!(self.sent.borrow().len(), sent, "a forged frame was answered");
    }

    fn deliver(&mut self, station: usize, device: usize, bytes: Vec<u8>) {
        self.inbound[station][device].borrow_mut().push_back(bytes);
        self.poll(station);
    }

    /// A station receives all that is there; returns the numbers of the frames with data.
    fn poll(&mut self, station: usize) -> Vec<u32> {
        let waiting: usize = self.inbound[station].iter().map(|queue| queue.borrow().len()).sum();
        let sent = self.sent.borrow().len();
        let carriers = &mut self.stations[station];
        carriers.note_time(self.now);
        carriers.check().expect("the links work");
        let mut numbers = Vec::new();
        while let Some(frame) = carriers.receive() {
            let Some((header, body)) = frame.bytes.split_at_checked(HEADER_BYTES) else { continue };
            let control = header[HEADER_BYTES - 1];
            let is_probe = control == UI && body.starts_with(&PROBE[..4]);
            // A station with one interface and no socket asks nothing, and leaves probes to LLC.
            assert!(!is_probe || self.devices[station] == [0], "a probe was given to the station");
            if let (DATA, Some(number)) = (control, body.first_chunk()) {
                numbers.push(u32::from_be_bytes(*number));
            }
        }
        let left: usize = self.inbound[station].iter().map(|queue| queue.borrow().len()).sum();
        assert_eq!(left, 0, "a frame was left");
        let answers = self.sent.borrow().len() - sent;
        assert!(answers <= (1 + waiting) * ANSWERS_MAX, "{answers} frames in answer to {waiting}");
        numbers
    }

    /// The third party passes everything, once. Each station reaches the other.
    fn fall_silent(&mut self) {
        self.sent.borrow_mut().clear();
        for from in [0, 1] {
            self.name_peer(from);
        }
        let mut is_reached = [false; 2];
        for _ in 0..STEPS_MAX {
            for from in [0, 1] {
                self.send(from, 20);
                let last = self.number;
                while !self.sent.borrow().is_empty() {
                    let sent = self.sent.borrow_mut().remove(0);
                    let Some((station, device)) = self.receiver(&sent) else { continue };
                    self.inbound[station][device].borrow_mut().push_back(sent.bytes);
                    let arrived = self.poll(station);
                    is_reached[from] |= station != from && arrived.contains(&last);
                }
            }
            if is_reached == [true; 2] {
                return;
            }
            self.now += STEP_NS;
            (0..2).for_each(|station| drop(self.poll(station)));
        }
        panic!("not reached by the other: {is_reached:?}");
    }
}
