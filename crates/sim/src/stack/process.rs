// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank's process: its messenger, its program, and the memory lent to the messenger.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use barewire_endpoint::{Address, Endpoint};
use barewire_link::MacAddress;
use barewire_messages::{
    Access, AtomicOperation, AtomicParts, AtomicType, Claim, Completion, CompletionLevel, Envelope, Failure, Label,
    Messenger, Outcome, Part, Pattern, PeerId, PostError, ReceiveOptions, Received, Refusal, RemoteAddress, Selector,
    SendOptions,
};
use fastrand::Rng;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::link::{Interface, SimulatedLink};
use super::oracle::{Layout, Memory, Oracle, Property, State, content};
use super::scenario::{Action, Criteria, Readable, Scenario, SendMode, VOLATILE_BYTES};

/// Keys of registered memory: of checked memory, and of memory that is deregistered at random.
const PERSISTENT: u64 = 1;
const VOLATILE: u64 = 2;
/// A step refused for so long moves to the end of the program: it may depend on a later step.
const BLOCKED_NS: u64 = 20_000_000;
/// Interval at which a refused step is retried.
const RETRY_NS: u64 = 1_000_000;
/// Consecutive busy iterations; more than any world needs.
const ITERATIONS_MAX: u32 = 20_000;
/// Idle iterations of a polling rank before virtual time advances: the endpoint reads the clock only every few calls.
const IDLE_POLLS: u32 = 40;
/// Longest time between two polls of a polling rank.
const POLL_MAX_NS: u64 = 50_000_000;
/// Virtual duration of a call.
const CALL_TIME: Duration = Duration::from_nanos(100);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A rank's process.
pub struct Process {
    rank: usize,
    addresses: Vec<Address>,
    /// Declared before the memory lent to it, so dropped first.
    pub messenger: Messenger<SimulatedLink>,
    /// By rank; inserted on first use.
    peers: Vec<Option<PeerId>>,
    program: VecDeque<(u64, Action)>,
    blocked_since: Option<u64>,
    is_refused: bool,
    operations: HashMap<u64, Operation>,
    next_context: u64,
    claims: VecDeque<(Claim, Envelope, usize, bool)>,
    memory: Vec<u8>,
    layout: Layout,
    volatile: Vec<u8>,
    /// Deregistered memory, and its content at deregistration.
    deregistered: Vec<(Vec<u8>, Vec<u8>)>,
    rng: Rng,
    polls: bool,
    poll_ns: u64,
    /// After the faults: the process receives every message.
    is_draining: bool,
    drain_receives: [bool; 2],
    pub computes_until_ns: u64,
    is_traced: bool,
}

struct Operation {
    kind: Kind,
    /// Lent to the messenger until the operation completes.
    buffers: Vec<Vec<u8>>,
    is_cancelled: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Send { to: usize, message: usize },
    Receive { number: usize, is_multi: bool, drain_index: Option<usize> },
    Write { at: (usize, usize, usize), number: usize },
    WriteVolatile { to: usize },
    Read { from: usize, target: Readable, before: usize },
    Add { to: usize, incarnation: usize, counter: usize, value: u64, min: Option<u64> },
}

const ANY: [Selector; 2] =
    [Selector::Tagged(Pattern { source: None, tag: 0, ignore: u64::MAX }), Selector::Untagged(None)];

/// When to run a process next.
pub enum Next {
    /// After so many ns, or when a frame arrives.
    After(u64),
    /// It never becomes idle.
    Livelock,
}

/// The cookie of `rank`, derived from that of rank `of`; 0 if the world has none.
fn cookie(base: u64, rank: usize, of: usize) -> u64 {
    if base == 0 { 0 } else { base ^ (rank as u64) << 8 ^ (of as u64) << 8 }
}

