// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to peers' registered memory: the part of the one whose memory it is.

use barewire_endpoint::{Acknowledge, HEAD_MAX};
use barewire_link::Link;

use super::access::ACCESSES_MAX;
use super::arrive::Violation;
use super::{Messenger, OF_SERVED, State};
use crate::atomic::{AtomicOperation, apply};
use crate::completion::{Completion, Outcome, RemoteWrite};
use crate::header::{Atomic, Header};
use crate::mutant::mutant;
use crate::peers::{BACKGROUND, Out, PeerId, Writing};
use crate::regions::{Access, Refusal, Region, Remote};
use crate::slab::Key;

/// Bytes that are returned in one message of the endpoint's, at most: what has to be copied of each that is under way,
/// should its memory be deregistered.
const RETURNED_BYTES: usize = 64 << 10;

/// A read that is answered.
pub(super) struct Served {
    peer: PeerId,
    /// The peer's name for it.
    number: u64,
    region: Key,
    /// Where in the region it begins, and how long it is.
    offset: u64,
    length: u64,
    handed: u64,
    /// Messages of it that the endpoint has.
    under_way: u32,
    /// The endpoint has all of it, or the answer that there is no more.
    is_answered: bool,
}

impl<L: Link> Messenger<L> {
    /// Returns what was read, or what is left of it. False if something is left.
    pub(super) fn send_served(&mut self, to: PeerId, key: Key) -> bool {
        loop {
            let Some((channel, parts_left)) = self.room_in_background(to) else { return false };
            let Some(served) = self.state.served.get(key) else { return true };
            let (number, handed) = (served.number, served.handed);
            let Some(region) = self.state.regions.get(served.region) else {
                // Behind what was returned before: it ends the read.
                let refused = Header::Done { number, result: Err(Refusal::Deregistered) };
                let mut head = [0; HEAD_MAX];
                let head_bytes = refused.encode(&mut head);
                let (head, context) = (&head[..head_bytes], OF_SERVED | key);
                let sent = self.endpoint.send_in_background(channel, head, &[], context, Acknowledge::Eventually);
                if sent.is_ok() {
                    self.state.returned_part(to, key, 0);
                    self.state.answered_read(key);
                }
                return sent.is_ok();
            };
            let (from, rest) = (served.offset + handed, served.length - handed);
            let part = region.origin.contiguous(from);
            let part = &part[..part.len().min(RETURNED_BYTES).min(usize::try_from(rest).unwrap_or(usize::MAX))];
            let mut head = [0; HEAD_MAX];
            let head_bytes = Header::Returned { number, offset: handed }.encode(&mut head);
            let head = &head[..head_bytes];
            let copied_max = self.endpoint.copied_max() - head_bytes;
            let is_lent = part.len() > copied_max.min(self.endpoint.copied_best());
            if is_lent && parts_left == 0 {
                return false;
            }
            let context = OF_SERVED | key;
            let (sent, bytes) = if is_lent {
                // SAFETY: registered memory stays until it is deregistered, and then the endpoint copies what it still
                // has of it.
                let sent = unsafe {
                    self.endpoint.send_lent_in_background(channel, head, part, context, Acknowledge::Eventually)
                };
                (sent, part.len())
            } else {
                self.packed.resize(copied_max.min(usize::try_from(rest).unwrap_or(usize::MAX)), 0);
                region.origin.copy(from, &mut self.packed);
                let (body, acknowledge) = (&self.packed, Acknowledge::Eventually);
                (self.endpoint.send_in_background(channel, head, body, context, acknowledge), body.len())
            };
            if sent.is_err() {
                return false;
            }
            if self.state.returned_part(to, key, bytes as u64) {
                self.state.answered_read(key);
                return true;
            }
        }
    }

    /// Returns what an atomic operation found.
    pub(super) fn send_found(&mut self, to: PeerId, number: u64, bytes: &[u8]) -> bool {
        let is_sent = self.send_copied(to, &Header::Returned { number, offset: 0 }, bytes);
        if is_sent {
            self.state.peers.at(to).serving -= 1;
        }
        is_sent
    }
}

