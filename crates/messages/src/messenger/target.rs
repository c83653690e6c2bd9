// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote memory access, target side.

use barewire_endpoint::{HEAD_MAX, Report};
use barewire_link::Link;

use super::access::ACCESSES_MAX;
use super::incoming::Violation;
use super::send::BulkBody;
use super::{Advance, Messenger, READ_CONTEXT, State};
use crate::atomic::{AtomicOperation, apply};
use crate::completion::{Completion, Outcome, RemoteWrite};
use crate::header::{Atomic, Header};
use crate::mutant::mutant;
use crate::peers::{Answer, Bulk, PeerId, PeerWrite};
use crate::regions::{Access, Refusal, Region, RemoteAddress};
use crate::slab::Key;

/// Bytes of read data in one endpoint message: what must be copied for each message in flight if its memory is
/// deregistered.
const READ_CHUNK_BYTES: usize = 64 << 10;

/// A peer's read that is being answered.
pub(super) struct PeerRead {
    peer: PeerId,
    /// The peer's number for it.
    number: u64,
    region: Key,
    /// Start in the region, and length.
    offset: u64,
    length: u64,
    submitted: u64,
    /// Messages of it that the endpoint has.
    in_flight: u32,
    /// The endpoint has all of the data, or the refusal that ends it.
    is_answered: bool,
}

impl<L: Link> Messenger<L> {
    /// Returns data of a peer's read.
    pub(super) fn send_read_reply(&mut self, to: PeerId, key: Key) -> Advance {
        let report = Report::Acknowledged(READ_CONTEXT | key);
        loop {
            let Some(read) = self.state.peer_reads.get(key) else { return Advance::Done };
            let (number, submitted) = (read.number, read.submitted);
            let mut head = [0; HEAD_MAX];
            let Some(region) = self.state.regions.get(read.region) else {
                // Sent after the data returned so far; it ends the read.
                let refused = Header::Done { number, result: Err(Refusal::Deregistered) };
                let head_bytes = refused.encode(&mut head);
                if !self.post_bulk(to, &head[..head_bytes], BulkBody::Copied(&[]), report) {
                    return Advance::Blocked;
                }
                self.state.read_part_submitted(key, 0);
                self.state.read_answered(key);
                return Advance::Done;
            };
            let (from, rest) = (read.offset + submitted, read.length - submitted);
            let part = region.origin.contiguous(from);
            let part = &part[..part.len().min(READ_CHUNK_BYTES).min(usize::try_from(rest).unwrap_or(usize::MAX))];
            let head_bytes = Header::Returned { number, offset: submitted }.encode(&mut head);
            let copied_max = self.endpoint.copied_max() - head_bytes;
            let mut scratch = std::mem::take(&mut self.scratch);
            let (body, bytes) = if part.len() > copied_max.min(self.endpoint.copied_best()) {
                (BulkBody::Lent(part), part.len())
            } else {
                scratch.resize(copied_max.min(usize::try_from(rest).unwrap_or(usize::MAX)), 0);
                region.origin.copy(from, &mut scratch);
                (BulkBody::Copied(&scratch), scratch.len())
            };
            let is_taken = self.post_bulk(to, &head[..head_bytes], body, report);
            self.scratch = scratch;
            if !is_taken {
                return Advance::Blocked;
            }
            if self.state.read_part_submitted(key, bytes as u64) {
                self.state.read_answered(key);
                return Advance::Done;
            }
        }
    }
}

impl State {
    /// Starts a peer's write of `length` bytes.
    pub(super) fn start_write(
        &mut self,
        peer: PeerId,
        number: u64,
        at: RemoteAddress,
        length: u64,
        data: Option<u64>,
    ) -> Result<(), Violation> {
        if self.peers.at(peer).write.is_some() {
            return Err(Violation::Operation);
        }
        self.admit_access(peer)?;
        let region = self.regions.find(at, length, Access { read: false, write: true });
        let write = PeerWrite { number, region, offset: at.offset, length, received: 0, data };
        self.peers.at(peer).write = Some(write);
        Ok(())
    }

    /// Accounts for a message of a peer's write with `body` bytes at `offset`: at least one, unless the write is empty.
    pub(super) fn continue_write(
        &mut self,
        peer: PeerId,
        number: u64,
        offset: u64,
        body: u64,
    ) -> Result<(), Violation> {
        let write = self.peers.at(peer).write.as_mut().ok_or(Violation::Operation)?;
        if write.number != number {
            return Err(Violation::Operation);
        }
        let left = write.length - write.received;
        if offset != write.received || body > left || body == 0 && left > 0 {
            return Err(Violation::Length);
        }
        write.received += body;
        Ok(())
    }

    /// Stores bytes of a peer's write.
    #[inline]
    pub(super) fn store_written(&mut self, peer: PeerId, offset: u64, bytes: &[u8]) {
        let Self { peers, regions, .. } = self;
        let Some(write) = &mut peers.at(peer).write else { return };
        let Ok(entry) = write.region else { return };
        match regions.get(entry) {
            Some(region) => region.target.write(write.offset + offset, bytes),
            None => write.region = Err(Refusal::Deregistered),
        }
    }

    /// A message of a peer's write is complete; the last one ends the write.
    pub(super) fn written_message_done(&mut self, peer: PeerId) {
        let Some(write) = self.peers.at(peer).write.take_if(|write| write.received == write.length) else {
            return;
        };
        let PeerWrite { number, region, length, data, .. } = write;
        if let Ok(entry) = region {
            self.counts.written_by_peers += 1;
            if let Some(region) = self.regions.get(entry) {
                region.count(Access { read: false, write: true });
            }
            if let Some(data) = data {
                let outcome = Outcome::Written(RemoteWrite { source: peer, data, length });
                self.completions.push_back(Completion { context: 0, note: 0, outcome });
            }
        }
        self.send_done(peer, number, region.map(|_| ()));
    }

