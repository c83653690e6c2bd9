// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to peers' registered memory: this side's part.
//!
//! A write goes as it is, long ones from where they lie; the peer says when all of it is in its place. A read and an
//! atomic operation are asked for, and what comes back goes into this side's memory.

use barewire_endpoint::{Acknowledge, ChannelId, HEAD_MAX};
use barewire_link::Link;

use super::{Messenger, OF_ACCESS, SendOptions, State, of_no_send};
use crate::atomic::{AtomicOperation, AtomicType};
use crate::completion::{Failure, Operation, Outcome, PostError};
use crate::header::{Atomic, Header};
use crate::memory::{Origin, Part, Target};
use crate::peers::{Out, PeerId, USUAL};
use crate::regions::{Access, Refusal, Remote};
use crate::slab::Key;

/// Accesses of one peer to another's memory that are not answered, at most: both sides count, so the target has room for
/// every answer and never has to let an access wait, behind which an answer might wait for the other side.
pub(super) const ACCESSES_MAX: u16 = 128;
/// The longest head of an access: a write's.
const ACCESS_HEAD_MAX: usize = 41;

/// What an atomic operation works with: parts of elements, all of them together of the same length.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtomicParts<'a> {
    /// What is combined with the peer's memory; nothing for [`AtomicOperation::Read`].
    pub operand: &'a [Part],
    /// What is compared, or masks, of operations that do.
    pub compare: &'a [Part],
    /// Where what was there before goes; nothing if that does not matter.
    pub result: &'a [Part],
}

/// An access that is not completed.
pub(super) struct Accessing {
    pub peer: PeerId,
    options: SendOptions,
    operation: Operation,
    content: Content,
    /// Messages of it that the endpoint has and that lie in the caller's memory.
    under_way: u32,
    /// Set with the answer.
    result: Option<Result<(), Refusal>>,
}

enum Content {
    Write {
        origin: Origin,
        at: Remote,
        data: Option<u64>,
        handed: u64,
    },
    /// Where what is returned goes, and how much of that has come.
    Fetch {
        target: Target,
        placed: u64,
    },
    /// An atomic operation that fetches nothing.
    Nothing,
}

impl<L: Link> Messenger<L> {
    /// Lets peers read or write memory from now on, without a call but for [`progress`](Self::progress): under `key`, or
    /// under one that nobody has. It is addressed from 0 on, part after part.
    ///
    /// # Errors
    /// [`PostError::KeyTaken`].
    ///
    /// # Safety
    /// All parts must be valid to be read and written, and disjoint, until [`deregister`](Self::deregister) has returned
    /// or the messenger is dropped. Whoever accesses the memory meanwhile must expect that it changes in every call of
    /// the messenger's, and not do so from another thread during one.
    pub unsafe fn register(&mut self, parts: &[Part], access: Access, key: Option<u64>) -> Result<u64, PostError> {
        // SAFETY: the caller's promise.
        let registered = unsafe { self.state.regions.register(parts, access, key) };
        registered.ok_or(PostError::KeyTaken(key.unwrap_or_default()))
    }

    /// Takes registered memory back: nothing reads or writes it once this has returned. What is under way to it fails at
    /// whoever accesses it, as [`Refusal::Deregistered`].
    ///
    /// # Errors
    /// [`PostError::NoSuchKey`].
    pub fn deregister(&mut self, key: u64) -> Result<(), PostError> {
        let region = self.state.regions.deregister(key).ok_or(PostError::NoSuchKey(key))?;
        // What is on its way from there goes on from a copy.
        for served in self.state.served_from(region) {
            self.endpoint.take_over(super::OF_SERVED | served);
        }
        Ok(())
    }

    /// Bytes of the elements of the longest atomic operation.
    #[must_use]
    pub fn atomic_max(&self) -> usize {
        // Operand and comparison go in one frame.
        (self.endpoint.copied_max() - ACCESS_HEAD_MAX) / 2
    }

