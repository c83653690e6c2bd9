// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a pipe: two rings and their controls in one file without a name, whose size can never change.
//!
//! ```text
//! file     │ ring 0 │ ring 1 │ controls │
//! mapping  │ ring 0 │ ring 0 │ ring 1 │ ring 1 │ controls │
//! ```
//! Each ring is mapped twice, so that a message which reaches beyond its end lies in one piece all the same.

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

use crate::bounds::{MESSAGES, RING_BYTES_MAX, STEPS};
use crate::error::ShmError;
use crate::sync::{AtomicU32, AtomicU64};

/// A pipe's memory, mapped; gone with this value.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    ring_bytes: usize,
}

/// One direction's part of a [`Memory`]. Usable as long as that lives, which is for whoever keeps both to see to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Twice `bytes` can be read and written from here; the second half is the first once more.
    pub(crate) base: NonNull<u8>,
    pub(crate) control: NonNull<Control>,
    /// A power of two and whole pages.
    pub(crate) bytes: usize,
}

/// Words of one direction. Two lines for each, since processors fetch lines in pairs. All zero at the beginning.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Control {
    /// Bytes of the ring that the receiver has taken since the beginning, as far as it has told; its own word.
    pub(crate) told: Apart<AtomicU64>,
    /// 1: the receiver is about to sleep until something comes. It sets it, and the sender takes it back.
    pub(crate) receiver_sleeps: Apart<AtomicU32>,
    /// 1: the sender is about to sleep until there is room. It sets it, and the receiver takes it back.
    pub(crate) sender_sleeps: Apart<AtomicU32>,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// What makes a file safe to map for ever: nobody can cut it, so that no access to it can fail.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);
const CONTROLS_BYTES: usize = 2 * size_of::<Control>();

const _: () = assert!(CONTROLS_BYTES <= 4096, "the controls are one page");

// SAFETY: nothing in a mapping is bound to the thread that made it.
unsafe impl Send for Memory {}
// SAFETY: a ring is only an address in a mapping. What is done there follows the rules of `ring.rs`.
unsafe impl Send for Ring {}

/// Whether a ring can have this size.
pub(crate) fn check(ring_bytes: usize) -> Result<(), ShmError> {
    let page_bytes = page_bytes();
    let is_right = ring_bytes.is_power_of_two() && (page_bytes..=RING_BYTES_MAX).contains(&ring_bytes);
    is_right.then_some(()).ok_or(ShmError::RingBytes { ring_bytes, page_bytes })
}

/// The largest message of a ring: a quarter of it, less the word in front.
pub(crate) fn room(ring_bytes: usize) -> usize {
    ring_bytes / MESSAGES - size_of::<u64>()
}

impl Memory {
    /// New memory, all zero, sealed; and the file that another process may map. What both ends touch before anything is
    /// sent has its pages; the sender asks for the rest ahead of its messages, since most local peers say little. Where
    /// the system promises no more memory than it has, all of it is there from the beginning.
    pub(crate) fn create(ring_bytes: usize) -> Result<(Self, OwnedFd), ShmError> {
        check(ring_bytes)?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"barewire-pipe", flags).map_err(ShmError::system("memfd_create"))?;
        let bytes = file_bytes(ring_bytes);
        // Beyond this limit the system does not only refuse: its signal ends the process.
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

