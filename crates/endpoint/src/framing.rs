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

/// The longest LLC PDU that the length field can tell (IEEE 802.3, clause 3.2.6).
const LENGTH_MAX: usize = 1500;
/// The longest that Ethernet may pad: without a length nobody knows where it ends.
const PADDED_MAX: usize = MINIMUM_FRAME_BYTES - ETHERNET_HEADER_BYTES - 1;
/// LLC encapsulation (IEEE 802.1AC).
const ETHER_TYPE_LLC: u16 = 0x8870;

/// What goes around a station's PDUs. Every frame of either encapsulation is understood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framing {
    /// For PDUs of up to 1500 bytes.
    pub encapsulation: Encapsulation,
    /// With a token an endpoint hears only those who know it.
    pub token: Option<JobToken>,
}

/// How PDUs of up to 1500 bytes are sent; for longer ones there is only the EtherType.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// Behind their length, as every station understands them.
    #[default]
    Length,
    /// Behind the EtherType wherever Ethernet does not pad: between stations of ours. Linux has a handler of its own
    /// for frames with a length, which sees each of them as well; an EtherType that nobody has costs nothing.
    EtherType,
}

impl Encapsulation {
    /// The last two bytes of the Ethernet header in front of an LLC PDU of `llc_bytes`.
    #[inline]
    #[must_use]
    pub fn length_or_type(self, llc_bytes: usize) -> [u8; 2] {
        let most = if self == Self::Length { LENGTH_MAX } else { PADDED_MAX };
        if llc_bytes <= most { (llc_bytes as u16).to_be_bytes() } else { ETHER_TYPE_LLC.to_be_bytes() }
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
    /// To whom.
    pub destination: Mac,
    /// From whom.
    pub source: Mac,
    /// The PDU, without padding.
    pub llc: &'a [u8],
    /// What lies behind it, such as padding.
    pub behind: &'a [u8],
}

/// Takes a frame apart; `None` if it carries no LLC PDU.
#[inline]
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = frame.split_first_chunk::<ETHERNET_HEADER_BYTES>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, high, low] = *header;
    let kind = u16::from_be_bytes([high, low]);
    let (llc, behind) = match kind {
        ETHER_TYPE_LLC => (rest, &[][..]),
        _ if usize::from(kind) <= LENGTH_MAX => rest.split_at_checked(usize::from(kind))?,
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
    fn padding_is_cut_by_the_length() {
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
    fn a_long_pdu_goes_under_its_ethertype_and_between_our_stations_every_one_that_is_not_padded() {
        for (encapsulation, longest) in [(Encapsulation::Length, 1500), (Encapsulation::EtherType, 45)] {
            for bytes in [45, 46, 1500, 1501, 9000] {
                let frame = [&encapsulation.header(B, A, bytes)[..], &vec![7; bytes]].concat();
                assert_eq!(frame[12..14] == [0x88, 0x70], bytes > longest);
                assert_eq!(parse(&frame).map(|frame| frame.llc.len()), Some(bytes));
            }
        }
    }

    #[test]
    fn what_carries_no_llc_is_refused() {
        let short = &Encapsulation::Length.header(B, A, 100)[..];
        let ip = [&short[..12], &[0x08, 0x00], &[0; 50]].concat();
        let undefined = [&short[..12], &[0x05, 0xdd], &vec![0; 1501]].concat();
        for frame in [&[][..], &short[..13], short, &ip, &undefined] {
            assert_eq!(parse(frame), None);
        }
    }
}
