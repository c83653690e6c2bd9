// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The half of an AF_XDP socket that sends: frames in shared memory, one system call for many.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use super::rings::{Consumer, Producer};
use super::umem::{LONGEST_FRAME_BYTES, SEND_CHUNKS, Umem, chunk_bytes};
use super::{VLAN_TAG_BYTES, bind, xdp_system};
use crate::interface::{owned, system};
use crate::socket;
use crate::{Counters, ETHERNET_HEADER_BYTES, Interface, LinkError, MINIMUM_FRAME_BYTES, Outgoing};

/// A full link has no word to wait for; looked at again after this time.
const FULL_PAUSE: Duration = Duration::from_micros(20);

/// Queues that are tried, from the last: programs that receive through AF_XDP begin with the first.
const QUEUES_TRIED: u32 = 32;

/// An AF_XDP socket with its memory and what it sends with.
pub(crate) struct XdpSender {
    transmit: Producer<libc::xdp_desc>,
    complete: Consumer<u64>,
    socket: OwnedFd,
    // Behind the socket, whose driver writes to it.
    umem: Umem,
    /// Chunks to send from; the last one used is on top.
    free: Vec<u64>,
}

impl XdpSender {
    /// A socket that is not bound yet, with so many chunks to receive into.
    pub(super) fn new(interface: &Interface, receive_chunks: u32) -> Result<Self, LinkError> {
        // A tag may come on top of the MTU.
        let longest_frame = ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES + interface.mtu;
        let chunk_bytes = chunk_bytes(longest_frame).ok_or_else(|| LinkError::MtuTooLarge {
            interface: interface.name.clone(),
            mtu: interface.mtu,
            most: LONGEST_FRAME_BYTES - ETHERNET_HEADER_BYTES - VLAN_TAG_BYTES,
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
        Ok(Self { transmit, complete, socket, umem, free })
    }

    /// For sending alone, with a copy of the kernel's: needs no program at a hook, and CAP_NET_RAW only.
    ///
    /// A queue has one socket of this kind; the last one that is free is taken.
    pub(crate) fn open(interface: &Interface) -> Result<Self, LinkError> {
        let sender = Self::new(interface, 0)?;
        // The kernel binds no socket without one.
        let _fill = Producer::fill(&sender.socket, 1)
            .map_err(|(operation, source)| xdp_system(operation, &interface.name, source))?;
        for queue in (0..QUEUES_TRIED).rev() {
            match bind(&sender.socket, interface, queue, libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP) {
                Ok(()) => return Ok(sender),
                // Somebody has it, or the interface has not so many.
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

    /// The bytes of a frame, as [`Umem::frame_mut`] has them.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(super) unsafe fn frame_mut(&mut self, address: u64, length: usize) -> &mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { self.umem.frame_mut(address, length) }
    }

    /// Puts frames where the kernel finds them with the next [`kick`](Self::kick); returns how many.
    #[inline]
    pub(crate) fn put_all(
        &mut self,
        interface: &Interface,
        frames: &[Outgoing<'_>],
        counters: &mut Counters,
    ) -> Result<usize, LinkError> {
        let mut taken = 0;
        for frame in frames {
            if frame.len() > ETHERNET_HEADER_BYTES + interface.mtu {
                if taken == 0 {
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
            self.put(chunk, frame);
            taken += 1;
        }
        self.transmit.publish();
        Ok(taken)
    }

    /// Whether the last [`kick`](Self::kick) left frames for the next one.
    #[inline]
    pub(crate) fn is_stuck(&self) -> bool {
        self.transmit.was_pending() && self.transmit.needs_wakeup()
    }

    /// Lets the kernel send what is in the ring. What it does not take now stays there for the next call.
    #[inline]
    pub(crate) fn kick(&mut self, interface: &Interface, counters: &mut Counters) -> Result<(), LinkError> {
        let mut pending = self.transmit.pending();
        while pending > 0 && self.transmit.needs_wakeup() {
            if let Err(error) = self.wake() {
                match error.raw_os_error() {
                    // One call takes some frames and says EAGAIN if there are more. EBUSY: the device is full.
                    Some(libc::EAGAIN) => {}
                    Some(libc::EBUSY | libc::ENOBUFS | libc::EINTR) => counters.send_busy += 1,
                    _ => return Err(system("sendto", &interface.name, error)),
                }
            }
            let left = self.transmit.pending();
            // Without a copy the device takes its time; with one it is full.
            if left == pending {
                break;
            }
            pending = left;
        }
        self.reclaim();
        Ok(())
    }

    /// Waits until a frame can be put; `false` if `timeout` passed first.
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
            let is_ready = !self.free.is_empty() && !self.is_stuck();
            if is_ready || left.is_zero() {
                return Ok(is_ready);
            }
            // Chunks come back without a word; `poll` speaks of places in the ring only.
            std::thread::sleep(FULL_PAUSE.min(left));
            self.check(interface)?;
        }
    }

    /// Whether the interface still works.
    pub(super) fn check(&self, interface: &Interface) -> Result<(), LinkError> {
        socket::check(&self.socket, &interface.name)?;
        // An interface that is down has no word of its own: asking for a look at the ring tells.
        match self.wake() {
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)) =>
            {
                Err(system("sendto", &interface.name, error))
            }
            _ => Ok(()),
        }
    }

    /// Takes the chunks back whose frames are out.
    #[inline]
    fn reclaim(&mut self) {
        while let Some(chunk) = self.complete.take() {
            self.free.push(chunk);
        }
        self.complete.release();
    }

    /// Puts a frame into the ring for sending.
    #[inline]
    fn put(&mut self, chunk: u64, frame: &Outgoing<'_>) {
        let (header, length) = (frame.header.len(), frame.len());
        // A driver without a copy of the kernel's in between need not pad.
        let padded = length.max(MINIMUM_FRAME_BYTES);
        // SAFETY: the chunk was on the free list, so it is ours, and no frame of it is lent.
        let bytes = unsafe { self.umem.frame_mut(chunk, padded) };
        bytes[..header].copy_from_slice(frame.header);
        barewire_copy::copy(frame.payload, &mut bytes[header..length]);
        bytes[length..].fill(0);
        self.transmit.put(libc::xdp_desc { addr: chunk, len: padded as u32, options: 0 });
    }

    /// The system call that makes the kernel look into the ring for sending.
    #[inline]
    fn wake(&self) -> io::Result<()> {
        // SAFETY: a null pointer with no length, which is how an AF_XDP socket is woken.
        let result =
            unsafe { libc::sendto(self.socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
