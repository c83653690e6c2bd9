// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors of messages that are queued, or that are reported when the peer has acknowledged them.

use barewire_llc::message::{Fragment, Fragmenter};

use crate::slots::Lent;

/// Identifies a descriptor.
pub(crate) type DescriptorId = u32;

/// Maximum size in bytes of a message's head: what a message layer puts before the user's data.
pub const HEAD_MAX: usize = 64;
/// Largest head and body in bytes that local peers exchange in one piece, like those of a frame between others.
pub const LOCAL_PIECE_MAX: usize = HEAD_MAX + (16 << 10);

/// When a message is reported, and under which context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Never.
    Never,
    /// Only if it is lost: [`Event::Ended`](crate::Event::Ended) says so for all messages of the channel.
    Loss,
    /// As soon as its carrier has a copy, so that the caller may reuse its memory.
    Copied {
        /// The context.
        context: u64,
        /// Whether a later loss is reported as for `Loss`.
        counts_loss: bool,
    },
    /// When the peer's endpoint has it; the acknowledgement comes with other frames, or after a delay.
    Acknowledged(u64),
    /// The same, but the peer is asked to acknowledge it at once, because the caller waits for that.
    AcknowledgedAtOnce(u64),
}

impl Report {
    /// The context of the event that reports the message.
    pub(crate) fn context(self) -> Option<u64> {
        match self {
            Self::Copied { context, .. } | Self::Acknowledged(context) | Self::AcknowledgedAtOnce(context) => {
                Some(context)
            }
            Self::Never | Self::Loss => None,
        }
    }

    /// Whether the report waits for the peer's acknowledgement.
    #[inline]
    pub(crate) fn is_acknowledgement(self) -> bool {
        matches!(self, Self::Acknowledged(_) | Self::AcknowledgedAtOnce(_))
    }

    /// Whether the message counts as lost if it is not acknowledged.
    #[inline]
    pub(crate) fn counts_loss(self) -> bool {
        matches!(self, Self::Loss | Self::Copied { counts_loss: true, .. })
    }
}

/// A message.
#[derive(Clone)]
pub(crate) struct Descriptor {
    pub report: Report,
    /// Index of the channel; `None` for a datagram.
    pub channel: Option<u16>,
    pub content: Content,
    /// Frames that the peer has not acknowledged yet, of a message that is reported then.
    pub outstanding: u32,
    /// Whether one of these frames was given up.
    pub is_lost: bool,
    /// The lent memory that holds the message's body.
    pub lent: Option<Lent>,
    /// The copy to which `lent` points, if the memory is not the caller's.
    pub copy: Option<Box<[u8]>>,
}

/// What of a message its carrier does not have yet.
#[derive(Clone)]
pub(crate) enum Content {
    /// Its head, its body, and the state of fragmentation, once that has begun.
    Queued { head: [u8; HEAD_MAX], head_bytes: u8, body: Lent, fragments: Option<(Fragmenter, Option<Fragment>)> },
    /// Nothing: the carrier has all of it.
    Submitted,
}

impl Content {
    /// A message of which nothing was submitted.
    pub fn new(head: &[u8], body: Lent) -> Self {
        let mut copy = [0; HEAD_MAX];
        copy[..head.len()].copy_from_slice(head);
        Self::Queued { head: copy, head_bytes: head.len() as u8, body, fragments: None }
    }

    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::Queued { fragments: None, .. })
    }
}

/// The descriptors of an endpoint.
pub(crate) struct Descriptors {
    entries: Vec<Option<Descriptor>>,
    free: Vec<DescriptorId>,
    /// Messages whose acknowledgement the caller waits for: it was asked for, or their memory is lent.
    awaited: usize,
}

impl Descriptors {
    pub fn with_capacity(count: usize) -> Self {
        Self { entries: Vec::with_capacity(count), free: Vec::with_capacity(count), awaited: 0 }
    }

    /// Number of descriptors in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether the caller waits for the acknowledgement of a message.
    #[inline]
    pub fn has_awaited(&self) -> bool {
        self.awaited > 0
    }

    #[inline]
    pub fn add(
        &mut self,
        channel: Option<u16>,
        report: Report,
        content: Content,
        copy: Option<Box<[u8]>>,
    ) -> DescriptorId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as DescriptorId
        });
        let lent = if let Content::Queued { body, .. } = &content { Some(*body) } else { None };
        let descriptor = Descriptor { report, channel, content, outstanding: 0, is_lost: false, lent, copy };
        self.awaited += usize::from(is_awaited(&descriptor));
        self.entries[id as usize] = Some(descriptor);
        id
    }

    #[inline]
    pub fn at(&mut self, id: DescriptorId) -> Option<&mut Descriptor> {
        self.entries.get_mut(id as usize)?.as_mut()
    }

    #[inline]
    pub fn remove(&mut self, id: DescriptorId) -> Option<Descriptor> {
        let descriptor = self.entries.get_mut(id as usize)?.take()?;
        self.free.push(id);
        self.awaited -= usize::from(is_awaited(&descriptor));
        Some(descriptor)
    }

    /// Makes a message lie in a copy of its lent memory from now on. Returns the old and the new memory.
    pub fn copy_lent(&mut self, id: DescriptorId) -> Option<(Lent, Lent)> {
        let descriptor = self.entries.get_mut(id as usize)?.as_mut()?;
        let lent = descriptor.lent.filter(|_| descriptor.copy.is_none())?;
        let copy = lent.bytes().to_vec().into_boxed_slice();
        // SAFETY: the descriptor owns the copy and stays until no frame of the message is outstanding.
        let own = unsafe { Lent::new(&copy) };
        if let Content::Queued { body, .. } = &mut descriptor.content {
            *body = own;
        }
        (descriptor.lent, descriptor.copy) = (Some(own), Some(copy));
        Some((lent, own))
    }

    /// Messages of a channel.
    pub fn of_channel(&self, channel: u16) -> Vec<DescriptorId> {
        self.ids_where(|descriptor| descriptor.channel == Some(channel))
    }

    /// Messages with a context.
    pub fn with_context(&self, context: u64) -> Vec<DescriptorId> {
        self.ids_where(|descriptor| descriptor.report.context() == Some(context))
    }

    fn ids_where(&self, is_wanted: impl Fn(&Descriptor) -> bool) -> Vec<DescriptorId> {
        let entries = (0..).zip(&self.entries);
        entries.filter(|(_, entry)| entry.as_ref().is_some_and(&is_wanted)).map(|(id, _)| id).collect()
    }
}

fn is_awaited(descriptor: &Descriptor) -> bool {
    let is_lent = descriptor.lent.is_some() && descriptor.report.is_acknowledgement();
    is_lent || matches!(descriptor.report, Report::AcknowledgedAtOnce(_))
}
