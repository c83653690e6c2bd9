// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A limit to the rings of packet sockets that other processes hold. A ring is the kernel's memory, as much as its holder asks
//! for and charged to nobody. Nothing else keeps a holder from it: the kernel refuses to change a ring only as long as it is
//! mapped, and who maps a ring cannot see whether the others have closed the socket.
//!
//! The kernel runs the program for every `setsockopt` on the sockets of one control group, which is that of the process that
//! opened them, whoever holds them now (`docs/decisions/0060-a-program-limits-rings.md`).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use crate::bpf::{
    ADD_VALUE, AND_VALUE, Assembler, CONTEXT, Command, Instruction, JUMP_IF_ABOVE, JUMP_IF_ABOVE_VALUE, JUMP_IF_EQUAL,
    JUMP_IF_NOT_EQUAL, LOAD_LONG, LOAD_WORD, LinkCreate, MOVE, MOVE_VALUE, MULTIPLY, STORE_WORD, bpf, bpf_call, load,
};
use crate::interface::owned;
use crate::socket::set_option;

// Offsets of fields in `struct bpf_sockopt`, and of the mark in `struct bpf_sock`.
const CONTEXT_SOCKET: i16 = 0;
const CONTEXT_VALUE: i16 = 8;
const CONTEXT_VALUE_END: i16 = 16;
const CONTEXT_LEVEL: i16 = 24;
const CONTEXT_OPTION: i16 = 28;
const CONTEXT_LENGTH: i16 = 32;
const SOCKET_MARK: i16 = 16;

const SCRATCH: u8 = 2;
const VALUE: u8 = 3;
const END: u8 = 4;
const BLOCKS: u8 = 5;

const REFUSE: i32 = 0;
const CONTINUE: i32 = 1;

/// More than any `struct tpacket_req` has, and less than a page: the kernel would read a longer value again, after the program.
const VALUE_BYTES_MAX: i32 = 64;

#[derive(PartialEq, Eq)]
enum Label {
    Ring,
    Other,
    AsRead,
    Refuse,
}

const PROGRAM_TYPE_SOCKET_OPTIONS: u32 = 25;
const ATTACH_TYPE_SETSOCKOPT: u32 = 22;
/// Beside programs of others.
const ALLOW_MULTIPLE: u32 = 1 << 1;

#[repr(C)]
struct ProgramAttach {
    target: i32,
    program: i32,
    attach_type: u32,
    flags: u32,
}

/// A limit to the receive and the transmit ring of each socket whose mark is `mark` in the bits of `mask`, and that a process
/// of this process's control group opens or has opened. The kernel refuses to set up larger rings, with EPERM.
///
/// It lasts as long as the control group or one of these sockets exists; in the root group, which never ends, until it is dropped.
pub struct RingLimit {
    _link: Option<OwnedFd>,
}

impl RingLimit {
    /// Sets the limit, unless it is in force.
    ///
    /// # Errors
    /// The system's error, mostly that this needs CAP_BPF and CAP_NET_ADMIN outside a user namespace, or that there is no
    /// control group of version 2.
    pub fn set(mark: u32, mask: u32, bytes_max: u32) -> io::Result<Self> {
        let is_in_force = || is_limited(mark, bytes_max);
        let group = ControlGroup::own()?;
        if !group.is_root && is_in_force()? {
            return Ok(Self { _link: None });
        }
        let code = assemble(mark, mask, bytes_max);
        let program =
            load(PROGRAM_TYPE_SOCKET_OPTIONS, ATTACH_TYPE_SETSOCKOPT, &code).map_err(naming("bpf(PROG_LOAD)"))?;
        let link = group.attach(&program)?;
        if is_in_force()? {
            Ok(Self { _link: link })
        } else {
            Err(io::Error::other("the program has no effect on sockets of this process"))
        }
    }
}

/// A control group of version 2.
#[derive(Debug, PartialEq, Eq)]
struct ControlGroup {
    directory: PathBuf,
    is_root: bool,
}

