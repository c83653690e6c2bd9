// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own LLC type 2: stream sockets of AF_LLC, which its module llc2 offers outside of network namespaces.
//!
//! Where Linux deviates from IEEE 802.2, and why the sockets have the options below: `tests/kernel_llc/README.md`.

use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use barewire_link::{ETHERNET_HEADER_BYTES, Interface};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

use super::byte_stream::{ByteStream, sleep_to_send};
use super::tcp::MINIMUM_WIRE_BYTES;
use super::{Counters, Endpoint, LocalConfig, SLEEP_MAX, Transport, WIRE_OVERHEAD_BYTES};
use crate::protocol::Sap;
use barewire_recorder::LaunchError;

/// How long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// DSAP, SSAP and the control field of an I PDU.
const HEADER_BYTES: usize = 4;
/// N2: with the kernel's 2, a peer that pauses for five seconds causes a reset that loses data silently.
const RETRIES: libc::c_int = 20;
/// Half of what may be sent and not acknowledged, since the kernel doubles it: more than a window of 127 I PDUs of full
/// size, which take 2304 bytes each. The last of a window requests its acknowledgement; a socket that is full before,
/// as with the system's default, waits for T1, a second, since the receiver acknowledges every 127th by then.
const SEND_BUFFER_BYTES: libc::c_int = 200_000;
/// Half of what may be received and not read: the kernel drops I PDUs when the buffer is full, without sending RNR.
const RECEIVE_BUFFER_BYTES: libc::c_int = 4 << 20;
/// `LLC_OPT_RETRY` of linux/llc.h.
const LLC_OPT_RETRY: libc::c_int = 1;

/// `struct sockaddr_llc` of linux/llc.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    family: libc::sa_family_t,
    hardware: libc::sa_family_t,
    test: u8,
    xid: u8,
    ua: u8,
    sap: u8,
    mac: [u8; 6],
    padding: [u8; 2],
}

impl Address {
    const BYTES: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    fn new(mac: [u8; 6], sap: u8) -> Self {
        let (family, hardware) = (libc::AF_LLC as libc::sa_family_t, libc::ARPHRD_ETHER);
        Self { family, hardware, test: 0, xid: 0, ua: 0, sap, mac, padding: [0; 2] }
    }
}

/// The passive side's socket, which listens at a SAP of the kernel's choice.
pub struct Listening {
    socket: OwnedFd,
    mtu: usize,
}

impl Listening {
    pub fn new(local: &LocalConfig) -> Result<(Self, Endpoint), LaunchError> {
        let (socket, own) = bound(local)?;
        // SAFETY: no pointers.
        if unsafe { libc::listen(socket.as_raw_fd(), 1) } != 0 {
            return Err(LaunchError::last("listen(AF_LLC)"));
        }
        set_timeout(&socket, libc::SO_RCVTIMEO, PATIENCE)?;
        Ok((Self { socket, mtu: own.mtu }, Endpoint::Sap(own)))
    }

    /// Accepts the connection from `peer`, and closes any other.
    pub fn accept(self, peer: Sap) -> Result<KernelLlc, LaunchError> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let (descriptor, none) = (self.socket.as_raw_fd(), std::ptr::null_mut());
            // SAFETY: no address is asked for.
            let accepted = unsafe { libc::accept4(descriptor, none, std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
            if accepted < 0 {
                return Err(LaunchError::last("accept(AF_LLC)"));
            }
            // SAFETY: the descriptor is new, and nothing else owns it.
            let socket = unsafe { OwnedFd::from_raw_fd(accepted) };
            let from = address_of(&socket, libc::getpeername)?;
            if (from.mac, from.sap) == (peer.address, peer.sap) {
                return KernelLlc::new(socket, self.mtu.min(peer.mtu));
            }
        }
        Err(LaunchError::Failed("the peer has not opened an AF_LLC connection".to_owned()))
    }
}

pub fn connect(local: &LocalConfig, peer: Sap) -> Result<(KernelLlc, Endpoint), LaunchError> {
    let (socket, own) = bound(local)?;
    set_timeout(&socket, libc::SO_SNDTIMEO, PATIENCE)?;
    let address = Address::new(peer.address, peer.sap);
    // SAFETY: pointer and length describe `address`.
    if unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), Address::BYTES) } != 0 {
        return Err(LaunchError::last("the kernel cannot connect by LLC"));
    }
    Ok((KernelLlc::new(socket, own.mtu.min(peer.mtu))?, Endpoint::Sap(own)))
}

/// A socket at a SAP of the kernel's choice on the interface.
fn bound(local: &LocalConfig) -> Result<(OwnedFd, Sap), LaunchError> {
    let interface = Interface::by_name(local.interface()?)?;
    // SAFETY: no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_LLC, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(no_socket(Errno::last()));
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    set_options(&socket)?;
    let address = Address::new(interface.address.0, 0);
    // SAFETY: pointer and length describe `address`.
    if unsafe { libc::bind(descriptor, (&raw const address).cast(), Address::BYTES) } != 0 {
        return Err(LaunchError::last("bind(AF_LLC)"));
    }
    let sap = address_of(&socket, libc::getsockname)?.sap;
    Ok((socket, Sap { address: interface.address.0, sap, mtu: interface.mtu }))
}

