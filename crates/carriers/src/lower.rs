// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The links below [`Carriers`](crate::Carriers).

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use barewire_link::{IncomingMut, Link, LinkError, MacAddress, Outgoing, UdpLink};

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

    /// Number of peers from which this link can receive batches of long frames at the same time without loss; 0 if it
    /// is no faster than frames. It is faster where the kernel handles a batch in one piece.
    fn batching_peers(&self) -> usize;

    /// The address of the station to which a socket belongs, if datagrams leave from several: that of the one that
    /// receives.
    fn station_of(&self, from: MacAddress) -> MacAddress {
        from
    }

    /// Chooses the source address of datagrams to this socket anew, by the current route, if this link has several. A
    /// link that looks up the route of each datagram has nothing to do.
    fn reroute(&mut self, _to: MacAddress) {}
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

    fn batching_peers(&self) -> usize {
        UdpLink::batching_peers(self)
    }

    #[inline]
    fn station_of(&self, from: MacAddress) -> MacAddress {
        UdpLink::station_of(self, from)
    }

    fn reroute(&mut self, to: MacAddress) {
        UdpLink::reroute(self, to);
    }
}
