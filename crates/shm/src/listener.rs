// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where pipes begin: a name at which one process listens and others connect.
//!
//! The name is an abstract Unix address: it belongs to the network namespace, as an interface does, and is free again
//! when its process ends. Who connects makes the memory and hands it over with its first packet, so it can send before
//! anybody has accepted; nobody waits for the other.

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
use nix::unistd::geteuid;

use crate::bounds::{HALFWAY_MAX, HELLO_BYTES_MAX, NAME_BYTES_MAX, PATIENCE};
use crate::error::{ShmError, is_exhaustion};
use crate::greeting::{self, Greeting, Heard};
use crate::memory::Memory;
use crate::pipe::{Pipe, PipeConfig, Side};
use crate::process::Peer;
use crate::socket::Socket;

/// A name at which other processes of this user connect. Readable (`poll`, on [`AsFd`]) when [`Listener::accept`] has
/// something to do.
#[derive(Debug)]
pub struct Listener {
    listener: OwnedFd,
    /// Readable when the listener is, or one that is half-way in.
    anybody: Epoll,
    /// Connected, of our user, nothing said yet; the oldest first.
    halfway: Vec<Halfway>,
    refused: Refused,
    /// A descriptor to do without for a moment, so that who comes when none is left can be told.
    spare: Option<OwnedFd>,
    process: u32,
}

/// Initiators that got no pipe, counted by the reason. They see their end of it gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Another user's.
    pub other_users: u64,
    /// Said nothing for too long, or went away without a word.
    pub silent: u64,
    /// Said something else: no pipe's end, or one of another version.
    pub hellos: u64,
    /// Brought memory that is not safe to use: not sealed, or of another size than they said.
    pub memories: u64,
    /// This process or its host had no descriptor or memory left for them. They are told.
    pub exhausted: u64,
}

#[derive(Debug)]
struct Halfway {
    socket: OwnedFd,
    since: Instant,
}

