// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transports: each moves whole messages between two endpoints, independent of what is measured. The tests in
//! [`crate::measure`] drive them through [`Transport`].

mod byte_stream;
mod datagram;
mod endpoint;
mod fragmenter;
mod kernel_llc;
pub mod libfabric;
pub mod links;
pub mod llc;
mod pace;
mod raw;
mod tcp;
mod udp;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;

use barewire_link::MINIMUM_FRAME_BYTES;
use barewire_llc::message::{FIRST_HEADER, OTHER_HEADER};

use self::endpoint::Role;
use serde::{Deserialize, Serialize};

pub use crate::protocol::{Counters, Endpoint};
use crate::protocol::{Kind, Session, Wait};
use barewire_recorder::LaunchError;

/// Moves messages. Calls of `try_send` and `receive` may alternate, so one thread can do both at once.
pub trait Transport {
    /// Establishes a connection that needs both sides at the same time.
    ///
    /// # Errors
    /// If the peer does not take part.
    fn establish(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Continues sending message `sequence`, of which `done` bytes are sent; `true` once all are. Never blocks; `false`
    /// without progress means that the transport is busy or paced.
    ///
    /// # Errors
    /// If the transport has failed.
    ///
    /// # Safety
    /// A transport that [borrows](Transport::borrows) reads messages after this call returns: each must stay allocated
    /// and unchanged until `borrows` later messages are sent, [`settle`](Transport::settle) returns true, or the
    /// transport is dropped.
    unsafe fn try_send(&mut self, sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError>;

    /// Most messages of this length that are read from the caller's memory after `try_send` returns true.
    fn borrows(&self, _message_bytes: usize) -> usize {
        0
    }

    /// Continues receiving a message of exactly `message.len()` bytes into `message`; its sequence number once it is
    /// complete. Until then every call must pass the same memory.
    ///
    /// With zero `patience` returns at once; else may sleep for that long if nothing has arrived.
    ///
    /// # Errors
    /// If the transport has failed.
    ///
    /// # Safety
    /// The memory may be written to after this call returns: it must stay allocated and unused by others until the
    /// message is complete, [`settle`](Transport::settle) returns true, or the transport is dropped.
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError>;

    /// Sleeps until sending may be possible, for at most `patience`.
    ///
    /// # Errors
    /// If the transport has failed.
    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError>;

    /// Progresses unacknowledged sends, cancels a posted receive that has no message, and answers the peer; `true` once
    /// nothing is outstanding. The caller of a lazy transport keeps calling this while idle, because the peer may wait
    /// for an answer.
    ///
    /// # Errors
    /// If the transport has failed.
    fn settle(&mut self) -> Result<bool, LaunchError> {
        Ok(true)
    }

    /// Limits the wire bits per second from now on; `None` is unlimited. Transports with flow control ignore it.
    fn set_pace(&mut self, bit_s: Option<f64>);

    /// Bytes of a message on the wire, with headers, FCS, preamble and gaps.
    fn wire_bytes(&self, message_bytes: usize) -> usize;

    /// Whether operations make progress only in calls: see [`settle`](Transport::settle).
    fn is_lazy(&self) -> bool {
        false
    }

    /// Whether a message can be lost.
    fn is_lossy(&self) -> bool;

    /// Checks whether the transport still works, for callers that spin.
    ///
    /// # Errors
    /// If it has failed.
    fn check(&mut self) -> Result<(), LaunchError>;

    /// Anomalies so far: frames that were no part of a new message, and local drops.
    ///
    /// # Errors
    /// If the system's counters cannot be read.
    fn counters(&mut self) -> Result<Counters, LaunchError>;

    /// Largest payload of one packet or frame, if known.
    fn mtu(&self) -> Option<usize>;

    /// The path that messages take, where a library selects it.
    fn path(&self) -> Option<String> {
        None
    }
}

/// Most messages of this length that a sender lends at once: 128 KiB, but at least two.
fn borrowed_messages(message_bytes: usize) -> usize {
    const BORROWED_BYTES: usize = 128 << 10;
    const BORROWED_MESSAGES: usize = 64;
    (BORROWED_BYTES / message_bytes).clamp(2, BORROWED_MESSAGES)
}

/// Overhead of every frame on the wire: preamble and start delimiter, FCS, gap.
const WIRE_OVERHEAD_BYTES: usize = 8 + 4 + 12;

/// Bytes on the wire of a message in fragments of at most `room` bytes, each behind `frame_header_bytes`.
fn fragments_wire_bytes(message_bytes: usize, room: usize, frame_header_bytes: usize) -> usize {
    let fragments = 1 + message_bytes.saturating_sub(room - FIRST_HEADER).div_ceil(room - OTHER_HEADER);
    let headers =
        FIRST_HEADER + (fragments - 1) * OTHER_HEADER + fragments * (frame_header_bytes + WIRE_OVERHEAD_BYTES);
    (message_bytes + headers).max(MINIMUM_FRAME_BYTES + WIRE_OVERHEAD_BYTES)
}

/// One side's local options of a transport.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LocalConfig {
    /// For frames.
    pub interface: Option<String>,
    /// The interface's receive queue, for links that take one.
    pub queue: u16,
    /// For sockets: the address to bind to.
    pub ip: Option<IpAddr>,
    /// For sockets: the interface of a link-local address, taken from the control channel; 0 without.
    pub scope_id: u32,
    /// For frames: path of the broker's socket.
    pub broker: Option<PathBuf>,
}

impl LocalConfig {
    fn interface(&self) -> Result<&str, LaunchError> {
        self.interface
            .as_deref()
            .ok_or_else(|| LaunchError::WrongUse("frames need an interface on both sides: give --interface".to_owned()))
    }

