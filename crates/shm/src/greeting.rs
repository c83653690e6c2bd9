// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator's first and only packet: its hello, and the memory of the pipe.
//!
//! ```text
//! | "bws1" 4 | ring bytes 4, native byte order | hello 0 to 64 |    + one file descriptor
//! ```

use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{self, ControlMessage, MsgFlags, sendmsg};

use crate::bounds::HELLO_BYTES_MAX;

/// What a listener has received from an initiator.
pub(crate) enum Received {
    Nothing,
    Greeting(Greeting),
    /// A packet that is not a greeting.
    Malformed,
    /// This process had no descriptor left for the one in the packet.
    NoDescriptor,
    /// The initiator has closed its socket.
    Closed,
}

/// A received greeting.
pub(crate) struct Greeting {
    pub(crate) ring_bytes: usize,
    pub(crate) hello: Vec<u8>,
    pub(crate) memory: OwnedFd,
}

/// Name and version of this packet and of the memory's layout.
const MAGIC: [u8; 4] = *b"bws1";
const FIXED_BYTES: usize = 8;

/// Sends the greeting. `hello` has at most [`HELLO_BYTES_MAX`] bytes.
pub(crate) fn send(socket: &OwnedFd, ring_bytes: usize, hello: &[u8], memory: &OwnedFd) -> Result<(), Errno> {
    let ring_bytes = u32::try_from(ring_bytes).expect("RING_BYTES_MAX is small").to_ne_bytes();
    let pieces = [IoSlice::new(&MAGIC), IoSlice::new(&ring_bytes), IoSlice::new(hello)];
    let descriptors = [memory.as_raw_fd()];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(socket.as_raw_fd(), &pieces, &[ControlMessage::ScmRights(&descriptors)], flags, None).map(drop)
}

/// Bytes on the socket: one wakes the other end, one tells it that no descriptor or memory is left for the pipe.
pub(crate) const WAKE: u8 = 0;
pub(crate) const REFUSAL: u8 = 1;

/// Tells an initiator that no descriptor or memory is left for its pipe.
pub(crate) fn refuse(socket: &OwnedFd) {
    // An initiator that has gone needs no answer.
    let _ = socket::send(socket.as_raw_fd(), &[REFUSAL], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}

/// Receives a packet if there is one, without waiting.
pub(crate) fn receive(socket: &OwnedFd) -> Received {
    let mut bytes = [0; FIXED_BYTES + HELLO_BYTES_MAX];
    let packet = match receive_packet(socket, &mut bytes) {
        Err(Errno::EAGAIN | Errno::EINTR) => return Received::Nothing,
        Err(_) | Ok(Packet { bytes: 0, .. }) => return Received::Closed,
        Ok(packet) => packet,
    };
    if packet.is_without_descriptors {
        return Received::NoDescriptor;
    }
    let Packet { bytes: length, whole: true, mut descriptors, .. } = packet else { return Received::Malformed };
    let (Some(memory), true) = (descriptors.pop(), descriptors.is_empty()) else { return Received::Malformed };
    let Some((fixed, hello)) = bytes[..length].split_at_checked(FIXED_BYTES) else { return Received::Malformed };
    let Some(ring_bytes) = fixed.strip_prefix(&MAGIC) else { return Received::Malformed };
    let ring_bytes = u32::from_ne_bytes(ring_bytes.try_into().expect("four of eight are left"));
    Received::Greeting(Greeting { ring_bytes: ring_bytes as usize, hello: hello.to_vec(), memory })
}

struct Packet {
    bytes: usize,
    /// Neither bytes nor descriptors were truncated.
    whole: bool,
    /// All descriptors were discarded: there is space for one, so the process had none left.
    is_without_descriptors: bool,
    descriptors: Vec<OwnedFd>,
}

/// `recvmsg` that leaks no descriptor. The one of `nix` does if more arrive than there is space for.
fn receive_packet(socket: &OwnedFd, bytes: &mut [u8]) -> Result<Packet, Errno> {
    // Words, for the alignment of headers. Space for more than the expected descriptor.
    let mut control = [0_u64; 4];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: numbers and pointers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` describes one piece and a control buffer, which outlive the call.
    let length =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(length).map_err(|_| Errno::last())?;
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled `control` with complete headers and their data, and set its length; each descriptor
    // in it was just created for this process and has no other owner.
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
