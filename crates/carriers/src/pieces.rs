// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that are too long for the path by UDP, in pieces. A connection repeats a frame as it was, so one that was made
//! before the path carried less, or for Ethernet, can arrive in no other way.
//!
//! ```text
//! | EtherType 2 | DSAP 1 | SSAP 1 | UI 1 | "BWPF" | number 8 | piece 1 | pieces 1 | total 2 | bytes … |
//! ```
//!
//! `number` is that of the frame, from a random start, so that nobody can add a piece who sees none. `total` counts its
//! bytes behind the addresses, of which each piece has an equal part, except that the last may be shorter. A frame is put
//! together whatever order its pieces come in; what lacks one is lost, as a frame is on a wire. Its own check or seal
//! covers the whole.

use barewire_link::{ETHERNET_HEADER_BYTES, MacAddress, Outgoing};

use crate::probe::{ETHER_TYPE_LLC, FORMAT_AT, UI};

pub(crate) const MAGIC: [u8; 4] = *b"BWPF";
/// Bytes of a frame before those of a piece.
const HEADER_BYTES: usize = FORMAT_AT + 4 + 8 + 1 + 1 + 2;
/// Where the frame's number is, and behind it the piece's place.
const NUMBER_AT: usize = FORMAT_AT + 4;
const PLACE_AT: usize = NUMBER_AT + 8;
/// Addresses, which no piece repeats.
const ADDRESSES: usize = 12;
/// Maximum number of pieces of a frame.
const PIECES_MAX: usize = u128::BITS as usize;
/// Frames, of all senders together, that may lack pieces at the same time.
const FRAMES_MAX: usize = 16;

/// Cuts a frame into pieces for frames with a payload of at most `mtu` bytes; none if that would take too many.
pub(crate) fn cut(frame: &Outgoing<'_>, mtu: usize, number: u64) -> Vec<Vec<u8>> {
    let whole = [frame.header, frame.payload].concat();
    let total = whole.len() - ADDRESSES;
    let room = (ETHERNET_HEADER_BYTES + mtu).saturating_sub(HEADER_BYTES).max(1);
    let each = total.div_ceil(total.div_ceil(room));
    let count = total.div_ceil(each);
    if count > PIECES_MAX || total > usize::from(u16::MAX) {
        return Vec::new();
    }
    let mut header = [0; HEADER_BYTES];
    header[..ADDRESSES].copy_from_slice(&whole[..ADDRESSES]);
    header[ADDRESSES..ETHERNET_HEADER_BYTES].copy_from_slice(&ETHER_TYPE_LLC);
    // Responses have bit 0 of the source's service access point.
    header[ETHERNET_HEADER_BYTES..FORMAT_AT].copy_from_slice(&[whole[14], whole[15] & !1, UI]);
    header[FORMAT_AT..FORMAT_AT + 4].copy_from_slice(&MAGIC);
    header[NUMBER_AT..PLACE_AT].copy_from_slice(&number.to_be_bytes());
    header[PLACE_AT + 1] = count as u8;
    header[PLACE_AT + 2..].copy_from_slice(&(total as u16).to_be_bytes());
    let parts = whole[ADDRESSES..].chunks(each).enumerate();
    let piece = |(place, part): (usize, &[u8])| {
        header[PLACE_AT] = place as u8;
        [&header[..], part].concat()
    };
    parts.map(piece).collect()
}

/// Puts frames together.
#[derive(Default)]
pub(crate) struct Pieces {
    frames: Vec<Frame>,
}

/// A frame of which pieces have come.
#[derive(Clone, Default)]
struct Frame {
    from: MacAddress,
    number: u64,
    count: usize,
    /// By piece: whether it has come.
    has: u128,
    /// The frame, with room for addresses.
    bytes: Vec<u8>,
}

