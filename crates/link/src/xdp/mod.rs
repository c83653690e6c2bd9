// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_XDP: a link over one receive queue of an interface, with frames in memory shared by program and driver.
//!
//! A small program at the interface's XDP hook redirects the frames that match the filter to this socket and passes all
//! others on to the kernel, whose IP keeps working. The link needs queue and hook exclusively:
//! a second one is refused.

mod program;
mod rings;
mod sender;
mod umem;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use self::program::{Attached, Hook, Program};
use self::rings::{Consumer, Producer};
pub(crate) use self::sender::XdpSender;
use self::umem::RECEIVE_CHUNKS;
use crate::address::{Ends, ends};
use crate::interface::system;
use crate::socket::{self, set_option};
use crate::{Counters, Filter, Incoming, IncomingMut, Interface, Link, LinkError, MacAddress, Outgoing, VlanTag};

/// Configuration of an [`XdpLink`].
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// The interface's name.
    pub interface: String,
    /// Frames to receive; offsets as for the packet link, ignoring a VLAN tag.
    pub filter: Filter,
    /// The receive queue; frames in other queues of the interface pass on to the kernel.
    pub queue: u16,
    /// Hook of the program, and whether frames are copied.
    pub mode: XdpMode,
    /// Busy polling of the device while this link waits, instead of interrupts.
    pub busy_poll: Option<BusyPoll>,
}

/// Hook of the program, and whether frames are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// The first supported mode of zero-copy, native and generic; on a veth generic, which is faster there.
    #[default]
    Auto,
    /// In the kernel's common path, with a copy; supported by every interface.
    Generic,
    /// In the driver, with a copy.
    Native,
    /// In the driver; the device accesses the program's memory directly.
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

/// Parameters of busy polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Longest time of polling per wait, in microseconds.
    pub micros: u16,
    /// Largest number of frames per poll.
    pub budget: u16,
}

impl Default for BusyPoll {
    /// One or two round trips, and the kernel's default budget.
    fn default() -> Self {
        Self { micros: 50, budget: 64 }
    }
}

/// A link over AF_XDP.
pub struct XdpLink {
    // First, so that it is detached before the socket closes.
    _program: Attached,
    fill: Producer<u64>,
    receive: Consumer<libc::xdp_desc>,
    /// Owns the socket and the UMEM of both directions.
    sender: XdpSender,
    interface: Interface,
    mode: XdpMode,
    /// The chunk of the frame lent to the caller.
    lent: Option<u64>,
    counters: Counters,
}

/// Chunks released to the kernel at once: each release transfers a cache line to its core.
const RELEASE_CHUNKS: u32 = 16;
/// How long to retry binding: a queue becomes free shortly after its last user is gone.
const BIND_TIMEOUT: Duration = Duration::from_millis(500);

impl XdpLink {
    /// Takes over the interface's queue. The kernel restores it when the link is dropped or its process ends.
    ///
    /// # Errors
    /// [`LinkError::XdpNotPermitted`], [`LinkError::NoSuchInterface`], [`LinkError::NoSuchQueue`],
    /// [`LinkError::XdpTaken`], [`LinkError::XdpMode`] if the interface does not have the mode,
    /// [`LinkError::MtuTooLarge`], [`LinkError::MemoryNotLocked`], [`LinkError::InterfaceDown`], or the
    /// system's error.
    pub fn open(config: &XdpConfig) -> Result<Self, LinkError> {
        let interface = Interface::by_name(&config.interface)?;
        let name = &config.interface;
        let failed = |(operation, source)| xdp_system(operation, name, source);
        let sender = XdpSender::new(&interface, RECEIVE_CHUNKS)?;
        let socket = sender.socket();
        let mut fill = Producer::fill(socket, RECEIVE_CHUNKS).map_err(failed)?;
        let receive = Consumer::receive(socket, RECEIVE_CHUNKS).map_err(failed)?;
        for chunk in sender.receive_chunks() {
            fill.put(chunk);
        }
        fill.publish();
        if let Some(busy_poll) = config.busy_poll {
            prefer_busy_poll(socket, busy_poll).map_err(|error| failed(("SO_BUSY_POLL", error)))?;
        }
        let program = Program::load(&config.filter, interface.address, u32::from(config.queue) + 1).map_err(failed)?;
        let (program, hook) = attach(program, &interface, config.mode)?;
        bind_with_retry(socket, &interface, config, hook)?;
        let options: libc::xdp_options = socket::get_option(socket, libc::SOL_XDP, libc::XDP_OPTIONS)
            .map_err(|error| failed(("XDP_OPTIONS", error)))?;
        program.redirect(u32::from(config.queue), socket).map_err(|error| failed(("bpf(MAP_UPDATE_ELEM)", error)))?;
        let mode = match hook {
            Hook::Generic => XdpMode::Generic,
            Hook::Native if options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0 => XdpMode::ZeroCopy,
            Hook::Native => XdpMode::Native,
        };
        let counters = Counters::default();
        let mut link = Self { _program: program, fill, receive, sender, interface, mode, lent: None, counters };
        link.check()?;
        Ok(link)
    }

    /// The interface as it was when the link was opened.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The mode in use, never [`XdpMode::Auto`].
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Releases the lent chunk to the kernel, which sees it once [`RELEASE_CHUNKS`] have accumulated.
    #[inline]
    fn release_lent(&mut self) {
        if let Some(chunk) = self.lent.take() {
            // The ring has as many entries as there are chunks.
            self.fill.put(chunk);
            if self.fill.unpublished() >= RELEASE_CHUNKS {
                self.fill.publish();
                self.receive.release();
            }
        }
    }