impl Listener {
    /// Opens a listener of 1 to [`NAME_BYTES_MAX`] bytes of name, any bytes but zero and line feed. Where another user
    /// has it, or a child of a process that had it, the listener stands beside it, at a name with random digits behind,
    /// and [`connect`] finds it there.
    ///
    /// # Errors
    /// [`ShmError::NameTaken`] by a process of this user, [`ShmError::NameLength`], or what the system says.
    pub fn open(name: &[u8]) -> Result<Self, ShmError> {
        let (address, listener) = (address(name)?, seqpacket()?);
        match bind(listener.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::EADDRINUSE) if matches!(look_at(name)?, Found::Ours(..)) => {
                return Err(ShmError::NameTaken(printable(name)));
            }
            // Any user can take any name first. None can take one that it does not know.
            Err(Errno::EADDRINUSE) => {
                let beside = UnixAddr::new_abstract(&name_beside(name)).map_err(ShmError::system("a Unix address"))?;
                bind(listener.as_raw_fd(), &beside).map_err(ShmError::system("bind"))?;
            }
            Err(error) => return Err(ShmError::system("bind")(error)),
        }
        listen(&listener, Backlog::MAXCONN).map_err(ShmError::system("listen"))?;
        let anybody = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(ShmError::system("epoll_create1"))?;
        watch(&anybody, &listener)?;
        Ok(Self {
            spare: listener.try_clone().ok(),
            listener,
            anybody,
            halfway: Vec::with_capacity(HALFWAY_MAX),
            refused: Refused::default(),
            process: std::process::id(),
        })
    }

    /// The next pipe that somebody wants, if there is one. Never waits: who has connected and says nothing stays half-way
    /// in for some seconds and is in nobody's way. To be called until it says none.
    ///
    /// # Errors
    /// What the system says. Nothing that an initiator does, and not that descriptors or memory are used up: who comes
    /// then is told. The listener stays usable in any case.
    pub fn accept(&mut self) -> Result<Option<Pipe>, ShmError> {
        // Bounded, so that those who fill the place half-way in again and again do not keep the caller here.
        for _ in 0..HALFWAY_MAX {
            self.accept_connections()?;
            if let Some((socket, peer, greeting, memory)) = self.hear()? {
                return Ok(Some(Pipe::new(Socket::new(socket), peer, memory, Side::Listener, greeting.hello)));
            }
            if self.halfway.len() < HALFWAY_MAX {
                break;
            }
            self.halfway.remove(0);
            self.refused.silent += 1;
        }
        Ok(None)
    }

    /// Initiators that got no pipe, so far.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Takes those of our user who have connected half-way in, as many as there is place for.
    fn accept_connections(&mut self) -> Result<(), ShmError> {
        for _ in self.halfway.len()..HALFWAY_MAX {
            let socket = match accept(&self.listener) {
                Ok(socket) => socket,
                Err(Errno::EAGAIN) => break,
                Err(Errno::ECONNABORTED | Errno::EINTR) => continue,
                Err(Errno::EMFILE | Errno::ENFILE) => {
                    self.turn_away();
                    continue;
                }
                // In the kernel, and nobody can be told: later.
                Err(error) if is_exhaustion(error) => break,
                Err(error) => return Err(ShmError::system("accept4")(error)),
            };
            // Before anything it says is looked at.
            if peer_user(&socket)? != geteuid().as_raw() {
                self.refused.other_users += 1;
                continue;
            }
            if watch(&self.anybody, &socket).is_err() {
                self.refuse(&socket);
                continue;
            }
            self.halfway.push(Halfway { socket, since: Instant::now() });
        }
        Ok(())
    }

    /// No descriptor is left: the next one is told, with the one that was kept for that.
    fn turn_away(&mut self) {
        self.spare = None;
        if let Ok(socket) = accept(&self.listener) {
            self.refuse(&socket);
        }
        self.spare = self.listener.try_clone().ok();
    }

    /// Tells that there is no descriptor or memory left for it.
    fn refuse(&mut self, socket: &OwnedFd) {
        self.refused.exhausted += 1;
        greeting::refuse(socket);
    }

    /// The first of those half-way in who has said what it should. Who said something else, or nothing for too long, goes.
    #[allow(clippy::type_complexity)]
    fn hear(&mut self) -> Result<Option<(OwnedFd, Peer, Greeting, Memory)>, ShmError> {
        let mut place = 0;
        while let Some(initiator) = self.halfway.get(place) {
            let heard = greeting::hear(&initiator.socket);
            if matches!(heard, Heard::Nothing) && initiator.since.elapsed() < PATIENCE {
                place += 1;
                continue;
            }
            let Halfway { socket, .. } = self.halfway.remove(place);
            match heard {
                Heard::Nothing | Heard::End => self.refused.silent += 1,
                Heard::Noise => self.refused.hellos += 1,
                Heard::Greeting(greeting) => {
                    // From now on it is readable when its sleeper is to wake.
                    self.anybody.delete(&socket).map_err(ShmError::system("epoll_ctl"))?;
                    match (Memory::adopt(&greeting.memory, greeting.ring_bytes), Peer::of(&socket)) {
                        (Ok(Some(memory)), Ok(peer)) => return Ok(Some((socket, peer, greeting, memory))),
                        (Ok(None), _) => self.refused.memories += 1,
                        (Err(error), _) if !error.is_exhaustion() => return Err(error),
                        (Err(_), _) | (_, Err(_)) => self.refuse(&socket),
                    }
                }
                Heard::Cut => self.refuse(&socket),
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.anybody.0.as_fd()
    }
}

impl Drop for Listener {
    /// Those who wait see their end gone, also if a forked child of this process still has the sockets.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // The system refuses nothing of this; should it, a child keeps those waiting who wait now.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        while let Ok(waits) = accept(&self.listener) {
            let _ = shutdown(waits.as_raw_fd(), Shutdown::Both);
        }
        for initiator in &self.halfway {
            let _ = shutdown(initiator.socket.as_raw_fd(), Shutdown::Both);
        }
    }
}

/// Asks whoever holds `name` for a pipe and tells it `hello`; none if nobody does. Never waits: the pipe can be sent into
/// at once, and if the other does not accept it, its end is gone.
///
/// # Errors
/// [`ShmError::OtherUser`], [`ShmError::Busy`], [`ShmError::HelloLength`], [`ShmError::NameLength`],
/// [`ShmError::RingBytes`], or what the system says.
pub fn connect(name: &[u8], hello: &[u8], config: &PipeConfig) -> Result<Option<Pipe>, ShmError> {
    address(name)?;
    if hello.len() > HELLO_BYTES_MAX {
        return Err(ShmError::HelloLength(hello.len()));
    }
    let (socket, peer) = match find(name)? {
        Found::Ours(socket, peer) => (socket, peer),
        Found::Nobody => return Ok(None),
        Found::OtherUser(user) => return Err(ShmError::OtherUser { name: printable(name), user }),
        Found::Busy => return Err(ShmError::Busy(printable(name))),
    };
    let (memory, file) = Memory::create(config.ring_bytes)?;
    match greeting::greet(&socket, config.ring_bytes, hello, &file) {
        Ok(()) => Ok(Some(Pipe::new(Socket::new(socket), peer, memory, Side::Initiator, Vec::new()))),
        // The listener has been closed meanwhile.
        Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(None),
        Err(error) => Err(ShmError::system("sendmsg")(error)),
    }
}

