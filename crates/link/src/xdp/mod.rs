// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_XDP: one receive queue of an interface, with frames in memory that program and driver share.
//!
//! A small program at the interface's XDP hook sends the frames that the filter wants to this socket and all
//! others on to the kernel, whose IP goes on working. The interface's queue and its hook are this link's alone:
//! a second one is refused.

mod program;
mod rings;
mod umem;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use self::program::{Attached, Hook, Program};
use self::rings::{Consumer, Producer};
use self::umem::{LONGEST_FRAME_BYTES, RECEIVE_CHUNKS, SEND_CHUNKS, Umem, chunk_bytes};
use crate::interface::{owned, system};
use crate::socket::{self, set_option};
use crate::{
    Counters, ETHERNET_HEADER_BYTES, Filter, Incoming, Interface, Link, LinkError, MINIMUM_FRAME_BYTES, MacAddress,
    Outgoing, VlanTag,
};

/// How to open an [`XdpLink`].
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// The interface's name.
    pub interface: String,
    /// Which frames to take from the kernel; offsets as for the packet link, a VLAN tag counting as not there.
    pub filter: Filter,
    /// The receive queue to take them from; frames that the interface puts into others pass on to the kernel.
    pub queue: u16,
    /// Where the program runs, and whether frames are copied.
    pub mode: XdpMode,
    /// Poll the device from this program's own waiting, instead of waiting for its interrupt.
    pub busy_poll: Option<BusyPoll>,
}

/// Where the program at the hook runs, and who copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// The first that the interface has of zero-copy, native and generic; on a veth generic, which is faster there.
    #[default]
    Auto,
    /// In the kernel's common path, with a copy: every interface.
    Generic,
    /// In the driver, with a copy.
    Native,
    /// In the driver; the device reads and writes the program's memory itself.
    ZeroCopy,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "automatic",
            Self::Generic => "generic",
            Self::Native => "native",
            Self::ZeroCopy => "zero-copy",
        })
    }
}

/// How the kernel polls the device while this link waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Longest time that one wait polls.
    pub micros: u16,
    /// Frames that one poll takes at most.
    pub budget: u16,
}

impl Default for BusyPoll {
    /// A round trip or two, and as many frames as the kernel's own polls take.
    fn default() -> Self {
        Self { micros: 50, budget: 64 }
    }
}

/// A link over AF_XDP.
pub struct XdpLink {
    // First, so that no frame is on its way to the socket when that closes.
    _program: Attached,
    fill: Producer<u64>,
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    complete: Consumer<u64>,
    socket: OwnedFd,
    // Behind the socket, whose driver writes to it.
    umem: Umem,
    interface: Interface,
    mode: XdpMode,
    /// The chunk whose frame is lent to the caller.
    lent: Option<u64>,
    /// Chunks to send from; the last one used is on top.
    free: Vec<u64>,
    counters: Counters,
}

/// Chunks given back to the kernel at once: each time, a cache line goes to its core.
const GIVE_BACK_CHUNKS: u32 = 16;
/// A queue is free a moment after its last user is gone; longer, somebody has it.
const QUEUE_PATIENCE: Duration = Duration::from_millis(500);
/// A full link has no word to wait for; looked at again after this time.
const FULL_PAUSE: Duration = Duration::from_micros(20);

