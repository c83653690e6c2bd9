// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An endpoint's address as programs exchange it.
//!
//! ```text
//! | "BWfi" | version 4 | MAC 6 | SAP 1 | cookie 8 |
//! ```
//!
//! The cookie is what an endpoint without a job token wants to know of those who talk to it.

use barewire_endpoint::Address;

use crate::bindings::FI_PROV_SPECIFIC;

/// Of all endpoints' names.
pub(crate) const BYTES: usize = 20;
/// What libfabric calls a form that only its provider knows.
pub(crate) const FORMAT: u32 = FI_PROV_SPECIFIC as u32 | 0xba4e;
const MAGIC: [u8; 4] = *b"BWfi";
/// Of what the two ends say to each other: it changes with the wire.
pub(crate) const VERSION: u8 = 4;

/// Why bytes are no address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAddress {
    #[error("not an address of this provider; all processes of a job must use it")]
    Foreign,
    #[error(
        "the peer speaks version {0} of the protocol, this library {VERSION}: install the same Barewire everywhere"
    )]
    Version(u8),
    #[error("no service access point is {0:#04x}")]
    Sap(u8),
}

pub(crate) fn to_bytes(address: Address) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5..].copy_from_slice(&address.to_bytes());
    bytes
}

pub(crate) fn from_bytes(bytes: [u8; BYTES]) -> Result<Address, BadAddress> {
    let (magic, rest) = bytes.split_at(4);
    if magic != MAGIC {
        return Err(BadAddress::Foreign);
    }
    if rest[0] != VERSION {
        return Err(BadAddress::Version(rest[0]));
    }
    let place: [u8; Address::BYTES] = std::array::from_fn(|index| rest[1 + index]);
    Address::from_bytes(place).ok_or(BadAddress::Sap(place[6]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_others_are_refused_by_name() {
        let sap = barewire_llc::Lsap::new(0x24).unwrap();
        let address = Address { cookie: 0x0123_4567_89ab_cdef, ..Address::new([2, 0, 0, 0, 0, 7], sap) };
        let bytes = to_bytes(address);
        let back = from_bytes(bytes).unwrap();
        assert_eq!((back, back.cookie), (address, address.cookie));
        let with = |at: usize, byte: u8| {
            let mut other = bytes;
            other[at] = byte;
            from_bytes(other)
        };
        assert_eq!(with(0, 0), Err(BadAddress::Foreign));
        assert_eq!(with(4, 9), Err(BadAddress::Version(9)));
        assert_eq!(with(11, 1), Err(BadAddress::Sap(1)));
    }
}
