// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a process communicates: by a messenger, or by libfabric's functions on top of one.

use std::time::Duration;

use barewire_endpoint::{Address, Endpoint};
use barewire_messages::{
    Access, AtomicOperation, AtomicParts, AtomicType, Claim, Completion, Envelope, Label, Messenger, Part, PeerId,
    PostError, ReceiveOptions, RemoteAddress, Removal, Selector, SendOptions,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::link::RankLink;
use super::super::scenario::Scenario;
use super::libfabric::{self, Libfabric};

/// A messenger, or libfabric's objects. The methods are those of [`Messenger`].
pub enum Port {
    Messenger(Box<Messenger<RankLink>>),
    Libfabric(Box<Libfabric>),
}

/// A claimed message.
#[derive(Clone, Copy, Debug)]
pub enum Claimed {
    Messenger(Claim),
    Libfabric(libfabric::Claim),
}

/// Calls the same method of either.
macro_rules! either {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            Self::Messenger($port) => $call,
            Self::Libfabric($port) => $call,
        }
    };
}

impl Port {
    pub fn open(link: RankLink, config: barewire_endpoint::Config, scenario: &Scenario) -> Self {
        let messages = scenario.messages;
        if scenario.uses_libfabric {
            return Self::Libfabric(Box::new(Libfabric::open(Box::new(link), config, messages, scenario)));
        }
        let endpoint = Endpoint::open(link, config, None).expect("the scenario's configuration is right");
        Self::Messenger(Box::new(Messenger::new(endpoint, messages)))
    }

    pub fn is_libfabric(&self) -> bool {
        matches!(self, Self::Libfabric(_))
    }

