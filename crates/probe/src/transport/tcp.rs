// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP, tuned as a message-passing library tunes it: TCP_NODELAY, and messages of known length.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::byte_stream::{ByteStream, sleep_to_send};
use super::{Counters, Endpoint, LocalConfig, Transport, socket_timeout};
use crate::protocol::{Session, Wait};
use barewire_recorder::LaunchError;

/// How long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the kernel busy-polls the device before a process sleeps.
const BUSY_POLL_US: libc::c_int = 50;

pub const IP_HEADER_BYTES: usize = 20;
/// TCP header, with the timestamps that Linux sends by default.
const TCP_HEADER_BYTES: usize = 20 + 12;
/// Preamble and start delimiter, header, FCS, gap.
pub const ETHERNET_WIRE_BYTES: usize = 8 + 14 + 4 + 12;
/// Minimum frame, with this overhead.
pub const MINIMUM_WIRE_BYTES: usize = 84;

pub struct Listening {
    listener: TcpListener,
}

impl Listening {
    pub fn new(local: &LocalConfig) -> Result<(Self, Endpoint), LaunchError> {
        let own = local.socket_address(Ipv4Addr::UNSPECIFIED.into());
        let listener = TcpListener::bind(own)
            .map_err(|error| LaunchError::system(&format!("cannot bind TCP to {}", own.ip()), error))?;
        let endpoint = listener.local_addr().map(Endpoint::Socket);
        Ok((Self { listener }, endpoint.map_err(|error| LaunchError::system("getsockname", error))?))
    }

    /// Accepts the connection from `peer`, and closes any other.
    pub fn accept(self, session: &Session, peer: SocketAddr) -> Result<Tcp, LaunchError> {
        let failed = |error| LaunchError::system("accept", error);
        self.listener.set_nonblocking(true).map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((stream, from)) if from == peer => {
                    stream.set_nonblocking(false).map_err(failed)?;
                    return Tcp::new(stream, session);
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Binds no source address: the route selects that of the link to the peer.
pub fn connect(session: &Session, peer: SocketAddr) -> Result<(Tcp, Endpoint), LaunchError> {
    let stream = TcpStream::connect_timeout(&peer, PATIENCE)
        .map_err(|error| LaunchError::Failed(format!("cannot connect to {peer} by TCP: {error}")))?;
    let endpoint =
        stream.local_addr().map(Endpoint::Socket).map_err(|error| LaunchError::system("getsockname", error))?;
    Ok((Tcp::new(stream, session)?, endpoint))
}

pub struct Tcp {
    stream: ByteStream<TcpStream>,
}

impl Tcp {
    fn new(stream: TcpStream, session: &Session) -> Result<Self, LaunchError> {
        let failed = |error| LaunchError::system("setsockopt", error);
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(socket_timeout(session.wait)).map_err(failed)?;
        if session.wait == Wait::Busypoll {
            enable_busy_poll(&stream)?;
        }
        Ok(Self { stream: ByteStream::new(stream, "TCP") })
    }
}

impl Transport for Tcp {
    #[inline]
    unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        self.stream.try_send(message, done)
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        self.stream.receive(message, patience)
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        sleep_to_send(&self.stream.socket, patience)
    }

    fn set_pace(&mut self, _bit_s: Option<f64>) {}

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        let headers = IP_HEADER_BYTES + TCP_HEADER_BYTES;
        let segments = message_bytes.div_ceil(self.mtu().unwrap_or(1500) - headers);
        (message_bytes + segments * (headers + ETHERNET_WIRE_BYTES)).max(MINIMUM_WIRE_BYTES)
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn check(&mut self) -> Result<(), LaunchError> {
        match self.stream.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(LaunchError::system("TCP", error)),
        }
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        Ok(Counters { send_busy: self.stream.send_busy, ..Counters::default() })
    }

    fn mtu(&self) -> Option<usize> {
        nix::sys::socket::getsockopt(&self.stream.socket, nix::sys::socket::sockopt::IpMtu)
            .ok()
            .and_then(|mtu| usize::try_from(mtu).ok())
    }
}

/// Makes the kernel busy-poll the device before a process sleeps.
pub fn enable_busy_poll(socket: &impl AsFd) -> Result<(), LaunchError> {
    let microseconds = BUSY_POLL_US;
    let length = libc::socklen_t::try_from(size_of_val(&microseconds)).expect("an int is small");
    // SAFETY: pointer and length describe an int; the descriptor is open as long as `socket`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const microseconds).cast(),
            length,
        )
    };
    match Errno::result(result) {
        Ok(_) => Ok(()),
        Err(Errno::EPERM) => Err(LaunchError::MachineCannot(
            "busy polling needs CAP_NET_ADMIN outside of user namespaces: run as root, or leave busypoll out"
                .to_owned(),
        )),
        Err(error) => Err(LaunchError::system("SO_BUSY_POLL", error)),
    }
}
