// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET sockets for processes without CAP_NET_RAW: their filter is locked before they are handed over.
//!
//! Without any capability, the holder of such a socket can enable promiscuous mode and the reception of its host's
//! outgoing frames, and could bind the socket again if it were in no fanout group. The filter itself therefore checks
//! the interface and that the frame was sent to this host. Transmission is not filtered; the socket's mark lets egress
//! rules recognise its frames.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::filter::{accept_only_to, instruction, load_metadata};
use crate::interface::system;
use crate::packet_socket::{Fanout, bind, open_filtered};
use crate::ring::{ReceiveRing, RingGeometry};
use crate::socket::{self, get_option, set_option};
use crate::{Filter, Interface, LinkError};

/// A socket with a locked filter that is not in a fanout group yet. Before it is handed over it must join one, by
/// [`join_private_group`](Self::join_private_group) or [`FanoutGroup::admit`](crate::FanoutGroup::admit).
pub struct Restricted {
    pub(crate) socket: OwnedFd,
    pub(crate) ring: RingGeometry,
    pub(crate) interface: String,
}

impl Restricted {
    /// Opens a socket with a locked filter: it receives only frames that the filter accepts, of this interface, to this
    /// host. Every frame that it sends has `mark`, which its holder cannot change without CAP_NET_RAW or CAP_NET_ADMIN.
    /// It has a receive ring of at least `ring_bytes`.
    ///
    /// # Errors
    /// [`LinkError::NotPermitted`] without CAP_NET_RAW, or before Linux 5.17, where a mark needs CAP_NET_ADMIN;
    /// otherwise the system's error.
    pub fn open(
        interface: &Interface,
        protocol: u16,
        filter: &Filter,
        mark: u32,
        ring_bytes: usize,
    ) -> Result<Self, LinkError> {
        let name = &interface.name;
        let failed = |operation| move |source| system(operation, name, source);
        let program =
            [&accept_only_from(interface.index)[..], &accept_only_to(interface.address), &filter.compile()].concat();
        let socket = open_filtered(name, program)?;
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &on).map_err(failed("SO_LOCK_FILTER"))?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, &mark).map_err(failed("SO_MARK"))?;
        let ring = RingGeometry::new(interface.mtu, ring_bytes);
        ReceiveRing::set_up(&socket, ring).map_err(|(operation, source)| failed(operation)(source))?;
        bind(&socket, interface.index, protocol).map_err(failed("bind"))?;
        // Binding to an interface that is down succeeds; creating a group would fail.
        socket::check(&socket, name)?;
        Ok(Self { socket, ring, interface: name.clone() })
    }

    /// Joins a new group that no other socket can join.
    ///
    /// # Errors
    /// The system's error.
    pub fn join_private_group(self) -> Result<(OwnedFd, RingGeometry), LinkError> {
        set_option(&self.socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &Fanout::PRIVATE)
            .map_err(|source| system("PACKET_FANOUT", &self.interface, source))?;
        Ok((self.socket, self.ring))
    }
}

/// The start of a filter program: refuses frames of other interfaces, and outgoing ones.
fn accept_only_from(index: i32) -> [libc::sock_filter; 6] {
    let refuse = instruction(libc::BPF_RET | libc::BPF_K, 0);
    let equal = |value| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value);
    [
        load_metadata(libc::SKF_AD_IFINDEX),
        libc::sock_filter { jt: 1, ..equal(index.cast_unsigned()) },
        refuse,
        load_metadata(libc::SKF_AD_PKTTYPE),
        libc::sock_filter { jf: 1, ..equal(libc::PACKET_OUTGOING.into()) },
        refuse,
    ]
}

/// Verifies that an adopted socket is an AF_PACKET socket with Ethernet headers, bound to the interface.
pub(crate) fn verify(socket: &OwnedFd, interface: &Interface) -> Result<(), LinkError> {
    let foreign = |reason: String| LinkError::ForeignSocket { interface: interface.name.clone(), reason };
    let option = |option| {
        let value: io::Result<libc::c_int> = get_option(socket, libc::SOL_SOCKET, option);
        value.map_err(|error| foreign(error.to_string()))
    };
    let (domain, kind) = (option(libc::SO_DOMAIN)?, option(libc::SO_TYPE)?);
    if (domain, kind) != (libc::AF_PACKET, libc::SOCK_RAW) {
        return Err(foreign(format!("it has domain {domain} and type {kind}")));
    }
    let index = bound_to(socket).map_err(|error| foreign(error.to_string()))?;
    if index != interface.index {
        return Err(foreign(format!("its interface has index {index}, not {}", interface.index)));
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
