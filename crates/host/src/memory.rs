// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory bandwidth by block size: read, write, copy.
//!
//! Ordinary (temporal) stores read a line into the cache before changing it; streaming (non-temporal) ones do not. The
//! C library's memcpy and memset choose by size. So each is a separate subject.

use std::hint::black_box;
use std::io::Write;

use crate::record::Quantity;
use crate::region::Region;
use crate::stretch::{Effort, Repeat, Subject, measure};
use barewire_recorder::LaunchError;

/// At most half of the smallest L1 data cache in use.
const SMALLEST_BLOCK_BYTES: usize = 8 << 10;
const STEP: usize = 4;
/// Assumed if the caches are unknown.
const USUAL_LAST_CACHE_BYTES: usize = 32 << 20;
/// Largest block as a fraction of the available memory: there are two blocks, and other processes need memory.
const SHARE_OF_MEMORY: usize = 8;
/// Words per loop iteration: 256 bytes, eight vectors of 32.
const UNROLL: usize = 32;

/// 8 KiB, 32 KiB and so on by factors of four, then `largest` rounded down to whole iterations.
pub fn block_sizes(largest: usize) -> Vec<usize> {
    let largest = (largest / (UNROLL * size_of::<u64>()) * (UNROLL * size_of::<u64>())).max(SMALLEST_BLOCK_BYTES);
    let growing = std::iter::successors(Some(SMALLEST_BLOCK_BYTES), |size| size.checked_mul(STEP));
    growing.take_while(|size| *size < largest).chain([largest]).collect()
}

/// Four times the last-level cache, bounded by the available memory.
pub fn default_largest_block(caches: &[usize], available_memory: usize) -> usize {
    let wanted = 4 * caches.last().copied().unwrap_or(USUAL_LAST_CACHE_BYTES);
    if available_memory == 0 { wanted } else { wanted.min(available_memory / SHARE_OF_MEMORY) }
}

/// Memory for [`run`].
pub struct Blocks {
    from: Region,
    to: Region,
}

impl Blocks {
    pub fn new(largest: usize) -> Result<Self, LaunchError> {
        let bytes = *block_sizes(largest).last().expect("there is always a size");
        Ok(Self { from: Region::anonymous(bytes)?, to: Region::anonymous(bytes)? })
    }
}

