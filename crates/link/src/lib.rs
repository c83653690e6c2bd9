// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet frames in and out of a program.
//!
//! A [`Link`] moves opaque frames: it knows addresses and lengths, and nothing of what a frame
//! carries. [`PacketLink`] is for every interface, over AF_PACKET with a receive ring mapped into the
//! program; [`XdpLink`] takes a queue of an interface for itself, over AF_XDP; [`MemoryLink`] is a pair of ends in one process that loses, duplicates, reorders,
//! corrupts and delays on request.

mod address;
mod claim;
mod clock;
mod error;
mod fanout;
mod filter;
mod interface;
mod memory;
mod packet;
mod packet_socket;
mod restricted;
mod ring;
mod socket;
mod xdp;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use address::{MacAddress, ParseMacAddressError};
pub use claim::{Claim, Claimed};
pub use clock::Clock;
pub use error::LinkError;
pub use fanout::FanoutGroup;
pub use filter::{Field, Filter};
pub use interface::Interface;
pub use memory::{Faults, MemoryLink};
pub use packet::{PacketConfig, PacketLink};
pub use restricted::Restricted;
pub use ring::RingGeometry;
pub use xdp::{BusyPoll, XdpConfig, XdpLink, XdpMode};

/// Bytes of an Ethernet header without a VLAN tag: destination, source, EtherType or length.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Shortest frame that an Ethernet carries, without its frame check sequence; shorter ones are padded.
pub const MINIMUM_FRAME_BYTES: usize = 60;

/// One end of a link: frames go out with [`send`](Link::send) and come in with [`receive`](Link::receive).
///
/// Nothing here blocks except the two `wait` calls, so a caller decides how to wait.
pub trait Link {
    /// This end's own address.
    fn address(&self) -> MacAddress;

    /// Largest payload of one frame, in bytes, without the Ethernet header.
    fn mtu(&self) -> usize;

    /// Hands frames over for transmission, in order; returns how many were taken.
    ///
    /// Fewer than given means that the link is busy: offer the rest again, after
    /// [`wait_to_send`](Link::wait_to_send) or at once.
    ///
    /// # Errors
    /// [`LinkError::FrameTooLong`] if the first frame not taken exceeds the MTU; otherwise what the
    /// system says, such as [`LinkError::InterfaceDown`].
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError>;

    /// The next frame that has arrived, or `None` if there is none now. Makes no system call, unless a driver
    /// that shares its memory asks for one.
    ///
    /// The frame is lent until the next call on this link.
    fn receive(&mut self) -> Option<Incoming<'_>>;

    /// Blocks until a frame can be received; `false` if `timeout` passed first.
    ///
    /// # Errors
    /// As [`check`](Link::check).
    fn wait_to_receive(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        self.wait_to_receive_or(&[], timeout)
    }

    /// Blocks until a frame can be received or one of `others` can be read, for callers that sleep for both; `false`
    /// if `timeout` passed first, or without a reason.
    ///
    /// # Errors
    /// As [`check`](Link::check).
    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError>;

    /// Blocks until a frame can be sent; `false` if `timeout` passed first.
    ///
    /// # Errors
    /// As [`check`](Link::check).
    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError>;

    /// Asks whether the link still works. A caller that spins calls this now and then, because an
    /// interface that vanishes shows in no ring.
    ///
    /// # Errors
    /// [`LinkError::InterfaceDown`] once for each time that the interface went down, [`LinkError::InterfaceGone`].
    fn check(&mut self) -> Result<(), LinkError>;

    /// What has passed so far.
    ///
    /// # Errors
    /// Where the system refuses to tell.
    fn counters(&mut self) -> Result<Counters, LinkError>;

    /// The clock that users of this link go by: the system's, unless the link is simulated.
    fn clock(&self) -> Clock {
        Clock::default()
    }

    /// 64 bits that nobody else can guess: the system's, unless the link is simulated. Should the system have none, they
    /// are zero.
    fn random_bits(&mut self) -> u64 {
        let mut bits = [0; 8];
        // SAFETY: pointer and length describe `bits`.
        unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), 0) };
        u64::from_ne_bytes(bits)
    }
}

/// A frame to send, in two parts so that a payload need not be copied behind its header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// From the destination address on; at least [`ETHERNET_HEADER_BYTES`] long.
    pub header: &'a [u8],
    /// What follows; may be empty.
    pub payload: &'a [u8],
}

impl Outgoing<'_> {
    /// Bytes of the whole frame, without padding and frame check sequence.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Whether there is no byte to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A frame that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// From the destination address on, without frame check sequence, the VLAN tag taken out.
    pub bytes: &'a [u8],
    /// Length that the frame had, in bytes; more than `bytes` holds if it was truncated.
    pub frame_bytes: usize,
    /// The VLAN tag, if the frame had one and the link was opened so that the kernel tells.
    pub vlan: Option<VlanTag>,
}

impl Incoming<'_> {
    /// Whether the frame was longer than its place in the ring and lost its end.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.bytes.len() < self.frame_bytes
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

/// What passed through a link since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed to the caller.
    pub received: u64,
    /// Frames that arrived and passed the filter, but found the receive ring full.
    pub receive_dropped: u64,
    /// Frames handed to the caller without their end.
    pub truncated: u64,
    /// Frames taken for transmission.
    pub sent: u64,
    /// Times that the link was too busy to take a frame.
    pub send_busy: u64,
}
