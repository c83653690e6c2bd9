// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting the operations of a program's steps.

use barewire_messages::{
    AtomicParts, CompletionLevel, Label, Part, Pattern, PostError, ReceiveOptions, RemoteAddress, Selector, SendOptions,
};

use super::super::oracle::{Property, State, content};
use super::super::scenario::{Action, Criteria, Readable, SendMode, VOLATILE_BYTES};
use super::{Kind, Operation, PERSISTENT, Port, Process, Shared, VOLATILE};

impl Process {
    pub(super) fn act(&mut self, action: Action, now_ns: u64, world: &mut Shared<'_>) -> Result<(), PostError> {
        match action {
            Action::Send { to, tag, has_data, bytes, level, mode } => {
                self.send(to, tag, has_data, bytes, level, mode, world)
            }
            Action::Receive { criteria, bytes, parts } => {
                // `usize::MAX` stands for room for any message.
                let bytes = if bytes == usize::MAX { world.message_bytes_max } else { bytes };
                self.receive(criteria, bytes, parts, None, world)
            }
            Action::ReceiveMulti { criteria, bytes, min } => self.receive_multi(criteria, bytes, min, world),
            Action::Claim { criteria, discards } => {
                self.claim(criteria, discards, world);
                Ok(())
            }
            Action::CancelReceive => {
                let filter = |kind: &Kind| matches!(kind, Kind::Receive { .. });
                self.cancel(filter, |port, context| port.cancel(context), world);
                Ok(())
            }
            Action::CancelSend => {
                let filter = |kind: &Kind| matches!(kind, Kind::Send { .. });
                self.cancel(filter, |port, context| port.cancel_send(context), world);
                Ok(())
            }
            Action::Write { to, slot, offset, bytes, has_data, mode } => {
                self.write(to, slot, offset, bytes, has_data, mode, world)
            }
            Action::WriteVolatile { to, bytes } => {
                let (peer, context) = (self.peer(to), self.next_context);
                let buffer = vec![0xee; bytes];
                let at = RemoteAddress { key: VOLATILE, offset: 0 };
                // SAFETY: the buffer is kept until the write completes or the port is dropped.
                unsafe {
                    self.port.write(peer, at, &[Part::of(&buffer)], None, options(context, CompletionLevel::Inject))?
                };
                self.record(Kind::WriteVolatile { to }, vec![buffer]);
                Ok(())
            }
            Action::Read { from, target, bytes } => self.read(from, target, bytes, world),
            Action::Add { to, counter, value, fetches } => self.add(to, counter, value, fetches, world),
            Action::Register => {
                self.port.deregister(VOLATILE)?;
                let memory = std::mem::replace(&mut self.volatile, vec![0; VOLATILE_BYTES]);
                self.deregistered.push((memory.clone(), memory));
                self.register_volatile();
                Ok(())
            }
            Action::Remove { peer, when } => {
                if let Some(id) = self.peers[peer].take() {
                    world.oracle.channel_closed(self.rank, peer);
                    self.port.remove_peer(id, when)?;
                }
                Ok(())
            }
            Action::Close { peer } => {
                if let Some(id) = self.peers[peer]
                    && self.port.close(id)
                {
                    world.oracle.channel_closed(self.rank, peer);
                }
                Ok(())
            }
            Action::Compute { for_ns } => {
                self.computes_until_ns = now_ns + for_ns;
                Ok(())
            }
        }
    }

    pub(super) fn register_volatile(&mut self) {
        let part = Part::into(&mut self.volatile);
        // SAFETY: the memory is kept as long as the process, even after deregistration.
        unsafe { self.port.register(part, VOLATILE) };
    }

    fn record(&mut self, kind: Kind, buffers: Vec<Vec<u8>>) {
        self.operations.insert(self.next_context, Operation { kind, buffers, is_cancelled: false });
        self.next_context += 1;
    }

