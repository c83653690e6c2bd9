// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank's interface: a link whose frames the world moves, and whose clock the world sets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_link::{Clock, Counters, ETHERNET_HEADER_BYTES, Incoming, Link, LinkError, MacAddress, Outgoing};
use fastrand::Rng;

/// What the world and a rank's link share.
pub struct Interface {
    pub clock: Clock,
    /// What has come and was not taken.
    pub inbound: VecDeque<Vec<u8>>,
    /// What was sent, and how long after the call began.
    pub outbound: Vec<(u64, Vec<u8>)>,
    /// For how long the rank has waited in this call.
    pub ahead_ns: u64,
    pub is_down: bool,
    /// Nobody was told yet that it went down.
    pub went_down: bool,
    /// Takes no frame before the clock says so.
    pub busy_until: Duration,
    /// Probability that it takes no frame.
    pub refusal: f64,
    pub rng: Rng,
    pub counters: Counters,
}

impl Interface {
    pub fn new(clock: Clock, refusal: f64, rng: Rng) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            clock,
            inbound: VecDeque::new(),
            outbound: Vec::new(),
            ahead_ns: 0,
            is_down: false,
            went_down: false,
            busy_until: Duration::ZERO,
            refusal,
            rng,
            counters: Counters::default(),
        }))
    }

    fn wait(&mut self, time: Duration) {
        self.ahead_ns += time.as_nanos() as u64;
        self.clock.set(self.clock.now() + time);
    }

    fn check(&self) -> Result<(), LinkError> {
        if self.is_down { Err(LinkError::InterfaceDown("simulated".to_owned())) } else { Ok(()) }
    }
}

/// A rank's end of the simulated network.
pub struct SimulatedLink {
    interface: Rc<RefCell<Interface>>,
    address: MacAddress,
    mtu: usize,
    /// The frame that is lent.
    lent: Vec<u8>,
}

impl SimulatedLink {
    pub fn new(interface: &Rc<RefCell<Interface>>, address: MacAddress, mtu: usize) -> Self {
        Self { interface: Rc::clone(interface), address, mtu, lent: Vec::new() }
    }

    pub fn has_frames(&self) -> bool {
        !self.interface.borrow().inbound.is_empty()
    }

    /// Time passes for the rank while it computes.
    pub fn pass(&self, time: Duration) {
        self.interface.borrow_mut().wait(time);
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
        let mut interface = self.interface.borrow_mut();
        interface.check()?;
        for (taken, frame) in frames.iter().enumerate() {
            if frame.len() > self.mtu + ETHERNET_HEADER_BYTES {
                return Err(LinkError::FrameTooLong { frame_bytes: frame.len(), mtu: self.mtu });
            }
            let refusal = interface.refusal;
            if interface.clock.now() < interface.busy_until || refusal > 0.0 && interface.rng.f64() < refusal {
                interface.counters.send_busy += 1;
                return Ok(taken);
            }
            let after = interface.ahead_ns;
            interface.outbound.push((after, [frame.header, frame.payload].concat()));
            interface.counters.sent += 1;
        }
        Ok(frames.len())
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        let mut interface = self.interface.borrow_mut();
        self.lent = interface.inbound.pop_front()?;
        interface.counters.received += 1;
        drop(interface);
        Some(Incoming { bytes: &self.lent, frame_bytes: self.lent.len(), vlan: None })
    }

    /// The world wakes ranks that sleep; a call that waits comes back at once.
    fn wait_to_receive_or(&mut self, _: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        let mut interface = self.interface.borrow_mut();
        interface.check()?;
        let is_there = !interface.inbound.is_empty();
        if !is_there {
            interface.wait(timeout);
        }
        Ok(is_there)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let mut interface = self.interface.borrow_mut();
        interface.check()?;
        let left = interface.busy_until.saturating_sub(interface.clock.now());
        // A link that is busy by chance is so for a moment.
        interface.wait(left.max(Duration::from_micros(1)).min(timeout));
        Ok(left <= timeout)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        let mut interface = self.interface.borrow_mut();
        if std::mem::take(&mut interface.went_down) {
            return Err(LinkError::InterfaceDown("simulated".to_owned()));
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(self.interface.borrow().counters)
    }

    fn clock(&self) -> Clock {
        self.interface.borrow().clock.clone()
    }

    fn random_bits(&mut self) -> u64 {
        self.interface.borrow_mut().rng.u64(..)
    }
}
