// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of the completion queue, translated back to a messenger's completions.

use barewire_libfabric::bindings::*;
use barewire_messages::{
    Completion, Envelope, Failure, Label, Operation, Outcome, PeerId, Received, Refusal, RemoteWrite,
};

use super::{Libfabric, NO_ADDRESS, ending, function, peer_of};

/// Entries read in a call.
const BATCH: usize = 3;

/// An entry of the completion queue.
pub(super) struct Entry {
    pub(super) entry: fi_cq_tagged_entry,
    pub(super) source: fi_addr_t,
    pub(super) error: u32,
    pub(super) truncated_bytes: u64,
}

fn failure(error: u32, peer: Option<PeerId>) -> Option<Failure> {
    let peer = peer.unwrap_or(PeerId::from_number(u32::MAX));
    let refused = |refusal| Some(Failure::Refused { peer, refusal });
    match error {
        FI_ECANCELED => Some(Failure::Cancelled),
        FI_EKEYREJECTED => refused(Refusal::Key),
        FI_EACCES => refused(Refusal::Access),
        FI_EOPNOTSUPP => refused(Refusal::Operation),
        _ if error == nix::errno::Errno::ERANGE as u32 => refused(Refusal::Range),
        _ => ending(error).map(|ending| Failure::Peer { peer, ending }),
    }
}

impl Libfabric {
    /// Reads entries with their sources, or one error.
    pub(super) fn read_queue(&mut self) -> Result<Vec<Entry>, String> {
        let cq = self.objects.cq;
        let mut entries = [fi_cq_tagged_entry::default(); BATCH];
        let mut sources = [NO_ADDRESS; BATCH];
        // SAFETY: an open queue, and room for so many entries.
        let read = unsafe {
            let (to, sources) = (entries.as_mut_ptr().cast(), sources.as_mut_ptr());
            function!(cq, ops, readfrom)(cq, to, BATCH, sources)
        };
        match read {
            0.. => {
                let read = entries.into_iter().zip(sources).take(read as usize);
                Ok(read.map(|(entry, source)| Entry { entry, source, error: 0, truncated_bytes: 0 }).collect())
            }
            _ if read == -(FI_EAGAIN as isize) => Ok(Vec::new()),
            _ if read == -(FI_EAVAIL as isize) => {
                let mut error = fi_cq_err_entry::default();
                // SAFETY: an open queue, and room for an error.
                let read = unsafe { function!(cq, ops, readerr)(cq, &raw mut error, 0) };
                assert_eq!(read, 1);
                let fi_cq_err_entry { op_context, flags, len, buf, data, tag, olen, err, .. } = error;
                let entry = fi_cq_tagged_entry { op_context, flags, len, buf, data, tag };
                let (error, truncated_bytes) = (err.unsigned_abs(), olen as u64);
                Ok(vec![Entry { entry, source: NO_ADDRESS, error, truncated_bytes }])
            }
            _ => Err(format!("fi_cq_readfrom returned {read}")),
        }
    }

    /// Reads from the completion queue; whether there was anything.
    pub fn progress(&mut self) -> Result<bool, String> {
        self.objects.wake();
        let entries = self.read_queue()?;
        entries.iter().for_each(|entry| self.report(entry));
        Ok(!entries.is_empty())
    }

    pub fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty() || self.objects.has_completions()
    }

    pub(super) fn report(&mut self, read: &Entry) {
        let (entry, given) = (&read.entry, read.entry.op_context as u64);
        let completion = |context, outcome| Completion { context, note: 0, outcome };
        if entry.flags & FI_REMOTE_WRITE != 0 {
            let (source, length) = (peer_of(read.source), entry.len as u64);
            let outcome = Outcome::Written(RemoteWrite { source, data: entry.data, length });
            return self.completions.push_back(completion(0, outcome));
        }
        // The failure of an injected write, which names no peer.
        if given == 0 && read.error != 0 && entry.flags == FI_RMA | FI_WRITE {
            return;
        }
        let Some(posted) = self.posted.get(&given) else {
            // The program knows that it has posted nothing of this context, or that this has completed.
            return self.completions.push_back(completion(given, Outcome::Sent));
        };
        let (context, operation) = (posted.context, posted.operation);
        let kind = match operation {
            Operation::Send => FI_SEND,
            Operation::Receive => FI_RECV,
            Operation::Write => FI_RMA | FI_WRITE,
            Operation::Read => FI_RMA | FI_READ,
            Operation::Atomic => FI_ATOMIC | FI_WRITE,
            Operation::FetchAtomic => FI_ATOMIC | FI_READ,
        };
        assert_eq!(entry.flags & kind, kind, "{operation:?} completed with flags {:#x}", entry.flags);
        let is_last = posted.multi_buffer.is_none() || entry.flags & FI_MULTI_RECV != 0;
        let offset = posted.multi_buffer.map_or(0, |buffer| (entry.buf as usize).saturating_sub(buffer) as u64);
        let received = Received { envelope: envelope(read), offset, is_last };
        let outcome = match (read.error, operation) {
            (0, Operation::Receive) => Outcome::Received(received),
            (0, Operation::Send) => Outcome::Sent,
            (0, operation) => Outcome::Done(operation),
            (FI_ETRUNC, Operation::Receive) => {
                let (length, room) = (received.envelope.length, entry.len as u64);
                let failure = Failure::Truncated { length, room };
                Outcome::Failed { operation, failure, message: Some(received) }
            }
            (error, operation) => {
                let failure = failure(error, posted.peer).unwrap_or_else(|| panic!("{operation:?}: error {error}"));
                // The entry does not tell whether the receive had matched.
                let had_matched = operation == Operation::Receive && matches!(failure, Failure::Peer { .. });
                Outcome::Failed { operation, failure, message: had_matched.then_some(received) }
            }
        };
        if is_last {
            self.posted.remove(&given);
        }
        self.completions.push_back(completion(context, outcome));
    }
}

/// The message that an entry describes; errors do not name the source.
pub(super) fn envelope(Entry { entry, source, truncated_bytes, .. }: &Entry) -> Envelope {
    let has = |flag: u64| entry.flags & flag != 0;
    let label = Label { tag: has(FI_TAGGED).then_some(entry.tag), data: has(FI_REMOTE_CQ_DATA).then_some(entry.data) };
    Envelope { source: peer_of(*source), label, length: entry.len as u64 + truncated_bytes }
}