impl State {
    /// A peer's write of `length` bytes begins.
    pub(super) fn write_begins(
        &mut self,
        peer: PeerId,
        number: u64,
        at: Remote,
        length: u64,
        data: Option<u64>,
    ) -> Result<(), Violation> {
        if self.peers.at(peer).writing.is_some() {
            return Err(Violation::Operation);
        }
        self.begin_serving(peer)?;
        let region = self.find(peer, at, length, Access { read: false, write: true });
        let writing = Writing { number, region, offset: at.offset, length, placed: 0, data };
        self.peers.at(peer).writing = Some(writing);
        Ok(())
    }

    /// A message brings `body` bytes of a peer's write, from `offset` on: at least one, unless it writes nothing.
    pub(super) fn write_goes_on(&mut self, peer: PeerId, number: u64, offset: u64, body: u64) -> Result<(), Violation> {
        let writing = self.peers.at(peer).writing.as_mut().ok_or(Violation::Operation)?;
        if writing.number != number {
            return Err(Violation::Operation);
        }
        let left = writing.length - writing.placed;
        if offset != writing.placed || body > left || body == 0 && left > 0 {
            return Err(Violation::Length);
        }
        writing.placed += body;
        Ok(())
    }

    /// Puts bytes of a peer's write at their place.
    #[inline]
    pub(super) fn place_written(&mut self, peer: PeerId, offset: u64, bytes: &[u8]) {
        let Self { peers, regions, .. } = self;
        let Some(writing) = &mut peers.at(peer).writing else { return };
        let Ok(entry) = writing.region else { return };
        match regions.get(entry) {
            Some(region) => region.target.write(writing.offset + offset, bytes),
            None => writing.region = Err(Refusal::Deregistered),
        }
    }

    /// A message of a peer's write is all there.
    pub(super) fn written(&mut self, peer: PeerId) {
        let Some(writing) = self.peers.at(peer).writing.take_if(|writing| writing.placed == writing.length) else {
            return;
        };
        let Writing { number, region, length, data, .. } = writing;
        if region.is_ok() {
            self.counts.written_by_peers += 1;
            if let Some(data) = data {
                let outcome = Outcome::Written(RemoteWrite { source: peer, data, length });
                self.completions.push_back(Completion { context: 0, note: 0, outcome });
            }
        }
        self.done(peer, number, region.map(|_| ()));
    }

    /// A peer reads.
    pub(super) fn read_begins(&mut self, peer: PeerId, number: u64, at: Remote, length: u64) -> Result<(), Violation> {
        self.begin_serving(peer)?;
        match self.find(peer, at, length, Access { read: true, write: false }) {
            Ok(region) => {
                self.counts.read_by_peers += 1;
                if length == 0 {
                    self.done(peer, number, Ok(()));
                    return Ok(());
                }
                let offset = at.offset;
                let served =
                    Served { peer, number, region, offset, length, handed: 0, under_way: 0, is_answered: false };
                let key = self.served.add(served);
                self.enqueue(peer, Out::Served(key));
            }
            Err(refusal) => self.done(peer, number, Err(refusal)),
        }
        Ok(())
    }

