// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of long messages that are fast at any alignment.
//!
//! From 2112 bytes on (`glibc.cpu.x86_rep_movsb_threshold`), glibc copies with `rep movsb`, the fastest method between
//! two cores. But on AMD's Zen 3 and 4 its rate drops from some 60 to 3 GB/s if the target is 1 to 15 bytes behind the
//! source modulo the page size, and to half if it is up to 31 bytes behind (glibc bug 30994). Blocks below the
//! threshold are copied with vector instructions, which are not affected.

use std::ptr;

/// Smallest page size; distances matter modulo it.
const PAGE: usize = 4096;
/// Distances in bytes from source to target at which `rep movsb` is slow.
const SLOW_DISTANCES: std::ops::Range<usize> = 1..32;
/// Bytes copied at a time at these distances: below the threshold of any glibc, but enough that a call costs little.
const BLOCK: usize = 1024;

/// Copies non-overlapping memory.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[inline(always)]
pub unsafe fn copy_nonoverlapping(from: *const u8, to: *mut u8, bytes: usize) {
    let is_x86 = cfg!(target_arch = "x86_64");
    if !is_x86 || bytes <= BLOCK || !SLOW_DISTANCES.contains(&((to as usize).wrapping_sub(from as usize) % PAGE)) {
        // SAFETY: as promised by the caller.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    } else {
        // SAFETY: as promised by the caller.
        unsafe { copy_blocks(from, to, bytes) };
    }
}

/// Copies `from` to `to`.
///
/// # Panics
/// If their lengths differ.
#[inline(always)]
pub fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "source and target have the same length");
    // SAFETY: both have the same length, and a shared and an exclusive reference do not overlap.
    unsafe { copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Appends `from` to `to`.
#[inline]
pub fn append(from: &[u8], to: &mut Vec<u8>) {
    to.reserve(from.len());
    let end = to.len();
    // SAFETY: the reserved capacity has room for these bytes, and nothing else uses it.
    unsafe {
        copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr().add(end), from.len());
        to.set_len(end + from.len());
    }
}

/// # Safety
/// As for [`copy_nonoverlapping`].
#[inline(never)]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, bytes: usize) {
    let mut done = 0;
    while done < bytes {
        let block = BLOCK.min(bytes - done);
        // SAFETY: part of the range promised by the caller.
        unsafe { ptr::copy_nonoverlapping(from.add(done), to.add(done), block) };
        done += block;
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use super::*;

    /// At distances at which all is copied in one call, and at those at which it is copied in blocks.
    #[test]
    fn exactly_the_given_bytes_are_copied() {
        let (source, mut target) = (vec![7; 4 * PAGE], vec![0; 4 * PAGE]);
        let (source_page, target_page) = (source.as_ptr().align_offset(PAGE), target.as_ptr().align_offset(PAGE));
        let lengths = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7];
        // All lengths take Miri a minute.
        for &bytes in if cfg!(miri) { &lengths[4..5] } else { &lengths[..] } {
            for &behind in if cfg!(miri) { &[9][..] } else { &[0, 1, 9, 31, 32, 100] } {
                target.fill(0);
                let to = &mut target[target_page + behind..];
                copy(&source[source_page..][..bytes], &mut to[..bytes]);
                assert!(to[..bytes].iter().all(|byte| *byte == 7) && to[bytes..].iter().all(|byte| *byte == 0));
                assert!(target[..target_page + behind].iter().all(|byte| *byte == 0), "{bytes} bytes, {behind} behind");
            }
            let from: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
            let mut appended = vec![9];
            append(&from, &mut appended);
            assert_eq!((appended[0], &appended[1..]), (9, &from[..]));
        }
    }

    #[test]
    #[should_panic(expected = "the same length")]
    fn different_lengths_panic() {
        copy(&[1, 2, 3], &mut [0; 2]);
    }

    /// Copying to a target nine bytes behind its source, modulo the page size, takes about as long as to one 2048 bytes
    /// behind. A single `memcpy` takes twenty times as long there on the affected processors. The minimum of many
    /// samples excludes disturbances.
    #[test]
    #[cfg_attr(miri, ignore = "measures time")]
    fn no_alignment_is_slow() {
        let from = vec![1; 8 * PAGE];
        let mut to = vec![0; 8 * PAGE];
        let source = from.as_ptr().align_offset(PAGE);
        let target = to.as_ptr().align_offset(PAGE);
        let mut best = |distance: usize| {
            let time = |_| {
                let began = Instant::now();
                copy(&from[source..][..4 * PAGE], black_box(&mut to[target + distance..][..4 * PAGE]));
                began.elapsed()
            };
            (0..200).map(time).min().unwrap_or(Duration::MAX)
        };
        let [normal, shifted] = [best(2048), best(9)];
        assert!(shifted < 6 * normal + Duration::from_micros(1), "{shifted:?}, otherwise {normal:?}");
    }
}