impl Pieces {
    /// Takes a piece that came from this address. Returns the frame, if it was the last that was missing; the addresses
    /// are those of the piece.
    pub fn take(&mut self, from: MacAddress, piece: &[u8]) -> Option<&mut [u8]> {
        let (header, part) = piece.split_at_checked(HEADER_BYTES)?;
        let number = u64::from_be_bytes(*header[NUMBER_AT..].first_chunk()?);
        let (place, count) = (usize::from(header[PLACE_AT]), usize::from(header[PLACE_AT + 1]));
        let total = usize::from(u16::from_be_bytes(*header[PLACE_AT + 2..].first_chunk()?));
        if place >= count || count > PIECES_MAX || total <= ETHERNET_HEADER_BYTES {
            return None;
        }
        let each = total.div_ceil(count);
        let (start, end) = (place * each, total.min((place + 1) * each));
        if start >= end || part.len() != end - start {
            return None;
        }
        self.frames.resize_with(FRAMES_MAX, Frame::default);
        let frame = &mut self.frames[number as usize % FRAMES_MAX];
        let bytes = ADDRESSES + total;
        if (frame.from, frame.number, frame.count, frame.bytes.len()) != (from, number, count, bytes) {
            (frame.from, frame.number, frame.count, frame.has) = (from, number, count, 0);
            frame.bytes.clear();
            frame.bytes.resize(bytes, 0);
        }
        frame.bytes[..ADDRESSES].copy_from_slice(&header[..ADDRESSES]);
        frame.bytes[ADDRESSES + start..ADDRESSES + end].copy_from_slice(part);
        frame.has |= 1 << place;
        if frame.has.count_ones() as usize != count {
            return None;
        }
        frame.has = 0;
        Some(&mut frame.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn frame(bytes: usize, seed: u8) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 + at / 251) as u8 ^ seed).collect()
    }

    fn pieces(whole: &[u8], mtu: usize, number: u64) -> Vec<Vec<u8>> {
        let (header, payload) = whole.split_at(20);
        let pieces = cut(&Outgoing { header, payload, label: 0 }, mtu, number);
        assert!(pieces.iter().all(|piece| piece.len() <= ETHERNET_HEADER_BYTES + mtu));
        pieces
    }

    #[test]
    fn a_frame_is_put_together_in_any_order() {
        let mut together = Pieces::default();
        for (number, bytes) in (100..2000).step_by(13).chain([9000, 65_000]).enumerate() {
            let whole = frame(bytes, number as u8);
            for mtu in [546, 600, 1470] {
                for order in 0..3 {
                    let mut pieces = pieces(&whole, mtu, number as u64);
                    match order {
                        1 => pieces.reverse(),
                        2 => pieces.rotate_left(1),
                        _ => {}
                    }
                    // A duplicate changes nothing.
                    pieces.insert(0, pieces[0].clone());
                    let last = pieces.pop().unwrap();
                    if pieces.len() > 1 {
                        assert!(pieces.iter().all(|piece| together.take(FROM, piece).is_none()), "{bytes}, {mtu}");
                    }
                    assert_eq!(together.take(FROM, &last).as_deref(), Some(&whole[..]), "{bytes}, {mtu}");
                }
            }
        }
    }

    #[test]
    fn pieces_of_different_frames_and_senders_are_not_mixed() {
        let other = MacAddress([2, 0, 0, 0, 0, 2]);
        let mut together = Pieces::default();
        let frames: Vec<_> = (0..3).map(|seed| frame(1400, seed)).collect();
        let [a, b, c] =
            [(0, 700, 5), (1, 700, 6), (2, 700, 5)].map(|(at, mtu, number)| pieces(&frames[at], mtu, number));
        for place in 0..a.len() - 1 {
            assert!(together.take(FROM, &a[place]).is_none() && together.take(FROM, &b[place]).is_none());
        }
        let last = a.len() - 1;
        assert_eq!(together.take(FROM, &a[last]).as_deref(), Some(&frames[0][..]));
        assert_eq!(together.take(FROM, &b[last]).as_deref(), Some(&frames[1][..]));
        assert!(together.take(FROM, &a[0]).is_none() && together.take(other, &c[last]).is_none());
        assert!(c[..last - 1].iter().all(|piece| together.take(other, piece).is_none()));
        assert_eq!(together.take(other, &c[last - 1]).as_deref(), Some(&frames[2][..]));
    }

    #[test]
    fn what_is_no_piece_is_ignored() {
        let mut together = Pieces::default();
        let piece = &pieces(&frame(1400, 0), 700, 5)[0];
        for at in 0..piece.len() {
            assert!(together.take(FROM, &piece[..at]).is_none());
        }
        for (at, value) in [(0, 9), (1, 0), (1, 200), (2, 0), (2, 0xff)] {
            let mut wrong = piece.clone();
            wrong[PLACE_AT + at] = value;
            assert!(together.take(FROM, &wrong).is_none(), "{at}: {value}");
        }
        assert!(together.frames.is_empty());
    }

    #[test]
    fn a_frame_of_too_many_pieces_is_not_cut() {
        assert!(pieces(&frame(60_000, 0), 170, 1).is_empty());
    }
}