    /// Writes what lies in `parts` to a peer's memory. It is completed when all of it is there, whatever `reaches` says;
    /// `data` is told to the peer in a completion. Writes and messages to one peer take effect in the order in which they
    /// were posted.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    ///
    /// # Safety
    /// As of [`send`](Self::send).
    pub unsafe fn write(
        &mut self,
        to: PeerId,
        at: Remote,
        parts: &[Part],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise; the origin is dropped when the access is completed.
        self.write_from(to, at, unsafe { Origin::new(parts) }, data, options)
    }

    fn write_from(
        &mut self,
        to: PeerId,
        at: Remote,
        origin: Origin,
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        self.room_to_access(to)?;
        let content = Content::Write { origin, at, data, handed: 0 };
        let access = self.begin(to, options, Operation::Write, content);
        if self.send_write(to, access) {
            return Ok(());
        }
        if !self.state.has_begun(access) {
            self.state.forget(to, access);
            return Err(PostError::Full);
        }
        self.state.peers.at(to).has_backlog = true;
        self.state.enqueue(to, Out::Write(access));
        Ok(())
    }

    /// Writes bytes that are copied; only a failure tells of it.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    pub fn inject_write(&mut self, to: PeerId, at: Remote, bytes: &[u8], data: Option<u64>) -> Result<(), PostError> {
        self.write_copy(to, at, bytes, data, SendOptions { is_silent: true, ..SendOptions::default() })
    }

    /// As [`write`](Self::write), of [`inject_write_max`](Self::inject_write_max) bytes at most that are copied, so that
    /// their memory is the caller's again at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    pub fn write_copy(
        &mut self,
        to: PeerId,
        at: Remote,
        bytes: &[u8],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        let most = self.inject_write_max();
        if bytes.len() > most {
            return Err(PostError::TooLong { bytes: bytes.len(), most });
        }
        if bytes.len() > self.short_write_max() {
            let origin = self.state.copy_of(bytes)?;
            return self.write_from(to, at, origin, data, options);
        }
        let channel = self.room_to_access(to)?;
        // The answer is all that is waited for.
        let access = self.begin(to, options, Operation::Write, Content::Nothing);
        let header = Header::Write { number: access, at, length: bytes.len() as u64, data };
        self.ask(to, channel, access, &header, bytes)
    }

    /// Bytes of the longest write that [`inject_write`](Self::inject_write) takes.
    #[must_use]
    pub fn inject_write_max(&self) -> usize {
        self.short_write_max().max(self.state.config.inject_bytes)
    }

    /// Bytes of the longest write that goes in one frame.
    fn short_write_max(&self) -> usize {
        self.endpoint.copied_max() - ACCESS_HEAD_MAX
    }

    /// Reads a peer's memory into `parts`, one after the other.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    ///
    /// # Safety
    /// As of [`receive`](Self::receive).
    pub unsafe fn read(
        &mut self,
        from: PeerId,
        at: Remote,
        parts: &[Part],
        options: SendOptions,
    ) -> Result<(), PostError> {
        let channel = self.room_to_access(from)?;
        // SAFETY: the caller's promise; the target is dropped when the access is completed.
        let target = unsafe { Target::new(parts) };
        let length = target.bytes();
        let access = self.begin(from, options, Operation::Read, Content::Fetch { target, placed: 0 });
        self.ask(from, channel, access, &Header::Read { number: access, at, length }, &[])
    }

    /// Changes elements of a peer's memory, all of them [`atomic_max`](Self::atomic_max) bytes at most: atomically with
    /// respect to what other peers do there. The order is that of writes.
    ///
    /// # Errors
    /// [`PostError`]; nothing was begun then.
    ///
    /// # Safety
    /// Operand and comparison must be valid to be read during this call, the result as the memory of
    /// [`receive`](Self::receive).
    pub unsafe fn atomic(
        &mut self,
        to: PeerId,
        at: Remote,
        operation: AtomicOperation,
        of: AtomicType,
        parts: AtomicParts<'_>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise; the first two are not used after this call.
        let (operand, compare, target) =
            unsafe { (Origin::new(parts.operand), Origin::new(parts.compare), Target::new(parts.result)) };
        let (fetches, reads) = (!parts.result.is_empty(), operation == AtomicOperation::Read);
        let length = if reads { target.bytes() } else { operand.bytes() };
        let is_right = of.has(operation)
            && length % of.bytes() as u64 == 0
            && operand.bytes() == if reads { 0 } else { length }
            && compare.bytes() == if operation.compares() { length } else { 0 }
            && (target.bytes() == length || !fetches && !reads);
        if !is_right {
            return Err(PostError::NoSuchAtomic);
        }
        let most = self.atomic_max();
        if length > most as u64 {
            return Err(PostError::TooLong { bytes: usize::try_from(length).unwrap_or(usize::MAX), most });
        }
        let channel = self.room_to_access(to)?;
        let mut body = std::mem::take(&mut self.packed);
        body.resize((operand.bytes() + compare.bytes()) as usize, 0);
        let end = operand.copy(0, &mut body);
        compare.copy(0, &mut body[end..]);
        let (what, content) = if fetches {
            (Operation::FetchAtomic, Content::Fetch { target, placed: 0 })
        } else {
            (Operation::Atomic, Content::Nothing)
        };
        let access = self.begin(to, options, what, content);
        let atomic = Atomic { operation, of, length, fetches };
        let asked = self.ask(to, channel, access, &Header::Atomic { number: access, at, atomic }, &body);
        self.packed = body;
        asked
    }

    fn room_to_access(&mut self, to: PeerId) -> Result<ChannelId, PostError> {
        // It would have to wait behind messages that do.
        let channel = self.room_to_post(to)?.ok_or(PostError::Full)?;
        let is_full = self.state.accesses.len() >= self.state.config.sends;
        if is_full || self.state.peers.at(to).accesses >= ACCESSES_MAX { Err(PostError::Full) } else { Ok(channel) }
    }

    fn begin(&mut self, peer: PeerId, options: SendOptions, operation: Operation, content: Content) -> Key {
        self.state.peers.at(peer).accesses += 1;
        self.state.accesses.add(Accessing { peer, options, operation, content, under_way: 0, result: None })
    }

    /// Sends the only message of an access, which is copied.
    fn ask(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        access: Key,
        header: &Header,
        body: &[u8],
    ) -> Result<(), PostError> {
        let mut head = [0; HEAD_MAX];
        let head_bytes = header.encode(&mut head);
        if self.endpoint.send(channel, &head[..head_bytes], body, of_no_send(to)).is_err() {
            self.state.forget(to, access);
            return Err(PostError::Full);
        }
        self.state.peers.at(to).under_way[USUAL] += 1;
        Ok(())
    }

    /// Sends a write, or what is left of it. False if something is left.
    pub(super) fn send_write(&mut self, to: PeerId, access: Key) -> bool {
        loop {
            let Ok(channel) = self.room_for(to) else { return false };
            let Some(Accessing { content: Content::Write { origin, at, data, handed }, under_way, .. }) =
                self.state.accesses.get(access)
            else {
                return true;
            };
            let length = origin.bytes();
            let header = if *handed == 0 {
                Header::Write { number: access, at: *at, length, data: *data }
            } else {
                Header::Rest { number: access, offset: *handed }
            };
            let mut head = [0; HEAD_MAX];
            let head_bytes = header.encode(&mut head);
            let (head, rest) = (&head[..head_bytes], length - *handed);
            let part = origin.contiguous(*handed);
            let copied_max = self.endpoint.copied_max() - head_bytes;
            let is_lent = part.len() > copied_max.min(self.endpoint.copied_best());
            let (sent, bytes) = if is_lent {
                let part = &part[..part.len().min(self.state.config.cut_bytes as usize)];
                // SAFETY: whoever posted the write promised that its memory stays until it is completed; it is not
                // before the endpoint has told of all its messages.
                let sent = unsafe {
                    self.endpoint.send_lent(channel, head, part, OF_ACCESS | access, Acknowledge::Eventually)
                };
                (sent, part.len())
            } else {
                self.packed.resize(copied_max.min(rest.try_into().unwrap_or(usize::MAX)), 0);
                let bytes = origin.copy(*handed, &mut self.packed);
                (self.endpoint.send(channel, head, &self.packed[..bytes], of_no_send(to)), bytes)
            };
            if sent.is_err() {
                return false;
            }
            *handed += bytes as u64;
            *under_way += u32::from(is_lent);
            let is_done = *handed == length;
            self.state.peers.at(to).under_way[USUAL] += 1;
            if is_done {
                self.state.peers.at(to).has_backlog = false;
                return true;
            }
        }
    }
}

