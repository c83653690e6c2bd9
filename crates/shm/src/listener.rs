// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening of pipes: a name at which one process listens and others connect.
//!
//! The name is an abstract Unix address: it belongs to the network namespace, as an interface does, and is released
//! when the process exits. The initiator creates the memory and passes it with its first packet, so it can send before
//! the listener has accepted; neither side waits for the other.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, UnixAddr, accept4, bind, connect as connect_socket,
    getsockopt, listen, shutdown, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::geteuid;

use crate::bounds::{HELLO_BYTES_MAX, HELLO_TIMEOUT, NAME_BYTES_MAX, PENDING_MAX};
use crate::error::{ShmError, is_exhaustion};
use crate::greeting::{self, Greeting, Received};
use crate::memory::Memory;
use crate::other_users;
use crate::pipe::{Pipe, PipeConfig, Side};
use crate::process::Peer;
use crate::socket::Socket;

/// A name at which processes of this user connect. Readable (`poll`) when [`Listener::accept`] has work to do.
#[derive(Debug)]
pub struct Listener {
    listener: OwnedFd,
    /// Readable when the listener or a pending initiator's socket is, or the timer has expired.
    epoll: Epoll,
    /// Whether the listener makes it readable: not while nothing can be accepted.
    is_watched: bool,
    /// For [`Listener::accept`] to try again to accept, or to close other users' sockets.
    timer: TimerFd,
    /// When the timer expires, if it is set.
    expires: Option<Instant>,
    /// Initiators of our user that have connected but not sent a greeting; the oldest first.
    pending: Vec<Pending>,
    refused: Refused,
    /// A descriptor in reserve: freed for a moment to refuse an initiator when no other is left.
    spare: Option<OwnedFd>,
    process: u32,
}

/// Initiators that got no pipe, by reason. Their end of the pipe is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Processes of another user.
    pub other_users: u64,
    /// Sent no greeting in time, or closed the socket.
    pub silent: u64,
    /// Sent something other than a greeting, or one of another version.
    pub malformed: u64,
    /// Passed memory that is not safe to use: not sealed, or of a size other than announced.
    pub invalid_memory: u64,
    /// This process or its host had no descriptor or memory left. The initiators are told.
    pub exhausted: u64,
}

#[derive(Debug)]
struct Pending {
    socket: OwnedFd,
    since: Instant,
}

