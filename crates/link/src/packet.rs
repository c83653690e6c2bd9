// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET: a link over an ordinary network interface, which the kernel keeps using as well.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::address::{Ends, TAG_BYTES, TAGGED_BYTES, ends, tagged};
use crate::filter::accept_only_to;
use crate::interface::system;
use crate::packet_socket::{bind, open_filtered};
use crate::restricted;
use crate::ring::{ReceiveRing, RingGeometry};
use crate::socket::{self, get_option, set_option};
use crate::xdp::XdpSender;
use crate::{Closing, Counters, Filter, Incoming, IncomingMut, Interface, Link, LinkError, MacAddress, Outgoing};

/// Configuration of a [`PacketLink`].
#[derive(Clone, Debug)]
pub struct PacketConfig {
    /// The interface's name.
    pub interface: String,
    /// The EtherType to receive, or one of the kernel's own (`ETH_P_ALL`, `ETH_P_802_2`). Tagged frames
    /// are received in any case, but the kernel reports the tag only with `ETH_P_ALL`.
    pub protocol: u16,
    /// Filter of these frames; frames to other hosts are refused in any case.
    pub filter: Filter,
    /// Minimum size of the receive ring.
    pub ring_bytes: usize,
}

impl PacketConfig {
    /// Measured: one or two MiB stay in the cache and give a higher throughput than eight (`docs/performance.md`);
    /// two hold 1.5 ms of frames at 10 Gb/s.
    pub const DEFAULT_RING_BYTES: usize = 2 << 20;
}

/// A link over AF_PACKET with a mapped receive ring; transmission bypasses the queueing discipline.
pub struct PacketLink {
    // Before the socket, so that it is unmapped first.
    ring: ReceiveRing,
    socket: OwnedFd,
    interface: Interface,
    counters: Counters,
    copy_buffer: Box<[u8; COPIED_BYTES]>,
    /// Sends batches, after [`send_batches_by_xdp`](Self::send_batches_by_xdp) succeeded.
    xdp_sender: Option<Box<XdpSender>>,
    /// Closed after the socket: see [`adopt`](Self::adopt).
    _lease: Option<OwnedFd>,
    closing: Closing,
}

/// Closes both sockets concurrently.
impl Drop for PacketLink {
    fn drop(&mut self) {
        if let Some(xdp_sender) = self.xdp_sender.take() {
            self.closing = Closing::of(xdp_sender);
        }
    }
}

/// Single frames up to this length are copied into one buffer: `send` of one piece costs the kernel some 50 ns less
/// than gathering two, which outweighs the copy (measured: the copy crossover in `docs/performance.md`).
const COPIED_BYTES: usize = 8192;
/// Minimum number of frames in a batch that is sent with AF_XDP.
const XDP_BATCH_FRAMES: usize = 2;
/// Largest number of frames per system call; larger batches gain nothing more.
const BATCH_FRAMES: usize = 32;

impl PacketLink {
    /// Opens the interface. Receives no frame before the filter is in place.
    ///
    /// # Errors
    /// [`LinkError::NotPermitted`] without CAP_NET_RAW, [`LinkError::NoSuchInterface`],
    /// [`LinkError::InterfaceDown`], or the system's error.
    pub fn open(config: &PacketConfig) -> Result<Self, LinkError> {
        let interface = Interface::by_name(&config.interface)?;
        let failed = |operation| move |source| system(operation, &config.interface, source);
        // Set up filter and ring before `bind` starts reception.
        let program = [accept_only_to(interface.address), config.filter.compile()].concat();
        let socket = open_filtered(&config.interface, program)?;
        let geometry = RingGeometry::new(interface.mtu, config.ring_bytes);
        ReceiveRing::set_up(&socket, geometry).map_err(|(operation, error)| failed(operation)(error))?;
        let mut link = Self::with_ring(socket, interface, geometry)?;
        bind(&link.socket, link.interface.index, config.protocol).map_err(failed("bind"))?;
        // Binding to an interface that is down succeeds; the socket's pending error reports it.
        link.check()?;
        Ok(link)
    }

    /// Adopts a socket that a process with CAP_NET_RAW has bound, filtered and given a ring, such as one of
    /// [`Restricted`](crate::Restricted); needs no capability. `lease` is closed after the socket, which tells its
    /// other end that the link is closed. The ring's geometry is trusted.
    ///
    /// # Errors
    /// [`LinkError::ForeignSocket`] unless it is an AF_PACKET socket bound to that interface; otherwise as
    /// [`open`](Self::open).
    pub fn adopt(
        socket: OwnedFd,
        interface: &str,
        ring: RingGeometry,
        lease: Option<OwnedFd>,
    ) -> Result<Self, LinkError> {
        let interface = Interface::by_name(interface)?;
        restricted::verify(&socket, &interface)?;
        let mut link = Self::with_ring(socket, interface, ring)?;
        link._lease = lease;
        link.check()?;
        Ok(link)
    }