impl State {
    fn has_begun(&mut self, access: Key) -> bool {
        let content = self.accesses.get(access).map(|access| &access.content);
        matches!(content, Some(Content::Write { handed: 1.., .. }))
    }

    /// An access was not begun after all.
    fn forget(&mut self, to: PeerId, access: Key) {
        self.accesses.remove(access);
        self.peers.at(to).accesses -= 1;
    }

    /// The endpoint has done with a message of an access.
    pub(super) fn access_handed_over(&mut self, key: Key) {
        let Some(access) = self.accesses.get(key) else { return };
        access.under_way -= 1;
        let peer = access.peer;
        self.peers.at(peer).under_way[USUAL] -= 1;
        self.complete_access_if_done(key);
    }

    /// The peer says that an access has ended. False: there is none, or it cannot have.
    pub(super) fn access_done(&mut self, from: PeerId, number: Key, result: Result<(), Refusal>) -> bool {
        let Some(access) = self.accesses.get(number).filter(|access| access.peer == from) else { return false };
        let is_possible = match &access.content {
            Content::Write { origin, handed, .. } => *handed == origin.bytes(),
            // What was asked for comes back by itself, unless it is nothing.
            Content::Fetch { target, .. } => result.is_err() || target.bytes() == 0,
            Content::Nothing => true,
        };
        if !is_possible || access.result.is_some() {
            return false;
        }
        access.result = Some(result);
        self.complete_access_if_done(number);
        true
    }

