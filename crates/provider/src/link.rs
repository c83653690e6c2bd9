// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link of an endpoint: frames, UDP or both, chosen at run time, or a simulated one.

use std::os::fd::{AsFd, BorrowedFd};

use barewire_carriers::{Carriers, Lower};
use barewire_link::{Closing, IncomingMut, LinkError, MacAddress, Outgoing, PacketLink, UdpLink, XdpLink};

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

barewire_link::link_by_kind!(AnyLink: Carriers | Simulated);
barewire_link::link_by_kind!(FrameLink: Packet | Xdp);

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
