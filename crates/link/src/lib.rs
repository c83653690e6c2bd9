// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends and receives Ethernet frames.
//!
//! A [`Link`] moves opaque frames: it interprets addresses and lengths only. [`PacketLink`] works on every interface,
//! over AF_PACKET with a receive ring mapped into the program; [`XdpLink`] takes over a queue of an interface, with
//! AF_XDP; [`UdpLink`] carries the frames' contents in UDP datagrams; [`MemoryLink`] is a pair of ends in one process
//! that loses, duplicates, reorders, corrupts and delays frames on request.

mod address;
mod by_kind;
mod claim;
mod clock;
mod closing;
mod error;
mod fanout;
mod filter;
mod interface;
mod locator;
mod memory;
mod packet;
mod packet_socket;
mod restricted;
mod ring;
mod socket;
mod udp;
mod xdp;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use address::{MacAddress, ParseMacAddressError};
pub use claim::{Claim, Claimed};
pub use clock::Clock;
pub use closing::Closing;
pub use error::LinkError;
pub use fanout::FanoutGroup;
pub use filter::{Field, Filter};
pub use interface::{Interface, IpInterface, interface_speed};
pub use locator::Locator;
pub use memory::{Faults, MemoryLink};
pub use packet::{PacketConfig, PacketLink};
pub use restricted::Restricted;
pub use ring::RingGeometry;
pub use udp::{UdpConfig, UdpLink};
pub use xdp::{BusyPoll, XdpConfig, XdpLink, XdpMode};

/// Length of an Ethernet header without a VLAN tag: destination, source, EtherType or length.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Minimum length of an Ethernet frame without FCS; shorter frames are padded.
pub const MINIMUM_FRAME_BYTES: usize = 60;

/// One end of a link, which transmits with [`send`](Link::send) and receives with [`receive`](Link::receive).
///
/// Only the `wait` calls block, so the caller decides how to wait.
pub trait Link {
    /// This end's MAC address.
    fn address(&self) -> MacAddress;

    /// Largest payload of one frame, in bytes, without the Ethernet header.
    fn mtu(&self) -> usize;

    /// Submits frames for transmission, in order; returns the number of accepted frames.
    ///
    /// If not all are accepted, the link is busy: submit the rest again, after
    /// [`wait_to_send`](Link::wait_to_send) or at once.
    ///
    /// # Errors
    /// [`LinkError::FrameTooLong`] if the first frame not accepted exceeds the MTU; otherwise the
    /// system's error, such as [`LinkError::InterfaceDown`].
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError>;

    /// The next received frame, or `None` if there is none. Makes no system call, unless a zero-copy driver
    /// needs one.
    ///
    /// The frame is valid until the next call on this link.
    fn receive(&mut self) -> Option<Incoming<'_>>;

    /// Blocks until a frame can be received; `false` if `timeout` passed first.
    ///
    /// # Errors
    /// As [`check`](Link::check).
    fn wait_to_receive(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        self.wait_to_receive_or(&[], timeout)
    }

    /// Blocks until a frame can be received or one of `others` is readable; `false`
    /// if `timeout` passed first, or spuriously.
    ///
    /// # Errors
    /// As [`check`](Link::check).
    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError>;

    /// Blocks until a frame can be sent; `false` if `timeout` passed first.
    ///
    /// # Errors
    /// As [`check`](Link::check).
    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError>;

    /// Checks whether the link still works. Callers that spin must call it occasionally, since no ring shows
    /// that an interface is gone.
    ///
    /// # Errors
    /// [`LinkError::InterfaceDown`] once for each time that the interface went down, [`LinkError::InterfaceGone`].
    fn check(&mut self) -> Result<(), LinkError>;

    /// Counters since the link was opened.
    ///
    /// # Errors
    /// If the system does not report them.
    fn counters(&mut self) -> Result<Counters, LinkError>;

    /// Whether a peer with this address is on this host, as this end is.
    fn is_local(&self, peer: MacAddress) -> bool {
        peer == self.address()
    }

    /// What peers need besides this end's MAC address to send to it.
    fn locator(&self) -> Locator {
        Locator::FRAMES
    }

    /// Names the service access point of this end's station, and the key that peers present to it.
    fn set_station(&mut self, _sap: u8, _key: u64) {}

    /// Names a peer, before frames are sent to it.
    fn add_peer(&mut self, _peer: &PeerAddress) {}