    /// Memory that another process has made; none if it is not as [`Memory::create`] makes it.
    pub(crate) fn adopt(file: &OwnedFd, ring_bytes: usize) -> Result<Option<Self>, ShmError> {
        if check(ring_bytes).is_err() {
            return Ok(None);
        }
        // Only a file without a name on the system's own tmpfs has such seals, or one of huge pages, which can run out.
        let sealed = fcntl(file, FcntlArg::F_GET_SEALS)
            .is_ok_and(|seals| SealFlag::from_bits_retain(seals).contains(SEALS))
            && fstatfs(file).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC);
        if !sealed || !fstat(file).is_ok_and(|status| status.st_size == file_bytes(ring_bytes)) {
            return Ok(None);
        }
        // Whatever the other end has done: what is touched first is there.
        let reserved = reserve(file, ring_bytes, is_strict())
            .map_err(|error| ShmError::Memory { ring_bytes, source: error.into() });
        match reserved.and_then(|()| Self::map(file, ring_bytes)) {
            // Sealed against writing too, or opened for reading only.
            Err(ShmError::Memory { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::EBADF)) =>
            {
                Ok(None)
            }
            memory => memory.map(Some),
        }
    }

    /// Memory of this process alone: Miri knows no mappings. A message that reaches beyond the end lies in one piece all the
    /// same, since both ends find it there; only that nothing else of the ring is there.
    #[cfg(all(miri, test))]
    pub(crate) fn plain(ring_bytes: usize) -> Self {
        // SAFETY: the layout has bytes.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(ring_bytes)) };
        Self { base: NonNull::new(base).expect("there is memory"), ring_bytes }
    }

    #[cfg(miri)]
    fn layout(ring_bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(mapping_bytes(ring_bytes), page_bytes()).expect("a size that can be")
    }

    /// The ring of a direction, 0 from initiator to listener and 1 from listener to initiator.
    pub(crate) fn ring(&self, direction: usize) -> Ring {
        assert!(direction < 2);
        // SAFETY: inside the mapping by the picture above; the controls begin on a page.
        unsafe {
            let controls = self.base.add(4 * self.ring_bytes).cast::<Control>();
            Ring {
                base: self.base.add(2 * direction * self.ring_bytes),
                control: controls.add(direction),
                bytes: self.ring_bytes,
            }
        }
    }

    /// Of the first ring, what the system has pages for.
    #[cfg(test)]
    pub(crate) fn resident_bytes(&self) -> usize {
        let page = page_bytes();
        let mut pages = vec![0_u8; self.ring_bytes / page];
        // SAFETY: the first mapping of the ring, and as many bytes of `pages` as it has pages.
        let result = unsafe { libc::mincore(self.base.as_ptr().cast(), self.ring_bytes, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 != 0).count() * page
    }

    fn map(file: &OwnedFd, ring_bytes: usize) -> Result<Self, ShmError> {
        // SAFETY: a new mapping where the system likes it touches no memory that is in use.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(ptr::null_mut(), mapping_bytes(ring_bytes), libc::PROT_NONE, flags, -1, 0)
        };
        let no_memory = || ShmError::Memory { ring_bytes, source: io::Error::last_os_error() };
        if base == libc::MAP_FAILED {
            return Err(no_memory());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("a mapping is never at 0");
        // From here on, it is unmapped on every way out.
        let memory = Self { base, ring_bytes };
        let places =
            [(0, 0), (1, 0), (2, 1), (3, 1)].map(|(to, from)| (to * ring_bytes, from * ring_bytes, ring_bytes));
        for (to, from, bytes) in places.into_iter().chain([(4 * ring_bytes, 2 * ring_bytes, CONTROLS_BYTES)]) {
            let from = libc::off_t::try_from(from).expect("RING_BYTES_MAX is small");
            // SAFETY: replaces part of the mapping made above, which nobody has seen yet, by part of the file.
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
        // SAFETY: as `plain` made it.
        return unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.ring_bytes)) };
        #[cfg(not(miri))]
        // SAFETY: unmaps exactly what `map` mapped, once.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), mapping_bytes(self.ring_bytes))
        };
    }
}

