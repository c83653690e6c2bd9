// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sending half of an AF_XDP socket: frames in shared memory, one system call per batch.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use super::rings::{Consumer, Producer};
use super::umem::{FRAME_BYTES_MAX, SEND_CHUNKS, Umem, chunk_bytes};
use super::{VLAN_TAG_BYTES, bind, xdp_system};
use crate::address::{Ends, TAG_BYTES, TAGGED_BYTES, tagged};
use crate::interface::{owned, system};
use crate::socket;
use crate::{Counters, ETHERNET_HEADER_BYTES, Interface, LinkError, MINIMUM_FRAME_BYTES, Outgoing};

/// Interval of checks while the link is full, since no event signals free chunks.
const FULL_PAUSE: Duration = Duration::from_micros(20);

/// Number of queues tried, from the highest: programs that receive with AF_XDP start with the lowest.
const QUEUES_TRIED: u32 = 32;

/// Age of frames that must not be sent any more: at 25 Gbit/s a connection's sequence numbers come round after 8 ms.
const STALE_AFTER: Duration = Duration::from_millis(5);

/// An AF_XDP socket with its UMEM and the rings for sending.
pub(crate) struct XdpSender {
    transmit: Producer<libc::xdp_desc>,
    complete: Consumer<u64>,
    socket: OwnedFd,
    // After the socket, whose driver writes to it.
    umem: Umem,
    /// Free send chunks, a stack: the most recently used one is on top.
    free: Vec<u64>,
    /// Since when the kernel has accepted none of the frames in the ring.
    stuck_since: Option<Instant>,
}

impl XdpSender {
    /// Creates a socket with this number of receive chunks, without binding it.
    pub(super) fn new(interface: &Interface, receive_chunks: u32) -> Result<Self, LinkError> {
        // A VLAN tag does not count in the MTU.
        let frame_bytes_max = ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES + interface.mtu;
        let chunk_bytes = chunk_bytes(frame_bytes_max).ok_or_else(|| LinkError::MtuTooLarge {
            interface: interface.name.clone(),
            mtu: interface.mtu,
            mtu_max: FRAME_BYTES_MAX - ETHERNET_HEADER_BYTES - VLAN_TAG_BYTES,
        })?;
        let failed = |(operation, source)| xdp_system(operation, &interface.name, source);
        // SAFETY: socket() takes no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let socket = owned(descriptor).map_err(|error| failed(("socket(AF_XDP)", error)))?;
        let umem = Umem::register(&socket, chunk_bytes, receive_chunks).map_err(|(operation, error)| {
            match error.raw_os_error() {
                Some(libc::ENOBUFS) => LinkError::MemoryNotLocked { bytes: Umem::bytes(chunk_bytes, receive_chunks) },
                _ => failed((operation, error)),
            }
        })?;
        let complete = Consumer::complete(&socket, SEND_CHUNKS).map_err(failed)?;
        let transmit = Producer::send(&socket, SEND_CHUNKS).map_err(failed)?;
        let free = umem.send_chunks().collect();
        Ok(Self { transmit, complete, socket, umem, free, stuck_since: None })
    }

    /// Opens a socket for sending only, in copy mode: needs no program at a hook, and only CAP_NET_RAW.
    ///
    /// A queue can have one such socket; binds to the highest free queue.
    pub(crate) fn open(interface: &Interface) -> Result<Self, LinkError> {
        let sender = Self::new(interface, 0)?;
        // The kernel requires a fill ring.
        let _fill = Producer::fill(&sender.socket, 1)
            .map_err(|(operation, source)| xdp_system(operation, &interface.name, source))?;
        for queue in (0..QUEUES_TRIED).rev() {
            match bind(&sender.socket, interface, queue, libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP) {
                Ok(()) => return Ok(sender),
                // The queue is in use, or does not exist.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EINVAL)) => {}
                Err(error) => return Err(xdp_system("bind", &interface.name, error)),
            }
        }
        Err(LinkError::XdpTaken(interface.name.clone()))
    }

    #[inline]
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn receive_chunks(&self) -> impl Iterator<Item = u64> + use<> {
        self.umem.receive_chunks()
    }