    /// Where a socket is bound, with a port of the system's choice: at `ip`, else at `any`.
    fn socket_address(&self, any: IpAddr) -> SocketAddr {
        match self.ip.unwrap_or(any) {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), 0),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, 0, 0, self.scope_id).into(),
        }
    }
}

/// The passive side's end, which opens first.
pub enum Listening {
    Tcp(tcp::Listening),
    Udp(udp::Listening),
    Raw(raw::Listening),
    Llc(llc::Listening),
    KernelLlc(kernel_llc::Listening),
    Endpoint(endpoint::Listening),
    Libfabric(libfabric::Listening),
}

impl Listening {
    pub fn new(session: &Session, local: &LocalConfig) -> Result<(Self, Endpoint), LaunchError> {
        Ok(match session.transport {
            Kind::Tcp => {
                let (listening, endpoint) = tcp::Listening::new(local)?;
                (Self::Tcp(listening), endpoint)
            }
            Kind::Udp => {
                let (listening, endpoint) = udp::Listening::new(local)?;
                (Self::Udp(listening), endpoint)
            }
            Kind::Raw | Kind::Xdp => {
                let (listening, endpoint) = raw::Listening::new(session, local)?;
                (Self::Raw(listening), endpoint)
            }
            Kind::Llc1 | Kind::Llc2 | Kind::Llc3 => {
                let (listening, endpoint) = llc::Listening::new(session, local)?;
                (Self::Llc(listening), endpoint)
            }
            Kind::KernelLlc2 => {
                let (listening, endpoint) = kernel_llc::Listening::new(local)?;
                (Self::KernelLlc(listening), endpoint)
            }
            Kind::Endpoint | Kind::Messages => {
                let (listening, endpoint) = endpoint::Listening::new(session, local, Role::Passive)?;
                (Self::Endpoint(listening), endpoint)
            }
            Kind::Libfabric => {
                let (listening, endpoint) = libfabric::Listening::new(session, local)?;
                (Self::Libfabric(listening), endpoint)
            }
        })
    }

    pub fn accept(self, session: &Session, peer: Endpoint) -> Result<Box<dyn Transport>, LaunchError> {
        Ok(match (self, peer) {
            (Self::Tcp(listening), Endpoint::Socket(peer)) => Box::new(listening.accept(session, peer)?),
            (Self::Udp(listening), Endpoint::Socket(peer)) => Box::new(listening.accept(session, peer)?),
            (Self::Raw(listening), Endpoint::Station(peer)) => listening.accept(session, peer)?,
            (Self::Llc(listening), Endpoint::Station(peer)) => listening.accept(session, peer)?,
            (Self::KernelLlc(listening), Endpoint::Sap(peer)) => Box::new(listening.accept(peer)?),
            (Self::Endpoint(listening), Endpoint::Station(peer)) => listening.accept(session, peer)?,
            (Self::Libfabric(listening), Endpoint::Fabric { name }) => Box::new(listening.accept(&name, false)?),
            _ => return Err(endpoint_mismatch()),
        })
    }
}

/// Opens the active side's end, to the passive side's endpoint.
pub fn connect(
    session: &Session,
    local: &LocalConfig,
    peer: Endpoint,
) -> Result<(Box<dyn Transport>, Endpoint), LaunchError> {
    Ok(match (session.transport, peer) {
        (Kind::Tcp, Endpoint::Socket(peer)) => {
            let (transport, endpoint) = tcp::connect(session, peer)?;
            (Box::new(transport), endpoint)
        }
        (Kind::Udp, Endpoint::Socket(peer)) => {
            let (transport, endpoint) = udp::connect(session, local, peer)?;
            (Box::new(transport), endpoint)
        }
        (Kind::Raw | Kind::Xdp, Endpoint::Station(peer)) => {
            let (listening, endpoint) = raw::Listening::new(session, local)?;
            (listening.accept(session, peer)?, endpoint)
        }
        (Kind::Llc1 | Kind::Llc2 | Kind::Llc3, Endpoint::Station(peer)) => {
            let (listening, endpoint) = llc::Listening::new(session, local)?;
            (listening.connect(session, peer)?, endpoint)
        }
        (Kind::KernelLlc2, Endpoint::Sap(peer)) => {
            let (transport, endpoint) = kernel_llc::connect(local, peer)?;
            (Box::new(transport), endpoint)
        }
        (Kind::Endpoint | Kind::Messages, Endpoint::Station(peer)) => {
            let (listening, endpoint) = endpoint::Listening::new(session, local, Role::Active)?;
            (listening.accept(session, peer)?, endpoint)
        }
        (Kind::Libfabric, Endpoint::Fabric { name }) => {
            let (listening, endpoint) = libfabric::Listening::new(session, local)?;
            (Box::new(listening.accept(&name, true)?), endpoint)
        }
        _ => return Err(endpoint_mismatch()),
    })
}

fn endpoint_mismatch() -> LaunchError {
    LaunchError::Failed("the peer named an endpoint of another transport; are both probes of one version?".to_owned())
}

/// Timeout of blocking socket calls; `None` for spinning, which never blocks.
fn socket_timeout(wait: Wait) -> Option<Duration> {
    match wait {
        Wait::Spin => None,
        Wait::Adaptive | Wait::Block | Wait::Busypoll => Some(SLEEP_MAX),
    }
}

/// Interval at which a sleeping side polls its control channel.
pub const SLEEP_MAX: Duration = Duration::from_millis(20);
