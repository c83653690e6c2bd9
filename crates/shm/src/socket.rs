// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipe's socket: a byte on it wakes the other end, and its end closes the pipe.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

use crate::bounds::WAKES_MAX;
use crate::greeting::{REFUSAL, WAKE};

#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
    /// The process that created it; forked children have copies.
    owner: u32,
}

impl Socket {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, owner: std::process::id() }
    }

    /// Wakes the other end, if it sleeps.
    pub(crate) fn wake(&self) {
        // Full: the bytes already there wake it. Closed: there is no sleeper.
        let _ = send(self.descriptor.as_raw_fd(), &[WAKE], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
    }

    /// Drains wake-up bytes; false if the other end is closed. Sets `refused` if the other end reported that it had no
    /// descriptor or memory left for the pipe.
    pub(crate) fn take_wakes(&self, refused: &mut bool) -> bool {
        let mut byte = [0];
        // Bounded: an end that floods the socket only keeps this one awake.
        for _ in 0..WAKES_MAX {
            match recv(self.descriptor.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT) {
                Ok(1..) => *refused |= byte == [REFUSAL],
                // ECONNRESET is reported once if the other end closed with unread data; its own data follows.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(Errno::EAGAIN) => return true,
                Ok(0) | Err(_) => return false,
            }
        }
        true
    }

    /// Whether the other end is closed, or its process has ended: its children may still have the socket.
    pub(crate) fn is_hung_up(&self, process: Option<BorrowedFd<'_>>) -> bool {
        // Requests no events of the socket; POLLHUP is reported all the same.
        let socket = PollFd::new(self.descriptor.as_fd(), PollFlags::empty());
        let has_event = |descriptors: &mut [PollFd<'_>]| matches!(poll(descriptors, PollTimeout::ZERO), Ok(1..));
        match process.map(|process| PollFd::new(process, PollFlags::POLLIN)) {
            Some(process) => has_event(&mut [socket, process]),
            None => has_event(&mut [socket]),
        }
    }

    /// Shuts down both directions.
    pub(crate) fn shut_down(&self) {
        // Fails only if the other end is closed already.
        let _ = shutdown(self.descriptor.as_raw_fd(), Shutdown::Both);
    }
}

impl Drop for Socket {
    /// Closes the pipe even if a forked child of this process still has the socket.
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
