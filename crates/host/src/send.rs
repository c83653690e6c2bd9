// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passing a message to the kernel: copied behind its header and sent as one piece, or header and payload gathered by
//! the kernel. Above some size the copy costs more than gathering.
//!
//! The frames go to an unused address, so only the sender's part is timed, and on a veth also the peer's receive
//! processing on the sender's core, which is the same for both.

use std::cell::Cell;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use barewire_link::{ETHERNET_HEADER_BYTES, Interface, LinkError};

use crate::record::Quantity;
use crate::stretch::{Effort, Repeat, Subject, measure};
use barewire_recorder::LaunchError;

/// Ethernet header and message header: session, sequence, fragment.
const HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + 12;
/// IEEE 802 local experimental EtherType 1.
const ETHER_TYPE: u16 = 0x88B5;
/// A locally administered address of no station.
const UNUSED_ADDRESS: [u8; 6] = [0x02, 0xBA, 0x12, 0xE0, 0x00, 0x00];
/// More than an L2 cache holds, so that each message has been evicted when it is used again.
const WALK_BYTES: usize = 16 << 20;
const SIZES: [usize; 18] = [
    16, 64, 256, 512, 1024, 1400, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 40_960, 49_152, 61_440,
];

/// Returns the number of sends that were refused and retried.
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
    // Separate buffers: data that one subject has just read would not be cold for the other.
    let messages = vec![0x5A_u8; 2 * WALK_BYTES];
    for bytes in sizes {
        let mut subjects = [
            new_subject("copied", copied(&sender, Walk::in_place(&messages, bytes))),
            new_subject("gathered", gathered(&sender, Walk::in_place(&messages, bytes))),
            new_subject("copied/cold", copied(&sender, Walk::through(&messages[..WALK_BYTES], bytes))),
            new_subject("gathered/cold", gathered(&sender, Walk::through(&messages[WALK_BYTES..], bytes))),
        ];
        measure(&mut subjects, bytes, Quantity::Time, effort, output)?;
    }
    Ok(sender.busy.get())
}

fn new_subject<'a>(name: &'a str, repeat: Repeat<'a>) -> Subject<'a> {
    Subject { name, operations: 1, repeat }
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

/// Messages of one size in a buffer, consecutively and cyclically.
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

    /// Each message on separate pages, so that the hardware cannot prefetch it.
    fn through(messages: &'a [u8], bytes: usize) -> Self {
        // One line more than whole pages, or all messages would share a few cache sets.
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

/// A packet socket that only sends, bypassing the queueing discipline, as `barewire-link` does.
struct Sender {
    socket: OwnedFd,
    header: [u8; HEADER_BYTES],
    mtu: usize,
    busy: Cell<u64>,
}

impl Sender {
    fn open(name: &str) -> Result<Self, LaunchError> {
        let interface = Interface::by_name(name)?;
        // SAFETY: no pointers. Protocol 0 receives nothing.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => LinkError::NotPermitted.into(),
                _ => LaunchError::system("socket(AF_PACKET)", error),
            });
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
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
        header[..6].copy_from_slice(&UNUSED_ADDRESS);
        header[6..12].copy_from_slice(&interface.address.0);
        header[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        Ok(Self { socket, header, mtu: interface.mtu, busy: Cell::new(0) })
    }

    #[inline]
    fn send_one_piece(&self, frame: &[u8]) -> Result<(), LaunchError> {
        // SAFETY: pointer and length describe `frame`.
        self.retry_while_busy(|socket| unsafe {
            libc::send(socket, frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT)
        })
    }

    #[inline]
    fn send_two_pieces(&self, payload: &[u8]) -> Result<(), LaunchError> {
        let mut parts = [&self.header[..], payload]
            .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        // SAFETY: zeros are a valid message without address and parts.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the message, its parts and their bytes outlive the call; the kernel only reads them.
        self.retry_while_busy(|socket| unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT) })
    }

    #[inline]
    fn retry_while_busy(&self, send: impl Fn(i32) -> isize) -> Result<(), LaunchError> {
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
    fn a_walk_stays_within_its_buffer() {
        let messages = vec![0; 64 << 10];
        for bytes in [1, 4096, 30_000, 64 << 10] {
            let mut walk = Walk::through(&messages, bytes);
            assert!((0..100).all(|_| walk.next().len() == bytes));
            let mut still = Walk::in_place(&messages, bytes);
            assert!((0..3).all(|_| still.next().as_ptr() == messages.as_ptr()));
        }
    }

    #[test]
    fn a_missing_interface_is_wrong_use() {
        assert!(matches!(Sender::open("nosuch0"), Err(LaunchError::WrongUse(_))));
    }
}
