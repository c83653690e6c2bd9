// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fragmentation of messages over a connection. It delivers the fragments in order, exactly once, so that they need
//! no sequence numbers.
//!
//! ```text
//! first fragment   | flags | total length, big endian | bytes …
//!                      1                 4
//! every other      | flags | bytes …
//!                      1
//!
//! flags            0 0 0 0 0 0 L F      F: first fragment, L: last fragment
//! ```

use core::fmt;

/// Bytes before the data of a message's first fragment.
pub const FIRST_HEADER: usize = 5;
/// Bytes before the data of every other fragment.
pub const OTHER_HEADER: usize = 1;

const FIRST: u8 = 0x01;
const LAST: u8 = 0x02;

/// Header of a message in a single fragment.
#[inline]
#[must_use]
pub const fn whole(total: u32) -> [u8; FIRST_HEADER] {
    let [a, b, c, d] = total.to_be_bytes();
    [FIRST | LAST, a, b, c, d]
}

/// Whether a fragment is the first of a message.
#[inline]
#[must_use]
pub const fn is_first(fragment: &[u8]) -> bool {
    matches!(fragment, [flags, ..] if *flags & FIRST != 0)
}

/// Whether a fragment is a whole message.
#[inline]
#[must_use]
pub const fn is_whole(fragment: &[u8]) -> bool {
    matches!(fragment, [flags, ..] if *flags & (FIRST | LAST) == FIRST | LAST)
}

/// Divides a message of known length into fragments.
#[derive(Clone, Debug)]
pub struct Fragmenter {
    total: u32,
    offset: u32,
    room: u32,
    is_done: bool,
}

/// A fragment: its header, and the range of the message that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    header: [u8; FIRST_HEADER],
    header_length: u8,
    /// Offset of its first byte in the message.
    pub start: u32,
    /// Offset after its last byte.
    pub end: u32,
}

impl Fragment {
    /// The fragment header.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length)]
    }
}

impl Fragmenter {
    /// Fragments a message of `total` bytes into fragments of at most `room` bytes, headers included. `None` if that
    /// leaves no room for data.
    #[must_use]
    pub fn new(total: u32, room: u32) -> Option<Self> {
        (room as usize > FIRST_HEADER).then_some(Self { total, offset: 0, room, is_done: false })
    }
}

impl Iterator for Fragmenter {
    type Item = Fragment;

    #[inline]
    fn next(&mut self) -> Option<Fragment> {
        if self.is_done {
            return None;
        }
        let is_first = self.offset == 0;
        let header_length = if is_first { FIRST_HEADER } else { OTHER_HEADER };
        let start = self.offset;
        let end = self.total.min(start.saturating_add(self.room - header_length as u32));
        (self.offset, self.is_done) = (end, end == self.total);
        let [a, b, c, d] = self.total.to_be_bytes();
        let flags = if is_first { FIRST } else { 0 } | if self.is_done { LAST } else { 0 };
        Some(Fragment { header: [flags, a, b, c, d], header_length: header_length as u8, start, end })
    }
}

/// Reassembles messages in the caller's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reassembler {
    /// Total length and bytes received of an incomplete message.
    partial: Option<(u32, u32)>,
}

/// Data of a received fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Length of the whole message.
    pub total: u32,
    /// Offset of these bytes in the message.
    pub offset: u32,
    /// The data; empty for an empty message.
    pub bytes: &'a [u8],
}

impl Piece<'_> {
    /// Whether it begins a message.
    #[inline]
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Whether it completes the message.
    #[inline]
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.offset as usize + self.bytes.len() == self.total as usize
    }
}

/// Progress of a message after a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Incomplete; number of bytes received.
    Partial(u32),
    /// Complete; length of the message.
    Complete(u32),
}

/// Why a fragment is invalid. Over a connection this is the peer's fault, and the connection is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFragment {
    /// Shorter than its header.
    Malformed,
    /// A message begins before the last one ended.
    UnexpectedFirst,
    /// A continuation without a first fragment.
    MissingFirst,
    /// The message is longer than the buffer.
    TooLong {
        /// Its length in bytes.
        total: u32,
    },
    /// More bytes than the announced length, or fewer after the last fragment.
    WrongLength,
}

impl fmt::Display for BadFragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed fragment"),
            Self::UnexpectedFirst => f.write_str("a message begins before the last one ended"),
            Self::MissingFirst => f.write_str("a message continues that has not begun"),
            Self::TooLong { total } => write!(f, "a message of {total} bytes exceeds the buffer"),
            Self::WrongLength => f.write_str("a message does not have its announced length"),
        }
    }
}

impl core::error::Error for BadFragment {}

impl Reassembler {
    /// A reassembler without an incomplete message.
    #[must_use]
    pub const fn new() -> Self {
        Self { partial: None }
    }