impl Listener {
    /// Opens a listener. A name has 1 to [`NAME_BYTES_MAX`] bytes, none of them zero or line feed. If another user, or
    /// a child of a process that listened there, holds the name, the listener uses the name with a random suffix, at
    /// which [`connect`] finds it.
    ///
    /// # Errors
    /// [`ShmError::NameTaken`] by a process of this user, [`ShmError::NameLength`], or an error of the system.
    pub fn open(name: &[u8]) -> Result<Self, ShmError> {
        let (address, listener) = (address(name)?, seqpacket()?);
        match bind(listener.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::EADDRINUSE) if matches!(try_connect(name)?, Lookup::Own(..)) => {
                return Err(ShmError::NameTaken(printable(name)));
            }
            // Any user can take any name first, but none can take a name that it cannot guess.
            Err(Errno::EADDRINUSE) => {
                let suffixed =
                    UnixAddr::new_abstract(&suffixed_name(name)).map_err(ShmError::system("a Unix address"))?;
                bind(listener.as_raw_fd(), &suffixed).map_err(ShmError::system("bind"))?;
            }
            Err(error) => return Err(ShmError::system("bind")(error)),
        }
        listen(&listener, Backlog::MAXCONN).map_err(ShmError::system("listen"))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(ShmError::system("epoll_create1"))?;
        watch(&epoll, &listener)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(ShmError::system("timerfd_create"))?;
        watch(&epoll, &timer)?;
        Ok(Self {
            spare: listener.try_clone().ok(),
            listener,
            epoll,
            is_watched: true,
            timer,
            expires: None,
            pending: Vec::with_capacity(PENDING_MAX),
            refused: Refused::default(),
            process: std::process::id(),
        })
    }

    /// Accepts the next pipe, if any. Never waits: an initiator without a greeting stays pending for some seconds and
    /// blocks no other. Call it until it returns `None`.
    ///
    /// # Errors
    /// An error of the system; none that an initiator can cause. Exhaustion of descriptors or memory is no error: the
    /// initiators concerned are told. The listener stays usable in any case.
    pub fn accept(&mut self) -> Result<Option<Pipe>, ShmError> {
        // Bounded, so that initiators which repeatedly fill the pending list cannot keep the caller here.
        for _ in 0..PENDING_MAX {
            self.accept_connections()?;
            if let Some((socket, peer, greeting, memory)) = self.next_greeting()? {
                return Ok(Some(Pipe::new(Socket::new(socket), peer, memory, Side::Listener, greeting.hello)));
            }
            if self.pending.len() < PENDING_MAX {
                break;
            }
            self.pending.remove(0);
            self.refused.silent += 1;
        }
        Ok(None)
    }

    /// Initiators refused so far.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Accepts connections of our user into the pending list, while there is room.
    fn accept_connections(&mut self) -> Result<(), ShmError> {
        let can_accept = self.accept_some()?;
        self.watch_if(can_accept);
        let has_any = other_users::close_old();
        self.set_timer(has_any || !self.is_watched);
        Ok(())
    }

    /// Returns false if nothing can be accepted for now.
    fn accept_some(&mut self) -> Result<bool, ShmError> {
        for _ in self.pending.len()..PENDING_MAX {
            if !other_users::can_be_added() {
                return Ok(false);
            }
            let socket = match accept(&self.listener) {
                Ok(socket) => socket,
                Err(Errno::EAGAIN) => break,
                Err(Errno::ECONNABORTED | Errno::EINTR) => continue,
                // Returned even if nobody has connected.
                Err(Errno::EMFILE | Errno::ENFILE) => {
                    if other_users::close() {
                        continue;
                    }
                    match self.refuse_next() {
                        Ok(()) => continue,
                        Err(error) => return Ok(!matches!(error, Errno::EMFILE | Errno::ENFILE)),
                    }
                }
                // Exhaustion in the kernel, which leaves no initiator to be told: retry later.
                Err(error) if is_exhaustion(error) => break,
                Err(error) => return Err(ShmError::system("accept4")(error)),
            };
            // Checked before any of its data is read.
            if !is_ours(&socket) {
                self.refuse_other_user(socket);
                continue;
            }
            if watch(&self.epoll, &socket).is_err() {
                self.refuse(&socket);
                continue;
            }
            self.pending.push(Pending { socket, since: Instant::now() });
        }
        Ok(true)
    }

    /// Refuses the next initiator when no descriptor is left, with the one in reserve.
    fn refuse_next(&mut self) -> Result<(), Errno> {
        self.spare = None;
        let accepted = accept(&self.listener).map(|socket| {
            if is_ours(&socket) {
                self.refuse(&socket);
            } else {
                self.refuse_other_user(socket);
                other_users::close();
            }
        });
        self.spare = self.listener.try_clone().ok();
        accepted
    }

    /// Sets whether the listener makes the epoll readable.
    fn watch_if(&mut self, is_watched: bool) {
        if self.is_watched != is_watched {
            // If the system has no memory for it, the timer tries again.
            let changed = if is_watched {
                watch(&self.epoll, &self.listener).is_ok()
            } else {
                self.epoll.delete(&self.listener).is_ok()
            };
            self.is_watched ^= changed;
        }
    }

    /// Sets whether the epoll becomes readable after some time.
    fn set_timer(&mut self, is_set: bool) {
        if is_set && self.expires.is_none_or(|at| at <= Instant::now()) {
            let once = Expiration::OneShot(TimeSpec::from_duration(other_users::PARKED_TIME_MAX));
            self.expires = Some(Instant::now() + other_users::PARKED_TIME_MAX);
            // The arguments are valid, so this cannot fail; nor can the next one.
            let _ = self.timer.set(once, TimerSetTimeFlags::empty());
        } else if !is_set && self.expires.take().is_some() {
            let _ = self.timer.unset();
        }
    }

    fn refuse_other_user(&mut self, socket: OwnedFd) {
        self.refused.other_users += 1;
        other_users::add(socket);
    }

    /// Tells an initiator that no descriptor or memory is left for it.
    fn refuse(&mut self, socket: &OwnedFd) {
        self.refused.exhausted += 1;
        greeting::refuse(socket);
    }

    /// Returns the first pending initiator with a valid greeting; drops those with an invalid one or a timeout.
    #[allow(clippy::type_complexity)]
    fn next_greeting(&mut self) -> Result<Option<(OwnedFd, Peer, Greeting, Memory)>, ShmError> {
        let mut index = 0;
        while let Some(initiator) = self.pending.get(index) {
            let received = greeting::receive(&initiator.socket);
            if matches!(received, Received::Nothing) && initiator.since.elapsed() < HELLO_TIMEOUT {
                index += 1;
                continue;
            }
            let Pending { socket, .. } = self.pending.remove(index);
            match received {
                Received::Nothing | Received::Closed => self.refused.silent += 1,
                Received::Malformed => self.refused.malformed += 1,
                Received::Greeting(greeting) => {
                    // From now on the socket becomes readable to wake a sleeper.
                    self.epoll.delete(&socket).map_err(ShmError::system("epoll_ctl"))?;
                    match (Memory::adopt(&greeting.memory, greeting.ring_bytes), Peer::of(&socket)) {
                        (Ok(Some(memory)), Ok(peer)) => return Ok(Some((socket, peer, greeting, memory))),
                        (Ok(None), _) => self.refused.invalid_memory += 1,
                        (Err(error), _) if !error.is_exhaustion() => return Err(error),
                        (Err(_), _) | (_, Err(_)) => self.refuse(&socket),
                    }
                }
                Received::NoDescriptor => self.refuse(&socket),
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Drop for Listener {
    /// Waiting initiators see their end closed even if a forked child of this process still has the sockets.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // The system should not refuse this; if it does, a child keeps the initiators waiting that wait now.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        // So that there is a descriptor: what is not accepted here is closed with the listener, in this thread.
        self.spare = None;
        loop {
            match accept(&self.listener) {
                Ok(socket) if is_ours(&socket) => {
                    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
                }
                Ok(socket) => other_users::add(socket),
                Err(Errno::EMFILE | Errno::ENFILE) if other_users::close() => {}
                Err(_) => break,
            }
        }
        other_users::close();
        for initiator in &self.pending {
            let _ = shutdown(initiator.socket.as_raw_fd(), Shutdown::Both);
        }
    }
}

/// Connects to the listener `name` and passes it `hello`; `None` if there is no listener. Never waits: messages can be
/// sent into the pipe at once, and if the listener does not accept it, its end is closed.
///
/// # Errors
/// [`ShmError::OtherUser`], [`ShmError::Busy`], [`ShmError::HelloLength`], [`ShmError::NameLength`],
/// [`ShmError::RingBytes`], or an error of the system.
pub fn connect(name: &[u8], hello: &[u8], config: &PipeConfig) -> Result<Option<Pipe>, ShmError> {
    address(name)?;
    if hello.len() > HELLO_BYTES_MAX {
        return Err(ShmError::HelloLength(hello.len()));
    }
    let (socket, peer) = match find(name)? {
        Lookup::Own(socket, peer) => (socket, peer),
        Lookup::Missing => return Ok(None),
        Lookup::OtherUser(user) => return Err(ShmError::OtherUser { name: printable(name), user }),
        Lookup::Busy => return Err(ShmError::Busy(printable(name))),
    };
    let (memory, file) = Memory::create(config.ring_bytes)?;
    match greeting::send(&socket, config.ring_bytes, hello, &file) {
        Ok(()) => Ok(Some(Pipe::new(Socket::new(socket), peer, memory, Side::Initiator, Vec::new()))),
        // The listener was closed in the meantime.
        Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(None),
        Err(error) => Err(ShmError::system("sendmsg")(error)),
    }
}

/// Who listens at a name.
enum Lookup {
    /// A process of our user.
    Own(OwnedFd, Peer),
    /// No process, or only a child of the process that listened there.
    Missing,
    /// A process of another user.
    OtherUser(u32),
    /// A process whose backlog is full.
    Busy,
}

/// Looks for a process of our user that listens at the name, with or without a suffix.
fn find(name: &[u8]) -> Result<Lookup, ShmError> {
    if !other_users::can_be_added() {
        return Ok(Lookup::Busy);
    }
    let found = try_connect(name)?;
    let needs_scan = match found {
        Lookup::Own(..) => return Ok(found),
        Lookup::OtherUser(_) | Lookup::Busy => true,
        // Usually not opened yet; but the holder of the name may have exited after a listener took a suffix.
        Lookup::Missing => should_scan(),
    };
    if needs_scan {
        let names = fs::read("/proc/thread-self/net/unix").map_err(ShmError::system("reading /proc/net/unix"))?;
        for suffixed in suffixed_names(name, &names) {
            if !other_users::can_be_added() {
                break;
            }
            if let ours @ Lookup::Own(..) = try_connect(suffixed)? {
                return Ok(ours);
            }
        }
    }
    Ok(found)
}

/// True about once in 64 calls: the list of all sockets is long, and would be read for each peer that does not listen.
fn should_scan() -> bool {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Steps of the golden ratio, so that with several peers polled in turn it is not always the same one.
    CALLS.fetch_add(0x9e37_79b9, Ordering::Relaxed) < u32::MAX / 64
}

/// Digits of a suffix, and the slash before them.
const SUFFIX_BYTES: usize = 1 + 16;
const _: () = assert!(NAME_BYTES_MAX + SUFFIX_BYTES <= 107, "an abstract Unix address takes 107 bytes");

/// A name that cannot be guessed.
fn suffixed_name(name: &[u8]) -> Vec<u8> {
    let mut bits = [0; 8];
    // SAFETY: pointer and length describe `bits`. If the system has no randomness, the name can be guessed.
    unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), 0) };
    [name, format!("/{:016x}", u64::from_ne_bytes(bits)).as_bytes()].concat()
}