/// Who is at a name.
enum Found {
    /// A process of our user.
    Ours(OwnedFd, Peer),
    /// Nobody, or only a child of the process that listened there.
    Nobody,
    /// Another user's.
    OtherUser(u32),
    /// Somebody who has as many waiting as the system lets wait.
    Busy,
}

/// Looks for a process of our user that listens at a name, or beside it.
fn find(name: &[u8]) -> Result<Found, ShmError> {
    let found = look_at(name)?;
    let is_held_up = match found {
        Found::Ours(..) => return Ok(found),
        Found::OtherUser(_) | Found::Busy => true,
        // Mostly it is not there yet; or whoever had the name then has gone.
        Found::Nobody => is_due(),
    };
    if is_held_up {
        let names = fs::read("/proc/thread-self/net/unix").map_err(ShmError::system("reading /proc/net/unix"))?;
        for beside in names_beside(name, &names) {
            if let ours @ Found::Ours(..) = look_at(beside)? {
                return Ok(ours);
            }
        }
    }
    Ok(found)
}

/// One in some 64 times: the list of all sockets of a host is long, and asked for each peer that is not there yet.
fn is_due() -> bool {
    static TURNS: AtomicU32 = AtomicU32::new(0);
    // Steps of the golden ratio, so that it is not always the same one of peers that are asked for in turn.
    TURNS.fetch_add(0x9e37_79b9, Ordering::Relaxed) < u32::MAX / 64
}

/// Digits behind a name, and the slash before them.
const BESIDE_BYTES: usize = 1 + 16;
const _: () = assert!(NAME_BYTES_MAX + BESIDE_BYTES <= 107, "an abstract Unix address takes 107 bytes");

/// A name that nobody knows.
fn name_beside(name: &[u8]) -> Vec<u8> {
    let mut bits = [0; 8];
    // SAFETY: pointer and length describe `bits`. Should the system have no randomness, the name can be guessed.
    unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), 0) };
    [name, format!("/{:016x}", u64::from_ne_bytes(bits)).as_bytes()].concat()
}

/// The names beside a name in the text of `/proc/net/unix`, where an abstract one stands behind an `@`. Whose they are
/// it does not say.
fn names_beside<'a>(name: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    text.split(|byte| *byte == b'\n').filter_map(move |line| {
        let (before, found) = line.split_at_checked(line.len().checked_sub(name.len() + BESIDE_BYTES)?)?;
        (before.ends_with(b" @") && found.starts_with(name) && found[name.len()] == b'/').then_some(found)
    })
}

fn look_at(name: &[u8]) -> Result<Found, ShmError> {
    let address = UnixAddr::new_abstract(name).map_err(ShmError::system("a Unix address"))?;
    let socket = seqpacket()?;
    match connect_socket(socket.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(Errno::ECONNREFUSED) => return Ok(Found::Nobody),
        Err(Errno::EAGAIN) => return Ok(Found::Busy),
        Err(error) => return Err(ShmError::system("connect")(error)),
    }
    let user = peer_user(&socket)?;
    if user != geteuid().as_raw() {
        return Ok(Found::OtherUser(user));
    }
    let peer = Peer::of(&socket).map_err(ShmError::system("pidfd_open"))?;
    Ok(if peer.has_ended() { Found::Nobody } else { Found::Ours(socket, peer) })
}

fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let descriptor = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Packets, so that a greeting is there or not; and the other's end is seen, which datagrams do not show.
fn seqpacket() -> Result<OwnedFd, ShmError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(ShmError::system("socket"))
}

fn address(name: &[u8]) -> Result<UnixAddr, ShmError> {
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Err(ShmError::NameLength(name.len()));
    }
    UnixAddr::new_abstract(name).map_err(ShmError::system("making a Unix address"))
}

fn watch(anybody: &Epoll, socket: &OwnedFd) -> Result<(), ShmError> {
    anybody.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(ShmError::system("epoll_ctl"))
}

/// Whose process is at the other end; the kernel knows.
fn peer_user(socket: &OwnedFd) -> Result<u32, ShmError> {
    let credentials = getsockopt(socket, sockopt::PeerCredentials).map_err(ShmError::system("SO_PEERCRED"))?;
    Ok(credentials.uid())
}

/// A name for a person.
fn printable(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
