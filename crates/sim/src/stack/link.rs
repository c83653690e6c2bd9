// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank's devices: links whose frames the world moves, and a clock that the world sets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_carriers::{Carriers, Datagrams, INTERFACES_MAX, Lower};
use barewire_link::{
    Clock, Counters, ETHERNET_HEADER_BYTES, Incoming, IncomingMut, Link, LinkError, Locator, MacAddress, Outgoing,
};
use fastrand::Rng;

use super::topology::socket_address;

/// Number of a rank's device for datagrams; the others are its interfaces for frames.
pub const UDP: usize = INTERFACES_MAX;
/// Most devices of a rank.
pub const DEVICES: usize = INTERFACES_MAX + 1;
/// Payload of the longest datagram, which IP fragments.
const DATAGRAM_MAX: usize = 65_000;

/// The link of a rank.
pub type RankLink = Carriers<SimulatedLink, SimulatedLink>;

/// State shared by the world and a rank's links.
pub struct Interface {
    pub clock: Clock,
    pub devices: [Device; DEVICES],
    /// Frames sent in this call.
    pub outbound: Vec<Outbound>,
    /// Virtual time that the rank has spent in this call.
    pub ahead_ns: u64,
    /// Accepts no frame before this time of its clock.
    pub busy_until: Duration,
    /// Probability that a send finds the link busy.
    pub send_busy: f64,
    pub rng: Rng,
    pub counters: Counters,
}

/// A frame that a rank sends.
pub struct Outbound {
    /// Time since the call began.
    pub after_ns: u64,
    pub device: usize,
    pub label: u16,
    /// Whether others are sent with it, in one piece if the device carries batches fast.
    pub is_in_batch: bool,
    pub frame: Vec<u8>,
}

/// One of a rank's devices.
#[derive(Default)]
pub struct Device {
    /// Receive ring.
    pub inbound: VecDeque<Vec<u8>>,
    pub is_down: bool,
    /// The interface went down, and `check` has not reported it yet.
    pub went_down: bool,
    /// The interface was removed.
    pub is_gone: bool,
}

impl Interface {
    pub fn new(clock: Clock, send_busy: f64, rng: Rng) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            clock,
            devices: Default::default(),
            outbound: Vec::new(),
            ahead_ns: 0,
            busy_until: Duration::ZERO,
            send_busy,
            rng,
            counters: Counters::default(),
        }))
    }

    /// Advances the rank's clock.
    pub fn wait(&mut self, time: Duration) {
        self.ahead_ns += time.as_nanos() as u64;
        self.clock.set(self.clock.now() + time);
    }

    /// Whether a received frame waits. The socket of an interface that is gone was closed.
    pub fn has_frames(&self) -> bool {
        self.devices.iter().any(|device| !device.inbound.is_empty() && !device.is_gone)
    }

    /// Takes a device down, or all of them.
    pub fn go_down(&mut self, only: Option<usize>) {
        for (number, device) in self.devices.iter_mut().enumerate() {
            if only.is_none_or(|only| only == number) {
                (device.is_down, device.went_down) = (true, true);
            }
        }
    }
}

/// A rank's end of a simulated network: of frames or, as its device for datagrams, of IP.
pub struct SimulatedLink {
    interface: Rc<RefCell<Interface>>,
    device: usize,
    address: MacAddress,
    mtu: usize,
    locator: Locator,
    is_fast_in_batches: bool,
    /// The frame lent to the caller of `receive`.
    current: Vec<u8>,
}

impl SimulatedLink {
    /// `locator`: that of a device for datagrams.
    pub fn new(
        interface: &Rc<RefCell<Interface>>,
        device: usize,
        address: MacAddress,
        mtu: usize,
        locator: Locator,
    ) -> Self {
        Self {
            interface: Rc::clone(interface),
            device,
            address,
            mtu,
            locator,
            is_fast_in_batches: false,
            current: Vec::new(),
        }
    }

    /// The same link; sets whether it carries batches faster than the links for frames.
    pub fn with_batches(self, is_fast_in_batches: bool) -> Self {
        Self { is_fast_in_batches, ..self }
    }

