// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UDP: a link for peers behind routers, for networks that pass no other EtherTypes than IP's, and for users without
//! privileges. Each frame's content travels as one datagram to the peer's address.
//!
//! ```text
//! frame     | destination 6 | source 6 | length or EtherType 2 | payload … |
//! datagram                             | length or EtherType 2 | payload … |
//! station   | port 2 | IPv4 address 4, or hash of the IPv6 address |
//! ```
//!
//! Both station addresses follow from the datagram's socket addresses ([`UdpLink::address`]), so no datagram carries
//! them, and a datagram whose addresses were translated (NAT) fails the check of its frame.
//!
//! Routers with equal-cost paths choose one by a datagram's ports. So a link may have several source ports, a block of
//! a power of two, whose first receives for all of them and names the station; a frame's label chooses one.

mod address;
mod partner;
mod received;
mod sockets;
mod sources;

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::interface::{IpInterface, interface_speed, system};
use crate::socket::{self, get_option, set_option};
use crate::{
    Counters, ETHERNET_HEADER_BYTES, Incoming, IncomingMut, Link, LinkError, Locator, MacAddress, Outgoing, PeerAddress,
};
use address::{Peers, SocketAddress, station};
use partner::{Change, Partnership};
use received::{Received, Source};
use sockets::{bound, connect, connected, dropped, own, set_up};
use sources::{by_source, source_of};

/// Ethernet addresses of a frame, which no datagram carries.
const ADDRESSES: usize = 12;
/// Length or EtherType.
const TYPE_BYTES: usize = ETHERNET_HEADER_BYTES - ADDRESSES;
const UDP_HEADER_BYTES: usize = 8;
const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;
/// Longest UDP payload over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Maximum number of datagrams into which the kernel cuts one send (`UDP_MAX_SEGMENTS` of older kernels).
const SEGMENTS_MAX: usize = 64;
/// Speed in Mbit/s from which batches by UDP are faster than frames: below, both fill the wire, and UDP's headers cost
/// more.
const FAST: u32 = 10_000;
/// What batches of one peer take of a socket's buffer: a window of 63 frames of 1500 bytes, and the kernel's own data.
const BATCHES_BYTES: usize = 128 << 10;
/// After this many frames to a peer whose path needs smaller datagrams, segmentation is tried again.
const SINGLY_SENT_MAX: u32 = 1 << 16;

/// Configuration of a [`UdpLink`].
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The interface's name. Its first IPv4 address is used or, if it has none, its first IPv6 address.
    pub interface: String,
    /// Other interfaces, whose addresses of the same IP version peers may use as well; with any, all of the host's.
    pub others: Vec<IpInterface>,
    /// Ports to choose from, those with an even high byte; `None`: any that the system offers.
    pub ports: Option<RangeInclusive<u16>>,
    /// From how many ports datagrams leave, by their labels: a power of two, at most 64. The same for all stations.
    pub sources: u16,
}

/// A link over one UDP socket for all peers. Needs no privileges.
pub struct UdpLink {
    /// For all peers.
    source: Source,
    /// For one of them at a time.
    partnership: Partnership,
    /// Sockets at the ports that follow the station's own, which only send: one less than a power of two.
    senders: Vec<OwnedFd>,
    interface: IpInterface,
    /// The addresses at which peers may reach this.
    ips: Vec<IpAddr>,
    address: MacAddress,
    peers: Peers,
    received: Received,
    counters: Counters,
    /// The content of frames to send.
    copy_buffer: Box<[u8]>,
    /// Whether the kernel cuts sends into datagrams for this route's interface.
    can_segment: bool,
    /// Number of peers for whose batches the socket has room; 0 if batches are not faster on this interface.
    batching_peers: usize,
    /// The socket that last had no room for a send is the partner's, or that of a source port.
    is_partner_full: bool,
    full_source: usize,
    /// Peers whose path takes no datagrams of the length last tried, with the number of frames sent singly since.
    singly: Vec<(MacAddress, u32)>,
}

