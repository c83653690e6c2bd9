// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receive ring that the kernel fills and the program reads without system calls: `TPACKET_V2`.
//!
//! ```text
//! block 0                                   block 1
//! ┌────────────┬────────────┬─────┬───────┐ ┌────────────┬──
//! │ slot 0     │ slot 1     │  …  │ spare │ │ slot n     │
//! └────────────┴────────────┴─────┴───────┘ └────────────┴──
//!   slot: tpacket2_hdr │ sockaddr_ll │ gap │ frame
//! ```
//! Version 2, not 3: a slot is ready as soon as it holds a frame, while version 3 hands over
//! whole blocks, at the latest after a timeout of a millisecond.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::socket::set_option;
use crate::{ETHERNET_HEADER_BYTES, IncomingMut, VlanTag};

/// The mapped ring and the position of the next slot to read.
pub(crate) struct ReceiveRing {
    memory: NonNull<u8>,
    geometry: RingGeometry,
    next: Position,
    /// The slot lent to the caller, released to the kernel by the next call.
    lent: Option<Position>,
}

/// Position of a slot. Stores the offset, because a spinning reader checks a slot some hundred million
/// times a second and would otherwise divide each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    offset: usize,
    slot_in_block: usize,
    block: usize,
}

// SAFETY: the ring owns its mapping, and nothing in it is bound to the creating thread.
unsafe impl Send for ReceiveRing {}

/// Layout of a receive ring: slots in blocks. No slot crosses the boundary of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingGeometry {
    slot_bytes: usize,
    block_bytes: usize,
    blocks: usize,
}

/// Blocks are physically contiguous; the kernel can easily allocate this size.
const BLOCK_BYTES: usize = 1 << 20;
/// No MTU needs a larger block.
const BLOCK_BYTES_MAX: usize = 1 << 24;
/// More than any ring here has, and few enough that no product overflows.
const BLOCKS_MAX: usize = 1 << 16;
/// Kernel's part of a slot before the frame: header, address, and alignment (`TPACKET2_HDRLEN` + 16, aligned).
const SLOT_HEADROOM_BYTES: usize = 80;
/// Slots start on cache lines, so that no two slots share one.
const SLOT_ALIGNMENT_BYTES: usize = 64;

impl RingGeometry {
    /// Slots for frames of `mtu` bytes of payload, in at least `ring_bytes` of memory.
    pub(crate) fn new(mtu: usize, ring_bytes: usize) -> Self {
        let slot_bytes = (SLOT_HEADROOM_BYTES + ETHERNET_HEADER_BYTES + mtu).next_multiple_of(SLOT_ALIGNMENT_BYTES);
        let block_bytes = BLOCK_BYTES.max(slot_bytes.next_power_of_two());
        Self { slot_bytes, block_bytes, blocks: ring_bytes.div_ceil(block_bytes).max(1) }
    }

    /// Encodes the geometry for a message to another process: bytes of a slot, bytes of a block, number of blocks.
    #[must_use]
    pub fn to_words(self) -> [u32; 3] {
        [self.slot_bytes, self.block_bytes, self.blocks].map(narrow)
    }

    /// Decodes such a message; `None` if the geometry is invalid.
    #[must_use]
    pub fn from_words(words: [u32; 3]) -> Option<Self> {
        let [slot_bytes, block_bytes, blocks] = words.map(|word| word as usize);
        let is_valid = slot_bytes > SLOT_HEADROOM_BYTES + ETHERNET_HEADER_BYTES
            && slot_bytes.is_multiple_of(SLOT_ALIGNMENT_BYTES)
            && block_bytes.is_power_of_two()
            && (slot_bytes.max(BLOCK_BYTES)..=BLOCK_BYTES_MAX).contains(&block_bytes)
            && (1..=BLOCKS_MAX).contains(&blocks);
        is_valid.then_some(Self { slot_bytes, block_bytes, blocks })
    }

    fn slots_per_block(self) -> usize {
        self.block_bytes / self.slot_bytes
    }

    fn slots(self) -> usize {
        self.slots_per_block() * self.blocks
    }

    fn bytes(self) -> usize {
        self.block_bytes * self.blocks
    }

    fn after(self, position: Position) -> Position {
        let (slot_in_block, block) = if position.slot_in_block + 1 < self.slots_per_block() {
            (position.slot_in_block + 1, position.block)
        } else {
            (0, if position.block + 1 < self.blocks { position.block + 1 } else { 0 })
        };
        Position { offset: block * self.block_bytes + slot_in_block * self.slot_bytes, slot_in_block, block }
    }
}