    /// Bytes come back to an access: where in its memory they begin must be told. False: it does not wait for them.
    pub(super) fn returned(&mut self, from: PeerId, number: Key, offset: u64, length: u64) -> bool {
        let Some(access) = self.accesses.get(number).filter(|access| access.peer == from) else { return false };
        let Content::Fetch { target, placed } = &mut access.content else { return false };
        let is_awaited =
            access.result.is_none() && offset == *placed && length > 0 && length <= target.bytes() - *placed;
        if is_awaited {
            *placed += length;
        }
        is_awaited
    }

    #[inline]
    pub(super) fn place_returned(&mut self, access: Key, offset: u64, bytes: &[u8]) {
        if let Some(Accessing { content: Content::Fetch { target, .. }, .. }) = self.accesses.get(access) {
            target.write(offset, bytes);
        }
    }

    /// A message of what comes back is all there.
    pub(super) fn returned_wholly(&mut self, key: Key) {
        if let Some(access) = self.accesses.get(key)
            && let Content::Fetch { target, placed } = &access.content
            && *placed == target.bytes()
        {
            access.result = Some(Ok(()));
            self.complete_access_if_done(key);
        }
    }

    fn complete_access_if_done(&mut self, key: Key) {
        let Some(Accessing { under_way: 0, result: Some(result), .. }) = self.accesses.get(key) else { return };
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

    /// The way to a peer has ended.
    pub(super) fn fail_accesses(&mut self, peer: PeerId, failure: Failure) {
        for key in self.accesses.keys_where(|access| access.peer == peer) {
            let Some(access) = self.accesses.remove(key) else { continue };
            debug_assert_eq!(access.under_way, 0, "the endpoint tells of messages before their channel");
            self.fail(access.options.context, access.options.note, access.operation, failure);
        }
    }
}
