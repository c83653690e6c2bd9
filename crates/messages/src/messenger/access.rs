// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote memory access, initiator side.
//!
//! Writes are sent without a request, long ones zero-copy; the target confirms when all of the data is placed. Reads
//! and atomic operations are requests, and the returned data goes into the caller's buffer.

use std::sync::Arc;

use barewire_endpoint::{ChannelId, HEAD_MAX, LOCAL_PIECE_MAX, Priority, Report};
use barewire_link::Link;

use super::{ACCESS_CONTEXT, Messenger, SendOptions, State};
use crate::atomic::{AtomicOperation, AtomicType};
use crate::completion::{Failure, Operation, Outcome, PostError};
use crate::header::{Atomic, Header};
use crate::memory::{Origin, Part, Target};
use crate::peers::PeerId;
use crate::regions::{Access, AccessCounts, Refusal, RemoteAddress};
use crate::slab::Key;

/// Limit of unanswered accesses of one peer to another's memory. Both sides enforce it, so the target has room for
/// every answer and never blocks an access, behind which an answer for its own side might wait.
pub(super) const ACCESSES_MAX: u16 = 128;
/// Longest header of an access: a write's.
const ACCESS_HEAD_MAX: usize = 41;

/// Buffers of an atomic operation; those used must have the same length.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtomicParts<'a> {
    /// The operand; empty for [`AtomicOperation::Read`].
    pub operand: &'a [Part],
    /// The comparison value or mask, for operations that have one.
    pub compare: &'a [Part],
    /// Receives the previous values; empty if they are not wanted.
    pub result: &'a [Part],
}

/// An outstanding access.
pub(super) struct PendingAccess {
    pub peer: PeerId,
    options: SendOptions,
    operation: Operation,
    transfer: Transfer,
    /// Zero-copy messages of it that the endpoint has.
    in_flight: u32,
    /// Set by the answer.
    result: Option<Result<(), Refusal>>,
}

enum Transfer {
    Write {
        origin: Origin,
        at: RemoteAddress,
        data: Option<u64>,
        submitted: u64,
    },
    /// The buffer for returned data, and the bytes returned so far.
    Fetch {
        target: Target,
        received: u64,
    },
    /// Nothing is sent from or returned to the caller's memory: a copied write, or an atomic operation without a
    /// result.
    Empty,
}

impl<L: Link> Messenger<L> {
    /// Registers memory that peers can access while this process only calls [`progress`](Self::progress): under `key`,
    /// or under an unused key. Offsets count from 0 through all parts.
    ///
    /// # Errors
    /// [`PostError::KeyTaken`].
    ///
    /// # Safety
    /// All parts must be valid for reads and writes, and disjoint, until [`deregister`](Self::deregister) has returned
    /// or the messenger is dropped. Any call of the messenger may change the memory; it must not be accessed from
    /// another thread during a call.
    pub unsafe fn register(&mut self, parts: &[Part], access: Access, key: Option<u64>) -> Result<u64, PostError> {
        // SAFETY: the caller's promise.
        let registered = unsafe { self.state.regions.register(parts, access, key) };
        registered.ok_or(PostError::KeyTaken(key.unwrap_or_default()))
    }

    /// Counts peers' accesses to registered memory from now on.
    ///
    /// # Errors
    /// [`PostError::NoSuchKey`].
    pub fn count_accesses(&mut self, key: u64, counts: Arc<AccessCounts>) -> Result<(), PostError> {
        self.state.regions.count_accesses(key, counts).ok_or(PostError::NoSuchKey(key))
    }

    /// Deregisters memory: nothing accesses it after the return. Accesses in progress fail at their initiators with
    /// [`Refusal::Deregistered`].
    ///
    /// # Errors
    /// [`PostError::NoSuchKey`].
    pub fn deregister(&mut self, key: u64) -> Result<(), PostError> {
        let region = self.state.regions.deregister(key).ok_or(PostError::NoSuchKey(key))?;
        // Read data in flight continues from a copy.
        for read in self.state.reads_of(region) {
            self.endpoint.copy_lent(super::READ_CONTEXT | read);
        }
        Ok(())
    }

