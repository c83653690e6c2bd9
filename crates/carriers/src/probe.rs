// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Probes: the question whether a carrier reaches a peer, and the answer.
//!
//! ```text
//! | length or EtherType 2 | DSAP 1 | SSAP 1 | UI 1 | "BWPA" | version 1 | from 7 | to 7 | nonce 8 | echo 8 | …
//! | interfaces 40 | tag 8 |
//! ```
//!
//! A station is its MAC address and service access point. `nonce` is the sender's current question to this peer, `echo`
//! the peer's question that it has received, or 0. `interfaces` are those by which the sender sends frames, four times
//! MAC address 6, Mbit/s 4; zeros where there is none. The tag is a hash keyed by the job's token, the addressee's
//! cookie, or the sender's, which the addressee may know. Bytes behind it, which a [probe of a length](crate::path_mtu)
//! has, say nothing.

use std::array;
use std::hash::Hasher;

use barewire_link::MacAddress;
use siphasher::sip::SipHasher24;

use crate::interface::{INTERFACES_MAX, Interface};
use crate::name::Name;

const MAGIC: [u8; 4] = *b"BWPA";
const VERSION: u8 = 2;
/// Control field of a UI PDU.
pub(crate) const UI: u8 = 0x03;
/// Where the mark of a probe is in a frame, or that of a piece.
pub(crate) const FORMAT_AT: usize = ETHERNET_HEADER_BYTES + LLC_BYTES;
/// Bytes of LLC's header.
const LLC_BYTES: usize = 3;
/// Bytes of an interface.
const INTERFACE_BYTES: usize = 6 + 4;
const UNTAGGED_BYTES: usize = 4 + 1 + 7 + 7 + 8 + 8 + INTERFACES_MAX * INTERFACE_BYTES;
const BODY_BYTES: usize = UNTAGGED_BYTES + 8;
const ETHERNET_HEADER_BYTES: usize = barewire_link::ETHERNET_HEADER_BYTES;
pub(crate) const ETHER_TYPE_LLC: [u8; 2] = 0x8870_u16.to_be_bytes();
/// Bytes of a frame with a probe.
pub(crate) const FRAME_BYTES: usize = ETHERNET_HEADER_BYTES + LLC_BYTES + BODY_BYTES;

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub from: Name,
    pub to: Name,
    pub nonce: u64,
    pub echo: u64,
    /// The sender's interfaces; addresses of zeros are none.
    pub interfaces: [Interface; INTERFACES_MAX],
}

impl Probe {
    /// A frame with this probe. Its addresses are those of the stations. Data frames have both forms, so a question has
    /// an EtherType and an answer a length: a carrier that passes only one form is not used.
    pub fn to_frame(self, key: u64) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&self.to.mac());
        frame[6..12].copy_from_slice(&self.from.mac());
        let length = ((LLC_BYTES + BODY_BYTES) as u16).to_be_bytes();
        frame[12..14].copy_from_slice(if self.echo == 0 { &ETHER_TYPE_LLC } else { &length });
        frame[14..17].copy_from_slice(&[self.to.sap(), self.from.sap(), UI]);
        let body = &mut frame[17..];
        body[..4].copy_from_slice(&MAGIC);
        body[4] = VERSION;
        body[5..12].copy_from_slice(&self.from.to_bytes());
        body[12..19].copy_from_slice(&self.to.to_bytes());
        body[19..27].copy_from_slice(&self.nonce.to_be_bytes());
        body[27..35].copy_from_slice(&self.echo.to_be_bytes());
        for (bytes, interface) in body[35..].chunks_exact_mut(INTERFACE_BYTES).zip(self.interfaces) {
            bytes[..6].copy_from_slice(&interface.mac.0);
            bytes[6..].copy_from_slice(&interface.speed.to_be_bytes());
        }
        let tag = tag(key, &body[..UNTAGGED_BYTES]);
        body[UNTAGGED_BYTES..].copy_from_slice(&tag);
        frame
    }

    /// Whether a frame is a probe, valid or not.
    #[inline]
    pub fn is_in(frame: &[u8]) -> bool {
        has_mark(frame, MAGIC)
    }

    /// The probe in a frame, if its tag was made with one of these keys, and the key.
    pub fn of_frame(frame: &[u8], keys: impl Fn(Name) -> [Option<u64>; 2]) -> Option<(Self, u64)> {
        let body = frame.get(17..17 + BODY_BYTES).filter(|body| body[..4] == MAGIC && body[4] == VERSION)?;
        let number = |at: usize| body[at..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let name = |at: usize| body[at..].first_chunk().map(|bytes| Name::from_bytes(*bytes));
        let interfaces = array::from_fn(|number| {
            let at = 35 + number * INTERFACE_BYTES;
            let mac = MacAddress(body[at..].first_chunk().copied().unwrap_or_default());
            Interface { mac, speed: body[at + 6..].first_chunk().copied().map_or(0, u32::from_be_bytes) }
        });
        let probe = Self { from: name(5)?, to: name(12)?, nonce: number(19)?, echo: number(27)?, interfaces };
        let is_made_with = |key: &u64| tag(*key, &body[..UNTAGGED_BYTES]) == body[UNTAGGED_BYTES..];
        let key = keys(probe.from).into_iter().flatten().find(is_made_with)?;
        (probe.nonce != 0).then_some((probe, key))
    }
}

/// Whether a frame is a UI PDU that begins with this mark.
#[inline]
pub(crate) fn has_mark(frame: &[u8], mark: [u8; 4]) -> bool {
    frame.get(FORMAT_AT - 1) == Some(&UI) && frame.get(FORMAT_AT..FORMAT_AT + 4) == Some(&mark)
}

fn tag(key: u64, body: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_keys(key, u64::from_be_bytes(*b"Carriers"));
    hasher.write(body);
    hasher.finish().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERFACE: Interface = Interface { mac: MacAddress([2, 0, 0, 0, 0, 3]), speed: 100_000 };
    const PROBE: Probe = Probe {
        from: Name::new([2, 0, 0, 0, 0, 1], 8),
        to: Name::new([2, 0, 0, 0, 0, 2], 12),
        nonce: 5,
        echo: 0,
        interfaces: [INTERFACE; INTERFACES_MAX],
    };

    #[test]
    fn a_probe_round_trips_and_no_byte_of_it_can_be_changed() {
        for probe in [PROBE, Probe { echo: 9, ..PROBE }] {
            let frame = probe.to_frame(77);
            assert!(Probe::is_in(&frame));
            assert_eq!(Probe::of_frame(&frame, |_| [None, Some(77)]), Some((probe, 77)));
            assert_eq!(Probe::of_frame(&frame, |_| [Some(76), None]), None);
            for at in 17..FRAME_BYTES {
                let mut changed = frame;
                changed[at] ^= 1;
                assert_eq!(Probe::of_frame(&changed, |_| [Some(77), None]), None, "byte {at}");
                assert!(Probe::of_frame(&frame[..at], |_| [Some(77), None]).is_none());
            }
            let padded = [&frame[..], &[0; 1000]].concat();
            assert_eq!(Probe::of_frame(&padded, |_| [None, Some(77)]), Some((probe, 77)));
        }
    }

    #[test]
    fn a_question_without_a_nonce_is_none() {
        assert_eq!(Probe::of_frame(&Probe { nonce: 0, ..PROBE }.to_frame(7), |_| [Some(7), None]), None);
    }
}
