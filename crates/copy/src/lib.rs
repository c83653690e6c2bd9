// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of long messages that are fast at any alignment.
//!
//! glibc copies blocks of some kilobytes with `rep movsb` (from 2112 bytes on, `glibc.cpu.x86_rep_movsb_threshold`),
//! which is the fastest there is between two cores. But on AMD's Zen 3 and 4 it falls from some 60 to 3 GB/s where the
//! target lies 1 to 15 bytes behind the source modulo the page size, and to half up to 31 (glibc bug 30994). Blocks below
//! the threshold are copied with vector instructions, which take no notice of it.

use std::ptr;

/// Distances that matter are those modulo the smallest page.
const PAGE: usize = 4096;
/// Bytes by which a target lies behind its source where `rep movsb` is slow.
const SLOW: std::ops::Range<usize> = 1..32;
/// Bytes that are copied at a time there: below the threshold of any glibc, and long enough that a call costs nothing.
const BLOCK: usize = 1024;

/// Copies bytes that do not overlap.
///
/// # Safety
/// As of [`ptr::copy_nonoverlapping`].
#[inline(always)]
pub unsafe fn copy_nonoverlapping(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes <= BLOCK || !SLOW.contains(&((to as usize).wrapping_sub(from as usize) % PAGE)) {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_blocks(from, to, bytes) };
    }
}

/// Copies `from` to `to`.
///
/// # Panics
/// If they differ in length.
#[inline(always)]
pub fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "source and target have the same length");
    // SAFETY: both are as long, and a shared and an exclusive reference do not overlap.
    unsafe { copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Appends `from` to `to`.
#[inline]
pub fn append(from: &[u8], to: &mut Vec<u8>) {
    to.reserve(from.len());
    let end = to.len();
    // SAFETY: there is room for so many bytes behind the end, of memory that nothing else uses.
    unsafe {
        copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr().add(end), from.len());
        to.set_len(end + from.len());
    }
}

/// # Safety
/// As of [`copy_nonoverlapping`].
#[inline(never)]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, bytes: usize) {
    let mut done = 0;
    while done < bytes {
        let block = BLOCK.min(bytes - done);
        // SAFETY: inside what the caller promised for all bytes.
        unsafe { ptr::copy_nonoverlapping(from.add(done), to.add(done), block) };
        done += block;
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use super::*;

    /// At distances at which all is copied at once, and at those at which it is cut.
    #[test]
    fn all_bytes_are_copied_and_no_others() {
        let (source, mut target) = (vec![7; 4 * PAGE], vec![0; 4 * PAGE]);
        let (source_page, target_page) = (source.as_ptr().align_offset(PAGE), target.as_ptr().align_offset(PAGE));
        let lengths = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7];
        // Miri takes a minute for all of them.
        for &bytes in if cfg!(miri) { &lengths[4..5] } else { &lengths[..] } {
            for &behind in if cfg!(miri) { &[9][..] } else { &[0, 1, 9, 31, 32, 100] } {
                target.fill(0);
                let to = &mut target[target_page + behind..];
                copy(&source[source_page..][..bytes], &mut to[..bytes]);
                assert!(to[..bytes].iter().all(|byte| *byte == 7) && to[bytes..].iter().all(|byte| *byte == 0));
                assert!(target[..target_page + behind].iter().all(|byte| *byte == 0), "{bytes} bytes, {behind} behind");
            }
            let from: Vec<u8> = (0..bytes).map(|place| (place % 251) as u8).collect();
            let mut appended = vec![9];
            append(&from, &mut appended);
            assert_eq!((appended[0], &appended[1..]), (9, &from[..]));
        }
    }

    #[test]
    #[should_panic(expected = "the same length")]
    fn lengths_that_differ_are_refused() {
        copy(&[1, 2, 3], &mut [0; 2]);
    }

    /// A target nine bytes behind its source, modulo pages, takes about as long as one 2048 behind. `memcpy` as a whole
    /// takes twenty times as long there on the processors concerned. The best of many, so that others on the core do
    /// not matter.
    #[test]
    #[cfg_attr(miri, ignore = "a matter of time")]
    fn no_alignment_is_slow() {
        let from = vec![1; 8 * PAGE];
        let mut to = vec![0; 8 * PAGE];
        let source = from.as_ptr().align_offset(PAGE);
        let target = to.as_ptr().align_offset(PAGE);
        let mut best = |behind: usize| {
            let time = |_| {
                let began = Instant::now();
                copy(&from[source..][..4 * PAGE], black_box(&mut to[target + behind..][..4 * PAGE]));
                began.elapsed()
            };
            (0..200).map(time).min().unwrap_or(Duration::MAX)
        };
        let [usual, behind] = [best(2048), best(9)];
        assert!(behind < 6 * usual + Duration::from_micros(1), "{behind:?}, usually {usual:?}");
    }
}
