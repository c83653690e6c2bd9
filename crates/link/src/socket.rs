// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of a socket, and waiting for it.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::LinkError;
use crate::interface::system;

/// Sets an option.
pub(crate) fn set_option<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
    // SAFETY: pointer and length describe `value`, which outlives the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, ptr::from_ref(value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option; `T` is a plain C integer or a structure of them.
pub(crate) fn get_option<T: Copy>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
    let mut value = mem::MaybeUninit::<T>::zeroed();
    // SAFETY: pointer and length describe `value`, of which the kernel writes at most that much.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length) } {
        // SAFETY: zeroed at first, then written by the kernel; only called for plain C integers and
        // structures of them.
        0 => Ok(unsafe { value.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The error that the socket has kept for whoever asks, such as that its interface went down.
fn pending_error(socket: &OwnedFd) -> io::Result<()> {
    match get_option::<libc::c_int>(socket, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Binds to an address of any family.
pub(crate) fn bind<T>(socket: &OwnedFd, address: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).expect("addresses are small");
    // SAFETY: pointer and length describe `address`.
    match unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(address).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What ended a sleep.
struct Woken {
    /// What came on the socket, errors included.
    events: libc::c_short,
    /// One of the others can be read, or is in trouble.
    other: bool,
}

/// Sleeps until one of `events` has come on an interface's socket, one of `others` can be read, or `timeout` is up:
/// whether one of these came.
pub(crate) fn wait(
    socket: &OwnedFd,
    interface: &str,
    events: libc::c_short,
    others: &[BorrowedFd<'_>],
    timeout: Duration,
) -> Result<bool, LinkError> {
    const TROUBLE: libc::c_short = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    let woken = poll(socket, events, others, timeout).map_err(|error| system("ppoll", interface, error))?;
    if woken.events & TROUBLE != 0 {
        check(socket, interface)?;
    }
    Ok(woken.events & events != 0 || woken.other)
}

/// Whether an interface's socket still works.
pub(crate) fn check(socket: &OwnedFd, interface: &str) -> Result<(), LinkError> {
    pending_error(socket).map_err(|error| system("SO_ERROR", interface, error))
}

/// Sleeps until one of `events` has come, one of `others` can be read, or `timeout` is up. A signal ends the wait
/// early, with nothing.
fn poll(socket: &OwnedFd, events: libc::c_short, others: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Woken> {
    let own = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    let others = others.iter().map(|other| libc::pollfd { fd: other.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let mut requests: Vec<_> = std::iter::once(own).chain(others).collect();
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let count = requests.len() as libc::nfds_t;
    // SAFETY: `count` pollfds, a timespec and no signal mask, all outliving the call.
    if unsafe { libc::ppoll(requests.as_mut_ptr(), count, &raw const timeout, ptr::null()) } < 0 {
        let error = io::Error::last_os_error();
        let nothing = Woken { events: 0, other: false };
        return if error.kind() == io::ErrorKind::Interrupted { Ok(nothing) } else { Err(error) };
    }
    Ok(Woken { events: requests[0].revents, other: requests[1..].iter().any(|other| other.revents != 0) })
}