impl XdpLink {
    /// Takes the interface's queue. The kernel puts everything back when the link is dropped or its process ends.
    ///
    /// # Errors
    /// [`LinkError::XdpNotPermitted`], [`LinkError::NoSuchInterface`], [`LinkError::NoSuchQueue`],
    /// [`LinkError::XdpTaken`], [`LinkError::XdpMode`] if the interface does not have the mode,
    /// [`LinkError::MtuTooLarge`], [`LinkError::MemoryNotLocked`], [`LinkError::InterfaceDown`], or what the
    /// system says.
    pub fn open(config: &XdpConfig) -> Result<Self, LinkError> {
        let interface = Interface::by_name(&config.interface)?;
        // A tag may come on top of the MTU.
        let longest_frame = ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES + interface.mtu;
        let chunk_bytes = chunk_bytes(longest_frame).ok_or_else(|| LinkError::MtuTooLarge {
            interface: interface.name.clone(),
            mtu: interface.mtu,
            most: LONGEST_FRAME_BYTES - ETHERNET_HEADER_BYTES - VLAN_TAG_BYTES,
        })?;
        let name = &config.interface;
        let failed = |(operation, source)| xdp_system(operation, name, source);
        // SAFETY: socket() takes no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let socket = owned(descriptor).map_err(|error| failed(("socket(AF_XDP)", error)))?;
        let umem = Umem::register(&socket, chunk_bytes).map_err(|(operation, error)| match error.raw_os_error() {
            Some(libc::ENOBUFS) => LinkError::MemoryNotLocked { bytes: Umem::bytes(chunk_bytes) },
            _ => failed((operation, error)),
        })?;
        let mut fill = Producer::fill(&socket, RECEIVE_CHUNKS).map_err(failed)?;
        let complete = Consumer::complete(&socket, SEND_CHUNKS).map_err(failed)?;
        let receive = Consumer::receive(&socket, RECEIVE_CHUNKS).map_err(failed)?;
        let transmit = Producer::send(&socket, SEND_CHUNKS).map_err(failed)?;
        for chunk in umem.receive_chunks() {
            fill.put(chunk);
        }
        fill.publish();
        if let Some(busy_poll) = config.busy_poll {
            prefer_busy_poll(&socket, busy_poll).map_err(|error| failed(("SO_BUSY_POLL", error)))?;
        }
        let program = Program::load(&config.filter, u32::from(config.queue) + 1).map_err(failed)?;
        let (program, hook) = attach(program, &interface, config.mode)?;
        bind(&socket, &interface, config, hook)?;
        let options: libc::xdp_options = socket::get_option(&socket, libc::SOL_XDP, libc::XDP_OPTIONS)
            .map_err(|error| failed(("XDP_OPTIONS", error)))?;
        program.direct(u32::from(config.queue), &socket).map_err(|error| failed(("bpf(MAP_UPDATE_ELEM)", error)))?;
        let mode = match hook {
            Hook::Generic => XdpMode::Generic,
            Hook::Native if options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0 => XdpMode::ZeroCopy,
            Hook::Native => XdpMode::Native,
        };
        let free = umem.send_chunks().collect();
        let mut link = Self {
            _program: program,
            fill,
            receive,
            transmit,
            complete,
            socket,
            umem,
            interface,
            mode,
            lent: None,
            free,
            counters: Counters::default(),
        };
        link.check()?;
        Ok(link)
    }

    /// The interface as it was when the link was opened.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// How the link works: what [`XdpMode::Auto`] came to.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Gives the chunk lent last back to the kernel, which sees it once there are some.
    #[inline]
    fn give_back(&mut self) {
        if let Some(chunk) = self.lent.take() {
            // There are as many places as chunks.
            self.fill.put(chunk);
            if self.fill.unpublished() >= GIVE_BACK_CHUNKS {
                self.fill.publish();
                self.receive.release();
            }
        }
    }

    /// Gives everything back, before this link sleeps.
    fn settle(&mut self) {
        self.give_back();
        self.fill.publish();
        self.receive.release();
    }

    /// Takes the chunks back whose frames are out.
    #[inline]
    fn reclaim(&mut self) {
        while let Some(chunk) = self.complete.take() {
            self.free.push(chunk);
        }
        self.complete.release();
    }

    /// Puts a frame into the ring for sending; the caller knows that a chunk is free.
    #[inline]
    fn put(&mut self, chunk: u64, frame: &Outgoing<'_>) {
        let (header, length) = (frame.header.len(), frame.len());
        // A driver without a copy of the kernel's in between need not pad.
        let padded = length.max(MINIMUM_FRAME_BYTES);
        // SAFETY: the chunk was on the free list, so it is ours, and no frame of it is lent.
        let bytes = unsafe { self.umem.frame_mut(chunk, padded) };
        bytes[..header].copy_from_slice(frame.header);
        bytes[header..length].copy_from_slice(frame.payload);
        bytes[length..].fill(0);
        self.transmit.put(libc::xdp_desc { addr: chunk, len: padded as u32, options: 0 });
    }

    /// Lets the kernel send what is in the ring. What it does not take now stays there for the next call.
    #[inline]
    fn kick(&mut self) -> Result<(), LinkError> {
        let mut pending = self.transmit.pending();
        while pending > 0 && self.transmit.needs_wakeup() {
            if let Err(error) = self.wake() {
                match error.raw_os_error() {
                    // One call takes some frames and says EAGAIN if there are more. EBUSY: the device is full.
                    Some(libc::EAGAIN) => {}
                    Some(libc::EBUSY | libc::ENOBUFS | libc::EINTR) => self.counters.send_busy += 1,
                    _ => return Err(self.failed("sendto", error)),
                }
            }
            let left = self.transmit.pending();
            // Without a copy the device takes its time; with one it is full.
            if left == pending {
                break;
            }
            pending = left;
        }
        Ok(())
    }

