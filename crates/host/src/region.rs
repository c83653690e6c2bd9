// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory mappings, anonymous or of a file.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use barewire_recorder::LaunchError;

/// A mapping, unmapped on drop. Its length is a whole number of words.
pub struct Region {
    memory: NonNull<u64>,
    bytes: usize,
}

const WORD_BYTES: usize = size_of::<u64>();

impl Region {
    /// Anonymous memory with all pages present, in huge pages if the system allows.
    pub fn anonymous(bytes: usize) -> Result<Self, LaunchError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut region = Self::map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        // SAFETY: advice for exactly the new mapping; failure is ignored.
        unsafe { libc::madvise(region.memory.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        // Written, or reads of all pages would go to the shared zero page.
        region.words_mut().fill(0x0123_4567_89ab_cdef);
        Ok(region)
    }

    /// The first `bytes` of a file, read-only.
    #[inline]
    pub fn of_file(file: &File, bytes: usize) -> Result<Self, LaunchError> {
        Self::map(bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
    }

    #[inline]
    fn map(bytes: usize, protection: i32, flags: i32, descriptor: i32) -> Result<Self, LaunchError> {
        assert!(bytes.is_multiple_of(WORD_BYTES) && bytes > 0, "a region holds whole words");
        // SAFETY: a new mapping at an address of the kernel's choice affects no memory in use.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor, 0) };
        if memory == libc::MAP_FAILED {
            return Err(LaunchError::last("mmap"));
        }
        Ok(Self { memory: NonNull::new(memory.cast()).expect("a mapping is never at 0"), bytes })
    }

    /// The whole region.
    #[inline]
    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping lives as long as `self`, is readable and page-aligned; a mapped file is unlinked, and
        // nothing writes to it or truncates it.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes / WORD_BYTES) }
    }

    /// The whole region, of anonymous memory only.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as for `words`; `&mut self` makes it the only borrow. A file's mapping is read-only, and no caller
        // writes to it: SIGSEGV would end the process.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes / WORD_BYTES) }
    }
}

/// A page of a file that two processes map; used as one word.
pub struct Shared(Region);

impl Shared {
    const BYTES: usize = 4096;

    /// A new file in memory, for both processes to map.
    pub fn file() -> Result<File, LaunchError> {
        // SAFETY: the name is a C string, and the returned descriptor is new.
        let descriptor = unsafe { libc::memfd_create(c"barewire-host".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(LaunchError::last("memfd_create"));
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(Self::BYTES as u64).map_err(|error| LaunchError::system("ftruncate", error))?;
        Ok(file)
    }

    pub fn new(file: &File) -> Result<Self, LaunchError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Region::map(Self::BYTES, protection, libc::MAP_SHARED, file.as_raw_fd()).map(Self)
    }

    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is page-aligned and lives as long as `self`, and both processes use this word only as an
        // atomic.
        unsafe { AtomicU32::from_ptr(self.0.memory.as_ptr().cast()) }
    }
}

impl Drop for Region {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range, and no borrow outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