    fn with_ring(socket: OwnedFd, interface: Interface, geometry: RingGeometry) -> Result<Self, LinkError> {
        let name = &interface.name;
        let failed = |operation| move |source| system(operation, name, source);
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)
            .map_err(failed("PACKET_IGNORE_OUTGOING"))?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &on).map_err(failed("PACKET_QDISC_BYPASS"))?;
        let ring = ReceiveRing::map(&socket, geometry)
            .map_err(|(operation, source)| system(operation, &interface.name, source))?;
        let (counters, copy_buffer) = (Counters::default(), Box::new([0; COPIED_BYTES]));
        Ok(Self {
            ring,
            socket,
            interface,
            counters,
            copy_buffer,
            xdp_sender: None,
            _lease: None,
            closing: Closing::default(),
        })
    }

    /// Sends batches of frames with AF_XDP from now on, which costs the kernel less time per frame. Needs a free queue
    /// of the interface.
    ///
    /// # Errors
    /// Why it cannot; the link then works as before. [`LinkError::XdpNotPermitted`] without CAP_NET_RAW,
    /// [`LinkError::NoXdp`], [`LinkError::XdpTaken`], [`LinkError::MtuTooLarge`], [`LinkError::MemoryNotLocked`].
    pub fn send_batches_by_xdp(&mut self) -> Result<(), LinkError> {
        self.xdp_sender = Some(Box::new(XdpSender::open(&self.interface)?));
        Ok(())
    }

    /// Whether the kernel has not accepted all of the last batch yet.
    #[inline]
    fn has_unsent(&self) -> bool {
        self.xdp_sender.as_ref().is_some_and(|xdp_sender| xdp_sender.has_unsent())
    }

    /// Sends the rest of the last batch, as far as the kernel accepts it.
    #[cold]
    fn send_unsent(&mut self) -> Result<(), LinkError> {
        let Some(xdp_sender) = &mut self.xdp_sender else { return Ok(()) };
        let sent = xdp_sender.kick(&self.interface, &mut self.counters);
        if xdp_sender.is_stuck() {
            // With its socket its frames are gone, and batches leave as from interfaces without AF_XDP from now on.
            self.closing = self.xdp_sender.take().map(Closing::of).unwrap_or_default();
        }
        sent.map_err(|error| self.interface.refine_down(error))
    }

    /// The interface as it was when the link was opened.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Sends one frame. Returns 1, or −1.
    #[inline]
    fn send_one(&mut self, frame: &Outgoing<'_>, addresses: Option<&Ends>) -> isize {
        let (header, payload) = (frame.header, frame.payload);
        if payload.is_empty() && addresses.is_none() && frame.tag() == 0 {
            return self.send_bytes(header);
        }
        if frame.len() + TAG_BYTES > COPIED_BYTES {
            return self.send_batch(std::slice::from_ref(frame), addresses);
        }
        if frame.tag() != 0 {
            let start = tagged(header, addresses, frame.tag());
            let (rest, length) = (&header[size_of::<Ends>()..], frame.len() + TAG_BYTES);
            self.copy_buffer[..TAGGED_BYTES].copy_from_slice(&start);
            self.copy_buffer[TAGGED_BYTES..][..rest.len()].copy_from_slice(rest);
            self.copy_buffer[header.len() + TAG_BYTES..length].copy_from_slice(payload);
            return self.send_bytes(&self.copy_buffer[..length]);
        }
        self.copy_buffer[..header.len()].copy_from_slice(header);
        self.copy_buffer[header.len()..frame.len()].copy_from_slice(payload);
        if let Some(addresses) = addresses {
            self.copy_buffer[..addresses.len()].copy_from_slice(addresses);
        }
        self.send_bytes(&self.copy_buffer[..frame.len()])
    }

    #[inline]
    fn send_bytes(&self, bytes: &[u8]) -> isize {
        // SAFETY: pointer and length describe `bytes`.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { -1 } else { 1 }
    }

    /// Sends up to [`BATCH_FRAMES`] frames with one system call. Returns the number, or −1.
    fn send_batch(&self, frames: &[Outgoing<'_>], addresses: Option<&Ends>) -> isize {
        let count = frames.len().min(BATCH_FRAMES);
        // SAFETY: both are plain C structures for which zeros are valid.
        let mut parts: [[libc::iovec; 3]; BATCH_FRAMES] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH_FRAMES] = unsafe { mem::zeroed() };
        let mut starts = [[0; TAGGED_BYTES]; BATCH_FRAMES];
        for (((frame, parts), message), start) in frames.iter().zip(&mut parts).zip(&mut messages).zip(&mut starts) {
            let addresses = if frame.tag() == 0 {
                addresses.map(|addresses| &addresses[..])
            } else {
                *start = tagged(frame.header, addresses, frame.tag());
                Some(&start[..])
            };
            let header = &frame.header[addresses.map_or(0, |_| size_of::<Ends>())..];
            // The kernel has a faster path for one piece.
            let payload = Some(frame.payload).filter(|payload| !payload.is_empty());
            let pieces = addresses.into_iter().chain([header]).chain(payload);
            message.msg_hdr.msg_iov = parts.as_mut_ptr();
            for (part, bytes) in parts.iter_mut().zip(pieces) {
                part.iov_base = bytes.as_ptr().cast_mut().cast();
                part.iov_len = bytes.len();
                message.msg_hdr.msg_iovlen += 1;
            }
        }
        // SAFETY: the first `count` messages point to parts, and those to frames, which outlive the
        // call and are only read by the kernel.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT) };
        sent as isize
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> LinkError {
        self.interface.refine_down(system(operation, &self.interface.name, source))
    }

    /// As [`Link::receive`].
    #[inline]
    pub fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        if self.has_unsent() {
            // The next operation reports a failure.
            let _ = self.send_unsent();
        }
        let frame = self.ring.receive()?;
        self.counters.received += 1;
        self.counters.truncated += u64::from(frame.bytes.len() < frame.frame_bytes);
        Some(frame)
    }

    /// Sends frames to this address from the interface's own, whatever their headers say; otherwise as [`Link::send`].
    ///
    /// # Errors
    /// As [`Link::send`].
    #[inline]
    pub fn send_to(&mut self, to: MacAddress, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let addresses = ends(to, self.interface.address);
        self.send_with(frames, Some(&addresses))
    }

    /// Sends frames, with these addresses instead of their own.
    #[inline]
    fn send_with(&mut self, frames: &[Outgoing<'_>], addresses: Option<&Ends>) -> Result<usize, LinkError> {
        if self.has_unsent() {
            self.send_unsent()?;
            if self.has_unsent() {
                return Ok(0);
            }
        }
        if frames.len() >= XDP_BATCH_FRAMES
            && let Some(xdp_sender) = &mut self.xdp_sender
        {
            let accepted = xdp_sender.put_all(&self.interface, frames, addresses, &mut self.counters)?;
            xdp_sender.kick(&self.interface, &mut self.counters).map_err(|error| self.interface.refine_down(error))?;
            self.counters.sent += accepted as u64;
            return Ok(accepted);
        }
        let mut accepted = 0;
        while accepted < frames.len() {
            let left = &frames[accepted..];
            let sent =
                if let [frame] = left { self.send_one(frame, addresses) } else { self.send_batch(left, addresses) };
            let Ok(sent) = usize::try_from(sent) else {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // ENOBUFS: the interface refused the frame; nothing of it was sent.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {
                        self.counters.send_busy += 1;
                        break;
                    }
                    Some(libc::EMSGSIZE) => {
                        // It may have been changed since the link was opened.
                        let now = Interface::by_name(&self.interface.name);
                        let mtu = now.map_or(self.interface.mtu, |interface| interface.mtu);
                        return Err(LinkError::FrameTooLong { frame_bytes: left[0].len(), mtu });
                    }
                    _ => return Err(self.failed("send", error)),
                }
            };
            accepted += sent;
        }
        self.counters.sent += accepted as u64;
        Ok(accepted)
    }
}

