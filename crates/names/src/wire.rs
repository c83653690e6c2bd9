// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Query and answer: the information fields of UI PDUs between the service access points [`SAP`] of two stations.
//!
//! ```text
//! | "BWN" 3 | version 1 | kind 1 | nonce 4 | port 2 | address 16 | name length 1 | name … |
//!
//! version  1
//! kind     1 query: with a name, only the host with that name answers; port and address are 0
//!          2 answer: the query's nonce and the sender's name
//! port,    of the answering host's `barewire-probe serve`, both 0 if there is none; an IPv4 address
//! address  is encoded as ::ffff:a.b.c.d
//! name     lower case
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use barewire_llc::Lsap;

use crate::name::Name;

/// The service access point for names: from the range for users, without a known other use.
pub const SAP: Lsap = match Lsap::new(0xba) {
    Some(sap) => sap,
    None => unreachable!(),
};

const MAGIC: [u8; 3] = *b"BWN";
const VERSION: u8 = 1;
const KIND_QUERY: u8 = 1;
const KIND_ANSWER: u8 = 2;
const HEADER_BYTES: usize = 28;

/// A message of the name protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A query for hosts.
    Query {
        /// Returned in the answers.
        nonce: u32,
        /// The name of the host that shall answer; `None`: all hosts.
        wanted: Option<Name>,
    },
    /// An answer to a query.
    Answer {
        /// The query's nonce.
        nonce: u32,
        /// The sender's name.
        name: Name,
        /// Control address of a probe on this host; an IPv6 address without its scope.
        control: Option<SocketAddr>,
    },
}

/// Why a message is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Malformed {
    /// Shorter than the fixed fields.
    TooShort,
    /// No magic number: another protocol uses the same service access point.
    NotOurs,
    /// An unknown version.
    UnknownVersion,
    /// Neither query nor answer.
    UnknownKind,
    /// The name's length does not match the length of the message.
    WrongLength,
    /// The name is not a lower-case host name, or is missing in an answer.
    BadName,
    /// Port and address are not those of one host, or a query has them.
    BadControl,
}

impl Malformed {
    /// All reasons, with their names in records.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::TooShort, "too_short"),
        (Self::NotOurs, "not_ours"),
        (Self::UnknownVersion, "unknown_version"),
        (Self::UnknownKind, "unknown_kind"),
        (Self::WrongLength, "wrong_length"),
        (Self::BadName, "bad_name"),
        (Self::BadControl, "bad_control"),
    ];
}

impl Message {
    /// Decodes a message.
    ///
    /// # Errors
    /// Why the message is invalid.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, name) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::TooShort)?;
        let [m0, m1, m2, version, kind, n0, n1, n2, n3, p0, p1, address @ .., name_bytes] = *header;
        if [m0, m1, m2] != MAGIC {
            return Err(Malformed::NotOurs);
        }
        if version != VERSION {
            return Err(Malformed::UnknownVersion);
        }
        if ![KIND_QUERY, KIND_ANSWER].contains(&kind) {
            return Err(Malformed::UnknownKind);
        }
        if name.len() != usize::from(name_bytes) {
            return Err(Malformed::WrongLength);
        }
        let nonce = u32::from_be_bytes([n0, n1, n2, n3]);
        let control = decode_control(u16::from_be_bytes([p0, p1]), address)?;
        match (kind, name.is_empty()) {
            (KIND_QUERY, _) if control.is_some() => Err(Malformed::BadControl),
            (KIND_QUERY, true) => Ok(Self::Query { nonce, wanted: None }),
            (KIND_QUERY, false) => Ok(Self::Query { nonce, wanted: Some(decode_name(name)?) }),
            _ => Ok(Self::Answer { nonce, name: decode_name(name)?, control }),
        }
    }

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, nonce, name, control) = match self {
            Self::Query { nonce, wanted } => (KIND_QUERY, nonce, wanted.as_ref(), None),
            Self::Answer { nonce, name, control } => (KIND_ANSWER, nonce, Some(name), control.as_ref()),
        };
        let name = name.map_or("", Name::as_str);
        let address = match control.map(SocketAddr::ip) {
            None => Ipv6Addr::UNSPECIFIED,
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
            Some(IpAddr::V6(address)) => address,
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + name.len());
        bytes.extend(MAGIC);
        bytes.extend([VERSION, kind]);
        bytes.extend(nonce.to_be_bytes());
        bytes.extend(control.map_or(0, SocketAddr::port).to_be_bytes());
        bytes.extend(address.octets());
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
        bytes
    }
}

