// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LLC PDUs in Ethernet frames: IEEE 802.3 with a length, or, above 1500 bytes, EtherType 0x8870.
//!
//! ```text
//! | destination 6 | source 6 | length 2 | DSAP 1 | SSAP 1 | control 1 or 2 | information … | padding |
//! | destination 6 | source 6 | 0x8870   | DSAP 1 | SSAP 1 | control 1 or 2 | information …           |
//! ```

use barewire_link::ETHERNET_HEADER_BYTES;
use barewire_llc::Mac;

/// The longest LLC PDU that the length field can tell (IEEE 802.3, clause 3.2.6).
const LENGTH_MAX: usize = 1500;
/// LLC encapsulation for longer ones (IEEE 802.1AC, annex).
const ETHER_TYPE_LLC: u16 = 0x8870;

/// The Ethernet header in front of an LLC PDU of `llc_bytes`.
#[inline]
#[must_use]
pub fn ethernet_header(destination: Mac, source: Mac, llc_bytes: usize) -> [u8; ETHERNET_HEADER_BYTES] {
    let mut header = [0; ETHERNET_HEADER_BYTES];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source);
    header[12..].copy_from_slice(&length_or_type(llc_bytes));
    header
}

/// The last two bytes of that header.
#[inline]
#[must_use]
pub fn length_or_type(llc_bytes: usize) -> [u8; 2] {
    if llc_bytes <= LENGTH_MAX { (llc_bytes as u16).to_be_bytes() } else { ETHER_TYPE_LLC.to_be_bytes() }
}

/// A frame that carries an LLC PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
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
    Some(Frame { destination: [d0, d1, d2, d3, d4, d5], source: [s0, s1, s2, s3, s4, s5], llc, behind })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn padding_is_cut_by_the_length() {
        let frame = [&ethernet_header(B, A, 4)[..], &[1, 2, 3, 4], &[0; 42]].concat();
        let expected = Frame { destination: B, source: A, llc: &[1, 2, 3, 4], behind: &[0; 42] };
        assert_eq!(parse(&frame), Some(expected));
    }

    #[test]
    fn a_long_pdu_goes_under_its_ethertype() {
        for bytes in [1500, 1501, 9000] {
            let frame = [&ethernet_header(B, A, bytes)[..], &vec![7; bytes]].concat();
            assert_eq!(frame[12..14] == [0x88, 0x70], bytes > 1500);
            assert_eq!(parse(&frame).map(|frame| frame.llc.len()), Some(bytes));
        }
    }

    #[test]
    fn what_carries_no_llc_is_refused() {
        let short = &ethernet_header(B, A, 100)[..];
        let ip = [&short[..12], &[0x08, 0x00], &[0; 50]].concat();
        let undefined = [&short[..12], &[0x05, 0xdd], &vec![0; 1501]].concat();
        for frame in [&[][..], &short[..13], short, &ip, &undefined] {
            assert_eq!(parse(frame), None);
        }
    }
}