impl Process {
    pub fn new(
        rank: usize,
        scenario: &Scenario,
        interface: &Rc<RefCell<Interface>>,
        program: VecDeque<(u64, Action)>,
        rng: Rng,
        is_traced: bool,
    ) -> Self {
        let address = scenario.addresses[rank];
        let link = SimulatedLink::new(interface, MacAddress(address.mac), scenario.mtu);
        let mut config = scenario.endpoint.clone();
        config.sap = address.sap;
        config.cookie = cookie(config.cookie, rank, 0);
        let endpoint = Endpoint::open(link, config, None).expect("the scenario's configuration is right");
        let layout = Layout { ranks: scenario.ranks(), slot_bytes: scenario.slot_bytes };
        let mut process = Self {
            rank,
            addresses: scenario.addresses.clone(),
            messenger: Messenger::new(endpoint, scenario.messages),
            peers: vec![None; scenario.ranks()],
            program,
            blocked_since: None,
            is_refused: false,
            operations: HashMap::new(),
            next_context: 1,
            claims: VecDeque::new(),
            memory: layout.memory(rank),
            layout,
            volatile: vec![0; VOLATILE_BYTES],
            deregistered: Vec::new(),
            rng,
            polls: scenario.polls[rank],
            poll_ns: 0,
            is_draining: false,
            drain_receives: [false; 2],
            computes_until_ns: 0,
            is_traced,
        };
        let parts = [Part::into(&mut process.memory)];
        // SAFETY: the memory lives as long as the process, which drops its messenger first.
        unsafe { process.messenger.register(&parts, Access::ALL, Some(PERSISTENT)) }.expect("the key is free");
        process.register_volatile();
        process
    }

