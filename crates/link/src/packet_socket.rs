// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all AF_PACKET sockets need: opened with a filter, bound to an interface, in a fanout group.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use crate::LinkError;
use crate::interface::{owned, system};
use crate::socket::{self, set_option};

/// A socket that receives nothing before it is bound, and then what the program keeps.
pub(crate) fn open_filtered(interface: &str, program: Vec<libc::sock_filter>) -> Result<OwnedFd, LinkError> {
    let failed = |operation| move |source| system(operation, interface, source);
    // Protocol 0 receives nothing until `bind`.
    // SAFETY: socket() takes no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    let socket = owned(descriptor).map_err(failed("socket(AF_PACKET)"))?;
    attach_filter(&socket, program).map_err(failed("SO_ATTACH_FILTER"))?;
    Ok(socket)
}

pub(crate) fn attach_filter(socket: &OwnedFd, mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: program.as_mut_ptr(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

pub(crate) fn bind(socket: &OwnedFd, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: zeros are a valid link-layer address.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    socket::bind(socket, &address)
}

// linux/if_packet.h; libc has none of them.
const FANOUT_CPU: u16 = 2;
const FANOUT_CBPF: u16 = 6;
const FANOUT_UNIQUE_ID: u16 = 0x2000;
const FANOUT_IGNORE_OUTGOING: u16 = 0x4000;
pub(crate) const PACKET_FANOUT_DATA: libc::c_int = 22;
/// Each of 126 service access points and a spare for each: while they live, and once more when the holder ends.
const MEMBERS_MAX: u32 = 512;

/// `struct fanout_args`: a group of sockets that share what comes.
#[repr(C)]
pub(crate) struct Fanout {
    id: u16,
    kind: u16,
    members_max: u32,
}

impl Fanout {
    /// A group of one, which nobody can join. A socket in a group cannot be bound anew, nor join another's group and
    /// take frames away there. By processor, since that is the cheapest way to choose among one.
    pub(crate) const ALONE: Self =
        Self { id: 0, kind: FANOUT_CPU | FANOUT_UNIQUE_ID | FANOUT_IGNORE_OUTGOING, members_max: 1 };
    /// A group that sockets can join by the number that the kernel gives it.
    pub(crate) const FIRST: Self =
        Self { id: 0, kind: FANOUT_CBPF | FANOUT_UNIQUE_ID | FANOUT_IGNORE_OUTGOING, members_max: MEMBERS_MAX };

    pub(crate) fn joining(id: u16) -> Self {
        Self { id, kind: FANOUT_CBPF | FANOUT_IGNORE_OUTGOING, members_max: MEMBERS_MAX }
    }
}
