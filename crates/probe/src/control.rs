// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control channel: TCP between machines, a Unix socket between hosts of one lab, where only the measurement
//! may cross the link.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use barewire_link::MacAddress;
use barewire_recorder::LaunchError;

pub const DEFAULT_PORT: u16 = 5288;
/// Bound of a control message. The longest carry a block's samples between processes.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Longest wait for a control message; then the peer is considered gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the passive side listens: `HOST`, `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.is_empty() {
            return Err("an address is HOST, HOST:PORT or unix:PATH".to_owned());
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        Ok(Self::Tcp(match bare.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, DEFAULT_PORT).to_string(),
            Err(_) if text.parse::<MacAddress>().is_ok() => text.to_owned(),
            Err(_) => match text.rsplit_once(':') {
                Some((_, port)) if port.parse::<u16>().is_err() => return Err(format!("'{port}' is not a port")),
                Some(_) => text.to_owned(),
                None => format!("{text}:{DEFAULT_PORT}"),
            },
        }))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// One end of a control connection.
pub struct Channel {
    reader: BufReader<Stream>,
    /// Own IP address of the connection; `None` for a Unix socket.
    pub local_ip: Option<IpAddr>,
    /// The interface of that address, if it is link-local; else 0.
    pub scope_id: u32,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Channel {
    pub fn connect(address: &Address) -> Result<Self, LaunchError> {
        let stream = match address {
            Address::Tcp(address) => TcpStream::connect(address).map(Stream::Tcp),
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        };
        stream.and_then(Self::new).map_err(|error| {
            LaunchError::Failed(format!(
                "no probe answers at {address} ({error}); start `barewire-probe serve` there first"
            ))
        })
    }

    /// A connected pair: one end for this process, the other for a child process.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = UnixStream::pair()?;
        Ok((Self::new(Stream::Unix(own))?, other.into()))
    }

    /// The socket inherited as standard input.
    pub fn inherited(is_tcp: bool) -> io::Result<Self> {
        let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
        Self::new(if is_tcp { Stream::Tcp(descriptor.into()) } else { Stream::Unix(descriptor.into()) })
    }

    /// The descriptor, to hand to another process, and whether it is TCP.
    pub fn into_inner(self) -> (OwnedFd, bool) {
        match self.reader.into_inner() {
            Stream::Tcp(stream) => (stream.into(), true),
            Stream::Unix(stream) => (stream.into(), false),
        }
    }

    fn new(stream: Stream) -> io::Result<Self> {
        let local = match &stream {
            Stream::Tcp(tcp) => {
                tcp.set_nodelay(true)?;
                tcp.set_read_timeout(Some(PATIENCE))?;
                notice_a_dead_host(tcp)?;
                Some(tcp.local_addr()?)
            }
            Stream::Unix(unix) => {
                unix.set_read_timeout(Some(PATIENCE))?;
                None
            }
        };
        let scope_id = if let Some(SocketAddr::V6(v6)) = local { v6.scope_id() } else { 0 };
        Ok(Self { reader: BufReader::new(stream), local_ip: local.map(|local| local.ip()), scope_id })
    }

    pub fn send(&mut self, message: &impl Serialize) -> Result<(), LaunchError> {
        let mut line = serde_json::to_vec(message).map_err(|error| LaunchError::system("control message", error))?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line).map_err(lost)
    }

    /// The next message; `None` once the peer has closed the channel.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LaunchError> {
        let mut line = Vec::new();
        (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(lost)?;
        if line.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| LaunchError::Failed(format!("malformed message on the control channel ({error})")))
    }

    /// Whether a message or end of file can be read.
    pub fn is_readable(&self) -> bool {
        self.wait_readable(PollTimeout::ZERO)
    }

    /// Waits for the next message, end of file or failure; `false` after `patience`.
    pub fn wait_readable(&self, patience: PollTimeout) -> bool {
        if !self.reader.buffer().is_empty() {
            return true;
        }
        let mut descriptors = [PollFd::new(self.reader.get_ref().as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut descriptors, patience) {
                Ok(ready) => return ready > 0,
                Err(Errno::EINTR) => {}
                // A read reports it again.
                Err(_) => return true,
            }
        }
    }
}

