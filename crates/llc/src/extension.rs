// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barewire's additions to LLC PDUs: wire version 3.
//!
//! ```text
//! I                   | LLC 4 | guard | mark 8 | round of N(S) 1 | round of N(R) 1 | information … |
//! UI, AC command      | LLC 3 | guard | mark 8 | information … |
//! RR, RNR, REJ        | LLC 4 | guard | mark 8 | round of N(R) 1 | kept 16 | padding |
//! SABME, UA           | LLC 3 | guard | mark 8 | version 1 | nonce 8 | cookie 8 | padding |
//! every other         | LLC 3… | guard | mark 8 | padding |
//!
//! guard               | check 4 |                    without authentication
//!                     | counter 8 | tag 16 |         with it
//! ```
//!
//! Other stations see user data, or Ethernet padding beyond the counted length. Numbers are big endian.
//!
//! - The **guard** is what shows that a frame is as it was sent. The engine leaves it to whoever has the bytes, and skips it.
//!   - The **check** is a CRC32C over the frame's addresses, destination and source, and everything else that is shown, to the
//!     end of the information; DSAP, SSAP and control field are added to the register's first value.
//!   - **Counter and tag** are a seal: the tag authenticates the same bytes, always all of them, under a key that both ends
//!     have and a nonce that is made of the counter.
//! - The **mark** says which connection a PDU belongs to; a PDU without the right one is ignored. In a connection it is a hash
//!   of both ends' nonces, which are drawn anew for each connection, so that a PDU of an earlier one has another mark. In a
//!   SABME or a datagram it is a hash of the addressee's key, in a UA or DM the nonce or mark of the PDU that it answers.
//! - A **round** is how often the number has come round. Its highest bit says, with N(S), that the PDU is sent again; with N(R)
//!   of an I PDU, that the check is over the first [`covered`] bytes of the information only; with N(R) of an S PDU, that all
//!   is missing that is not kept.
//! - Bit i of **kept** says that the receiver keeps the PDU N(R) + i, which came early.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::message;
use crate::pdu::{Body, Pdu, SequenceNumber};

/// Of what is described here; a peer that speaks another is refused.
pub const VERSION: u8 = 3;

/// What an extension begins with, the same at all stations that are to hear each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// A CRC32C: against what changes frames by mistake.
    #[default]
    Check,
    /// Counter and tag: against whoever has not the key.
    Seal,
}

impl Guard {
    /// Bytes of the longest.
    pub const MAX: usize = COUNTER + TAG;

    /// Its bytes.
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

/// Bytes of an I PDU's information that the check is over at least: of the first fragment of a message its header, the head of
/// the message and perhaps more; of others the header. Their data is not touched, since it may not be in the cache yet.
#[inline]
#[must_use]
pub const fn covered(information: &[u8]) -> usize {
    if message::is_first(information) { 64 } else { message::OTHER_HEADER }
}

/// Where it stands that it is over no more: with the round of N(R).
const PARTLY_AT: usize = INFORMATION_FRONT - 1;

/// Bytes of a check.
pub const CHECK: usize = 4;
/// Bytes of a seal's counter.
pub const COUNTER: usize = 8;
/// Bytes of a seal's tag.
pub const TAG: usize = 16;
/// Bytes of a mark.
pub const MARK: usize = 8;
const SUPERVISORY: usize = 1 + 16;
const SET_UP: usize = 1 + 8 + 8;
/// Bytes of the longest, without its guard.
pub const MAX: usize = MARK + SUPERVISORY;
const _: () = assert!(SUPERVISORY >= SET_UP);

/// The highest bit of a round's octet.
const FLAG: u8 = 0x80;

/// Numbers with their rounds, of 14 bits; without this extension they have the 7 bits of LLC's.
pub(crate) const NUMBERS: u16 = 128 * SequenceNumber::MODULUS as u16;

/// What a PDU carries besides LLC's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Extension {
    pub mark: u64,
    /// Of an I PDU: N(S) and its round. Without extension N(S) alone.
    pub ns: u16,
    /// Of an I or S PDU: N(R), likewise.
    pub nr: u16,
    /// See the module: of an I PDU that it was sent before, of an S PDU that all is missing that is not kept.
    pub is_flagged: bool,
    /// Of an S PDU.
    pub kept: u128,
    /// Of a SABME or UA.
    pub nonce: u64,
    /// Of a SABME or UA: the key of an endpoint whose peers learn it from its address; else 0.
    pub cookie: u64,
}

