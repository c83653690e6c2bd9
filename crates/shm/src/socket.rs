// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipe's socket: a byte on it wakes the other end, and its end is the pipe's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

use crate::bounds::WAKES_MAX;

#[derive(Debug)]
pub(crate) struct Socket(pub(crate) OwnedFd);

impl Socket {
    /// Wakes the other end, if it sleeps on its own.
    pub(crate) fn wake(&self) {
        // Full: it wakes up from the others. Gone: nobody is left to wake.
        let _ = send(self.0.as_raw_fd(), &[0], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
    }

    /// Takes what woke this side off the socket; false if the other end is closed.
    pub(crate) fn take_wakes(&self) -> bool {
        let mut byte = [0];
        // Bounded: another end that sends without end only keeps this one awake.
        for _ in 0..WAKES_MAX {
            match recv(self.0.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT) {
                Ok(1..) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return true,
                Ok(0) | Err(_) => return false,
            }
        }
        true
    }

    /// Whether the other end is closed, or its process has ended: children of it may have the socket still.
    pub(crate) fn is_hung_up(&self, process: Option<BorrowedFd<'_>>) -> bool {
        // Of the socket it asks for nothing, and is told of the end nevertheless.
        let socket = PollFd::new(self.0.as_fd(), PollFlags::empty());
        let asked = |descriptors: &mut [PollFd<'_>]| matches!(poll(descriptors, PollTimeout::ZERO), Ok(1..));
        match process.map(|process| PollFd::new(process, PollFlags::POLLIN)) {
            Some(process) => asked(&mut [socket, process]),
            None => asked(&mut [socket]),
        }
    }

    /// Ends both directions.
    pub(crate) fn shut_down(&self) {
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
