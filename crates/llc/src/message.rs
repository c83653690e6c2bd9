// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages longer than one information field, over a connection: which delivers the fragments in order
//! and once, so that they need no numbers.
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

/// The bytes before the data of a message that is one fragment.
#[inline]
#[must_use]
pub const fn whole(total: u32) -> [u8; FIRST_HEADER] {
    let [a, b, c, d] = total.to_be_bytes();
    [FIRST | LAST, a, b, c, d]
}

/// Whether a message begins with a fragment.
#[inline]
#[must_use]
pub const fn is_first(fragment: &[u8]) -> bool {
    matches!(fragment, [flags, ..] if *flags & FIRST != 0)
}

/// Whether a fragment is a message by itself.
#[inline]
#[must_use]
pub const fn is_whole(fragment: &[u8]) -> bool {
    matches!(fragment, [flags, ..] if *flags & (FIRST | LAST) == FIRST | LAST)
}

/// Cuts a message of known length into fragments: yields for each its header and which bytes follow.
#[derive(Clone, Debug)]
pub struct Cutter {
    total: u32,
    cut: u32,
    room: u32,
    is_done: bool,
}

/// One fragment: its header, and the part of the message that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    header: [u8; FIRST_HEADER],
    header_length: u8,
    /// First byte of the message in this fragment.
    pub start: u32,
    /// One after its last byte.
    pub end: u32,
}

impl Fragment {
    /// The bytes before the data.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length)]
    }
}

impl Cutter {
    /// For a message of `total` bytes in fragments of at most `room` bytes, headers included. `None` if that
    /// leaves no room for data.
    #[must_use]
    pub fn new(total: u32, room: u32) -> Option<Self> {
        (room as usize > FIRST_HEADER).then_some(Self { total, cut: 0, room, is_done: false })
    }
}

impl Iterator for Cutter {
    type Item = Fragment;

    #[inline]
    fn next(&mut self) -> Option<Fragment> {
        if self.is_done {
            return None;
        }
        let is_first = self.cut == 0;
        let header_length = if is_first { FIRST_HEADER } else { OTHER_HEADER };
        let start = self.cut;
        let end = self.total.min(start.saturating_add(self.room - header_length as u32));
        (self.cut, self.is_done) = (end, end == self.total);
        let [a, b, c, d] = self.total.to_be_bytes();
        let flags = if is_first { FIRST } else { 0 } | if self.is_done { LAST } else { 0 };
        Some(Fragment { header: [flags, a, b, c, d], header_length: header_length as u8, start, end })
    }
}

/// Puts fragments together in a buffer of the caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reassembler {
    /// Total length and bytes in place of the message that is under way.
    under_way: Option<(u32, u32)>,
}

/// What a fragment brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The length of the whole message.
    pub total: u32,
    /// Where in it these bytes belong.
    pub offset: u32,
    /// Which may be none, of an empty message.
    pub bytes: &'a [u8],
}

impl Piece<'_> {
    /// Whether a message begins with it.
    #[inline]
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Whether the message is complete with it.
    #[inline]
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.offset as usize + self.bytes.len() == self.total as usize
    }
}

/// What a fragment did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is to come; so many bytes are in place.
    Partial(u32),
    /// The message is complete: its length.
    Complete(u32),
}

/// Why a fragment does not fit. Over a connection this is the peer's fault, and the connection is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFragment {
    /// Shorter than its header.
    Malformed,
    /// A message begins before the last one ended.
    UnexpectedFirst,
    /// A message goes on that has not begun.
    MissingFirst,
    /// The message is longer than the buffer.
    TooLong {
        /// What it says.
        total: u32,
    },
    /// More bytes than the message said, or fewer at its last fragment.
    WrongLength,
}

impl fmt::Display for BadFragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed fragment"),
            Self::UnexpectedFirst => f.write_str("a message begins before the last one ended"),
            Self::MissingFirst => f.write_str("a message goes on that has not begun"),
            Self::TooLong { total } => write!(f, "a message of {total} bytes exceeds the buffer"),
            Self::WrongLength => f.write_str("a message is not as long as it said"),
        }
    }
}

impl core::error::Error for BadFragment {}

impl Reassembler {
    /// Between two messages.
    #[must_use]
    pub const fn new() -> Self {
        Self { under_way: None }
    }