fn decode_name(bytes: &[u8]) -> Result<Name, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::BadName)?;
    let name: Name = text.parse().map_err(|_| Malformed::BadName)?;
    if name.as_str() == text { Ok(name) } else { Err(Malformed::BadName) }
}

fn decode_control(port: u16, address: [u8; 16]) -> Result<Option<SocketAddr>, Malformed> {
    let address = Ipv6Addr::from(address);
    let ip = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    if port == 0 && address.is_unspecified() {
        return Ok(None);
    }
    if port == 0 || !is_reachable_host(ip) {
        return Err(Malformed::BadControl);
    }
    Ok(Some(SocketAddr::new(ip, port)))
}

/// Whether other hosts can reach a single host by this address.
pub(crate) fn is_reachable_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(address) if address.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(control: Option<&str>) -> Message {
        let control = control.map(|text| text.parse().unwrap());
        Message::Answer { nonce: 0x0102_0304, name: "h2".parse().unwrap(), control }
    }

    fn messages() -> Vec<Message> {
        let query = |wanted: Option<&str>| Message::Query { nonce: 7, wanted: wanted.map(|w| w.parse().unwrap()) };
        let long = "n".repeat(crate::bounds::NAME_BYTES_MAX);
        let controls = [None, Some("10.0.0.2:5288"), Some("[fe80::1]:1"), Some("[2001:db8::7]:65535")];
        let mut messages = vec![query(None), query(Some("h2")), query(Some(&long))];
        messages.extend(controls.map(answer));
        messages
    }

    #[test]
    fn layout_is_as_documented() {
        let mut expected = b"BWN\x01\x02\x01\x02\x03\x04\x14\xa8".to_vec();
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]);
        expected.extend(b"\x02h2");
        assert_eq!(answer(Some("10.0.0.2:5288")).encode(), expected);
    }

    #[test]
    fn messages_round_trip() {
        for message in messages() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn truncated_and_extended_messages_are_refused() {
        for message in messages() {
            let mut bytes = message.encode();
            for length in 0..bytes.len() {
                let expected = if length < HEADER_BYTES { Malformed::TooShort } else { Malformed::WrongLength };
                assert_eq!(Message::decode(&bytes[..length]), Err(expected));
            }
            bytes.push(b'x');
            assert_eq!(Message::decode(&bytes), Err(Malformed::WrongLength));
        }
    }

    /// For every value of every byte, decoding yields a message that encodes to the same bytes, or an error; every
    /// error occurs.
    #[test]
    fn any_change_of_a_byte_is_decoded_or_refused() {
        let mut seen = Vec::new();
        for message in messages() {
            let bytes = message.encode();
            for (at, value) in (0..bytes.len()).flat_map(|at| (0..=u8::MAX).map(move |value| (at, value))) {
                let mut changed = bytes.clone();
                changed[at] = value;
                match Message::decode(&changed) {
                    Ok(message) => assert_eq!(message.encode(), changed),
                    Err(reason) => seen.push(reason),
                }
            }
        }
        seen.push(Message::decode(b"").unwrap_err());
        seen.sort();
        seen.dedup();
        assert_eq!(seen, Malformed::ALL.map(|(reason, _)| reason));
    }

    #[test]
    fn control_address_of_no_single_host_is_refused() {
        for control in ["0.0.0.0:1", "127.0.0.1:5288", "224.0.0.1:1", "255.255.255.255:1", "[::1]:5", "[ff02::1]:5"] {
            assert_eq!(Message::decode(&answer(Some(control)).encode()), Err(Malformed::BadControl), "{control}");
        }
        assert_eq!(Message::decode(&answer(Some("10.0.0.2:0")).encode()), Err(Malformed::BadControl));
    }
}
