// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET sockets for a process that may not make them: filtered once and for all before they are handed over.
//!
//! Whoever holds such a socket could bind it anew, were it in no group, and can ask for promiscuous mode and for its
//! host's outgoing frames, all without a capability. So the filter itself says which interface, and that the frame was
//! for this host. What is sent is not filtered; the socket's mark lets a rule at the interface's egress tell it from others.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::filter::instruction;
use crate::interface::system;
use crate::packet_socket::{Fanout, bind, open_filtered};
use crate::ring::{ReceiveRing, RingGeometry};
use crate::socket::{self, get_option, set_option};
use crate::{Filter, Interface, LinkError};

/// A socket that is filtered and in no fanout group yet: before it is handed over it has to enter one, by
/// [`seclude`](Self::seclude) or [`FanoutGroup::admit`](crate::FanoutGroup::admit).
pub struct Restricted {
    pub(crate) socket: OwnedFd,
    pub(crate) ring: RingGeometry,
    pub(crate) interface: String,
}

impl Restricted {
    /// Opens a socket on an interface that receives what the filter keeps, for this host, of that interface, for ever;
    /// every frame that it sends has `mark`, which its holder cannot change without CAP_NET_RAW or CAP_NET_ADMIN. It
    /// has a receive ring of at least `ring_bytes`.
    ///
    /// # Errors
    /// [`LinkError::NotPermitted`] without CAP_NET_RAW, or before Linux 5.17, where a mark needs CAP_NET_ADMIN;
    /// otherwise what the system says.
    pub fn open(
        interface: &Interface,
        protocol: u16,
        filter: &Filter,
        mark: u32,
        ring_bytes: usize,
    ) -> Result<Self, LinkError> {
        let name = &interface.name;
        let failed = |operation| move |source| system(operation, name, source);
        let program = [only_for_this_host_from(interface.index), filter.compile()].concat();
        let socket = open_filtered(name, program)?;
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &on).map_err(failed("SO_LOCK_FILTER"))?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, &mark).map_err(failed("SO_MARK"))?;
        let ring = RingGeometry::new(interface.mtu, ring_bytes);
        ReceiveRing::set_up(&socket, ring).map_err(|(operation, source)| failed(operation)(source))?;
        bind(&socket, interface.index, protocol).map_err(failed("bind"))?;
        // An interface that is down binds without complaint; a group of it cannot be made.
        socket::check(&socket, name)?;
        Ok(Self { socket, ring, interface: name.clone() })
    }

    /// Enters a group of one, which nobody can join.
    ///
    /// # Errors
    /// What the system says.
    pub fn seclude(self) -> Result<(OwnedFd, RingGeometry), LinkError> {
        set_option(&self.socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &Fanout::ALONE)
            .map_err(|source| system("PACKET_FANOUT", &self.interface, source))?;
        Ok((self.socket, self.ring))
    }
}

/// The beginning of a program: ends it with "no" for frames of other interfaces, for other hosts, or of our own.
fn only_for_this_host_from(index: i32) -> Vec<libc::sock_filter> {
    let load = |what: libc::c_int| {
        let offset = (libc::SKF_AD_OFF + what).cast_unsigned();
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
    };
    let no = instruction(libc::BPF_RET | libc::BPF_K, 0);
    let jump = |comparison, value, jt, jf| {
        let code = libc::BPF_JMP | comparison | libc::BPF_K;
        libc::sock_filter { jt, jf, ..instruction(code, value) }
    };
    vec![
        load(libc::SKF_AD_IFINDEX),
        jump(libc::BPF_JEQ, index.cast_unsigned(), 1, 0),
        no,
        load(libc::SKF_AD_PKTTYPE),
        // To this host, to all, to some; behind these come other hosts' and outgoing frames.
        jump(libc::BPF_JGT, u32::from(libc::PACKET_MULTICAST), 0, 1),
        no,
    ]
}

/// Whether a socket that came from elsewhere is an AF_PACKET one with Ethernet headers, bound to the interface.
pub(crate) fn verify(socket: &OwnedFd, interface: &Interface) -> Result<(), LinkError> {
    let foreign = |reason: String| LinkError::ForeignSocket { interface: interface.name.clone(), reason };
    let option = |option| {
        let value: io::Result<libc::c_int> = get_option(socket, libc::SOL_SOCKET, option);
        value.map_err(|error| foreign(error.to_string()))
    };
    let (domain, kind) = (option(libc::SO_DOMAIN)?, option(libc::SO_TYPE)?);
    if (domain, kind) != (libc::AF_PACKET, libc::SOCK_RAW) {
        return Err(foreign(format!("it is of domain {domain} and type {kind}")));
    }
    let index = bound_to(socket).map_err(|error| foreign(error.to_string()))?;
    if index != interface.index {
        return Err(foreign(format!("its interface is number {index}, not {}", interface.index)));
    }
    Ok(())
}

fn bound_to(socket: &OwnedFd) -> io::Result<i32> {
    // SAFETY: zeros are a valid link-layer address.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&address)).expect("addresses are small");
    // SAFETY: pointer and length describe `address`, of which the kernel writes at most that much.
    match unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) } {
        0 => Ok(address.sll_ifindex),
        _ => Err(io::Error::last_os_error()),
    }
}
