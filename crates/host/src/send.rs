// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two ways to hand a message to the kernel: copied behind its header and sent as one piece, or header and payload
//! as two pieces that the kernel gathers. The one costs a copy, the other the gathering; from some size on the copy
//! costs more.
//!
//! Nobody receives: the frames go to an address that no station has, so what is timed is the sender's part and, on a
//! veth, what the kernel does of the other end's on the sender's core. That is the same both ways.

use std::cell::Cell;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use barewire_link::{ETHERNET_HEADER_BYTES, Interface, LinkError};

use crate::record::Quantity;
use crate::stretch::{Contender, Effort, Repeat, measure};
use barewire_recorder::LaunchError;

/// Ethernet's header and a message's own: session, sequence, fragment.
const HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + 12;
/// For experiments within one organisation (IEEE 802).
const ETHER_TYPE: u16 = 0x88B5;
/// Locally administered, and nobody's.
const NOBODY: [u8; 6] = [0x02, 0xBA, 0x12, 0xE0, 0x00, 0x00];
/// More than a second-level cache holds: a message that comes by again has left it, as one written long ago.
const WALK_BYTES: usize = 16 << 20;
const SIZES: [usize; 18] = [
    16, 64, 256, 512, 1024, 1400, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 40_960, 49_152, 61_440,
];

/// Returns how many sends the system refused for the moment.
pub fn run(
    interface: &str,
    random: &mut fastrand::Rng,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<u64, LaunchError> {
    let sender = Sender::open(interface)?;
    let largest = sender.mtu + ETHERNET_HEADER_BYTES - HEADER_BYTES;
    let mut sizes: Vec<usize> = SIZES.into_iter().filter(|size| *size <= largest).collect();
    random.shuffle(&mut sizes);
    // One walk each: what the one has just read would not be cold for the other.
    let messages = vec![0x5A_u8; 2 * WALK_BYTES];
    for bytes in sizes {
        let mut contenders = [
            contender("copied", copied(&sender, Walk::in_place(&messages, bytes))),
            contender("gathered", gathered(&sender, Walk::in_place(&messages, bytes))),
            contender("copied/cold", copied(&sender, Walk::through(&messages[..WALK_BYTES], bytes))),
            contender("gathered/cold", gathered(&sender, Walk::through(&messages[WALK_BYTES..], bytes))),
        ];
        measure(&mut contenders, bytes, Quantity::Time, effort, output)?;
    }
    Ok(sender.busy.get())
}

fn contender<'a>(subject: &'a str, repeat: Repeat<'a>) -> Contender<'a> {
    Contender { subject, operations: 1, repeat }
}

fn copied<'a>(sender: &'a Sender, mut messages: Walk<'a>) -> Repeat<'a> {
    let mut frame = sender.header.to_vec();
    frame.resize(HEADER_BYTES + messages.bytes, 0);
    Box::new(move |times| {
        (0..times).try_for_each(|_| {
            frame[HEADER_BYTES..].copy_from_slice(messages.next());
            sender.send_one_piece(&frame)
        })
    })
}

fn gathered<'a>(sender: &'a Sender, mut messages: Walk<'a>) -> Repeat<'a> {
    Box::new(move |times| (0..times).try_for_each(|_| sender.send_two_pieces(messages.next())))
}

/// Messages of one size in a buffer, one after the other and from the start again.
struct Walk<'a> {
    messages: &'a [u8],
    bytes: usize,
    step: usize,
    at: usize,
}

impl<'a> Walk<'a> {
    /// Always the same message.
    fn in_place(messages: &'a [u8], bytes: usize) -> Self {
        Self { messages, bytes, step: 0, at: 0 }
    }

    /// Each message on pages of its own, so that the processor cannot fetch it ahead.
    fn through(messages: &'a [u8], bytes: usize) -> Self {
        // An odd number of lines beside the pages: else all messages would share a few sets of the cache.
        Self { messages, bytes, step: bytes.next_multiple_of(4096) + 64, at: 0 }
    }

    #[inline]
    fn next(&mut self) -> &'a [u8] {
        let message = &self.messages[self.at..self.at + self.bytes];
        self.at += self.step;
        if self.at + self.bytes > self.messages.len() {
            self.at = 0;
        }
        message
    }
}

/// A packet socket that only sends, past the queueing discipline, as `barewire-link` does.
struct Sender {
    socket: OwnedFd,
    header: [u8; HEADER_BYTES],
    mtu: usize,
    busy: Cell<u64>,
}

impl Sender {
    fn open(name: &str) -> Result<Self, LaunchError> {
        let interface = Interface::by_name(name)?;
        // SAFETY: no pointers. Protocol 0: it receives nothing.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => LinkError::NotPermitted.into(),
                _ => LaunchError::system("socket(AF_PACKET)", error),
            });
        }
        // SAFETY: just made, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let on: libc::c_int = 1;
        // SAFETY: pointer and length describe `on`.
        let set = unsafe {
            let length = size_of_val(&on) as libc::socklen_t;
            libc::setsockopt(descriptor, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, (&raw const on).cast(), length)
        };
        if set != 0 {
            return Err(LaunchError::last("PACKET_QDISC_BYPASS"));
        }
        // SAFETY: zeros are a valid link-layer address.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::sa_family_t;
        address.sll_ifindex = interface.index;
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: pointer and length describe `address`.
        if unsafe { libc::bind(descriptor, (&raw const address).cast(), length) } != 0 {
            return Err(LaunchError::last("bind"));
        }
        let mut header = [0; HEADER_BYTES];
        header[..6].copy_from_slice(&NOBODY);
        header[6..12].copy_from_slice(&interface.address.0);
        header[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        Ok(Self { socket, header, mtu: interface.mtu, busy: Cell::new(0) })
    }

    #[inline]
    fn send_one_piece(&self, frame: &[u8]) -> Result<(), LaunchError> {
        // SAFETY: pointer and length describe `frame`.
        self.until_taken(|socket| unsafe { libc::send(socket, frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) })
    }

    #[inline]
    fn send_two_pieces(&self, payload: &[u8]) -> Result<(), LaunchError> {
        let mut parts = [&self.header[..], payload]
            .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        // SAFETY: zeros are a valid message without address and pieces.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the message points to parts, and those to bytes, that outlive the call; the kernel only reads them.
        self.until_taken(|socket| unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT) })
    }

    #[inline]
    fn until_taken(&self, send: impl Fn(i32) -> isize) -> Result<(), LaunchError> {
        while send(self.socket.as_raw_fd()) < 0 {
            match io::Error::last_os_error() {
                error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR)) => {
                    self.busy.set(self.busy.get() + 1);
                    if crate::stretch::INTERRUPTED.load(std::sync::atomic::Ordering::Relaxed) {
                        return Err(LaunchError::Interrupted);
                    }
                }
                error => return Err(LaunchError::system("send of a frame", error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_stays_in_its_buffer_and_a_message_in_place_in_its_place() {
        let messages = vec![0; 64 << 10];
        for bytes in [1, 4096, 30_000, 64 << 10] {
            let mut walk = Walk::through(&messages, bytes);
            assert!((0..100).all(|_| walk.next().len() == bytes));
            let mut still = Walk::in_place(&messages, bytes);
            assert!((0..3).all(|_| still.next().as_ptr() == messages.as_ptr()));
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_wrong_use() {
        assert!(matches!(Sender::open("nosuch0"), Err(LaunchError::WrongUse(_))));
    }
}