    /// Largest payload in bytes of a frame that best goes to a peer at present, at most [`mtu`](Self::mtu). Less than
    /// [`mtu_min`](Self::mtu_min) if the path carries less; a longer frame then arrives in pieces.
    fn mtu_to(&mut self, _mac: MacAddress, _sap: u8) -> usize {
        self.mtu()
    }

    /// Largest payload in bytes of a frame to any peer.
    fn mtu_min(&self) -> usize {
        self.mtu()
    }

    /// Tells the time of the link's clock in nanoseconds, for links that must not spend time on reading it.
    fn note_time(&mut self, _nanoseconds: u64) {}

    /// When [`receive`](Self::receive) or [`send_due`](Self::send_due) must be called although no frame has arrived,
    /// because the link then sends frames of its own, in nanoseconds of its clock; `None` if there are none.
    fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// Sends the frames of its own that are due, as [`receive`](Self::receive) does, for callers that may not receive.
    fn send_due(&mut self) {}

    /// Whether frames were taken from the system and not received yet, so that sleeping on its descriptor would miss
    /// them.
    fn has_pending(&self) -> bool {
        false
    }

    /// The clock for users of this link: the system's, unless the link is simulated.
    fn clock(&self) -> Clock {
        Clock::default()
    }

    /// 64 unpredictable bits from the system, unless the link is simulated. Zero if the system has none.
    fn random_bits(&mut self) -> u64 {
        let mut bits = [0; 8];
        // SAFETY: pointer and length describe `bits`.
        unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), 0) };
        u64::from_ne_bytes(bits)
    }
}

/// A peer's address.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress {
    /// Its MAC address.
    pub mac: MacAddress,
    /// Its service access point.
    pub sap: u8,
    /// How to reach it.
    pub locator: Locator,
    /// The key to present to it.
    pub key: u64,
}

/// A frame to send, in two parts, so that the payload need not be copied behind the header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// The start of the frame, at least [`ETHERNET_HEADER_BYTES`] long.
    pub header: &'a [u8],
    /// The rest of the frame; may be empty.
    pub payload: &'a [u8],
    /// By what a network chooses the frame's path; 0: nothing. Below [`PORT_LABEL`] it is a VLAN identifier, with which
    /// a link that sends the frame as it is tags it; the header does not contain it. Else it is `PORT_LABEL` and the
    /// number of the source port with which a link by UDP sends the frame.
    pub label: u16,
}

/// The first label that is no VLAN identifier, but a port's.
pub const PORT_LABEL: u16 = 1 << 15;

impl Outgoing<'_> {
    /// The VLAN identifier to tag the frame with; 0: no tag.
    #[inline]
    #[must_use]
    pub const fn tag(&self) -> u16 {
        if self.label < PORT_LABEL { self.label } else { 0 }
    }

    /// Length of the frame in bytes, without padding, FCS and the label's tag.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Whether the frame has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The frame from the destination address on, without FCS and VLAN tag.
    pub bytes: &'a [u8],
    /// Length of the frame in bytes; more than the length of `bytes` if it was truncated.
    pub frame_bytes: usize,
    /// The VLAN tag, if the frame had one and the link was opened such that the kernel reports it.
    pub vlan: Option<VlanTag>,
}

impl Incoming<'_> {
    /// Whether the frame exceeded its slot in the ring and was truncated.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.bytes.len() < self.frame_bytes
    }
}

/// As [`Incoming`], with bytes that may be changed until the next call.
#[derive(Debug)]
pub struct IncomingMut<'a> {
    /// As in [`Incoming`].
    pub bytes: &'a mut [u8],
    /// As in [`Incoming`].
    pub frame_bytes: usize,
    /// As in [`Incoming`].
    pub vlan: Option<VlanTag>,
}

impl<'a> From<IncomingMut<'a>> for Incoming<'a> {
    #[inline]
    fn from(frame: IncomingMut<'a>) -> Self {
        let IncomingMut { bytes, frame_bytes, vlan } = frame;
        Self { bytes, frame_bytes, vlan }
    }
}

/// An IEEE 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Tag protocol identifier: 0x8100, or 0x88A8 for a service tag.
    pub protocol: u16,
    /// Tag control information: priority (3 bits), drop eligible (1), VLAN identifier (12).
    pub control: u16,
}

/// Counters of a link since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed to the caller.
    pub received: u64,
    /// Frames that passed the filter but were dropped because the receive ring was full.
    pub receive_dropped: u64,
    /// Frames handed to the caller truncated.
    pub truncated: u64,
    /// Frames accepted for transmission.
    pub sent: u64,
    /// Times that the link was too busy to accept a frame.
    pub send_busy: u64,
}