/// The bytes of an extension as they go on the wire, behind the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    bytes: [u8; MAX],
    length: u8,
}

impl Extra {
    /// Of a PDU without one, which has no guard either.
    pub const NONE: Self = Self { bytes: [0; MAX], length: 0 };

    /// The bytes: with their guard they go before the information, or behind a PDU that has no free-form one.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.length == 0
    }

    /// The mark, of one that there is.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> u64 {
        let [mark, ..] = self.bytes.as_chunks::<MARK>().0 else { return 0 };
        u64::from_be_bytes(*mark)
    }

    /// Notes, of an I PDU's, that the check is over [`covered`] bytes of the information only.
    #[inline]
    pub fn cover_partly(&mut self) {
        self.bytes[PARTLY_AT] |= FLAG;
    }

    #[inline]
    pub(crate) fn datagram(mark: u64) -> Self {
        let mut extra = Self::NONE;
        extra.bytes[..MARK].copy_from_slice(&mark.to_be_bytes());
        extra.length = DATAGRAM_FRONT as u8;
        extra
    }

    #[inline]
    pub(crate) fn information(mark: u64, ns: u16, nr: u16, is_repeated: bool) -> Self {
        let mut extra = Self::datagram(mark);
        extra.bytes[DATAGRAM_FRONT] = round_of(ns) | if is_repeated { FLAG } else { 0 };
        extra.bytes[DATAGRAM_FRONT + 1] = round_of(nr);
        extra.length = INFORMATION_FRONT as u8;
        extra
    }

    pub(crate) fn supervisory(mark: u64, nr: u16, kept: u128, lacks_the_rest: bool) -> Self {
        let mut extra = Self::datagram(mark);
        extra.bytes[DATAGRAM_FRONT] = round_of(nr) | if lacks_the_rest { FLAG } else { 0 };
        extra.bytes[DATAGRAM_FRONT + 1..].copy_from_slice(&kept.to_be_bytes());
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

/// A received check, and what it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked<'a> {
    /// The first bytes of the PDU, which the check treats apart.
    pub head: &'a [u8],
    /// What follows, without the check.
    pub pieces: [&'a [u8]; 2],
    /// What the sender made of it.
    pub check: u32,
}

/// The check of a PDU; `None` if it carries none. `llc`: from DSAP to where the length says; `behind`: what follows.
#[inline]
#[must_use]
pub fn checked<'a>(llc: &'a [u8], behind: &'a [u8]) -> Option<Checked<'a>> {
    let (head, pieces, check) = match place(llc)? {
        Place::Front(at) => {
            let (head, rest) = llc.split_at_checked(at)?;
            let (check, rest) = rest.split_first_chunk::<CHECK>()?;
            let is_partly = at == 4 && rest.get(PARTLY_AT).is_some_and(|octet| octet & FLAG != 0);
            let most = match rest.get(INFORMATION_FRONT..) {
                Some(information) if is_partly => INFORMATION_FRONT + covered(information),
                _ => rest.len(),
            };
            (head, [&rest[..rest.len().min(most)], &[]], check)
        }
        Place::Behind(more) => {
            let (head, rest) = head(llc);
            let (check, behind) = behind.split_first_chunk::<CHECK>()?;
            (head, [rest, behind.get(..MARK + more)?], check)
        }
    };
    Some(Checked { head, pieces, check: u32::from_be_bytes(*check) })
}

/// A received seal, and what it is over: the frame's addresses and then these, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// DSAP to control field; of a PDU without free-form information all of it.
    pub llc: &'a [u8],
    /// Mark and more.
    pub extension: &'a [u8],
    /// The information that follows; what is encrypted, if anything is.
    pub information: &'a [u8],
    /// Whether the PDU may have such information.
    pub has_information: bool,
    /// Whether it is an I or S PDU, of a connection.
    pub is_numbered: bool,
    /// DSAP, and SSAP of command and response alike.
    pub saps: [u8; 2],
    /// The mark.
    pub mark: u64,
    /// What the sender chose for this frame.
    pub counter: u64,
    /// What it made of all that.
    pub tag: [u8; TAG],
}

