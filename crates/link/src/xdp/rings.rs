// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The four rings between program and kernel: two words count what was put in and what was taken out, ever.
//!
//! ```text
//!           program writes    kernel writes    holds
//! fill      producer          consumer         chunks to receive into
//! receive   consumer          producer         frames that came
//! send      producer          consumer         frames to go out
//! complete  consumer          producer         chunks that went out
//! ```
//! Both words wrap at 2³²; their difference is the number of entries, at most the ring's size.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::umem::Mapping;
use crate::socket::set_option;

/// A ring's memory and where things lie in it.
struct Shared<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    size: u32,
    entries: PhantomData<T>,
}

impl<T: Copy> Shared<T> {
    /// Gives `socket` a ring of `size` entries, a power of two, and maps it.
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
        // SAFETY: the word is inside the mapping, as `at` checks, and aligned by the kernel; it is shared with the
        // kernel, so only atomic access is right.
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

/// The end of a ring that puts entries in.
pub(super) struct Producer<T> {
    shared: Shared<T>,
    /// Entries put in, published or not.
    put: u32,
    published: u32,
    /// What the other side was seen to have taken out.
    taken: u32,
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
        Self { shared, put: 0, published: 0, taken: 0 }
    }

    /// Puts an entry in, not yet for the other side to see; `false` if the ring is full.
    #[inline]
    pub(super) fn put(&mut self, entry: T) -> bool {
        if self.put.wrapping_sub(self.taken) >= self.shared.size && self.pending() >= self.shared.size {
            return false;
        }
        // SAFETY: the entry is inside the ring and, since fewer than `size` are in it, not the other side's.
        unsafe { self.shared.entry(self.put).write(entry) };
        self.put = self.put.wrapping_add(1);
        true
    }

    /// Lets the other side see what was put in.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.published = self.put;
        self.shared.producer().store(self.put, Ordering::Release);
    }

    /// Entries put in and not published.
    #[inline]
    pub(super) fn unpublished(&self) -> u32 {
        self.put.wrapping_sub(self.published)
    }

    /// Entries that the other side has not taken out.
    #[inline]
    pub(super) fn pending(&mut self) -> u32 {
        self.taken = self.shared.consumer().load(Ordering::Acquire);
        self.put.wrapping_sub(self.taken)
    }

    /// Whether any were when [`pending`](Self::pending) was asked last, or were put since.
    #[inline]
    pub(super) fn was_pending(&self) -> bool {
        self.put != self.taken
    }

    /// Whether the kernel asks for a system call before it goes on.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.word(self.shared.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The end of a ring that takes entries out.
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    /// Entries taken out, released or not.
    taken: u32,
    released: u32,
    /// What the other side was seen to have put in.
    put: u32,
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
        Self { shared, taken: 0, released: 0, put: 0 }
    }

    /// Takes the next entry out, if there is one; its place is the other side's again after [`Self::release`].
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.taken == self.put {
            self.put = self.shared.producer().load(Ordering::Acquire);
            if self.taken == self.put {
                return None;
            }
        }
        // SAFETY: the entry is inside the ring, was written by the other side before it stored `put`, and is not
        // written again before it is released.
        let entry = unsafe { self.shared.entry(self.taken).read() };
        self.taken = self.taken.wrapping_add(1);
        Some(entry)
    }

    /// Lets the other side use the places of what was taken out.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.released != self.taken {
            self.released = self.taken;
            self.shared.consumer().store(self.taken, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a ring of four, mapped twice as by the kernel, their words just before they wrap.
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
        (producer.put, producer.published, producer.taken) = (start, start, start);
        (consumer.taken, consumer.released, consumer.put) = (start, start, start);
        (producer, consumer)
    }

    #[test]
    fn entries_come_out_in_order_across_the_wrap_of_the_counting_words() {
        let (mut producer, mut consumer) = ends();
        for round in 0..20_u64 {
            for entry in 0..3 {
                assert!(producer.put(round * 3 + entry));
            }
            assert_eq!((consumer.take(), producer.unpublished()), (None, 3), "unpublished entries are not seen");
            producer.publish();
            for entry in 0..3 {
                assert_eq!(consumer.take(), Some(round * 3 + entry));
            }
            assert_eq!((consumer.take(), producer.pending()), (None, 3), "places not released are not free");
            consumer.release();
            assert_eq!(producer.pending(), 0);
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_a_place_is_released() {
        let (mut producer, mut consumer) = ends();
        assert!((0..4).all(|entry| producer.put(entry)) && !producer.put(4));
        producer.publish();
        assert_eq!(consumer.take(), Some(0));
        assert!(!producer.put(4), "a place is the consumer's until it releases it");
        consumer.release();
        assert!(producer.put(4) && !producer.put(5));
        assert_eq!(producer.pending(), 4);
    }
}
