// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barewire's extension of LLC PDUs: wire version 5.
//!
//! ```text
//! I                   | LLC 4 | guard | mark 8 | round of N(S) 1 | round of N(R) 1 | information … |
//! UI, AC command      | LLC 3 | guard | mark 8 | information … |
//! RR, RNR, REJ        | LLC 4 | guard | mark 8 | round of N(R) 1 | kept 16 | poll 2 | padding |
//! SABME, UA           | LLC 3 | guard | mark 8 | version 1 | nonce 8 | cookie 8 | padding |
//! every other         | LLC 3… | guard | mark 8 | padding |
//!
//! guard               | check 4 |                    without authentication
//!                     | counter 8 | tag 16 |         with it
//! ```
//!
//! Stations without the extension see it as user data, or as Ethernet padding beyond the length field. Numbers are big
//! endian.
//!
//! - The **guard** protects the integrity of a frame. The caller computes and verifies it; the engine skips it.
//!   - The **check** is a CRC32C over the frame's destination and source addresses and all other fields shown, to the
//!     end of the information; DSAP, SSAP and control field are added to the initial value of the register.
//!   - **Counter and tag** form a seal: the tag authenticates the same bytes, always all of them, under a key shared by
//!     both ends and a nonce derived from the counter.
//! - The **mark** identifies the connection of a PDU; a PDU with a wrong mark is ignored. Within a connection it is a
//!   hash of both ends' nonces, which are drawn anew for each connection, so that PDUs of earlier connections have
//!   other marks. In a SABME or a datagram it is a hash of the destination's key, in a UA or DM the nonce or mark of
//!   the PDU that it answers. In I and S PDUs its low 24 bits are combined by exclusive or with what N(S) and N(R)
//!   exceed 14 bits by, 12 bits each, so that a PDU that was delayed until its numbers came round has a wrong mark.
//! - A **round** counts the wraps of a sequence number. Its highest bit is a flag: with N(S), the PDU is a
//!   retransmission; with N(R) of an I PDU, the check covers only the first [`covered`] bytes of the information; with
//!   N(R) of an S PDU, every PDU that is not kept is missing.
//! - **Kept** is a selective acknowledgement: bit i says that the receiver keeps PDU N(R) + i, received early.
//! - **Poll** is the number of an S command with P = 1, at least 0x4000. A response with F = 1 has the number of the
//!   poll that it answers; that of an I PDU with P = 1 is its N(S). 0 in other S PDUs.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::message;
use crate::pdu::{Body, Pdu, SequenceNumber};

/// Version of this wire format; peers with another version are refused.
pub const VERSION: u8 = 5;

/// Integrity protection at the start of an extension; must be equal at all communicating stations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// A CRC32C: detects accidental corruption.
    #[default]
    Check,
    /// Counter and tag: authenticates against attackers without the key.
    Seal,
}

impl Guard {
    /// Length of the longest guard in bytes.
    pub const MAX: usize = COUNTER + TAG;

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Check => CHECK,
            Self::Seal => COUNTER + TAG,
        }
    }
}

/// Bytes between the guard and the information of an I PDU.
pub const INFORMATION_FRONT: usize = MARK + 2;
/// Bytes between the guard and the information of a UI PDU or an AC command.
pub const DATAGRAM_FRONT: usize = MARK;

/// Number of bytes of an I PDU's information that a partial check covers: fragment header and head of the message in a
/// first fragment, the header in other fragments. Their data is left out because it may not be in the cache.
#[inline]
#[must_use]
pub const fn covered(information: &[u8]) -> usize {
    if message::is_first(information) { 64 } else { message::OTHER_HEADER }
}

/// Offset in the extension of the octet with the partial-check flag: the round of N(R).
const PARTIAL_CHECK_AT: usize = INFORMATION_FRONT - 1;