    /// Releases all chunks, before this link sleeps.
    fn release_all(&mut self) {
        self.release_lent();
        self.fill.publish();
        self.receive.release();
    }

    /// Wakes a driver that ran out of chunks. [`Link::check`] reports failures.
    #[cold]
    fn wake_receiver(&self) {
        // SAFETY: a null pointer with length 0, as AF_XDP expects.
        unsafe {
            libc::recvfrom(
                self.sender.socket().as_raw_fd(),
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
        let accepted = self.sender.put_all(&self.interface, frames, addresses, &mut self.counters)?;
        self.sender.kick(&self.interface, &mut self.counters)?;
        self.counters.sent += accepted as u64;
        Ok(accepted)
    }

    /// As [`Link::receive`].
    #[inline]
    pub fn receive_mut(&mut self) -> Option<IncomingMut<'_>> {
        self.release_lent();
        let Some(descriptor) = self.receive.take() else {
            // Idle: release the chunks that a driver may be waiting for.
            if self.fill.unpublished() > 0 {
                self.release_all();
            }
            if self.mode == XdpMode::ZeroCopy && self.fill.needs_wakeup() {
                self.wake_receiver();
            }
            return None;
        };
        self.counters.received += 1;
        self.lent = Some(self.sender.chunk_of(descriptor.addr));
        // SAFETY: the kernel has handed over this chunk; `release_lent` returns it, with `&mut self` and so
        // after the end of the returned borrow.
        let bytes = unsafe { self.sender.frame_mut(descriptor.addr, descriptor.len as usize) };
        let (bytes, vlan) = strip_vlan_tag(bytes);
        Some(IncomingMut { frame_bytes: bytes.len(), bytes, vlan })
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
        self.send_with(frames, None)
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.receive_mut().map(Incoming::from)
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.release_all();
        let Self { sender, interface, counters, .. } = self;
        sender
            .kick(interface, counters)
            .and_then(|()| socket::wait(sender.socket(), &interface.name, libc::POLLIN, others, timeout))
            .map_err(|error| interface.refine_down(error))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let Self { sender, interface, counters, .. } = self;
        sender.wait_to_send(interface, counters, timeout).map_err(|error| interface.refine_down(error))
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.sender.check(&self.interface).map_err(|error| self.interface.refine_down(error))
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let statistics: libc::xdp_statistics =
            socket::get_option(self.sender.socket(), libc::SOL_XDP, libc::XDP_STATISTICS)
                .map_err(|error| self.failed("XDP_STATISTICS", error))?;
        self.counters.receive_dropped = statistics.rx_dropped + statistics.rx_ring_full;
        Ok(self.counters)
    }
}

impl AsFd for XdpLink {
    /// A descriptor that is readable when a frame is available, after a [`receive`](Link::receive) that returned none.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.socket().as_fd()
    }
}

const VLAN_TAG_BYTES: usize = 4;

/// Removes a VLAN tag from a frame, as on the packet link: moves the addresses up to the EtherType.
#[inline]
fn strip_vlan_tag(bytes: &mut [u8]) -> (&mut [u8], Option<VlanTag>) {
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
    (&mut bytes[VLAN_TAG_BYTES..], Some(tag))
}

fn prefer_busy_poll(socket: &OwnedFd, busy_poll: BusyPoll) -> io::Result<()> {
    let options = [
        (libc::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, libc::c_int::from(busy_poll.micros)),
        (libc::SO_BUSY_POLL_BUDGET, libc::c_int::from(busy_poll.budget)),
    ];
    options.iter().try_for_each(|(option, value)| set_option(socket, libc::SOL_SOCKET, *option, value))
}

/// Attaches the program to the first hook that the mode allows and the interface supports.
fn attach(program: Program, interface: &Interface, mode: XdpMode) -> Result<(Attached, Hook), LinkError> {
    let hooks: &[Hook] = match mode {
        // A veth receives the sender's socket buffers, which its native hook must convert first:
        // measured 25 % slower than the generic one.
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
                    // The driver lacks the hook, or does not support it with this MTU or these settings.
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

/// Binds the socket to the queue.
fn bind_with_retry(socket: &OwnedFd, interface: &Interface, config: &XdpConfig, hook: Hook) -> Result<(), LinkError> {
    let copies = match (config.mode, hook) {
        (XdpMode::ZeroCopy, _) => libc::XDP_ZEROCOPY,
        // The kernel tries zero-copy first.
        (XdpMode::Auto, Hook::Native) => 0,
        _ => libc::XDP_COPY,
    };
    let end = Instant::now() + BIND_TIMEOUT;
    loop {
        let bound = bind(socket, interface, u32::from(config.queue), copies | libc::XDP_USE_NEED_WAKEUP);
        let Err(source) = bound else { return Ok(()) };
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

fn bind(socket: &OwnedFd, interface: &Interface, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface.index.cast_unsigned(),
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    socket::bind(socket, &address)
}

/// As [`system`], with the errors specific to AF_XDP.
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
    fn vlan_tag_is_stripped_and_reported() {
        let plain = [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..], &[0x88, 0xb5], b"data"].concat();
        let tagged = [&plain[..12], &[0x81, 0x00, 0x60, 0x07], &plain[12..]].concat();
        let tag = VlanTag { protocol: 0x8100, control: 0x6007 };
        assert_eq!(strip_vlan_tag(&mut tagged.clone()), (&mut plain.clone()[..], Some(tag)));
        assert_eq!(strip_vlan_tag(&mut plain.clone()), (&mut plain.clone()[..], None));
        assert_eq!(strip_vlan_tag(&mut [0x81; 13]), (&mut [0x81; 13][..], None), "too short for a tag");
    }
}