/// The suffixed variants of a name in the text of `/proc/net/unix`, where `@` precedes an abstract name. The text does
/// not tell whose they are.
fn suffixed_names<'a>(name: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    text.split(|byte| *byte == b'\n').filter_map(move |line| {
        let (before, found) = line.split_at_checked(line.len().checked_sub(name.len() + SUFFIX_BYTES)?)?;
        (before.ends_with(b" @") && found.starts_with(name) && found[name.len()] == b'/').then_some(found)
    })
}

fn try_connect(name: &[u8]) -> Result<Lookup, ShmError> {
    let address = UnixAddr::new_abstract(name).map_err(ShmError::system("a Unix address"))?;
    let socket = seqpacket()?;
    match connect_socket(socket.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(Errno::ECONNREFUSED) => return Ok(Lookup::Missing),
        Err(Errno::EAGAIN) => return Ok(Lookup::Busy),
        Err(error) => return Err(ShmError::system("connect")(error)),
    }
    let user = peer_user(&socket)?;
    if user != geteuid().as_raw() {
        other_users::add(socket);
        return Ok(Lookup::OtherUser(user));
    }
    let peer = Peer::of(&socket).map_err(ShmError::system("pidfd_open"))?;
    Ok(if peer.has_ended() { Lookup::Missing } else { Lookup::Own(socket, peer) })
}

fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let descriptor = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    // SAFETY: the kernel has just created this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Sequenced packets: a greeting arrives whole or not at all, and unlike with datagrams, a close is detected.
fn seqpacket() -> Result<OwnedFd, ShmError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let open = || socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    let opened = match open() {
        Err(Errno::EMFILE | Errno::ENFILE) if other_users::close() => open(),
        opened => opened,
    };
    opened.map_err(ShmError::system("socket"))
}

fn address(name: &[u8]) -> Result<UnixAddr, ShmError> {
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Err(ShmError::NameLength(name.len()));
    }
    UnixAddr::new_abstract(name).map_err(ShmError::system("making a Unix address"))
}

fn watch(epoll: &Epoll, socket: impl AsFd) -> Result<(), ShmError> {
    epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(ShmError::system("epoll_ctl"))
}

fn is_ours(socket: &OwnedFd) -> bool {
    peer_user(socket).is_ok_and(|user| user == geteuid().as_raw())
}

/// User of the process at the other end, according to the kernel.
fn peer_user(socket: &OwnedFd) -> Result<u32, ShmError> {
    let credentials = getsockopt(socket, sockopt::PeerCredentials).map_err(ShmError::system("SO_PEERCRED"))?;
    Ok(credentials.uid())
}

/// A name in readable form.
fn printable(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn a_listener_that_can_accept_nothing_is_readable_only_after_some_time() {
        let name = format!("barewire-shm stopped {}", std::process::id());
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let is_readable = |listener: &Listener, timeout: PollTimeout| {
            poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], timeout).unwrap() > 0
        };
        let _initiator = connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().unwrap();
        assert!(is_readable(&listener, PollTimeout::ZERO));
        let stopped = Instant::now();
        listener.watch_if(false);
        listener.set_timer(true);
        assert!(is_readable(&listener, PollTimeout::from(10_000_u16)));
        assert!(stopped.elapsed() >= other_users::PARKED_TIME_MAX);
        assert_eq!(listener.accept().unwrap().unwrap().hello(), b"me");
        assert!(listener.is_watched && !is_readable(&listener, PollTimeout::ZERO));
        let _another = connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().unwrap();
        assert!(is_readable(&listener, PollTimeout::ZERO));
    }
}
