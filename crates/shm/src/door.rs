// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where pipes begin: a name at which one process listens and others knock.
//!
//! The name is an abstract Unix address: it belongs to the network namespace, as an interface does, and is free again
//! when its process ends. Who knocks makes the memory and hands it over with its first packet, so it can send before
//! anybody has accepted; nobody waits for the other.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, getsockopt, listen, socket, sockopt,
};
use nix::unistd::geteuid;

use crate::bounds::{HALFWAY_MAX, HELLO_BYTES_MAX, NAME_BYTES_MAX, PATIENCE};
use crate::error::ShmError;
use crate::greeting::{self, Greeting, Heard};
use crate::memory::Memory;
use crate::pipe::{Pipe, PipeConfig, Side};
use crate::socket::Socket;

/// A name at which other processes of this user knock. Readable (`poll`, on [`AsFd`]) when [`Door::accept`] has
/// something to do.
#[derive(Debug)]
pub struct Door {
    listener: OwnedFd,
    /// Readable when the listener is, or one that is half-way in.
    anybody: Epoll,
    /// Connected, of our user, nothing said yet; the oldest first.
    halfway: Vec<Halfway>,
    refused: Refused,
}

/// Knockers that got no pipe, counted by the reason. They see their end of it gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Another user's.
    pub strangers: u64,
    /// Said nothing for too long, or went away without a word.
    pub silent: u64,
    /// Said something else: no pipe's end, or one of another version.
    pub hellos: u64,
    /// Brought memory that is not safe to use: not sealed, or of another size than they said.
    pub memories: u64,
}

#[derive(Debug)]
struct Halfway {
    socket: OwnedFd,
    since: Instant,
}

impl Door {
    /// Opens a door of 1 to [`NAME_BYTES_MAX`] bytes of name, any bytes.
    ///
    /// # Errors
    /// [`ShmError::NameTaken`], [`ShmError::NameLength`], or what the system says.
    pub fn open(name: &[u8]) -> Result<Self, ShmError> {
        let address = address(name)?;
        let listener = seqpacket()?;
        bind(listener.as_raw_fd(), &address).map_err(|error| match error {
            Errno::EADDRINUSE => ShmError::NameTaken(printable(name)),
            error => ShmError::system("bind")(error),
        })?;
        listen(&listener, Backlog::MAXCONN).map_err(ShmError::system("listen"))?;
        let anybody = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(ShmError::system("epoll_create1"))?;
        watch(&anybody, &listener)?;
        Ok(Self { listener, anybody, halfway: Vec::with_capacity(HALFWAY_MAX), refused: Refused::default() })
    }

    /// The next pipe that somebody wants, if there is one. Never waits: who has connected and says nothing stays half-way
    /// in for some seconds and is in nobody's way. To be called until it says none.
    ///
    /// # Errors
    /// What the system says, such as that there are no descriptors left. Nothing that a knocker does; the door stays
    /// usable in any case.
    pub fn accept(&mut self) -> Result<Option<Pipe>, ShmError> {
        // Bounded, so that those who fill the place half-way in again and again do not keep the caller here.
        for _ in 0..HALFWAY_MAX {
            self.let_in()?;
            if let Some((socket, greeting, memory)) = self.hear()? {
                return Ok(Some(Pipe::new(Socket(socket), memory, Side::Door, greeting.hello)));
            }
            if self.halfway.len() < HALFWAY_MAX {
                break;
            }
            self.halfway.remove(0);
            self.refused.silent += 1;
        }
        Ok(None)
    }

    /// Knockers that got no pipe, so far.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Takes those of our user who have connected half-way in, as many as there is place for.
    fn let_in(&mut self) -> Result<(), ShmError> {
        for _ in self.halfway.len()..HALFWAY_MAX {
            let descriptor = match accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)
            {
                Ok(descriptor) => descriptor,
                Err(Errno::EAGAIN) => break,
                Err(Errno::ECONNABORTED | Errno::EINTR) => continue,
                Err(error) => return Err(ShmError::system("accept4")(error)),
            };
            // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
            let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
            // Before anything it says is looked at.
            if peer_user(&socket)? != geteuid().as_raw() {
                self.refused.strangers += 1;
                continue;
            }
            watch(&self.anybody, &socket)?;
            self.halfway.push(Halfway { socket, since: Instant::now() });
        }
        Ok(())
    }

    /// The first of those half-way in who has said what it should. Who said something else, or nothing for too long, goes.
    fn hear(&mut self) -> Result<Option<(OwnedFd, Greeting, Memory)>, ShmError> {
        let mut place = 0;
        while let Some(knocker) = self.halfway.get(place) {
            let heard = greeting::hear(&knocker.socket);
            if matches!(heard, Heard::Nothing) && knocker.since.elapsed() < PATIENCE {
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
                    match Memory::adopt(&greeting.memory, greeting.ring_bytes)? {
                        Some(memory) => return Ok(Some((socket, greeting, memory))),
                        None => self.refused.memories += 1,
                    }
                }
            }
        }
        Ok(None)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.anybody.0.as_fd()
    }
}

/// Asks whoever holds `name` for a pipe and tells it `hello`; none if nobody does. Never waits: the pipe can be sent into
/// at once, and if the other does not accept it, its end is gone.
///
/// # Errors
/// [`ShmError::Stranger`], [`ShmError::Busy`], [`ShmError::HelloLength`], [`ShmError::NameLength`],
/// [`ShmError::RingBytes`], or what the system says.
pub fn knock(name: &[u8], hello: &[u8], config: &PipeConfig) -> Result<Option<Pipe>, ShmError> {
    let address = address(name)?;
    if hello.len() > HELLO_BYTES_MAX {
        return Err(ShmError::HelloLength(hello.len()));
    }
    let socket = seqpacket()?;
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(Errno::ECONNREFUSED) => return Ok(None),
        Err(Errno::EAGAIN) => return Err(ShmError::Busy(printable(name))),
        Err(error) => return Err(ShmError::system("connect")(error)),
    }
    let user = peer_user(&socket)?;
    if user != geteuid().as_raw() {
        return Err(ShmError::Stranger { name: printable(name), user });
    }
    let (memory, file) = Memory::create(config.ring_bytes)?;
    match greeting::greet(&socket, config.ring_bytes, hello, &file) {
        Ok(()) => Ok(Some(Pipe::new(Socket(socket), memory, Side::Knocker, Vec::new()))),
        // The door has been closed meanwhile.
        Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(None),
        Err(error) => Err(ShmError::system("sendmsg")(error)),
    }
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
