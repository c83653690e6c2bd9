// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A 48-bit Ethernet address in transmission order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);
}

/// The addresses at the start of a frame: destination and source.
pub(crate) type Ends = [u8; 12];

/// Bytes of a VLAN tag, between the addresses and the EtherType or length.
pub(crate) const TAG_BYTES: usize = 4;
const VLAN_ETHER_TYPE: [u8; 2] = [0x81, 0x00];
/// Bytes of the addresses with a tag.
pub(crate) const TAGGED_BYTES: usize = size_of::<Ends>() + TAG_BYTES;

/// The start of a frame tagged with a label: these addresses, or else its own, and the tag (IEEE 802.1Q, clause 9.6).
#[inline]
pub(crate) fn tagged(header: &[u8], addresses: Option<&Ends>, label: u16) -> [u8; TAGGED_BYTES] {
    let mut start = [0; TAGGED_BYTES];
    let (ends, tag) = start.split_at_mut(size_of::<Ends>());
    ends.copy_from_slice(addresses.map_or(&header[..size_of::<Ends>()], |addresses| &addresses[..]));
    tag[..2].copy_from_slice(&VLAN_ETHER_TYPE);
    tag[2..].copy_from_slice(&label.to_be_bytes());
    start
}

/// These addresses, as they are in a frame.
pub(crate) fn ends(destination: MacAddress, source: MacAddress) -> Ends {
    let mut ends = [0; 12];
    ends[..6].copy_from_slice(&destination.0);
    ends[6..].copy_from_slice(&source.0);
    ends
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is not six pairs of hexadecimal digits separated by colons.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not an Ethernet address; write it as 02:00:00:00:00:01")]
pub struct ParseMacAddressError(String);

impl FromStr for MacAddress {
    type Err = ParseMacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseMacAddressError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(error)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() { Err(error()) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_round_trips_through_text() {
        let address = MacAddress([0x02, 0, 0xab, 0xcd, 0xef, 0x10]);
        assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[test]
    fn tag_stands_between_the_addresses_and_the_type() {
        let header = *b"TTTTTTSSSSSS\x88\x70";
        assert_eq!(tagged(&header, None, 0x0f03), *b"TTTTTTSSSSSS\x81\x00\x0f\x03");
        let other = ends(MacAddress([1; 6]), MacAddress([2; 6]));
        assert_eq!(tagged(&header, Some(&other), 1)[..12], other);
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "zz:00:00:00:00:01", "+1:00:00:00:00:0"]
        {
            assert!(text.parse::<MacAddress>().is_err(), "{text} was accepted");
        }
    }
}
