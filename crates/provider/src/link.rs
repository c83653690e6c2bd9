// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link of an endpoint: frames, UDP or both, chosen at run time, or a simulated one.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use barewire_carriers::{Carriers, Lower};
use barewire_link::{
    Clock, Closing, Counters, Incoming, IncomingMut, Link, LinkError, Locator, MacAddress, Outgoing, PacketLink,
    PeerAddress, UdpLink, XdpLink,
};

use crate::simulation::SimulatedLink;

/// A link of any kind. The dispatch has no measurable cost for the packet link (`docs/performance.md`).
pub(crate) enum AnyLink {
    Carriers(Box<Carriers<FrameLink, UdpLink>>),
    Simulated(SimulatedLink),
}

/// A link for frames.
pub(crate) enum FrameLink {
    Packet(PacketLink),
    Xdp(Box<XdpLink>),
}

/// Implements the calls of a link by those of whichever link it is.
macro_rules! link_by_kind {
    ($type:ident: $($kind:ident)|+) => {
        impl Link for $type {
            fn address(&self) -> MacAddress {
                match self { $(Self::$kind(link) => link.address()),+ }
            }

            fn mtu(&self) -> usize {
                match self { $(Self::$kind(link) => link.mtu()),+ }
            }

            #[inline]
            fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
                match self { $(Self::$kind(link) => link.send(frames)),+ }
            }

            #[inline]
            fn receive(&mut self) -> Option<Incoming<'_>> {
                match self { $(Self::$kind(link) => link.receive()),+ }
            }

            fn wait_to_receive_or(
                &mut self,
                others: &[BorrowedFd<'_>],
                timeout: Duration,
            ) -> Result<bool, LinkError> {
                match self { $(Self::$kind(link) => link.wait_to_receive_or(others, timeout)),+ }
            }

            fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
                match self { $(Self::$kind(link) => link.wait_to_send(timeout)),+ }
            }

            fn check(&mut self) -> Result<(), LinkError> {
                match self { $(Self::$kind(link) => link.check()),+ }
            }

            fn counters(&mut self) -> Result<Counters, LinkError> {
                match self { $(Self::$kind(link) => link.counters()),+ }
            }

            fn is_local(&self, peer: MacAddress) -> bool {
                match self { $(Self::$kind(link) => link.is_local(peer)),+ }
            }

            fn locator(&self) -> Locator {
                match self { $(Self::$kind(link) => link.locator()),+ }
            }

            fn set_station(&mut self, sap: u8, key: u64) {
                match self { $(Self::$kind(link) => link.set_station(sap, key)),+ }
            }

            fn add_peer(&mut self, peer: &PeerAddress) {
                match self { $(Self::$kind(link) => link.add_peer(peer)),+ }
            }

            #[inline]
            fn mtu_to(&mut self, mac: MacAddress, sap: u8) -> usize {
                match self { $(Self::$kind(link) => link.mtu_to(mac, sap)),+ }
            }

            fn mtu_min(&self) -> usize {
                match self { $(Self::$kind(link) => link.mtu_min()),+ }
            }

            #[inline]
            fn note_time(&mut self, nanoseconds: u64) {
                match self { $(Self::$kind(link) => link.note_time(nanoseconds)),+ }
            }

            fn has_pending(&self) -> bool {
                match self { $(Self::$kind(link) => link.has_pending()),+ }
            }

            fn clock(&self) -> Clock {
                match self { $(Self::$kind(link) => link.clock()),+ }
            }

            fn random_bits(&mut self) -> u64 {
                match self { $(Self::$kind(link) => link.random_bits()),+ }
            }
        }
    };
}

link_by_kind!(AnyLink: Carriers | Simulated);
link_by_kind!(FrameLink: Packet | Xdp);

impl AnyLink {
    /// A link over these; at least one of them.
    /// Those for frames come with their interfaces' speeds in Mbit/s, the best first.
    pub fn new(frames: Vec<(FrameLink, u32)>, udp: Option<UdpLink>) -> Self {
        Self::Carriers(Box::new(Carriers::new(frames, udp)))
    }

    /// The descriptors that are readable when a frame is available.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (carriers, simulated) = match self {
            Self::Carriers(link) => (Some(link.descriptors()), None),
            Self::Simulated(link) => (None, Some(link.as_fd())),
        };
        carriers.into_iter().flatten().chain(simulated)
    }
}

/// Closes several links concurrently.
impl Drop for AnyLink {
    fn drop(&mut self) {
        if let Self::Carriers(link) = self {
            let mut links = link.take_frames();
            let first = links.next();
            let closing: Vec<Closing> = links.map(Closing::of).collect();
            drop((first, closing));
        }
    }
}

impl Lower for FrameLink {
    #[inline]
    fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        match self {
            Self::Packet(link) => link.send_to(to, frames),
            Self::Xdp(link) => link.send_to(to, frames),
        }
    }

    #[inline]
    fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        match self {
            Self::Packet(link) => link.receive_mut(),
            Self::Xdp(link) => link.receive_mut(),
        }
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let descriptor = match self {
            Self::Packet(link) => link.as_fd(),
            Self::Xdp(link) => link.as_fd(),
        };
        [Some(descriptor), None]
    }
}
