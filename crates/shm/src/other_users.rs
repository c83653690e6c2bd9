// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing of sockets that are connected to other users' processes.
//!
//! With such a socket the kernel closes the descriptors in its unread messages. One of them may be a TCP socket with
//! SO_LINGER, whose closing takes as long as its owner likes, but not in a thread that exits: there no socket lingers.
//! So a thread copies the table of descriptors, the sockets are closed in the process's own table, and the thread
//! exits.

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::gettid;

/// Sockets that one thread closes, because starting it takes far longer than closing a socket. Until then they occupy
/// descriptors.
const SOCKETS_MAX: usize = 16;
/// Sockets that stay open while too many threads are exiting: a quarter of the usual limit of descriptors.
const PARKED_MAX: usize = 256;
/// How long fewer than [`SOCKETS_MAX`] sockets wait for others.
pub(crate) const PARKED_TIME_MAX: Duration = Duration::from_secs(1);
/// Threads that may be exiting at a time. Usually one has exited before the next one starts; it takes longer if what it
/// closes waits for something else than a lingering socket.
const CLOSERS_MAX: usize = 8;
/// Small, because it counts as locked memory under `mlockall`.
const STACK_BYTES: usize = 256 << 10;
/// Interval of checks whether a thread still exists while it is waited for.
const EXISTENCE_INTERVAL: Duration = Duration::from_millis(1);

/// False if too many threads are exiting and too many sockets wait. The caller must then neither connect to a process
/// nor accept one.
pub(crate) fn can_be_added() -> bool {
    lock().can_be_added()
}

/// Ends a connection. Its socket is closed with some others, or by [`close`] or [`close_old`].
pub(crate) fn add(socket: OwnedFd) {
    lock().add(socket, Instant::now());
}

/// Closes the sockets added so far, so that their descriptors are free. False if there are none, or if too many threads
/// are exiting.
pub(crate) fn close() -> bool {
    lock().close()
}

/// Closes the sockets if the first was added [`PARKED_TIME_MAX`] ago. Returns whether some are left.
pub(crate) fn close_old() -> bool {
    lock().close_old(Instant::now())
}

/// Sockets of one process, and its threads.
struct Sockets {
    /// Sockets to be closed.
    parked: Vec<OwnedFd>,
    /// When the first of them was added.
    since: Option<Instant>,
    /// The IDs of threads that may still be exiting.
    closers: Vec<i32>,
}

impl Sockets {
    const fn new() -> Self {
        Self { parked: Vec::new(), since: None, closers: Vec::new() }
    }

    fn can_be_added(&mut self) -> bool {
        self.parked.len() < PARKED_MAX || self.close()
    }

    fn add(&mut self, socket: OwnedFd, now: Instant) {
        // Fails only if the other end is closed already.
        let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        self.since.get_or_insert(now);
        self.parked.push(socket);
        if self.parked.len() >= SOCKETS_MAX {
            self.close();
        }
    }

    fn close(&mut self) -> bool {
        self.closers.retain(|id| exists(*id));
        if self.parked.is_empty() || self.closers.len() >= CLOSERS_MAX {
            return false;
        }
        self.since = None;
        self.closers.extend(close_all(mem::take(&mut self.parked)));
        true
    }

    fn close_old(&mut self, now: Instant) -> bool {
        if self.since.is_some_and(|since| now.saturating_duration_since(since) >= PARKED_TIME_MAX) {
            self.close();
        }
        !self.parked.is_empty()
    }
}

/// A forked child gets another one: a thread of the parent may have locked this one, and nobody would unlock it in the
/// child.
struct OfProcess {
    process: u32,
    sockets: Mutex<Sockets>,
}

/// That of this process, or of the one that it was forked from.
static CURRENT: AtomicPtr<OfProcess> = AtomicPtr::new(ptr::null_mut());

fn lock() -> MutexGuard<'static, Sockets> {
    of_process().sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of_process() -> &'static OfProcess {
    let process = std::process::id();
    let found = CURRENT.load(Ordering::Acquire);
    // SAFETY: null, or from a box that was leaked.
    match unsafe { found.as_ref() } {
        Some(current) if current.process == process => return current,
        _ => {}
    }
    let fresh = Box::into_raw(Box::new(OfProcess { process, sockets: Mutex::new(Sockets::new()) }));
    match CURRENT.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: from a box, which is never freed from now on.
        Ok(_) => unsafe { &*fresh },
        Err(other) => {
            // SAFETY: nobody else has seen this box.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: another thread of this process has leaked that box.
            unsafe { &*other }
        }
    }
}

/// How far a thread that exits and its starter have come.
#[derive(Default)]
struct Progress {
    turn: Mutex<Turn>,
    has_changed: Condvar,
}

#[derive(Default)]
enum Turn {
    #[default]
    Starts,
    /// By the thread with this ID, which is about to copy.
    Copies(i32),
    /// It has its copies.
    Has(i32),
    /// It may exit.
    Exits,
}

impl Progress {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does nothing once the thread may exit.
    fn set(&self, turn: Turn) {
        let mut current = self.turn();
        if !matches!(*current, Turn::Exits) {
            *current = turn;
        }
        self.has_changed.notify_all();
    }

