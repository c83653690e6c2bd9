// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barewire's additions to LLC PDUs: wire version 3.
//!
//! ```text
//! I                   | LLC 4 | check 4 | mark 8 | round of N(S) 1 | round of N(R) 1 | information … |
//! UI, AC command      | LLC 3 | check 4 | mark 8 | information … |
//! RR, RNR, REJ        | LLC 4 | check 4 | mark 8 | round of N(R) 1 | kept 16 | padding |
//! SABME, UA           | LLC 3 | check 4 | mark 8 | version 1 | nonce 8 | cookie 8 | padding |
//! every other         | LLC 3… | check 4 | mark 8 | padding |
//! ```
//!
//! Other stations see user data, or Ethernet padding beyond the counted length. Numbers are big endian.
//!
//! - The **check** is a CRC32C over the frame's addresses, destination and source, and everything else that is shown, to the end
//!   of the information; DSAP, SSAP and control field are added to the register's first value. The engine leaves room for it;
//!   whoever has the bytes computes it.
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
/// Bytes in front of the information of an I PDU.
pub const INFORMATION_FRONT: usize = CHECK + MARK + 2;
/// Bytes in front of the information of a UI PDU or an AC command.
pub const DATAGRAM_FRONT: usize = CHECK + MARK;

/// Bytes of an I PDU's information that the check is over at least: of the first fragment of a message its header, the head of
/// the message and perhaps more; of others the header. Their data is not touched, since it may not be in the cache yet.
#[inline]
#[must_use]
pub const fn covered(information: &[u8]) -> usize {
    if message::is_first(information) { 64 } else { message::OTHER_HEADER }
}

/// Where it stands that it is over no more: with the round of N(R).
const PARTLY_AT: usize = INFORMATION_FRONT - 1;

const CHECK: usize = 4;
const MARK: usize = 8;
const SUPERVISORY: usize = 1 + 16;
const SET_UP: usize = 1 + 8 + 8;
/// Bytes of the longest.
pub const MAX: usize = CHECK + MARK + SUPERVISORY;
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

/// The bytes of an extension, ready for the wire but for the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    bytes: [u8; MAX],
    length: u8,
}

impl Extra {
    /// Of a PDU without one.
    pub const NONE: Self = Self { bytes: [0; MAX], length: 0 };

    /// As they go on the wire: before the information, or behind a PDU that has no free-form one.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Writes the check.
    #[inline]
    pub fn set_check(&mut self, check: u32) {
        self.bytes[..CHECK].copy_from_slice(&check.to_be_bytes());
    }

    /// What of it the check is over.
    #[inline]
    #[must_use]
    pub fn checked(&self) -> &[u8] {
        &self.bytes[CHECK..usize::from(self.length)]
    }

    /// Notes, of an I PDU's, that the check is over [`covered`] bytes of the information only.
    #[inline]
    pub fn cover_partly(&mut self) {
        self.bytes[PARTLY_AT] |= FLAG;
    }

    #[inline]
    pub(crate) fn datagram(mark: u64) -> Self {
        let mut extra = Self::NONE;
        extra.bytes[CHECK..CHECK + MARK].copy_from_slice(&mark.to_be_bytes());
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
            let is_partly = at == 4 && rest.get(PARTLY_AT - CHECK).is_some_and(|octet| octet & FLAG != 0);
            let most = match rest.get(INFORMATION_FRONT - CHECK..) {
                Some(information) if is_partly => INFORMATION_FRONT - CHECK + covered(information),
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

/// Takes a PDU's extension off: what remains of the PDU, and what it said. `None`: it has none of this version.
#[inline]
pub(crate) fn take<'a>(mut pdu: Pdu<'a>, behind: &'a [u8]) -> Option<(Pdu<'a>, Extension)> {
    let field = match pdu.body {
        Body::I { information, .. } | Body::Ui { information } | Body::AcCommand { information, .. } => information,
        _ => behind,
    };
    let mark = u64::from_be_bytes(*field.get(CHECK..)?.first_chunk()?);
    let rest = field.get(CHECK + MARK..)?;
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
