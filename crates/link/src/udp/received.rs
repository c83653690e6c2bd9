// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Received datagrams: several with one system call, and several of one sender in one buffer.

use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use super::address::SocketAddress;

/// Maximum number of datagrams, or of groups that the kernel has coalesced, per system call.
const BUFFERS: usize = 16;
/// Size of the longest coalesced group; no datagram is longer.
const BUFFER_BYTES: usize = 1 << 16;
/// Bytes before a buffer's datagrams, where a header may be written.
pub(super) const FRONT: usize = 64;
/// Distance of two buffers; not a power of two, so that they do not share their cache sets.
const STRIDE: usize = FRONT + BUFFER_BYTES + 1472;
/// Room for the control message with the length of coalesced datagrams.
const CONTROL_BYTES: usize = 64;

/// Datagrams that were received and not taken yet.
pub(super) struct Received {
    memory: Box<[u8]>,
    groups: [Group; BUFFERS],
    /// Number of groups received by the last call.
    count: usize,
    /// The group taken from next, and the bytes of it already taken.
    current: usize,
    taken: usize,
    /// The last call found less than it asked for, or one.
    is_empty_behind: bool,
}

/// A socket to receive from.
pub(super) struct Source {
    pub socket: OwnedFd,
    /// How many datagrams or groups to ask for: a call that finds less than it asks for takes longer.
    wanted: usize,
    /// The peer to which the socket is connected.
    connected_to: Option<SocketAddress>,
    /// Nothing that others sent before it was connected is left.
    is_exclusive: bool,
}

impl Source {
    pub fn new(socket: OwnedFd, connected_to: Option<SocketAddress>) -> Self {
        Self { socket, wanted: 1, connected_to, is_exclusive: false }
    }

    /// The sender of all that arrives, if there is only one. Not asking the kernel for it saves some 50 ns per
    /// datagram.
    #[inline]
    fn only_sender(&self) -> Option<SocketAddress> {
        self.connected_to.filter(|_| self.is_exclusive)
    }
}

/// Datagrams of one sender, of equal length except the last, in one buffer.
#[derive(Clone, Copy, Default)]
struct Group {
    bytes: usize,
    datagram_bytes: usize,
    is_truncated: bool,
    from: SocketAddress,
}

/// Location of a received datagram.
pub(super) struct Datagram {
    pub from: SocketAddress,
    /// Whether it is the first of its group.
    pub is_first: bool,
    /// In [`Received::memory`], with at least [`FRONT`] bytes of no further use before it.
    pub start: usize,
    pub bytes: usize,
    pub is_truncated: bool,
}

impl Received {
    pub fn new() -> Self {
        Self {
            memory: vec![0; BUFFERS * STRIDE].into_boxed_slice(),
            groups: [Group::default(); BUFFERS],
            count: 0,
            current: 0,
            taken: 0,
            is_empty_behind: false,
        }
    }

    /// Whether the last call probably received everything that was there; true only once for each call. A caller that
    /// then stops saves a system call.
    #[inline]
    pub fn was_last(&mut self) -> bool {
        mem::take(&mut self.is_empty_behind)
    }

    /// The next datagram that was received.
    #[inline]
    pub fn next(&mut self) -> Option<Datagram> {
        // Empty datagrams are skipped.
        while self.current < self.count && self.groups[self.current].bytes == self.taken {
            (self.current, self.taken) = (self.current + 1, 0);
        }
        if self.current == self.count {
            return None;
        }
        let group = &self.groups[self.current];
        let bytes = group.datagram_bytes.min(group.bytes - self.taken);
        let datagram = Datagram {
            from: group.from,
            is_first: self.taken == 0,
            start: self.current * STRIDE + FRONT + self.taken,
            bytes,
            is_truncated: group.is_truncated && self.taken + bytes == group.bytes,
        };
        self.taken += bytes;
        Some(datagram)
    }

    /// Whether datagrams were received and not taken yet.
    pub fn has_some(&self) -> bool {
        self.groups[..self.count].iter().skip(self.current).enumerate().any(|(index, group)| {
            let taken = if index == 0 { self.taken } else { 0 };
            group.bytes > taken
        })
    }

    /// The bytes of a datagram, and those in front of it.
    #[inline]
    pub fn bytes(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        &mut self.memory[range]
    }

    /// Receives, after all that was received before is taken; false if there was nothing. Without libc, whose functions
    /// are points of cancellation: some 30 ns each.
    #[inline]
    pub fn fill(&mut self, source: &mut Source) -> bool {
        // Only as many as are asked for are initialised: mostly one.
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BUFFERS];
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; BUFFERS];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; BUFFERS];
        let (wanted, only_sender) = (source.wanted, source.only_sender());
        let each = messages.iter_mut().zip(&mut parts).zip(&mut controls).zip(&mut self.groups);
        for ((((message, part), control), group), memory) in each.zip(self.memory.chunks_mut(STRIDE)).take(wanted) {
            let part = part.write(libc::iovec { iov_base: memory[FRONT..].as_mut_ptr().cast(), iov_len: BUFFER_BYTES });
            // SAFETY: zeros are valid for this plain C structure.
            let message: &mut libc::mmsghdr = message.write(unsafe { mem::zeroed() });
            if let Some(sender) = only_sender {
                group.from = sender;
            } else {
                message.msg_hdr.msg_name = ptr::from_mut(&mut group.from).cast();
                message.msg_hdr.msg_namelen = size_of::<SocketAddress>() as libc::socklen_t;
            }
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        let (descriptor, messages) = (source.socket.as_raw_fd(), &mut messages[..wanted]);
        let received = if let [message] = messages {
            // SAFETY: the message is initialised, and points to a part, a name and a control buffer that outlive the
            // call.
            unsafe {
                let message = message.assume_init_mut();
                let header = &raw mut message.msg_hdr;
                let bytes = libc::syscall(libc::SYS_recvmsg, descriptor, header, libc::MSG_DONTWAIT);
                message.msg_len = bytes as libc::c_uint;
                if bytes < 0 { -1 } else { 1 }
            }
        } else {
            let (first, none) = (messages.as_mut_ptr(), ptr::null_mut::<libc::timespec>());
            // SAFETY: as above, for all of them.
            unsafe { libc::syscall(libc::SYS_recvmmsg, descriptor, first, wanted, libc::MSG_DONTWAIT, none) }
        };
        // Errors are those of earlier sends, or the socket's own, which `check` finds.
        let received = usize::try_from(received).unwrap_or(0);
        source.is_exclusive |= received == 0;
        source.wanted = if received == wanted { (2 * wanted).min(BUFFERS) } else { received.max(1) };
        for (message, group) in messages.iter().zip(&mut self.groups).take(received) {
            // SAFETY: the first `received` of the `wanted` messages are initialised.
            let message = unsafe { message.assume_init_ref() };
            group.bytes = message.msg_len as usize;
            group.is_truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            group.datagram_bytes = coalesced_bytes(&message.msg_hdr).filter(|bytes| *bytes > 0).unwrap_or(group.bytes);
        }
        (self.current, self.taken, self.count) = (0, 0, received);
        self.is_empty_behind = received > 0 && (received < wanted || wanted == 1);
        received > 0
    }
}

/// Aligned as control messages must be.
#[repr(align(8))]
struct Control(#[expect(dead_code, reason = "the kernel writes it")] [u8; CONTROL_BYTES]);

/// Length of each of several coalesced datagrams.
fn coalesced_bytes(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has filled the control buffer to which the message points.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = control.as_ref() {
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO) {
                let bytes = libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned();
                return usize::try_from(bytes).ok();
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
    None
}