    pub fn memory(&self) -> Memory<'_> {
        Memory { bytes: &self.memory, layout: self.layout }
    }

    /// Whether the program is done, and no operation is pending except receives.
    pub fn is_done(&mut self) -> bool {
        let is_pending = |operation: &Operation| !matches!(operation.kind, Kind::Receive { .. });
        self.program.is_empty()
            && self.claims.is_empty()
            && !self.operations.values().any(is_pending)
            && !self.messenger.has_completions()
            && self.messenger.peek(ANY[0]).is_none()
            && self.messenger.peek(ANY[1]).is_none()
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Describes pending steps and operations.
    pub fn unfinished(&self) -> String {
        let count =
            |filter: fn(&Kind) -> bool| self.operations.values().filter(|operation| filter(&operation.kind)).count();
        format!(
            "rank {}: {} steps, next {:?}, {} sends, {} receives, {} accesses",
            self.rank,
            self.program.len(),
            self.program.front(),
            count(|kind| matches!(kind, Kind::Send { .. })),
            count(|kind| matches!(kind, Kind::Receive { .. })),
            count(|kind| !matches!(kind, Kind::Send { .. } | Kind::Receive { .. })),
        )
    }

    /// Whether a doorbell of this rank is rung: its sleep would end.
    pub fn is_rung(&mut self) -> bool {
        let mut awaited: Vec<_> =
            self.messenger.endpoint().awaited().map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        !awaited.is_empty() && poll(&mut awaited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>15} {} {}", "", self.rank, what());
        }
    }

    /// Runs until idle.
    pub fn run(&mut self, now_ns: u64, world: &mut Shared<'_>) -> Next {
        let mut idle = 0;
        self.is_refused = false;
        // A received frame may start a timer.
        if self.messenger.endpoint().link().has_frames() {
            self.poll_ns = 0;
        }
        for _ in 0..ITERATIONS_MAX {
            let is_busy = self.run_once(now_ns, world);
            if world.oracle.violation().is_some() {
                return Next::After(0);
            }
            idle = if is_busy { 0 } else { idle + 1 };
            self.messenger.endpoint().link().advance(CALL_TIME);
            if self.computes_until_ns > now_ns {
                return Next::After(self.computes_until_ns - now_ns);
            }
            let due = match self.program.front() {
                Some((due, _)) if *due > now_ns => due - now_ns,
                Some(_) => RETRY_NS,
                None => u64::MAX,
            };
            if self.polls {
                if idle >= IDLE_POLLS {
                    self.poll_ns = (self.poll_ns * 2).clamp(1000, POLL_MAX_NS);
                    return Next::After(self.poll_ns.min(due));
                }
                if is_busy {
                    self.poll_ns = 0;
                }
            } else if idle > 0 {
                match self.messenger.prepare_to_sleep(SLEEP_MAX) {
                    Ok(Some(patience)) => return Next::After((patience.as_nanos() as u64).min(due)),
                    Ok(None) => {}
                    Err(error) => world.oracle.report(Property::Failure, || format!("{}: {error}", self.rank)),
                }
            }
        }
        Next::Livelock
    }

    /// Calls the messenger once, handles completions, and runs program steps; true if there was anything to do.
    fn run_once(&mut self, now_ns: u64, world: &mut Shared<'_>) -> bool {
        let mut is_busy = match self.messenger.progress() {
            Ok(has) => has,
            Err(error) => {
                world.oracle.report(Property::Failure, || format!("{}: {error}", self.rank));
                return false;
            }
        };
        while let Some(completion) = self.messenger.poll() {
            self.completed(completion, world);
        }
        let (held, max) = (self.messenger.unexpected_bytes(), world.unexpected_bytes);
        world.oracle.require(held <= max, Property::Memory, || format!("{} holds {held} of {max} bytes", self.rank));
        if self.is_draining {
            is_busy |= self.drain(world);
        }
        // A refused step stays refused while nothing else happens.
        self.is_refused &= !is_busy;
        is_busy | (!self.is_refused && self.step(now_ns, world))
    }

    /// Runs due steps of the program; true if one was run.
    fn step(&mut self, now_ns: u64, world: &mut Shared<'_>) -> bool {
        let mut has_progressed = false;
        while let Some(&(due, action)) = self.program.front()
            && due <= now_ns
            && self.computes_until_ns <= now_ns
        {
            match self.act(action, now_ns, world) {
                Ok(()) => {
                    self.trace(|| format!("{action:?}"));
                    self.program.pop_front();
                    self.blocked_since = None;
                    has_progressed = true;
                }
                // Draining receives the message instead.
                Err(PostError::Full)
                    if self.is_draining && matches!(action, Action::Receive { .. } | Action::ReceiveMulti { .. }) =>
                {
                    self.program.pop_front();
                }
                Err(PostError::Full) => {
                    self.is_refused = true;
                    let since = *self.blocked_since.get_or_insert(now_ns);
                    if now_ns - since > BLOCKED_NS {
                        self.program.rotate_left(1);
                        self.blocked_since = None;
                    }
                    break;
                }
                Err(PostError::Lost(ending)) => {
                    self.trace(|| format!("{action:?}: lost, {ending}"));
                    match peer_of(&action) {
                        Some(peer) => world.oracle.loss_reported(self.rank, peer),
                        None => world
                            .oracle
                            .report(Property::Failure, || format!("{} lost something for an unknown peer", self.rank)),
                    }
                }
                Err(error) => {
                    world.oracle.report(Property::Failure, || format!("{}: {action:?}: {error}", self.rank));
                    break;
                }
            }
        }
        while self.claims.len() > 1 || (self.program.is_empty() && !self.claims.is_empty()) {
            has_progressed |= self.take_claimed(world);
        }
        has_progressed
    }

    fn act(&mut self, action: Action, now_ns: u64, world: &mut Shared<'_>) -> Result<(), PostError> {
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
                self.cancel(filter, |messenger, context| messenger.cancel(context));
                Ok(())
            }
            Action::CancelSend => {
                let filter = |kind: &Kind| matches!(kind, Kind::Send { .. });
                self.cancel(filter, |messenger, context| messenger.cancel_send(context));
                Ok(())
            }
            Action::Write { to, slot, offset, bytes, has_data, mode } => {
                self.write(to, slot, offset, bytes, has_data, mode, world)
            }
            Action::WriteVolatile { to, bytes } => {
                let (peer, context) = (self.peer(to), self.next_context);
                let buffer = vec![0xee; bytes];
                let at = RemoteAddress { key: VOLATILE, offset: 0 };
                // SAFETY: the buffer is kept until the write completes or the messenger is dropped.
                unsafe {
                    self.messenger.write(
                        peer,
                        at,
                        &[Part::of(&buffer)],
                        None,
                        options(context, CompletionLevel::Inject),
                    )?
                };
                self.record(Kind::WriteVolatile { to }, vec![buffer]);
                Ok(())
            }
            Action::Read { from, target, bytes } => self.read(from, target, bytes, world),
            Action::Add { to, counter, value, fetches } => self.add(to, counter, value, fetches, world),
            Action::Register => {
                self.messenger.deregister(VOLATILE)?;
                let memory = std::mem::replace(&mut self.volatile, vec![0; VOLATILE_BYTES]);
                self.deregistered.push((memory.clone(), memory));
                self.register_volatile();
                Ok(())
            }
            Action::Remove { peer, when } => {
                if let Some(id) = self.peers[peer].take() {
                    world.oracle.channel_closed(self.rank, peer);
                    self.messenger.remove_peer(id, when)?;
                }
                Ok(())
            }
            Action::Close { peer } => {
                if let Some(id) = self.peers[peer] {
                    world.oracle.channel_closed(self.rank, peer);
                    self.messenger.close(id);
                }
                Ok(())
            }
            Action::Compute { for_ns } => {
                self.computes_until_ns = now_ns + for_ns;
                Ok(())
            }
        }
    }

    fn register_volatile(&mut self) {
        let parts = [Part::into(&mut self.volatile)];
        // SAFETY: the memory is kept as long as the process, even after deregistration.
        unsafe { self.messenger.register(&parts, Access::ALL, Some(VOLATILE)) }.expect("the key is free");
    }

    fn peer(&mut self, rank: usize) -> PeerId {
        let cookie = cookie(self.messenger.address().cookie, rank, self.rank);
        let address = Address { cookie, ..self.addresses[rank] };
        *self.peers[rank].get_or_insert_with(|| self.messenger.peer(address))
    }

    /// The rank of a peer; `None` if the peer was removed.
    fn rank_of(&self, peer: PeerId) -> Option<usize> {
        let address = self.messenger.address_of(peer)?;
        self.addresses.iter().position(|known| known.sap == address.sap)
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
        let bytes = if matches!(mode, SendMode::Lent(_)) { bytes } else { bytes.min(self.messenger.inject_max()) };
        let number = world.oracle.next_message();
        let label = Label { tag, data: (has_data || bytes < 8).then_some(number) };
        let body = content(number as usize, bytes);
        let options = options(context, level);
        let level = match mode {
            SendMode::Lent(parts) => {
                let buffers = split(body, parts);
                let parts: Vec<Part> = buffers.iter().map(|buffer| Part::of(buffer)).collect();
                // SAFETY: the buffers are kept until the send completes or the messenger is dropped.
                unsafe { self.messenger.send(peer, label, &parts, options)? };
                let message = world.oracle.send_posted(self.rank, to, label, bytes, level);
                self.record(Kind::Send { to, message }, buffers);
                return Ok(());
            }
            SendMode::Copied => {
                self.messenger.send_copy(peer, label, &body, options)?;
                level
            }
            SendMode::Injected => {
                self.messenger.inject(peer, label, &body)?;
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

    fn receive(
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
        // SAFETY: the buffers are kept until the receive completes or the messenger is dropped.
        unsafe { self.messenger.receive(selector, &parts, options)? };
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
        unsafe { self.messenger.receive_multi(selector, &[Part::into(&mut buffer)], min, options)? };
        let number = world.oracle.receive_posted(self.rank, criteria, true);
        self.record(Kind::Receive { number, is_multi: true, drain_index: None }, vec![buffer]);
        Ok(())
    }

    fn claim(&mut self, criteria: Criteria, discards: bool, world: &mut Shared<'_>) {
        let selector = self.selector(criteria);
        let peeked = self.messenger.peek(selector);
        let claimed = self.messenger.claim(selector);
        let envelope = claimed.as_ref().map(|(_, envelope)| *envelope);
        world.oracle.require(peeked == envelope, Property::Order, || {
            format!("{} saw {peeked:?} and claimed {envelope:?}", self.rank)
        });
        if let Some((claim, envelope)) = claimed {
            let number = world.oracle.receive_posted(self.rank, criteria, false);
            // A message without a number in its label is identified by its bytes, so it must be received.
            let discards = discards && envelope.label.data.is_some();
            self.claims.push_back((claim, envelope, number, discards));
        }
    }

    /// Receives or discards the oldest claimed message.
    fn take_claimed(&mut self, world: &mut Shared<'_>) -> bool {
        let Some((claim, envelope, number, discards)) = self.claims.pop_front() else { return false };
        if discards {
            let from = self.rank_of(envelope.source);
            let label_and_length = (envelope.label, envelope.length);
            world.oracle.received(self.rank, number, from, label_and_length, &[], self.memory());
            if let Err(error) = self.messenger.discard(claim) {
                world.oracle.report(Property::Once, || format!("{}: {error}", self.rank));
            }
            return true;
        }
        let mut buffer = vec![0xaa; envelope.length as usize];
        let options = ReceiveOptions { context: self.next_context, ..ReceiveOptions::default() };
        // SAFETY: as in `receive`.
        let taken = unsafe { self.messenger.receive_claimed(claim, &[Part::into(&mut buffer)], options) };
        if let Err(error) = taken {
            world.oracle.report(Property::Once, || format!("{}: {error}", self.rank));
        }
        self.record(Kind::Receive { number, is_multi: false, drain_index: None }, vec![buffer]);
        true
    }

    fn cancel(
        &mut self,
        filter: impl Fn(&Kind) -> bool,
        cancel: impl FnOnce(&mut Messenger<SimulatedLink>, u64) -> bool,
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
        if cancel(&mut self.messenger, context)
            && let Some(operation) = self.operations.get_mut(&context)
        {
            operation.is_cancelled = true;
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
        let bytes =
            if matches!(mode, SendMode::Lent(_)) { bytes } else { bytes.min(self.messenger.inject_write_max()) };
        let index = (self.rank, to, slot);
        let number = world.oracle.writes_to(self.rank, to, slot);
        let data = has_data.then_some((slot as u64) << 32 | number as u64);
        let at = RemoteAddress { key: PERSISTENT, offset: (self.layout.slot(self.rank, slot) + offset) as u64 };
        // Content that differs from all earlier writes.
        let body = content(world.writes, bytes);
        let options = options(context, CompletionLevel::Inject);
        let mut buffers = Vec::new();
        if let SendMode::Lent(parts) = mode {
            buffers = split(body.clone(), parts);
            let parts: Vec<Part> = buffers.iter().map(|buffer| Part::of(buffer)).collect();
            // SAFETY: the buffers are kept until the write completes or the messenger is dropped.
            unsafe { self.messenger.write(peer, at, &parts, data, options)? };
        } else {
            self.messenger.write_copy(peer, at, &body, data, options)?;
        }
        world.writes += 1;
        world.oracle.write_posted(index, offset, body, has_data);
        self.record(Kind::Write { at: index, number }, buffers);
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
        // SAFETY: the buffer is kept until the read completes or the messenger is dropped.
        unsafe {
            self.messenger.read(peer, at, &[Part::into(&mut buffer)], options(context, CompletionLevel::Inject))?
        };
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
        // SAFETY: the result buffer is kept until the operation completes or the messenger is dropped.
        unsafe { self.messenger.atomic(peer, at, AtomicOperation::Sum, AtomicType::U64, parts, options)? };
        let min = world.oracle.add_posted(to, counter, value);
        let min = fetches.then_some(min);
        let incarnation = world.oracle.incarnation(to);
        self.record(Kind::Add { to, incarnation, counter, value, min }, vec![result]);
        Ok(())
    }

    /// From now on, receives every message.
    pub fn start_draining(&mut self) {
        self.is_draining = true;
        self.cancel_receives();
    }

    /// Cancels all receives without a message; returns the number of the others.
    pub fn cancel_receives(&mut self) -> usize {
        let mut left = 0;
        let mut contexts: Vec<u64> = self.operations.keys().copied().collect();
        contexts.sort_unstable();
        for context in contexts {
            let Some(operation) = self.operations.get_mut(&context) else { continue };
            let Kind::Receive { is_multi, .. } = operation.kind else { continue };
            // A multi-receive ends with its last message.
            let is_over = !operation.is_cancelled && self.messenger.cancel(context);
            operation.is_cancelled |= is_over;
            left += usize::from(!is_over || is_multi);
        }
        left
    }

    /// Stops draining at the end of the world.
    pub fn end_draining(&mut self) {
        self.is_draining = false;
        self.cancel_receives();
    }

    fn drain(&mut self, world: &mut Shared<'_>) -> bool {
        let mut has_progressed = false;
        for (index, tag) in [Some((0, u64::MAX)), None].into_iter().enumerate() {
            let criteria = Criteria { source: None, tag };
            // A receive that waits for the rest of its message cannot take another one, which may be complete before it.
            while !self.drain_receives[index] || self.messenger.peek(ANY[index]).is_some() {
                if self.receive(criteria, world.message_bytes_max, 1, Some(index), world).is_err() {
                    break;
                }
                self.drain_receives[index] = true;
                has_progressed = true;
            }
        }
        has_progressed
    }

    fn completed(&mut self, completion: Completion, world: &mut Shared<'_>) {
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

    /// Whether the peers' endpoints have received everything posted.
    pub fn is_settled(&mut self, oracle: &mut Oracle) -> bool {
        let settled = self.messenger.settle();
        settled.unwrap_or_else(|error| {
            oracle.report(Property::Failure, || format!("{}: {error}", self.rank));
            true
        })
    }

    /// The rest of the program, for the process that replaces this one.
    pub fn into_program(self) -> VecDeque<(u64, Action)> {
        self.program
    }

    /// Checks that nothing is held at the end of the world.
    pub fn check_end(&mut self, oracle: &mut Oracle) {
        let rank = self.rank;
        let held = self.messenger.unexpected_bytes();
        oracle.require(held == 0, Property::Memory, || format!("{rank} still holds {held} bytes"));
        let left = self.operations.len();
        oracle.require(left == 0, Property::Once, || format!("{rank}: {left} operations have not completed"));
        let is_unchanged = self.deregistered.iter().all(|(memory, then)| memory == then);
        oracle.require(is_unchanged, Property::Access, || {
            format!("{rank}: memory was written to after it was deregistered")
        });
    }
}

/// State shared by all processes.
pub struct Shared<'a> {
    pub oracle: &'a mut Oracle,
    /// Number of writes posted.
    pub writes: usize,
    /// Completed writes, to be checked in their targets' memory.
    pub done_writes: Vec<((usize, usize, usize), usize)>,
    /// Room for the longest message.
    pub message_bytes_max: usize,
    pub unexpected_bytes: usize,
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

/// The peer of a step.
fn peer_of(action: &Action) -> Option<usize> {
    match *action {
        Action::Send { to, .. }
        | Action::Write { to, .. }
        | Action::WriteVolatile { to, .. }
        | Action::Read { from: to, .. }
        | Action::Add { to, .. } => Some(to),
        Action::Receive { criteria, .. } | Action::ReceiveMulti { criteria, .. } => criteria.source,
        _ => None,
    }
}
