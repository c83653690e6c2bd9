// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors of the send queue: one for each outstanding message.

use barewire_llc::message::{Fragment, Fragmenter};

use crate::slots::{Lent, Slot};

/// Identifies a descriptor.
pub(crate) type DescriptorId = u16;

/// Maximum size in bytes of a message's head: what a message layer puts before the user's data.
pub const HEAD_MAX: usize = 64;

/// An outstanding message.
#[derive(Clone)]
pub(crate) struct Descriptor {
    /// The caller's context.
    pub context: u64,
    /// Index of the channel; `None` for a datagram.
    pub channel: Option<u16>,
    pub content: Content,
    /// Frames that the peer has not acknowledged yet.
    pub outstanding: u32,
    /// Whether the whole message was submitted to the carrier.
    pub is_submitted: bool,
    /// Whether one of its frames was given up.
    pub is_lost: bool,
    /// Whether an immediate acknowledgement is to be requested.
    pub wants_acknowledgement: bool,
    /// The lent memory that holds the message, in part or whole.
    pub lent: Option<Lent>,
    /// The copy to which `lent` points, if the caller took its memory back.
    pub copy: Option<Box<[u8]>>,
}

/// Where a message lies until it is submitted to its carrier.
#[derive(Clone)]
pub(crate) enum Content {
    /// In a slot; a message of one fragment.
    Slot(Slot),
    /// Its head here, its body in the caller's memory; and the state of fragmentation, once that has begun.
    Lent { head: [u8; HEAD_MAX], head_bytes: u8, body: Lent, fragments: Option<(Fragmenter, Option<Fragment>)> },
    /// With the carrier.
    Submitted,
}

impl Content {
    /// Whether nothing has been submitted.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::Slot(_) | Self::Lent { fragments: None, .. })
    }
}

/// The descriptors of an endpoint.
pub(crate) struct Descriptors {
    entries: Vec<Option<Descriptor>>,
    free: Vec<DescriptorId>,
    /// Messages whose completion the caller waits for: their memory is lent, or an acknowledgement is requested.
    awaited: u16,
}

impl Descriptors {
    pub fn new(count: u16) -> Self {
        Self { entries: vec![None; usize::from(count)], free: (0..count).rev().collect(), awaited: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Whether no more than a quarter is free.
    pub fn are_scarce(&self) -> bool {
        self.free.len() <= self.entries.len() / 4
    }

    /// Whether the caller waits for the completion of a message.
    #[inline]
    pub fn has_awaited(&self) -> bool {
        self.awaited > 0
    }

    #[inline]
    pub fn add(
        &mut self,
        context: u64,
        channel: Option<u16>,
        content: Content,
        wants_acknowledgement: bool,
    ) -> Option<DescriptorId> {
        let id = self.free.pop()?;
        let lent = if let Content::Lent { body, .. } = &content { Some(*body) } else { None };
        self.awaited += u16::from(wants_acknowledgement || lent.is_some());
        self.entries[usize::from(id)] = Some(Descriptor {
            context,
            channel,
            content,
            outstanding: 0,
            is_submitted: false,
            is_lost: false,
            wants_acknowledgement,
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
        self.awaited -= u16::from(descriptor.wants_acknowledgement || descriptor.lent.is_some());
        Some(descriptor)
    }

    /// Messages of a channel.
    pub fn of_channel(&self, channel: u16) -> Vec<DescriptorId> {
        self.ids_where(|descriptor| descriptor.channel == Some(channel))
    }

    /// Messages with a context.
    pub fn with_context(&self, context: u64) -> Vec<DescriptorId> {
        self.ids_where(|descriptor| descriptor.context == context)
    }

    fn ids_where(&self, is_wanted: impl Fn(&Descriptor) -> bool) -> Vec<DescriptorId> {
        let entries = (0..).zip(&self.entries);
        entries.filter(|(_, entry)| entry.as_ref().is_some_and(&is_wanted)).map(|(id, _)| id).collect()
    }

    pub fn are_all_free(&self) -> bool {
        self.free.len() == self.entries.len()
    }
}
