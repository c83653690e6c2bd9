// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of known length over a connected socket that carries bytes.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use barewire_recorder::LaunchError;

pub struct ByteStream<S> {
    pub socket: S,
    pub send_busy: u64,
    /// The protocol, for errors.
    name: &'static str,
    /// Bytes received of the current message.
    received_bytes: usize,
    received_messages: u32,
}

impl<S: AsFd> ByteStream<S> {
    pub fn new(socket: S, name: &'static str) -> Self {
        Self { socket, send_busy: 0, name, received_bytes: 0, received_messages: 0 }
    }

    /// Sends what the kernel takes of a message, of which `done` bytes are sent; returns whether that is all of it.
    #[inline]
    pub fn try_send(&mut self, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        while *done < message.len() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(self.socket.as_fd().as_raw_fd(), &message[*done..], flags) {
                Ok(sent) => *done += sent,
                Err(Errno::EAGAIN | Errno::EINTR) => {
                    self.send_busy += 1;
                    return Ok(false);
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(true)
    }

    /// Returns the number of the message once all of it has arrived. Waits for the socket's timeout, unless `patience`
    /// is zero.
    #[inline]
    pub fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        let flags = if patience.is_zero() { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        match recv(self.socket.as_fd().as_raw_fd(), &mut message[self.received_bytes..], flags) {
            Ok(0) => return Err(LaunchError::Failed(format!("the peer closed its {} connection", self.name))),
            Ok(received) => self.received_bytes += received,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        }
        if self.received_bytes < message.len() {
            return Ok(None);
        }
        self.received_bytes = 0;
        self.received_messages = self.received_messages.wrapping_add(1);
        Ok(Some(self.received_messages.wrapping_sub(1)))
    }

    pub fn failed(&self, error: Errno) -> LaunchError {
        LaunchError::system(self.name, error)
    }
}

/// Sleeps until the socket is writable, for at most `patience`.
pub fn sleep_to_send(socket: &impl AsFd, patience: Duration) -> Result<(), LaunchError> {
    let mut descriptors = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    match poll(&mut descriptors, patience) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(LaunchError::system("poll", error)),
    }
}