    pub fn peer(&mut self, address: Address) -> PeerId {
        either!(self, port => port.peer(address))
    }

    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        either!(self, port => port.address_of(peer))
    }

    pub fn remove_peer(&mut self, peer: PeerId, when: Removal) -> Result<(), PostError> {
        match self {
            Self::Messenger(messenger) => messenger.remove_peer(peer, when),
            Self::Libfabric(libfabric) => libfabric.remove_peer(peer),
        }
    }

    /// Closes the channel to a peer; false if libfabric has no function for it.
    pub fn close(&mut self, peer: PeerId) -> bool {
        let Self::Messenger(messenger) = self else { return false };
        messenger.close(peer);
        true
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
            Self::Libfabric(libfabric) => unsafe { libfabric.register(part, key) },
        }
    }

    pub fn deregister(&mut self, key: u64) -> Result<(), PostError> {
        match self {
            Self::Messenger(messenger) => messenger.deregister(key)?,
            Self::Libfabric(libfabric) => libfabric.deregister(key),
        }
        Ok(())
    }

    pub fn inject_max(&self) -> usize {
        either!(self, port => port.inject_max())
    }

    pub fn inject_write_max(&self) -> usize {
        either!(self, port => port.inject_write_max())
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
        // SAFETY: the caller's promise.
        unsafe { either!(self, port => port.send(to, label, parts, options)) }
    }

    pub fn send_copy(&mut self, to: PeerId, label: Label, bytes: &[u8], options: SendOptions) -> Result<(), PostError> {
        either!(self, port => port.send_copy(to, label, bytes, options))
    }

    pub fn inject(&mut self, to: PeerId, label: Label, bytes: &[u8]) -> Result<(), PostError> {
        either!(self, port => port.inject(to, label, bytes))
    }

    /// # Safety
    /// As for [`Messenger::receive`].
    pub unsafe fn receive(
        &mut self,
        selector: Selector,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { either!(self, port => port.receive(selector, parts, options)) }
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
        // SAFETY: the caller's promise.
        unsafe { either!(self, port => port.receive_multi(selector, &[part], min, options)) }
    }

    pub fn peek(&mut self, selector: Selector) -> Option<Envelope> {
        either!(self, port => port.peek(selector))
    }

    /// Whether an unexpected message matches; without progress.
    pub fn has_unexpected(&mut self, selector: Selector) -> bool {
        match self {
            Self::Messenger(messenger) => messenger.peek(selector).is_some(),
            Self::Libfabric(libfabric) => libfabric.has_unexpected(selector),
        }
    }

    pub fn claim(&mut self, selector: Selector) -> Option<(Claimed, Envelope)> {
        match self {
            Self::Messenger(messenger) => {
                messenger.claim(selector).map(|(claim, envelope)| (Claimed::Messenger(claim), envelope))
            }
            Self::Libfabric(libfabric) => {
                libfabric.claim(selector).map(|(claim, envelope)| (Claimed::Libfabric(claim), envelope))
            }
        }
    }

    pub fn discard(&mut self, claim: Claimed) -> Result<(), PostError> {
        match (self, claim) {
            (Self::Messenger(messenger), Claimed::Messenger(claim)) => messenger.discard(claim).map(|_| ()),
            (Self::Libfabric(libfabric), Claimed::Libfabric(claim)) => libfabric.discard(claim),
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
        // SAFETY: the caller's promise.
        unsafe {
            match (self, claim) {
                (Self::Messenger(port), Claimed::Messenger(claim)) => port.receive_claimed(claim, parts, options),
                (Self::Libfabric(port), Claimed::Libfabric(claim)) => port.receive_claimed(claim, parts, options),
                _ => Err(PostError::NoSuchClaim),
            }
        }
    }

    pub fn cancel(&mut self, context: u64) -> bool {
        either!(self, port => port.cancel(context))
    }

    /// Cancels a send; never through libfabric.
    pub fn cancel_send(&mut self, context: u64) -> bool {
        let Self::Messenger(messenger) = self else { return false };
        messenger.cancel_send(context)
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
        // SAFETY: the caller's promise.
        unsafe { either!(self, port => port.write(to, at, parts, data, options)) }
    }

    pub fn write_copy(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        bytes: &[u8],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        either!(self, port => port.write_copy(to, at, bytes, data, options))
    }

    pub fn inject_write(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        bytes: &[u8],
        data: Option<u64>,
    ) -> Result<(), PostError> {
        either!(self, port => port.inject_write(to, at, bytes, data))
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
        // SAFETY: the caller's promise.
        unsafe { either!(self, port => port.read(from, at, &[part], options)) }
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
        // SAFETY: the caller's promise.
        unsafe { either!(self, port => port.atomic(to, at, operation, kind, parts, options)) }
    }

    pub fn progress(&mut self) -> Result<bool, String> {
        either!(self, port => port.progress().map_err(|error| error.to_string()))
    }

    pub fn poll(&mut self) -> Option<Completion> {
        either!(self, port => port.poll())
    }

    pub fn has_completions(&self) -> bool {
        either!(self, port => port.has_completions())
    }

    pub fn unexpected_bytes(&self) -> usize {
        either!(self, port => port.unexpected_bytes())
    }

    pub fn settle(&mut self) -> Result<bool, String> {
        either!(self, port => port.settle().map_err(|error| error.to_string()))
    }

    pub fn prepare_to_sleep(&mut self, longest: Duration) -> Result<Option<Duration>, String> {
        either!(self, port => port.prepare_to_sleep(longest).map_err(|error| error.to_string()))
    }

    /// The accesses to peers' memory that were posted, and those that a counter has counted, if there is one.
    pub fn accesses(&self) -> (u64, Option<u64>) {
        match self {
            Self::Messenger(_) => (0, None),
            Self::Libfabric(libfabric) => libfabric.accesses(),
        }
    }

    /// Whether a doorbell is rung: a sleep would end.
    pub fn is_rung(&mut self) -> bool {
        let awaited = match self {
            Self::Messenger(messenger) => messenger.endpoint().awaited(),
            Self::Libfabric(libfabric) => return libfabric.is_rung(),
        };
        let mut awaited: Vec<_> = awaited.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        !awaited.is_empty() && poll(&mut awaited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}