    /// The message, if a fragment is all of one and says so as [`whole`] does, and none is under way. Nothing changes.
    #[inline(always)]
    #[must_use]
    pub fn whole<'a>(&self, fragment: &'a [u8]) -> Option<&'a [u8]> {
        let (header, message) = fragment.split_first_chunk()?;
        (self.under_way.is_none() && *header == whole(message.len() as u32)).then_some(message)
    }

    /// The length of the message that a fragment begins, so that the caller can choose a buffer for it;
    /// `None` if it does not begin one.
    #[must_use]
    pub fn announced(fragment: &[u8]) -> Option<u32> {
        match *fragment {
            [flags, a, b, c, d, ..] if flags & FIRST != 0 => Some(u32::from_be_bytes([a, b, c, d])),
            _ => None,
        }
    }

    /// Copies a fragment's data to its place in `buffer`, which must be the same for all of a message. Its
    /// length is the longest message that is accepted.
    ///
    /// # Errors
    /// Why the fragment does not fit; nothing has changed then.
    #[inline]
    pub fn place(&mut self, fragment: &[u8], buffer: &mut [u8]) -> Result<Progress, BadFragment> {
        let piece = self.accept(fragment, buffer.len())?;
        let end = piece.offset as usize + piece.bytes.len();
        buffer[piece.offset as usize..end].copy_from_slice(piece.bytes);
        Ok(if piece.is_last() { Progress::Complete(piece.total) } else { Progress::Partial(end as u32) })
    }

    /// Takes a fragment of a message of at most `longest` bytes, and leaves it to the caller where its bytes go.
    ///
    /// # Errors
    /// Why the fragment does not fit; nothing has changed then.
    #[inline]
    pub fn accept<'a>(&mut self, fragment: &'a [u8], longest: usize) -> Result<Piece<'a>, BadFragment> {
        let (total, offset, is_last, bytes) = self.parse(fragment, longest)?;
        let end = offset.checked_add(bytes.len() as u32).filter(|end| *end <= total).ok_or(BadFragment::WrongLength)?;
        if is_last != (end == total) {
            return Err(BadFragment::WrongLength);
        }
        self.under_way = (!is_last).then_some((total, end));
        Ok(Piece { total, offset, bytes })
    }

    /// Total length, bytes in place before, whether it is the last, data.
    fn parse<'a>(&self, fragment: &'a [u8], room: usize) -> Result<(u32, u32, bool, &'a [u8]), BadFragment> {
        let (&flags, rest) = fragment.split_first().ok_or(BadFragment::Malformed)?;
        let is_last = flags & LAST != 0;
        match (flags & FIRST != 0, self.under_way) {
            (true, None) => {
                let (length, data) = rest.split_first_chunk::<4>().ok_or(BadFragment::Malformed)?;
                let total = u32::from_be_bytes(*length);
                match total as usize {
                    bytes if bytes > room => Err(BadFragment::TooLong { total }),
                    // The next one would begin at the same place, as if it were the first.
                    1.. if data.is_empty() => Err(BadFragment::WrongLength),
                    _ => Ok((total, 0, is_last, data)),
                }
            }
            (true, Some(_)) => Err(BadFragment::UnexpectedFirst),
            (false, None) => Err(BadFragment::MissingFirst),
            (false, Some((total, _))) if total as usize > room => Err(BadFragment::TooLong { total }),
            // An empty fragment that is not the last would never end.
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
        /// Proves that what is cut comes together again, in as few fragments as fit.
        #[test]
        fn messages_survive(message in prop::collection::vec(any::<u8>(), 0..3000), room in 6u32..500) {
            let (mut reassembler, mut buffer) = (Reassembler::new(), vec![0; message.len()]);
            let cutter = Cutter::new(message.len() as u32, room).unwrap();
            let count = cutter.clone().count();
            prop_assert_eq!(count, 1 + (message.len().saturating_sub(room as usize - 5)).div_ceil(room as usize - 1));
            for (number, cut) in cutter.enumerate() {
                prop_assert!(count > 1 || cut.header() == whole(message.len() as u32));
                let fragment = [cut.header(), &message[cut.start as usize..cut.end as usize]].concat();
                prop_assert!(fragment.len() <= room as usize);
                prop_assert_eq!(reassembler.whole(&fragment), (count == 1).then_some(&message[..]));
                let progress = reassembler.place(&fragment, &mut buffer).unwrap();
                prop_assert_eq!(matches!(progress, Progress::Complete(_)), number + 1 == count);
            }
            prop_assert_eq!(buffer, message);
        }

        /// Proves that no sequence of fragments panics or writes outside the buffer.
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
    fn each_fault_has_its_name() {
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
        assert_eq!(place(&[0xfe, 2, 3]), Ok(Progress::Complete(3)), "whatever the round");
        assert_eq!(buffer[..3], [1, 2, 3]);
    }
}
