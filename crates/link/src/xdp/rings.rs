// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The four rings between program and kernel. Two words count the entries ever produced and consumed.
//!
//! ```text
//!           program writes    kernel writes    entries
//! fill      producer          consumer         chunks to receive into
//! receive   consumer          producer         received frames
//! send      producer          consumer         frames to send
//! complete  consumer          producer         chunks of sent frames
//! ```
//! Both words wrap at 2³²; their difference is the number of entries, at most the ring's size.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::umem::Mapping;
use crate::socket::set_option;

/// A mapped ring and the offsets of its fields.
struct Shared<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    size: u32,
    entries: PhantomData<T>,
}

impl<T: Copy> Shared<T> {
    /// Sets up a ring of `size` entries, a power of two, for `socket`, and maps it.
    fn create(
        socket: &OwnedFd,
        option: libc::c_int,
        page: libc::off_t,
        size: u32,
        offsets: impl Fn(&libc::xdp_mmap_offsets) -> libc::xdp_ring_offset,
    ) -> Result<Self, (&'static str, io::Error)> {
        set_option(socket, libc::SOL_XDP, option, &size).map_err(|error| ("XDP ring", error))?;
        let all: libc::xdp_mmap_offsets = crate::socket::get_option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
            .map_err(|error| ("XDP_MMAP_OFFSETS", error))?;
        let offsets = offsets(&all);
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        let mapping = Mapping::shared(bytes, socket.as_raw_fd(), page).map_err(|error| ("mmap", error))?;
        Ok(Self { mapping, offsets, size, entries: PhantomData })
    }

    #[inline]
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the word is inside the mapping, as `at` checks, and aligned by the kernel; being shared with the
        // kernel, it is only accessed atomically.
        unsafe { &*self.mapping.at(offset as usize, 4).cast::<AtomicU32>() }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let at = self.offsets.desc as usize + (index & (self.size - 1)) as usize * size_of::<T>();
        self.mapping.at(at, size_of::<T>()).cast()
    }
}

/// The producing end of a ring.
pub(super) struct Producer<T> {
    shared: Shared<T>,
    /// Entries produced, published or not.
    produced: u32,
    published: u32,
    /// Entries consumed by the other side, as last read.
    consumed: u32,
}

impl Producer<u64> {
    pub(super) fn fill(socket: &OwnedFd, size: u32) -> Result<Self, (&'static str, io::Error)> {
        let page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        Ok(Self::new(Shared::create(socket, libc::XDP_UMEM_FILL_RING, page, size, |all| all.fr)?))
    }
}

impl Producer<libc::xdp_desc> {
    pub(super) fn send(socket: &OwnedFd, size: u32) -> Result<Self, (&'static str, io::Error)> {
        Ok(Self::new(Shared::create(socket, libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING, size, |all| all.tx)?))
    }
}

impl<T: Copy> Producer<T> {
    fn new(shared: Shared<T>) -> Self {
        Self { shared, produced: 0, published: 0, consumed: 0 }
    }

    /// Produces an entry without publishing it; `false` if the ring is full.
    #[inline]
    pub(super) fn put(&mut self, entry: T) -> bool {
        if self.produced.wrapping_sub(self.consumed) >= self.shared.size && self.pending() >= self.shared.size {
            return false;
        }
        // SAFETY: the entry is inside the ring and, since the ring is not full, not owned by the other side.
        unsafe { self.shared.entry(self.produced).write(entry) };
        self.produced = self.produced.wrapping_add(1);
        true
    }

    /// Publishes the produced entries to the other side.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.published = self.produced;
        self.shared.producer().store(self.produced, Ordering::Release);
    }

    /// Number of entries produced but not published.
    #[inline]
    pub(super) fn unpublished(&self) -> u32 {
        self.produced.wrapping_sub(self.published)
    }

    /// Number of entries not consumed by the other side.
    #[inline]
    pub(super) fn pending(&mut self) -> u32 {
        self.consumed = self.shared.consumer().load(Ordering::Acquire);
        self.produced.wrapping_sub(self.consumed)
    }

    /// Whether entries were pending at the last call of [`pending`](Self::pending), or were produced since.
    #[inline]
    pub(super) fn was_pending(&self) -> bool {
        self.produced != self.consumed
    }

    /// Whether the kernel needs a system call to process the ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.word(self.shared.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The consuming end of a ring.
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    /// Entries consumed, released or not.
    consumed: u32,
    released: u32,
    /// Entries produced by the other side, as last read.
    produced: u32,
}