    /// Starts a peer's read.
    pub(super) fn start_read(
        &mut self,
        peer: PeerId,
        number: u64,
        at: RemoteAddress,
        length: u64,
    ) -> Result<(), Violation> {
        self.admit_access(peer)?;
        match self.regions.find(at, length, Access { read: true, write: false }) {
            Ok(region) => {
                self.counts.read_by_peers += 1;
                if let Some(region) = self.regions.get(region) {
                    region.count(Access { read: true, write: false });
                }
                if length == 0 {
                    self.send_done(peer, number, Ok(()));
                    return Ok(());
                }
                let offset = at.offset;
                let read =
                    PeerRead { peer, number, region, offset, length, submitted: 0, in_flight: 0, is_answered: false };
                let key = self.peer_reads.add(read);
                self.add_bulk(peer, Bulk::ReadReply(key));
            }
            Err(refusal) => self.send_done(peer, number, Err(refusal)),
        }
        Ok(())
    }

    /// Applies a peer's atomic operation; `body` is operand and comparison value.
    pub(super) fn apply_atomic(
        &mut self,
        peer: PeerId,
        number: u64,
        at: RemoteAddress,
        atomic: Atomic,
        body: &[u8],
    ) -> Result<(), Violation> {
        let Atomic { operation, datatype, length, fetches } = atomic;
        let operands = u64::from(operation != AtomicOperation::Read) + u64::from(operation.compares());
        if length.checked_mul(operands) != Some(body.len() as u64) {
            return Err(Violation::Length);
        }
        self.admit_access(peer)?;
        let access = Access { read: fetches, write: operation != AtomicOperation::Read };
        // The returned values must fit one frame. Operands prove that, as they arrived in one, but a plain read has
        // none.
        let is_supported =
            datatype.supports(operation) && length % datatype.bytes() as u64 == 0 && length <= self.atomic_max;
        let found = if is_supported { self.regions.find(at, length, access) } else { Err(Refusal::Operation) };
        let region = match found.and_then(|entry| self.regions.get(entry).ok_or(Refusal::Key)) {
            Ok(region) => region,
            Err(refusal) => {
                self.send_done(peer, number, Err(refusal));
                return Ok(());
            }
        };
        let (operand, compare) = body.split_at(if operation == AtomicOperation::Read { 0 } else { length as usize });
        let change = |elements: &mut [u8]| apply(operation, datatype, elements, operand, compare);
        let apply_copy = |region: &mut Region| {
            let mut elements = vec![0; length as usize];
            region.origin.copy(at.offset, &mut elements);
            let before = fetches.then(|| elements.clone().into_boxed_slice());
            change(&mut elements);
            if access.write {
                region.target.write(at.offset, &elements);
            }
            before
        };
        if mutant!(self, AppliesTwice) {
            apply_copy(region);
        }
        let element = datatype.bytes();
        let word = if length == element as u64 { region.target.update(at.offset, element, change) } else { None };
        let before = word.map_or_else(|| apply_copy(region), |word| fetches.then(|| word[..element].into()));
        region.count(access);
        if fetches {
            self.counts.read_by_peers += 1;
        } else {
            self.counts.written_by_peers += 1;
        }
        match before.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => self.answer(peer, Answer::Atomic { number, bytes }),
            None => self.send_done(peer, number, Ok(())),
        }
        Ok(())
    }

    /// Counts an access of a peer that must be answered.
    fn admit_access(&mut self, peer: PeerId) -> Result<(), Violation> {
        let peer = self.peers.at(peer);
        if peer.unanswered >= ACCESSES_MAX {
            return Err(Violation::Operation);
        }
        peer.unanswered += 1;
        Ok(())
    }

    fn send_done(&mut self, peer: PeerId, number: u64, result: Result<(), Refusal>) {
        self.reply(peer, Header::Done { number, result });
    }

    /// The endpoint has one more message of an answer, of `bytes`. True if all data was returned.
    fn read_part_submitted(&mut self, key: Key, bytes: u64) -> bool {
        let Some(read) = self.peer_reads.get(key) else { return true };
        read.in_flight += 1;
        read.submitted += bytes;
        read.submitted == read.length
    }

    /// The endpoint has all of an answer.
    fn read_answered(&mut self, key: Key) {
        let Some(read) = self.peer_reads.get(key) else { return };
        read.is_answered = true;
        let (peer, is_done) = (read.peer, read.in_flight == 0);
        if is_done {
            self.peer_reads.remove(key);
        }
        let peer = self.peers.at(peer);
        peer.unanswered = peer.unanswered.saturating_sub(1);
    }

    /// The endpoint has reported a message that returns read data.
    pub(super) fn read_message_done(&mut self, key: Key) {
        let Some(read) = self.peer_reads.get(key) else { return };
        read.in_flight -= 1;
        let (peer, is_done) = (read.peer, read.in_flight == 0 && read.is_answered);
        self.bulk_message_done(peer);
        if is_done {
            self.peer_reads.remove(key);
        }
    }

    /// Reads of this region with messages in flight.
    pub(super) fn reads_of(&self, region: Key) -> Vec<Key> {
        self.peer_reads.keys_where(|read| read.region == region && read.in_flight > 0)
    }

    /// Drops the reads of a peer that is gone.
    pub(super) fn drop_peer_reads(&mut self, peer: PeerId) {
        for key in self.peer_reads.keys_where(|read| read.peer == peer) {
            self.peer_reads.remove(key);
        }
    }
}
