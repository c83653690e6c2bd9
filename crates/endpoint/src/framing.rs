// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LLC PDUs in Ethernet frames: IEEE 802.3 with a length, or EtherType 0x8870.
//!
//! ```text
//! | destination 6 | source 6 | length 2 | DSAP 1 | SSAP 1 | control 1 or 2 | information … | padding |
//! | destination 6 | source 6 | 0x8870   | DSAP 1 | SSAP 1 | control 1 or 2 | information …           |
//! ```

use barewire_link::{ETHERNET_HEADER_BYTES, MINIMUM_FRAME_BYTES};
use barewire_llc::Mac;

use crate::check::{ADDRESSES, addresses};
use crate::token::JobToken;

/// The longest LLC PDU that the length field can express (IEEE 802.3, clause 3.2.6).
const LENGTH_MAX: usize = 1500;
/// The longest PDU that Ethernet may pad: without a length field, its end would be unknown.
const PADDED_MAX: usize = MINIMUM_FRAME_BYTES - ETHERNET_HEADER_BYTES - 1;
/// LLC encapsulation (IEEE 802.1AC).
const ETHER_TYPE_LLC: u16 = 0x8870;

/// How a station's PDUs are framed. Frames of either encapsulation are received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framing {
    /// Encapsulation of PDUs of up to 1500 bytes.
    pub encapsulation: Encapsulation,
    /// The job token that peers must know, if any.
    pub token: Option<JobToken>,
}

/// Encapsulation of PDUs of up to 1500 bytes. Longer ones always use the EtherType.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// IEEE 802.3 with a length field, which every station understands.
    #[default]
    Length,
    /// The EtherType, except where Ethernet pads; for Barewire stations. It avoids Linux's handler of frames with a
    /// length field, which would process each of them as well; the EtherType has no other handler.
    EtherType,
}

impl Encapsulation {
    /// The last two bytes of the Ethernet header in front of an LLC PDU of `llc_bytes`.
    #[inline]
    #[must_use]
    pub fn length_or_type(self, llc_bytes: usize) -> [u8; 2] {
        let length_max = if self == Self::Length { LENGTH_MAX } else { PADDED_MAX };
        if llc_bytes <= length_max { (llc_bytes as u16).to_be_bytes() } else { ETHER_TYPE_LLC.to_be_bytes() }
    }

    /// The Ethernet header in front of an LLC PDU of `llc_bytes`.
    #[inline]
    #[must_use]
    pub fn header(self, destination: Mac, source: Mac, llc_bytes: usize) -> [u8; ETHERNET_HEADER_BYTES] {
        let mut header = [0; ETHERNET_HEADER_BYTES];
        header[..6].copy_from_slice(&destination);
        header[6..12].copy_from_slice(&source);
        header[12..].copy_from_slice(&self.length_or_type(llc_bytes));
        header
    }
}

/// A frame that carries an LLC PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Both addresses, as they are in the frame.
    pub addresses: &'a [u8; ADDRESSES],
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// The PDU, without padding.
    pub llc: &'a [u8],
    /// What follows the PDU, such as padding.
    pub behind: &'a [u8],
}

/// Parses a frame; `None` if it carries no LLC PDU.
#[inline]
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = frame.split_first_chunk::<ETHERNET_HEADER_BYTES>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, high, low] = *header;
    let length_or_type = u16::from_be_bytes([high, low]);
    let (llc, behind) = match length_or_type {
        ETHER_TYPE_LLC => (rest, &[][..]),
        _ if usize::from(length_or_type) <= LENGTH_MAX => rest.split_at_checked(usize::from(length_or_type))?,
        _ => return None,
    };
    let (destination, source) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
    Some(Frame { addresses: addresses(header), destination, source, llc, behind })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn padding_is_removed_by_the_length_field() {
        for encapsulation in [Encapsulation::Length, Encapsulation::EtherType] {
            for bytes in [4, 45] {
                let llc = vec![7; bytes];
                let frame = [&encapsulation.header(B, A, bytes)[..], &llc, &[0; 42]].concat();
                let expected = Frame {
                    addresses: frame.first_chunk().unwrap(),
                    destination: B,
                    source: A,
                    llc: &llc,
                    behind: &[0; 42],
                };
                assert_eq!(parse(&frame), Some(expected));
            }
        }
    }

    #[test]
    fn long_pdus_use_the_ethertype_and_with_ethertype_encapsulation_all_that_are_not_padded() {
        for (encapsulation, longest) in [(Encapsulation::Length, 1500), (Encapsulation::EtherType, 45)] {
            for bytes in [45, 46, 1500, 1501, 9000] {
                let frame = [&encapsulation.header(B, A, bytes)[..], &vec![7; bytes]].concat();
                assert_eq!(frame[12..14] == [0x88, 0x70], bytes > longest);
                assert_eq!(parse(&frame).map(|frame| frame.llc.len()), Some(bytes));
            }
        }
    }

    #[test]
    fn a_frame_without_llc_is_refused() {
        let short = &Encapsulation::Length.header(B, A, 100)[..];
        let ip = [&short[..12], &[0x08, 0x00], &[0; 50]].concat();
        let undefined = [&short[..12], &[0x05, 0xdd], &vec![0; 1501]].concat();
        for frame in [&[][..], &short[..13], short, &ip, &undefined] {
            assert_eq!(parse(frame), None);
        }
    }
}