impl Consumer<libc::xdp_desc> {
    pub(super) fn receive(socket: &OwnedFd, size: u32) -> Result<Self, (&'static str, io::Error)> {
        Ok(Self::new(Shared::create(socket, libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING, size, |all| all.rx)?))
    }
}

impl Consumer<u64> {
    pub(super) fn complete(socket: &OwnedFd, size: u32) -> Result<Self, (&'static str, io::Error)> {
        let page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        Ok(Self::new(Shared::create(socket, libc::XDP_UMEM_COMPLETION_RING, page, size, |all| all.cr)?))
    }
}

impl<T: Copy> Consumer<T> {
    fn new(shared: Shared<T>) -> Self {
        Self { shared, consumed: 0, released: 0, produced: 0 }
    }

    /// Consumes the next entry, if there is one. Its slot returns to the other side with [`release`](Self::release).
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.consumed == self.produced {
            self.produced = self.shared.producer().load(Ordering::Acquire);
            if self.consumed == self.produced {
                return None;
            }
        }
        // SAFETY: the entry is inside the ring, was written by the other side before it stored `produced`, and is not
        // written again before it is released.
        let entry = unsafe { self.shared.entry(self.consumed).read() };
        self.consumed = self.consumed.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of consumed entries to the other side.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.released != self.consumed {
            self.released = self.consumed;
            self.shared.consumer().store(self.consumed, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a ring of four entries, mapped twice, with words about to wrap.
    fn ends() -> (Producer<u64>, Consumer<u64>) {
        let start = u32::MAX - 5;
        // SAFETY: the name is a C string.
        let memory =
            crate::interface::owned(unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) }).unwrap();
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { libc::ftruncate(memory.as_raw_fd(), 4096) }, 0);
        let shared = || Shared {
            mapping: Mapping::shared(4096, memory.as_raw_fd(), 0).unwrap(),
            offsets: libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 256, flags: 128 },
            size: 4,
            entries: PhantomData,
        };
        let mut producer = Producer::new(shared());
        let mut consumer = Consumer::new(shared());
        producer.shared.producer().store(start, Ordering::Relaxed);
        producer.shared.consumer().store(start, Ordering::Relaxed);
        (producer.produced, producer.published, producer.consumed) = (start, start, start);
        (consumer.consumed, consumer.released, consumer.produced) = (start, start, start);
        (producer, consumer)
    }

    #[test]
    fn entries_are_consumed_in_order_across_the_wrap() {
        let (mut producer, mut consumer) = ends();
        for round in 0..20_u64 {
            for entry in 0..3 {
                assert!(producer.put(round * 3 + entry));
            }
            assert_eq!((consumer.take(), producer.unpublished()), (None, 3), "unpublished entries are not visible");
            producer.publish();
            for entry in 0..3 {
                assert_eq!(consumer.take(), Some(round * 3 + entry));
            }
            assert_eq!((consumer.take(), producer.pending()), (None, 3), "slots not released are not free");
            consumer.release();
            assert_eq!(producer.pending(), 0);
        }
    }

    #[test]
    fn full_ring_refuses_entries_until_a_slot_is_released() {
        let (mut producer, mut consumer) = ends();
        assert!((0..4).all(|entry| producer.put(entry)) && !producer.put(4));
        producer.publish();
        assert_eq!(consumer.take(), Some(0));
        assert!(!producer.put(4), "a consumed slot is not free before its release");
        consumer.release();
        assert!(producer.put(4) && !producer.put(5));
        assert_eq!(producer.pending(), 4);
    }
}
