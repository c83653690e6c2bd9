// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An endpoint's address as programs exchange it.
//!
//! ```text
//! | "BWfi" | protection 2 bits, version 6 bits | MAC 6 | SAP 1 | cookie 8 |
//! ```
//!
//! The protection says whether the endpoint's frames are authenticated or encrypted: one that does otherwise could neither hear
//! nor be heard. The cookie is what an endpoint without a job token wants to know of those who talk to it.

use barewire_endpoint::Address;

use crate::bindings::FI_PROV_SPECIFIC;
use crate::parameters::Protection;

/// Of all endpoints' names.
pub(crate) const BYTES: usize = 20;
/// What libfabric calls a form that only its provider knows.
pub(crate) const FORMAT: u32 = FI_PROV_SPECIFIC as u32 | 0xba4e;
const MAGIC: [u8; 4] = *b"BWfi";
/// Of what the two ends say to each other: it changes with the wire.
pub(crate) const VERSION: u8 = 4;
const VERSION_BITS: u32 = 6;

/// Why bytes are no address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAddress {
    #[error("not an address of this provider; all processes of a job must use it")]
    Foreign,
    #[error(
        "the peer speaks version {0} of the protocol, this library {VERSION}: install the same Barewire everywhere"
    )]
    Version(u8),
    #[error(
        "the peer has FI_BAREWIRE_AUTH={}, this process {}, so neither would hear the other: set it alike for all processes",
        .peer.name(), .own.name()
    )]
    Protection { peer: Protection, own: Protection },
    #[error("no service access point is {0:#04x}")]
    Sap(u8),
}

/// As programs exchange an endpoint's address whose frames are protected so.
pub(crate) fn to_bytes(address: Address, protection: Protection) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION | (protection as u8) << VERSION_BITS;
    bytes[5..].copy_from_slice(&address.to_bytes());
    bytes
}

/// The address of a peer, for an endpoint whose own frames are protected so.
pub(crate) fn of_peer(bytes: [u8; BYTES], own: Protection) -> Result<Address, BadAddress> {
    let (address, peer) = from_bytes(bytes)?;
    if peer == own { Ok(address) } else { Err(BadAddress::Protection { peer, own }) }
}

/// An address, and how its endpoint's frames are protected.
pub(crate) fn from_bytes(bytes: [u8; BYTES]) -> Result<(Address, Protection), BadAddress> {
    let (magic, rest) = bytes.split_at(4);
    if magic != MAGIC {
        return Err(BadAddress::Foreign);
    }
    let (version, protection) = (rest[0] & ((1 << VERSION_BITS) - 1), rest[0] >> VERSION_BITS);
    let known = Protection::ALL.get(usize::from(protection)).filter(|_| version == VERSION);
    let protection = *known.ok_or(BadAddress::Version(version))?;
    let place: [u8; Address::BYTES] = std::array::from_fn(|index| rest[1 + index]);
    Ok((Address::from_bytes(place).ok_or(BadAddress::Sap(place[6]))?, protection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_others_are_refused_by_name() {
        let sap = barewire_llc::Lsap::new(0x24).unwrap();
        let address = Address { cookie: 0x0123_4567_89ab_cdef, ..Address::new([2, 0, 0, 0, 0, 7], sap) };
        let bytes = to_bytes(address, Protection::None);
        let (back, protection) = from_bytes(bytes).unwrap();
        assert_eq!((back, back.cookie, protection), (address, address.cookie, Protection::None));
        assert_eq!(bytes[4], 4, "without protection it is as ever");
        let with = |at: usize, byte: u8| {
            let mut other = bytes;
            other[at] = byte;
            from_bytes(other)
        };
        assert_eq!(with(0, 0), Err(BadAddress::Foreign));
        assert_eq!(with(4, 9), Err(BadAddress::Version(9)));
        assert_eq!(with(11, 1), Err(BadAddress::Sap(1)));
        assert_eq!(with(4, 0xc4), Err(BadAddress::Version(4)), "there is no such protection");
    }

    #[test]
    fn a_peer_that_is_protected_otherwise_is_refused_with_what_to_do() {
        let address = Address::new([2, 0, 0, 0, 0, 7], barewire_llc::Lsap::new(0x24).unwrap());
        for peer in Protection::ALL {
            for own in Protection::ALL {
                let of_peer = of_peer(to_bytes(address, peer), own);
                if peer == own {
                    assert_eq!(of_peer, Ok(address));
                } else {
                    let refused = of_peer.unwrap_err().to_string();
                    assert!(refused.contains(&format!(
                        "FI_BAREWIRE_AUTH={}, this process {}",
                        peer.name(),
                        own.name()
                    )));
                }
            }
        }
    }
}