    #[inline]
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        self.umem.chunk_of(address)
    }

    /// As [`Umem::frame_mut`].
    ///
    /// # Safety
    /// As for [`Umem::frame_mut`].
    #[inline]
    pub(super) unsafe fn frame_mut(&mut self, address: u64, length: usize) -> &mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { self.umem.frame_mut(address, length) }
    }

    /// Puts frames into the send ring for the next [`kick`](Self::kick), with these addresses instead of their own;
    /// returns their number.
    #[inline]
    pub(crate) fn put_all(
        &mut self,
        interface: &Interface,
        frames: &[Outgoing<'_>],
        addresses: Option<&Ends>,
        counters: &mut Counters,
    ) -> Result<usize, LinkError> {
        let mut accepted = 0;
        for frame in frames {
            if frame.len() > ETHERNET_HEADER_BYTES + interface.mtu {
                if accepted == 0 {
                    return Err(LinkError::FrameTooLong { frame_bytes: frame.len(), mtu: interface.mtu });
                }
                break;
            }
            if self.free.is_empty() {
                self.reclaim();
            }
            let Some(chunk) = self.free.pop() else {
                counters.send_busy += 1;
                break;
            };
            self.put(chunk, frame, addresses);
            accepted += 1;
        }
        self.transmit.publish();
        Ok(accepted)
    }

    /// Whether the last [`kick`](Self::kick) left frames in the ring.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.transmit.was_pending() && self.transmit.needs_wakeup()
    }

    /// Whether the device has accepted nothing for so long that the frames in the ring are stale. Sent later, when
    /// others have gone by another link, their sequence numbers could be taken for those of new ones.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck_since.is_some_and(|since| since.elapsed() > STALE_AFTER)
    }

    /// Makes the kernel send the frames in the ring. Frames that it does not accept now stay for the next call.
    #[inline]
    pub(crate) fn kick(&mut self, interface: &Interface, counters: &mut Counters) -> Result<(), LinkError> {
        let mut pending = self.transmit.pending();
        while pending > 0 && self.transmit.needs_wakeup() {
            if let Err(error) = self.wake() {
                match error.raw_os_error() {
                    // A call takes a limited number of frames and returns EAGAIN if there are more. EBUSY: the device
                    // is full.
                    Some(libc::EAGAIN) => {}
                    Some(libc::EBUSY | libc::ENOBUFS | libc::EINTR) => counters.send_busy += 1,
                    _ => {
                        self.stuck_since.get_or_insert_with(Instant::now);
                        return Err(system("sendto", &interface.name, error));
                    }
                }
            }
            let left = self.transmit.pending();
            // No progress: a zero-copy device sends asynchronously; in copy mode the device is full.
            if left == pending {
                self.stuck_since.get_or_insert_with(Instant::now);
                self.reclaim();
                return Ok(());
            }
            (pending, self.stuck_since) = (left, None);
        }
        self.stuck_since = None;
        self.reclaim();
        Ok(())
    }

    /// Waits until a frame can be sent; `false` if `timeout` passed first.
    pub(crate) fn wait_to_send(
        &mut self,
        interface: &Interface,
        counters: &mut Counters,
        timeout: Duration,
    ) -> Result<bool, LinkError> {
        let end = Instant::now() + timeout;
        loop {
            self.kick(interface, counters)?;
            let left = end.saturating_duration_since(Instant::now());
            let is_ready = !self.free.is_empty() && !self.has_unsent();
            if is_ready || left.is_zero() {
                return Ok(is_ready);
            }
            // No event signals free chunks; `poll` reports only free entries of the ring.
            std::thread::sleep(FULL_PAUSE.min(left));
            self.check(interface)?;
        }
    }

    /// Whether the interface still works.
    pub(super) fn check(&self, interface: &Interface) -> Result<(), LinkError> {
        socket::check(&self.socket, &interface.name)?;
        // The socket has no pending error when the interface is down: a wakeup reports it.
        match self.wake() {
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)) =>
            {
                Err(system("sendto", &interface.name, error))
            }
            _ => Ok(()),
        }
    }

    /// Reclaims the chunks of sent frames.
    #[inline]
    fn reclaim(&mut self) {
        while let Some(chunk) = self.complete.take() {
            self.free.push(chunk);
        }
        self.complete.release();
    }

    /// Puts a frame into the send ring.
    #[inline]
    fn put(&mut self, chunk: u64, frame: &Outgoing<'_>, addresses: Option<&Ends>) {
        let tag = if frame.tag() == 0 { 0 } else { TAG_BYTES };
        let (header, length) = (tag + frame.header.len(), tag + frame.len());
        // A zero-copy driver may not pad.
        let padded = length.max(MINIMUM_FRAME_BYTES);
        // SAFETY: the chunk was on the free list, so the kernel does not use it and no frame in it is lent.
        let bytes = unsafe { self.umem.frame_mut(chunk, padded) };
        bytes[tag..header].copy_from_slice(frame.header);
        if tag > 0 {
            bytes[..TAGGED_BYTES].copy_from_slice(&tagged(frame.header, addresses, frame.tag()));
        } else if let Some(addresses) = addresses {
            bytes[..addresses.len()].copy_from_slice(addresses);
        }
        barewire_copy::copy(frame.payload, &mut bytes[header..length]);
        bytes[length..].fill(0);
        self.transmit.put(libc::xdp_desc { addr: chunk, len: padded as u32, options: 0 });
    }

    /// Makes the kernel process the send ring.
    #[inline]
    fn wake(&self) -> io::Result<()> {
        // SAFETY: a null pointer with length 0, as AF_XDP expects.
        let result =
            unsafe { libc::sendto(self.socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