impl Ring {
    /// The word at a position, which is a whole number of lines.
    #[inline]
    pub(crate) fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: inside the ring, aligned as lines are, and used as an atomic by both sides whenever the other may
        // use it. The memory lives as long as whoever keeps the ring.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(self.offset(position)).cast()) }
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: inside the mapping, aligned as pages are; all its words are atomics on both sides, and any bytes
        // are valid ones.
        unsafe { self.control.as_ref() }
    }

    /// Copies the parts of a message, one behind the other, to a position.
    ///
    /// # Safety
    /// They must be no longer together than the ring, and the other side must not use the memory meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write<const PARTS: usize>(&self, position: u64, message: [&[u8]; PARTS]) {
        // SAFETY: what begins inside the ring and is no longer than it lies inside the two mappings.
        unsafe {
            let mut place = self.base.as_ptr().add(self.offset(position));
            for part in message {
                barewire_copy::copy_nonoverlapping(part.as_ptr(), place, part.len());
                place = place.add(part.len());
            }
        }
    }

    /// The bytes at a position.
    ///
    /// # Safety
    /// They must be no more than the ring has, and the ring's memory must outlive the loan. Should the other side write
    /// meanwhile, which it must not, they have other values.
    #[inline]
    pub(crate) unsafe fn lend<'a>(&self, position: u64, bytes: usize) -> &'a [u8] {
        // SAFETY: as in `write`; the caller's promise.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(self.offset(position)), bytes) }
    }

    #[inline]
    fn offset(self, position: u64) -> usize {
        position as usize & (self.bytes - 1)
    }

    /// Its largest message.
    pub(crate) fn room(self) -> usize {
        room(self.bytes)
    }

    /// Gives the memory of whole pages from one position to another, less than a round behind, back to the system: they are
    /// zero then. Where the system refuses, it stays.
    pub(crate) fn release(self, from: u64, to: u64) {
        let page = page_bytes() as u64;
        let (from, to) = (from.next_multiple_of(page), to - to % page);
        if from < to && !cfg!(miri) && !is_strict() {
            debug_assert!(to - from <= self.bytes as u64);
            // SAFETY: less than a round from a place in the first mapping of the ring, so inside the two mappings.
            unsafe {
                let first = self.base.add(from as usize & (self.bytes - 1));
                libc::madvise(first.as_ptr().cast(), (to - from) as usize, libc::MADV_REMOVE);
            }
        }
    }

    /// Asks the system for the memory of all pages that lie between two positions, in part or whole, at most a round apart.
    /// Up to where it is there now.
    ///
    /// # Errors
    /// `ENOMEM` or `EFAULT`: the system has not so much, and touching it would end the process. `EINVAL`: the system knows
    /// no such question (before Linux 5.14).
    pub(crate) fn populate(self, from: u64, to: u64) -> Result<u64, Errno> {
        if cfg!(miri) {
            return Err(Errno::EINVAL);
        }
        let page = page_bytes() as u64;
        let (from, to) = (from - from % page, to.next_multiple_of(page));
        let bytes = (to - from).min(self.bytes as u64) as usize;
        // SAFETY: at most a round from a place in the first mapping of the ring, so inside the two mappings; nothing that
        // lies there changes.
        unsafe {
            let first = self.base.add(from as usize & (self.bytes - 1));
            let result = libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE);
            Errno::result(result).map(|_| to)
        }
    }

    /// What the receiver takes before it tells.
    pub(crate) fn step(self) -> u64 {
        (self.bytes / STEPS) as u64
    }
}

/// Has the system find memory for a file: where it promises no more than it has (`vm.overcommit_memory=2`), for all of
/// it, else for what both ends touch before anything is sent, the controls and the first page of each ring. A page that
/// is not there is found when it is touched, and only in the first case can that fail, with a signal that ends the process.
fn reserve(file: &OwnedFd, ring_bytes: usize, is_strict: bool) -> Result<(), Errno> {
    let ring = libc::off_t::try_from(ring_bytes).expect("RING_BYTES_MAX is small");
    let (all, page) = (file_bytes(ring_bytes), page_bytes() as libc::off_t);
    let touched = [(0, page), (ring, page), (2 * ring, all - 2 * ring)];
    let pieces = if is_strict { &[(0, all)][..] } else { &touched[..] };
    pieces.iter().try_for_each(|(from, bytes)| fallocate(file, FallocateFlags::empty(), *from, *bytes))
}

/// Whether the system promises no more memory than it has, as it was set when this process asked first.
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

/// Rings are whole pages, as what is mapped is.
fn page_bytes() -> usize {
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().expect("every system has pages");
    usize::try_from(bytes).expect("a size is positive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;
    use crate::ring::Sending;

    const RING_BYTES: usize = 64 << 10;

    fn file() -> OwnedFd {
        let file = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&file, file_bytes(RING_BYTES)).unwrap();
        file
    }

    #[test]
    fn what_is_touched_first_has_its_pages_and_where_nothing_is_promised_all_has() {
        for (is_strict, bytes) in [(false, 3 * 4096), (true, 2 * RING_BYTES as i64 + 4096)] {
            let file = file();
            reserve(&file, RING_BYTES, is_strict).unwrap();
            assert_eq!(fstat(&file).unwrap().st_blocks * 512, bytes, "{is_strict}");
        }
    }

    /// Such as a page that the system has promised and does not have: to touch it would end the process.
    #[test]
    fn a_sender_that_finds_no_memory_breaks_the_pipe_and_not_the_process() {
        let file = file();
        let memory = Memory::map(&file, RING_BYTES).unwrap();
        reserve(&file, RING_BYTES, false).unwrap();
        let mut sending = Sending::new(memory.ring(1));
        // The controls, which it looks at first, lie behind the rings, so that only ring 1 can be cut away whole with them.
        assert!(sending.send([&[1; 64]], 64).unwrap());
        ftruncate(&file, RING_BYTES as i64 + 4096).unwrap();
        assert_eq!(sending.send([&[1; 8192]], 8192), Err(Fault::NoMemory));
    }
}