    /// An interface for frames that is down or gone refuses them; a socket loses them.
    fn is_usable(&self, interface: &Interface) -> Result<bool, LinkError> {
        let device = &interface.devices[self.device];
        match (device.is_gone, device.is_down) {
            (true, _) => Err(LinkError::InterfaceGone("simulated".to_owned())),
            (_, true) if self.device != UDP => Err(LinkError::InterfaceDown("simulated".to_owned())),
            (_, is_down) => Ok(!is_down),
        }
    }

    fn send_as(&mut self, ends: Option<[MacAddress; 2]>, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let mut interface = self.interface.borrow_mut();
        let is_up = self.is_usable(&interface)?;
        let longest = if self.device == UDP { DATAGRAM_MAX } else { self.mtu };
        for (taken, frame) in frames.iter().enumerate() {
            if frame.len() > longest + ETHERNET_HEADER_BYTES {
                return Err(LinkError::FrameTooLong { frame_bytes: frame.len(), mtu: longest });
            }
            let send_busy = interface.send_busy;
            if interface.clock.now() < interface.busy_until || send_busy > 0.0 && interface.rng.f64() < send_busy {
                interface.counters.send_busy += 1;
                return Ok(taken);
            }
            let after_ns = interface.ahead_ns;
            let mut bytes = [frame.header, frame.payload].concat();
            if let Some([to, from]) = ends {
                bytes[..6].copy_from_slice(&to.0);
                bytes[6..12].copy_from_slice(&from.0);
            }
            if is_up {
                let is_in_batch = self.is_fast_in_batches && frames.len() > 1;
                let (device, label) = (self.device, frame.label);
                interface.outbound.push(Outbound { after_ns, device, label, is_in_batch, frame: bytes });
            }
            interface.counters.sent += 1;
        }
        Ok(frames.len())
    }

    fn take(&mut self) -> Option<()> {
        let mut interface = self.interface.borrow_mut();
        self.current = interface.devices[self.device].inbound.pop_front()?;
        interface.counters.received += 1;
        Some(())
    }
}

impl Link for SimulatedLink {
    fn address(&self) -> MacAddress {
        self.address
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.send_as(None, frames)
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.receive_mut().map(Incoming::from)
    }

    /// Does not block: advances the clock by the timeout unless a frame is there. The world wakes sleeping ranks.
    fn wait_to_receive_or(&mut self, _: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        let mut interface = self.interface.borrow_mut();
        self.is_usable(&interface)?;
        let has_frame = interface.has_frames();
        if !has_frame {
            interface.wait(timeout);
        }
        Ok(has_frame)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let mut interface = self.interface.borrow_mut();
        self.is_usable(&interface)?;
        let left = interface.busy_until.saturating_sub(interface.clock.now());
        // A randomly busy link stays busy for 1 µs.
        interface.wait(left.max(Duration::from_micros(1)).min(timeout));
        Ok(left <= timeout)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        let mut interface = self.interface.borrow_mut();
        let device = &mut interface.devices[self.device];
        if device.is_gone {
            return Err(LinkError::InterfaceGone("simulated".to_owned()));
        }
        if std::mem::take(&mut device.went_down) && self.device != UDP {
            return Err(LinkError::InterfaceDown("simulated".to_owned()));
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(self.interface.borrow().counters)
    }

    /// A socket's peer with the same IP address is on its host.
    fn is_local(&self, peer: MacAddress) -> bool {
        if self.device == UDP { peer.0[2..] == self.address.0[2..] } else { peer == self.address }
    }

    fn locator(&self) -> Locator {
        self.locator
    }

    fn clock(&self) -> Clock {
        self.interface.borrow().clock.clone()
    }

    fn random_bits(&mut self) -> u64 {
        self.interface.borrow_mut().rng.u64(..)
    }
}

impl Lower for SimulatedLink {
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.send_as(Some([to, self.address]), frames)
    }

    fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        self.take()?;
        Some(IncomingMut { frame_bytes: self.current.len(), bytes: &mut self.current, vlan: None })
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None; 2]
    }
}

impl Datagrams for SimulatedLink {
    fn address_of(&mut self, ip: IpAddr, port: u16) -> Option<MacAddress> {
        match ip {
            IpAddr::V4(ip) => Some(socket_address(ip, port)),
            IpAddr::V6(_) => None,
        }
    }

    fn batching_peers(&self) -> usize {
        if self.is_fast_in_batches { usize::MAX } else { 0 }
    }
}
