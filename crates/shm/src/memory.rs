// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a pipe: two rings and their controls in one anonymous file of constant size.
//!
//! ```text
//! file     │ ring 0 │ ring 1 │ controls │
//! mapping  │ ring 0 │ ring 0 │ ring 1 │ ring 1 │ controls │
//! ```
//! Each ring is mapped twice in a row, so that a message which reaches beyond its end is contiguous all the same.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::{SysconfVar, ftruncate, sysconf};

use crate::bounds::{MESSAGES_PER_RING, RING_BYTES_MAX, STEPS_PER_RING};
use crate::error::ShmError;
use crate::sync::{AtomicU32, AtomicU64};

/// A pipe's mapped memory; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    ring_bytes: usize,
}

/// One direction's part of a [`Memory`]. Valid as long as that lives, which its owner must ensure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Start of `2 * bytes` readable and writable bytes, of which the second half maps the first again.
    pub(crate) base: NonNull<u8>,
    pub(crate) control: NonNull<Control>,
    /// Size of the ring: a power of two and whole pages.
    pub(crate) bytes: usize,
}

/// Control words of one direction, initially zero. Each has two cache lines, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Control {
    /// Total bytes of the ring that the receiver has acknowledged. Written by the receiver.
    pub(crate) acknowledged: Padded<AtomicU64>,
    /// 1: the receiver is about to sleep until a message arrives. Set by the receiver, cleared by the sender.
    pub(crate) receiver_sleeps: Padded<AtomicU32>,
    /// 1: the sender is about to sleep until there is room. Set by the sender, cleared by the receiver.
    pub(crate) sender_sleeps: Padded<AtomicU32>,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// Seals that make a file safe to map: it cannot be truncated, so no access can fail.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);
const CONTROLS_BYTES: usize = 2 * size_of::<Control>();

const _: () = assert!(CONTROLS_BYTES <= 4096, "the controls are one page");

// SAFETY: a mapping is not bound to the thread that made it.
unsafe impl Send for Memory {}
// SAFETY: a ring is only an address in a mapping. Accesses follow the protocol of `ring.rs`.
unsafe impl Send for Ring {}

/// Checks a ring's size.
pub(crate) fn check(ring_bytes: usize) -> Result<(), ShmError> {
    let page_bytes = page_bytes();
    let is_valid = ring_bytes.is_power_of_two() && (page_bytes..=RING_BYTES_MAX).contains(&ring_bytes);
    is_valid.then_some(()).ok_or(ShmError::RingBytes { ring_bytes, page_bytes })
}

/// Largest message of a ring: a quarter of it, less the word in front.
pub(crate) fn message_max(ring_bytes: usize) -> usize {
    ring_bytes / MESSAGES_PER_RING - size_of::<u64>()
}