/// Length of a check in bytes.
pub const CHECK: usize = 4;
/// Length of a seal's counter in bytes.
pub const COUNTER: usize = 8;
/// Length of a seal's tag in bytes.
pub const TAG: usize = 16;
/// Length of a mark in bytes.
pub const MARK: usize = 8;
const SUPERVISORY: usize = 1 + 16 + 2;
const SET_UP: usize = 1 + 8 + 8;
/// Length of the longest extension in bytes, without its guard.
pub const MAX: usize = MARK + SUPERVISORY;
const _: () = assert!(SUPERVISORY >= SET_UP);

/// Lowest number of an S command with P = 1; that of an I PDU is its N(S), which is less.
pub(crate) const FIRST_POLL: u16 = NUMBERS;

/// Flag bit of a round's octet.
const FLAG: u8 = 0x80;

/// Modulus of extended sequence numbers: 7 bits of LLC and 7 bits of round.
pub(crate) const NUMBERS: u16 = 128 * SequenceNumber::MODULUS as u16;

/// Low bits of a mark that depend on the numbers of an I or S PDU: 12 for each, which come round after 67 million PDUs,
/// in no less than half a minute on any link of today. The others identify the connection.
const NUMBERED_MARK_BITS: u32 = 24;

/// The mark of an I or S PDU, computed from its connection's mark and the whole numbers of the PDU. An S PDU has no
/// N(S): zero is used. A PDU that was delayed until its 14 bits came round has another mark. Applied twice, the
/// function gives the connection's mark.
#[inline]
pub(crate) fn numbered_mark(mark: u64, ns: u32, nr: u32) -> u64 {
    const EACH: u32 = NUMBERED_MARK_BITS / 2;
    let beyond = |number: u32| u64::from(number / u32::from(NUMBERS) % (1 << EACH));
    mark ^ (beyond(ns) << EACH | beyond(nr))
}

/// What the mark of an I or S PDU has in common with those of all others of its connection.
#[inline]
#[must_use]
pub const fn unnumbered_mark(mark: u64) -> u64 {
    mark >> NUMBERED_MARK_BITS << NUMBERED_MARK_BITS
}

/// Whether a mark is a connection's, whatever the numbers of its PDU.
#[inline]
pub(crate) const fn is_mark_of(mark: u64, connection: u64) -> bool {
    connection != 0 && unnumbered_mark(mark) == unnumbered_mark(connection)
}

/// Decoded extension of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Extension {
    pub mark: u64,
    /// I PDU: N(S) with its round; N(S) alone without extension.
    pub ns: u16,
    /// I or S PDU: N(R), likewise.
    pub nr: u16,
    /// I PDU: it is a retransmission. S PDU: every PDU that is not kept is missing.
    pub is_flagged: bool,
    /// S PDU: bit i is PDU N(R) + i.
    pub kept: u128,
    /// S PDU with P or F = 1: the number of the poll.
    pub poll: u16,
    /// SABME or UA: the sender's nonce.
    pub nonce: u64,
    /// SABME or UA: the sender's key if its peers learn the key from its address; else 0.
    pub cookie: u64,
}

/// Encoded extension of a PDU to transmit, without the guard that precedes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    bytes: [u8; MAX],
    length: u8,
}

impl Extra {
    /// No extension and no guard.
    pub const NONE: Self = Self { bytes: [0; MAX], length: 0 };