pub fn run(
    blocks: &mut Blocks,
    largest: usize,
    random: &mut fastrand::Rng,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let mut points: Vec<(usize, &'static str)> = block_sizes(largest)
        .into_iter()
        .flat_map(|size| SUBJECTS.iter().map(move |subject| (size, *subject)))
        .collect();
    random.shuffle(&mut points);
    for (bytes, subject) in points {
        let words = bytes / size_of::<u64>();
        let (from, to) = (&blocks.from.words()[..words], &mut blocks.to.words_mut()[..words]);
        let mut subjects = [Subject { name: subject, operations: 1, repeat: kernel(subject, from, to) }];
        measure(&mut subjects, bytes, Quantity::Bandwidth, effort, output)?;
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
const SUBJECTS: &[&str] = &["read", "write", "stream", "copy", "memcpy", "memset"];
#[cfg(not(target_arch = "x86_64"))]
const SUBJECTS: &[&str] = &["read", "write", "copy", "memcpy", "memset"];

fn kernel<'a>(subject: &str, from: &'a [u64], to: &'a mut [u64]) -> Repeat<'a> {
    // A new value for each pass, so that none is optimised away; `black_box` marks the memory as used.
    let passes = |mut pass: Box<dyn FnMut(u64) + 'a>| -> Repeat<'a> {
        Box::new(move |times| {
            (0..times).for_each(&mut pass);
            Ok(())
        })
    };
    match subject {
        "read" => passes(Box::new(move |_| {
            black_box(read(black_box(from)));
        })),
        "write" => passes(Box::new(move |pass| {
            write(to, black_box(pass ^ 0x0123_4567_89ab_cdef));
            black_box(to.as_mut_ptr());
        })),
        #[cfg(target_arch = "x86_64")]
        "stream" => passes(Box::new(move |pass| {
            stream(to, black_box(pass ^ 0x0123_4567_89ab_cdef));
            black_box(to.as_mut_ptr());
        })),
        "copy" => passes(Box::new(move |pass| {
            copy(black_box(from), to, black_box(pass));
            black_box(to.as_mut_ptr());
        })),
        "memset" => passes(Box::new(move |pass| {
            set(to, black_box(pass as u8));
            black_box(to.as_mut_ptr());
        })),
        _ => passes(Box::new(move |_| {
            to.copy_from_slice(black_box(from));
            black_box(to.as_mut_ptr());
        })),
    }
}

/// Vector width in bytes of [`read`], [`write`] and [`copy`] on this processor.
pub fn vector_bytes() -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return 32;
    }
    16
}

/// Compiles a function twice, and uses the wider vectors if the processor has them.
macro_rules! widest {
    ($name:ident, $plain:ident, ($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {
        pub fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide($($argument: $type),*) $(-> $result)? {
                    $plain($($argument),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has this feature, as just checked.
                    return unsafe { wide($($argument),*) };
                }
            }
            $plain($($argument),*)
        }
    };
}

widest!(read, plain_read, (words: &[u64]) -> u64);
widest!(write, plain_write, (words: &mut [u64], value: u64));
widest!(copy, plain_copy, (from: &[u64], to: &mut [u64], key: u64));

/// The XOR of all words, so that every word is read.
#[inline(always)]
fn plain_read(words: &[u64]) -> u64 {
    let mut sums = [0; UNROLL];
    for chunk in words.chunks_exact(UNROLL) {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum ^= *word;
        }
    }
    sums.iter().fold(0, |all, sum| all ^ sum)
}

#[inline(always)]
fn plain_write(words: &mut [u64], value: u64) {
    for chunk in words.chunks_exact_mut(UNROLL) {
        for word in chunk {
            *word = value;
        }
    }
}

/// With a key: a plain copy would be compiled to a call of memcpy.
#[inline(always)]
fn plain_copy(from: &[u64], to: &mut [u64], key: u64) {
    for (from, to) in from.chunks_exact(UNROLL).zip(to.chunks_exact_mut(UNROLL)) {
        for (from, to) in from.iter().zip(to) {
            *to = *from ^ key;
        }
    }
}

/// Every byte, by the C library.
fn set(words: &mut [u64], value: u8) {
    // SAFETY: exactly the memory of `words`; any bytes are valid words.
    unsafe { std::ptr::write_bytes(words.as_mut_ptr().cast::<u8>(), value, size_of_val(words)) };
}

/// Non-temporal stores, which bypass the caches.
#[cfg(target_arch = "x86_64")]
fn stream(words: &mut [u64], value: u64) {
    use std::arch::x86_64::{_mm_set1_epi64x, _mm_sfence, _mm_stream_si128};
    let vectors = words.chunks_exact_mut(2);
    // SAFETY: each pointer is to two words of `words`, which is page-aligned, so aligned to 16 bytes; SSE2 is part of
    // x86-64. The final fence orders the stores like ordinary ones.
    unsafe {
        let value = _mm_set1_epi64x(value.cast_signed());
        for vector in vectors {
            _mm_stream_si128(vector.as_mut_ptr().cast(), value);
        }
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_grow_from_8_kib_to_the_largest_block() {
        assert_eq!(block_sizes(1 << 20), [8 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20]);
        assert_eq!(block_sizes(1), [8 << 10]);
        assert_eq!(block_sizes(10_000), [8 << 10, 9984]);
        assert_eq!(default_largest_block(&[48 << 10, 2 << 20, 32 << 20], 64 << 30), 128 << 20);
        assert_eq!(default_largest_block(&[48 << 10, 2 << 20, 32 << 20], 1 << 29), 64 << 20);
        assert_eq!(default_largest_block(&[], 0), 128 << 20);
    }

    #[test]
    fn every_kernel_touches_every_word() {
        let mut from = Region::anonymous(SMALLEST_BLOCK_BYTES).unwrap();
        let mut to = Region::anonymous(SMALLEST_BLOCK_BYTES).unwrap();
        for (word, value) in from.words_mut().iter_mut().zip(1..) {
            *word = u64::wrapping_mul(value, 0x9e37_79b9_7f4a_7c15);
        }
        let whole = read(from.words());
        for index in [0, 31, 500, 1023] {
            from.words_mut()[index] ^= 1;
            assert_eq!(read(from.words()), whole ^ 1, "word {index}");
            from.words_mut()[index] ^= 1;
        }
        copy(from.words(), to.words_mut(), 5);
        assert!(from.words().iter().zip(to.words()).all(|(from, to)| from ^ to == 5));
        write(to.words_mut(), 7);
        assert!(to.words().iter().all(|word| *word == 7));
        #[cfg(target_arch = "x86_64")]
        {
            stream(to.words_mut(), 9);
            assert!(to.words().iter().all(|word| *word == 9));
        }
        set(to.words_mut(), 0x11);
        assert!(to.words().iter().all(|word| *word == 0x1111_1111_1111_1111));
        kernel("memcpy", from.words(), to.words_mut())(1).unwrap();
        assert_eq!(from.words(), to.words());
    }
}
