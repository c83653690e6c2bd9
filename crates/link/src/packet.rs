// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET: frames through an ordinary network interface that keeps serving the kernel as well.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::interface::system;
use crate::packet_socket::{bind, open_filtered};
use crate::restricted;
use crate::ring::{ReceiveRing, RingGeometry};
use crate::socket::{self, get_option, set_option};
use crate::xdp::XdpSender;
use crate::{Counters, Filter, Incoming, Interface, Link, LinkError, MacAddress, Outgoing};

/// How to open a [`PacketLink`].
#[derive(Clone, Debug)]
pub struct PacketConfig {
    /// The interface's name.
    pub interface: String,
    /// The EtherType to receive, or one of the kernel's own (`ETH_P_ALL`, `ETH_P_802_2`). Tagged frames
    /// come in either way, but only with `ETH_P_ALL` does the kernel still know the tag.
    pub protocol: u16,
    /// Which of those frames to receive.
    pub filter: Filter,
    /// Memory for the receive ring, at least.
    pub ring_bytes: usize,
}

impl PacketConfig {
    /// Measured: one or two MiB stay in the cache and stream faster than eight (`docs/performance.md`);
    /// two hold a millisecond and a half of frames at 10 Gb/s.
    pub const DEFAULT_RING_BYTES: usize = 2 << 20;
}

/// A link over AF_PACKET with a mapped receive ring; transmission passes the queueing discipline by.
pub struct PacketLink {
    // Before the socket, so that it is unmapped first.
    ring: ReceiveRing,
    socket: OwnedFd,
    interface: Interface,
    counters: Counters,
    short_frame: Box<[u8; COPIED_BYTES]>,
    /// Sends batches, if [`send_batches_by_xdp`](Self::send_batches_by_xdp) was asked for and could.
    batches: Option<Box<XdpSender>>,
    /// Closed after the socket: see [`adopt`](Self::adopt).
    _lease: Option<OwnedFd>,
    closing: Closing,
}

/// A thread that closes something; waited for when this is dropped.
#[derive(Default)]
struct Closing(Option<Box<JoinHandle<()>>>);

impl Drop for Closing {
    fn drop(&mut self) {
        // It does nothing that could panic.
        let _ = self.0.take().map(|thread| thread.join());
    }
}

/// The kernel lets each of its two sockets wait until nobody can see it any more, for some 30 ms: for both at once.
impl Drop for PacketLink {
    fn drop(&mut self) {
        let Some(batches) = self.batches.take() else { return };
        // The program's signals are for its own threads.
        let Ok(mask) = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
        // Without a thread they are closed one after the other.
        self.closing.0 = Builder::new().stack_size(CLOSING_STACK_BYTES).spawn(move || drop(batches)).ok().map(Box::new);
        // It was a mask before.
        let _ = mask.thread_set_mask();
    }
}

/// Locked memory counts it in.
const CLOSING_STACK_BYTES: usize = 256 << 10;
/// Up to here a single frame is put together in one buffer: `send` of one piece costs the kernel some 50 ns less than
/// gathering two, which pays for copying so much (measured: the copy crossover in `docs/performance.md`).
const COPIED_BYTES: usize = 8192;
/// From so many frames on a batch goes through AF_XDP.
const XDP_BATCH_FRAMES: usize = 2;
/// Frames that one system call takes at most; beyond this, larger batches gain nothing more.
const BATCH_FRAMES: usize = 32;

impl PacketLink {
    /// Opens the interface. No frame that arrives before the filter is in place gets in.
    ///
    /// # Errors
    /// [`LinkError::NotPermitted`] without CAP_NET_RAW, [`LinkError::NoSuchInterface`],
    /// [`LinkError::InterfaceDown`], or what the system says.
    pub fn open(config: &PacketConfig) -> Result<Self, LinkError> {
        let interface = Interface::by_name(&config.interface)?;
        let failed = |operation| move |source| system(operation, &config.interface, source);
        // The filter and the ring are ready before `bind` opens the tap.
        let socket = open_filtered(&config.interface, config.filter.compile())?;
        let geometry = RingGeometry::new(interface.mtu, config.ring_bytes);
        ReceiveRing::set_up(&socket, geometry).map_err(|(operation, error)| failed(operation)(error))?;
        let mut link = Self::with_ring(socket, interface, geometry)?;
        bind(&link.socket, link.interface.index, config.protocol).map_err(failed("bind"))?;
        // An interface that is down binds without complaint; the socket's error tells.
        link.check()?;
        Ok(link)
    }

