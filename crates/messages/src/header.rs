// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes before a message's bytes, in the head of the endpoint's message. Numbers are big endian.
//!
//! ```text
//! eager      | kind | tag 8, if tagged | data 8, if any | number 8, if it is to be confirmed | bytes …
//! request    | kind | tag 8, if tagged | data 8, if any | number 8 | length 8 | address 8, if A
//! answer     | kind | number 8 | receive 8 | wanted 8
//! data       | kind | receive 8 | offset 8 | bytes …
//! delivered  | kind | number 8
//! announce   | kind |
//! resume     | kind |
//! write      | kind | data 8, if any | number 8 | key 8 | offset 8 | length 8 | bytes …
//! rest       | kind | number 8 | offset 8 | bytes …             more of a write, from there on
//! read       | kind | number 8 | key 8 | offset 8 | length 8
//! returned   | kind | number 8 | offset 8 | bytes …             what was read, from there on
//! atomic     | kind | number 8 | key 8 | offset 8 | operation 1 | type 1 | length 8 | operand … | compared …
//! done       | kind | number 8 | refusal 1, or 0
//!
//! kind       A C D T k k k k      T: tagged; D: has data; C: is to be confirmed (atomic: fetches);
//!                                 A: tells where the message lies in its process; k: which
//! ```
//!
//! A *number* is the sender's own name for its send or its access, a *receive* the receiver's for its receive: each side
//! repeats the other's and checks its own. A write's length is that of all its bytes, an atomic operation's that of the
//! elements.

use barewire_endpoint::HEAD_MAX;
use thiserror::Error;

use crate::atomic::{AtomicOperation, AtomicType};
use crate::regions::{Refusal, Remote};

const EAGER: u8 = 1;
const REQUEST: u8 = 2;
const ANSWER: u8 = 3;
const DATA: u8 = 4;
const DELIVERED: u8 = 5;
const ANNOUNCE: u8 = 6;
const RESUME: u8 = 7;
const WRITE: u8 = 8;
const REST: u8 = 9;
const READ: u8 = 10;
const RETURNED: u8 = 11;
const ATOMIC: u8 = 12;
const DONE: u8 = 13;
const KINDS: u8 = 0x0f;
const IS_TAGGED: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const CONFIRM: u8 = 0x40;
const HAS_ADDRESS: u8 = 0x80;

/// What a message carries besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Label {
    /// Its tag; `None` for a message that only an untagged receive matches.
    pub tag: Option<u64>,
    /// What the receiver's completion tells (libfabric's remote CQ data).
    pub data: Option<u64>,
}

/// A head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A message, whole.
    Eager { label: Label, confirm: Option<u64> },
    /// A message of `length` bytes that is sent once it is matched; or fetched from `address` by a local peer, which
    /// then wants no bytes.
    Request { label: Label, number: u64, length: u64, confirm: bool, address: Option<u64> },
    /// The message that was announced is matched: send its first `wanted` bytes.
    Answer { number: u64, receive: u64, wanted: u64 },
    /// Bytes of a message that was asked for.
    Data { receive: u64, offset: u64 },
    /// The message lies in its receiver's memory.
    Delivered { number: u64 },
    /// From now on only requests, please: memory for messages that nobody waits for runs short.
    Announce,
    /// That is over.
    Resume,
    /// Bytes for registered memory: the first, of `length` in all.
    Write { number: u64, at: Remote, length: u64, data: Option<u64> },
    /// More of them.
    Rest { number: u64, offset: u64 },
    /// Registered memory is to be returned.
    Read { number: u64, at: Remote, length: u64 },
    /// Bytes of it, or what an atomic operation found.
    Returned { number: u64, offset: u64 },
    /// Elements of registered memory are to be changed.
    Atomic { number: u64, at: Remote, atomic: Atomic },
    /// An access has ended that nothing is returned for.
    Done { number: u64, result: Result<(), Refusal> },
}

