// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transports: each moves whole messages between two endpoints and knows nothing of what is
//! measured. The tests in [`crate::measure`] drive them and know nothing of how they work.

mod cutting;
mod datagram;
mod endpoint;
pub mod libfabric;
pub mod links;
pub mod llc;
mod pace;
mod raw;
mod tcp;
mod udp;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use barewire_link::{MINIMUM_FRAME_BYTES, MacAddress};
use barewire_llc::message::{FIRST_HEADER, OTHER_HEADER};

use self::endpoint::Role;
use serde::{Deserialize, Serialize};

pub use crate::protocol::{Counters, Endpoint};
use crate::protocol::{Kind, Session, Wait};
use barewire_recorder::LaunchError;

/// Moves messages. Both calls may be made in turn, so one thread can send and receive at once.
pub trait Transport {
    /// Brings a connection about that needs both sides at the same time.
    ///
    /// # Errors
    /// When the peer does not take part.
    fn establish(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Goes on sending message `sequence`, of which `done` bytes are sent; `true` once all are.
    /// Never blocks; with `false` and no progress the transport is busy or keeps its pace.
    ///
    /// # Errors
    /// When the transport no longer works.
    ///
    /// # Safety
    /// A transport that [borrows](Transport::borrows) reads messages again after this has returned: each must stay
    /// in place and unchanged until `borrows` messages after it were sent, [`settle`](Transport::settle) said that
    /// nothing is left, or the transport is dropped.
    unsafe fn try_send(&mut self, sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError>;

    /// Messages of a length that are sent and still read from the caller's memory, at most.
    fn borrows(&self, _message_bytes: usize) -> usize {
        0
    }

    /// Goes on receiving a message of exactly `message.len()` bytes into `message`; its sequence
    /// number once it is whole. Until then every call must pass the same memory.
    ///
    /// With no `patience` this returns at once; else it may sleep for that long if nothing is there.
    ///
    /// # Errors
    /// When the transport no longer works.
    ///
    /// # Safety
    /// The memory may be written to after this has returned: it must stay in place, and be used by nothing else, until the
    /// message is whole, [`settle`](Transport::settle) said that nothing is left, or the transport is dropped.
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError>;

    /// Sleeps until it may be possible to send more, or for `patience`.
    ///
    /// # Errors
    /// When the transport no longer works.
    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError>;

    /// Goes on with what was taken and is not acknowledged yet, gives up a receive that has begun and has no message, and
    /// answers the peer; `true` once nothing is left. A lazy transport's caller that has nothing else to do goes on calling: the peer waits likewise.
    ///
    /// # Errors
    /// When the transport no longer works.
    fn settle(&mut self) -> Result<bool, LaunchError> {
        Ok(true)
    }

    /// Sends at most this many wire bits per second from now on; without a number as fast as possible.
    /// Transports with a flow control of their own keep to that.
    fn set_pace(&mut self, bit_s: Option<f64>);

    /// Bytes that a message takes on the wire, with all headers, checks and gaps.
    fn wire_bytes(&self, message_bytes: usize) -> usize;

    /// Whether something happens later than a call: see [`settle`](Transport::settle).
    fn is_lazy(&self) -> bool {
        false
    }

    /// Whether a message can be lost.
    fn is_lossy(&self) -> bool;

    /// Asks whether the transport still works, for callers that spin.
    ///
    /// # Errors
    /// When it no longer does.
    fn check(&mut self) -> Result<(), LaunchError>;

    /// What has come in that was not a new message, and what the transport lost itself.
    ///
    /// # Errors
    /// When the system does not tell.
    fn counters(&mut self) -> Result<Counters, LaunchError>;

    /// Largest payload of one packet or frame, where the transport knows it.
    fn mtu(&self) -> Option<usize>;

    /// Which way messages really take, where a library decides that.
    fn path(&self) -> Option<String> {
        None
    }
}

/// Messages of a length that a sender lends at once: 128 KiB of them, or two.
fn borrowed_messages(message_bytes: usize) -> usize {
    const BORROWED_BYTES: usize = 128 << 10;
    const BORROWED_MESSAGES: usize = 64;
    (BORROWED_BYTES / message_bytes).clamp(2, BORROWED_MESSAGES)
}

/// Preamble and start delimiter, frame check sequence, gap: of every frame on a wire.
const WIRE_OVERHEAD_BYTES: usize = 8 + 4 + 12;

/// Bytes on the wire of a message cut into fragments of at most `room` bytes, each behind so many bytes of headers.
fn fragments_wire_bytes(message_bytes: usize, room: usize, frame_header_bytes: usize) -> usize {
    let fragments = 1 + message_bytes.saturating_sub(room - FIRST_HEADER).div_ceil(room - OTHER_HEADER);
    let headers =
        FIRST_HEADER + (fragments - 1) * OTHER_HEADER + fragments * (frame_header_bytes + WIRE_OVERHEAD_BYTES);
    (message_bytes + headers).max(MINIMUM_FRAME_BYTES + WIRE_OVERHEAD_BYTES)
}

/// What a side itself brings to its end of a transport.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// For frames.
    pub interface: Option<String>,
    /// The interface's receive queue, for links that take one.
    pub queue: u16,
    /// For sockets: the address to bind to.
    pub ip: Option<IpAddr>,
    /// For frames: who has the privilege for them.
    pub broker: Option<PathBuf>,
}

impl Place {
    fn interface(&self) -> Result<&str, LaunchError> {
        self.interface.as_deref().ok_or_else(|| {
            LaunchError::WrongUse("raw frames need an interface on both sides: give --interface".to_owned())
        })
    }
}

/// The passive side's end, which is there first.
pub enum Listening {
    Tcp(tcp::Listening),
    Udp(udp::Listening),
    Raw(raw::Listening),
    Llc(llc::Listening),
    Endpoint(endpoint::Listening),
    Libfabric(libfabric::Listening),
}

impl Listening {
    pub fn new(session: &Session, place: &Place) -> Result<(Self, Endpoint), LaunchError> {
        Ok(match session.transport {
            Kind::Tcp => {
                let (listening, endpoint) = tcp::Listening::new(place)?;
                (Self::Tcp(listening), endpoint)
            }
            Kind::Udp => {
                let (listening, endpoint) = udp::Listening::new(place)?;
                (Self::Udp(listening), endpoint)
            }
            Kind::Raw | Kind::Xdp => {
                let (listening, endpoint) = raw::Listening::new(session, place)?;
                (Self::Raw(listening), endpoint)
            }
            Kind::Llc1 | Kind::Llc2 | Kind::Llc3 => {
                let (listening, endpoint) = llc::Listening::new(session, place)?;
                (Self::Llc(listening), endpoint)
            }
            Kind::Endpoint | Kind::Messages => {
                let (listening, endpoint) = endpoint::Listening::new(session, place, Role::Passive)?;
                (Self::Endpoint(listening), endpoint)
            }
            Kind::Libfabric => {
                let (listening, endpoint) = libfabric::Listening::new(session, place)?;
                (Self::Libfabric(listening), endpoint)
            }
        })
    }