impl Link for PacketLink {
    fn address(&self) -> MacAddress {
        self.interface.address
    }

    fn mtu(&self) -> usize {
        self.interface.mtu
    }

    #[inline]
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.send_with(frames, None)
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.receive_mut().map(Incoming::from)
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.ring.release_lent();
        self.send_unsent()?;
        socket::wait(&self.socket, &self.interface.name, libc::POLLIN, others, timeout)
            .map_err(|error| self.interface.refine_down(error))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let Self { xdp_sender, interface, counters, socket, .. } = self;
        let xdp_sender =
            xdp_sender.as_mut().map_or(Ok(true), |xdp_sender| xdp_sender.wait_to_send(interface, counters, timeout));
        xdp_sender
            .and_then(|is_ready| Ok(is_ready && socket::wait(socket, &interface.name, libc::POLLOUT, &[], timeout)?))
            .map_err(|error| interface.refine_down(error))
    }

    fn check(&mut self) -> Result<(), LinkError> {
        socket::check(&self.socket, &self.interface.name).map_err(|error| self.interface.refine_down(error))
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        // Reading resets the kernel's counters, so sum them up.
        let statistics: libc::tpacket_stats = get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)
            .map_err(|error| self.failed("PACKET_STATISTICS", error))?;
        self.counters.receive_dropped += u64::from(statistics.tp_drops);
        Ok(self.counters)
    }
}

impl AsFd for PacketLink {
    /// A descriptor that is readable when a frame is available.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