impl UdpLink {
    /// Opens a socket on the interface's address.
    ///
    /// # Errors
    /// [`LinkError::NoSuchInterface`], [`LinkError::NoIpAddress`], [`LinkError::NoPort`], or the system's error.
    pub fn open(config: &UdpConfig) -> Result<Self, LinkError> {
        let interface = IpInterface::by_name(&config.interface)?;
        let failed = |operation| {
            let name = interface.name.clone();
            move |source| system(operation, &name, source)
        };
        let is_same_version = |other: &&IpInterface| other.ip.is_ipv4() == interface.ip.is_ipv4();
        let others = config.others.iter().filter(is_same_version).map(|other| other.ip);
        let ips: Vec<IpAddr> = std::iter::once(interface.ip).chain(others).collect();
        let any = if interface.ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let at = if ips.len() > 1 { any } else { interface.ip };
        let mut sockets = bound(&interface, at, config.ports.as_ref(), config.sources)?.into_iter();
        let Some(socket) = sockets.next() else { unreachable!("one source at least") };
        set_up(&socket, &interface)?;
        let senders: Vec<OwnedFd> = sockets.collect();
        for sender in &senders {
            set_up(sender, &interface)?;
            // Nobody sends to them.
            set_option(sender, libc::SOL_SOCKET, libc::SO_RCVBUF, &0).map_err(failed("SO_RCVBUF"))?;
        }
        let (_, port) = own(&socket).map_err(failed("getsockname"))?;
        let received: libc::c_int =
            get_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF).map_err(failed("SO_RCVBUF"))?;
        let received = usize::try_from(received).unwrap_or(0);
        Ok(Self {
            source: Source::new(socket, None),
            partnership: Partnership::new(),
            senders,
            address: station(interface.ip, port),
            ips,
            peers: Peers::new(interface.index.cast_unsigned()),
            batching_peers: if interface.segments() && is_fast(&interface.name) { received / BATCHES_BYTES } else { 0 },
            interface,
            received: Received::new(),
            counters: Counters::default(),
            copy_buffer: vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice(),
            can_segment: true,
            is_partner_full: false,
            full_source: 0,
            singly: Vec::new(),
        })
    }

    /// Largest payload of a frame, in bytes, whose datagram fits one packet of an interface.
    #[must_use]
    pub fn mtu_on(interface: &IpInterface) -> usize {
        let headers = if interface.ip.is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
        let datagram = interface.mtu.saturating_sub(headers + UDP_HEADER_BYTES).min(DATAGRAM_BYTES_MAX);
        datagram.saturating_sub(TYPE_BYTES)
    }

    /// The address of a socket, to which frames can be sent afterwards; `None` if its IP version is not this link's.
    pub fn address_of(&mut self, ip: IpAddr, port: u16) -> Option<MacAddress> {
        match (ip, self.interface.ip) {
            (ip @ IpAddr::V4(_), IpAddr::V4(_)) => Some(station(ip, port)),
            (IpAddr::V6(ip), IpAddr::V6(_)) if !ip.is_unspecified() => {
                let peer = station(ip.into(), port);
                self.peers.add(peer, ip);
                Some(peer)
            }
            _ => None,
        }
    }

    /// Number of peers from which this link can receive batches of long frames at the same time without loss; 0 if it
    /// is no faster than a link for frames. It is faster if the interface takes several frames in one piece, and is
    /// fast or of unknown speed.
    #[must_use]
    pub fn batching_peers(&self) -> usize {
        if self.can_segment { self.batching_peers } else { 0 }
    }

    /// The descriptor to wait on besides the link's own, if any.
    #[must_use]
    pub fn partner_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.partnership.partner.as_ref().map(|partner| partner.source.socket.as_fd())
    }

    /// The station of a socket's block of ports, by the first of them.
    #[inline]
    #[must_use]
    pub const fn station_of(&self, from: MacAddress) -> MacAddress {
        let MacAddress([p0, p1, a, b, c, d]) = from;
        MacAddress([p0, p1 & !(self.senders.len() as u8), a, b, c, d])
    }

    /// The number of the port from which a frame leaves.
    #[inline]
    const fn source_of(&self, frame: &Outgoing<'_>) -> usize {
        source_of(frame, self.senders.len())
    }

    /// The socket of a port for all peers, and the one that is connected to this peer, if there is one at that port.
    #[inline]
    fn sockets_to(&self, peer: MacAddress, source: usize) -> (&OwnedFd, Option<&OwnedFd>) {
        match source.checked_sub(1) {
            None => (&self.source.socket, self.partnership.socket_to(peer)),
            Some(number) => (&self.senders[number], None),
        }
    }

    /// Chooses the source address of datagrams to a peer anew, by the current route. The partner's socket keeps the
    /// source address that it had when it was connected, so it is given up, and another one is opened later.
    #[cold]
    pub fn reroute(&mut self, peer: MacAddress) {
        if self.ips.len() > 1 && self.partnership.socket_to(peer).is_some() {
            self.leave_partner();
        }
    }

    /// Copies the content of frames into one piece, and returns its length. The kernel takes longer to gather a batch
    /// from the frames' parts than the copy does (`docs/notebook`).
    #[inline]
    fn copy(&mut self, frames: &[Outgoing<'_>]) -> usize {
        let mut end = 0;
        for frame in frames {
            for bytes in [&frame.header[ADDRESSES..], frame.payload] {
                barewire_copy::copy(bytes, &mut self.copy_buffer[end..end + bytes.len()]);
                end += bytes.len();
            }
        }
        end
    }

    /// Sends one frame as one datagram; without libc, as [`Received::fill`].
    #[inline]
    fn send_one(&mut self, frame: &Outgoing<'_>, peer: MacAddress, to: &SocketAddress) -> io::Result<()> {
        let datagram = if frame.payload.is_empty() {
            &frame.header[ADDRESSES..]
        } else {
            let bytes = self.copy(std::slice::from_ref(frame));
            &self.copy_buffer[..bytes]
        };
        let (start, bytes, flags) = (datagram.as_ptr(), datagram.len(), libc::MSG_DONTWAIT);
        let sent = match self.sockets_to(peer, self.source_of(frame)) {
            (_, Some(socket)) => {
                let (socket, nowhere) = (socket.as_raw_fd(), ptr::null::<SocketAddress>());
                // SAFETY: pointer and length describe `datagram`.
                unsafe { libc::syscall(libc::SYS_sendto, socket, start, bytes, flags, nowhere, 0) }
            }
            (socket, None) => {
                let (socket, address) = (socket.as_raw_fd(), ptr::from_ref(to));
                // SAFETY: pointers and lengths describe `datagram` and `to`.
                unsafe { libc::syscall(libc::SYS_sendto, socket, start, bytes, flags, address, to.bytes()) }
            }
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends frames to one peer, from the port of the first, with one system call, cut by the kernel into datagrams of
    /// `segment_bytes`.
    fn send_segments(
        &mut self,
        frames: &[Outgoing<'_>],
        peer: MacAddress,
        to: &SocketAddress,
        segment_bytes: usize,
    ) -> io::Result<()> {
        let mut part = libc::iovec { iov_len: self.copy(frames), iov_base: self.copy_buffer.as_mut_ptr().cast() };
        let mut control = SegmentControl::of(segment_bytes as u16);
        // SAFETY: zeros are valid for this plain C structure.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        let (socket, connected) = self.sockets_to(peer, frames.first().map_or(0, |frame| self.source_of(frame)));
        if connected.is_none() {
            message.msg_name = ptr::from_ref(to).cast_mut().cast();
            message.msg_namelen = to.bytes();
        }
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<SegmentControl>() as _;
        let socket = connected.unwrap_or(socket).as_raw_fd();
        // SAFETY: the message points to the copy, an address and a control message, which outlive the call and are only
        // read.
        let sent = unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends frames to one peer, whatever their headers say; otherwise as [`Link::send`].
    ///
    /// # Errors
    /// As [`Link::send`].
    #[inline]
    pub fn send_to(&mut self, peer: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        // The peer is unknown: the frames are lost, as on a wire.
        let Some(to) = self.peers.find(peer, self.interface.ip.is_ipv4()) else { return Ok(frames.len()) };
        if self.senders.is_empty() || frames.len() == 1 {
            self.send_from_one(peer, &to, frames)
        } else {
            let last = self.senders.len();
            by_source(frames, last, |together| self.send_from_one(peer, &to, together))
        }
    }

    /// Sends frames to one peer from one port.
    #[inline]
    fn send_from_one(
        &mut self,
        peer: MacAddress,
        to: &SocketAddress,
        frames: &[Outgoing<'_>],
    ) -> Result<usize, LinkError> {
        let mtu = self.mtu();
        let (mut accepted, mut is_refused) = (0, false);
        while let Some(frame) = frames.get(accepted) {
            if frame.len() > ETHERNET_HEADER_BYTES + DATAGRAM_BYTES_MAX - TYPE_BYTES {
                return Err(LinkError::FrameTooLong { frame_bytes: frame.len(), mtu });
            }
            let left = &frames[accepted..];
            let (bytes, count) = if left.len() == 1 || is_refused { (0, 1) } else { self.segments(left, peer) };
            let sent = if count == 1 {
                self.send_one(frame, peer, to)
            } else {
                self.send_segments(&left[..count], peer, to, bytes)
            };
            if let Err(error) = &sent {
                self.full_source = self.source_of(frame);
                self.is_partner_full = self.full_source == 0 && self.partnership.socket_to(peer).is_some();
                if count == 1 && has_no_way(error) {
                    self.reroute(peer);
                }
            }
            self.note(peer);
            if !self.singly.is_empty() {
                self.count_singly(peer);
            }
            match sent.map_err(refusal) {
                Ok(()) | Err(Refusal::Lost(_)) if count == 1 => accepted += 1,
                Ok(()) => accepted += count,
                Err(Refusal::Busy) => {
                    self.counters.send_busy += 1;
                    break;
                }
                // Singly, the kernel may fragment them, or another route be found.
                Err(Refusal::Lost(libc::EINVAL | libc::EMSGSIZE)) => self.singly.push((peer, 0)),
                Err(Refusal::Lost(_)) => is_refused = true,
                // EIO: kernels before 6.11, on an interface that computes no checksums.
                Err(Refusal::Failed(_)) if count > 1 => self.can_segment = false,
                Err(Refusal::Failed(error)) => return Err(system("sendto", &self.interface.name, error)),
            }
        }
        self.counters.sent += accepted as u64;
        Ok(accepted)
    }

    /// As [`Link::receive`].
    #[inline]
    pub fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        let (start, end, is_truncated) = loop {
            let Some(datagram) = self.received.next() else {
                if self.received.was_last() || !self.fill() {
                    return None;
                }
                continue;
            };
            // Without a length or EtherType it is not a frame.
            let Some((ip, port)) = datagram.from.parts().filter(|_| datagram.bytes >= TYPE_BYTES) else { continue };
            let from = station(ip, port);
            if datagram.is_first {
                if let IpAddr::V6(ip) = ip {
                    self.peers.add_unnamed(from, ip);
                }
                self.note(from);
            }
            let start = datagram.start - ADDRESSES;
            let addresses = self.received.bytes(start..datagram.start);
            addresses[..6].copy_from_slice(&self.address.0);
            addresses[6..].copy_from_slice(&from.0);
            break (start, datagram.start + datagram.bytes, datagram.is_truncated);
        };
        self.counters.received += 1;
        self.counters.truncated += u64::from(is_truncated);
        let bytes = self.received.bytes(start..end);
        let frame_bytes = bytes.len() + usize::from(is_truncated);
        Some(IncomingMut { bytes, frame_bytes, vlan: None })
    }

    /// Notes an exchange with a peer, which may become or cease to be the partner. What comes from several ports has
    /// none: a socket is connected to one.
    #[inline]
    fn note(&mut self, peer: MacAddress) {
        if !self.senders.is_empty() {
            return;
        }
        match self.partnership.note(peer) {
            Change::None => {}
            Change::Take => self.take_partner(peer),
            Change::Leave => self.leave_partner(),
        }
    }

    #[cold]
    fn take_partner(&mut self, peer: MacAddress) {
        let Some(to) = self.peers.find(peer, self.interface.ip.is_ipv4()) else { return };
        match connected(&self.source.socket, &self.interface, &to) {
            Ok(socket) => self.partnership.take(peer, to, socket),
            // Out of descriptors, for example, or without a route; one socket is enough.
            Err(_) => self.partnership.postpone(),
        }
    }

    /// Redirects what arrives from the partner to the socket for all peers, by connecting the partner's own socket to
    /// this link's address.
    #[cold]
    fn leave_partner(&mut self) {
        if let (Some(partner), Ok((ip, port))) = (&self.partnership.partner, own(&self.source.socket)) {
            let own = SocketAddress::new(ip, port, self.peers.scope);
            // If that fails, what is on its way is lost, as on a wire.
            let _ = connect(&partner.source.socket, &own);
        }
        self.partnership.leave();
    }

    /// Receives from the sockets in turn; false if there was nothing.
    #[inline]
    fn fill(&mut self) -> bool {
        let Self { source, partnership, received, counters, .. } = self;
        if partnership.is_turn_of_others() {
            let has_found = received.fill(source);
            partnership.note_others(has_found);
            if has_found {
                return true;
            }
        }
        let Some(partner) = &mut partnership.partner else { return false };
        if received.fill(&mut partner.source) {
            return true;
        }
        if partner.is_leaving {
            counters.receive_dropped += dropped(&partner.source.socket).unwrap_or(0);
            partnership.partner = None;
        }
        false
    }

    /// Length of the datagrams, and the number of the first frames that one send can carry: of equal length except the
    /// last, which may be shorter.
    #[inline]
    fn segments(&self, frames: &[Outgoing<'_>], peer: MacAddress) -> (usize, usize) {
        let bytes = frames[0].len() - ADDRESSES;
        // Longer ones are fragmented by the kernel, and were made for another link.
        let is_whole = bytes <= TYPE_BYTES + self.mtu();
        if !self.can_segment || !is_whole || self.singly.iter().any(|(other, _)| *other == peer) {
            return (bytes, 1);
        }
        let max = (DATAGRAM_BYTES_MAX / bytes).clamp(1, SEGMENTS_MAX).min(frames.len());
        let mut count = 1;
        while count < max {
            let next_bytes = frames[count].len() - ADDRESSES;
            if next_bytes > bytes {
                break;
            }
            count += 1;
            if next_bytes < bytes {
                break;
            }
        }
        (bytes, count)
    }

    /// Counts a frame that is sent singly; paths change, so segmentation is tried again after many.
    #[cold]
    fn count_singly(&mut self, peer: MacAddress) {
        if let Some(index) = self.singly.iter().position(|(other, _)| *other == peer) {
            let (_, frames) = &mut self.singly[index];
            *frames += 1;
            if *frames == SINGLY_SENT_MAX {
                self.singly.swap_remove(index);
            }
        }
    }
}

/// The control message with which the kernel cuts a send into datagrams.
#[repr(C)]
struct SegmentControl {
    header: libc::cmsghdr,
    bytes: u16,
    padding: [u8; 6],
}

impl SegmentControl {
    fn of(bytes: u16) -> Self {
        // SAFETY: zeros are valid for this plain C structure.
        let mut control: Self = unsafe { mem::zeroed() };
        control.header.cmsg_len = (mem::offset_of!(Self, bytes) + size_of::<u16>()) as _;
        control.header.cmsg_level = libc::SOL_UDP;
        control.header.cmsg_type = libc::UDP_SEGMENT;
        control.bytes = bytes;
        control
    }
}

/// What becomes of a frame that the system did not accept.
enum Refusal {
    /// The socket's buffer or the interface's queue is full: try again.
    Busy,
    /// The frame is lost, as on a wire that is unplugged: there is no route, the address is gone, or a packet filter
    /// drops it. If that lasts, the peer is given up. A connected socket also reports here what became of earlier
    /// frames: that the peer's port was closed, or that they were too long for the path, whose MTU the kernel knows
    /// from then on. With the error's number.
    Lost(libc::c_int),
    /// An error of the caller or the system.
    Failed(io::Error),
}

fn refusal(error: io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM) => Refusal::Busy,
        Some(
            code @ (libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::EPERM
            | libc::EACCES
            | libc::EINVAL
            | libc::EMSGSIZE
            | libc::EADDRNOTAVAIL
            | libc::ECONNREFUSED
            | libc::ENODEV
            | libc::ENXIO
            | libc::EPROTO
            | libc::ENONET
            | libc::ENOPROTOOPT),
        ) => Refusal::Lost(code),
        _ => Refusal::Failed(error),
    }
}

/// Whether a send was refused because no route leads to the peer from the socket's address, or that address is gone.
fn has_no_way(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EADDRNOTAVAIL))
}

impl Link for UdpLink {
    /// Port and IP address of the socket.
    fn address(&self) -> MacAddress {
        self.address
    }

    fn mtu(&self) -> usize {
        Self::mtu_on(&self.interface)
    }

    #[inline]
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let mut accepted = 0;
        while let Some(first) = frames.get(accepted) {
            let to = first.header[..6].first_chunk().copied().unwrap_or_default();
            let count = frames[accepted..].iter().take_while(|frame| frame.header[..6] == to).count();
            let sent = self.send_to(MacAddress(to), &frames[accepted..accepted + count])?;
            accepted += sent;
            if sent < count {
                break;
            }
        }
        Ok(accepted)
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.receive_mut().map(Incoming::from)
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        if self.has_pending() {
            return Ok(true);
        }
        let all: Vec<BorrowedFd<'_>> = self.partner_descriptor().into_iter().chain(others.iter().copied()).collect();
        socket::wait(&self.source.socket, &self.interface.name, libc::POLLIN, &all, timeout)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let partner = self.partnership.partner.as_ref().filter(|_| self.is_partner_full);
        let of_source = self.full_source.checked_sub(1).map_or(&self.source.socket, |number| &self.senders[number]);
        let full = partner.map_or(of_source, |partner| &partner.source.socket);
        socket::wait_checked(full, &self.interface.name, libc::POLLOUT, &[], timeout, check)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        check(&self.source.socket, &self.interface.name)
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let partner = self.partnership.partner.as_ref().map(|partner| &partner.source.socket);
        let sockets = [Some(&self.source.socket), partner];
        let dropped = sockets.into_iter().flatten().map(dropped).sum::<io::Result<u64>>();
        let dropped = dropped.map_err(|error| system("SO_MEMINFO", &self.interface.name, error))?;
        Ok(Counters { receive_dropped: self.counters.receive_dropped + dropped, ..self.counters })
    }

    fn has_pending(&self) -> bool {
        self.received.has_some()
    }

    /// Peers on this host have the same IP address.
    fn is_local(&self, peer: MacAddress) -> bool {
        peer.0[2..] == self.address.0[2..]
    }

    fn locator(&self) -> Locator {
        let [p0, p1, ..] = self.address.0;
        Locator::of_port(u16::from_be_bytes([p0, p1]), self.ips.iter().copied())
    }

    fn add_peer(&mut self, peer: &PeerAddress) {
        for ip in peer.locator.ips() {
            self.address_of(ip, peer.locator.port);
        }
    }
}