    pub fn accept(self, session: &Session, peer: Endpoint) -> Result<Box<dyn Transport>, LaunchError> {
        Ok(match (self, peer) {
            (Self::Tcp(listening), Endpoint::Socket(peer)) => Box::new(listening.accept(session, peer)?),
            (Self::Udp(listening), Endpoint::Socket(peer)) => Box::new(listening.accept(session, peer)?),
            (Self::Raw(listening), Endpoint::Station { address, mtu }) => {
                listening.accept(session, MacAddress(address), mtu)
            }
            (Self::Llc(listening), Endpoint::Station { address, mtu }) => {
                listening.accept(session, MacAddress(address), mtu)?
            }
            (Self::Endpoint(listening), Endpoint::Station { address, mtu }) => {
                listening.accept(session, MacAddress(address), mtu)?
            }
            (Self::Libfabric(listening), Endpoint::Fabric { name }) => Box::new(listening.accept(&name, false)?),
            _ => return Err(wrong_endpoint()),
        })
    }
}

/// The active side's end, which knows where the other is.
pub fn connect(
    session: &Session,
    place: &Place,
    peer: Endpoint,
) -> Result<(Box<dyn Transport>, Endpoint), LaunchError> {
    Ok(match (session.transport, peer) {
        (Kind::Tcp, Endpoint::Socket(peer)) => {
            let (transport, endpoint) = tcp::connect(session, peer)?;
            (Box::new(transport), endpoint)
        }
        (Kind::Udp, Endpoint::Socket(peer)) => {
            let (transport, endpoint) = udp::connect(session, place, peer)?;
            (Box::new(transport), endpoint)
        }
        (Kind::Raw | Kind::Xdp, Endpoint::Station { address, mtu }) => {
            let (listening, endpoint) = raw::Listening::new(session, place)?;
            (listening.accept(session, MacAddress(address), mtu), endpoint)
        }
        (Kind::Llc1 | Kind::Llc2 | Kind::Llc3, Endpoint::Station { address, mtu }) => {
            let (listening, endpoint) = llc::Listening::new(session, place)?;
            (listening.connect(session, MacAddress(address), mtu)?, endpoint)
        }
        (Kind::Endpoint | Kind::Messages, Endpoint::Station { address, mtu }) => {
            let (listening, endpoint) = endpoint::Listening::new(session, place, Role::Active)?;
            (listening.accept(session, MacAddress(address), mtu)?, endpoint)
        }
        (Kind::Libfabric, Endpoint::Fabric { name }) => {
            let (listening, endpoint) = libfabric::Listening::new(session, place)?;
            (Box::new(listening.accept(&name, true)?), endpoint)
        }
        _ => return Err(wrong_endpoint()),
    })
}

fn wrong_endpoint() -> LaunchError {
    LaunchError::Failed("the peer named an endpoint of another transport; are both probes of one version?".to_owned())
}

/// How long a blocking socket call may sleep, or `None` for the spinning ones, which never do.
fn sleep_of(wait: Wait) -> Option<Duration> {
    match wait {
        Wait::Spin => None,
        Wait::Adaptive | Wait::Block | Wait::Busypoll => Some(LONGEST_SLEEP),
    }
}

/// A sleeping side looks at its control channel at least this often.
pub const LONGEST_SLEEP: Duration = Duration::from_millis(20);
