// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages, each one packet of a SOCK_SEQPACKET socket. Numbers are little endian.
//!
//! ```text
//! request  │ "BWB" 3 │ version 1 │ SAP 1 │ flags 1: 1 = station │ 0 2 │ interface 16, padded with 0 │
//! grant    │ "BWB" 3 │ version 1 │ 0 1 │ receive ring: bytes of a slot 4, of a block 4, blocks 4 │     + the socket
//! refusal  │ "BWB" 3 │ version 1 │ status 1 │ text, UTF-8, at most 251 … │
//! shutdown │ "BWB" 3 │ version 1 │ 255 1 │                                 + sockets, see FanoutGroup::placeholders
//! ```
//! The broker sends a shutdown message on connections with a grant when it ends. Clients must not read it: the unread
//! message keeps its sockets open.

use barewire_link::RingGeometry;
use barewire_llc::Lsap;
use thiserror::Error;

/// Version of the protocol.
pub const VERSION: u8 = 2;
/// Length of the longest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256;

const MAGIC: [u8; 3] = *b"BWB";
const INTERFACE_BYTES: usize = 16;
const REQUEST_BYTES: usize = 8 + INTERFACE_BYTES;
const REPLY_HEADER_BYTES: usize = 5;
const STATION: u8 = 1;
const GRANTED: u8 = 0;
const SHUTDOWN: u8 = 255;

/// A request for a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The interface's name: 1 to 15 bytes.
    pub interface: String,
    /// The service access point, for exclusive use.
    pub sap: Lsap,
    /// Whether to receive frames to the null and global SAPs as well.
    pub station: bool,
}

/// A message from the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request is granted; the socket comes with the message and has this ring.
    Granted(RingGeometry),
    /// The request is refused.
    Refused {
        /// The kind of refusal.
        status: Status,
        /// Human-readable: what is wrong and what to do.
        text: String,
    },
    /// The broker is shutting down.
    Shutdown,
}

/// Kinds of refusal, by what the program or its user can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The message is not a request of this version.
    Malformed = 1,
    /// The policy does not allow it.
    NotAllowed = 2,
    /// The SAP is in use on this interface.
    Taken = 3,
    /// The user has reached its limit in the policy, or the broker its own.
    TooMany = 4,
    /// The interface does not exist or is not Ethernet.
    NoInterface = 5,
    /// A system call of the broker failed.
    System = 6,
}

/// Why a message is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Wrong length, or not a message of this protocol.
    #[error("not a broker message")]
    Malformed,
    /// Another version of the protocol.
    #[error("broker protocol version {0}, not {VERSION}: install the same version on both sides")]
    Version(u8),
    /// The null SAP or a group address.
    #[error("{0:#04x} is not an individual service access point: those are even, 0x02 to 0xfe")]
    Sap(u8),
    /// An invalid interface name.
    #[error("an interface's name has 1 to 15 characters, without spaces and '/'")]
    Interface,
}

impl Request {
    /// Encodes the request.
    ///
    /// # Errors
    /// [`MessageError::Interface`].
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let name = self.interface.as_bytes();
        if !is_interface_name(name) {
            return Err(MessageError::Interface);
        }
        let mut bytes = vec![0; REQUEST_BYTES];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3..6].copy_from_slice(&[VERSION, self.sap.byte(), u8::from(self.station) * STATION]);
        bytes[8..8 + name.len()].copy_from_slice(name);
        Ok(bytes)
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let rest = after_version(bytes)?;
        let Some(([sap, flags, 0, 0], name)) = rest.split_first_chunk::<4>() else {
            return Err(MessageError::Malformed);
        };
        if name.len() != INTERFACE_BYTES || flags & !STATION != 0 {
            return Err(MessageError::Malformed);
        }
        let length = name.iter().position(|byte| *byte == 0).ok_or(MessageError::Interface)?;
        let (name, padding) = name.split_at(length);
        if !is_interface_name(name) || padding.iter().any(|byte| *byte != 0) {
            return Err(MessageError::Interface);
        }
        let interface = String::from_utf8(name.to_vec()).map_err(|_| MessageError::Interface)?;
        let sap = Lsap::new(*sap).ok_or(MessageError::Sap(*sap))?;
        Ok(Self { interface, sap, station: flags & STATION != 0 })
    }
}

impl Reply {
    /// Encodes the message; truncates a text that is too long.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let with = |status, rest: &[u8]| [&MAGIC[..], &[VERSION, status], rest].concat();
        match self {
            Self::Granted(ring) => with(GRANTED, &ring.to_words().map(u32::to_le_bytes).concat()),
            Self::Refused { status, text } => {
                let mut end = text.len().min(MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                with(*status as u8, &text.as_bytes()[..end])
            }
            Self::Shutdown => with(SHUTDOWN, &[]),
        }
    }