impl ControlGroup {
    /// This process's.
    fn own() -> io::Result<Self> {
        let read = |path| fs::read_to_string(path).map_err(naming(path));
        Self::find(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no control group of version 2 is mounted"))
    }

    /// `groups`: as in /proc/self/cgroup; `mounts`: as in /proc/self/mountinfo.
    fn find(groups: &str, mounts: &str) -> Option<Self> {
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
        mounts.lines().find_map(|line| {
            // 36 35 98:0 ROOT MOUNT_POINT OPTIONS… - TYPE SOURCE OPTIONS
            let (mount, kind) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            let below = group.strip_prefix(root.trim_end_matches('/'))?;
            let directory = PathBuf::from(format!("{point}{below}"));
            kind.starts_with("cgroup2 ").then_some(Self { directory, is_root: group == "/" })
        })
    }

    /// Attaches a program beside those of others; in the root group only for as long as the returned link is open.
    fn attach(&self, program: &OwnedFd) -> io::Result<Option<OwnedFd>> {
        let directory = File::open(&self.directory).map_err(naming(&self.directory.to_string_lossy()))?;
        let (target, program) = (directory.as_raw_fd(), program.as_raw_fd());
        let attach_type = ATTACH_TYPE_SETSOCKOPT;
        if self.is_root {
            let request = LinkCreate { program, target, attach_type, flags: 0 };
            // SAFETY: the request has no pointers.
            unsafe { bpf(Command::LinkCreate, &request) }.map(Some).map_err(naming("bpf(LINK_CREATE)"))
        } else {
            let request = ProgramAttach { target, program, attach_type, flags: ALLOW_MULTIPLE };
            // SAFETY: the request has no pointers.
            unsafe { bpf_call(Command::ProgramAttach, &request) }.map(|_| None).map_err(naming("bpf(PROG_ATTACH)"))
        }
    }
}

fn assemble(mark: u32, mask: u32, bytes_max: u32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.push(LOAD_WORD, SCRATCH, CONTEXT, CONTEXT_LEVEL, 0);
    code.jump(JUMP_IF_NOT_EQUAL, SCRATCH, 0, libc::SOL_PACKET, Label::Other);
    code.push(LOAD_WORD, SCRATCH, CONTEXT, CONTEXT_OPTION, 0);
    code.jump(JUMP_IF_EQUAL, SCRATCH, 0, libc::PACKET_RX_RING, Label::Ring);
    code.jump(JUMP_IF_NOT_EQUAL, SCRATCH, 0, libc::PACKET_TX_RING, Label::Other);
    code.resolve(Label::Ring);
    code.push(LOAD_LONG, SCRATCH, CONTEXT, CONTEXT_SOCKET, 0);
    code.push(LOAD_WORD, SCRATCH, SCRATCH, SOCKET_MARK, 0);
    code.push(AND_VALUE, SCRATCH, 0, 0, mask.cast_signed());
    code.jump(JUMP_IF_NOT_EQUAL, SCRATCH, 0, (mark & mask).cast_signed(), Label::Other);
    code.push(LOAD_WORD, SCRATCH, CONTEXT, CONTEXT_LENGTH, 0);
    code.jump(JUMP_IF_ABOVE_VALUE, SCRATCH, 0, VALUE_BYTES_MAX, Label::Refuse);
    code.push(LOAD_LONG, VALUE, CONTEXT, CONTEXT_VALUE, 0);
    code.push(LOAD_LONG, END, CONTEXT, CONTEXT_VALUE_END, 0);
    code.push(MOVE, SCRATCH, VALUE, 0, 0);
    code.push(ADD_VALUE, SCRATCH, 0, 0, 8);
    // The kernel refuses what is shorter.
    code.jump(JUMP_IF_ABOVE, SCRATCH, END, 0, Label::AsRead);
    code.push(LOAD_WORD, SCRATCH, VALUE, 0, 0);
    code.push(LOAD_WORD, BLOCKS, VALUE, 4, 0);
    code.push(MULTIPLY, SCRATCH, BLOCKS, 0, 0);
    code.push(MOVE_VALUE, END, 0, 0, bytes_max.min(i32::MAX as u32).cast_signed());
    code.jump(JUMP_IF_ABOVE, SCRATCH, END, 0, Label::Refuse);
    code.resolve(Label::AsRead);
    code.exit(CONTINUE);
    code.resolve(Label::Other);
    // The kernel would pass on what it has read for the program, at most a page.
    code.push(MOVE_VALUE, SCRATCH, 0, 0, 0);
    code.push(STORE_WORD, CONTEXT, SCRATCH, CONTEXT_LENGTH, 0);
    code.exit(CONTINUE);
    code.resolve(Label::Refuse);
    code.exit(REFUSE);
    debug_assert!(code.jumps.is_empty());
    code.program
}

/// Tries a ring that is too large and otherwise invalid as well.
fn is_limited(mark: u32, bytes_max: u32) -> io::Result<bool> {
    // SAFETY: socket() takes no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    let socket = owned(descriptor).map_err(naming("socket(AF_PACKET)"))?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, &mark).map_err(naming("SO_MARK"))?;
    let too_large = libc::tpacket_req { tp_block_size: bytes_max, tp_block_nr: 2, tp_frame_size: 0, tp_frame_nr: 0 };
    match set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &too_large) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(true),
        _ => Ok(false),
    }
}

fn naming(operation: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{operation}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_group_is_found_below_its_mount_point() {
        let mounts = "24 22 0:22 / /proc rw - proc proc rw\n\
                      31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 22 0:28 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/else\n0::/system.slice/barewire-broker.service\n";
        let found = |groups, mounts| {
            ControlGroup::find(groups, mounts).map(|group| (group.directory.display().to_string(), group.is_root))
        };
        let expected = "/sys/fs/cgroup/unified/system.slice/barewire-broker.service";
        assert_eq!(found(groups, mounts), Some((expected.to_owned(), false)));
        assert_eq!(found("0::/\n", mounts), Some(("/sys/fs/cgroup/unified/".to_owned(), true)));
        let bound = "32 22 0:28 /a/b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found("0::/a/b/c\n", bound), Some(("/sys/fs/cgroup/c".to_owned(), false)));
        assert_eq!(found("0::/x\n", bound), None);
        assert_eq!(found("4:memory:/\n", mounts), None);
        assert_eq!(found(groups, "24 22 0:22 / /proc rw - proc proc rw\n"), None);
    }
}
