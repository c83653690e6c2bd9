// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reliable or unreliable transport of an endpoint.

use std::time::Duration;

use barewire_endpoint::{Address, EndpointError};

use barewire_messages::{
    Completion, Counts, Datagrams, Label, Messenger, Part, PeerId, ReceiveOptions, Removal, Selector, SendOptions,
};

use crate::bindings::FI_EOPNOTSUPP;
use crate::edge::{Errno, Result};
use crate::link::AnyLink;

pub(crate) type Reliable = Messenger<AnyLink>;

#[expect(clippy::large_enum_variant, reason = "an endpoint has one, and the usual kind without another indirection")]
pub(crate) enum Wire {
    /// `FI_EP_RDM`.
    Reliable(Reliable),
    /// `FI_EP_DGRAM`.
    Unreliable(Box<Datagrams<AnyLink>>),
}

/// The messenger, for operations that datagrams do not support.
#[inline]
pub(crate) fn reliable(wire: &mut Option<Wire>) -> Result<&mut Reliable> {
    match wire {
        Some(Wire::Reliable(messenger)) => Ok(messenger),
        Some(Wire::Unreliable(_)) => Err(Errno(FI_EOPNOTSUPP)),
        None => Err(Errno::BAD_STATE),
    }
}

impl Wire {
    pub fn address(&self) -> Address {
        match self {
            Self::Reliable(messenger) => messenger.address(),
            Self::Unreliable(datagrams) => datagrams.address(),
        }
    }

    pub fn prepare_to_sleep(&mut self, patience: Duration) -> std::result::Result<Option<Duration>, EndpointError> {
        match self {
            Self::Reliable(messenger) => messenger.prepare_to_sleep(patience),
            Self::Unreliable(datagrams) => datagrams.endpoint().prepare_to_sleep(patience),
        }
    }

    pub fn endpoint(&mut self) -> &mut barewire_endpoint::Endpoint<AnyLink> {
        match self {
            Self::Reliable(messenger) => messenger.endpoint(),
            Self::Unreliable(datagrams) => datagrams.endpoint(),
        }
    }

    pub fn peer(&mut self, address: Address) -> PeerId {
        match self {
            Self::Reliable(messenger) => messenger.peer(address),
            Self::Unreliable(datagrams) => datagrams.peer(address),
        }
    }

    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        match self {
            Self::Reliable(messenger) => messenger.address_of(peer),
            Self::Unreliable(datagrams) => datagrams.address_of(peer),
        }
    }

    pub fn remove_peer(&mut self, peer: PeerId) {
        match self {
            // A peer that the messenger no longer knows needs no removal.
            Self::Reliable(messenger) => drop(messenger.remove_peer(peer, Removal::Drain)),
            Self::Unreliable(datagrams) => datagrams.remove_peer(peer),
        }
    }

    pub fn counts(&self) -> Counts {
        match self {
            Self::Reliable(messenger) => messenger.counts(),
            Self::Unreliable(datagrams) => datagrams.counts(),
        }
    }

    #[inline(always)]
    pub fn progress(&mut self) -> std::result::Result<bool, EndpointError> {
        match self {
            Self::Reliable(messenger) => messenger.progress(),
            Self::Unreliable(datagrams) => datagrams.progress(),
        }
    }

    #[inline]
    pub fn has_nothing_to_send(&self) -> bool {
        match self {
            Self::Reliable(messenger) => messenger.has_nothing_to_send() && !messenger.has_completions(),
            Self::Unreliable(datagrams) => datagrams.has_nothing_to_send() && !datagrams.has_completions(),
        }
    }

    #[inline]
    pub fn has_messages(&self) -> bool {
        match self {
            Self::Reliable(messenger) => messenger.has_messages(),
            // Datagrams are not acknowledged.
            Self::Unreliable(_) => false,
        }
    }

    #[inline]
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::Reliable(messenger) => messenger.is_blocked(),
            Self::Unreliable(_) => false,
        }
    }

    #[inline]
    pub fn has_completions(&self) -> bool {
        match self {
            Self::Reliable(messenger) => messenger.has_completions(),
            Self::Unreliable(datagrams) => datagrams.has_completions(),
        }
    }

    #[inline(always)]
    pub fn poll(&mut self) -> Option<Completion> {
        match self {
            Self::Reliable(messenger) => messenger.poll(),
            Self::Unreliable(datagrams) => datagrams.poll(),
        }
    }

    pub fn cancel(&mut self, context: u64) -> bool {
        match self {
            Self::Reliable(messenger) => messenger.cancel(context) || messenger.cancel_send(context),
            Self::Unreliable(datagrams) => datagrams.cancel(context),
        }
    }

    /// # Safety
    /// The parts must be valid until the operation has ended.
    #[inline(always)]
    pub unsafe fn send(&mut self, to: PeerId, label: Label, parts: &[Part], options: SendOptions) -> Result<()> {
        match self {
            // SAFETY: the caller's promise.
            Self::Reliable(messenger) => unsafe { messenger.send(to, label, parts, options) }?,
            Self::Unreliable(datagrams) => {
                refuse_label(label)?;
                let completion = (!options.is_silent).then_some((options.context, options.note));
                // SAFETY: the caller's promise.
                unsafe { datagrams.send(to, parts, completion) }?;
            }
        }
        Ok(())
    }

    /// As [`send`](Self::send), but copies the bytes.
    #[inline(always)]
    pub fn send_copy(&mut self, to: PeerId, label: Label, bytes: &[u8], options: SendOptions) -> Result<()> {
        match self {
            Self::Reliable(messenger) => messenger.send_copy(to, label, bytes, options)?,
            Self::Unreliable(datagrams) => {
                refuse_label(label)?;
                let completion = (!options.is_silent).then_some((options.context, options.note));
                // SAFETY: `bytes` is borrowed during the call.
                unsafe { datagrams.send(to, &[Part::of(bytes)], completion) }?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// The parts must be valid, and used by nothing else, until the operation has ended.
    #[inline(always)]
    pub unsafe fn receive(&mut self, wanted: Selector, parts: &[Part], options: ReceiveOptions) -> Result<()> {
        match self {
            // SAFETY: the caller's promise.
            Self::Reliable(messenger) => unsafe { messenger.receive(wanted, parts, options) }?,
            Self::Unreliable(datagrams) => {
                let Selector::Untagged(None) = wanted else { return Err(Errno(FI_EOPNOTSUPP)) };
                // SAFETY: the caller's promise.
                unsafe { datagrams.receive(parts, options) }?;
            }
        }
        Ok(())
    }
}

/// Refuses a label, since datagrams carry neither tag nor data.
fn refuse_label(label: Label) -> Result<()> {
    if label == (Label { tag: None, data: None }) { Ok(()) } else { Err(Errno(FI_EOPNOTSUPP)) }
}
