// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes before a message's bytes, in the head of the endpoint's message. Numbers are big endian.
//!
//! ```text
//! eager      | kind | tag 8, if tagged | data 8, if any | number 8, if it is to be confirmed | bytes …
//! request    | kind | tag 8, if tagged | data 8, if any | number 8 | length 8
//! answer     | kind | number 8 | receive 8 | wanted 8
//! data       | kind | receive 8 | offset 8 | bytes …
//! delivered  | kind | number 8
//! announce   | kind |
//! resume     | kind |
//!
//! kind       0 C D T k k k k      T: tagged; D: has data; C: is to be confirmed; k: which of the seven
//! ```
//!
//! A *number* is the sender's own name for its send, a *receive* the receiver's for its receive: each side repeats the
//! other's and checks its own.

use barewire_endpoint::HEAD_MAX;
use thiserror::Error;

const EAGER: u8 = 1;
const REQUEST: u8 = 2;
const ANSWER: u8 = 3;
const DATA: u8 = 4;
const DELIVERED: u8 = 5;
const ANNOUNCE: u8 = 6;
const RESUME: u8 = 7;
const KINDS: u8 = 0x0f;
const IS_TAGGED: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const CONFIRM: u8 = 0x40;

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
    /// A message of `length` bytes that is sent once it is matched.
    Request { label: Label, number: u64, length: u64, confirm: bool },
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
}

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadHeader {
    #[error("a kind of head that does not exist: {0:#04x}")]
    Kind(u8),
    #[error("a head that is cut")]
    Cut,
}

impl Header {
    /// Writes it; how long it is.
    #[inline]
    pub fn encode(&self, into: &mut [u8; HEAD_MAX]) -> usize {
        let mut writer = Writer { into, end: 1 };
        match *self {
            Self::Eager { label, confirm } => {
                writer.kind(EAGER | flags(label) | if confirm.is_some() { CONFIRM } else { 0 });
                for number in [label.tag, label.data, confirm].into_iter().flatten() {
                    writer.number(number);
                }
            }
            Self::Request { label, number, length, confirm } => {
                writer.kind(REQUEST | flags(label) | if confirm { CONFIRM } else { 0 });
                for number in [label.tag, label.data, Some(number), Some(length)].into_iter().flatten() {
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
        }
        writer.end
    }

    /// Reads one, and what follows it.
    ///
    /// # Errors
    /// [`BadHeader`]: the peer's fault.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), BadHeader> {
        let (&kind, rest) = bytes.split_first().ok_or(BadHeader::Cut)?;
        let mut reader = Reader(rest);
        let is_set = |flag: u8| kind & flag != 0;
        let allowed = match kind & KINDS {
            EAGER | REQUEST => IS_TAGGED | HAS_DATA | CONFIRM,
            _ => 0,
        };
        if kind & !KINDS & !allowed != 0 {
            return Err(BadHeader::Kind(kind));
        }
        let header = match kind & KINDS {
            EAGER => Self::Eager {
                label: Label { tag: reader.number_if(is_set(IS_TAGGED))?, data: reader.number_if(is_set(HAS_DATA))? },
                confirm: reader.number_if(is_set(CONFIRM))?,
            },
            REQUEST => Self::Request {
                label: Label { tag: reader.number_if(is_set(IS_TAGGED))?, data: reader.number_if(is_set(HAS_DATA))? },
                number: reader.number()?,
                length: reader.number()?,
                confirm: is_set(CONFIRM),
            },
            ANSWER => Self::Answer { number: reader.number()?, receive: reader.number()?, wanted: reader.number()? },
            DATA => Self::Data { receive: reader.number()?, offset: reader.number()? },
            DELIVERED => Self::Delivered { number: reader.number()? },
            ANNOUNCE => Self::Announce,
            RESUME => Self::Resume,
            _ => return Err(BadHeader::Kind(kind)),
        };
        Ok((header, reader.0))
    }
}

fn flags(label: Label) -> u8 {
    (if label.tag.is_some() { IS_TAGGED } else { 0 }) | if label.data.is_some() { HAS_DATA } else { 0 }
}

struct Writer<'a> {
    into: &'a mut [u8; HEAD_MAX],
    end: usize,
}

impl Writer<'_> {
    fn kind(&mut self, kind: u8) {
        self.into[0] = kind;
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.into[self.end..self.end + 8].copy_from_slice(&number.to_be_bytes());
        self.end += 8;
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        let label = || (any::<Option<u64>>(), any::<Option<u64>>()).prop_map(|(tag, data)| Label { tag, data });
        prop_oneof![
            (label(), any::<Option<u64>>()).prop_map(|(label, confirm)| Header::Eager { label, confirm }),
            (label(), any::<[u64; 2]>(), any::<bool>())
                .prop_map(|(label, [number, length], confirm)| { Header::Request { label, number, length, confirm } }),
            any::<[u64; 3]>().prop_map(|[number, receive, wanted]| Header::Answer { number, receive, wanted }),
            any::<[u64; 2]>().prop_map(|[receive, offset]| Header::Data { receive, offset }),
            any::<u64>().prop_map(|number| Header::Delivered { number }),
            Just(Header::Announce),
            Just(Header::Resume),
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
        fn any_bytes_are_a_head_or_are_refused(kind: u8, rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let message = [&[kind][..], &rest].concat();
            if let Ok((header, body)) = Header::decode(&message) {
                let mut bytes = [0; HEAD_MAX];
                let length = header.encode(&mut bytes);
                prop_assert_eq!([&bytes[..length], body].concat(), message);
            }
        }
    }
}