    /// Limit of an atomic operation's elements, in bytes.
    #[must_use]
    pub fn atomic_max(&self) -> usize {
        // Operand and comparison value share one frame or piece.
        (self.endpoint.copied_max().min(LOCAL_PIECE_MAX) - ACCESS_HEAD_MAX) / 2
    }

    /// Writes `parts` to a peer's memory. Completes when all of it is placed, whatever the completion level; the peer
    /// gets a completion with `data`, if any. Writes and messages to one peer take effect in the order in which they
    /// were posted.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub unsafe fn write(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        parts: &[Part],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise; the origin is dropped when the access completes.
        self.write_from(to, at, unsafe { Origin::new(parts) }, data, options)
    }

    fn write_from(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        origin: Origin,
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        let channel = self.channel_to_access(to)?;
        let transfer = Transfer::Write { origin, at, data, submitted: 0 };
        let access = self.add_access(to, options, Operation::Write, transfer);
        self.send_write(channel, access);
        if !self.state.is_started(access) {
            self.state.drop_access(to, access);
            return Err(PostError::Full);
        }
        Ok(())
    }

    /// Writes bytes, which are copied; only a failure is reported.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    pub fn inject_write(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        bytes: &[u8],
        data: Option<u64>,
    ) -> Result<(), PostError> {
        self.write_copy(to, at, bytes, data, SendOptions { is_silent: true, ..SendOptions::default() })
    }

    /// As [`write`](Self::write), but copies the bytes, at most [`inject_write_max`](Self::inject_write_max): the
    /// caller can reuse their memory at once.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    pub fn write_copy(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        bytes: &[u8],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        let limit = self.inject_write_max();
        if bytes.len() > limit {
            return Err(PostError::TooLong { bytes: bytes.len(), limit });
        }
        if bytes.len() > self.short_write_max() {
            let origin = self.state.copy_of(bytes)?;
            return self.write_from(to, at, origin, data, options);
        }
        let channel = self.channel_to_access(to)?;
        // Only the answer is awaited.
        let access = self.add_access(to, options, Operation::Write, Transfer::Empty);
        let header = Header::Write { number: access, at, length: bytes.len() as u64, data };
        self.send_access(to, channel, access, &header, bytes)
    }

    /// Limit of [`inject_write`](Self::inject_write), in bytes.
    #[must_use]
    pub fn inject_write_max(&self) -> usize {
        self.short_write_max().max(self.state.config.inject_bytes)
    }

    /// Bytes of the longest write that one frame carries.
    fn short_write_max(&self) -> usize {
        self.endpoint.copied_max() - ACCESS_HEAD_MAX
    }

    /// Reads a peer's memory into `parts`, which are filled in order.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn read(
        &mut self,
        from: PeerId,
        at: RemoteAddress,
        parts: &[Part],
        options: SendOptions,
    ) -> Result<(), PostError> {
        let channel = self.channel_to_access(from)?;
        // SAFETY: the caller's promise; the target is dropped when the access completes.
        let target = unsafe { Target::new(parts) };
        let length = target.bytes();
        let access = self.add_access(from, options, Operation::Read, Transfer::Fetch { target, received: 0 });
        self.send_access(from, channel, access, &Header::Read { number: access, at, length }, &[])
    }

    /// Applies an atomic operation to elements of a peer's memory, at most [`atomic_max`](Self::atomic_max) bytes:
    /// atomic with respect to other peers' operations. Ordered as writes are.
    ///
    /// # Errors
    /// [`PostError`]; then the call had no effect.
    ///
    /// # Safety
    /// Operand and comparison value must be valid for reads during this call, the result as the memory of
    /// [`receive`](Self::receive).
    pub unsafe fn atomic(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        operation: AtomicOperation,
        datatype: AtomicType,
        parts: AtomicParts<'_>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise; the first two are not used after this call.
        let (operand, compare, target) =
            unsafe { (Origin::new(parts.operand), Origin::new(parts.compare), Target::new(parts.result)) };
        let (fetches, is_read) = (!parts.result.is_empty(), operation == AtomicOperation::Read);
        let length = if is_read { target.bytes() } else { operand.bytes() };
        let is_valid = datatype.supports(operation)
            && length % datatype.bytes() as u64 == 0
            && operand.bytes() == if is_read { 0 } else { length }
            && compare.bytes() == if operation.compares() { length } else { 0 }
            && (target.bytes() == length || !fetches && !is_read);
        if !is_valid {
            return Err(PostError::UnsupportedAtomic);
        }
        let limit = self.atomic_max();
        if length > limit as u64 {
            return Err(PostError::TooLong { bytes: usize::try_from(length).unwrap_or(usize::MAX), limit });
        }
        let channel = self.channel_to_access(to)?;
        let mut body = std::mem::take(&mut self.scratch);
        body.resize((operand.bytes() + compare.bytes()) as usize, 0);
        let end = operand.copy(0, &mut body);
        compare.copy(0, &mut body[end..]);
        let (kind, transfer) = if fetches {
            (Operation::FetchAtomic, Transfer::Fetch { target, received: 0 })
        } else {
            (Operation::Atomic, Transfer::Empty)
        };
        let access = self.add_access(to, options, kind, transfer);
        let atomic = Atomic { operation, datatype, length, fetches };
        let sent = self.send_access(to, channel, access, &Header::Atomic { number: access, at, atomic }, &body);
        self.scratch = body;
        sent
    }

    fn channel_to_access(&mut self, to: PeerId) -> Result<ChannelId, PostError> {
        // Accesses are not queued behind messages that wait.
        let channel = self.channel_to_post(to)?.ok_or(PostError::Full)?;
        let is_full = self.state.accesses.len() >= self.state.config.sends;
        if is_full || self.state.peers.at(to).accesses >= ACCESSES_MAX { Err(PostError::Full) } else { Ok(channel) }
    }

    fn add_access(&mut self, peer: PeerId, options: SendOptions, operation: Operation, transfer: Transfer) -> Key {
        self.state.peers.at(peer).accesses += 1;
        self.state.accesses.add(PendingAccess { peer, options, operation, transfer, in_flight: 0, result: None })
    }

    /// Sends an access that is a single, copied message.
    fn send_access(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        access: Key,
        header: &Header,
        body: &[u8],
    ) -> Result<(), PostError> {
        let mut head = [0; HEAD_MAX];
        let head_bytes = header.encode(&mut head);
        if self.endpoint.post(channel, &head[..head_bytes], body, Priority::Normal, Report::Never).is_err() {
            self.state.drop_access(to, access);
            return Err(PostError::Full);
        }
        Ok(())
    }

    /// Hands a write to the endpoint.
    fn send_write(&mut self, channel: ChannelId, access: Key) {
        while let Some(PendingAccess { transfer: Transfer::Write { origin, at, data, submitted }, in_flight, .. }) =
            self.state.accesses.get(access)
        {
            let length = origin.bytes();
            let header = if *submitted == 0 {
                Header::Write { number: access, at: *at, length, data: *data }
            } else {
                Header::Rest { number: access, offset: *submitted }
            };
            let mut head = [0; HEAD_MAX];
            let head_bytes = header.encode(&mut head);
            let (head, rest) = (&head[..head_bytes], length - *submitted);
            let part = origin.contiguous(*submitted);
            let copied_max = self.endpoint.copied_max() - head_bytes;
            let is_lent = part.len() > copied_max.min(self.endpoint.copied_best());
            let (sent, bytes) = if is_lent {
                let part = &part[..part.len().min(self.state.config.write_chunk_bytes as usize)];
                let report = Report::Acknowledged(ACCESS_CONTEXT | access);
                // SAFETY: the caller promised that the memory stays valid until the write completes, which it does not
                // before the endpoint has reported all its messages.
                let sent = unsafe { self.endpoint.post_lent(channel, head, part, Priority::Normal, report) };
                (sent, part.len())
            } else {
                self.scratch.resize(copied_max.min(rest.try_into().unwrap_or(usize::MAX)), 0);
                let bytes = origin.copy(*submitted, &mut self.scratch);
                (self.endpoint.post(channel, head, &self.scratch[..bytes], Priority::Normal, Report::Never), bytes)
            };
            // The end of the channel, whose event follows, fails the rest.
            if sent.is_err() {
                return;
            }
            *submitted += bytes as u64;
            *in_flight += u32::from(is_lent);
            if *submitted == length {
                return;
            }
        }
    }
}

