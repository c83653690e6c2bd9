// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The check of frames between our stations: CRC32C (Castagnoli), over what [`barewire_llc::extension`] says.

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a frame's destination and source.
pub(crate) const ADDRESSES: usize = 12;

/// Over the addresses of a frame, destination and source, over the first bytes of its LLC PDU, up to the control field, and
/// over what follows. The PDU's first bytes are the register's first value: that covers them and costs nothing.
#[inline]
pub(crate) fn check<'a>(addresses: &[u8], head: &[u8], pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut first = [0xff; 4];
    first.iter_mut().zip(head).for_each(|(first, byte)| *first ^= byte);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(u32::from_le_bytes(first)));
    digest.update(addresses);
    for piece in pieces {
        if !piece.is_empty() {
            digest.update(piece);
        }
    }
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRC algorithms, and that bits anywhere count.
    #[test]
    fn it_is_crc32c_with_the_head_in_front() {
        assert_eq!(check(b"1234", &[], [&b"56789"[..]]), 0xe306_9283);
        assert_eq!(check(b"12", &[], [&b"34"[..], b"", b"56789"]), 0xe306_9283);
        // As if the head's four bytes stood before what follows, behind a register that is 0 instead of all ones.
        let usual = check(b"addresses", b"LLC!", [&b"123456789"[..]]);
        for bit in 0..32 {
            let mut head = *b"LLC!";
            head[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(b"addresses", &head, [&b"123456789"[..]]), usual);
        }
        for bit in 0..72 {
            let mut rest = *b"123456789";
            rest[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(b"addresses", b"LLC!", [&rest[..]]), usual);
        }
    }
}
