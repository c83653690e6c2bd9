// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET sockets: opening with a filter, binding to an interface, fanout options.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use crate::LinkError;
use crate::interface::{owned, system};
use crate::socket::{self, set_option};

/// Opens a socket that receives nothing until it is bound, and then the frames that the program accepts.
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

/// An AF_PACKET socket in the kernel's list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) inode: u64,
    /// Whether it receives frames: its interface is up and its ring is not being changed.
    pub(crate) is_running: bool,
}

/// The AF_PACKET sockets of this thread's network namespace, in the kernel's order. Reads the list until two readings
/// are equal: one can miss a socket while others are opened and closed.
pub(crate) fn list_sockets() -> io::Result<Vec<Listed>> {
    const READINGS_MAX: usize = 8;
    let mut listed = read_sockets()?;
    for _ in 1..READINGS_MAX {
        let last = mem::replace(&mut listed, read_sockets()?);
        if listed == last {
            break;
        }
    }
    Ok(listed)
}

fn read_sockets() -> io::Result<Vec<Listed>> {
    let text = fs::read_to_string("/proc/thread-self/net/packet")?;
    let sockets = text.lines().skip(1).map(|line| {
        // sk RefCnt Type Proto Iface R Rmem User Inode
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let (running, inode) = (columns.get(5)?, columns.last()?);
        Some(Listed { inode: inode.parse().ok()?, is_running: *running == "1" })
    });
    sockets.collect::<Option<_>>().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "has an unknown format"))
}

// From linux/if_packet.h; missing in libc.
const FANOUT_CPU: u16 = 2;
const FANOUT_CBPF: u16 = 6;
const FANOUT_UNIQUE_ID: u16 = 0x2000;
const FANOUT_IGNORE_OUTGOING: u16 = 0x4000;
pub(crate) const PACKET_FANOUT_DATA: libc::c_int = 22;
/// For 126 service access points: their sockets and a spare for each, and as many placeholders when the broker ends.
const MEMBERS_MAX: u32 = 512;

/// `struct fanout_args`: a group of sockets that share the received frames.
#[repr(C)]
pub(crate) struct Fanout {
    id: u16,
    kind: u16,
    members_max: u32,
}

impl Fanout {
    /// A group of one socket that no other can join. A socket in a group cannot be bound again, nor join another group
    /// and take frames there. Selection by CPU is the cheapest for one member.
    pub(crate) const PRIVATE: Self =
        Self { id: 0, kind: FANOUT_CPU | FANOUT_UNIQUE_ID | FANOUT_IGNORE_OUTGOING, members_max: 1 };
    /// A new group, which sockets can join by the ID that the kernel assigns.
    pub(crate) const NEW: Self =
        Self { id: 0, kind: FANOUT_CBPF | FANOUT_UNIQUE_ID | FANOUT_IGNORE_OUTGOING, members_max: MEMBERS_MAX };

    pub(crate) fn joining(id: u16) -> Self {
        Self { id, kind: FANOUT_CBPF | FANOUT_IGNORE_OUTGOING, members_max: MEMBERS_MAX }
    }
}