    fn selector(&mut self, criteria: Criteria) -> Selector {
        let source = criteria.source.map(|rank| self.peer(rank));
        match criteria.tag {
            Some((tag, ignore)) => Selector::Tagged(Pattern { source, tag, ignore }),
            None => Selector::Untagged(source),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step's values")]
    fn send(
        &mut self,
        to: usize,
        tag: Option<u64>,
        has_data: bool,
        bytes: usize,
        level: CompletionLevel,
        mode: SendMode,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let (peer, context) = (self.peer(to), self.next_context);
        let bytes = if matches!(mode, SendMode::Lent(_)) { bytes } else { bytes.min(self.port.inject_max()) };
        let number = world.oracle.next_message();
        let label = Label { tag, data: (has_data || bytes < 8).then_some(number) };
        let body = content(number as usize, bytes);
        let options = options(context, level);
        let level = match mode {
            SendMode::Lent(parts) => {
                let buffers = split(body, parts);
                let parts: Vec<Part> = buffers.iter().map(|buffer| Part::of(buffer)).collect();
                // SAFETY: the buffers are kept until the send completes or the port is dropped.
                unsafe { self.port.send(peer, label, &parts, options)? };
                let message = world.oracle.send_posted(self.rank, to, label, bytes, level);
                self.record(Kind::Send { to, message }, buffers);
                return Ok(());
            }
            SendMode::Copied => {
                self.port.send_copy(peer, label, &body, options)?;
                level
            }
            SendMode::Injected => {
                self.port.inject(peer, label, &body)?;
                CompletionLevel::Inject
            }
        };
        let message = world.oracle.send_posted(self.rank, to, label, bytes, level);
        if mode == SendMode::Copied {
            self.record(Kind::Send { to, message }, Vec::new());
        } else {
            world.oracle.send_ended(message, State::Completed);
        }
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        criteria: Criteria,
        bytes: usize,
        parts: usize,
        drain_index: Option<usize>,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let selector = self.selector(criteria);
        let mut buffers = split(vec![0xaa; bytes], parts);
        let parts: Vec<Part> = buffers.iter_mut().map(|buffer| Part::into(buffer)).collect();
        let options = ReceiveOptions { context: self.next_context, ..ReceiveOptions::default() };
        // SAFETY: the buffers are kept until the receive completes or the port is dropped.
        unsafe { self.port.receive(selector, &parts, options)? };
        let number = world.oracle.receive_posted(self.rank, criteria, false);
        self.record(Kind::Receive { number, is_multi: false, drain_index }, buffers);
        Ok(())
    }

    fn receive_multi(
        &mut self,
        criteria: Criteria,
        bytes: usize,
        min: u64,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let selector = self.selector(criteria);
        let mut buffer = vec![0xaa; bytes];
        let options = ReceiveOptions { context: self.next_context, ..ReceiveOptions::default() };
        // Every message must have room for its number.
        let min = min.clamp(8, bytes as u64);
        // SAFETY: as in `receive`.
        unsafe { self.port.receive_multi(selector, Part::into(&mut buffer), min, options)? };
        let number = world.oracle.receive_posted(self.rank, criteria, true);
        self.record(Kind::Receive { number, is_multi: true, drain_index: None }, vec![buffer]);
        Ok(())
    }

    fn claim(&mut self, criteria: Criteria, discards: bool, world: &mut Shared<'_>) {
        let selector = self.selector(criteria);
        let peeked = self.port.peek(selector);
        let claimed = self.port.claim(selector);
        let envelope = claimed.as_ref().map(|(_, envelope)| *envelope);
        // A search through libfabric makes progress first: a message may arrive, or its sender be lost.
        let may_change = self.port.is_libfabric() && (peeked.is_none() || envelope.is_none());
        let is_same = peeked == envelope || may_change;
        world
            .oracle
            .require(is_same, Property::Order, || format!("{} saw {peeked:?} and claimed {envelope:?}", self.rank));
        if let Some((claim, envelope)) = claimed {
            let number = world.oracle.receive_posted(self.rank, criteria, false);
            // A message without a number in its label is identified by its bytes, so it must be received.
            let discards = discards && envelope.label.data.is_some();
            self.claims.push_back((claim, envelope, number, discards));
        }
    }

    /// Receives or discards the oldest claimed message.
    pub(super) fn take_claimed(&mut self, world: &mut Shared<'_>) -> bool {
        let Some((claim, envelope, number, discards)) = self.claims.pop_front() else { return false };
        if discards {
            let from = self.rank_of(envelope.source);
            let label_and_length = (envelope.label, envelope.length);
            world.oracle.received(self.rank, number, from, label_and_length, &[], self.memory());
            if let Err(error) = self.port.discard(claim) {
                world.oracle.report(Property::Once, || format!("{}: {error}", self.rank));
            }
            return true;
        }
        let mut buffer = vec![0xaa; envelope.length as usize];
        let options = ReceiveOptions { context: self.next_context, ..ReceiveOptions::default() };
        // SAFETY: as in `receive`.
        let taken = unsafe { self.port.receive_claimed(claim, &[Part::into(&mut buffer)], options) };
        if let Err(error) = taken {
            world.oracle.report(Property::Once, || format!("{}: {error}", self.rank));
        }
        self.record(Kind::Receive { number, is_multi: false, drain_index: None }, vec![buffer]);
        true
    }

    fn cancel(
        &mut self,
        filter: impl Fn(&Kind) -> bool,
        cancel: impl FnOnce(&mut Port, u64) -> bool,
        world: &mut Shared<'_>,
    ) {
        let mut contexts: Vec<u64> = self
            .operations
            .iter()
            .filter(|(_, operation)| filter(&operation.kind))
            .map(|(context, _)| *context)
            .collect();
        if contexts.is_empty() {
            return;
        }
        contexts.sort_unstable();
        let context = contexts[self.rng.usize(..contexts.len())];
        if cancel(&mut self.port, context)
            && let Some(operation) = self.operations.get_mut(&context)
        {
            operation.is_cancelled = true;
            if let Kind::Receive { number, .. } = operation.kind {
                world.oracle.receive_ended(number);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step's values")]
    fn write(
        &mut self,
        to: usize,
        slot: usize,
        offset: usize,
        bytes: usize,
        has_data: bool,
        mode: SendMode,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let (peer, context) = (self.peer(to), self.next_context);
        let bytes = if matches!(mode, SendMode::Lent(_)) { bytes } else { bytes.min(self.port.inject_write_max()) };
        let index = (self.rank, to, slot);
        let number = world.oracle.writes_to(self.rank, to, slot);
        let data = has_data.then_some((slot as u64) << 32 | number as u64);
        let at = RemoteAddress { key: PERSISTENT, offset: (self.layout.slot(self.rank, slot) + offset) as u64 };
        // Content that differs from all earlier writes.
        let body = content(world.writes, bytes);
        let options = options(context, CompletionLevel::Inject);
        let mut buffers = Vec::new();
        match mode {
            SendMode::Lent(parts) => {
                buffers = split(body.clone(), parts);
                let parts: Vec<Part> = buffers.iter().map(|buffer| Part::of(buffer)).collect();
                // SAFETY: the buffers are kept until the write completes or the port is dropped.
                unsafe { self.port.write(peer, at, &parts, data, options)? };
            }
            SendMode::Copied => self.port.write_copy(peer, at, &body, data, options)?,
            SendMode::Injected => self.port.inject_write(peer, at, &body, data)?,
        }
        world.writes += 1;
        world.oracle.write_posted(index, offset, body, has_data);
        if mode != SendMode::Injected {
            self.record(Kind::Write { at: index, number }, buffers);
        }
        Ok(())
    }

    fn read(&mut self, from: usize, target: Readable, bytes: usize, world: &mut Shared<'_>) -> Result<(), PostError> {
        let (peer, context) = (self.peer(from), self.next_context);
        let (offset, before) = match target {
            Readable::Constant => (0, 0),
            Readable::Slot(slot) => (self.layout.slot(self.rank, slot), world.oracle.writes_to(self.rank, from, slot)),
        };
        let at = RemoteAddress { key: PERSISTENT, offset: offset as u64 };
        let mut buffer = vec![0xaa; bytes];
        // SAFETY: the buffer is kept until the read completes or the port is dropped.
        unsafe { self.port.read(peer, at, Part::into(&mut buffer), options(context, CompletionLevel::Inject))? };
        self.record(Kind::Read { from, target, before }, vec![buffer]);
        Ok(())
    }

    fn add(
        &mut self,
        to: usize,
        counter: usize,
        value: u64,
        fetches: bool,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let (peer, context) = (self.peer(to), self.next_context);
        let at = RemoteAddress { key: PERSISTENT, offset: self.layout.counter(counter) as u64 };
        let operand = value.to_le_bytes();
        let mut result = vec![0; 8];
        let parts = AtomicParts {
            operand: &[Part::of(&operand)],
            compare: &[],
            result: if fetches { &[Part::into(&mut result)] } else { &[] },
        };
        let options = options(context, CompletionLevel::Inject);
        // SAFETY: the result buffer is kept until the operation completes or the port is dropped.
        unsafe { self.port.add(peer, at, parts, options)? };
        let min = world.oracle.add_posted(to, counter, value);
        let min = fetches.then_some(min);
        let incarnation = world.oracle.incarnation(to);
        self.record(Kind::Add { to, incarnation, counter, value, min }, vec![result]);
        Ok(())
    }
}

fn options(context: u64, level: CompletionLevel) -> SendOptions {
    SendOptions { context, level, ..SendOptions::default() }
}

/// Splits bytes into `parts` buffers.
fn split(mut bytes: Vec<u8>, parts: usize) -> Vec<Vec<u8>> {
    let mut buffers = Vec::with_capacity(parts);
    for part in 1..parts {
        let rest = bytes.split_off(bytes.len() / (parts - part + 1));
        buffers.push(std::mem::replace(&mut bytes, rest));
    }
    buffers.push(bytes);
    buffers
}
