// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process at a pipe's other end: whether it has ended, and access to its memory.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

use crate::error::is_exhaustion;

/// Since Linux 6.5: a pidfd of the process that connected or listened; `asm-generic/socket.h`.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process at the other end of a pipe.
#[derive(Debug)]
pub(crate) enum Peer {
    Known(Process),
    /// Not visible to this process, or on a kernel older than Linux 5.3.
    Unknown,
    /// The process has ended; a child may still have its sockets.
    Ended,
}

/// The process that connected or listened. Once it has ended, its number may belong to another process; the descriptor
/// shows when it has ended.
#[derive(Debug)]
pub(crate) struct Process {
    pid: libc::pid_t,
    descriptor: OwnedFd,
}

impl Peer {
    /// The process at the other end of a connected socket.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub(crate) fn of(socket: &OwnedFd) -> Result<Self, Errno> {
        let pid = getsockopt(socket, sockopt::PeerCredentials)?.pid();
        if pid <= 0 {
            return Ok(Self::Unknown);
        }
        // Older kernels provide no pidfd of a socket's peer.
        let descriptor = pidfd_of_peer(socket).or_else(|error| match error {
            Errno::ENOPROTOOPT | Errno::EOPNOTSUPP => pidfd_of(pid),
            error => Err(error),
        });
        match descriptor {
            Ok(descriptor) => Ok(Self::Known(Process { pid, descriptor })),
            Err(Errno::ESRCH) => Ok(Self::Ended),
            Err(error) if is_exhaustion(error) => Err(error),
            Err(_) => Ok(Self::Unknown),
        }
    }

    /// Whether the process has ended, as far as is known.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Known(process) => {
                let process = PollFd::new(process.as_fd(), PollFlags::POLLIN);
                matches!(poll(&mut [process], PollTimeout::ZERO), Ok(1..))
            }
            Self::Unknown => false,
            Self::Ended => true,
        }
    }
}

impl Process {
    /// Copies memory of the process at `address` into `into`. The copy is valid only if the process has not ended.
    ///
    /// # Errors
    /// `EPERM` if the kernel does not allow it (ptrace(2), "Ptrace access mode checking"), `EFAULT` if there is no
    /// memory, `ESRCH`.
    ///
    /// # Safety
    /// `into` must be valid for writes of `bytes`, and not be used by anything else meanwhile.
    pub(crate) unsafe fn read(&self, mut address: u64, mut into: *mut u8, mut bytes: usize) -> Result<(), Errno> {
        while bytes > 0 {
            let local = libc::iovec { iov_base: into.cast(), iov_len: bytes };
            let remote = libc::iovec { iov_base: address as usize as *mut libc::c_void, iov_len: bytes };
            // SAFETY: `local` is the caller's memory; `remote` is only read by the kernel, in the other process.
            let read = unsafe { libc::process_vm_readv(self.pid, &raw const local, 1, &raw const remote, 1, 0) };
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

/// `ESRCH` if the process has ended.
fn pidfd_of_peer(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
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
    // Until Linux 6.15, a process that has ended and been waited for is reported so.
    Errno::result(result).map_err(|error| if error == Errno::EINVAL { Errno::ESRCH } else { error })?;
    // SAFETY: the kernel has just created this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn pidfd_of(pid: libc::pid_t) -> Result<OwnedFd, Errno> {
    // SAFETY: passes two numbers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = Errno::result(descriptor)?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) })
}