/// Ends the connection if the peer's machine is gone: it acknowledges neither messages nor, when there are none,
/// probes.
fn notice_a_dead_host(tcp: &TcpStream) -> nix::Result<()> {
    let seconds = PATIENCE.as_secs() as u32;
    setsockopt(tcp, sockopt::KeepAlive, &true)?;
    setsockopt(tcp, sockopt::TcpKeepIdle, &(seconds / 2))?;
    setsockopt(tcp, sockopt::TcpKeepInterval, &(seconds / 6))?;
    setsockopt(tcp, sockopt::TcpUserTimeout, &(seconds * 1000))
}

fn lost(error: io::Error) -> LaunchError {
    LaunchError::Failed(format!("the control channel to the peer failed: {error}"))
}

/// Accepts control connections.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub fn bind(address: &Address) -> Result<Self, LaunchError> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            Address::Unix(path) => bind_unix(path).map(Self::Unix),
        }
        .map_err(|error| LaunchError::Failed(format!("cannot listen at {address}: {error}")))
    }

    /// The bound address, with the actual port.
    pub fn address(&self) -> io::Result<String> {
        Ok(match self {
            Self::Tcp(listener) => listener.local_addr()?.to_string(),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                format!("unix:{}", address.as_pathname().map(|path| path.display().to_string()).unwrap_or_default())
            }
        })
    }

    pub fn accept(&self) -> io::Result<Channel> {
        Channel::new(match self {
            Self::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
            Self::Unix(listener) => Stream::Unix(listener.accept()?.0),
        })
    }
}

/// Replaces the socket of a probe that has ended, whose file stays.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path).or_else(|error| {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        let is_refused = || UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if error.kind() != ErrorKind::AddrInUse || !is_socket || !is_refused() {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        UnixListener::bind(path)
    })
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn an_address_without_a_port_gets_the_default() {
        for (text, expected) in [
            ("h2", "h2:5288"),
            ("10.0.0.2", "10.0.0.2:5288"),
            ("10.0.0.2:7", "10.0.0.2:7"),
            ("fe80::1", "[fe80::1]:5288"),
            ("[fe80::1]", "[fe80::1]:5288"),
            ("[fe80::1]:7", "[fe80::1]:7"),
            ("02:00:00:00:00:1a", "02:00:00:00:00:1a"),
            ("02:00:00:00:00:1a:7", "02:00:00:00:00:1a:7"),
            ("unix:/tmp/socket", "unix:/tmp/socket"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), expected);
        }
        for wrong in ["", "h2:", "h2:99999", "10.0.0.2:x", "[fe80::1]:-1"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn messages_and_end_of_file_are_received() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Channel::new(Stream::Unix(a)).unwrap(), Channel::new(Stream::Unix(b)).unwrap());
        assert!(!b.is_readable() && !b.wait_readable(PollTimeout::from(1_u8)));
        a.send(&[1, 2, 3]).unwrap();
        a.send(&[4]).unwrap();
        assert!(b.wait_readable(PollTimeout::NONE));
        assert_eq!(b.receive::<Vec<u8>>().unwrap(), Some(vec![1, 2, 3]));
        assert!(b.is_readable());
        assert_eq!(b.receive::<Vec<u8>>().unwrap(), Some(vec![4]));
        drop(a);
        assert!(b.is_readable());
        assert_eq!(b.receive::<Vec<u8>>().unwrap(), None);
    }

    #[test]
    fn a_peer_whose_machine_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let channel = Channel::new(Stream::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap())).unwrap();
        let Stream::Tcp(tcp) = channel.reader.get_ref() else { unreachable!() };
        assert!(getsockopt(tcp, sockopt::KeepAlive).unwrap());
        assert_eq!(u128::from(getsockopt(tcp, sockopt::TcpUserTimeout).unwrap()), PATIENCE.as_millis());
    }

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let path = std::env::temp_dir().join(format!("barewire-probe-control-{}", std::process::id()));
        let listener = bind_unix(&path).unwrap();
        assert_eq!(bind_unix(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        drop(bind_unix(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(bind_unix(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_malformed_message_is_an_error() {
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(b"GET / HTTP/1.1\n").unwrap();
        assert!(Channel::new(Stream::Unix(b)).unwrap().receive::<Vec<u8>>().is_err());
    }
}