/// What happens to elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub operation: AtomicOperation,
    pub of: AtomicType,
    /// Bytes of all elements.
    pub length: u64,
    /// What was there before is returned.
    pub fetches: bool,
}

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadHeader {
    #[error("a kind of head that does not exist: {0:#04x}")]
    Kind(u8),
    #[error("a head that is cut")]
    Cut,
    #[error("no such operation, type or refusal: {0}")]
    Number(u8),
}

impl Header {
    /// Writes it; how long it is.
    #[inline(always)]
    pub fn encode(&self, into: &mut [u8; HEAD_MAX]) -> usize {
        let mut writer = Writer { into, end: 1 };
        if let Self::Eager { label, confirm } = *self {
            writer.kind(EAGER | flags(label) | if confirm.is_some() { CONFIRM } else { 0 });
            writer.number_if(label.tag);
            writer.number_if(label.data);
            writer.number_if(confirm);
        } else {
            self.encode_other(&mut writer);
        }
        writer.end
    }

    /// Of what is not the shortest way of a short message.
    fn encode_other(&self, writer: &mut Writer<'_>) {
        match *self {
            Self::Request { label, number, length, confirm, address } => {
                let has_address = if address.is_some() { HAS_ADDRESS } else { 0 };
                writer.kind(REQUEST | flags(label) | if confirm { CONFIRM } else { 0 } | has_address);
                for number in [label.tag, label.data, Some(number), Some(length), address].into_iter().flatten() {
                    writer.number(number);
                }
            }
            Self::Answer { number, receive, wanted } => {
                writer.kind(ANSWER);
                [number, receive, wanted].into_iter().for_each(|number| writer.number(number));
            }
            Self::Data { receive, offset } => {
                writer.kind(DATA);
                [receive, offset].into_iter().for_each(|number| writer.number(number));
            }
            Self::Delivered { number } => {
                writer.kind(DELIVERED);
                writer.number(number);
            }
            Self::Announce => writer.kind(ANNOUNCE),
            Self::Resume => writer.kind(RESUME),
            _ => self.encode_access(writer),
        }
    }

    /// Of what concerns registered memory.
    fn encode_access(&self, writer: &mut Writer<'_>) {
        match *self {
            Self::Write { number, at, length, data } => {
                writer.kind(WRITE | if data.is_some() { HAS_DATA } else { 0 });
                let numbers = [data, Some(number), Some(at.key), Some(at.offset), Some(length)];
                numbers.into_iter().flatten().for_each(|number| writer.number(number));
            }
            Self::Rest { number, offset } => {
                writer.kind(REST);
                [number, offset].into_iter().for_each(|number| writer.number(number));
            }
            Self::Read { number, at, length } => {
                writer.kind(READ);
                [number, at.key, at.offset, length].into_iter().for_each(|number| writer.number(number));
            }
            Self::Returned { number, offset } => {
                writer.kind(RETURNED);
                [number, offset].into_iter().for_each(|number| writer.number(number));
            }
            Self::Atomic { number, at, atomic } => {
                writer.kind(ATOMIC | if atomic.fetches { CONFIRM } else { 0 });
                [number, at.key, at.offset].into_iter().for_each(|number| writer.number(number));
                writer.byte(atomic.operation as u8);
                writer.byte(atomic.of as u8);
                writer.number(atomic.length);
            }
            Self::Done { number, result } => {
                writer.kind(DONE);
                writer.number(number);
                writer.byte(result.err().map_or(0, Refusal::number));
            }
            _ => unreachable!("`encode` has written the others"),
        }
    }

