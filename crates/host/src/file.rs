// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Read against map: a file in the page cache, every word of it read.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::filesystem::temporary;
use crate::memory;
use crate::record::Quantity;
use crate::region::Region;
use crate::stretch::{Effort, Subject, measure};
use barewire_recorder::LaunchError;

/// Bytes per read; they stay in the L2 cache.
const CHUNK_BYTES: usize = 64 << 10;
const SIZES: [usize; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

pub fn run(
    directory: &Path,
    random: &mut fastrand::Rng,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let file = unlinked_file(directory, SIZES[SIZES.len() - 1])?;
    let mut chunk = Region::anonymous(CHUNK_BYTES)?;
    let mut sizes = SIZES;
    random.shuffle(&mut sizes);
    for bytes in sizes {
        let mapping = Region::of_file(&file, bytes)?;
        let read = |times| {
            for _ in 0..times {
                let mut offset = 0;
                while offset < bytes {
                    let words = &mut chunk.words_mut()[..(bytes - offset).min(CHUNK_BYTES) / size_of::<u64>()];
                    offset += read_at(&file, words, offset)?;
                    black_box(memory::read(black_box(words)));
                }
            }
            Ok(())
        };
        let map = |times| {
            for _ in 0..times {
                let mapped = Region::of_file(&file, bytes)?;
                black_box(memory::read(black_box(mapped.words())));
            }
            Ok(())
        };
        let mapped = |times| {
            for _ in 0..times {
                black_box(memory::read(black_box(mapping.words())));
            }
            Ok(())
        };
        let mut subjects = [
            Subject { name: "read", operations: 1, repeat: Box::new(read) },
            Subject { name: "map", operations: 1, repeat: Box::new(map) },
            Subject { name: "mapped", operations: 1, repeat: Box::new(mapped) },
        ];
        measure(&mut subjects, bytes, Quantity::Bandwidth, effort, output)?;
    }
    Ok(())
}

/// Fills `words` from the file.
fn read_at(file: &File, words: &mut [u64], offset: usize) -> Result<usize, LaunchError> {
    let length = size_of_val(words);
    // SAFETY: the same memory as bytes; any bytes are valid words.
    let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), length) };
    file.read_exact_at(bytes, offset as u64).map_err(|error| LaunchError::system("read of the file", error))?;
    Ok(length)
}

/// An unlinked file of that length, so that nothing is left behind; synchronised to disk before the measurement.
fn unlinked_file(directory: &Path, bytes: usize) -> Result<File, LaunchError> {
    let failed = |error| LaunchError::system(&format!("a file in {}", directory.display()), error);
    // Created and unlinked: not every file system supports O_TMPFILE.
    let path = temporary(directory);
    let mut file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    let part: Vec<u8> = (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    for _ in 0..bytes / part.len() {
        file.write_all(&part).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_and_mapping_the_file_agree_and_it_is_unlinked() {
        let directory = std::env::temp_dir();
        let file = unlinked_file(&directory, 1 << 20).unwrap();
        let mapped = Region::of_file(&file, 1 << 20).unwrap();
        let mut words = vec![0; (1 << 20) / 8];
        assert_eq!(read_at(&file, &mut words, 0).unwrap(), 1 << 20);
        assert_eq!(mapped.words(), words);
        use std::os::unix::fs::MetadataExt;
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }
}