    /// The bytes. Guard and extension precede the information field, or follow a PDU without a free-form one.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Whether there is no extension.
    #[inline]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.length == 0
    }

    /// The mark; 0 for [`NONE`](Self::NONE).
    #[inline]
    #[must_use]
    pub fn mark(&self) -> u64 {
        let [mark, ..] = self.bytes.as_chunks::<MARK>().0 else { return 0 };
        u64::from_be_bytes(*mark)
    }

    /// Flags in an I PDU that the check covers only [`covered`] bytes of the information.
    #[inline]
    pub fn cover_partly(&mut self) {
        self.bytes[PARTIAL_CHECK_AT] |= FLAG;
    }

    #[inline]
    pub(crate) fn datagram(mark: u64) -> Self {
        let mut extra = Self::NONE;
        extra.bytes[..MARK].copy_from_slice(&mark.to_be_bytes());
        extra.length = DATAGRAM_FRONT as u8;
        extra
    }

    #[inline]
    pub(crate) fn information(mark: u64, ns: u32, nr: u32, is_retransmission: bool) -> Self {
        let mut extra = Self::datagram(numbered_mark(mark, ns, nr));
        extra.bytes[DATAGRAM_FRONT] = round_of(ns as u16) | if is_retransmission { FLAG } else { 0 };
        extra.bytes[DATAGRAM_FRONT + 1] = round_of(nr as u16);
        extra.length = INFORMATION_FRONT as u8;
        extra
    }

    pub(crate) fn supervisory(mark: u64, nr: u32, kept: u128, lacks_the_rest: bool, poll: u16) -> Self {
        let mut extra = Self::datagram(numbered_mark(mark, 0, nr));
        extra.bytes[DATAGRAM_FRONT] = round_of(nr as u16) | if lacks_the_rest { FLAG } else { 0 };
        extra.bytes[DATAGRAM_FRONT + 1..][..16].copy_from_slice(&kept.to_be_bytes());
        extra.bytes[DATAGRAM_FRONT + 17..].copy_from_slice(&poll.to_be_bytes());
        extra.length = MAX as u8;
        extra
    }

    pub(crate) fn set_up(mark: u64, nonce: u64, cookie: u64) -> Self {
        let mut extra = Self::datagram(mark);
        let rest = &mut extra.bytes[DATAGRAM_FRONT..];
        rest[0] = VERSION;
        rest[1..9].copy_from_slice(&nonce.to_be_bytes());
        rest[9..17].copy_from_slice(&cookie.to_be_bytes());
        extra.length = (DATAGRAM_FRONT + SET_UP) as u8;
        extra
    }
}

/// A received check and the bytes that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked<'a> {
    /// The first bytes of the PDU, which are added to the initial value of the CRC register.
    pub head: &'a [u8],
    /// The covered bytes that follow, without the check.
    pub pieces: [&'a [u8]; 2],
    /// The check as received.
    pub check: u32,
}

/// The check of a PDU; `None` if it carries none. `llc`: from DSAP to the end given by the length field; `trailer`: the
/// bytes behind.
#[inline]
#[must_use]
pub fn checked<'a>(llc: &'a [u8], trailer: &'a [u8]) -> Option<Checked<'a>> {
    let (head, pieces, check) = match position(llc)? {
        Position::BeforeInformation(at) => {
            let (head, rest) = llc.split_at_checked(at)?;
            let (check, rest) = rest.split_first_chunk::<CHECK>()?;
            let is_partial = at == 4 && rest.get(PARTIAL_CHECK_AT).is_some_and(|octet| octet & FLAG != 0);
            let covered_len = match rest.get(INFORMATION_FRONT..) {
                Some(information) if is_partial => INFORMATION_FRONT + covered(information),
                _ => rest.len(),
            };
            (head, [&rest[..rest.len().min(covered_len)], &[]], check)
        }
        Position::InTrailer(more) => {
            let (head, rest) = head(llc);
            let (check, trailer) = trailer.split_first_chunk::<CHECK>()?;
            (head, [rest, trailer.get(..MARK + more)?], check)
        }
    };
    Some(Checked { head, pieces, check: u32::from_be_bytes(*check) })
}

/// A received seal and what it covers: the frame's addresses, then `llc`, `extension` and `information`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// DSAP to control field; the whole PDU if it has no free-form information field.
    pub llc: &'a [u8],
    /// The extension, from the mark on.
    pub extension: &'a [u8],
    /// The free-form information field: the part that is encrypted, if encryption is on.
    pub information: &'a [u8],
    /// Whether the PDU can have a free-form information field.
    pub has_information: bool,
    /// Whether it is an I or S PDU.
    pub is_numbered: bool,
    /// DSAP, and SSAP without the C/R bit.
    pub saps: [u8; 2],
    /// The mark.
    pub mark: u64,
    /// The counter, unique to this frame.
    pub counter: u64,
    /// The authentication tag.
    pub tag: [u8; TAG],
}