impl State {
    fn is_started(&mut self, access: Key) -> bool {
        let transfer = self.accesses.get(access).map(|access| &access.transfer);
        matches!(transfer, Some(Transfer::Write { origin, submitted, .. }) if *submitted > 0 || origin.bytes() == 0)
    }

    /// Drops an access that could not be sent.
    fn drop_access(&mut self, to: PeerId, access: Key) {
        self.accesses.remove(access);
        self.peers.at(to).accesses -= 1;
    }

    /// The endpoint has reported a message of an access.
    pub(super) fn access_message_done(&mut self, key: Key) {
        let Some(access) = self.accesses.get(key) else { return };
        access.in_flight -= 1;
        self.complete_access_if_done(key);
    }

    /// Handles the peer's answer that ends an access. False if that is a violation: no such access, or it cannot have
    /// ended.
    pub(super) fn access_answered(&mut self, from: PeerId, number: Key, result: Result<(), Refusal>) -> bool {
        let Some(access) = self.accesses.get(number).filter(|access| access.peer == from) else { return false };
        let is_possible = match &access.transfer {
            Transfer::Write { origin, submitted, .. } => *submitted == origin.bytes(),
            // Returned data ends the access itself, unless it is empty.
            Transfer::Fetch { target, .. } => result.is_err() || target.bytes() == 0,
            Transfer::Empty => true,
        };
        if !is_possible || access.result.is_some() {
            return false;
        }
        access.result = Some(result);
        self.complete_access_if_done(number);
        true
    }

