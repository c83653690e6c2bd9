// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has ended, as libfabric tells it.

use std::ffi::c_void;
use std::ptr;

use barewire_endpoint::Ending;
use barewire_messages::{Completion, Envelope, Failure, Operation, Outcome, PeerId, Received, ReceivedNext};

use super::{Endpoint, Wire};
use crate::bindings::*;
use crate::edge::of_failure;
use crate::log::warning;
use crate::queue::{Entry, Queue};
use crate::table::Table;
use crate::vector::{FI_ADDR_NOTAVAIL, Vector};

/// Entries of a queue from which on peers wait: 5 MB. A program that reads at all never has as many.
const UNREAD_MAX: usize = 1 << 16;

impl Entry {
    pub fn new(context: *mut c_void, flags: u64) -> Self {
        let (length, data, tag, error, lost) = (0, 0, 0, 0, 0);
        Self { context, flags, length, buffer: ptr::null_mut(), data, tag, source: FI_ADDR_NOTAVAIL, error, lost }
    }
}

impl Endpoint {
    /// Brings what has ended to its queue.
    #[inline]
    pub fn collect(&mut self, queues: &mut Table<Queue>, vectors: &Table<Vector>) {
        if self.wire.as_ref().is_some_and(Wire::has_completions) {
            self.tell_all(queues, vectors);
        }
    }

    /// Receives a local peer's message for a queue that has nothing else to tell, if that is all there is to do.
    #[inline]
    pub fn receive_next(&mut self, queue: usize, vectors: &Table<Vector>) -> Option<Entry> {
        let is_of_queue = self.receive.is_some_and(|bound| bound.queue == queue);
        let (true, None, Some(Wire::Reliable(messenger))) = (is_of_queue, self.counted, &mut self.wire) else {
            return None;
        };
        let ReceivedNext { context, note, envelope } = messenger.receive_next()?;
        let mut entry = Entry::new(context as *mut c_void, u64::from(note));
        self.describe(&mut entry, &envelope, vectors);
        Some(entry)
    }

    fn tell_all(&mut self, queues: &mut Table<Queue>, vectors: &Table<Vector>) {
        while let Some(completion) = self.wire.as_mut().and_then(Wire::poll) {
            self.tell(completion, queues, vectors);
        }
        self.bound_unread(queues);
    }

    /// Lets peers wait with what the program has not asked for, as long as it leaves too much unread.
    pub fn bound_unread(&mut self, queues: &Table<Queue>) {
        let (Some(bound), Some(Wire::Reliable(messenger))) = (self.receive, &mut self.wire) else { return };
        let is_flooded = queues[bound.queue].len() >= UNREAD_MAX;
        if std::mem::replace(&mut self.is_flooded, is_flooded) != is_flooded {
            messenger.refuse_unsolicited(is_flooded);
        }
    }

    #[inline]
    fn tell(&mut self, completion: Completion, queues: &mut Table<Queue>, vectors: &Table<Vector>) {
        let Completion { context, note, outcome } = completion;
        let mut entry = Entry::new(context as *mut c_void, u64::from(note));
        let is_send = match outcome {
            Outcome::Sent => true,
            Outcome::Received(received) => {
                self.describe(&mut entry, &received.envelope, vectors);
                self.place(&mut entry, context, Some(received));
                false
            }
            Outcome::Done(_) => true,
            Outcome::Written(write) => {
                entry.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
                (entry.length, entry.data) = (write.length as usize, write.data);
                entry.source = self.source_of(write.source, vectors);
                false
            }
            Outcome::Failed { operation, failure, message } => {
                entry.error = of_failure(failure).0;
                if let Failure::Peer { peer, ending } = failure {
                    self.warn_of(peer, ending);
                }
                if let Some(message) = message {
                    self.describe(&mut entry, &message.envelope, vectors);
                }
                if let Failure::Truncated { length, room } = failure {
                    entry.length = room as usize;
                    entry.lost = (length - room) as usize;
                }
                // It was completed when it was copied; the next operation for this peer says so.
                if operation != Operation::Receive && note == 0 {
                    warning!(FI_LOG_EP_DATA, "a message that was told to have been sent is lost: {failure}");
                    return;
                }
                if operation == Operation::Receive {
                    self.place(&mut entry, context, message);
                }
                operation != Operation::Receive
            }
        };
        if let Some(bound) = if is_send { self.transmit } else { self.receive } {
            queues[bound.queue].push(entry);
        }
    }

    /// MPI libraries tell the number of an error and no more.
    fn warn_of(&mut self, peer: PeerId, ending: Ending) {
        if self.lost.replace(peer) != Some(peer)
            && let Some(address) = self.wire.as_ref().and_then(|wire| wire.address_of(peer))
        {
            warning!(FI_LOG_EP_DATA, "{address}: {ending}");
        }
    }

    #[inline]
    pub fn describe(&mut self, entry: &mut Entry, envelope: &Envelope, vectors: &Table<Vector>) {
        let Envelope { source, label, length } = *envelope;
        entry.length = length as usize;
        if let Some(tag) = label.tag {
            entry.tag = tag;
        }
        if let Some(data) = label.data {
            entry.data = data;
            entry.flags |= FI_REMOTE_CQ_DATA;
        }
        entry.source = self.source_of(source, vectors);
    }

    #[inline]
    fn source_of(&mut self, peer: PeerId, vectors: &Table<Vector>) -> fi_addr_t {
        match self.sources.get(peer.number() as usize) {
            Some(&number) if number != FI_ADDR_NOTAVAIL => number,
            _ => self.find_source(vectors, peer),
        }
    }

    /// Where a message lies in memory for many; and that this is done with, if it is.
    #[inline]
    fn place(&mut self, entry: &mut Entry, context: u64, received: Option<Received>) {
        if entry.flags & FI_MULTI_RECV == 0 {
            return;
        }
        let Some(at) = self.many.iter().position(|many| many.number == context) else { return };
        entry.context = self.many[at].context;
        let is_last = received.is_none_or(|received| received.is_last);
        if let Some(received) = received {
            entry.buffer = self.many[at].base.wrapping_add(received.offset as usize).cast();
        }
        if is_last {
            self.many.swap_remove(at);
        } else {
            entry.flags &= !FI_MULTI_RECV;
        }
    }
}