/// The seal of a PDU; `None` if it carries none. Arguments as of [`checked`].
#[inline]
#[must_use]
pub fn sealed<'a>(llc: &'a [u8], trailer: &'a [u8]) -> Option<Sealed<'a>> {
    let (position, is_numbered) = (position(llc)?, is_numbered(llc));
    let has_information = matches!(position, Position::BeforeInformation(_));
    let (llc, field, more) = match position {
        Position::BeforeInformation(at) => {
            let (llc, field) = llc.split_at_checked(at)?;
            (llc, field, if is_numbered { INFORMATION_FRONT } else { DATAGRAM_FRONT })
        }
        Position::InTrailer(more) => (llc, trailer, MARK + more),
    };
    let (counter, field) = field.split_first_chunk::<COUNTER>()?;
    let (tag, field) = field.split_first_chunk::<TAG>()?;
    let (extension, rest) = field.split_at_checked(more)?;
    Some(Sealed {
        llc,
        extension,
        information: if has_information { rest } else { &[] },
        has_information,
        is_numbered,
        saps: saps(llc),
        mark: u64::from_be_bytes(*extension.first_chunk()?),
        counter: u64::from_be_bytes(*counter),
        tag: *tag,
    })
}

/// Whether a PDU is an I or S PDU.
#[inline]
#[must_use]
pub fn is_numbered(llc: &[u8]) -> bool {
    llc.get(2).is_some_and(|control| control & 3 != 3)
}

/// DSAP, and SSAP without the C/R bit.
#[inline]
#[must_use]
pub fn saps(llc: &[u8]) -> [u8; 2] {
    if let &[dsap, ssap, ..] = llc { [dsap, ssap & !1] } else { [0; 2] }
}

/// Splits a PDU with its extension in the trailer: the bytes added to the initial value of the CRC register, and the
/// rest.
#[must_use]
pub fn head(llc: &[u8]) -> (&[u8], &[u8]) {
    llc.split_at(llc.len().min(3))
}

/// Position of a PDU's extension.
enum Position {
    /// Before the information field, at this offset.
    BeforeInformation(usize),
    /// In the trailer, with this number of bytes after the mark.
    InTrailer(usize),
}

/// Derives the position from the control field (clause 5.4).
#[inline]
fn position(llc: &[u8]) -> Option<Position> {
    const FINAL: u8 = 0x10;
    const UI: u8 = 0x03;
    const SABME: u8 = 0x6f;
    const UA: u8 = 0x63;
    const AC: u8 = 0x67;
    const AC_SEQUENCE: u8 = 0x80;
    let &[_, ssap, control, ..] = llc else { return None };
    let is_response = ssap & 1 == 1;
    Some(match control & 3 {
        0 | 2 => Position::BeforeInformation(4),
        1 => Position::InTrailer(SUPERVISORY),
        _ => match control & !FINAL {
            UI => Position::BeforeInformation(3),
            SABME | UA => Position::InTrailer(SET_UP),
            other if other & !AC_SEQUENCE == AC && !is_response => Position::BeforeInformation(3),
            _ => Position::InTrailer(0),
        },
    })
}

