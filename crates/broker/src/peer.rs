// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's end of the Unix socket: listener, peer credentials, non-blocking messages.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use barewire_broker::{MESSAGE_BYTES_MAX, Reply};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt, listen,
    recv, sendmsg, socket, sockopt,
};

/// Not in the libc crate yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// A connected process, with its credentials at connect time, which cannot be forged.
pub struct Peer {
    pub socket: OwnedFd,
    pub user: u32,
    /// Process ID; 0 if it is in a PID namespace that is not visible here.
    pub process: i32,
    /// Readable once the process has ended; `None` if it already has, or is not visible.
    pub pidfd: Option<OwnedFd>,
}

/// Result of an accept.
pub enum Accepted {
    Peer(Peer),
    /// The peer has already closed its end.
    HungUp,
    /// No connection is pending.
    None,
}

/// Result of a receive.
pub enum Received {
    /// Bytes of a message, at most one more than a message may have.
    Message(Vec<u8>),
    Nothing,
    End,
}

/// Listens at `path`, for all users: the policy decides. Replaces the socket of a previous broker atomically.
///
/// # Errors
/// The system's error.
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(fresh.as_os_str())?)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o666))?;
    refuse_descriptors(&listener)?;
    listen(&listener, Backlog::MAXCONN)?;
    fs::rename(&fresh, path)?;
    Ok(listener)
}

/// Makes the kernel refuse descriptors on connections to this listener, where it can (Linux 6.16). Closing one that
/// came with a message may sleep: a TCP socket with SO_LINGER.
fn refuse_descriptors(listener: &OwnedFd) -> Result<(), Errno> {
    let off: libc::c_int = 0;
    let size = size_of_val(&off) as libc::socklen_t;
    // SAFETY: `off` is alive, and `size` is its size.
    let done = unsafe {
        libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const off).cast(), size)
    };
    match Errno::result(done) {
        Err(Errno::ENOPROTOOPT) => Ok(()),
        done => done.map(drop),
    }
}

/// Accepts the next pending connection.
///
/// # Errors
/// The system's error, such as no descriptors left.
pub fn accept(listener: &OwnedFd) -> Result<Accepted, Errno> {
    let descriptor = match accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
        Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => return Ok(Accepted::None),
        accepted => accepted?,
    };
    // SAFETY: the kernel has just created this descriptor in this process; nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if has_hung_up(&socket) {
        return Ok(Accepted::HungUp);
    }
    let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
    // Before Linux 6.5, by process ID; if the process has ended meanwhile, its connection is closed.
    let pidfd = match getsockopt(&socket, sockopt::PeerPidfd) {
        Err(Errno::ENOPROTOOPT) => open_process(credentials.pid()),
        pidfd => pidfd.ok(),
    };
    Ok(Accepted::Peer(Peer { socket, user: credentials.uid(), process: credentials.pid(), pidfd }))
}

/// Whether the other end is closed, so that no reply can reach it. Its last message may be unread.
pub fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut request = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    poll(&mut request, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

fn open_process(process: i32) -> Option<OwnedFd> {
    // SAFETY: pidfd_open() takes no pointers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let descriptor = i32::try_from(descriptor).ok().filter(|descriptor| *descriptor >= 0)?;
    // SAFETY: the kernel has just created this descriptor in this process; nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Receives the next message. The kernel closes descriptors that come with it, if it has not refused them.
pub fn receive(socket: &OwnedFd) -> Received {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX + 1];
    match recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
        Ok(0) => Received::End,
        Ok(length) => {
            bytes.truncate(length);
            Received::Message(bytes)
        }
        Err(Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}

/// Sends a reply with sockets.
///
/// # Errors
/// If the peer has closed its end, or its queue is full.
pub fn reply(to: &OwnedFd, reply: &Reply, sockets: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = reply.encode();
    let descriptors: Vec<_> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(&bytes)], control, flags, None).map(|_| ())
}