/// The seal of a PDU; `None` if it carries none. Arguments as of [`checked`].
#[inline]
#[must_use]
pub fn sealed<'a>(llc: &'a [u8], behind: &'a [u8]) -> Option<Sealed<'a>> {
    let (place, is_numbered) = (place(llc)?, is_numbered(llc));
    let has_information = matches!(place, Place::Front(_));
    let (llc, field, more) = match place {
        Place::Front(at) => {
            let (llc, field) = llc.split_at_checked(at)?;
            (llc, field, if is_numbered { INFORMATION_FRONT } else { DATAGRAM_FRONT })
        }
        Place::Behind(more) => (llc, behind, MARK + more),
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

/// DSAP, and SSAP without what tells a response from a command.
#[inline]
#[must_use]
pub fn saps(llc: &[u8]) -> [u8; 2] {
    if let &[dsap, ssap, ..] = llc { [dsap, ssap & !1] } else { [0; 2] }
}

/// Of a PDU with what is added behind it: its first bytes, which the check treats apart, and the rest.
#[must_use]
pub fn head(llc: &[u8]) -> (&[u8], &[u8]) {
    llc.split_at(llc.len().min(3))
}

/// Where a PDU has its extension.
enum Place {
    /// Before its information, which begins here.
    Front(usize),
    /// Behind it, with so many bytes after the mark.
    Behind(usize),
}

/// By the control field (clause 5.4).
#[inline]
fn place(llc: &[u8]) -> Option<Place> {
    const FINAL: u8 = 0x10;
    const UI: u8 = 0x03;
    const SABME: u8 = 0x6f;
    const UA: u8 = 0x63;
    const AC: u8 = 0x67;
    const AC_SEQUENCE: u8 = 0x80;
    let &[_, ssap, control, ..] = llc else { return None };
    let is_response = ssap & 1 == 1;
    Some(match control & 3 {
        0 | 2 => Place::Front(4),
        1 => Place::Behind(SUPERVISORY),
        _ => match control & !FINAL {
            UI => Place::Front(3),
            SABME | UA => Place::Behind(SET_UP),
            other if other & !AC_SEQUENCE == AC && !is_response => Place::Front(3),
            _ => Place::Behind(0),
        },
    })
}

/// Takes a PDU's extension off, with its guard: what remains of the PDU, and what it said. `None`: it has none of this version.
#[inline]
pub(crate) fn take<'a>(mut pdu: Pdu<'a>, behind: &'a [u8], guard: Guard) -> Option<(Pdu<'a>, Extension)> {
    let field = match pdu.body {
        Body::I { information, .. } | Body::Ui { information } | Body::AcCommand { information, .. } => information,
        _ => behind,
    };
    let (mark, rest) = field.get(guard.bytes()..)?.split_first_chunk()?;
    let mark = u64::from_be_bytes(*mark);
    let mut extension = Extension { mark, ..Extension::default() };
    match &mut pdu.body {
        Body::I { ns, nr, information, .. } => {
            let (&[of_ns, of_nr], user) = rest.split_first_chunk()?;
            extension.ns = numbered(of_ns, *ns);
            extension.nr = numbered(of_nr, *nr);
            extension.is_flagged = of_ns & FLAG != 0;
            *information = user;
        }
        Body::Ui { information } | Body::AcCommand { information, .. } => *information = rest,
        Body::S { nr, .. } => {
            let (&octet, rest) = rest.split_first()?;
            extension.nr = numbered(octet, *nr);
            extension.is_flagged = octet & FLAG != 0;
            extension.kept = u128::from_be_bytes(*rest.first_chunk()?);
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

/// What a PDU of a standard station says.
#[inline]
pub(crate) fn plain(pdu: &Pdu<'_>) -> Extension {
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
fn numbered(octet: u8, number: SequenceNumber) -> u16 {
    u16::from(octet & !FLAG) * u16::from(SequenceNumber::MODULUS) + u16::from(number.value())
}

/// Of datagrams for the endpoint with this key.
pub(crate) fn datagram_mark(key: u64) -> u64 {
    hash(key, DATAGRAMS, 0)
}

/// Of a SABME with this nonce for the endpoint with this key.
pub(crate) fn set_up_mark(key: u64, nonce: u64) -> u64 {
    hash(key, SET_UPS, nonce)
}

/// Of what the end with the first nonce sends to the one with the second.
pub(crate) fn connection_mark(from: u64, to: u64) -> u64 {
    hash(CONNECTIONS, from, to)
}

/// The number after a nonce of which nobody else has heard.
pub(crate) fn next_nonce(seed: u64, count: u64) -> u64 {
    hash(seed, NONCES, count)
}

const DATAGRAMS: u64 = 1;
const SET_UPS: u64 = 2;
const CONNECTIONS: u64 = 3;
const NONCES: u64 = 4;

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

    /// A PDU's bytes, what lies behind, where its extension begins, and what that is: of I and S PDUs, a set-up, a datagram, an
    /// acknowledged one with its answer, a DISC, and a TEST, whose information is LLC's.
    fn frames(guard: usize) -> [(Vec<u8>, Vec<u8>, bool, Extra); 8] {
        let front = |head: &[u8], extra: Extra| {
            let guard: Vec<u8> = (0..guard as u8).map(|octet| 0x80 | octet).collect();
            ([head, &guard, extra.as_bytes(), b"information"].concat(), Vec::new(), true, extra)
        };
        let behind = |llc: &[u8], extra: Extra| {
            let guard: Vec<u8> = (0..guard as u8).map(|octet| 0x80 | octet).collect();
            (llc.to_vec(), [&guard, extra.as_bytes(), &[0; 9]].concat(), false, extra)
        };
        [
            front(&[0x24, 0x20, 2, 4], Extra::information(7, 129, 258, true)),
            behind(&[0x24, 0x21, 1, 1], Extra::supervisory(7, 258, 5, true)),
            behind(&[0x24, 0x20, 0x7f], Extra::set_up(7, 8, 9)),
            front(&[0x24, 0x20, 0x03], Extra::datagram(7)),
            front(&[0x24, 0x20, 0x67], Extra::datagram(7)),
            behind(&[0x24, 0x21, 0xf7, 0x40], Extra::datagram(7)),
            behind(&[0x24, 0x20, 0x53], Extra::datagram(7)),
            behind(&[0x24, 0x20, 0xf3, 1, 2, 3], Extra::datagram(7)),
        ]
    }

    /// Proves that what the engine adds is found behind either guard, and that a shorter frame has none.
    #[test]
    fn an_extension_lies_behind_its_guard_whatever_that_is() {
        for guard in [Guard::Check, Guard::Seal] {
            for (llc, behind, _, extra) in frames(guard.bytes()) {
                let pdu = Pdu::decode(&llc).unwrap();
                let (pdu, extension) = take(pdu, &behind, guard).unwrap();
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
                let short = if behind.is_empty() { &llc[..llc.len() - 12] } else { &llc };
                let pdu = Pdu::decode(short).unwrap();
                assert_eq!(take(pdu, &behind[..behind.len().min(cut)], guard), None, "{pdu:?}");
            }
        }
    }

    /// Proves that a seal is found in its place, and that what it is over is all the rest of the frame but padding.
    #[test]
    fn a_seal_is_over_everything_but_padding() {
        let (counter, tag): (Vec<u8>, Vec<u8>) = ((0x80..0x88).collect(), (0x88..0x98).collect());
        for (llc, behind, has_information, extra) in frames(Guard::Seal.bytes()) {
            let sealed = sealed(&llc, &behind).unwrap();
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
