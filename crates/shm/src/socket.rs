// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipe's socket: a byte on it wakes the other end, and its end is the pipe's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

use crate::bounds::WAKES_MAX;
use crate::greeting::{REFUSAL, WAKE};

#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
    /// Whose it is; a child of it has a copy.
    owner: u32,
}

impl Socket {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, owner: std::process::id() }
    }

    /// Wakes the other end, if it sleeps on its own.
    pub(crate) fn wake(&self) {
        // Full: it wakes up from the others. Gone: nobody is left to wake.
        let _ = send(self.descriptor.as_raw_fd(), &[WAKE], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
    }

    /// Takes what woke this side off the socket; false if the other end is closed. Sets `refused` if the other end said that
    /// it had no descriptor or memory left for the pipe.
    pub(crate) fn take_wakes(&self, refused: &mut bool) -> bool {
        let mut byte = [0];
        // Bounded: another end that sends without end only keeps this one awake.
        for _ in 0..WAKES_MAX {
            match recv(self.descriptor.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT) {
                Ok(1..) => *refused |= byte == [REFUSAL],
                // Said once where the other end has left something unread; what it has said is behind it.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(Errno::EAGAIN) => return true,
                Ok(0) | Err(_) => return false,
            }
        }
        true
    }

    /// Whether the other end is closed, or its process has ended: children of it may have the socket still.
    pub(crate) fn is_hung_up(&self, process: Option<BorrowedFd<'_>>) -> bool {
        // Of the socket it asks for nothing, and is told of the end nevertheless.
        let socket = PollFd::new(self.descriptor.as_fd(), PollFlags::empty());
        let asked = |descriptors: &mut [PollFd<'_>]| matches!(poll(descriptors, PollTimeout::ZERO), Ok(1..));
        match process.map(|process| PollFd::new(process, PollFlags::POLLIN)) {
            Some(process) => asked(&mut [socket, process]),
            None => asked(&mut [socket]),
        }
    }

    /// Ends both directions.
    pub(crate) fn shut_down(&self) {
        // Refused only where the other end is gone already.
        let _ = shutdown(self.descriptor.as_raw_fd(), Shutdown::Both);
    }
}

impl Drop for Socket {
    /// The other end sees this one gone, also if a forked child of this process still has the socket.
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            self.shut_down();
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
