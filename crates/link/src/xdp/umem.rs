// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UMEM: memory for frames shared by program and kernel, divided into chunks of equal size.
//!
//! ```text
//! | receive chunk 0 | … | receive chunk n−1 | send chunk 0 | … |
//!   chunk: 256 bytes of headroom (receive only) | frame
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use crate::socket::set_option;

/// The kernel's headroom at the start of a receive chunk (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: usize = 256;
/// Chunks are powers of two from 2 KiB up to a page.
const CHUNK_BYTES: [usize; 2] = [2048, 4096];
/// Comparable to a receive ring of the packet link: stays in the cache, and holds about a millisecond at 10 Gb/s.
pub(super) const RECEIVE_CHUNKS: u32 = 1024;
/// Frames being sent. Few, since the most recently used chunk is reused first, while it is in the cache.
pub(super) const SEND_CHUNKS: u32 = 256;

const _: () =
    assert!(RECEIVE_CHUNKS.is_power_of_two() && SEND_CHUNKS.is_power_of_two(), "they are also sizes of rings");

/// A private mapping of this process.
pub(super) struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is not bound to the creating thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// New zeroed memory, populated at once.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// A shared mapping of `descriptor`.
    pub(super) fn shared(bytes: usize, descriptor: i32, offset: libc::off_t) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_SHARED, descriptor, offset)
    }

    fn map(bytes: usize, flags: libc::c_int, descriptor: i32, offset: libc::off_t) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let memory =
            unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags | libc::MAP_POPULATE, descriptor, offset) };
        match NonNull::new(memory.cast::<u8>()) {
            Some(memory) if memory.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { memory, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The address at `offset`, of `length` bytes inside the mapping.
    #[inline]
    pub(super) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.bytes), "outside of the mapping");
        // SAFETY: just checked to be inside.
        unsafe { self.memory.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped, once.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// Chunk size for frames of this length, or `None` if no chunk is large enough.
pub(super) fn chunk_bytes(frame_bytes: usize) -> Option<usize> {
    CHUNK_BYTES.into_iter().find(|chunk| HEADROOM_BYTES + frame_bytes <= *chunk)
}

/// Longest frame that a chunk can hold.
pub(super) const FRAME_BYTES_MAX: usize = CHUNK_BYTES[1] - HEADROOM_BYTES;

/// The registered memory. Addresses are offsets from its start, as in the rings.
pub(super) struct Umem {
    mapping: Mapping,
    chunk_bytes: usize,
    /// Number of receive chunks; the send chunks follow them.
    receive_chunks: u32,
}

impl Umem {
    /// Total size with this number of receive chunks.
    pub(super) fn bytes(chunk_bytes: usize, receive_chunks: u32) -> usize {
        chunk_bytes * (receive_chunks + SEND_CHUNKS) as usize
    }

    /// Allocates memory and registers it with `socket`, which locks it.
    pub(super) fn register(
        socket: &OwnedFd,
        chunk_bytes: usize,
        receive_chunks: u32,
    ) -> Result<Self, (&'static str, io::Error)> {
        let bytes = Self::bytes(chunk_bytes, receive_chunks);
        let mapping = Mapping::anonymous(bytes).map_err(|error| ("mmap", error))?;
        let request = libc::xdp_umem_reg {
            addr: mapping.at(0, bytes) as u64,
            len: bytes as u64,
            chunk_size: chunk_bytes as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &request).map_err(|error| ("XDP_UMEM_REG", error))?;
        Ok(Self { mapping, chunk_bytes, receive_chunks })
    }

    /// Addresses of the receive chunks.
    pub(super) fn receive_chunks(&self) -> impl Iterator<Item = u64> + use<> {
        let chunk_bytes = self.chunk_bytes as u64;
        (0..u64::from(self.receive_chunks)).map(move |chunk| chunk * chunk_bytes)
    }

    /// Addresses of the send chunks.
    pub(super) fn send_chunks(&self) -> impl Iterator<Item = u64> + use<> {
        let chunk_bytes = self.chunk_bytes as u64;
        let first = u64::from(self.receive_chunks);
        (first..first + u64::from(SEND_CHUNKS)).map(move |chunk| chunk * chunk_bytes)
    }

    /// Address of the chunk that contains an address.
    #[inline]
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        address & !(self.chunk_bytes as u64 - 1)
    }

    /// The bytes of a frame.
    ///
    /// # Safety
    /// The caller owns the chunk (received from the kernel and not returned), and no other slice of it exists.
    #[inline]
    pub(super) unsafe fn frame_mut(&mut self, address: u64, length: usize) -> &mut [u8] {
        // SAFETY: inside the mapping, as `at` checks, whose bytes are always initialised; the caller has exclusive
        // access.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at(address as usize, length), length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_gets_the_smallest_chunk_that_holds_it_with_headroom() {
        assert_eq!(chunk_bytes(1518), Some(2048));
        assert_eq!(chunk_bytes(2048 - 256), Some(2048));
        assert_eq!(chunk_bytes(2048 - 255), Some(4096));
        assert_eq!(chunk_bytes(FRAME_BYTES_MAX), Some(4096));
        assert_eq!(chunk_bytes(FRAME_BYTES_MAX + 1), None);
    }
}
