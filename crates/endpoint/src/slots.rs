// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The send part of a communication segment: slots, each with the frame of one information field, or its start.

use std::ptr;
use std::slice;

use barewire_link::{ETHERNET_HEADER_BYTES, Outgoing};
use barewire_llc::extension::{Extra, Guard, INFORMATION_FRONT, covered};
use barewire_llc::message::is_whole;

use crate::check::{addresses, check};

/// Identifies a slot.
pub type Slot = u16;

/// The longest header of a PDU with an information field, an I PDU.
const LLC_BYTES: usize = 4;

/// Slots of equal size, free or in use.
pub struct Slots {
    memory: Box<[u8]>,
    slot_bytes: usize,
    /// Bytes before the information, with the extension.
    headroom_bytes: usize,
    entries: Box<[Entry]>,
    free: Vec<Slot>,
    /// Whether the check covers all of each frame of a long message.
    pub checks_all: bool,
    /// Slots in use that hold only the start of the information.
    heads: u16,
}

/// Content of a slot in use.
#[derive(Clone, Copy)]
struct Entry {
    /// Bytes of information in the slot itself.
    in_slot: u16,
    /// The rest of the information, in the caller's memory.
    lent: Lent,
    /// Whether it was filled by `lend`.
    is_head: bool,
}

/// Memory of the caller that is only read.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    memory: *const u8,
    bytes: usize,
}

// SAFETY: the memory is only read; whoever lent it promised that it stays valid and unchanged, for any thread.
unsafe impl Send for Lent {}

impl Lent {
    const NOTHING: Self = Self { memory: ptr::null(), bytes: 0 };

    /// # Safety
    /// `bytes` must stay valid and unchanged while this or a part of it is used.
    #[inline]
    pub(crate) const unsafe fn new(bytes: &[u8]) -> Self {
        Self { memory: bytes.as_ptr(), bytes: bytes.len() }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the caller of `new` promised that the memory is valid and unchanged.
        unsafe { slice::from_raw_parts(self.memory, self.bytes) }
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }
}

impl Slots {
    /// Allocates slots for frames of this MTU.
    pub(crate) fn new(slots: u16, mtu: usize, guard: Guard) -> Self {
        let headroom_bytes = ETHERNET_HEADER_BYTES + LLC_BYTES + guard.bytes() + INFORMATION_FRONT;
        // Each slot starts on a cache line. Without an extension, its part of the headroom stays unused.
        let slot_bytes = (headroom_bytes + mtu).next_multiple_of(64);
        Self {
            memory: vec![0; slot_bytes * usize::from(slots)].into_boxed_slice(),
            slot_bytes,
            headroom_bytes,
            entries: vec![Entry { in_slot: 0, lent: Lent::NOTHING, is_head: false }; usize::from(slots)]
                .into_boxed_slice(),
            free: (0..slots).collect(),
            checks_all: false,
            heads: 0,
        }
    }

    /// Copies an information field, in two pieces, into a free slot; `None` if there is none.
    #[inline]
    pub fn fill(&mut self, first: &[u8], second: &[u8]) -> Option<Slot> {
        let slot = self.free.pop()?;
        let start = self.information_at(slot);
        let field = &mut self.memory[start..start + first.len() + second.len()];
        let (a, b) = field.split_at_mut(first.len());
        a.copy_from_slice(first);
        barewire_copy::copy(second, b);
        let in_slot = (first.len() + second.len()) as u16;
        self.entries[usize::from(slot)] = Entry { in_slot, lent: Lent::NOTHING, is_head: false };
        Some(slot)
    }

    /// Copies only the first piece into a free slot; the second is sent from the caller's memory.
    ///
    /// # Safety
    /// `second` must stay valid and unchanged until the slot is free again, or these slots are dropped.
    #[inline]
    pub unsafe fn lend(&mut self, first: &[u8], second: &[u8]) -> Option<Slot> {
        let slot = self.fill(first, &[])?;
        let entry = &mut self.entries[usize::from(slot)];
        // SAFETY: as promised by the caller.
        (entry.lent, entry.is_head) = (unsafe { Lent::new(second) }, true);
        self.heads += 1;
        Some(slot)
    }

    /// Frees a slot that the engine no longer needs.
    #[inline]
    pub fn free(&mut self, slot: Slot) {
        self.heads -= u16::from(self.entries[usize::from(slot)].is_head);
        self.free.push(slot);
    }

    /// Makes a slot refer to `to`, a copy of the memory `from`, if it refers to `from`.
    pub(crate) fn move_lent(&mut self, slot: Slot, from: Lent, to: Lent) {
        let lent = &mut self.entries[usize::from(slot)].lent;
        let offset = (lent.memory as usize).wrapping_sub(from.memory as usize);
        if lent.bytes > 0 && offset.checked_add(lent.bytes).is_some_and(|end| end <= from.bytes) {
            lent.memory = to.memory.wrapping_add(offset);
        }
    }

