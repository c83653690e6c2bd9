// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank's interface: a link whose frames the world moves, and a clock that the world sets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_link::{Clock, Counters, ETHERNET_HEADER_BYTES, Incoming, Link, LinkError, MacAddress, Outgoing};
use fastrand::Rng;

/// State shared by the world and a rank's link.
pub struct Interface {
    pub clock: Clock,
    /// Receive ring.
    pub inbound: VecDeque<Vec<u8>>,
    /// Frames sent in this call, each with the time since the call began.
    pub outbound: Vec<(u64, Vec<u8>)>,
    /// Virtual time that the rank has spent in this call.
    pub ahead_ns: u64,
    pub is_down: bool,
    /// The interface went down, and `check` has not reported it yet.
    pub went_down: bool,
    /// Accepts no frame before this time of its clock.
    pub busy_until: Duration,
    /// Probability that a send finds the link busy.
    pub send_busy: f64,
    pub rng: Rng,
    pub counters: Counters,
}

impl Interface {
    pub fn new(clock: Clock, send_busy: f64, rng: Rng) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            clock,
            inbound: VecDeque::new(),
            outbound: Vec::new(),
            ahead_ns: 0,
            is_down: false,
            went_down: false,
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

    fn check(&self) -> Result<(), LinkError> {
        if self.is_down { Err(LinkError::InterfaceDown("simulated".to_owned())) } else { Ok(()) }
    }
}

/// A rank's end of the simulated network.
pub struct SimulatedLink {
    interface: Rc<RefCell<Interface>>,
    address: MacAddress,
    mtu: usize,
    /// The frame lent to the caller of `receive`.
    current: Vec<u8>,
}

impl SimulatedLink {
    pub fn new(interface: &Rc<RefCell<Interface>>, address: MacAddress, mtu: usize) -> Self {
        Self { interface: Rc::clone(interface), address, mtu, current: Vec::new() }
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
            let send_busy = interface.send_busy;
            if interface.clock.now() < interface.busy_until || send_busy > 0.0 && interface.rng.f64() < send_busy {
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
        self.current = interface.inbound.pop_front()?;
        interface.counters.received += 1;
        drop(interface);
        Some(Incoming { bytes: &self.current, frame_bytes: self.current.len(), vlan: None })
    }

    /// Does not block: advances the clock by the timeout unless a frame is there. The world wakes sleeping ranks.
    fn wait_to_receive_or(&mut self, _: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        let mut interface = self.interface.borrow_mut();
        interface.check()?;
        let has_frame = !interface.inbound.is_empty();
        if !has_frame {
            interface.wait(timeout);
        }
        Ok(has_frame)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let mut interface = self.interface.borrow_mut();
        interface.check()?;
        let left = interface.busy_until.saturating_sub(interface.clock.now());
        // A randomly busy link stays busy for 1 µs.
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