impl Memory {
    /// Creates zeroed, sealed memory, and the file for another process to map. Only the pages that both ends touch
    /// before the first message are allocated: most local peers send little, and the sender allocates the rest ahead of
    /// its messages. Without overcommit, all pages are allocated.
    pub(crate) fn create(ring_bytes: usize) -> Result<(Self, OwnedFd), ShmError> {
        check(ring_bytes)?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"barewire-pipe", flags).map_err(ShmError::system("memfd_create"))?;
        let bytes = file_bytes(ring_bytes);
        // Beyond this limit, `ftruncate` raises a signal that ends the process.
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE).map_err(ShmError::system("getrlimit"))?;
        if limit < bytes as u64 {
            return Err(ShmError::Memory { ring_bytes, source: Errno::EFBIG.into() });
        }
        let no_memory = |error: Errno| ShmError::Memory { ring_bytes, source: error.into() };
        ftruncate(&file, bytes).map_err(no_memory)?;
        reserve(&file, ring_bytes, is_strict()).map_err(no_memory)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS)).map_err(ShmError::system("F_ADD_SEALS"))?;
        Ok((Self::map(&file, ring_bytes)?, file))
    }

    /// Maps memory that another process has created; `None` if it is not as [`Memory::create`] makes it.
    pub(crate) fn adopt(file: &OwnedFd, ring_bytes: usize) -> Result<Option<Self>, ShmError> {
        if check(ring_bytes).is_err() {
            return Ok(None);
        }
        // Only anonymous files on the kernel's tmpfs have such seals, or on hugetlbfs, which can run out of pages.
        let sealed = fcntl(file, FcntlArg::F_GET_SEALS)
            .is_ok_and(|seals| SealFlag::from_bits_retain(seals).contains(SEALS))
            && fstatfs(file).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC);
        if !sealed || !fstat(file).is_ok_and(|status| status.st_size == file_bytes(ring_bytes)) {
            return Ok(None);
        }
        // Does not rely on the other end to have allocated the pages that are touched first.
        let reserved = reserve(file, ring_bytes, is_strict())
            .map_err(|error| ShmError::Memory { ring_bytes, source: error.into() });
        match reserved.and_then(|()| Self::map(file, ring_bytes)) {
            // Sealed against writing, or opened read-only.
            Err(ShmError::Memory { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::EBADF)) =>
            {
                Ok(None)
            }
            memory => memory.map(Some),
        }
    }

    /// Memory of this process only, for Miri, which has no mappings. A message that reaches beyond the end is
    /// contiguous and found there by both ends, but the start of the ring is not mapped there.
    #[cfg(all(miri, test))]
    pub(crate) fn plain(ring_bytes: usize) -> Self {
        // SAFETY: the layout has a size greater than zero.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(ring_bytes)) };
        Self { base: NonNull::new(base).expect("there is memory"), ring_bytes }
    }

    #[cfg(miri)]
    fn layout(ring_bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(mapping_bytes(ring_bytes), page_bytes()).expect("a size that can be")
    }

    /// The ring of a direction: 0 from initiator to listener, 1 from listener to initiator.
    pub(crate) fn ring(&self, direction: usize) -> Ring {
        assert!(direction < 2);
        // SAFETY: inside the mapping, as pictured above; the controls start on a page.
        unsafe {
            let controls = self.base.add(4 * self.ring_bytes).cast::<Control>();
            Ring {
                base: self.base.add(2 * direction * self.ring_bytes),
                control: controls.add(direction),
                bytes: self.ring_bytes,
            }
        }
    }

    /// Allocated bytes of the first ring.
    #[cfg(test)]
    pub(crate) fn resident_bytes(&self) -> usize {
        let page = page_bytes();
        let mut pages = vec![0_u8; self.ring_bytes / page];
        // SAFETY: the first mapping of the ring, and one byte of `pages` for each of its pages.
        let result = unsafe { libc::mincore(self.base.as_ptr().cast(), self.ring_bytes, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 != 0).count() * page
    }

    fn map(file: &OwnedFd, ring_bytes: usize) -> Result<Self, ShmError> {
        // SAFETY: a new mapping at an address that the kernel chooses affects no memory in use.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(ptr::null_mut(), mapping_bytes(ring_bytes), libc::PROT_NONE, flags, -1, 0)
        };
        let no_memory = || ShmError::Memory { ring_bytes, source: io::Error::last_os_error() };
        if base == libc::MAP_FAILED {
            return Err(no_memory());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("a mapping is never at 0");
        // From here on, `Drop` unmaps it on every return.
        let memory = Self { base, ring_bytes };
        let mappings =
            [(0, 0), (1, 0), (2, 1), (3, 1)].map(|(to, from)| (to * ring_bytes, from * ring_bytes, ring_bytes));
        for (to, from, bytes) in mappings.into_iter().chain([(4 * ring_bytes, 2 * ring_bytes, CONTROLS_BYTES)]) {
            let from = libc::off_t::try_from(from).expect("RING_BYTES_MAX is small");
            // SAFETY: replaces part of the mapping made above, which is not shared yet, by part of the file.
            let part = unsafe {
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(base.add(to).as_ptr().cast(), bytes, protection, flags, file.as_raw_fd(), from)
            };
            if part == libc::MAP_FAILED {
                return Err(no_memory());
            }
        }
        Ok(memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        #[cfg(miri)]
        // SAFETY: allocated by `plain` with this layout.
        return unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.ring_bytes)) };
        #[cfg(not(miri))]
        // SAFETY: unmaps what `map` mapped, once.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), mapping_bytes(self.ring_bytes))
        };
    }
}