    /// Goes on with a socket that somebody with CAP_NET_RAW bound, filtered and gave a ring, such as one of
    /// [`Restricted`](crate::Restricted); needs no capability. `lease` is closed once the socket is: whoever has its
    /// other end learns that the link is gone. The socket's giver is trusted to tell the ring's geometry as it is.
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
        let (counters, short_frame) = (Counters::default(), Box::new([0; COPIED_BYTES]));
        Ok(Self {
            ring,
            socket,
            interface,
            counters,
            short_frame,
            batches: None,
            _lease: None,
            closing: Closing::default(),
        })
    }

    /// From now on sends batches of frames through AF_XDP, which takes the kernel less time for each frame, if one of the
    /// interface's queues is free for that.
    ///
    /// # Errors
    /// Why it cannot; all goes on as before then. [`LinkError::XdpNotPermitted`] without CAP_NET_RAW,
    /// [`LinkError::NoXdp`], [`LinkError::XdpTaken`], [`LinkError::MtuTooLarge`], [`LinkError::MemoryNotLocked`].
    pub fn send_batches_by_xdp(&mut self) -> Result<(), LinkError> {
        self.batches = Some(Box::new(XdpSender::open(&self.interface)?));
        Ok(())
    }

    /// Whether the kernel did not take all of the last batch.
    #[inline]
    fn has_rest(&self) -> bool {
        self.batches.as_ref().is_some_and(|batches| batches.is_stuck())
    }

    /// Sends what the kernel did not take of the last batch, as far as it does now.
    #[cold]
    fn send_rest(&mut self) -> Result<(), LinkError> {
        let Some(batches) = &mut self.batches else { return Ok(()) };
        batches.kick(&self.interface, &mut self.counters).map_err(|error| self.interface.down_or_gone(error))
    }

    /// The interface as it was when the link was opened.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Sends one frame; 1, or −1.
    #[inline]
    fn send_one(&mut self, frame: &Outgoing<'_>) -> isize {
        let (header, payload) = (frame.header, frame.payload);
        if payload.is_empty() {
            return self.send_bytes(header);
        }
        if frame.len() > COPIED_BYTES {
            return self.send_batch(std::slice::from_ref(frame));
        }
        self.short_frame[..header.len()].copy_from_slice(header);
        self.short_frame[header.len()..frame.len()].copy_from_slice(payload);
        self.send_bytes(&self.short_frame[..frame.len()])
    }

    #[inline]
    fn send_bytes(&self, bytes: &[u8]) -> isize {
        // SAFETY: pointer and length describe `bytes`.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { -1 } else { 1 }
    }

    /// Sends up to [`BATCH_FRAMES`] frames with one system call; how many, or −1.
    fn send_batch(&self, frames: &[Outgoing<'_>]) -> isize {
        let count = frames.len().min(BATCH_FRAMES);
        // SAFETY: both are plain C structures for which zeros are valid.
        let mut parts: [[libc::iovec; 2]; BATCH_FRAMES] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH_FRAMES] = unsafe { mem::zeroed() };
        for ((frame, parts), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
            for (part, bytes) in parts.iter_mut().zip([frame.header, frame.payload]) {
                part.iov_base = bytes.as_ptr().cast_mut().cast();
                part.iov_len = bytes.len();
            }
            message.msg_hdr.msg_iov = parts.as_mut_ptr();
            // The kernel has a shorter way for one piece.
            message.msg_hdr.msg_iovlen = if frame.payload.is_empty() { 1 } else { 2 };
        }
        // SAFETY: the first `count` messages point to parts, and those to frames, that outlive the
        // call; the kernel only reads what they point to.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT) };
        sent as isize
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> LinkError {
        self.interface.down_or_gone(system(operation, &self.interface.name, source))
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
        if self.has_rest() {
            self.send_rest()?;
            if self.has_rest() {
                return Ok(0);
            }
        }
        if frames.len() >= XDP_BATCH_FRAMES
            && let Some(batches) = &mut self.batches
        {
            let taken = batches.put_all(&self.interface, frames, &mut self.counters)?;
            batches.kick(&self.interface, &mut self.counters).map_err(|error| self.interface.down_or_gone(error))?;
            self.counters.sent += taken as u64;
            return Ok(taken);
        }
        let mut taken = 0;
        while taken < frames.len() {
            let left = &frames[taken..];
            let sent = if let [frame] = left { self.send_one(frame) } else { self.send_batch(left) };
            let Ok(sent) = usize::try_from(sent) else {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // ENOBUFS: the interface refused the frame; nothing of it went out.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {
                        self.counters.send_busy += 1;
                        break;
                    }
                    Some(libc::EMSGSIZE) => {
                        return Err(LinkError::FrameTooLong { frame_bytes: left[0].len(), mtu: self.interface.mtu });
                    }
                    _ => return Err(self.failed("send", error)),
                }
            };
            taken += sent;
        }
        self.counters.sent += taken as u64;
        Ok(taken)
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        if self.has_rest() {
            // What goes wrong shows in the next operation.
            let _ = self.send_rest();
        }
        let frame = self.ring.receive()?;
        self.counters.received += 1;
        self.counters.truncated += u64::from(frame.is_truncated());
        Some(frame)
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.ring.give_back();
        self.send_rest()?;
        socket::wait(&self.socket, &self.interface.name, libc::POLLIN, others, timeout)
            .map_err(|error| self.interface.down_or_gone(error))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let Self { batches, interface, counters, socket, .. } = self;
        let batches = batches.as_mut().map_or(Ok(true), |batches| batches.wait_to_send(interface, counters, timeout));
        batches
            .and_then(|is_ready| Ok(is_ready && socket::wait(socket, &interface.name, libc::POLLOUT, &[], timeout)?))
            .map_err(|error| interface.down_or_gone(error))
    }

    fn check(&mut self) -> Result<(), LinkError> {
        socket::check(&self.socket, &self.interface.name).map_err(|error| self.interface.down_or_gone(error))
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        // Reading resets the kernel's numbers, so they are added up here.
        let statistics: libc::tpacket_stats = get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)
            .map_err(|error| self.failed("PACKET_STATISTICS", error))?;
        self.counters.receive_dropped += u64::from(statistics.tp_drops);
        Ok(self.counters)
    }
}

impl AsFd for PacketLink {
    /// What can be read once a frame has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
