// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first thing that an initiator says, once: one packet, and with it the memory of the pipe.
//!
//! ```text
//! | "bws1" 4 | bytes of a ring 4, in the host's order | hello 0 to 64 |    + one descriptor
//! ```

use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, send, sendmsg};

use crate::bounds::HELLO_BYTES_MAX;

/// What a listener hears of somebody who has connected.
pub(crate) enum Heard {
    Nothing,
    Greeting(Greeting),
    /// Something, but no greeting.
    Noise,
    /// There was no descriptor left for what came with it.
    Cut,
    /// It has gone again.
    End,
}

/// What an initiator said.
pub(crate) struct Greeting {
    pub(crate) ring_bytes: usize,
    pub(crate) hello: Vec<u8>,
    pub(crate) memory: OwnedFd,
}

/// Name and version of what is said here and of what lies in the memory.
const MAGIC: [u8; 4] = *b"bws1";
const FIXED_BYTES: usize = 8;

/// Says it. `hello` has at most [`HELLO_BYTES_MAX`] bytes.
pub(crate) fn greet(socket: &OwnedFd, ring_bytes: usize, hello: &[u8], memory: &OwnedFd) -> Result<(), Errno> {
    let ring_bytes = u32::try_from(ring_bytes).expect("RING_BYTES_MAX is small").to_ne_bytes();
    let pieces = [IoSlice::new(&MAGIC), IoSlice::new(&ring_bytes), IoSlice::new(hello)];
    let descriptors = [memory.as_raw_fd()];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(socket.as_raw_fd(), &pieces, &[ControlMessage::ScmRights(&descriptors)], flags, None).map(drop)
}

/// What wakes the other end, and what tells it that there is no descriptor or memory left for the pipe.
pub(crate) const WAKE: u8 = 0;
pub(crate) const REFUSAL: u8 = 1;

/// Tells who has connected that there is no descriptor or memory left for it.
pub(crate) fn refuse(socket: &OwnedFd) {
    // Who has gone need not be told.
    let _ = send(socket.as_raw_fd(), &[REFUSAL], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}

/// Hears what there is, without waiting.
pub(crate) fn hear(socket: &OwnedFd) -> Heard {
    let mut bytes = [0; FIXED_BYTES + HELLO_BYTES_MAX];
    let packet = match receive(socket, &mut bytes) {
        Err(Errno::EAGAIN | Errno::EINTR) => return Heard::Nothing,
        Err(_) | Ok(Packet { bytes: 0, .. }) => return Heard::End,
        Ok(packet) => packet,
    };
    if packet.is_without_descriptors {
        return Heard::Cut;
    }
    let Packet { bytes: length, whole: true, mut descriptors, .. } = packet else { return Heard::Noise };
    let (Some(memory), true) = (descriptors.pop(), descriptors.is_empty()) else { return Heard::Noise };
    let Some((fixed, hello)) = bytes[..length].split_at_checked(FIXED_BYTES) else { return Heard::Noise };
    let Some(ring_bytes) = fixed.strip_prefix(&MAGIC) else { return Heard::Noise };
    let ring_bytes = u32::from_ne_bytes(ring_bytes.try_into().expect("four of eight are left"));
    Heard::Greeting(Greeting { ring_bytes: ring_bytes as usize, hello: hello.to_vec(), memory })
}

struct Packet {
    bytes: usize,
    /// Neither bytes nor descriptors were cut off.
    whole: bool,
    /// All of its descriptors were: there is space for one.
    is_without_descriptors: bool,
    descriptors: Vec<OwnedFd>,
}

/// `recvmsg` that loses no descriptor. That of `nix` does, if more come than there is space for.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<Packet, Errno> {
    // Words, because a header begins on one. Space for more than the one descriptor that there should be.
    let mut control = [0_u64; 4];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` describes one piece and a control buffer, all of which outlive the call.
    let length =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(length).map_err(|_| Errno::last())?;
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled `control` with whole headers and what they announce, and set the length of it; each
    // descriptor in it was just made for us, and nobody else knows it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let count = (found.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                descriptors.extend((0..count).map(|index| OwnedFd::from_raw_fd(data.add(index).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let whole = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
    let is_without_descriptors = message.msg_flags & libc::MSG_CTRUNC != 0 && descriptors.is_empty();
    Ok(Packet { bytes: length, whole, is_without_descriptors, descriptors })
}