    /// A peer changes memory: `body` is operand and comparison.
    pub(super) fn change(
        &mut self,
        peer: PeerId,
        number: u64,
        at: Remote,
        atomic: Atomic,
        body: &[u8],
    ) -> Result<(), Violation> {
        let Atomic { operation, of, length, fetches } = atomic;
        let operands = u64::from(operation != AtomicOperation::Read) + u64::from(operation.compares());
        if length.checked_mul(operands) != Some(body.len() as u64) {
            return Err(Violation::Length);
        }
        self.begin_serving(peer)?;
        let access = Access { read: fetches, write: operation != AtomicOperation::Read };
        // What is returned goes in one frame, as what was sent did; only of a read that does not follow by itself.
        let is_known = of.has(operation) && length % of.bytes() as u64 == 0 && length <= self.atomic_max;
        let found = if is_known { self.find(peer, at, length, access) } else { Err(Refusal::Operation) };
        let region = match found.and_then(|entry| self.regions.get(entry).ok_or(Refusal::Key)) {
            Ok(region) => region,
            Err(refusal) => {
                self.done(peer, number, Err(refusal));
                return Ok(());
            }
        };
        let (operand, compare) = body.split_at(if operation == AtomicOperation::Read { 0 } else { length as usize });
        let change = |elements: &mut [u8]| apply(operation, of, elements, operand, compare);
        let plainly = |region: &mut Region| {
            let mut elements = vec![0; length as usize];
            region.origin.copy(at.offset, &mut elements);
            let before = fetches.then(|| elements.clone().into_boxed_slice());
            change(&mut elements);
            if access.write {
                region.target.write(at.offset, &elements);
            }
            before
        };
        if mutant!(self, ChangesTwice) {
            plainly(region);
        }
        let element = of.bytes();
        let word = if length == element as u64 { region.target.update(at.offset, element, change) } else { None };
        let before = word.map_or_else(|| plainly(region), |word| fetches.then(|| word[..element].into()));
        if fetches {
            self.counts.read_by_peers += 1;
        } else {
            self.counts.written_by_peers += 1;
        }
        match before.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => self.enqueue(peer, Out::Found { number, bytes }),
            None => self.done(peer, number, Ok(())),
        }
        Ok(())
    }

    /// The memory in which a peer may access `bytes` from `at` on.
    fn find(&mut self, peer: PeerId, at: Remote, bytes: u64, access: Access) -> Result<Key, Refusal> {
        if !self.config.memory_for_all && !self.peers.at(peer).is_named {
            return Err(Refusal::UnknownPeer);
        }
        self.regions.find(at, bytes, access)
    }

    /// One more access of a peer's is to be answered.
    fn begin_serving(&mut self, peer: PeerId) -> Result<(), Violation> {
        let peer = self.peers.at(peer);
        if peer.serving >= ACCESSES_MAX {
            return Err(Violation::Operation);
        }
        peer.serving += 1;
        Ok(())
    }

    fn done(&mut self, peer: PeerId, number: u64, result: Result<(), Refusal>) {
        self.enqueue(peer, Out::Control(Header::Done { number, result }));
    }

    /// The endpoint has one more message of an answer, with so many bytes. Whether all was returned.
    fn returned_part(&mut self, to: PeerId, key: Key, bytes: u64) -> bool {
        self.peers.at(to).under_way[BACKGROUND] += 1;
        let Some(served) = self.served.get(key) else { return true };
        served.under_way += 1;
        served.handed += bytes;
        served.handed == served.length
    }

    /// The endpoint has all of an answer.
    fn answered_read(&mut self, key: Key) {
        let Some(served) = self.served.get(key) else { return };
        served.is_answered = true;
        let (peer, is_over) = (served.peer, served.under_way == 0);
        if is_over {
            self.served.remove(key);
        }
        let peer = self.peers.at(peer);
        peer.serving = peer.serving.saturating_sub(1);
    }

    /// The endpoint has done with a message that returns something.
    pub(super) fn served_handed_over(&mut self, key: Key) {
        let Some(served) = self.served.get(key) else { return };
        served.under_way -= 1;
        let (peer, is_over) = (served.peer, served.under_way == 0 && served.is_answered);
        self.peers.at(peer).under_way[BACKGROUND] -= 1;
        if is_over {
            self.served.remove(key);
        }
    }

    /// Reads of which something from this memory is under way.
    pub(super) fn served_from(&self, region: Key) -> Vec<Key> {
        self.served.keys_where(|served| served.region == region && served.under_way > 0)
    }

    /// The peer is gone.
    pub(super) fn stop_serving(&mut self, peer: PeerId) {
        for key in self.served.keys_where(|served| served.peer == peer) {
            self.served.remove(key);
        }
    }
}
