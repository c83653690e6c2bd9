// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages, each one packet of a SOCK_SEQPACKET socket. Numbers of several bytes have the lowest first.
//!
//! ```text
//! request  │ "BWB" 3 │ version 1 │ SAP 1 │ flags 1: 1 = station │ 0 2 │ interface 16, padded with 0 │
//! grant    │ "BWB" 3 │ version 1 │ 0 1 │ receive ring: bytes of a slot 4, of a block 4, blocks 4 │     + the socket
//! refusal  │ "BWB" 3 │ version 1 │ status 1 │ text, UTF-8, at most 251 … │
//! farewell │ "BWB" 3 │ version 1 │ 255 1 │                                 + sockets, see FanoutGroup::bequeath
//! ```
//! A farewell comes on connections with a grant when the broker ends. It is not to be read: what comes with it is held
//! by the connection.

use barewire_link::RingGeometry;
use barewire_llc::Lsap;
use thiserror::Error;

/// Of the messages' layout and meaning.
pub const VERSION: u8 = 2;
/// No message is longer.
pub const MESSAGE_BYTES_MAX: usize = 256;

const MAGIC: [u8; 3] = *b"BWB";
const INTERFACE_BYTES: usize = 16;
const REQUEST_BYTES: usize = 8 + INTERFACE_BYTES;
const REPLY_HEADER_BYTES: usize = 5;
const STATION: u8 = 1;
const GRANTED: u8 = 0;
const FAREWELL: u8 = 255;

/// What a program asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The interface's name: 1 to 15 bytes.
    pub interface: String,
    /// An individual service access point, for this program alone.
    pub sap: Lsap,
    /// Whether frames for the station itself (SAP 0) and for all SAPs shall come in as well.
    pub station: bool,
}

/// What the broker says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The socket comes with this reply, and has this ring.
    Granted(RingGeometry),
    /// There is no socket.
    Refused {
        /// Why.
        status: Status,
        /// For a person: what is wrong and what to do.
        text: String,
    },
    /// The broker ends.
    Farewell,
}

/// Sorted by what the program or its user can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The request is no request of this version.
    Malformed = 1,
    /// The policy does not allow it.
    NotAllowed = 2,
    /// Somebody has this SAP on this interface.
    Taken = 3,
    /// The user has as many as the policy allows, or the broker as many as it can.
    TooMany = 4,
    /// There is no such interface, or it is no Ethernet one.
    NoInterface = 5,
    /// A system call of the broker's failed.
    System = 6,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Too short, too long, or not ours at all.
    #[error("no message of the broker's")]
    Malformed,
    /// Of another version.
    #[error("version {0} of the broker's messages, not {VERSION}: install the same on both sides")]
    Version(u8),
    /// SAP 0 or a group: nobody's own.
    #[error("{0:#04x} is no individual service access point: they are even, 0x02 to 0xfe")]
    Sap(u8),
    /// No name that an interface can have.
    #[error("an interface's name has 1 to 15 letters, none of them a space or '/'")]
    Interface,
}

impl Request {
    /// Bytes, or that the interface's name cannot be one.
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

    /// Any bytes are a request or have a reason why they are none.
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
    /// Bytes; a text that is too long loses its end.
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
            Self::Farewell => with(FAREWELL, &[]),
        }
    }

    /// Any bytes are a reply or have a reason why they are none.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (status, rest) = after_version(bytes)?.split_first().ok_or(MessageError::Malformed)?;
        let decoded = match *status {
            GRANTED => ring(rest).map(Self::Granted),
            FAREWELL => rest.is_empty().then_some(Self::Farewell),
            status => {
                let status = Status::ALL.into_iter().find(|one| *one as u8 == status);
                status.zip(String::from_utf8(rest.to_vec()).ok()).map(|(status, text)| Self::Refused { status, text })
            }
        };
        decoded.ok_or(MessageError::Malformed)
    }
}

impl Status {
    const ALL: [Self; 6] =
        [Self::Malformed, Self::NotAllowed, Self::Taken, Self::TooMany, Self::NoInterface, Self::System];

    /// For the audit log.
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
    fn messages_come_back_as_they_went() {
        assert_eq!(Request::decode(&request().encode().unwrap()), Ok(request()));
        let refusals = Status::ALL.map(|status| Reply::Refused { status, text: "wörds".to_owned() });
        for reply in refusals.into_iter().chain([Reply::Granted(some_ring()), Reply::Farewell]) {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let bytes = Reply::Refused { status: Status::System, text: "ö".repeat(300) }.encode();
        let Ok(Reply::Refused { text, .. }) = Reply::decode(&bytes) else { panic!("no refusal") };
        assert!((MESSAGE_BYTES_MAX - 1..=MESSAGE_BYTES_MAX).contains(&bytes.len()) && text.chars().all(|c| c == 'ö'));
        assert_eq!(Reply::decode(&[&bytes[..], &[b'x'; 2]].concat()), Err(MessageError::Malformed));
    }

    fn some_ring() -> RingGeometry {
        RingGeometry::from_words([1600, 1 << 20, 2]).unwrap()
    }

    /// Every single wrong byte and every wrong length is refused or means another request; nothing panics.
    #[test]
    fn any_bytes_are_a_message_or_have_a_reason() {
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
    fn an_interface_needs_a_name_that_can_be() {
        let encoded = |interface: &str| Request { interface: interface.to_owned(), ..request() }.encode();
        for interface in ["", "a-name-of-16-chr", "a/b", ".", "..", "a b", "a\x7f"] {
            assert_eq!(encoded(interface), Err(MessageError::Interface));
        }
        for interface in ["a", "...", "a-name-of-15-ch"] {
            assert!(encoded(interface).is_ok());
        }
    }

    #[test]
    fn every_status_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Status::ALL.iter().map(|status| status.name()).collect();
        assert_eq!(names.len(), Status::ALL.len());
    }
}
