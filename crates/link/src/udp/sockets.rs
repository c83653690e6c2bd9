// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system's sockets: opened, bound, connected and asked.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use super::address::{SocketAddress, is_usable};
use crate::LinkError;
use crate::interface::{IpInterface, owned, system};
use crate::socket::{self, get_option, set_option};

/// Wanted size of the socket's buffers; the system may grant less.
const BUFFER_BYTES: libc::c_int = 4 << 20;
/// Ports tried before giving up.
const PORTS_TRIED: usize = 64;

/// Sets a socket's options.
pub(super) fn set_up(socket: &OwnedFd, interface: &IpInterface) -> Result<(), LinkError> {
    let failed = |operation| move |source| system(operation, &interface.name, source);
    let on: libc::c_int = 1;
    // Coalesced datagrams are cut again here. Kernels before 5.0 cannot, and deliver them one by one.
    let _ = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, &on);
    // Datagrams that are too long for the path are fragmented by this host, which learns the path's MTU from ICMP.
    if interface.ip.is_ipv4() {
        set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_WANT)
            .map_err(failed("IP_MTU_DISCOVER"))?;
    } else {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_WANT)
            .map_err(failed("IPV6_MTU_DISCOVER"))?;
    }
    // The system caps what it grants to users without privileges.
    for (forced, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set_option(socket, libc::SOL_SOCKET, forced, &BUFFER_BYTES).is_err() {
            set_option(socket, libc::SOL_SOCKET, plain, &BUFFER_BYTES).map_err(failed("SO_RCVBUF"))?;
        }
    }
    Ok(())
}

/// Sockets bound to an address, at a usable port and those that follow, `count` in all: a power of two, of which the
/// first port is a multiple.
pub(super) fn bound(
    interface: &IpInterface,
    at: IpAddr,
    ports: Option<&RangeInclusive<u16>>,
    count: u16,
) -> Result<Vec<OwnedFd>, LinkError> {
    let failed = |operation| move |source| system(operation, &interface.name, source);
    let open = || {
        let family = if interface.ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: socket() takes no pointers.
        owned(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }).map_err(failed("socket"))
    };
    let bind =
        |socket: &OwnedFd, port| socket::bind(socket, &SocketAddress::new(at, port, interface.index.cast_unsigned()));
    // `None`: others have one of these ports.
    let block = |first: u16| -> Result<Option<Vec<OwnedFd>>, LinkError> {
        let mut sockets = Vec::new();
        for port in first..=first + (count - 1) {
            let socket = open()?;
            match bind(&socket, port) {
                Ok(()) => sockets.push(socket),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EACCES)) => return Ok(None),
                Err(error) => return Err(failed("bind")(error)),
            }
        }
        Ok(Some(sockets))
    };
    if let Some(ports) = ports {
        let is_first = |port: &u16| is_usable(*port) && port.is_multiple_of(count) && ports.end() - port >= count - 1;
        let usable: Vec<u16> = ports.clone().filter(is_first).collect();
        // Processes that start together start at different ports.
        let first = std::process::id() as usize % usable.len().max(1);
        for port in usable.iter().cycle().skip(first).take(usable.len()) {
            if let Some(sockets) = block(*port)? {
                return Ok(sockets);
            }
        }
        return Err(LinkError::NoPort { first: *ports.start(), last: *ports.end(), usable: usable.len() });
    }
    // Held until one is usable, so that the system offers others.
    let mut unusable = Vec::new();
    for _ in 0..PORTS_TRIED {
        let socket = open()?;
        bind(&socket, 0).map_err(failed("bind"))?;
        let (_, port) = own(&socket).map_err(failed("getsockname"))?;
        if !is_usable(port) {
            unusable.push(socket);
        } else if count == 1 {
            return Ok(vec![socket]);
        } else {
            drop(socket);
            if let Some(sockets) = block(port - port % count)? {
                return Ok(sockets);
            }
        }
    }
    Err(LinkError::NoPort { first: 1, last: u16::MAX, usable: 0 })
}

/// A socket with the same address as `socket`, connected to a peer.
pub(super) fn connected(socket: &OwnedFd, interface: &IpInterface, to: &SocketAddress) -> Result<OwnedFd, LinkError> {
    let failed = |operation| move |source| system(operation, &interface.name, source);
    let family = if interface.ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: socket() takes no pointers.
    let second = owned(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) });
    let second = second.map_err(failed("socket"))?;
    set_up(&second, interface)?;
    let (ip, port) = own(socket).map_err(failed("getsockname"))?;
    // Only while both are bound, so that the system gives the port to no other process of this user.
    let share = |socket: &OwnedFd, value: libc::c_int| set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, &value);
    share(socket, 1).and_then(|()| share(&second, 1)).map_err(failed("SO_REUSEPORT"))?;
    let bound = socket::bind(&second, &SocketAddress::new(ip, port, interface.index.cast_unsigned()));
    for socket in [socket, &second] {
        share(socket, 0).map_err(failed("SO_REUSEPORT"))?;
    }
    bound.map_err(failed("bind"))?;
    // What others sent before this call may have arrived here; it is received like everything else.
    connect(&second, to).map_err(failed("connect"))?;
    Ok(second)
}

pub(super) fn connect(socket: &OwnedFd, to: &SocketAddress) -> io::Result<()> {
    // SAFETY: pointer and length describe `to`.
    match unsafe { libc::connect(socket.as_raw_fd(), ptr::from_ref(to).cast(), to.bytes()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of datagrams that a socket had no room for.
pub(super) fn dropped(socket: &OwnedFd) -> io::Result<u64> {
    /// Index of that number among the values of `SO_MEMINFO` (linux/sock_diag.h).
    const DROPS: usize = 8;
    let values: [u32; DROPS + 1] = get_option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(u64::from(values[DROPS]))
}

/// The address to which a socket is bound.
pub(super) fn own(socket: &OwnedFd) -> io::Result<(IpAddr, u16)> {
    let mut address = SocketAddress::default();
    let mut length = size_of::<SocketAddress>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of an address.
    if unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    address.parts().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}
