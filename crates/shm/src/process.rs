// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process at a pipe's other end: whether it lives, and its memory.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

use crate::error::is_exhaustion;

/// Linux 6.5 and later: a descriptor of the very process that connected or listened; `asm-generic/socket.h`.
const SO_PEERPIDFD: libc::c_int = 77;

/// Who is at the other end of a pipe.
#[derive(Debug)]
pub(crate) enum Peer {
    Seen(Process),
    /// This process cannot see it, or the kernel is older than Linux 5.3.
    Unseen,
    /// The process has ended; a child of it may have its sockets.
    Ended,
}

/// The process that connected or listened. It is known by number, which may be another's once it has ended; the
/// descriptor tells of its end.
#[derive(Debug)]
pub(crate) struct Process {
    number: libc::pid_t,
    descriptor: OwnedFd,
}

impl Peer {
    /// The process at the other end of a connected socket.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub(crate) fn of(socket: &OwnedFd) -> Result<Self, Errno> {
        let number = getsockopt(socket, sockopt::PeerCredentials)?.pid();
        if number <= 0 {
            return Ok(Self::Unseen);
        }
        // Older kernels know no descriptor of a socket's peer.
        let descriptor = descriptor_of_peer(socket).or_else(|error| match error {
            Errno::ENOPROTOOPT | Errno::EOPNOTSUPP => descriptor_of(number),
            error => Err(error),
        });
        match descriptor {
            Ok(descriptor) => Ok(Self::Seen(Process { number, descriptor })),
            Err(Errno::ESRCH) => Ok(Self::Ended),
            Err(error) if is_exhaustion(error) => Err(error),
            Err(_) => Ok(Self::Unseen),
        }
    }

    /// Whether its process has ended, as far as that can be seen.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Seen(process) => {
                let process = PollFd::new(process.as_fd(), PollFlags::POLLIN);
                matches!(poll(&mut [process], PollTimeout::ZERO), Ok(1..))
            }
            Self::Unseen => false,
            Self::Ended => true,
        }
    }
}

impl Process {
    /// Copies memory of the process at `address` into `into`; what was copied counts only if the process has not ended
    /// meanwhile.
    ///
    /// # Errors
    /// `EPERM` where the kernel does not allow it (ptrace(2), "Ptrace access mode checking"), `EFAULT` where there is
    /// no memory, `ESRCH`.
    ///
    /// # Safety
    /// `into` must be valid to be written for `bytes`, and used by nothing else meanwhile.
    pub(crate) unsafe fn read(&self, mut address: u64, mut into: *mut u8, mut bytes: usize) -> Result<(), Errno> {
        while bytes > 0 {
            let local = libc::iovec { iov_base: into.cast(), iov_len: bytes };
            let remote = libc::iovec { iov_base: address as usize as *mut libc::c_void, iov_len: bytes };
            // SAFETY: `local` is the caller's memory; `remote` is only looked at by the kernel, in the other process.
            let read = unsafe { libc::process_vm_readv(self.number, &raw const local, 1, &raw const remote, 1, 0) };
            let read = usize::try_from(read).map_err(|_| Errno::last())?;
            if read == 0 {
                return Err(Errno::EFAULT);
            }
            address += read as u64;
            into = into.wrapping_add(read);
            bytes -= read;
        }
        Ok(())
    }
}

impl AsFd for Process {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn descriptor_of_peer(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of_val(&descriptor) as libc::socklen_t;
    // SAFETY: the two pointers describe `descriptor`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn descriptor_of(number: libc::pid_t) -> Result<OwnedFd, Errno> {
    // SAFETY: takes two numbers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
    let descriptor = Errno::result(descriptor)?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) })
}
