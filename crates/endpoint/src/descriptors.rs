// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The send queue's descriptors: one for each message under way.

use barewire_llc::message::{Fragment, Fragmenter};

use crate::slots::{Lent, Slot};

/// Names a descriptor.
pub(crate) type DescriptorId = u16;

/// Bytes of a message's head, at most: what a message layer puts before its user's data.
pub const HEAD_MAX: usize = 64;

/// A message under way.
#[derive(Clone)]
pub(crate) struct Descriptor {
    /// The caller's.
    pub context: u64,
    /// To whom, unless it is a datagram.
    pub channel: Option<u16>,
    pub content: Content,
    /// Frames that the peer has not acknowledged.
    pub outstanding: u32,
    /// Whether all of it was handed on.
    pub is_cut: bool,
    /// A frame of it was given up.
    pub is_lost: bool,
    /// Somebody waits for its acknowledgement.
    pub asks: bool,
    /// The memory that it or a part of it lies in, if that was lent.
    pub lent: Option<Lent>,
    /// That memory, if it was taken over from the caller.
    pub copy: Option<Box<[u8]>>,
}

/// Where a message lies until it is handed on.
#[derive(Clone)]
pub(crate) enum Content {
    /// In a slot, whole, in one fragment.
    Slot(Slot),
    /// Its head here, the rest in the caller's memory; and how far it is cut, once that has begun.
    Lent { head: [u8; HEAD_MAX], head_bytes: u8, body: Lent, cut: Option<(Fragmenter, Option<Fragment>)> },
    /// Handed on.
    Gone,
}

impl Content {
    /// Whether nothing has been handed on.
    pub fn is_untouched(&self) -> bool {
        matches!(self, Self::Slot(_) | Self::Lent { cut: None, .. })
    }
}

/// All of them.
pub(crate) struct Descriptors {
    entries: Vec<Option<Descriptor>>,
    free: Vec<DescriptorId>,
    /// Those whose end somebody waits for: for their memory, or because they asked for it.
    awaited: u16,
}

impl Descriptors {
    pub fn new(most: u16) -> Self {
        Self { entries: vec![None; usize::from(most)], free: (0..most).rev().collect(), awaited: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Whether no more than a quarter is left.
    pub fn are_scarce(&self) -> bool {
        self.free.len() <= self.entries.len() / 4
    }

    /// Whether somebody waits for the end of one.
    #[inline]
    pub fn has_awaited(&self) -> bool {
        self.awaited > 0
    }

    #[inline]
    pub fn add(&mut self, context: u64, channel: Option<u16>, content: Content, asks: bool) -> Option<DescriptorId> {
        let id = self.free.pop()?;
        let lent = if let Content::Lent { body, .. } = &content { Some(*body) } else { None };
        self.awaited += u16::from(asks || lent.is_some());
        self.entries[usize::from(id)] = Some(Descriptor {
            context,
            channel,
            content,
            outstanding: 0,
            is_cut: false,
            is_lost: false,
            asks,
            lent,
            copy: None,
        });
        Some(id)
    }

    #[inline]
    pub fn at(&mut self, id: DescriptorId) -> Option<&mut Descriptor> {
        self.entries[usize::from(id)].as_mut()
    }

    #[inline]
    pub fn remove(&mut self, id: DescriptorId) -> Option<Descriptor> {
        let descriptor = self.entries[usize::from(id)].take()?;
        self.free.push(id);
        self.awaited -= u16::from(descriptor.asks || descriptor.lent.is_some());
        Some(descriptor)
    }

    /// Those of a channel.
    pub fn of_channel(&self, channel: u16) -> Vec<DescriptorId> {
        self.those_where(|descriptor| descriptor.channel == Some(channel))
    }

    /// Those of a context.
    pub fn with_context(&self, context: u64) -> Vec<DescriptorId> {
        self.those_where(|descriptor| descriptor.context == context)
    }

    fn those_where(&self, is_wanted: impl Fn(&Descriptor) -> bool) -> Vec<DescriptorId> {
        let entries = (0..).zip(&self.entries);
        entries.filter(|(_, entry)| entry.as_ref().is_some_and(&is_wanted)).map(|(id, _)| id).collect()
    }

    pub fn are_all_free(&self) -> bool {
        self.free.len() == self.entries.len()
    }
}
