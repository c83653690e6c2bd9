// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What completions report, handed to the oracle.

use barewire_messages::{Completion, Failure, Outcome, Received, Refusal};

use super::super::oracle::{Property, State};
use super::super::scenario::Readable;
use super::{Kind, Operation, Process, Shared};

impl Process {
    pub(super) fn completed(&mut self, completion: Completion, world: &mut Shared<'_>) {
        let Completion { context, outcome, .. } = completion;
        self.trace(|| format!("{context}: {outcome:?}"));
        if let Outcome::Written(written) = outcome {
            match self.rank_of(written.source) {
                Some(from) => {
                    world.oracle.write_notified(self.rank, from, written.data, written.length, self.memory());
                }
                // A removed peer has no address.
                None => {
                    let has_closed = world.oracle.has_closed_any(self.rank);
                    world
                        .oracle
                        .require(has_closed, Property::Access, || format!("{}: a write by an unknown peer", self.rank));
                }
            }
            return;
        }
        if context == 0 {
            return match outcome {
                Outcome::Failed { failure: Failure::Peer { peer, .. }, .. } => {
                    if let Some(peer) = self.rank_of(peer) {
                        world.oracle.loss_reported(self.rank, peer);
                    }
                }
                _ => world.oracle.report(Property::Once, || format!("{}: {outcome:?} of nothing", self.rank)),
            };
        }
        let Some(operation) = self.operations.remove(&context) else {
            return world.oracle.report(Property::Once, || format!("{}: {outcome:?} again", self.rank));
        };
        let (kind, is_cancelled) = (operation.kind, operation.is_cancelled);
        match (kind, outcome) {
            (Kind::Receive { number, is_multi, drain_index }, outcome) => {
                let buffers = operation.buffers;
                if let Some(kept) =
                    self.receive_ended((number, is_multi), drain_index, buffers, outcome, is_cancelled, world)
                {
                    self.operations.insert(context, Operation { kind, buffers: kept, is_cancelled });
                }
            }
            (Kind::Send { message, .. }, Outcome::Sent) => world.oracle.send_ended(message, State::Completed),
            (
                Kind::Send { to, message },
                Outcome::Failed { failure, operation: barewire_messages::Operation::Send, .. },
            ) => {
                let state = if failure == Failure::Cancelled { State::Cancelled } else { State::Failed };
                world.oracle.send_ended(message, state);
                self.failed(Some(to), failure, is_cancelled, false, world);
            }
            (Kind::Write { at, number }, Outcome::Done(barewire_messages::Operation::Write)) => {
                world.done_writes.push((at, number));
            }
            (Kind::WriteVolatile { .. }, Outcome::Done(barewire_messages::Operation::Write)) => {}
            (Kind::Read { from, target, before }, Outcome::Done(barewire_messages::Operation::Read)) => match target {
                Readable::Constant => world.oracle.check_constant(from, &operation.buffers[0]),
                Readable::Slot(slot) => {
                    let when = || "as it was read".to_owned();
                    world.oracle.check_bytes((self.rank, from, slot), &operation.buffers[0], before, when);
                }
            },
            (
                Kind::Add { to, incarnation, counter, value, min: None },
                Outcome::Done(barewire_messages::Operation::Atomic),
            ) => {
                world.oracle.add_completed(to, incarnation, counter, value, None);
            }
            (
                Kind::Add { to, incarnation, counter, value, min: Some(min) },
                Outcome::Done(barewire_messages::Operation::FetchAtomic),
            ) => {
                let found = u64::from_le_bytes(operation.buffers[0][..8].try_into().expect("8 bytes"));
                world.oracle.add_completed(to, incarnation, counter, value, Some((min, found)));
            }
            (Kind::Write { at, number }, Outcome::Failed { failure, .. }) => {
                world.oracle.write_failed(at, number);
                self.failed(Some(at.1), failure, false, false, world);
            }
            (Kind::WriteVolatile { to }, Outcome::Failed { failure, .. }) => {
                self.failed(Some(to), failure, false, true, world);
            }
            (Kind::Read { from: peer, .. } | Kind::Add { to: peer, .. }, Outcome::Failed { failure, .. }) => {
                self.failed(Some(peer), failure, false, false, world);
            }
            (_, outcome) => {
                world.oracle.report(Property::Once, || format!("{}: {outcome:?} of another operation", self.rank))
            }
        }
    }

    /// Handles a completion of a receive; returns its buffers if it continues.
    fn receive_ended(
        &mut self,
        (number, is_multi): (usize, bool),
        drain_index: Option<usize>,
        buffers: Vec<Vec<u8>>,
        outcome: Outcome,
        is_cancelled: bool,
        world: &mut Shared<'_>,
    ) -> Option<Vec<Vec<u8>>> {
        let (received, failure) = match outcome {
            Outcome::Received(received) => (Some(received), None),
            Outcome::Failed { operation: barewire_messages::Operation::Receive, failure, message } => {
                (message, Some(failure))
            }
            _ => {
                world.oracle.report(Property::Once, || format!("{}: {outcome:?} of a receive", self.rank));
                return None;
            }
        };
        let is_whole = matches!(failure, None | Some(Failure::Truncated { .. }));
        if let (Some(received), true) = (received, is_whole) {
            let Received { envelope, offset, .. } = received;
            let memory = buffers.concat();
            let room = (memory.len() as u64).saturating_sub(offset);
            let found = &memory[(offset as usize).min(memory.len())..][..room.min(envelope.length) as usize];
            let from = self.rank_of(envelope.source);
            let label_and_length = (envelope.label, envelope.length);
            world.oracle.received(self.rank, number, from, label_and_length, found, self.memory());
            let is_right = match failure {
                Some(Failure::Truncated { length, room: reported }) => {
                    length == envelope.length && reported == room && length > room
                }
                _ => envelope.length <= room,
            };
            world.oracle.require(is_right, Property::Content, || format!("{}: {outcome:?} in {room} bytes", self.rank));
        } else if let Some(failure) = failure {
            let peer = match failure {
                Failure::Peer { peer, .. } => self.rank_of(peer),
                _ => None,
            };
            self.failed(peer, failure, is_cancelled, false, world);
        }
        let is_over = received.is_none_or(|received| received.is_last);
        if !is_over {
            world.oracle.require(is_multi, Property::Once, || format!("{}: a single receive continues", self.rank));
            return Some(buffers);
        }
        if received.is_none() {
            world.oracle.receive_ended(number);
        }
        if let Some(index) = drain_index {
            self.drain_receives[index] = false;
        }
        None
    }

    fn failed(
        &mut self,
        peer: Option<usize>,
        failure: Failure,
        is_cancelled: bool,
        is_volatile: bool,
        world: &mut Shared<'_>,
    ) {
        match failure {
            Failure::Cancelled => {
                world.oracle.require(is_cancelled, Property::Failure, || {
                    format!("{}: not cancelled by the program", self.rank)
                });
            }
            Failure::Refused { refusal: Refusal::Key | Refusal::Deregistered, .. } if is_volatile => {}
            failure => world.oracle.operation_failed(self.rank, peer, failure),
        }
    }
}
