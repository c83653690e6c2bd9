// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Message header: precedes the payload, in the head of the endpoint's message. Integers are big endian.
//!
//! ```text
//! eager      | kind | tag 8, if T | data 8, if D | number 8, if C | bytes …
//! request    | kind | tag 8, if T | data 8, if D | number 8 | length 8 | address 8, if A
//! answer     | kind | number 8 | receive 8 | wanted 8
//! data       | kind | receive 8 | offset 8 | bytes …
//! delivered  | kind | number 8
//! announce   | kind |
//! resume     | kind |
//! write      | kind | data 8, if D | number 8 | key 8 | offset 8 | length 8 | bytes …
//! rest       | kind | number 8 | offset 8 | bytes …             more of a write, at this offset
//! read       | kind | number 8 | key 8 | offset 8 | length 8
//! returned   | kind | number 8 | offset 8 | bytes …             read data, at this offset
//! atomic     | kind | number 8 | key 8 | offset 8 | operation 1 | type 1 | length 8 | operand … | compared …
//! done       | kind | number 8 | refusal 1, or 0
//!
//! kind       A C D T k k k k      T: has tag; D: has data; C: needs a delivery confirmation (atomic: fetches);
//!                                 A: has the message's address in its process; k: kind of header
//! ```
//!
//! *number* is the sender's key of its send or access, *receive* the receiver's key of its receive: each side returns
//! the other's key and validates its own. A write's length covers all its bytes, an atomic operation's covers its
//! elements.

use barewire_endpoint::HEAD_MAX;
use thiserror::Error;

use crate::atomic::{AtomicOperation, AtomicType};
use crate::regions::{Refusal, RemoteAddress};

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
const KIND_MASK: u8 = 0x0f;
const IS_TAGGED: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const CONFIRM: u8 = 0x40;
const HAS_ADDRESS: u8 = 0x80;

/// Metadata that a message carries with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Label {
    /// The tag; `None` for a message that only untagged receives match.
    pub tag: Option<u64>,
    /// Remote CQ data, reported by the receiver's completion.
    pub data: Option<u64>,
}

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// An eager message.
    Eager { label: Label, confirm: Option<u64> },
    /// Requests a rendezvous for a message of `length` bytes. With `address`, a local peer can fetch it from there, and
    /// then answers with `wanted` 0.
    Request { label: Label, number: u64, length: u64, confirm: bool, address: Option<u64> },
    /// The requested message is matched: send its first `wanted` bytes.
    Answer { number: u64, receive: u64, wanted: u64 },
    /// Data of a rendezvous message.
    Data { receive: u64, offset: u64 },
    /// The message is in the receiver's buffer.
    Delivered { number: u64 },
    /// Use rendezvous for all messages from now on: memory for unexpected messages runs short.
    Announce,
    /// Ends [`Announce`](Self::Announce).
    Resume,
    /// Writes to registered memory: the first bytes, of `length` in all.
    Write { number: u64, at: RemoteAddress, length: u64, data: Option<u64> },
    /// Further bytes of a write.
    Rest { number: u64, offset: u64 },
    /// Reads registered memory.
    Read { number: u64, at: RemoteAddress, length: u64 },
    /// Data of a read, or the previous values of an atomic operation.
    Returned { number: u64, offset: u64 },
    /// Applies an atomic operation to elements of registered memory.
    Atomic { number: u64, at: RemoteAddress, atomic: Atomic },
    /// An access that returns no data has ended.
    Done { number: u64, result: Result<(), Refusal> },
}

/// An atomic operation's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub operation: AtomicOperation,
    pub datatype: AtomicType,
    /// Length of all elements, in bytes.
    pub length: u64,
    /// The previous values are returned.
    pub fetches: bool,
}

/// Why a header does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum HeaderError {
    #[error("unknown kind of header: {0:#04x}")]
    Kind(u8),
    #[error("truncated header")]
    Truncated,
    #[error("unknown operation, type or refusal: {0}")]
    Value(u8),
}

impl Header {
    /// Encodes the header; returns its length in bytes.
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