impl AsFd for UdpLink {
    /// A descriptor that is readable when a datagram is available, or another one is: see
    /// [`partner_descriptor`](UdpLink::partner_descriptor).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.socket.as_fd()
    }
}

/// Whether an interface's speed is unknown, as virtual ones' mostly are, or at least [`FAST`].
fn is_fast(interface: &str) -> bool {
    let speed = interface_speed(interface);
    speed == 0 || speed >= FAST
}

/// Checks a socket for an error. One of an earlier send, such as that the peer's port is closed, is none of the link.
fn check(socket: &OwnedFd, interface: &str) -> Result<(), LinkError> {
    match socket::pending_error(socket).map_err(refusal) {
        Err(Refusal::Failed(error)) => Err(system("SO_ERROR", interface, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PORT_LABEL;

    fn open(others: Vec<IpInterface>) -> UdpLink {
        UdpLink::open(&UdpConfig { interface: "lo".to_owned(), others, ports: None, sources: 1 }).unwrap()
    }

    /// Sends a frame; it must be accepted.
    fn send(from: &mut UdpLink, to: MacAddress) {
        assert_eq!(from.send_to(to, &[Outgoing { header: &[0; 14], payload: b"x", label: 0 }]).unwrap(), 1);
    }

    /// Sends frames until there is a second socket.
    fn make_partner(of: &mut UdpLink, peer: MacAddress) {
        while of.partnership.socket_to(peer).is_none() {
            send(of, peer);
        }
    }

    #[test]
    fn a_wait_for_a_partner_that_is_gone_is_no_error_of_the_link() {
        let [mut a, b] = [(); 2].map(|()| open(Vec::new()));
        let peer = b.address();
        make_partner(&mut a, peer);
        drop(b);
        // The answer is that its port is closed.
        send(&mut a, peer);
        a.is_partner_full = true;
        a.wait_to_send(Duration::from_millis(1)).unwrap();
        send(&mut a, peer);
        a.check().unwrap();
    }

    #[test]
    fn what_an_earlier_datagram_met_does_not_end_segmentation() {
        let [mut a, b] = [(); 2].map(|()| open(Vec::new()));
        let peer = b.address();
        make_partner(&mut a, peer);
        drop(b);
        let frame = Outgoing { header: &[0; 14], payload: &[0; 1000], label: 0 };
        // The answer to the first is an error of the next send.
        for _ in 0..2 {
            assert_eq!(a.send_to(peer, &[frame; 8]).unwrap(), 8, "lost");
        }
        assert!(a.can_segment && a.singly.is_empty());
    }

    /// A link with several addresses.
    fn open_at_any() -> UdpLink {
        let other = IpInterface { ip: Ipv4Addr::new(127, 0, 0, 2).into(), ..IpInterface::by_name("lo").unwrap() };
        open(vec![other])
    }

    /// Sends a frame with a number, which must be the next that arrives.
    fn exchange(from: &mut UdpLink, to: &mut UdpLink, number: u32) {
        let frame = Outgoing { header: &[0; 14], payload: &number.to_be_bytes(), label: 0 };
        assert_eq!(from.send_to(to.address(), &[frame]).unwrap(), 1);
        let arrived = (0..1000).find_map(|_| to.receive().map(|frame| frame.bytes[14..] == number.to_be_bytes()));
        assert_eq!(arrived, Some(true), "{number}");
    }

    #[test]
    fn the_partner_is_rerouted_if_there_are_several_addresses() {
        let b = open(Vec::new());
        for (mut a, leaves) in [(open(Vec::new()), false), (open_at_any(), true)] {
            make_partner(&mut a, b.address());
            a.reroute(MacAddress([0x80, 0, 127, 0, 0, 9]));
            assert!(a.partnership.socket_to(b.address()).is_some(), "another peer");
            a.reroute(b.address());
            assert_eq!(a.partnership.socket_to(b.address()).is_none(), leaves);
        }
    }

    /// Proves that nothing is lost meanwhile, and that the socket is not missed for longer each time.
    #[test]
    fn a_partner_that_was_rerouted_is_soon_taken_again() {
        let (mut a, mut b) = (open_at_any(), open(Vec::new()));
        for number in 0..2000 {
            exchange(&mut b, &mut a, number);
            exchange(&mut a, &mut b, number);
            if number % 100 == 99 {
                assert!(a.partnership.socket_to(b.address()).is_some(), "{number}");
                a.reroute(b.address());
            }
        }
    }

    #[test]
    fn a_partner_is_left_when_its_source_address_is_gone() {
        let (mut a, mut b) = (open_at_any(), open(Vec::new()));
        for number in 0..100 {
            exchange(&mut b, &mut a, number);
        }
        // Refuses what is longer than so many of these segments with EINVAL, as if its address were gone.
        let socket = a.partnership.socket_to(b.address()).unwrap();
        set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &1).unwrap();
        let frame = Outgoing { header: &[0; 14], payload: &[0; 1000], label: 0 };
        assert_eq!(a.send_to(b.address(), &[frame]).unwrap(), 1, "lost");
        assert!(a.partnership.socket_to(b.address()).is_none());
        exchange(&mut a, &mut b, 100);
        exchange(&mut b, &mut a, 101);
    }

    fn open_with_sources(ports: Option<RangeInclusive<u16>>) -> UdpLink {
        UdpLink::open(&UdpConfig { interface: "lo".to_owned(), others: Vec::new(), ports, sources: 4 }).unwrap()
    }

    /// The port of a station.
    fn port(station: MacAddress) -> u16 {
        u16::from_be_bytes([station.0[0], station.0[1]])
    }

    /// Sends frames with these labels; returns the numbers of the frames that arrive, with their ports after the first.
    fn sent(from: &mut UdpLink, to: &mut UdpLink, labels: &[u16]) -> Vec<(u8, u16)> {
        let payloads: Vec<Vec<u8>> = (0..labels.len()).map(|number| vec![number as u8; 100]).collect();
        let frame = |(label, payload)| Outgoing { header: &[0; 14], payload, label };
        let frames: Vec<Outgoing<'_>> =
            labels.iter().zip(&payloads).map(|(label, payload)| frame((*label, &payload[..]))).collect();
        assert_eq!(from.send_to(to.address(), &frames).unwrap(), frames.len());
        let own = port(from.address());
        let mut arrived = Vec::new();
        for _ in 0..1000 {
            if let Some(frame) = to.receive() {
                let source = MacAddress(frame.bytes[6..].first_chunk().copied().unwrap());
                arrived.push((frame.bytes[14], port(source) - own));
            }
        }
        arrived
    }

    #[test]
    fn a_label_chooses_the_source_port_and_frames_of_one_keep_their_order() {
        let (mut a, mut b) = (open_with_sources(None), open_with_sources(None));
        assert_eq!(port(a.address()) % 4, 0);
        let label = |number: u16| PORT_LABEL + number;
        for _ in 0..100 {
            for number in 0..4 {
                assert_eq!(sent(&mut a, &mut b, &[label(number)]), [(0, number)]);
            }
            assert_eq!(sent(&mut a, &mut b, &[0]), [(0, 0)]);
        }
        // More labels than ports, VLAN identifiers, none; those of one port come together.
        let labels = [label(1), 0, label(6), label(1), 3841, label(3), label(7), label(0), label(5)];
        let together = [(1, 0), (4, 0), (7, 0), (0, 1), (3, 1), (8, 1), (2, 2), (5, 3), (6, 3)];
        assert_eq!(sent(&mut a, &mut b, &labels), together);
        // More frames of one port than one send can carry.
        let many: Vec<u16> = (0..500).map(|number| label(number % 2)).collect();
        let arrived = sent(&mut a, &mut b, &many);
        for source in 0..2 {
            let own: Vec<u8> = arrived.iter().filter(|(_, from)| *from == source).map(|(number, _)| *number).collect();
            let expected: Vec<u8> = (0..500).filter(|number| number % 2 == source).map(|number| number as u8).collect();
            assert_eq!(own, expected);
        }
    }

    #[test]
    fn a_station_is_named_by_the_first_port_of_its_block() {
        let a = open_with_sources(Some(0xb000..=0xb00f));
        let own = port(a.address());
        assert!((0xb000..=0xb00c).contains(&own));
        for number in 0..4 {
            assert_eq!(a.station_of(station(Ipv4Addr::LOCALHOST.into(), own + number)), a.address());
        }
        assert_ne!(a.station_of(station(Ipv4Addr::LOCALHOST.into(), own + 4)), a.address());
        let others: Vec<UdpLink> = (0..3).map(|_| open_with_sources(Some(0xb000..=0xb00f))).collect();
        let ports: std::collections::HashSet<u16> = others.iter().map(|link| port(link.address())).collect();
        assert!(ports.len() == 3 && !ports.contains(&own));
        let full =
            UdpConfig { interface: "lo".to_owned(), others: Vec::new(), ports: Some(0xb001..=0xb00e), sources: 4 };
        assert!(matches!(UdpLink::open(&full), Err(LinkError::NoPort { usable: 2, .. })));
    }
}
