// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mapped memory: anonymous, or a file's.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use barewire_recorder::LaunchError;

/// A mapping, gone with this value. Its length is a whole number of words.
pub struct Region {
    memory: NonNull<u64>,
    bytes: usize,
}

const WORD_BYTES: usize = size_of::<u64>();

impl Region {
    /// Memory of our own, every page of it present, in huge pages where the system is willing.
    pub fn anonymous(bytes: usize) -> Result<Self, LaunchError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut region = Self::map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        // SAFETY: advice on exactly the mapping that was just made; a system that does not take it says so in vain.
        unsafe { libc::madvise(region.memory.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        // Not zeros: all pages that were only read would be one and the same.
        region.words_mut().fill(0x0123_4567_89ab_cdef);
        Ok(region)
    }

    /// The first `bytes` of a file, to read.
    #[inline]
    pub fn of_file(file: &File, bytes: usize) -> Result<Self, LaunchError> {
        Self::map(bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
    }

    #[inline]
    fn map(bytes: usize, protection: i32, flags: i32, descriptor: i32) -> Result<Self, LaunchError> {
        assert!(bytes.is_multiple_of(WORD_BYTES) && bytes > 0, "a region holds whole words");
        // SAFETY: a new mapping where the system likes it touches no memory that is in use.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor, 0) };
        if memory == libc::MAP_FAILED {
            return Err(LaunchError::last("mmap"));
        }
        Ok(Self { memory: NonNull::new(memory.cast()).expect("a mapping is never at 0"), bytes })
    }

    /// All of it.
    #[inline]
    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping lives as long as `self`, is readable and page-aligned; a file's is of a file without a
        // name, that nobody writes to or shortens.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes / WORD_BYTES) }
    }

    /// All of it; only of memory of our own.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as for `words`; `&mut self` makes it the only borrow. A file's mapping is not writable, and no
        // caller asks for it: it would be ended by the system.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes / WORD_BYTES) }
    }
}

/// A page of a file that another process has mapped as well; used as one word.
pub struct Shared(Region);

impl Shared {
    pub const BYTES: usize = 4096;

    pub fn new(file: &File) -> Result<Self, LaunchError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Region::map(Self::BYTES, protection, libc::MAP_SHARED, file.as_raw_fd()).map(Self)
    }

    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping starts on a page, lives as long as `self`, and all its users on either side use this
        // word as an atomic.
        unsafe { AtomicU32::from_ptr(self.0.memory.as_ptr().cast()) }
    }
}

impl Drop for Region {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and no borrow outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
