// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Socket options, and waiting for sockets.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::LinkError;
use crate::interface::system;

/// Sets a socket option.
pub(crate) fn set_option<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
    // SAFETY: pointer and length describe `value`, which outlives the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, ptr::from_ref(value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gets a socket option; `T` is a plain C integer or a structure of them.
pub(crate) fn get_option<T: Copy>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
    let mut value = mem::MaybeUninit::<T>::zeroed();
    // SAFETY: pointer and length describe `value`, of which the kernel writes at most that much.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length) } {
        // SAFETY: zeroed, then written by the kernel; `T` is a plain C integer or a structure of them.
        0 => Ok(unsafe { value.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns and clears the socket's pending error, such as that its interface went down.
pub(crate) fn pending_error(socket: &OwnedFd) -> io::Result<()> {
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

/// Result of a poll.
struct Woken {
    /// Events of the socket, errors included.
    events: libc::c_short,
    /// One of the others is readable, or has an error.
    other: bool,
}

/// Sleeps until one of `events` occurs on an interface's socket, one of `others` is readable, or `timeout` has passed.
/// Returns whether one of these occurred; false after the timeout, or a signal.
pub(crate) fn wait(
    socket: &OwnedFd,
    interface: &str,
    events: libc::c_short,
    others: &[BorrowedFd<'_>],
    timeout: Duration,
) -> Result<bool, LinkError> {
    wait_checked(socket, interface, events, others, timeout, check)
}

/// As [`wait`], but with this check for an error of the socket; one that passes ends the wait as an event does.
pub(crate) fn wait_checked(
    socket: &OwnedFd,
    interface: &str,
    events: libc::c_short,
    others: &[BorrowedFd<'_>],
    timeout: Duration,
    check: impl FnOnce(&OwnedFd, &str) -> Result<(), LinkError>,
) -> Result<bool, LinkError> {
    const ERRORS: libc::c_short = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    let woken = poll(socket, events, others, timeout).map_err(|error| system("ppoll", interface, error))?;
    if woken.events & ERRORS != 0 {
        check(socket, interface)?;
    }
    Ok(woken.events != 0 || woken.other)
}

/// Checks an interface's socket for an error.
pub(crate) fn check(socket: &OwnedFd, interface: &str) -> Result<(), LinkError> {
    pending_error(socket).map_err(|error| system("SO_ERROR", interface, error))
}

/// Sleeps until one of `events` occurs, one of `others` is readable, or `timeout` has passed. A signal ends the wait
/// early, without events.
fn poll(socket: &OwnedFd, events: libc::c_short, others: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Woken> {
    let own = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    let others = others.iter().map(|other| libc::pollfd { fd: other.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let mut requests: Vec<_> = std::iter::once(own).chain(others).collect();
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let count = requests.len() as libc::nfds_t;
    // SAFETY: `count` pollfds, a timespec and no signal mask, all outliving the call.
    if unsafe { libc::ppoll(requests.as_mut_ptr(), count, &raw const timeout, ptr::null()) } < 0 {
        let error = io::Error::last_os_error();
        let interrupted = Woken { events: 0, other: false };
        return if error.kind() == io::ErrorKind::Interrupted { Ok(interrupted) } else { Err(error) };
    }
    Ok(Woken { events: requests[0].revents, other: requests[1..].iter().any(|other| other.revents != 0) })
}