    /// Accounts for returned data, which must continue at `offset`. False if that is a violation.
    pub(super) fn accept_returned(&mut self, from: PeerId, number: Key, offset: u64, length: u64) -> bool {
        let Some(access) = self.accesses.get(number).filter(|access| access.peer == from) else { return false };
        let Transfer::Fetch { target, received } = &mut access.transfer else { return false };
        let is_expected =
            access.result.is_none() && offset == *received && length > 0 && length <= target.bytes() - *received;
        if is_expected {
            *received += length;
        }
        is_expected
    }

    #[inline]
    pub(super) fn store_returned(&mut self, access: Key, offset: u64, bytes: &[u8]) {
        if let Some(PendingAccess { transfer: Transfer::Fetch { target, .. }, .. }) = self.accesses.get(access) {
            target.write(offset, bytes);
        }
    }

    /// A message of returned data is complete.
    pub(super) fn returned_message_done(&mut self, key: Key) {
        if let Some(access) = self.accesses.get(key)
            && let Transfer::Fetch { target, received } = &access.transfer
            && *received == target.bytes()
        {
            access.result = Some(Ok(()));
            self.complete_access_if_done(key);
        }
    }

    fn complete_access_if_done(&mut self, key: Key) {
        let Some(PendingAccess { in_flight: 0, result: Some(result), .. }) = self.accesses.get(key) else { return };
        let result = *result;
        let Some(access) = self.accesses.remove(key) else { return };
        self.peers.at(access.peer).accesses -= 1;
        let outcome = match result {
            Ok(()) => Outcome::Done(access.operation),
            Err(refusal) => Outcome::Failed {
                operation: access.operation,
                failure: Failure::Refused { peer: access.peer, refusal },
                message: None,
            },
        };
        self.complete(access.options.context, access.options.note, outcome, access.options.is_silent);
    }

    /// Fails the accesses to a peer whose channel has ended.
    pub(super) fn fail_accesses(&mut self, peer: PeerId, failure: Failure) {
        for key in self.accesses.keys_where(|access| access.peer == peer) {
            let Some(access) = self.accesses.remove(key) else { continue };
            debug_assert_eq!(access.in_flight, 0, "the endpoint reports messages before their channel's end");
            self.fail(access.options.context, access.options.note, access.operation, failure);
        }
    }
}
