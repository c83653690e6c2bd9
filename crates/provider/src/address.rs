// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An endpoint's address as programs exchange it.
//!
//! ```text
//! | "BWfi" | protection 2 bits, version 6 bits | MAC 6 | SAP 1 | cookie 8 | locator 40 | check 2 |
//! ```
//!
//! The protection says whether the endpoint's frames are authenticated or encrypted. The check is a hash of the job's
//! token and secret, 0 without either. Endpoints with different protection or checks cannot communicate. The cookie
//! authorises peers of an endpoint without a job token. The locator says which carriers reach the endpoint: frames,
//! UDP, or both. MPI libraries pass on at most 64 bytes (`FI_NAME_MAX`).

use std::fmt;

use barewire_link::Locator;

use barewire_endpoint::Address;

use crate::bindings::FI_PROV_SPECIFIC;
use crate::parameters::Protection;

/// Length of an address in bytes.
pub(crate) const BYTES: usize = CHECK_AT + 2;
const ADDRESS_AT: usize = 5;
const CHECK_AT: usize = ADDRESS_AT + Address::BYTES;
/// The provider-specific `addr_format`.
pub(crate) const FORMAT: u32 = FI_PROV_SPECIFIC as u32 | 0xba4e;
const MAGIC: [u8; 4] = *b"BWfi";
/// Version of the wire protocol.
pub(crate) const VERSION: u8 = 8;
const VERSION_BITS: u32 = 6;

/// What the processes of a job have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub protection: Protection,
    /// Of token and secret; 0 without either.
    pub check: u16,
}

/// The carriers by which an endpoint communicates with other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub frames: bool,
    pub udp: Option<IpVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpVersion {
    V4,
    V6,
}

impl Reach {
    /// Frames only.
    pub const FRAMES: Self = Self { frames: true, udp: None };

    pub fn of(locator: Locator) -> Self {
        let ip = locator.ips().next().filter(|_| locator.port != 0);
        let version = ip.map(|ip| if ip.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 });
        Self { frames: locator.has_frames, udp: version }
    }

    /// Whether two endpoints have a carrier in common.
    fn meets(self, other: Self) -> bool {
        self.frames && other.frames || self.udp.is_some() && self.udp == other.udp
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let udp = self.udp.map(|version| match version {
            IpVersion::V4 => "UDP over IPv4",
            IpVersion::V6 => "UDP over IPv6",
        });
        let all = [self.frames.then_some("Ethernet frames"), udp];
        f.write_str(&all.into_iter().flatten().collect::<Vec<_>>().join(" and "))
    }
}

/// Why bytes are not a usable peer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAddress {
    #[error("not an address of this provider; all processes of a job must use it")]
    Foreign,
    #[error(
        "the peer speaks version {0} of the protocol, this library {VERSION}: install the same Barewire on all hosts"
    )]
    Version(u8),
    #[error(
        "the peer has FI_BAREWIRE_AUTH={}, this process {}, so they cannot communicate: set the same for all processes",
        .peer.name(), .own.name()
    )]
    Protection { peer: Protection, own: Protection },
    #[error(
        "{}, so they cannot communicate: set the same FI_BAREWIRE_TOKEN for all processes, or none, and the same \
         FI_BAREWIRE_SECRET", difference_of_tokens(*.peer, *.own)
    )]
    Token { peer: u16, own: u16 },
    #[error(
        "the peer communicates by {peer}, this process by {own}: set the same FI_BAREWIRE_LINK for all processes; with \
         udp, select interfaces with addresses of the same IP version"
    )]
    Reach { peer: Reach, own: Reach },
    #[error("{0:#04x} is not a service access point")]
    Sap(u8),
}

fn difference_of_tokens(peer: u16, own: u16) -> &'static str {
    match (peer, own) {
        (0, _) => "the peer has no job token, this process has one",
        (_, 0) => "the peer has a job token, this process none",
        _ => "the peer has another job token than this process",
    }
}

/// Encodes the address of an endpoint with these credentials.
pub(crate) fn to_bytes(address: Address, credentials: Credentials) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION | (credentials.protection as u8) << VERSION_BITS;
    bytes[ADDRESS_AT..CHECK_AT].copy_from_slice(&address.to_bytes());
    bytes[CHECK_AT..].copy_from_slice(&credentials.check.to_be_bytes());
    bytes
}

/// Decodes the address of a peer, which must have the endpoint's own credentials and share a carrier with it.
pub(crate) fn of_peer(bytes: [u8; BYTES], own: Credentials, reach: Reach) -> Result<Address, BadAddress> {
    let (address, peer) = from_bytes(bytes)?;
    if peer.protection != own.protection {
        return Err(BadAddress::Protection { peer: peer.protection, own: own.protection });
    }
    if peer.check != own.check {
        return Err(BadAddress::Token { peer: peer.check, own: own.check });
    }
    match Reach::of(address.locator) {
        peer if peer.meets(reach) => Ok(address),
        peer => Err(BadAddress::Reach { peer, own: reach }),
    }
}

