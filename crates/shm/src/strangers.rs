// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing of sockets that are connected to other users' processes.
//!
//! With such a socket the kernel closes the descriptors in its unread messages. One of them may be a TCP socket with
//! SO_LINGER, whose closing takes as long as its owner likes, but not in a thread that exits: there no socket lingers. So
//! a thread copies the table of descriptors, the sockets are closed in the process's own table, and the thread exits.

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::gettid;

/// Sockets closed by one thread, which takes far longer to start than a socket to close; so many descriptors are taken.
const SOCKETS_MAX: usize = 16;
/// Threads that may be exiting at a time. Usually one has exited before the next one starts; it takes longer if what it
/// closes waits for something else than a lingering socket.
const CLOSERS_MAX: usize = 8;
/// Small, because it counts as locked memory under `mlockall`.
const STACK_BYTES: usize = 256 << 10;

/// Sockets to be closed.
static STRANGERS: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
/// The IDs of threads that may still be exiting; 0 where there was none.
static CLOSERS: [AtomicI32; CLOSERS_MAX] = [const { AtomicI32::new(0) }; CLOSERS_MAX];

/// False if too many threads are exiting: connect to no stranger then, nor accept one.
pub(crate) fn can_be_closed() -> bool {
    free(&CLOSERS).is_some()
}

/// Ends a connection. Its socket is closed with some others, or by [`close`].
pub(crate) fn add(socket: OwnedFd) {
    // Fails only if the other end is closed already.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
    let mut strangers = lock();
    strangers.push(socket);
    if strangers.len() >= SOCKETS_MAX {
        close_all(mem::take(&mut *strangers));
    }
}

/// Closes the sockets added so far, so that their descriptors are free. False if there are none.
pub(crate) fn close() -> bool {
    let mut strangers = lock();
    let sockets = mem::take(&mut *strangers);
    let has_any = !sockets.is_empty();
    if has_any {
        close_all(sockets);
    }
    has_any
}

fn lock() -> MutexGuard<'static, Vec<OwnedFd>> {
    STRANGERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close_all(sockets: Vec<OwnedFd>) {
    // The thread must not receive the program's signals.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let turns = Barrier::new(2);
    thread::scope(|scope| {
        let thread = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || {
            free(&CLOSERS).unwrap_or(&CLOSERS[0]).store(gettid().as_raw(), Ordering::Relaxed);
            copy_descriptors();
            turns.wait();
            turns.wait();
        });
        // Without a thread, or if it has no copies, they are closed here, and may linger.
        let Ok(thread) = thread else { return drop(sockets) };
        turns.wait();
        drop(sockets);
        turns.wait();
        // Until it has left our code, which the program may unload. The kernel closes its descriptors after that.
        let _ = thread.join();
    });
    // The old mask is valid, so this cannot fail.
    let _ = mask.map(|mask| mask.thread_set_mask());
}

/// Gives this thread a table of descriptors of its own, with the same descriptors.
fn copy_descriptors() {
    if unshare(CloneFlags::CLONE_FILES).is_err() {
        // Containers often forbid that call, and allow this one (Linux 5.9), which closes nothing: there is no such
        // descriptor.
        // SAFETY: passes three numbers.
        unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    }
}

/// A place for the ID of another thread.
fn free(closers: &[AtomicI32]) -> Option<&AtomicI32> {
    closers.iter().find(|closer| {
        let id = closer.load(Ordering::Relaxed);
        // SAFETY: passes three numbers, of which 0 is no signal.
        let is_free = id == 0 || unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, 0) } != 0;
        if is_free && id != 0 {
            // Another thread of the program may have taken it meanwhile.
            let _ = closer.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_free
    })
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    use nix::sys::socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair, sockopt,
    };

    use super::*;

    /// The one with an unread message that has the last descriptor of a TCP socket which sleeps when it is closed: its send
    /// buffer is full, its peer does not read, and SO_LINGER is set.
    #[test]
    fn a_socket_that_lingers_does_not_hold_this_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface is up, as in `make test`");
        let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _never_reads = listener.accept().unwrap();
        lingering.set_nonblocking(true).unwrap();
        while lingering.write(&[0; 65536]).is_ok() {}
        setsockopt(&lingering, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 10 }).unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let descriptors = [lingering.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        sendmsg::<()>(theirs.as_raw_fd(), &[IoSlice::new(b"hello")], &rights, MsgFlags::MSG_NOSIGNAL, None).unwrap();
        drop(lingering);
        let began = Instant::now();
        add(ours);
        let others = || socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        (1..SOCKETS_MAX).for_each(|_| add(others().0));
        assert!(!close(), "so many are closed at once");
        add(others().0);
        assert!(close() && !close());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[test]
    fn a_place_is_free_once_its_thread_has_exited() {
        let lives = || AtomicI32::new(gettid().as_raw());
        assert!(free(&[lives(), lives()]).is_none());
        let closers = [lives(), AtomicI32::new(0)];
        assert!(std::ptr::eq(free(&closers).unwrap(), &raw const closers[1]));
        let exits = AtomicI32::new(thread::spawn(|| gettid().as_raw()).join().unwrap());
        // The kernel may still be busy with it.
        let deadline = Instant::now() + Duration::from_secs(5);
        while free(std::slice::from_ref(&exits)).is_none() {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(exits.into_inner(), 0);
    }
}