    /// The message of a fragment with the header [`whole`], if no message is incomplete. Does not change the state.
    #[inline(always)]
    #[must_use]
    pub fn whole<'a>(&self, fragment: &'a [u8]) -> Option<&'a [u8]> {
        let (header, message) = fragment.split_first_chunk()?;
        (self.partial.is_none() && *header == whole(message.len() as u32)).then_some(message)
    }

    /// Copies a fragment's data to its offset in `buffer`, which must be the same for all fragments of a message and
    /// limits its length.
    ///
    /// # Errors
    /// Why the fragment is invalid; the state is unchanged.
    #[inline]
    pub fn place(&mut self, fragment: &[u8], buffer: &mut [u8]) -> Result<Progress, BadFragment> {
        let piece = self.accept(fragment, buffer.len())?;
        let end = piece.offset as usize + piece.bytes.len();
        buffer[piece.offset as usize..end].copy_from_slice(piece.bytes);
        Ok(if piece.is_last() { Progress::Complete(piece.total) } else { Progress::Partial(end as u32) })
    }

    /// Accepts a fragment of a message of at most `bytes_max` bytes, without copying its data.
    ///
    /// # Errors
    /// Why the fragment is invalid; the state is unchanged.
    #[inline]
    pub fn accept<'a>(&mut self, fragment: &'a [u8], bytes_max: usize) -> Result<Piece<'a>, BadFragment> {
        let (total, offset, is_last, bytes) = self.parse(fragment, bytes_max)?;
        let end = offset.checked_add(bytes.len() as u32).filter(|end| *end <= total).ok_or(BadFragment::WrongLength)?;
        if is_last != (end == total) {
            return Err(BadFragment::WrongLength);
        }
        self.partial = (!is_last).then_some((total, end));
        Ok(Piece { total, offset, bytes })
    }

    /// Total length, offset, whether the fragment is the last, data.
    fn parse<'a>(&self, fragment: &'a [u8], bytes_max: usize) -> Result<(u32, u32, bool, &'a [u8]), BadFragment> {
        let (&flags, rest) = fragment.split_first().ok_or(BadFragment::Malformed)?;
        let is_last = flags & LAST != 0;
        match (flags & FIRST != 0, self.partial) {
            (true, None) => {
                let (length, data) = rest.split_first_chunk::<4>().ok_or(BadFragment::Malformed)?;
                let total = u32::from_be_bytes(*length);
                match total as usize {
                    bytes if bytes > bytes_max => Err(BadFragment::TooLong { total }),
                    // The next fragment would have offset 0 as well.
                    1.. if data.is_empty() => Err(BadFragment::WrongLength),
                    _ => Ok((total, 0, is_last, data)),
                }
            }
            (true, Some(_)) => Err(BadFragment::UnexpectedFirst),
            (false, None) => Err(BadFragment::MissingFirst),
            (false, Some((total, _))) if total as usize > bytes_max => Err(BadFragment::TooLong { total }),
            // Empty continuations would make no progress.
            (false, Some(_)) if rest.is_empty() => Err(BadFragment::WrongLength),
            (false, Some((total, filled))) => Ok((total, filled, is_last, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Reassembles messages from the smallest possible number of fragments.
        #[test]
        fn fragmented_messages_are_reassembled(message in prop::collection::vec(any::<u8>(), 0..3000), room in 6u32..500) {
            let (mut reassembler, mut buffer) = (Reassembler::new(), vec![0; message.len()]);
            let fragmenter = Fragmenter::new(message.len() as u32, room).unwrap();
            let count = fragmenter.clone().count();
            prop_assert_eq!(count, 1 + (message.len().saturating_sub(room as usize - 5)).div_ceil(room as usize - 1));
            for (number, part) in fragmenter.enumerate() {
                prop_assert!(count > 1 || part.header() == whole(message.len() as u32));
                let fragment = [part.header(), &message[part.start as usize..part.end as usize]].concat();
                prop_assert!(fragment.len() <= room as usize);
                prop_assert_eq!(reassembler.whole(&fragment), (count == 1).then_some(&message[..]));
                let progress = reassembler.place(&fragment, &mut buffer).unwrap();
                prop_assert_eq!(matches!(progress, Progress::Complete(_)), number + 1 == count);
            }
            prop_assert_eq!(buffer, message);
        }

        /// No sequence of fragments panics or writes outside the buffer.
        #[test]
        fn any_fragments_are_placed_or_refused(
            fragments in prop::collection::vec((0u8..5, prop::collection::vec(0u8..4, 0..12)), 0..50),
        ) {
            let (mut reassembler, mut buffer) = (Reassembler::new(), [0; 20]);
            for (flags, rest) in fragments {
                let fragment: Vec<u8> = [&[flags][..], &rest].concat();
                let before = reassembler;
                let placed = reassembler.place(&fragment, &mut buffer);
                if placed.is_err() {
                    prop_assert_eq!(reassembler, before);
                }
                if let Some(message) = before.whole(&fragment).filter(|message| message.len() <= 20) {
                    prop_assert_eq!(placed, Ok(Progress::Complete(message.len() as u32)));
                    prop_assert_eq!(message, &buffer[..message.len()]);
                }
            }
        }
    }

    #[test]
    fn each_invalid_fragment_has_its_error() {
        let (mut reassembler, mut buffer) = (Reassembler::new(), [0; 10]);
        let mut place = |fragment: &[u8]| reassembler.place(fragment, &mut buffer);
        assert_eq!(place(&[]), Err(BadFragment::Malformed));
        assert_eq!(place(&[0x01, 0, 0, 0]), Err(BadFragment::Malformed));
        assert_eq!(place(&[0x00, 1]), Err(BadFragment::MissingFirst));
        assert_eq!(place(&[0x01, 0, 0, 0, 11]), Err(BadFragment::TooLong { total: 11 }));
        assert_eq!(place(&[0x01, 0, 0, 0, 3]), Err(BadFragment::WrongLength));
        assert_eq!(place(&[0x01, 0, 0, 0, 3, 1]), Ok(Progress::Partial(1)));
        assert_eq!(place(&[0x01, 0, 0, 0, 3, 1]), Err(BadFragment::UnexpectedFirst));
        assert_eq!(place(&[0x02, 1]), Err(BadFragment::WrongLength));
        assert_eq!(place(&[0x00, 1, 2, 3]), Err(BadFragment::WrongLength));
        assert_eq!(place(&[0xfe, 2, 3]), Ok(Progress::Complete(3)), "reserved flags are ignored");
        assert_eq!(buffer[..3], [1, 2, 3]);
    }
}
