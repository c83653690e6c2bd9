// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The send part of a communication segment: slots, each the frame of one information field, or its head.

use std::ptr;
use std::slice;

use barewire_link::{ETHERNET_HEADER_BYTES, Outgoing};
use barewire_llc::extension::{Extra, Guard, INFORMATION_FRONT, covered};
use barewire_llc::message::is_whole;

use crate::check::{addresses, check};

/// Names a slot.
pub type Slot = u16;

/// The longest header of a PDU that has an information field: an I PDU's.
const LLC_BYTES: usize = 4;

/// Slots of equal size, free or under way.
pub struct Slots {
    memory: Box<[u8]>,
    slot_bytes: usize,
    /// What lies before the information, of our stations.
    headroom_bytes: usize,
    entries: Box<[Entry]>,
    free: Vec<Slot>,
    /// Whether the check is over all of a long message, too.
    pub checks_all: bool,
    /// Slots under way that hold only a head.
    heads: u16,
}

/// What a slot that is under way holds.
#[derive(Clone, Copy)]
struct Entry {
    /// Bytes of information in the slot itself.
    in_slot: u16,
    /// What follows, in the caller's memory.
    lent: Lent,
    /// Whether it was filled by `lend`.
    is_head: bool,
}

/// Memory of the caller's that is only read.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    memory: *const u8,
    bytes: usize,
}

// SAFETY: the memory is only read, and whoever lent it promised that it stays valid and unchanged, for any thread.
unsafe impl Send for Lent {}

impl Lent {
    const NOTHING: Self = Self { memory: ptr::null(), bytes: 0 };

    /// # Safety
    /// `bytes` must stay valid and unchanged for as long as this or a part of it is used.
    #[inline]
    pub(crate) const unsafe fn new(bytes: &[u8]) -> Self {
        Self { memory: bytes.as_ptr(), bytes: bytes.len() }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: `new`'s caller promised that the memory is valid and unchanged.
        unsafe { slice::from_raw_parts(self.memory, self.bytes) }
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }
}

impl Slots {
    /// So many slots for frames of this MTU.
    pub(crate) fn new(slots: u16, mtu: usize, guard: Guard) -> Self {
        let headroom_bytes = ETHERNET_HEADER_BYTES + LLC_BYTES + guard.bytes() + INFORMATION_FRONT;
        // A slot starts on a cache line of its own; stations that add nothing leave the room for that unused.
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

    /// Copies an information field, in two pieces, into a free slot; `None` if all are under way.
    #[inline]
    pub fn fill(&mut self, first: &[u8], second: &[u8]) -> Option<Slot> {
        let slot = self.free.pop()?;
        let at = self.information_at(slot);
        let place = &mut self.memory[at..at + first.len() + second.len()];
        let (a, b) = place.split_at_mut(first.len());
        a.copy_from_slice(first);
        barewire_copy::copy(second, b);
        let in_slot = (first.len() + second.len()) as u16;
        self.entries[usize::from(slot)] = Entry { in_slot, lent: Lent::NOTHING, is_head: false };
        Some(slot)
    }

    /// Copies only the first piece into a free slot, and sends the second from where it lies.
    ///
    /// # Safety
    /// `second` must stay valid and unchanged until the slot is free again, or these slots are dropped.
    #[inline]
    pub unsafe fn lend(&mut self, first: &[u8], second: &[u8]) -> Option<Slot> {
        let slot = self.fill(first, &[])?;
        let entry = &mut self.entries[usize::from(slot)];
        // SAFETY: the caller's promise.
        (entry.lent, entry.is_head) = (unsafe { Lent::new(second) }, true);
        self.heads += 1;
        Some(slot)
    }

    /// Gives a slot back once the engine has done with it.
    #[inline]
    pub fn free(&mut self, slot: Slot) {
        self.heads -= u16::from(self.entries[usize::from(slot)].is_head);
        self.free.push(slot);
    }

    /// What a slot sends from one memory is sent from a copy of it from now on. Of any other slot nothing changes.
    pub(crate) fn move_lent(&mut self, slot: Slot, from: Lent, to: Lent) {
        let lent = &mut self.entries[usize::from(slot)].lent;
        let offset = (lent.memory as usize).wrapping_sub(from.memory as usize);
        if lent.bytes > 0 && offset.checked_add(lent.bytes).is_some_and(|end| end <= from.bytes) {
            lent.memory = to.memory.wrapping_add(offset);
        }
    }

    /// Slots under way that hold only a head.
    #[inline]
    pub(crate) fn heads(&self) -> u16 {
        self.heads
    }

    /// Slots that are not under way.
    #[inline]
    pub(crate) fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn are_all_free(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// The information of a slot that was filled.
    #[inline]
    pub(crate) fn information(&self, slot: Slot) -> &[u8] {
        let at = self.information_at(slot);
        &self.memory[at..at + usize::from(self.entries[usize::from(slot)].in_slot)]
    }

    /// The information of a slot under way: in the slot, and in the caller's memory.
    #[inline]
    pub(crate) fn pieces(&self, slot: Slot) -> [&[u8]; 2] {
        [self.information(slot), self.entries[usize::from(slot)].lent.bytes()]
    }

    #[inline]
    fn information_at(&self, slot: Slot) -> usize {
        usize::from(slot) * self.slot_bytes + self.headroom_bytes
    }

    /// Bytes of a slot's information field.
    #[inline]
    pub(crate) fn information_bytes(&self, slot: Slot) -> usize {
        let entry = &self.entries[usize::from(slot)];
        usize::from(entry.in_slot) + entry.lent.bytes
    }

    /// Writes the headers right before a slot's information, and the check of what a station of ours adds; how many bytes
    /// they have.
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

    /// As [`write_headers`](Self::write_headers), with the guard that `guard` makes of what is added and the information's
    /// pieces, in the slot and in the caller's memory.
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
            // An I PDU, nearly always: a copy of a known length is no call.
            [dsap, ssap, ns, nr] => second.copy_from_slice(&[dsap, ssap, ns, nr]),
            _ => second.copy_from_slice(llc),
        }
        let (third, information) = rest.split_at_mut(added);
        if let Some((place, third)) = third.split_first_chunk_mut::<GUARD>() {
            // The guard reads what was not written just now: else each load would wait for stores.
            *place = guard(extra, [information, entry.lent.bytes()]);
            match <&[u8; INFORMATION_FRONT]>::try_from(extra.as_bytes()) {
                Ok(extra) => third.copy_from_slice(extra),
                Err(_) => third.copy_from_slice(extra.as_bytes()),
            }
        }
        bytes
    }

    /// The frame of a slot that is under way, whose headers have so many bytes.
    #[inline]
    pub(crate) fn frame(&self, slot: Slot, header_bytes: usize) -> Outgoing<'_> {
        let entry = &self.entries[usize::from(slot)];
        let at = self.information_at(slot);
        Outgoing {
            header: &self.memory[at - header_bytes..at + usize::from(entry.in_slot)],
            payload: entry.lent.bytes(),
        }
    }
}