    /// Decodes a message of the broker.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (status, rest) = after_version(bytes)?.split_first().ok_or(MessageError::Malformed)?;
        let decoded = match *status {
            GRANTED => ring(rest).map(Self::Granted),
            SHUTDOWN => rest.is_empty().then_some(Self::Shutdown),
            status => {
                let status = Status::ALL.into_iter().find(|known| *known as u8 == status);
                status.zip(String::from_utf8(rest.to_vec()).ok()).map(|(status, text)| Self::Refused { status, text })
            }
        };
        decoded.ok_or(MessageError::Malformed)
    }
}

impl Status {
    const ALL: [Self; 6] =
        [Self::Malformed, Self::NotAllowed, Self::Taken, Self::TooMany, Self::NoInterface, Self::System];

    /// Name in the audit log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotAllowed => "not allowed",
            Self::Taken => "taken",
            Self::TooMany => "too many",
            Self::NoInterface => "no interface",
            Self::System => "system",
        }
    }
}

fn after_version(bytes: &[u8]) -> Result<&[u8], MessageError> {
    match bytes.strip_prefix(&MAGIC) {
        Some([VERSION, rest @ ..]) if bytes.len() <= MESSAGE_BYTES_MAX => Ok(rest),
        Some([version, ..]) if *version != VERSION => Err(MessageError::Version(*version)),
        _ => Err(MessageError::Malformed),
    }
}

fn ring(bytes: &[u8]) -> Option<RingGeometry> {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes else { return None };
    RingGeometry::from_words([[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes))
}

fn is_interface_name(name: &[u8]) -> bool {
    (1..INTERFACE_BYTES).contains(&name.len())
        && name.iter().all(|byte| *byte > b' ' && *byte != b'/' && *byte != 0x7f)
        && name != b"."
        && name != b".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request { interface: "eth0".to_owned(), sap: Lsap::new(0x20).unwrap(), station: true }
    }

    #[test]
    fn messages_round_trip() {
        assert_eq!(Request::decode(&request().encode().unwrap()), Ok(request()));
        let refusals = Status::ALL.map(|status| Reply::Refused { status, text: "wörds".to_owned() });
        for reply in refusals.into_iter().chain([Reply::Granted(some_ring()), Reply::Shutdown]) {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn long_text_is_truncated_at_a_character_boundary() {
        let bytes = Reply::Refused { status: Status::System, text: "ö".repeat(300) }.encode();
        let Ok(Reply::Refused { text, .. }) = Reply::decode(&bytes) else { panic!("no refusal") };
        assert!((MESSAGE_BYTES_MAX - 1..=MESSAGE_BYTES_MAX).contains(&bytes.len()) && text.chars().all(|c| c == 'ö'));
        assert_eq!(Reply::decode(&[&bytes[..], &[b'x'; 2]].concat()), Err(MessageError::Malformed));
    }

    fn some_ring() -> RingGeometry {
        RingGeometry::from_words([1600, 1 << 20, 2]).unwrap()
    }

    /// Every wrong byte and every wrong length is refused or yields another request, without panic.
    #[test]
    fn any_bytes_are_decoded_or_refused() {
        let good = request().encode().unwrap();
        for length in 0..good.len() {
            assert!(Request::decode(&good[..length]).is_err());
        }
        assert!(Request::decode(&[&good[..], &[0]].concat()).is_err());
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = byte;
                if let Ok(request) = Request::decode(&bytes) {
                    assert_eq!(request.encode().unwrap(), bytes);
                }
                let _ = Reply::decode(&bytes);
            }
        }
        let wrong = |at: usize, byte| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Request::decode(&bytes)
        };
        assert_eq!(wrong(3, 1), Err(MessageError::Version(1)));
        let grant = Reply::Granted(some_ring()).encode();
        for length in 0..grant.len() {
            assert!(Reply::decode(&grant[..length]).is_err());
        }
        for sap in [0x00, 0x21, 0xff] {
            assert_eq!(wrong(4, sap), Err(MessageError::Sap(sap)));
        }
        assert_eq!(wrong(8, b'/'), Err(MessageError::Interface));
        assert_eq!(wrong(8, 0), Err(MessageError::Interface));
    }

    #[test]
    fn invalid_interface_names_are_refused() {
        let encoded = |interface: &str| Request { interface: interface.to_owned(), ..request() }.encode();
        for interface in ["", "a-name-of-16-chr", "a/b", ".", "..", "a b", "a\x7f"] {
            assert_eq!(encoded(interface), Err(MessageError::Interface));
        }
        for interface in ["a", "...", "a-name-of-15-ch"] {
            assert!(encoded(interface).is_ok());
        }
    }

    #[test]
    fn status_names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Status::ALL.iter().map(|status| status.name()).collect();
        assert_eq!(names.len(), Status::ALL.len());
    }
}