/// Strips guard and extension from a PDU and decodes the extension. `None` if there is none of this version.
#[inline]
pub(crate) fn strip<'a>(mut pdu: Pdu<'a>, trailer: &'a [u8], guard: Guard) -> Option<(Pdu<'a>, Extension)> {
    let field = match pdu.body {
        Body::I { information, .. } | Body::Ui { information } | Body::AcCommand { information, .. } => information,
        _ => trailer,
    };
    let (mark, rest) = field.get(guard.bytes()..)?.split_first_chunk()?;
    let mark = u64::from_be_bytes(*mark);
    let mut extension = Extension { mark, ..Extension::default() };
    match &mut pdu.body {
        Body::I { ns, nr, information, .. } => {
            let (&[ns_octet, nr_octet], user_data) = rest.split_first_chunk()?;
            extension.ns = extended_number(ns_octet, *ns);
            extension.nr = extended_number(nr_octet, *nr);
            extension.is_flagged = ns_octet & FLAG != 0;
            *information = user_data;
        }
        Body::Ui { information } | Body::AcCommand { information, .. } => *information = rest,
        Body::S { nr, .. } => {
            let (&octet, rest) = rest.split_first()?;
            extension.nr = extended_number(octet, *nr);
            extension.is_flagged = octet & FLAG != 0;
            let (kept, rest) = rest.split_first_chunk()?;
            extension.kept = u128::from_be_bytes(*kept);
            extension.poll = u16::from_be_bytes(*rest.first_chunk()?);
        }
        Body::Sabme { .. } | Body::Ua { .. } => {
            let (&version, rest) = rest.split_first()?;
            if version != VERSION {
                return None;
            }
            let (nonce, rest) = rest.split_first_chunk()?;
            (extension.nonce, extension.cookie) =
                (u64::from_be_bytes(*nonce), u64::from_be_bytes(*rest.first_chunk()?));
        }
        _ => {}
    }
    Some((pdu, extension))
}

/// The numbers of a PDU without extension.
#[inline]
pub(crate) fn unextended(pdu: &Pdu<'_>) -> Extension {
    let (ns, nr) = match pdu.body {
        Body::I { ns, nr, .. } => (ns, nr),
        Body::S { nr, .. } => (SequenceNumber::default(), nr),
        _ => return Extension::default(),
    };
    Extension { ns: u16::from(ns.value()), nr: u16::from(nr.value()), ..Extension::default() }
}

#[inline]
const fn round_of(number: u16) -> u8 {
    (number / SequenceNumber::MODULUS as u16) as u8 & !FLAG
}

#[inline]
fn extended_number(octet: u8, number: SequenceNumber) -> u16 {
    u16::from(octet & !FLAG) * u16::from(SequenceNumber::MODULUS) + u16::from(number.value())
}

/// Mark of datagrams to the station with this key.
pub(crate) fn datagram_mark(key: u64) -> u64 {
    hash(key, DATAGRAMS, 0)
}

/// Mark of a SABME with this nonce to the station with this key.
pub(crate) fn set_up_mark(key: u64, nonce: u64) -> u64 {
    hash(key, SET_UPS, nonce)
}

/// Mark of the PDUs of a connection; `from` and `to` are the nonces of sender and receiver.
pub(crate) fn connection_mark(from: u64, to: u64) -> u64 {
    hash(CONNECTIONS, from, to)
}

/// Derives the nonce with this count from a secret seed.
pub(crate) fn next_nonce(seed: u64, count: u64) -> u64 {
    hash(seed, NONCES, count)
}

/// 16 bits of a hash, never 0, by which stations with the same key recognise each other before they send anything. It
/// is the same for all stations of a job, so that an observer of many stations learns no more than 16 bits of the key.
#[must_use]
pub fn key_check(key: u64) -> u16 {
    (hash(key, CHECKS, 0) as u16).max(1)
}

const DATAGRAMS: u64 = 1;
const SET_UPS: u64 = 2;
const CONNECTIONS: u64 = 3;
const NONCES: u64 = 4;
const CHECKS: u64 = 5;

