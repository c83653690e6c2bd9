// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a process communicates: by a messenger, or by libfabric's functions on top of one.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use barewire_endpoint::{Address, Endpoint};
use barewire_messages::{
    Access, AtomicOperation, AtomicParts, AtomicType, Claim, Completion, Envelope, Label, Messenger, Part, PeerId,
    PostError, ReceiveOptions, RemoteAddress, Removal, Selector, SendOptions,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::link::SimulatedLink;
use super::super::scenario::Scenario;
use super::libfabric::{self, Libfabric};

/// A messenger, or libfabric's objects. The methods are those of [`Messenger`].
pub enum Port {
    Messenger(Box<Messenger<SimulatedLink>>),
    Libfabric(Box<Libfabric>),
}

/// A claimed message.
#[derive(Clone, Copy, Debug)]
pub enum Claimed {
    Messenger(Claim),
    Libfabric(libfabric::Claim),
}

impl Port {
    pub fn open(link: SimulatedLink, config: barewire_endpoint::Config, scenario: &Scenario) -> Self {
        let mut messages = scenario.messages;
        if scenario.uses_libfabric {
            // As the provider does, but not if peers are removed whose accesses would be refused then.
            messages.serves_unknown_peers = config.framing.token.is_some() || scenario.removes_peers();
            return Self::Libfabric(Box::new(Libfabric::open(Box::new(link), config, messages, scenario)));
        }
        let endpoint = Endpoint::open(link, config, None).expect("the scenario's configuration is right");
        Self::Messenger(Box::new(Messenger::new(endpoint, messages)))
    }

    pub fn peer(&mut self, address: Address) -> PeerId {
        match self {
            Self::Messenger(messenger) => messenger.peer(address),
            Self::Libfabric(objects) => objects.peer(address),
        }
    }

    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        match self {
            Self::Messenger(messenger) => messenger.address_of(peer),
            Self::Libfabric(objects) => objects.address_of(peer),
        }
    }

    pub fn remove_peer(&mut self, peer: PeerId, when: Removal) -> Result<(), PostError> {
        match self {
            Self::Messenger(messenger) => messenger.remove_peer(peer, when),
            Self::Libfabric(objects) => objects.remove_peer(peer),
        }
    }

    /// Closes the channel to a peer; false if libfabric has no function for it.
    pub fn close(&mut self, peer: PeerId) -> bool {
        match self {
            Self::Messenger(messenger) => {
                messenger.close(peer);
                true
            }
            Self::Libfabric(_) => false,
        }
    }

    pub fn is_libfabric(&self) -> bool {
        matches!(self, Self::Libfabric(_))
    }

    /// # Safety
    /// As for [`Messenger::register`].
    pub unsafe fn register(&mut self, part: Part, key: u64) {
        match self {
            Self::Messenger(messenger) => {
                // SAFETY: the caller's promise.
                unsafe { messenger.register(&[part], Access::ALL, Some(key)) }.expect("the key is free");
            }
            // SAFETY: the caller's promise.
            Self::Libfabric(objects) => unsafe { objects.register(part, key) },
        }
    }

    pub fn deregister(&mut self, key: u64) -> Result<(), PostError> {
        match self {
            Self::Messenger(messenger) => messenger.deregister(key),
            Self::Libfabric(objects) => {
                objects.deregister(key);
                Ok(())
            }
        }
    }

    pub fn inject_max(&mut self) -> usize {
        match self {
            Self::Messenger(messenger) => messenger.inject_max(),
            Self::Libfabric(objects) => objects.objects().inject_max(),
        }
    }

    pub fn inject_write_max(&mut self) -> usize {
        match self {
            Self::Messenger(messenger) => messenger.inject_write_max(),
            Self::Libfabric(objects) => objects.objects().inject_write_max(),
        }
    }

    /// # Safety
    /// As for [`Messenger::send`].
    pub unsafe fn send(
        &mut self,
        to: PeerId,
        label: Label,
        parts: &[Part],
        options: SendOptions,
    ) -> Result<(), PostError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Messenger(messenger) => unsafe { messenger.send(to, label, parts, options) },
            // SAFETY: the caller's promise.
            Self::Libfabric(objects) => unsafe { objects.send(to, label, parts, options, false) },
        }
    }

    pub fn send_copy(&mut self, to: PeerId, label: Label, bytes: &[u8], options: SendOptions) -> Result<(), PostError> {
        match self {
            Self::Messenger(messenger) => messenger.send_copy(to, label, bytes, options),
            // SAFETY: `bytes` is borrowed during the call, which copies it.
            Self::Libfabric(objects) => unsafe { objects.send(to, label, &[Part::of(bytes)], options, true) },
        }
    }

    pub fn inject(&mut self, to: PeerId, label: Label, bytes: &[u8]) -> Result<(), PostError> {
        match self {
            Self::Messenger(messenger) => messenger.inject(to, label, bytes),
            Self::Libfabric(objects) => objects.inject(to, label, bytes),
        }
    }

    /// # Safety
    /// As for [`Messenger::receive`].
    pub unsafe fn receive(
        &mut self,
        selector: Selector,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Messenger(messenger) => unsafe { messenger.receive(selector, parts, options) },
            // SAFETY: the caller's promise.
            Self::Libfabric(objects) => unsafe { objects.receive(selector, parts, options) },
        }
    }

    /// # Safety
    /// As for [`Messenger::receive_multi`].
    pub unsafe fn receive_multi(
        &mut self,
        selector: Selector,
        part: Part,
        min: u64,
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Messenger(messenger) => unsafe { messenger.receive_multi(selector, &[part], min, options) },
            // SAFETY: the caller's promise.
            Self::Libfabric(objects) => unsafe { objects.receive_multi(selector, part, min, options) },
        }
    }

    pub fn peek(&mut self, selector: Selector) -> Option<Envelope> {
        match self {
            Self::Messenger(messenger) => messenger.peek(selector),
            Self::Libfabric(objects) => objects.peek(selector),
        }
    }

    /// Whether an unexpected message matches; without progress.
    pub fn has_unexpected(&mut self, selector: Selector) -> bool {
        match self {
            Self::Messenger(messenger) => messenger.peek(selector).is_some(),
            Self::Libfabric(objects) => objects.objects().has_unexpected(selector),
        }
    }

    pub fn claim(&mut self, selector: Selector) -> Option<(Claimed, Envelope)> {
        match self {
            Self::Messenger(messenger) => {
                messenger.claim(selector).map(|(claim, envelope)| (Claimed::Messenger(claim), envelope))
            }
            Self::Libfabric(objects) => {
                objects.claim(selector).map(|(claim, envelope)| (Claimed::Libfabric(claim), envelope))
            }
        }
    }

    pub fn discard(&mut self, claim: Claimed) -> Result<(), PostError> {
        match (self, claim) {
            (Self::Messenger(messenger), Claimed::Messenger(claim)) => messenger.discard(claim).map(|_| ()),
            (Self::Libfabric(objects), Claimed::Libfabric(claim)) => objects.discard(claim),
            _ => Err(PostError::NoSuchClaim),
        }
    }

    /// # Safety
    /// As for [`Messenger::receive_claimed`].
    pub unsafe fn receive_claimed(
        &mut self,
        claim: Claimed,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        match (self, claim) {
            (Self::Messenger(messenger), Claimed::Messenger(claim)) => {
                // SAFETY: the caller's promise.
                unsafe { messenger.receive_claimed(claim, parts, options) }
            }
            (Self::Libfabric(objects), Claimed::Libfabric(claim)) => {
                // SAFETY: the caller's promise.
                unsafe { objects.receive_claimed(claim, parts, options) }
            }
            _ => Err(PostError::NoSuchClaim),
        }
    }

    pub fn cancel(&mut self, context: u64) -> bool {
        match self {
            Self::Messenger(messenger) => messenger.cancel(context),
            Self::Libfabric(objects) => objects.cancel(context),
        }
    }

    /// Cancels a send; never through libfabric.
    pub fn cancel_send(&mut self, context: u64) -> bool {
        match self {
            Self::Messenger(messenger) => messenger.cancel_send(context),
            Self::Libfabric(_) => false,
        }
    }

    /// # Safety
    /// As for [`Messenger::write`].
    pub unsafe fn write(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        parts: &[Part],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Messenger(messenger) => unsafe { messenger.write(to, at, parts, data, options) },
            // SAFETY: the caller's promise.
            Self::Libfabric(objects) => unsafe { objects.write(to, at, parts, data, options, false) },
        }
    }

    pub fn write_copy(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        bytes: &[u8],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        match self {
            Self::Messenger(messenger) => messenger.write_copy(to, at, bytes, data, options),
            // SAFETY: `bytes` is borrowed during the call, which copies it.
            Self::Libfabric(objects) => unsafe { objects.write(to, at, &[Part::of(bytes)], data, options, true) },
        }
    }

    /// # Safety
    /// As for [`Messenger::read`].
    pub unsafe fn read(
        &mut self,
        from: PeerId,
        at: RemoteAddress,
        part: Part,
        options: SendOptions,
    ) -> Result<(), PostError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Messenger(messenger) => unsafe { messenger.read(from, at, &[part], options) },
            // SAFETY: the caller's promise.
            Self::Libfabric(objects) => unsafe { objects.read_memory(from, at, part, options) },
        }
    }

    /// Adds to 64 bits.
    ///
    /// # Safety
    /// As for [`Messenger::atomic`].
    pub unsafe fn add(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        parts: AtomicParts<'_>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        let (operation, kind) = (AtomicOperation::Sum, AtomicType::U64);
        match self {
            // SAFETY: the caller's promise.
            Self::Messenger(messenger) => unsafe { messenger.atomic(to, at, operation, kind, parts, options) },
            // SAFETY: the caller's promise.
            Self::Libfabric(objects) => unsafe { objects.add(to, at, parts, options) },
        }
    }

    pub fn progress(&mut self) -> Result<bool, String> {
        match self {
            Self::Messenger(messenger) => messenger.progress().map_err(|error| error.to_string()),
            Self::Libfabric(objects) => objects.progress(),
        }
    }

    pub fn poll(&mut self) -> Option<Completion> {
        match self {
            Self::Messenger(messenger) => messenger.poll(),
            Self::Libfabric(objects) => objects.poll(),
        }
    }

    pub fn has_completions(&self) -> bool {
        match self {
            Self::Messenger(messenger) => messenger.has_completions(),
            Self::Libfabric(objects) => objects.has_completions(),
        }
    }

    pub fn unexpected_bytes(&mut self) -> usize {
        match self {
            Self::Messenger(messenger) => messenger.unexpected_bytes(),
            Self::Libfabric(objects) => objects.objects().unexpected_bytes(),
        }
    }

    pub fn settle(&mut self) -> Result<bool, String> {
        let settled = match self {
            Self::Messenger(messenger) => messenger.settle(),
            Self::Libfabric(objects) => objects.objects().settle(),
        };
        settled.map_err(|error| error.to_string())
    }

    pub fn prepare_to_sleep(&mut self, longest: Duration) -> Result<Option<Duration>, String> {
        match self {
            Self::Messenger(messenger) => messenger.prepare_to_sleep(longest).map_err(|error| error.to_string()),
            Self::Libfabric(objects) => objects.prepare_to_sleep(longest),
        }
    }

    /// The accesses to peers' memory that were posted, and those that a counter has counted, if there is one.
    pub fn accesses(&self) -> (u64, Option<u64>) {
        match self {
            Self::Messenger(_) => (0, None),
            Self::Libfabric(objects) => objects.accesses(),
        }
    }

    /// Whether a doorbell is rung: a sleep would end.
    pub fn is_rung(&mut self) -> bool {
        let awaited: Vec<BorrowedFd<'_>> = match self {
            Self::Messenger(messenger) => messenger.endpoint().awaited().collect(),
            Self::Libfabric(objects) => return objects.objects().is_rung(),
        };
        let mut awaited: Vec<_> =
            awaited.into_iter().map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        !awaited.is_empty() && poll(&mut awaited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}