    /// Reads one, and what follows it.
    ///
    /// # Errors
    /// [`BadHeader`]: the peer's fault.
    #[inline(always)]
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), BadHeader> {
        let (&kind, rest) = bytes.split_first().ok_or(BadHeader::Cut)?;
        let mut reader = Reader(rest);
        if kind & !(IS_TAGGED | HAS_DATA | CONFIRM) == EAGER {
            let tag = reader.number_if(kind & IS_TAGGED != 0)?;
            let data = reader.number_if(kind & HAS_DATA != 0)?;
            let confirm = reader.number_if(kind & CONFIRM != 0)?;
            return Ok((Self::Eager { label: Label { tag, data }, confirm }, reader.0));
        }
        Ok((Self::decode_other(kind, &mut reader)?, reader.0))
    }

    fn decode_other(kind: u8, reader: &mut Reader<'_>) -> Result<Self, BadHeader> {
        let is_set = |flag: u8| kind & flag != 0;
        let allowed = match kind & KINDS {
            REQUEST => IS_TAGGED | HAS_DATA | CONFIRM | HAS_ADDRESS,
            WRITE => HAS_DATA,
            ATOMIC => CONFIRM,
            _ => 0,
        };
        if kind & !KINDS & !allowed != 0 {
            return Err(BadHeader::Kind(kind));
        }
        Ok(match kind & KINDS {
            REQUEST => Self::Request {
                label: Label { tag: reader.number_if(is_set(IS_TAGGED))?, data: reader.number_if(is_set(HAS_DATA))? },
                number: reader.number()?,
                length: reader.number()?,
                confirm: is_set(CONFIRM),
                address: reader.number_if(is_set(HAS_ADDRESS))?,
            },
            ANSWER => Self::Answer { number: reader.number()?, receive: reader.number()?, wanted: reader.number()? },
            DATA => Self::Data { receive: reader.number()?, offset: reader.number()? },
            DELIVERED => Self::Delivered { number: reader.number()? },
            ANNOUNCE => Self::Announce,
            RESUME => Self::Resume,
            _ => Self::decode_access(kind, reader)?,
        })
    }

    /// Of what concerns registered memory.
    fn decode_access(kind: u8, reader: &mut Reader<'_>) -> Result<Self, BadHeader> {
        Ok(match kind & KINDS {
            WRITE => {
                let data = reader.number_if(kind & HAS_DATA != 0)?;
                Self::Write { data, number: reader.number()?, at: reader.remote()?, length: reader.number()? }
            }
            REST => Self::Rest { number: reader.number()?, offset: reader.number()? },
            READ => Self::Read { number: reader.number()?, at: reader.remote()?, length: reader.number()? },
            RETURNED => Self::Returned { number: reader.number()?, offset: reader.number()? },
            ATOMIC => {
                let (number, at) = (reader.number()?, reader.remote()?);
                let (operation, of, length) = (reader.byte()?, reader.byte()?, reader.number()?);
                let operation = AtomicOperation::numbered(operation).ok_or(BadHeader::Number(operation))?;
                let of = AtomicType::numbered(of).ok_or(BadHeader::Number(of))?;
                Self::Atomic { number, at, atomic: Atomic { operation, of, length, fetches: kind & CONFIRM != 0 } }
            }
            DONE => {
                let (number, refusal) = (reader.number()?, reader.byte()?);
                let refused = Refusal::numbered(refusal);
                if refused.is_none() && refusal != 0 {
                    return Err(BadHeader::Number(refusal));
                }
                Self::Done { number, result: refused.map_or(Ok(()), Err) }
            }
            _ => return Err(BadHeader::Kind(kind)),
        })
    }
}

#[inline]
fn flags(label: Label) -> u8 {
    (if label.tag.is_some() { IS_TAGGED } else { 0 }) | if label.data.is_some() { HAS_DATA } else { 0 }
}

struct Writer<'a> {
    into: &'a mut [u8; HEAD_MAX],
    end: usize,
}

