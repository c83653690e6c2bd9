// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conversion of completions to libfabric's form.

use std::ffi::c_void;
use std::ptr;

use barewire_endpoint::Ending;
use barewire_messages::{Completion, Envelope, Failure, Operation, Outcome, PeerId, Received, ReceivedNext};

use super::{Endpoint, Wire};
use crate::bindings::*;
use crate::diagnostics;
use crate::edge::failure_errno;
use crate::log::warning;
use crate::queue::{Entry, Queue};
use crate::silence::silence_of;
use crate::table::Table;
use crate::vector::{FI_ADDR_NOTAVAIL, Vector};

impl Entry {
    pub fn new(context: *mut c_void, flags: u64) -> Self {
        let (length, data, tag, error, truncated_bytes) = (0, 0, 0, 0, 0);
        Self {
            context,
            flags,
            length,
            buffer: ptr::null_mut(),
            data,
            tag,
            source: FI_ADDR_NOTAVAIL,
            error,
            truncated_bytes,
        }
    }
}

impl Endpoint {
    /// Queues all completions.
    #[inline]
    pub fn collect(&mut self, queues: &mut Table<Queue>, vectors: &Table<Vector>) {
        if self.wire.as_ref().is_some_and(Wire::has_completions) {
            self.report_all(queues, vectors);
        }
    }

    /// Receives a local peer's message for an empty queue, if there is nothing else to do.
    #[inline]
    pub fn receive_next(&mut self, queue: usize, vectors: &Table<Vector>) -> Option<Entry> {
        let is_of_queue = self.receive.is_some_and(|bound| bound.queue == queue);
        let (true, None, Some(Wire::Reliable(messenger))) = (is_of_queue, self.reported_counts, &mut self.wire) else {
            return None;
        };
        let ReceivedNext { context, note, envelope } = messenger.receive_next()?;
        let mut entry = Entry::new(context as *mut c_void, u64::from(note));
        self.set_envelope(&mut entry, &envelope, vectors);
        Some(entry)
    }

    fn report_all(&mut self, queues: &mut Table<Queue>, vectors: &Table<Vector>) {
        while let Some(completion) = self.wire.as_mut().and_then(Wire::poll) {
            self.report(completion, queues, vectors);
        }
        self.bound_unread(queues);
    }

    /// Holds back peers' unsolicited operations while the program leaves too many completions unread.
    pub fn bound_unread(&mut self, queues: &Table<Queue>) {
        let (Some(bound), Some(Wire::Reliable(messenger))) = (self.receive, &mut self.wire) else { return };
        let is_flooded = queues[bound.queue].is_flooded();
        if std::mem::replace(&mut self.is_flooded, is_flooded) != is_flooded {
            messenger.refuse_unsolicited(is_flooded);
        }
    }

    #[inline]
    fn report(&mut self, completion: Completion, queues: &mut Table<Queue>, vectors: &Table<Vector>) {
        let Completion { context, note, outcome } = completion;
        let mut entry = Entry::new(context as *mut c_void, u64::from(note));
        let is_send = match outcome {
            Outcome::Sent => true,
            Outcome::Received(received) => {
                self.set_envelope(&mut entry, &received.envelope, vectors);
                self.set_multi_receive(&mut entry, context, Some(received));
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
                entry.error = failure_errno(failure).0;
                if let Failure::Peer { peer, ending } = failure {
                    self.warn_lost_peer(peer, ending, vectors);
                }
                if let Some(message) = message {
                    self.set_envelope(&mut entry, &message.envelope, vectors);
                }
                if let Failure::Truncated { length, room } = failure {
                    entry.length = room as usize;
                    entry.truncated_bytes = (length - room) as usize;
                }
                // Already completed when it was copied; the next operation for this peer fails.
                if operation != Operation::Receive && note == 0 {
                    warning!(FI_LOG_EP_DATA, "a message that was reported as sent is lost: {failure}");
                    return;
                }
                if operation == Operation::Receive {
                    self.set_multi_receive(&mut entry, context, message);
                }
                operation != Operation::Receive
            }
        };
        if let Some(bound) = if is_send { self.transmit } else { self.receive } {
            queues[bound.queue].push(entry);
        }
    }

    /// Reports the reason, since MPI libraries show only the number of an error.
    #[cold]
    fn warn_lost_peer(&mut self, peer: PeerId, ending: Ending, vectors: &Table<Vector>) {
        if self.last_lost.replace(peer) == Some(peer) {
            return;
        }
        let number = self.source_of(peer, vectors) as usize;
        // A peer that has connected to this endpoint has told only its MAC address and SAP.
        let inserted = self.vector.and_then(|vector| *vectors[vector].addresses.get(number)?);
        let Some(wire) = &self.wire else { return };
        let Some(address) = inserted.or_else(|| wire.address_of(peer)) else { return };
        warning!(FI_LOG_EP_DATA, "{address}: {ending}");
        match ending {
            // The launcher reports processes that have ended.
            Ending::Closed | Ending::PeerClosed => {}
            Ending::NeverAnswered | Ending::NoAnswer => {
                diagnostics::report_loss(&silence_of(address, wire.address(), ending));
            }
            Ending::Refused | Ending::Stalled | Ending::Restarted | Ending::Violation | Ending::Exhausted => {
                diagnostics::report_loss(&format!("{address}: {ending}"));
            }
        }
    }

    #[inline]
    pub fn set_envelope(&mut self, entry: &mut Entry, envelope: &Envelope, vectors: &Table<Vector>) {
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

    /// Sets the context of a multi-receive, the message's position in its buffer, and whether the receive has ended.
    #[inline]
    fn set_multi_receive(&mut self, entry: &mut Entry, context: u64, received: Option<Received>) {
        if entry.flags & FI_MULTI_RECV == 0 {
            return;
        }
        let Some(index) = self.multi_receives.iter().position(|receive| receive.number == context) else { return };
        entry.context = self.multi_receives[index].context;
        let is_last = received.is_none_or(|received| received.is_last);
        if let Some(received) = received {
            entry.buffer = self.multi_receives[index].base.wrapping_add(received.offset as usize).cast();
        }
        if is_last {
            self.multi_receives.swap_remove(index);
        } else {
            entry.flags &= !FI_MULTI_RECV;
        }
    }
}