impl Ring {
    /// The word at a position, which is a multiple of the line size.
    #[inline]
    pub(crate) fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: inside the ring, aligned to a line, and accessed as an atomic by both sides whenever the other side
        // may access it. The owner of the ring keeps the memory alive.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(self.offset(position)).cast()) }
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: inside the mapping and aligned to a page; both sides use only atomics, for which any bytes are valid.
        unsafe { self.control.as_ref() }
    }

    /// Copies the concatenated parts of a message to a position.
    ///
    /// # Safety
    /// Their total length must not exceed the ring, and the other side must not access the memory meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write<const PARTS: usize>(&self, position: u64, message: [&[u8]; PARTS]) {
        // SAFETY: starts inside the ring and is no longer than it, so it is inside the two mappings.
        unsafe {
            let mut target = self.base.as_ptr().add(self.offset(position));
            for part in message {
                barewire_copy::copy_nonoverlapping(part.as_ptr(), target, part.len());
                target = target.add(part.len());
            }
        }
    }

    /// The bytes at a position.
    ///
    /// # Safety
    /// `bytes` must not exceed the ring, and the ring's memory must outlive the returned slice. If the other side
    /// breaks the protocol and writes meanwhile, the bytes change.
    #[inline]
    pub(crate) unsafe fn lend<'a>(&self, position: u64, bytes: usize) -> &'a [u8] {
        // SAFETY: as in `write`, and as promised by the caller.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(self.offset(position)), bytes) }
    }

    #[inline]
    fn offset(self, position: u64) -> usize {
        position as usize & (self.bytes - 1)
    }

    /// Size of its largest message.
    pub(crate) fn message_max(self) -> usize {
        message_max(self.bytes)
    }

    /// Releases the whole pages between two positions, which are less than a round apart; they read as zero afterwards.
    /// If the system refuses, they stay.
    pub(crate) fn release(self, from: u64, to: u64) {
        let page = page_bytes() as u64;
        let (from, to) = (from.next_multiple_of(page), to - to % page);
        if from < to && !cfg!(miri) && !is_strict() {
            debug_assert!(to - from <= self.bytes as u64);
            // SAFETY: less than a round from a position in the ring's first mapping, so inside the two mappings.
            unsafe {
                let first = self.base.add(from as usize & (self.bytes - 1));
                libc::madvise(first.as_ptr().cast(), (to - from) as usize, libc::MADV_REMOVE);
            }
        }
    }

    /// Allocates all pages between two positions, which are at most a round apart, including partial ones. Returns the
    /// position up to which memory is allocated.
    ///
    /// # Errors
    /// `ENOMEM` or `EFAULT`: the system has too little memory, and touching the pages would end the process. `EINVAL`:
    /// the system has no such call (before Linux 5.14).
    pub(crate) fn populate(self, from: u64, to: u64) -> Result<u64, Errno> {
        if cfg!(miri) {
            return Err(Errno::EINVAL);
        }
        let page = page_bytes() as u64;
        let (from, to) = (from - from % page, to.next_multiple_of(page));
        let bytes = (to - from).min(self.bytes as u64) as usize;
        // SAFETY: at most a round from a position in the ring's first mapping, so inside the two mappings; their
        // content does not change.
        unsafe {
            let first = self.base.add(from as usize & (self.bytes - 1));
            let result = libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE);
            Errno::result(result).map(|_| to)
        }
    }

    /// Bytes that the receiver takes before it acknowledges them.
    pub(crate) fn step(self) -> u64 {
        (self.bytes / STEPS_PER_RING) as u64
    }
}

/// Allocates memory for a file. Without overcommit (`vm.overcommit_memory=2`) it allocates all: a page that cannot be
/// allocated on first touch would end the process. Otherwise it allocates what both ends touch before the first
/// message, the controls and the first page of each ring.
fn reserve(file: &OwnedFd, ring_bytes: usize, is_strict: bool) -> Result<(), Errno> {
    let ring = libc::off_t::try_from(ring_bytes).expect("RING_BYTES_MAX is small");
    let (all, page) = (file_bytes(ring_bytes), page_bytes() as libc::off_t);
    let touched = [(0, page), (ring, page), (2 * ring, all - 2 * ring)];
    let pieces = if is_strict { &[(0, all)][..] } else { &touched[..] };
    pieces.iter().try_for_each(|(from, bytes)| fallocate(file, FallocateFlags::empty(), *from, *bytes))
}

/// Whether the system is set to commit no more memory than it has, as read on the first call.
fn is_strict() -> bool {
    static IS_STRICT: OnceLock<bool> = OnceLock::new();
    *IS_STRICT.get_or_init(|| fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2"))
}

fn file_bytes(ring_bytes: usize) -> libc::off_t {
    libc::off_t::try_from(2 * ring_bytes + CONTROLS_BYTES).expect("RING_BYTES_MAX is small")
}

fn mapping_bytes(ring_bytes: usize) -> usize {
    4 * ring_bytes + CONTROLS_BYTES
}

/// Size of a page; rings and mappings consist of whole pages.
pub(crate) fn page_bytes() -> usize {
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().expect("every system has a page size");
    usize::try_from(bytes).expect("a size is positive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;
    use crate::ring::Sender;

    const RING_BYTES: usize = 1 << 20;

    fn file() -> OwnedFd {
        let file = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&file, file_bytes(RING_BYTES)).unwrap();
        file
    }

    #[test]
    fn first_pages_are_allocated_at_once_and_all_without_overcommit() {
        for (is_strict, bytes) in [(false, 3 * page_bytes()), (true, 2 * RING_BYTES + page_bytes())] {
            let file = file();
            reserve(&file, RING_BYTES, is_strict).unwrap();
            assert_eq!(fstat(&file).unwrap().st_blocks * 512, bytes as i64, "{is_strict}");
        }
    }

    /// The truncated file stands for a page that the system promised but cannot provide: touching it is fatal.
    #[test]
    fn a_sender_without_memory_breaks_the_pipe_and_not_the_process() {
        let file = file();
        let memory = Memory::map(&file, RING_BYTES).unwrap();
        reserve(&file, RING_BYTES, false).unwrap();
        let mut sender = Sender::new(memory.ring(1));
        // The sender reads the controls first. They lie behind the rings, so only ring 1 can be truncated with them.
        assert!(sender.send([&[1; 64]], 64).unwrap());
        let page = page_bytes();
        ftruncate(&file, (RING_BYTES + page) as i64).unwrap();
        assert_eq!(sender.send([&vec![1; 2 * page]], 2 * page), Err(Fault::NoMemory));
    }
}
