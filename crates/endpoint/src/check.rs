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
    let state = extend(u32::from_le_bytes(first), addresses);
    !pieces.into_iter().fold(state, extend)
}

/// Bytes up to which the processor's own instruction is faster than the library, which prepares for long ones.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 256;

/// The register after more bytes.
#[inline]
fn extend(state: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { extend_short(state, bytes) };
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    !(digest.finalize() as u32)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn extend_short(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

    let (words, mut rest) = bytes.as_chunks::<8>();
    let wide = words.iter().fold(u64::from(state), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
    let mut state = wide as u32;
    if let Some((half, others)) = rest.split_first_chunk::<4>() {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
        rest = others;
    }
    rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
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

    #[test]
    fn pieces_of_any_length_are_as_one() {
        let bytes: Vec<u8> = (0..1500u32).map(|at| (at * 37 + at / 256) as u8).collect();
        for length in (0..300).chain([511, 1024, 1500]) {
            let whole = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..length]) as u32;
            for cut in [0, length / 3, length.saturating_sub(1), length] {
                let (first, second) = bytes[..length].split_at(cut);
                assert_eq!(check(first, &[], [second]), whole, "{length} bytes, cut at {cut}");
            }
        }
    }
}