/// Decodes an address and its endpoint's credentials.
pub(crate) fn from_bytes(bytes: [u8; BYTES]) -> Result<(Address, Credentials), BadAddress> {
    let (magic, rest) = bytes.split_at(4);
    if magic != MAGIC {
        return Err(BadAddress::Foreign);
    }
    let (version, protection) = (rest[0] & ((1 << VERSION_BITS) - 1), rest[0] >> VERSION_BITS);
    let known = Protection::ALL.get(usize::from(protection)).filter(|_| version == VERSION);
    let protection = *known.ok_or(BadAddress::Version(version))?;
    let address: [u8; Address::BYTES] = std::array::from_fn(|index| bytes[ADDRESS_AT + index]);
    let address = Address::from_bytes(address).ok_or(BadAddress::Sap(address[6]))?;
    Ok((address, Credentials { protection, check: u16::from_be_bytes([bytes[CHECK_AT], bytes[CHECK_AT + 1]]) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_round_trips_and_invalid_ones_are_refused_with_a_reason() {
        let sap = barewire_llc::Lsap::new(0x24).unwrap();
        let locator = Locator::FRAMES;
        let address = Address { cookie: 0x0123_4567_89ab_cdef, locator, ..Address::new([2, 0, 0, 0, 0, 7], sap) };
        let credentials = Credentials { check: 0x1234, ..Credentials::default() };
        let bytes = to_bytes(address, credentials);
        assert!(bytes.len() <= 64, "FI_NAME_MAX");
        let (decoded, of_endpoint) = from_bytes(bytes).unwrap();
        assert_eq!((decoded, decoded.cookie, of_endpoint), (address, address.cookie, credentials));
        assert_eq!(bytes[4], VERSION, "unprotected addresses have only the version here");
        let with = |at: usize, byte: u8| {
            let mut other = bytes;
            other[at] = byte;
            from_bytes(other)
        };
        assert_eq!(with(0, 0), Err(BadAddress::Foreign));
        assert_eq!(with(4, 9), Err(BadAddress::Version(9)));
        assert_eq!(with(11, 1), Err(BadAddress::Sap(1)));
        assert_eq!(with(4, 0xc0 | VERSION), Err(BadAddress::Version(VERSION)), "unknown protection");
    }

    #[test]
    fn a_peer_with_other_credentials_is_refused_with_a_remedy() {
        let sap = barewire_llc::Lsap::new(0x24).unwrap();
        let address = Address { locator: Locator::FRAMES, ..Address::new([2, 0, 0, 0, 0, 7], sap) };
        let all = Protection::ALL
            .iter()
            .flat_map(|protection| [0, 1, 7].map(|check| Credentials { protection: *protection, check }));
        for (peer, own) in all.clone().flat_map(|peer| all.clone().map(move |own| (peer, own))) {
            let of_peer = of_peer(to_bytes(address, peer), own, Reach::FRAMES);
            let (theirs, ours) = (peer.protection.name(), own.protection.name());
            let said = match (peer.check, own.check) {
                _ if peer == own => {
                    assert_eq!(of_peer, Ok(address));
                    continue;
                }
                _ if theirs != ours => format!("FI_BAREWIRE_AUTH={theirs}, this process {ours}"),
                (0, _) => "the peer has no job token, this process has one".to_owned(),
                (_, 0) => "the peer has a job token, this process none".to_owned(),
                _ => "the peer has another job token".to_owned(),
            };
            let refused = of_peer.unwrap_err().to_string();
            assert!(refused.contains(&said) && refused.contains("set the same"), "{refused}");
        }
    }

    #[test]
    fn a_peer_that_nothing_reaches_is_refused_with_a_remedy() {
        let udp = |text: &str, has_frames| {
            let mut locator = Locator::of_port(9, [text.parse().unwrap()]);
            locator.has_frames = has_frames;
            locator
        };
        let locators = [Locator::FRAMES, udp("10.0.0.1", false), udp("fd00::1", false), udp("fd00::1", true)];
        for locator in locators {
            let address =
                Address { locator, ..Address::new([2, 0, 0, 0, 0, 7], barewire_llc::Lsap::new(0x24).unwrap()) };
            for own in locators {
                let has_common = own.has_frames && locator.has_frames || own.port == 9 && own.ips().eq(locator.ips());
                let any = Credentials::default();
                match of_peer(to_bytes(address, any), any, Reach::of(own)) {
                    Ok(decoded) => assert!(has_common && decoded.locator == locator),
                    Err(error) => assert!(!has_common && error.to_string().contains("the same FI_BAREWIRE_LINK")),
                }
            }
        }
    }
}