    /// The system call that makes the kernel look into the ring for sending.
    #[inline]
    fn wake(&self) -> io::Result<()> {
        // SAFETY: a null pointer with no length, which is how an AF_XDP socket is woken.
        let result =
            unsafe { libc::sendto(self.socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes a driver that ran out of chunks look for new ones. What goes wrong shows in [`Link::check`].
    #[cold]
    fn wake_receiver(&self) {
        // SAFETY: a null pointer with no length, which is how an AF_XDP socket's driver is woken.
        unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> LinkError {
        system(operation, &self.interface.name, source)
    }
}

impl Link for XdpLink {
    fn address(&self) -> MacAddress {
        self.interface.address
    }

    fn mtu(&self) -> usize {
        self.interface.mtu
    }

    #[inline]
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let mut taken = 0;
        let mut too_long = None;
        for frame in frames {
            if frame.len() > ETHERNET_HEADER_BYTES + self.interface.mtu {
                too_long = Some(LinkError::FrameTooLong { frame_bytes: frame.len(), mtu: self.interface.mtu });
                break;
            }
            if self.free.is_empty() {
                self.reclaim();
            }
            let Some(chunk) = self.free.pop() else {
                self.counters.send_busy += 1;
                break;
            };
            self.put(chunk, frame);
            taken += 1;
        }
        self.transmit.publish();
        self.kick()?;
        self.reclaim();
        self.counters.sent += taken as u64;
        match too_long {
            Some(error) if taken == 0 => Err(error),
            _ => Ok(taken),
        }
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.give_back();
        let Some(descriptor) = self.receive.take() else {
            // With nothing else to do: a driver that ran out of chunks waits for them.
            if self.fill.unpublished() > 0 {
                self.settle();
            }
            if self.mode == XdpMode::ZeroCopy && self.fill.needs_wakeup() {
                self.wake_receiver();
            }
            return None;
        };
        self.counters.received += 1;
        self.lent = Some(self.umem.chunk_of(descriptor.addr));
        // SAFETY: the kernel has handed over this chunk, which goes back in `give_back`, with `&mut self` and so
        // after the end of the returned loan.
        let bytes = unsafe { self.umem.frame_mut(descriptor.addr, descriptor.len as usize) };
        let (bytes, vlan) = take_out_tag(bytes);
        Some(Incoming { bytes, frame_bytes: bytes.len(), vlan })
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.settle();
        self.kick()?;
        socket::wait(&self.socket, &self.interface.name, libc::POLLIN, others, timeout)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let end = Instant::now() + timeout;
        loop {
            self.kick()?;
            self.reclaim();
            let left = end.saturating_duration_since(Instant::now());
            if !self.free.is_empty() || left.is_zero() {
                return Ok(!self.free.is_empty());
            }
            // Chunks come back without a word; `poll` speaks of places in the ring only.
            std::thread::sleep(FULL_PAUSE.min(left));
            self.check()?;
        }
    }

    fn check(&mut self) -> Result<(), LinkError> {
        socket::check(&self.socket, &self.interface.name)?;
        // An interface that is down has no word of its own: asking for a look at the ring tells.
        match self.wake() {
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)) =>
            {
                Err(self.failed("sendto", error))
            }
            _ => Ok(()),
        }
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let statistics: libc::xdp_statistics = socket::get_option(&self.socket, libc::SOL_XDP, libc::XDP_STATISTICS)
            .map_err(|error| self.failed("XDP_STATISTICS", error))?;
        self.counters.receive_dropped = statistics.rx_dropped + statistics.rx_ring_full;
        Ok(self.counters)
    }
}

impl AsFd for XdpLink {
    /// What can be read once a frame has come, after a [`receive`](Link::receive) that found none.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

const VLAN_TAG_BYTES: usize = 4;

/// The frame without its VLAN tag, as the packet link lends it: the addresses move up to the EtherType.
#[inline]
fn take_out_tag(bytes: &mut [u8]) -> (&[u8], Option<VlanTag>) {
    let tag = match *bytes {
        [_, _, _, _, _, _, _, _, _, _, _, _, a @ (0x81 | 0x88), b, c, d, ..] => {
            VlanTag { protocol: u16::from_be_bytes([a, b]), control: u16::from_be_bytes([c, d]) }
        }
        _ => return (bytes, None),
    };
    if !matches!(tag.protocol, 0x8100 | 0x88a8) {
        return (bytes, None);
    }
    bytes.copy_within(..12, VLAN_TAG_BYTES);
    (&bytes[VLAN_TAG_BYTES..], Some(tag))
}

fn prefer_busy_poll(socket: &OwnedFd, busy_poll: BusyPoll) -> io::Result<()> {
    let options = [
        (libc::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, libc::c_int::from(busy_poll.micros)),
        (libc::SO_BUSY_POLL_BUDGET, libc::c_int::from(busy_poll.budget)),
    ];
    options.iter().try_for_each(|(option, value)| set_option(socket, libc::SOL_SOCKET, *option, value))
}

/// Puts the program on the first hook that the mode allows and the interface has.
fn attach(program: Program, interface: &Interface, mode: XdpMode) -> Result<(Attached, Hook), LinkError> {
    let hooks: &[Hook] = match mode {
        // A veth's frames come as the sender's socket buffers, which its native hook first has to unpack:
        // measured a quarter slower than the generic one.
        XdpMode::Auto if interface.driver() == "veth" => &[Hook::Generic],
        XdpMode::Auto => &[Hook::Native, Hook::Generic],
        XdpMode::Generic => &[Hook::Generic],
        XdpMode::Native | XdpMode::ZeroCopy => &[Hook::Native],
    };
    let mut program = program;
    let mut refusal = None;
    for hook in hooks {
        match program.attach(interface.index, *hook) {
            Ok(attached) => return Ok((attached, *hook)),
            Err((back, error)) => {
                program = back;
                match error.raw_os_error() {
                    // A driver without the hook, or whose hook does not do for this MTU or these settings.
                    Some(libc::EOPNOTSUPP | libc::ERANGE | libc::EINVAL) => refusal = Some(error),
                    Some(libc::EBUSY | libc::EEXIST) => return Err(LinkError::XdpTaken(interface.name.clone())),
                    _ => return Err(xdp_system("bpf(LINK_CREATE)", &interface.name, error)),
                }
            }
        }
    }
    let source = refusal.expect("every mode has a hook");
    Err(LinkError::XdpMode { interface: interface.name.clone(), mode, source })
}

/// Takes the queue.
fn bind(socket: &OwnedFd, interface: &Interface, config: &XdpConfig, hook: Hook) -> Result<(), LinkError> {
    let copies = match (config.mode, hook) {
        (XdpMode::ZeroCopy, _) => libc::XDP_ZEROCOPY,
        // The kernel tries without a copy first.
        (XdpMode::Auto, Hook::Native) => 0,
        _ => libc::XDP_COPY,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: copies | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface.index.cast_unsigned(),
        sxdp_queue_id: u32::from(config.queue),
        sxdp_shared_umem_fd: 0,
    };
    let end = Instant::now() + QUEUE_PATIENCE;
    loop {
        let Err(source) = socket::bind(socket, &address) else { return Ok(()) };
        let interface = interface.name.clone();
        return Err(match source.raw_os_error() {
            Some(libc::EBUSY) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Some(libc::EBUSY) => LinkError::XdpTaken(interface),
            Some(libc::EINVAL) if config.queue > 0 => LinkError::NoSuchQueue { interface, queue: config.queue },
            Some(libc::EOPNOTSUPP) => LinkError::XdpMode { interface, mode: config.mode, source },
            _ => xdp_system("bind", &interface, source),
        });
    }
}

/// As for other links; but more privilege is needed here.
fn xdp_system(operation: &'static str, interface: &str, source: io::Error) -> LinkError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => LinkError::XdpNotPermitted,
        Some(libc::EAFNOSUPPORT | libc::ENOSYS) => LinkError::NoXdp,
        _ => system(operation, interface, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_taken_out_and_told() {
        let plain = [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..], &[0x88, 0xb5], b"data"].concat();
        let tagged = [&plain[..12], &[0x81, 0x00, 0x60, 0x07], &plain[12..]].concat();
        let tag = VlanTag { protocol: 0x8100, control: 0x6007 };
        assert_eq!(take_out_tag(&mut tagged.clone()), (&plain[..], Some(tag)));
        assert_eq!(take_out_tag(&mut plain.clone()), (&plain[..], None));
        assert_eq!(take_out_tag(&mut [0x81; 13]), (&[0x81; 13][..], None), "too short for a tag");
    }
}