    /// Encodes all but eager messages, which stay on the fast path.
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
                writer.byte(atomic.datatype as u8);
                writer.number(atomic.length);
            }
            Self::Done { number, result } => {
                writer.kind(DONE);
                writer.number(number);
                writer.byte(result.err().map_or(0, Refusal::number));
            }
            _ => unreachable!("handled by `encode`"),
        }
    }

    /// Decodes a header; returns it and the payload.
    ///
    /// # Errors
    /// [`HeaderError`]: the peer's fault.
    #[inline(always)]
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let (&kind, rest) = bytes.split_first().ok_or(HeaderError::Truncated)?;
        let mut reader = Reader(rest);
        if kind & !(IS_TAGGED | HAS_DATA | CONFIRM) == EAGER {
            let tag = reader.number_if(kind & IS_TAGGED != 0)?;
            let data = reader.number_if(kind & HAS_DATA != 0)?;
            let confirm = reader.number_if(kind & CONFIRM != 0)?;
            return Ok((Self::Eager { label: Label { tag, data }, confirm }, reader.0));
        }
        Ok((Self::decode_other(kind, &mut reader)?, reader.0))
    }

    fn decode_other(kind: u8, reader: &mut Reader<'_>) -> Result<Self, HeaderError> {
        let is_set = |flag: u8| kind & flag != 0;
        let allowed = match kind & KIND_MASK {
            REQUEST => IS_TAGGED | HAS_DATA | CONFIRM | HAS_ADDRESS,
            WRITE => HAS_DATA,
            ATOMIC => CONFIRM,
            _ => 0,
        };
        if kind & !KIND_MASK & !allowed != 0 {
            return Err(HeaderError::Kind(kind));
        }
        Ok(match kind & KIND_MASK {
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

    fn decode_access(kind: u8, reader: &mut Reader<'_>) -> Result<Self, HeaderError> {
        Ok(match kind & KIND_MASK {
            WRITE => {
                let data = reader.number_if(kind & HAS_DATA != 0)?;
                Self::Write { data, number: reader.number()?, at: reader.remote()?, length: reader.number()? }
            }
            REST => Self::Rest { number: reader.number()?, offset: reader.number()? },
            READ => Self::Read { number: reader.number()?, at: reader.remote()?, length: reader.number()? },
            RETURNED => Self::Returned { number: reader.number()?, offset: reader.number()? },
            ATOMIC => {
                let (number, at) = (reader.number()?, reader.remote()?);
                let (operation, datatype, length) = (reader.byte()?, reader.byte()?, reader.number()?);
                let operation = AtomicOperation::from_number(operation).ok_or(HeaderError::Value(operation))?;
                let datatype = AtomicType::from_number(datatype).ok_or(HeaderError::Value(datatype))?;
                Self::Atomic {
                    number,
                    at,
                    atomic: Atomic { operation, datatype, length, fetches: kind & CONFIRM != 0 },
                }
            }
            DONE => {
                let (number, refusal) = (reader.number()?, reader.byte()?);
                let refused = Refusal::from_number(refusal);
                if refused.is_none() && refusal != 0 {
                    return Err(HeaderError::Value(refusal));
                }
                Self::Done { number, result: refused.map_or(Ok(()), Err) }
            }
            _ => return Err(HeaderError::Kind(kind)),
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
    fn number(&mut self) -> Result<u64, HeaderError> {
        let (number, rest) = self.0.split_first_chunk().ok_or(HeaderError::Truncated)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*number))
    }

    #[inline]
    fn number_if(&mut self, is_present: bool) -> Result<Option<u64>, HeaderError> {
        if is_present { self.number().map(Some) } else { Ok(None) }
    }

    fn remote(&mut self) -> Result<RemoteAddress, HeaderError> {
        Ok(RemoteAddress { key: self.number()?, offset: self.number()? })
    }

    fn byte(&mut self) -> Result<u8, HeaderError> {
        let (&byte, rest) = self.0.split_first().ok_or(HeaderError::Truncated)?;
        self.0 = rest;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remotes() -> impl Strategy<Value = RemoteAddress> {
        any::<[u64; 2]>().prop_map(|[key, offset]| RemoteAddress { key, offset })
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
                |(at, [number, length], operation, datatype, fetches)| {
                    let operation = AtomicOperation::from_number(operation).unwrap();
                    let datatype = AtomicType::from_number(datatype).unwrap();
                    Header::Atomic { number, at, atomic: Atomic { operation, datatype, length, fetches } }
                }
            ),
            (any::<u64>(), 0..6u8).prop_map(|(number, refusal)| Header::Done {
                number,
                result: Refusal::from_number(refusal).map_or(Ok(()), Err)
            }),
        ]
    }

    proptest! {
        /// Proves that headers and payloads survive a round trip, and that truncated headers are recognised.
        #[test]
        fn headers_round_trip_and_truncated_ones_are_refused(header in headers(), body in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = [0; HEAD_MAX];
            let length = header.encode(&mut bytes);
            let message = [&bytes[..length], &body].concat();
            prop_assert_eq!(Header::decode(&message), Ok((header, &body[..])));
            for cut in 0..length {
                prop_assert_eq!(Header::decode(&bytes[..cut]), Err(HeaderError::Truncated));
            }
        }

        /// Proves that any bytes decode to a header or a named error, and that each header has one encoding.
        #[test]
        fn any_bytes_decode_or_are_refused(kind: u8, rest in prop::collection::vec(any::<u8>(), 0..60)) {
            let message = [&[kind][..], &rest].concat();
            if let Ok((header, body)) = Header::decode(&message) {
                let mut bytes = [0; HEAD_MAX];
                let length = header.encode(&mut bytes);
                prop_assert_eq!([&bytes[..length], body].concat(), message);
            }
        }
    }
}