impl ReceiveRing {
    /// Sets up the ring of `socket`, which a holder of the socket can then map.
    pub(crate) fn set_up(socket: &OwnedFd, geometry: RingGeometry) -> Result<(), (&'static str, io::Error)> {
        let request = libc::tpacket_req {
            tp_block_size: narrow(geometry.block_bytes),
            tp_block_nr: narrow(geometry.blocks),
            tp_frame_size: narrow(geometry.slot_bytes),
            tp_frame_nr: narrow(geometry.slots()),
        };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(|error| ("PACKET_VERSION", error))?;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(|error| ("PACKET_RX_RING", error))
    }

    /// Maps the ring of `socket`.
    pub(crate) fn map(socket: &OwnedFd, geometry: RingGeometry) -> Result<Self, (&'static str, io::Error)> {
        // SAFETY: a new shared mapping of the socket's ring; the result is checked.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                geometry.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(memory.cast::<u8>()) {
            Some(memory) if memory.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Self { memory, geometry, next: Position::default(), lent: None })
            }
            _ => Err(("mmap", io::Error::last_os_error())),
        }
    }

    /// The next frame, if the kernel has one ready.
    #[inline]
    pub(crate) fn receive(&mut self) -> Option<IncomingMut<'_>> {
        self.release_lent();
        let slot = self.next;
        let header = self.slot(slot);
        // SAFETY: `slot` is inside the mapping and aligned; only its status is read here, atomically,
        // because the kernel may be writing it.
        let status = unsafe { (*status_of(header)).load(Ordering::Acquire) };
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.next = self.geometry.after(slot);
        self.lent = Some(slot);
        // SAFETY: TP_STATUS_USER says that the kernel has filled header and frame and will not access
        // them before `release_lent`, which needs `&mut self` and so the end of the returned borrow. The
        // kernel keeps tp_mac + tp_snaplen inside the slot.
        let (header, bytes) = unsafe {
            let header = ptr::read(header);
            let frame = self.slot(slot).cast::<u8>().add(usize::from(header.tp_mac));
            (header, std::slice::from_raw_parts_mut(frame, header.tp_snaplen as usize))
        };
        let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(VlanTag {
            protocol: if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { header.tp_vlan_tpid } else { 0x8100 },
            control: header.tp_vlan_tci,
        });
        Some(IncomingMut { bytes, frame_bytes: header.tp_len as usize, vlan })
    }

    /// Releases the lent slot to the kernel. Without this, `poll` would report its frame again.
    #[inline]
    pub(crate) fn release_lent(&mut self) {
        if let Some(slot) = self.lent.take() {
            // SAFETY: as in `receive`; the borrow of this slot has ended because `&mut self` is exclusive.
            unsafe { (*status_of(self.slot(slot))).store(libc::TP_STATUS_KERNEL, Ordering::Release) };
        }
    }

    #[inline]
    fn slot(&self, position: Position) -> *mut libc::tpacket2_hdr {
        debug_assert!(position.offset + self.geometry.slot_bytes <= self.geometry.bytes());
        // SAFETY: the geometry keeps every slot inside the mapping; slots are aligned to cache lines.
        unsafe { self.memory.as_ptr().add(position.offset).cast() }
    }
}

fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The status word by which kernel and program pass the slot to each other.
fn status_of(header: *mut libc::tpacket2_hdr) -> *const AtomicU32 {
    // SAFETY: computes the address of a field inside the slot; nothing is read.
    unsafe { (&raw const (*header).tp_status).cast() }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped, once.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.geometry.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_within_blocks_and_do_not_overlap() {
        for mtu in [68, 1500, 9000, 65_535] {
            let geometry = RingGeometry::new(mtu, 2 << 20);
            assert!(geometry.slot_bytes >= SLOT_HEADROOM_BYTES + ETHERNET_HEADER_BYTES + mtu);
            assert!(geometry.slot_bytes.is_multiple_of(16) && geometry.block_bytes.is_multiple_of(4096));
            let (mut end_of_last, mut position) = (0, Position::default());
            for _ in 0..geometry.slots() {
                let (start, end) = (position.offset, position.offset + geometry.slot_bytes);
                position = geometry.after(position);
                assert!(start >= end_of_last && start / geometry.block_bytes == (end - 1) / geometry.block_bytes);
                end_of_last = end;
            }
            assert!(end_of_last <= geometry.bytes());
            assert_eq!(position, Position::default(), "the last slot is followed by the first");
            assert_eq!(RingGeometry::from_words(geometry.to_words()), Some(geometry));
        }
    }

    #[test]
    fn invalid_geometries_are_refused() {
        let [slot, block, blocks] = RingGeometry::new(1500, 2 << 20).to_words();
        for wrong in [
            [0, block, blocks],
            [64, block, blocks],
            [slot + 1, block, blocks],
            [block * 2, block, blocks],
            [slot, block + 4096, blocks],
            [slot, 1 << 12, blocks],
            [slot, 1 << 31, blocks],
            [slot, block, 0],
            [slot, block, u32::MAX],
        ] {
            assert_eq!(RingGeometry::from_words(wrong), None, "{wrong:?}");
        }
    }
}