impl Writer<'_> {
    #[inline]
    fn kind(&mut self, kind: u8) {
        self.into[0] = kind;
    }

    #[inline]
    fn number_if(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.number(number);
        }
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.into[self.end..self.end + 8].copy_from_slice(&number.to_be_bytes());
        self.end += 8;
    }

    fn byte(&mut self, byte: u8) {
        self.into[self.end] = byte;
        self.end += 1;
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline]
    fn number(&mut self) -> Result<u64, BadHeader> {
        let (number, rest) = self.0.split_first_chunk().ok_or(BadHeader::Cut)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*number))
    }

    #[inline]
    fn number_if(&mut self, is_there: bool) -> Result<Option<u64>, BadHeader> {
        if is_there { self.number().map(Some) } else { Ok(None) }
    }

    fn remote(&mut self) -> Result<Remote, BadHeader> {
        Ok(Remote { key: self.number()?, offset: self.number()? })
    }

    fn byte(&mut self) -> Result<u8, BadHeader> {
        let (&byte, rest) = self.0.split_first().ok_or(BadHeader::Cut)?;
        self.0 = rest;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remotes() -> impl Strategy<Value = Remote> {
        any::<[u64; 2]>().prop_map(|[key, offset]| Remote { key, offset })
    }

    fn headers() -> impl Strategy<Value = Header> {
        let label = || (any::<Option<u64>>(), any::<Option<u64>>()).prop_map(|(tag, data)| Label { tag, data });
        prop_oneof![
            (label(), any::<Option<u64>>()).prop_map(|(label, confirm)| Header::Eager { label, confirm }),
            (label(), any::<[u64; 2]>(), any::<bool>(), any::<Option<u64>>()).prop_map(
                |(label, [number, length], confirm, address)| {
                    Header::Request { label, number, length, confirm, address }
                }
            ),
            any::<[u64; 3]>().prop_map(|[number, receive, wanted]| Header::Answer { number, receive, wanted }),
            any::<[u64; 2]>().prop_map(|[receive, offset]| Header::Data { receive, offset }),
            any::<u64>().prop_map(|number| Header::Delivered { number }),
            Just(Header::Announce),
            Just(Header::Resume),
            (remotes(), any::<[u64; 2]>(), any::<Option<u64>>())
                .prop_map(|(at, [number, length], data)| Header::Write { number, at, length, data }),
            any::<[u64; 2]>().prop_map(|[number, offset]| Header::Rest { number, offset }),
            (remotes(), any::<[u64; 2]>()).prop_map(|(at, [number, length])| Header::Read { number, at, length }),
            any::<[u64; 2]>().prop_map(|[number, offset]| Header::Returned { number, offset }),
            (remotes(), any::<[u64; 2]>(), 0..19u8, 0..12u8, any::<bool>()).prop_map(
                |(at, [number, length], operation, of, fetches)| {
                    let operation = AtomicOperation::numbered(operation).unwrap();
                    let of = AtomicType::numbered(of).unwrap();
                    Header::Atomic { number, at, atomic: Atomic { operation, of, length, fetches } }
                }
            ),
            (any::<u64>(), 0..6u8).prop_map(|(number, refusal)| Header::Done {
                number,
                result: Refusal::numbered(refusal).map_or(Ok(()), Err)
            }),
        ]
    }

    proptest! {
        /// Proves that what is written is read again, with what follows, and that a cut head is recognised.
        #[test]
        fn heads_survive_and_cut_ones_are_refused(header in headers(), body in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = [0; HEAD_MAX];
            let length = header.encode(&mut bytes);
            let message = [&bytes[..length], &body].concat();
            prop_assert_eq!(Header::decode(&message), Ok((header, &body[..])));
            for cut in 0..length {
                prop_assert_eq!(Header::decode(&bytes[..cut]), Err(BadHeader::Cut));
            }
        }

        /// Proves that any bytes are a head or are refused with a name, and that no two ways of writing one exist.
        #[test]
        fn any_bytes_are_a_head_or_are_refused(kind: u8, rest in prop::collection::vec(any::<u8>(), 0..60)) {
            let message = [&[kind][..], &rest].concat();
            if let Ok((header, body)) = Header::decode(&message) {
                let mut bytes = [0; HEAD_MAX];
                let length = header.encode(&mut bytes);
                prop_assert_eq!([&bytes[..length], body].concat(), message);
            }
        }
    }
}