fn hash(key: u64, a: u64, b: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key, u64::from_be_bytes(*b"Barewire"));
    hasher.write(&a.to_le_bytes());
    hasher.write(&b.to_le_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn checks_of_keys_are_spread_over_all_values_but_zero() {
        let checks: std::collections::BTreeSet<u16> = (0..1 << 17).map(key_check).collect();
        // A random function takes 56,000 of them.
        assert!(!checks.contains(&0) && checks.len() > 55_000, "{}", checks.len());
    }

    /// PDUs of each kind: the PDU's bytes, its trailer, whether the extension precedes an information field, and the
    /// extension.
    fn frames(guard: usize) -> [(Vec<u8>, Vec<u8>, bool, Extra); 8] {
        let before_information = |head: &[u8], extra: Extra| {
            let guard: Vec<u8> = (0..guard as u8).map(|octet| 0x80 | octet).collect();
            ([head, &guard, extra.as_bytes(), b"information"].concat(), Vec::new(), true, extra)
        };
        let in_trailer = |llc: &[u8], extra: Extra| {
            let guard: Vec<u8> = (0..guard as u8).map(|octet| 0x80 | octet).collect();
            (llc.to_vec(), [&guard, extra.as_bytes(), &[0; 9]].concat(), false, extra)
        };
        [
            before_information(&[0x24, 0x20, 2, 4], Extra::information(7, 129, 258, true)),
            in_trailer(&[0x24, 0x21, 1, 1], Extra::supervisory(7, 258, 5, true, 0x4001)),
            in_trailer(&[0x24, 0x20, 0x7f], Extra::set_up(7, 8, 9)),
            before_information(&[0x24, 0x20, 0x03], Extra::datagram(7)),
            before_information(&[0x24, 0x20, 0x67], Extra::datagram(7)),
            in_trailer(&[0x24, 0x21, 0xf7, 0x40], Extra::datagram(7)),
            in_trailer(&[0x24, 0x20, 0x53], Extra::datagram(7)),
            in_trailer(&[0x24, 0x20, 0xf3, 1, 2, 3], Extra::datagram(7)),
        ]
    }

    /// Strips the extension behind either guard, and finds none in a shorter frame.
    #[test]
    fn extension_is_found_behind_either_guard() {
        for guard in [Guard::Check, Guard::Seal] {
            for (llc, trailer, _, extra) in frames(guard.bytes()) {
                let pdu = Pdu::decode(&llc).unwrap();
                let (pdu, extension) = strip(pdu, &trailer, guard).unwrap();
                assert_eq!(extension.mark, 7);
                match pdu.body {
                    Body::I { information, .. } => {
                        assert_eq!((information, extension.ns, extension.nr), (&b"information"[..], 129, 258));
                        assert!(extension.is_flagged);
                    }
                    Body::S { .. } => assert_eq!((extension.nr, extension.kept, extension.is_flagged), (256, 5, true)),
                    Body::Sabme { .. } => assert_eq!((extension.nonce, extension.cookie), (8, 9)),
                    Body::Ui { information } | Body::AcCommand { information, .. } => {
                        assert_eq!(information, b"information");
                    }
                    _ => {}
                }
                let cut = guard.bytes() + extra.as_bytes().len() - 1;
                let short = if trailer.is_empty() { &llc[..llc.len() - 12] } else { &llc };
                let pdu = Pdu::decode(short).unwrap();
                assert_eq!(strip(pdu, &trailer[..trailer.len().min(cut)], guard), None, "{pdu:?}");
            }
        }
    }

    /// Finds the seal, and checks that it covers the rest of the frame without padding.
    #[test]
    fn seal_covers_everything_but_padding() {
        let (counter, tag): (Vec<u8>, Vec<u8>) = ((0x80..0x88).collect(), (0x88..0x98).collect());
        for (llc, trailer, has_information, extra) in frames(Guard::Seal.bytes()) {
            let sealed = sealed(&llc, &trailer).unwrap();
            assert_eq!((&sealed.counter.to_be_bytes()[..], &sealed.tag[..]), (&counter[..], &tag[..]));
            assert_eq!((sealed.mark, sealed.saps, sealed.extension), (7, [0x24, 0x20], extra.as_bytes()));
            assert_eq!(sealed.has_information, has_information);
            assert_eq!(sealed.is_numbered, llc[2] & 3 != 3);
            if has_information {
                assert_eq!(([sealed.llc, sealed.extension, sealed.information].concat().len()) + 24, llc.len());
                assert_eq!(sealed.information, b"information");
            } else {
                assert_eq!((sealed.llc, sealed.information), (&llc[..], &[][..]));
            }
        }
    }
}