    /// Waits until the thread has its copies. Returns its ID; `None` if the system has ended it for the attempt.
    fn copier(&self) -> Option<i32> {
        let mut turn = self.turn();
        loop {
            match *turn {
                Turn::Has(id) => return Some(id),
                Turn::Copies(id) if !exists(id) => return None,
                _ => {}
            }
            let waited = self.has_changed.wait_timeout(turn, EXISTENCE_INTERVAL);
            turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wait_for_exit(&self) {
        let turn = self.turn();
        let waited = self.has_changed.wait_while(turn, |turn| !matches!(turn, Turn::Exits));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Returns the ID of the thread that may still be exiting.
fn close_all(sockets: Vec<OwnedFd>) -> Option<i32> {
    // The thread must not receive the program's signals.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let progress = Arc::new(Progress::default());
    let of_thread = progress.clone();
    let thread = Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let id = gettid().as_raw();
        of_thread.set(Turn::Copies(id));
        copy_descriptors();
        of_thread.set(Turn::Has(id));
        of_thread.wait_for_exit();
    });
    // The old mask is valid, so this cannot fail.
    let _ = mask.map(|mask| mask.thread_set_mask());
    let copier = thread.is_ok().then(|| progress.copier()).flatten();
    // Without a thread, or if it has no copies, they are closed here, and may linger.
    drop(sockets);
    progress.set(Turn::Exits);
    // Waits until the thread has left our code, which the program may unload. The kernel closes its descriptors after
    // that. A thread that the system has ended cannot be joined.
    if let (Ok(thread), Some(_)) = (thread, copier) {
        let _ = thread.join();
    }
    copier
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

/// Whether a thread of this process has not exited yet.
fn exists(id: i32) -> bool {
    // SAFETY: passes three numbers, of which 0 is no signal.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use nix::sys::socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair, sockopt,
    };
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    /// The one with an unread message that has the last descriptor of a TCP socket which sleeps when it is closed: its
    /// send buffer is full, its peer does not read, and SO_LINGER is set.
    #[test]
    fn a_socket_that_lingers_does_not_hold_this_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface is up, as in `make test`");
        let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _never_reads = listener.accept().unwrap();
        lingering.set_nonblocking(true).unwrap();
        while lingering.write(&[0; 65536]).is_ok() {}
        setsockopt(&lingering, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 10 }).unwrap();
        let (ours, theirs) = pair();
        let descriptors = [lingering.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        sendmsg::<()>(theirs.as_raw_fd(), &[IoSlice::new(b"hello")], &rights, MsgFlags::MSG_NOSIGNAL, None).unwrap();
        drop(lingering);
        let (mut sockets, began) = (Sockets::new(), Instant::now());
        sockets.add(ours, began);
        (1..SOCKETS_MAX).for_each(|_| sockets.add(pair().0, began));
        assert!(!sockets.close(), "so many are closed at once");
        sockets.add(pair().0, began);
        assert!(sockets.close() && !sockets.close());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[test]
    fn sockets_stay_open_while_too_many_threads_are_exiting() {
        let (mut sockets, now) = (Sockets::new(), Instant::now());
        sockets.closers = vec![gettid().as_raw(); CLOSERS_MAX];
        for _ in 0..PARKED_MAX {
            assert!(sockets.can_be_added());
            sockets.add(pair().0, now);
        }
        assert!(!sockets.can_be_added() && sockets.close_old(now + PARKED_TIME_MAX));
        assert_eq!(sockets.parked.len(), PARKED_MAX);
        sockets.closers[0] = thread::spawn(|| gettid().as_raw()).join().unwrap();
        // The kernel may still be busy with it.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !sockets.can_be_added() {
            assert!(Instant::now() < deadline);
        }
        assert!(sockets.parked.is_empty());
    }

    #[test]
    fn a_few_sockets_are_closed_after_some_time() {
        let (mut sockets, now) = (Sockets::new(), Instant::now());
        assert!(!sockets.close_old(now));
        sockets.add(pair().0, now);
        sockets.add(pair().0, now + PARKED_TIME_MAX);
        assert!(sockets.close_old(now + PARKED_TIME_MAX - Duration::from_nanos(1)));
        assert!(!sockets.close_old(now + PARKED_TIME_MAX));
        assert!(sockets.parked.is_empty());
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_of_its_parent() {
        let locked = lock();
        // SAFETY: the child allocates memory and starts a thread, which the C library allows, and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: takes a number; the alarm ends the child if it hangs.
                unsafe { libc::alarm(10) };
                add(pair().0);
                // SAFETY: takes a number, and does not return.
                unsafe { libc::_exit(i32::from(!close())) }
            }
            ForkResult::Parent { child } => {
                drop(locked);
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
    }

    /// Such as a seccomp profile whose action is to end the thread.
    #[test]
    fn sockets_are_closed_here_if_the_system_ends_a_thread_that_copies() {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = [
            // The system call's number.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_unshare as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_THREAD),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        // For this thread and those that it starts.
        let close = move || {
            let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
            // SAFETY: the last call takes a pointer to a program, which outlives it.
            unsafe {
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
            }
            let mut sockets = Sockets::new();
            sockets.add(pair().0, Instant::now());
            assert!(sockets.close() && sockets.closers.is_empty());
        };
        thread::spawn(close).join().unwrap();
    }
}