fn no_socket(error: Errno) -> LaunchError {
    let text = match error {
        Errno::EAFNOSUPPORT | Errno::ESOCKTNOSUPPORT => {
            "the kernel offers no AF_LLC sockets here: load its module by `modprobe llc2`, and measure outside of \
             network namespaces, so between hosts or with --emulated"
        }
        Errno::EPERM | Errno::EACCES => "AF_LLC sockets need CAP_NET_RAW: run as root",
        error => return LaunchError::system("socket(AF_LLC)", error),
    };
    LaunchError::MachineCannot(text.to_owned())
}

/// Options that an accepted socket does not inherit.
fn set_options(socket: &OwnedFd) -> Result<(), LaunchError> {
    set_option(socket, libc::SOL_LLC, LLC_OPT_RETRY, &RETRIES)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER_BYTES)?;
    // Without CAP_NET_ADMIN the system's maximum is all there is.
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER_BYTES)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER_BYTES))
}

fn set_timeout(socket: &OwnedFd, option: libc::c_int, timeout: Duration) -> Result<(), LaunchError> {
    let (seconds, microseconds) = (timeout.as_secs(), timeout.subsec_micros());
    let value = libc::timeval { tv_sec: seconds as libc::time_t, tv_usec: libc::suseconds_t::from(microseconds) };
    set_option(socket, libc::SOL_SOCKET, option, &value)
}

fn set_option<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> Result<(), LaunchError> {
    let (pointer, length) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: pointer and length describe `value`.
    if unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, length) } != 0 {
        return Err(LaunchError::last("setsockopt(AF_LLC)"));
    }
    Ok(())
}

type GetName = unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

/// One end's address, by `getsockname` or `getpeername`.
fn address_of(socket: &OwnedFd, name: GetName) -> Result<Address, LaunchError> {
    // SAFETY: zeros are a valid address.
    let mut address: Address = unsafe { mem::zeroed() };
    let mut length = Address::BYTES;
    // SAFETY: pointer and length describe `address`.
    if unsafe { name(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) } != 0 {
        return Err(LaunchError::last("address of an AF_LLC socket"));
    }
    Ok(address)
}

/// An open connection.
pub struct KernelLlc {
    stream: ByteStream<OwnedFd>,
    mtu: usize,
}

impl KernelLlc {
    fn new(socket: OwnedFd, mtu: usize) -> Result<Self, LaunchError> {
        set_options(&socket)?;
        // The first one also bounds close(), which waits for the answer to its DISC.
        set_timeout(&socket, libc::SO_RCVTIMEO, SLEEP_MAX)?;
        set_timeout(&socket, libc::SO_SNDTIMEO, SLEEP_MAX)?;
        Ok(Self { stream: ByteStream::new(socket, "AF_LLC"), mtu })
    }
}

impl Transport for KernelLlc {
    /// A call sends at most one I PDU. While the kernel waits for the answer to its poll, it takes none.
    #[inline]
    unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        self.stream.try_send(message, done)
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        self.stream.receive(message, patience)
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        sleep_to_send(&self.stream.socket, patience)
    }

    fn set_pace(&mut self, _bit_s: Option<f64>) {}

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        let frames = message_bytes.div_ceil(self.mtu - HEADER_BYTES);
        let overhead = ETHERNET_HEADER_BYTES + HEADER_BYTES + WIRE_OVERHEAD_BYTES;
        (message_bytes + frames * overhead).max(MINIMUM_WIRE_BYTES)
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn check(&mut self) -> Result<(), LaunchError> {
        match getsockopt(&self.stream.socket, sockopt::SocketError) {
            Ok(0) => Ok(()),
            Ok(error) => Err(self.stream.failed(Errno::from_raw(error))),
            Err(error) => Err(self.stream.failed(error)),
        }
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        Ok(Counters { send_busy: self.stream.send_busy, ..Counters::default() })
    }

    fn mtu(&self) -> Option<usize> {
        Some(self.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_kernels_layout() {
        let address = Address::new([2, 0, 0, 0, 0, 9], 0x44);
        assert_eq!(Address::BYTES, 16);
        assert_eq!(mem::offset_of!(Address, sap), 7);
        assert_eq!(mem::offset_of!(Address, mac), 8);
        assert_eq!((address.family, address.hardware), (26, 1));
    }

    #[test]
    fn a_message_takes_an_i_pdu_for_each_mtu() {
        // SAFETY: no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
        // SAFETY: the descriptor is new.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let transport = KernelLlc { stream: ByteStream::new(socket, "AF_LLC"), mtu: 1500 };
        assert_eq!(transport.wire_bytes(1), 84, "the smallest frame");
        assert_eq!(transport.wire_bytes(1496), 1538, "one frame of full size");
        assert_eq!(transport.wire_bytes(1497), 1497 + 2 * 42);
    }

    #[test]
    fn what_the_machine_lacks_is_said_with_its_remedy() {
        assert!(
            matches!(no_socket(Errno::EAFNOSUPPORT), LaunchError::MachineCannot(text) if text.contains("modprobe llc2"))
        );
        assert!(matches!(no_socket(Errno::EPERM), LaunchError::MachineCannot(text) if text.contains("root")));
        assert!(matches!(no_socket(Errno::EMFILE), LaunchError::Failed(_)));
    }
}
