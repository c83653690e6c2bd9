// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_XDP: one receive queue of an interface, with frames in memory that program and driver share.
//!
//! A small program at the interface's XDP hook sends the frames that the filter wants to this socket and all
//! others on to the kernel, whose IP goes on working. The interface's queue and its hook are this link's alone:
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
use crate::interface::system;
use crate::socket::{self, set_option};
use crate::{Counters, Filter, Incoming, Interface, Link, LinkError, MacAddress, Outgoing, VlanTag};

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
    /// The socket, and the memory of both directions.
    sender: XdpSender,
    interface: Interface,
    mode: XdpMode,
    /// The chunk whose frame is lent to the caller.
    lent: Option<u64>,
    counters: Counters,
}

/// Chunks given back to the kernel at once: each time, a cache line goes to its core.
const GIVE_BACK_CHUNKS: u32 = 16;
/// A queue is free a moment after its last user is gone; longer, somebody has it.
const QUEUE_PATIENCE: Duration = Duration::from_millis(500);

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
        let program = Program::load(&config.filter, u32::from(config.queue) + 1).map_err(failed)?;
        let (program, hook) = attach(program, &interface, config.mode)?;
        bind_patiently(socket, &interface, config, hook)?;
        let options: libc::xdp_options = socket::get_option(socket, libc::SOL_XDP, libc::XDP_OPTIONS)
            .map_err(|error| failed(("XDP_OPTIONS", error)))?;
        program.direct(u32::from(config.queue), socket).map_err(|error| failed(("bpf(MAP_UPDATE_ELEM)", error)))?;
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

    /// Makes a driver that ran out of chunks look for new ones. What goes wrong shows in [`Link::check`].
    #[cold]
    fn wake_receiver(&self) {
        // SAFETY: a null pointer with no length, which is how an AF_XDP socket's driver is woken.
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
        let taken = self.sender.put_all(&self.interface, frames, &mut self.counters)?;
        self.sender.kick(&self.interface, &mut self.counters)?;
        self.counters.sent += taken as u64;
        Ok(taken)
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
        self.lent = Some(self.sender.chunk_of(descriptor.addr));
        // SAFETY: the kernel has handed over this chunk, which goes back in `give_back`, with `&mut self` and so
        // after the end of the returned loan.
        let bytes = unsafe { self.sender.frame_mut(descriptor.addr, descriptor.len as usize) };
        let (bytes, vlan) = take_out_tag(bytes);
        Some(Incoming { bytes, frame_bytes: bytes.len(), vlan })
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.settle();
        let Self { sender, interface, counters, .. } = self;
        sender
            .kick(interface, counters)
            .and_then(|()| socket::wait(sender.socket(), &interface.name, libc::POLLIN, others, timeout))
            .map_err(|error| interface.down_or_gone(error))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let Self { sender, interface, counters, .. } = self;
        sender.wait_to_send(interface, counters, timeout).map_err(|error| interface.down_or_gone(error))
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.sender.check(&self.interface).map_err(|error| self.interface.down_or_gone(error))
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
    /// What can be read once a frame has come, after a [`receive`](Link::receive) that found none.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.socket().as_fd()
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
fn bind_patiently(socket: &OwnedFd, interface: &Interface, config: &XdpConfig, hook: Hook) -> Result<(), LinkError> {
    let copies = match (config.mode, hook) {
        (XdpMode::ZeroCopy, _) => libc::XDP_ZEROCOPY,
        // The kernel tries without a copy first.
        (XdpMode::Auto, Hook::Native) => 0,
        _ => libc::XDP_COPY,
    };
    let end = Instant::now() + QUEUE_PATIENCE;
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
