// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet, XDP or UDP link, chosen at run time, or a simulated one.

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use barewire_link::{Clock, Counters, Incoming, Link, LinkError, MacAddress, Outgoing, PacketLink, UdpLink, XdpLink};

use crate::simulation::SimulatedLink;

/// A link of any kind. The dispatch has no measurable cost for the packet link (`docs/performance.md`).
pub(crate) enum AnyLink {
    Packet(PacketLink),
    Xdp(Box<XdpLink>),
    Udp(Box<UdpLink>),
    Simulated(SimulatedLink),
}

macro_rules! either {
    ($self:expr, $link:ident => $call:expr) => {
        match $self {
            Self::Packet($link) => $call,
            Self::Xdp($link) => $call,
            Self::Udp($link) => $call,
            Self::Simulated($link) => $call,
        }
    };
}

impl AnyLink {
    /// The descriptors that are readable when a frame is available.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let second = if let Self::Udp(link) = self { link.partner_descriptor() } else { None };
        [Some(self.as_fd()), second].into_iter().flatten()
    }
}

impl Link for AnyLink {
    fn address(&self) -> MacAddress {
        either!(self, link => link.address())
    }

    fn mtu(&self) -> usize {
        either!(self, link => link.mtu())
    }

    #[inline]
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        either!(self, link => link.send(frames))
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        either!(self, link => link.receive())
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        either!(self, link => link.wait_to_receive_or(others, timeout))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        either!(self, link => link.wait_to_send(timeout))
    }

    fn check(&mut self) -> Result<(), LinkError> {
        either!(self, link => link.check())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        either!(self, link => link.counters())
    }

    fn is_local(&self, peer: MacAddress) -> bool {
        either!(self, link => link.is_local(peer))
    }

    fn locator(&self) -> Ipv6Addr {
        either!(self, link => link.locator())
    }

    fn add_peer(&mut self, peer: MacAddress, locator: Ipv6Addr) {
        either!(self, link => link.add_peer(peer, locator));
    }

    fn has_pending(&self) -> bool {
        either!(self, link => link.has_pending())
    }

    fn clock(&self) -> Clock {
        either!(self, link => link.clock())
    }

    fn random_bits(&mut self) -> u64 {
        either!(self, link => link.random_bits())
    }
}

impl AsFd for AnyLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, link => link.as_fd())
    }
}
