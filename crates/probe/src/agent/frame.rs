// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames that agents exchange.
//!
//! ```text
//! | destination 6 | source 6 | 0x88B6 | kind 1 | 0 1 | number 4 | sequence 4 | value 4 | filling … |
//! ```
//!
//! | kind  | number | sequence              | value                                  |
//! |-------|--------|-----------------------|----------------------------------------|
//! | Echo  | ping   | of this request       | payload of the reply in bytes          |
//! | Reply | ping   | of the request        | 0                                      |
//! | Data  | stream | of this frame, from 0 | 0                                      |
//! | End   | stream | frames sent           | 0                                      |
//! | Ack   | stream | next frame expected   | 1 if it answers End                    |

use barewire_link::{ETHERNET_HEADER_BYTES, MacAddress};

/// IEEE 802 local experimental EtherType 2; 1 is that of raw frames.
pub const ETHER_TYPE: u16 = 0x88b6;
pub const HEADER_BYTES: usize = 14;
/// Smallest payload of an Ethernet frame (IEEE 802.3 clause 3.2.7).
pub const PAYLOAD_BYTES_MIN: usize = 46;
pub const FRAME_HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + HEADER_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Echo,
    Reply,
    Data,
    End,
    Ack,
}

const KINDS: [Kind; 5] = [Kind::Echo, Kind::Reply, Kind::Data, Kind::End, Kind::Ack];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub number: u32,
    pub sequence: u32,
    pub value: u32,
}

impl Header {
    /// The start of a frame, from the destination address on.
    pub fn emit(self, to: MacAddress, from: MacAddress) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..6].copy_from_slice(&to.0);
        bytes[6..12].copy_from_slice(&from.0);
        bytes[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        bytes[14] = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u8;
        bytes[16..20].copy_from_slice(&self.number.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.value.to_be_bytes());
        bytes
    }

    /// Source and header of a frame; `None` if it is not an agent's.
    pub fn parse(frame: &[u8]) -> Option<(MacAddress, Self)> {
        let bytes: &[u8; FRAME_HEADER_BYTES] = frame.first_chunk()?;
        let long = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[12..14] != ETHER_TYPE.to_be_bytes() {
            return None;
        }
        let kind = *KINDS.get(usize::from(bytes[14]))?;
        let source = MacAddress([bytes[6], bytes[7], bytes[8], bytes[9], bytes[10], bytes[11]]);
        Some((source, Self { kind, number: long(16), sequence: long(20), value: long(24) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_any_other_frame_is_refused() {
        let (to, from) = (MacAddress([1; 6]), MacAddress([2; 6]));
        for kind in KINDS {
            let header = Header { kind, number: 7, sequence: u32::MAX, value: 1 };
            let bytes = header.emit(to, from);
            assert_eq!(Header::parse(&bytes), Some((from, header)));
            assert_eq!(Header::parse(&bytes[..FRAME_HEADER_BYTES - 1]), None);
        }
        let mut foreign = Header { kind: Kind::Ack, number: 0, sequence: 0, value: 0 }.emit(to, from);
        foreign[14] = 5;
        assert_eq!(Header::parse(&foreign), None);
        foreign[12] = 8;
        assert_eq!(Header::parse(&foreign), None);
    }
}
