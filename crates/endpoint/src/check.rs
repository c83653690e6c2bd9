// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The check of frames between Barewire stations: CRC32C (Castagnoli) over what [`barewire_llc::extension`] defines.

use barewire_link::ETHERNET_HEADER_BYTES;
use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a frame's destination and source addresses.
pub(crate) const ADDRESSES: usize = 12;

/// The addresses in an Ethernet header.
#[inline]
pub(crate) fn addresses(header: &[u8; ETHERNET_HEADER_BYTES]) -> &[u8; ADDRESSES] {
    header.first_chunk().expect("a header begins with them")
}

/// CRC over a frame's destination and source, the start of its LLC PDU up to the control field, and what follows. The
/// start of the PDU is folded into the register's initial value, which covers it at no cost.
#[inline]
pub(crate) fn check<const N: usize>(addresses: &[u8; ADDRESSES], head: &[u8], pieces: [&[u8]; N]) -> u32 {
    let mut first = [0xff; 4];
    first.iter_mut().zip(head).for_each(|(first, byte)| *first ^= byte);
    let first = u32::from_le_bytes(first);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor supports SSE4.2.
        return !unsafe { x86::extend(first, addresses, pieces) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor supports the CRC32 instructions.
        return !unsafe { arm::extend(first, addresses, pieces) };
    }
    !pieces.into_iter().fold(extend(first, addresses), extend)
}

/// Extends the CRC register by `bytes`.
fn extend(state: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    !(digest.finalize() as u32)
}

/// Size in bytes up to which the processor's CRC32 instruction is faster than the library, which has a set-up cost.
/// Measured on x86-64.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SHORT: usize = 256;

/// The same with the processor's CRC32 instruction, without a function call for each piece.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

    use super::{ADDRESSES, SHORT};

    #[target_feature(enable = "sse4.2")]
    pub(super) fn extend<const N: usize>(mut state: u32, addresses: &[u8; ADDRESSES], pieces: [&[u8]; N]) -> u32 {
        // Loads each address as it was stored, 4 and 2 bytes: other sizes would miss store forwarding.
        for address in addresses.as_chunks::<6>().0 {
            let [a, b, c, d, e, f] = *address;
            state = _mm_crc32_u32(state, u32::from_le_bytes([a, b, c, d]));
            state = _mm_crc32_u16(state, u16::from_le_bytes([e, f]));
        }
        for piece in pieces {
            state = if piece.len() <= SHORT { short(state, piece) } else { super::extend(state, piece) };
        }
        state
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn short(state: u32, bytes: &[u8]) -> u32 {
        let (words, mut rest) = bytes.as_chunks::<8>();
        let wide = words.iter().fold(u64::from(state), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
        let mut state = wide as u32;
        if let Some((half, others)) = rest.split_first_chunk::<4>() {
            state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
            rest = others;
        }
        rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
    }
}

/// As [`x86`]. The instructions are part of every processor from ARMv8.1 on, and of the Cortex-A53 and A72.
#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::{__crc32cb, __crc32cd, __crc32ch, __crc32cw};

    use super::{ADDRESSES, SHORT};

    #[target_feature(enable = "crc")]
    pub(super) fn extend<const N: usize>(mut state: u32, addresses: &[u8; ADDRESSES], pieces: [&[u8]; N]) -> u32 {
        for address in addresses.as_chunks::<6>().0 {
            let [a, b, c, d, e, f] = *address;
            state = __crc32cw(state, u32::from_le_bytes([a, b, c, d]));
            state = __crc32ch(state, u16::from_le_bytes([e, f]));
        }
        for piece in pieces {
            state = if piece.len() <= SHORT { short(state, piece) } else { super::extend(state, piece) };
        }
        state
    }

    #[inline]
    #[target_feature(enable = "crc")]
    fn short(state: u32, bytes: &[u8]) -> u32 {
        let (words, mut rest) = bytes.as_chunks::<8>();
        let mut state = words.iter().fold(state, |state, word| __crc32cd(state, u64::from_le_bytes(*word)));
        if let Some((half, others)) = rest.split_first_chunk::<4>() {
            state = __crc32cw(state, u32::from_le_bytes(*half));
            rest = others;
        }
        rest.iter().fold(state, |state, byte| __crc32cb(state, *byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: &[u8; ADDRESSES] = b"to:AAfrom:BB";

    fn whole(bytes: &[&[u8]]) -> u32 {
        crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &[&[&FRAME[..]], bytes].concat().concat()) as u32
    }

    #[test]
    fn check_is_crc32c_and_covers_addresses_head_and_rest() {
        assert_eq!(check(b"123456789012", &[], [b"34", b"56789"]), !extend(!0, b"1234567890123456789"));
        // The check value in the catalogue of CRC algorithms.
        assert_eq!(!extend(!0, b"123456789"), 0xe306_9283);
        // Equivalent to the head's four bytes before the rest, with an initial register of 0 instead of all ones.
        let original = check(FRAME, b"LLC!", [b"123456789", b""]);
        for bit in 0..32 {
            let mut head = *b"LLC!";
            head[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(FRAME, &head, [b"123456789", b""]), original);
        }
        for bit in 0..96 {
            let mut frame = *FRAME;
            frame[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(&frame, b"LLC!", [b"123456789", b""]), original);
        }
        for bit in 0..72 {
            let mut rest = *b"123456789";
            rest[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(FRAME, b"LLC!", [&rest, b""]), original);
        }
    }

    #[test]
    fn result_does_not_depend_on_how_bytes_are_split_into_pieces() {
        let bytes: Vec<u8> = (0..1500u32).map(|index| (index * 37 + index / 256) as u8).collect();
        for length in (0..300_usize).chain([511, 1024, 1500]) {
            for cut in [0, length / 3, length.saturating_sub(1), length] {
                let (first, second) = bytes[..length].split_at(cut);
                assert_eq!(check(FRAME, &[], [first, second]), whole(&[first, second]), "{length} bytes, cut at {cut}");
            }
        }
    }
}