    /// Slots in use that hold only the start of the information.
    #[inline]
    pub(crate) fn heads(&self) -> u16 {
        self.heads
    }

    /// Number of free slots.
    #[inline]
    pub(crate) fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Whether no slot is in use.
    #[must_use]
    pub fn are_all_free(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// The information in the slot itself.
    #[inline]
    pub(crate) fn information(&self, slot: Slot) -> &[u8] {
        let start = self.information_at(slot);
        &self.memory[start..start + usize::from(self.entries[usize::from(slot)].in_slot)]
    }

    /// The information of a slot in use: in the slot, and in the caller's memory.
    #[inline]
    pub(crate) fn pieces(&self, slot: Slot) -> [&[u8]; 2] {
        [self.information(slot), self.entries[usize::from(slot)].lent.bytes()]
    }

    #[inline]
    fn information_at(&self, slot: Slot) -> usize {
        usize::from(slot) * self.slot_bytes + self.headroom_bytes
    }

    /// Size of the information field of a slot in use, in bytes.
    #[inline]
    pub(crate) fn information_bytes(&self, slot: Slot) -> usize {
        let entry = &self.entries[usize::from(slot)];
        usize::from(entry.in_slot) + entry.lent.bytes
    }

    /// Writes a frame's headers, with extension and check, in front of a slot's information. Returns their size.
    #[inline]
    pub(crate) fn write_headers(
        &mut self,
        slot: Slot,
        ethernet: &[u8; ETHERNET_HEADER_BYTES],
        llc: &[u8],
        extra: &mut Extra,
    ) -> usize {
        let checks_all = self.checks_all;
        self.write_guarded_headers(slot, ethernet, llc, extra, |extra, [mut in_slot, mut lent]| {
            if extra.as_bytes().len() == INFORMATION_FRONT && !checks_all && !is_whole(in_slot) {
                extra.cover_partly();
                let covered = covered(in_slot);
                in_slot = &in_slot[..in_slot.len().min(covered)];
                lent = &lent[..lent.len().min(covered - in_slot.len())];
            }
            check::<3>(addresses(ethernet), llc, [extra.as_bytes(), in_slot, lent]).to_be_bytes()
        })
    }

    /// As [`write_headers`](Self::write_headers), with the guard that `guard` makes from the extension and the two
    /// pieces of the information.
    #[inline]
    pub(crate) fn write_guarded_headers<const GUARD: usize>(
        &mut self,
        slot: Slot,
        ethernet: &[u8; ETHERNET_HEADER_BYTES],
        llc: &[u8],
        extra: &mut Extra,
        guard: impl FnOnce(&mut Extra, [&[u8]; 2]) -> [u8; GUARD],
    ) -> usize {
        let end = self.information_at(slot);
        let entry = &self.entries[usize::from(slot)];
        let added = if extra.is_none() { 0 } else { GUARD + extra.as_bytes().len() };
        let bytes = ETHERNET_HEADER_BYTES + llc.len() + added;
        let frame = &mut self.memory[end - bytes..end + usize::from(entry.in_slot)];
        let (first, rest) = frame.split_at_mut(ETHERNET_HEADER_BYTES);
        first.copy_from_slice(ethernet);
        let (second, rest) = rest.split_at_mut(llc.len());
        match *llc {
            // Nearly always an I PDU: a copy of constant size needs no call.
            [dsap, ssap, ns, nr] => second.copy_from_slice(&[dsap, ssap, ns, nr]),
            _ => second.copy_from_slice(llc),
        }
        let (third, information) = rest.split_at_mut(added);
        if let Some((guard_bytes, third)) = third.split_first_chunk_mut::<GUARD>() {
            // The guard reads the sources, not the copies just written: those loads would wait for the stores.
            *guard_bytes = guard(extra, [information, entry.lent.bytes()]);
            match <&[u8; INFORMATION_FRONT]>::try_from(extra.as_bytes()) {
                Ok(extra) => third.copy_from_slice(extra),
                Err(_) => third.copy_from_slice(extra.as_bytes()),
            }
        }
        bytes
    }

    /// The frame of a slot in use whose headers have `header_bytes` bytes, with its label.
    #[inline]
    pub(crate) fn frame(&self, slot: Slot, header_bytes: usize, label: u16) -> Outgoing<'_> {
        let entry = &self.entries[usize::from(slot)];
        let start = self.information_at(slot);
        Outgoing {
            header: &self.memory[start - header_bytes..start + usize::from(entry.in_slot)],
            payload: entry.lent.bytes(),
            label,
        }
    }
}
