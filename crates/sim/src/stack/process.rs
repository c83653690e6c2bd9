// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank's process: its messenger, its program, and the memory that it lends.

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

use super::link::{Interface, SimulatedLink};
use super::oracle::{Layout, Memory, Oracle, Promise, State, content};
use super::scenario::{Action, How, Readable, Scenario, VOLATILE_BYTES, Wants};

/// Keys of registered memory: of what programs depend on, and of what is taken back.
const LASTING: u64 = 1;
const VOLATILE: u64 = 2;
/// A step that cannot be done for so long is done after the others: it may be what it waits for that comes after it.
const BLOCKED_NS: u64 = 20_000_000;
/// And is tried again so often.
const AGAIN_NS: u64 = 1_000_000;
/// Calls in a row with something to do, more than any world needs.
const TURNS_MAX: u32 = 20_000;
/// Progress of a rank that polls before it is looked at again: the endpoint looks at the clock now and then only.
const POLLS: u32 = 40;
/// Longest time between two polls of a rank that polls.
const POLL_MAX_NS: u64 = 50_000_000;
/// What a call takes.
const TURN: Duration = Duration::from_nanos(100);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub struct Process {
    rank: usize,
    ranks: usize,
    /// Dropped before the memory that it was lent.
    pub messenger: Messenger<SimulatedLink>,
    /// As the program knows them: named on first use.
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
    /// Volatile memory that was taken back, as it was then.
    former: Vec<(Vec<u8>, Vec<u8>)>,
    rng: Rng,
    polls: bool,
    poll_ns: u64,
    /// Whether the program is done and everything is received that still comes.
    drains: bool,
    drain_receives: [bool; 2],
    pub computes_until_ns: u64,
    is_traced: bool,
}

struct Operation {
    kind: Kind,
    /// Lent to the messenger until the operation is completed.
    buffers: Vec<Vec<u8>>,
    is_cancelled: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Send { to: usize, message: usize },
    Receive { number: usize, takes_many: bool, of_drain: Option<usize> },
    Write { at: (usize, usize, usize), number: usize },
    WriteVolatile { to: usize },
    Read { from: usize, what: Readable, before: usize },
    Add { to: usize, life: usize, counter: usize, value: u64, least: Option<u64> },
}

const ANY: [Selector; 2] =
    [Selector::Tagged(Pattern { source: None, tag: 0, ignore: u64::MAX }), Selector::Untagged(None)];

/// When a process is to be run next.
pub enum Next {
    /// After so long, or when something comes.
    After(u64),
    /// It has always something to do, without end.
    Endless,
}

/// Address of a rank's interface.
pub fn mac(rank: usize) -> [u8; 6] {
    [0x02, 0, 0, 0, 1, rank as u8]
}

/// What a rank's peers must know, if they must; made from what rank `of` wants to know.
fn cookie(known: u64, rank: usize, of: usize) -> u64 {
    if known == 0 { 0 } else { known ^ (rank as u64) << 8 ^ (of as u64) << 8 }
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
        let link = SimulatedLink::new(interface, MacAddress(mac(rank)), scenario.mtu);
        let mut config = scenario.endpoint.clone();
        config.cookie = cookie(config.cookie, rank, 0);
        let endpoint = Endpoint::open(link, config, None).expect("the scenario's configuration is right");
        let layout = Layout { ranks: scenario.ranks(), slot_bytes: scenario.slot_bytes };
        let mut process = Self {
            rank,
            ranks: scenario.ranks(),
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
            former: Vec::new(),
            rng,
            polls: scenario.polls[rank],
            poll_ns: 0,
            drains: false,
            drain_receives: [false; 2],
            computes_until_ns: 0,
            is_traced,
        };
        let parts = [Part::into(&mut process.memory)];
        // SAFETY: the memory stays as long as the process, which drops its messenger first.
        unsafe { process.messenger.register(&parts, Access::ALL, Some(LASTING)) }.expect("the key is free");
        process.register_volatile();
        process
    }

    pub fn memory(&self) -> Memory<'_> {
        Memory { bytes: &self.memory, layout: self.layout }
    }

    /// All of the program is done, and nothing that was posted is under way but receives.
    pub fn is_done(&mut self) -> bool {
        let is_under_way = |operation: &Operation| !matches!(operation.kind, Kind::Receive { .. });
        self.program.is_empty()
            && self.claims.is_empty()
            && !self.operations.values().any(is_under_way)
            && !self.messenger.has_completions()
            && self.messenger.peek(ANY[0]).is_none()
            && self.messenger.peek(ANY[1]).is_none()
    }

    pub fn drains(&self) -> bool {
        self.drains
    }

    /// What is not over.
    pub fn open(&self) -> String {
        let count = |is_meant: fn(&Kind) -> bool| self.operations.values().filter(|one| is_meant(&one.kind)).count();
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

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>15} {} {}", "", self.rank, what());
        }
    }

    /// Makes progress until there is nothing to do now.
    pub fn run(&mut self, now_ns: u64, world: &mut Shared<'_>) -> Next {
        let mut idle = 0;
        self.is_refused = false;
        // What came may have set a timer.
        if self.messenger.endpoint().link().has_frames() {
            self.poll_ns = 0;
        }
        for _ in 0..TURNS_MAX {
            let is_busy = self.turn(now_ns, world);
            if world.oracle.verdict().is_some() {
                return Next::After(0);
            }
            idle = if is_busy { 0 } else { idle + 1 };
            self.messenger.endpoint().link().pass(TURN);
            if self.computes_until_ns > now_ns {
                return Next::After(self.computes_until_ns - now_ns);
            }
            let due = match self.program.front() {
                Some((due, _)) if *due > now_ns => due - now_ns,
                Some(_) => AGAIN_NS,
                None => u64::MAX,
            };
            if self.polls {
                if idle >= POLLS {
                    self.poll_ns = (self.poll_ns * 2).clamp(1000, POLL_MAX_NS);
                    return Next::After(self.poll_ns.min(due));
                }
                if is_busy {
                    self.poll_ns = 0;
                }
            } else if idle > 0 {
                match self.messenger.endpoint().prepare_to_sleep(SLEEP_MAX) {
                    Ok(Some(patience)) => return Next::After((patience.as_nanos() as u64).min(due)),
                    Ok(None) => {}
                    Err(error) => world.oracle.report(Promise::Failure, || format!("{}: {error}", self.rank)),
                }
            }
        }
        Next::Endless
    }

    /// One call of the messenger's, and what the program does then. Whether there was anything.
    fn turn(&mut self, now_ns: u64, world: &mut Shared<'_>) -> bool {
        let mut is_busy = match self.messenger.progress() {
            Ok(has) => has,
            Err(error) => {
                world.oracle.report(Promise::Failure, || format!("{}: {error}", self.rank));
                return false;
            }
        };
        while let Some(completion) = self.messenger.poll() {
            self.completed(completion, world);
        }
        let (held, most) = (self.messenger.unexpected_bytes(), world.unexpected_bytes);
        world.oracle.require(held <= most, Promise::Memory, || format!("{} holds {held} of {most} bytes", self.rank));
        if self.drains {
            is_busy |= self.drain(world);
        }
        // What was refused is refused again as long as nothing happens.
        self.is_refused &= !is_busy;
        is_busy | (!self.is_refused && self.step(now_ns, world))
    }

    /// Does the next steps of the program. Whether one was done.
    fn step(&mut self, now_ns: u64, world: &mut Shared<'_>) -> bool {
        let mut did = false;
        while let Some(&(due, action)) = self.program.front()
            && due <= now_ns
            && self.computes_until_ns <= now_ns
        {
            match self.act(action, now_ns, world) {
                Ok(()) => {
                    self.tell(|| format!("{action:?}"));
                    self.program.pop_front();
                    self.blocked_since = None;
                    did = true;
                }
                // What is not received is drained.
                Err(PostError::Full)
                    if self.drains && matches!(action, Action::Receive { .. } | Action::ReceiveMany { .. }) =>
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
                    self.tell(|| format!("{action:?}: lost, {ending}"));
                    match partner(&action) {
                        Some(peer) => world.oracle.told_of_loss(self.rank, peer),
                        None => {
                            world.oracle.report(Promise::Failure, || format!("{} lost something, to nobody", self.rank))
                        }
                    }
                }
                Err(error) => {
                    world.oracle.report(Promise::Failure, || format!("{}: {action:?}: {error}", self.rank));
                    break;
                }
            }
        }
        while self.claims.len() > 1 || (self.program.is_empty() && !self.claims.is_empty()) {
            did |= self.take_claimed(world);
        }
        did
    }

    fn act(&mut self, action: Action, now_ns: u64, world: &mut Shared<'_>) -> Result<(), PostError> {
        match action {
            Action::Send { to, tag, has_data, bytes, reaches, how } => {
                self.send(to, tag, has_data, bytes, reaches, how, world)
            }
            Action::Receive { wants, bytes, parts } => {
                // Enough for any, or at least for a number.
                let bytes = if bytes == usize::MAX { world.longest } else { bytes };
                self.receive(wants, bytes, parts, None, world)
            }
            Action::ReceiveMany { wants, bytes, least } => self.receive_multi(wants, bytes, least, world),
            Action::Claim { wants, discards } => {
                self.claim(wants, discards, world);
                Ok(())
            }
            Action::CancelReceive => {
                let is_meant = |kind: &Kind| matches!(kind, Kind::Receive { .. });
                self.cancel(is_meant, |messenger, context| messenger.cancel(context));
                Ok(())
            }
            Action::CancelSend => {
                let is_meant = |kind: &Kind| matches!(kind, Kind::Send { .. });
                self.cancel(is_meant, |messenger, context| messenger.cancel_send(context));
                Ok(())
            }
            Action::Write { to, slot, offset, bytes, has_data, how } => {
                self.write(to, slot, offset, bytes, has_data, how, world)
            }
            Action::WriteVolatile { to, bytes } => {
                let (peer, context) = (self.peer(to), self.next_context);
                let buffer = vec![0xee; bytes];
                let at = RemoteAddress { key: VOLATILE, offset: 0 };
                // SAFETY: the buffer is kept until the write is completed, or the messenger dropped.
                unsafe {
                    self.messenger.write(
                        peer,
                        at,
                        &[Part::of(&buffer)],
                        None,
                        options(context, CompletionLevel::Inject),
                    )?
                };
                self.began(Kind::WriteVolatile { to }, vec![buffer]);
                Ok(())
            }
            Action::Read { from, what, bytes } => self.read(from, what, bytes, world),
            Action::Add { to, counter, value, fetches } => self.add(to, counter, value, fetches, world),
            Action::Register => {
                self.messenger.deregister(VOLATILE)?;
                let taken_back = std::mem::replace(&mut self.volatile, vec![0; VOLATILE_BYTES]);
                self.former.push((taken_back.clone(), taken_back));
                self.register_volatile();
                Ok(())
            }
            Action::Remove { peer, when } => {
                if let Some(id) = self.peers[peer].take() {
                    world.oracle.leaves(self.rank, peer);
                    self.messenger.remove_peer(id, when)?;
                }
                Ok(())
            }
            Action::Close { peer } => {
                if let Some(id) = self.peers[peer] {
                    world.oracle.leaves(self.rank, peer);
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
        // SAFETY: the memory is kept, also after it was taken back, as long as the process.
        unsafe { self.messenger.register(&parts, Access::ALL, Some(VOLATILE)) }.expect("the key is free");
    }

    fn peer(&mut self, rank: usize) -> PeerId {
        let address = Address { mac: mac(rank), ..self.messenger.address() };
        let address = Address { cookie: cookie(address.cookie, rank, self.rank), ..address };
        *self.peers[rank].get_or_insert_with(|| self.messenger.peer(address))
    }

    /// Which rank a peer is; `None` of one that was forgotten.
    fn rank_of(&self, peer: PeerId) -> Option<usize> {
        let address = self.messenger.address_of(peer)?;
        (0..self.ranks).find(|rank| mac(*rank) == address.mac)
    }

    fn began(&mut self, kind: Kind, buffers: Vec<Vec<u8>>) {
        self.operations.insert(self.next_context, Operation { kind, buffers, is_cancelled: false });
        self.next_context += 1;
    }

    fn wanted(&mut self, wants: Wants) -> Selector {
        let source = wants.source.map(|rank| self.peer(rank));
        match wants.tag {
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
        reaches: CompletionLevel,
        how: How,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let (peer, context) = (self.peer(to), self.next_context);
        let bytes = if matches!(how, How::Lent(_)) { bytes } else { bytes.min(self.messenger.inject_max()) };
        let number = world.oracle.next_message();
        let label = Label { tag, data: (has_data || bytes < 8).then_some(number) };
        let body = content(number as usize, bytes);
        let options = options(context, reaches);
        let reaches = match how {
            How::Lent(parts) => {
                let buffers = split(body, parts);
                let parts: Vec<Part> = buffers.iter().map(|buffer| Part::of(buffer)).collect();
                // SAFETY: the buffers are kept until the send is completed, or the messenger dropped.
                unsafe { self.messenger.send(peer, label, &parts, options)? };
                let message = world.oracle.posted(self.rank, to, label, bytes, reaches);
                self.began(Kind::Send { to, message }, buffers);
                return Ok(());
            }
            How::Copied => {
                self.messenger.send_copy(peer, label, &body, options)?;
                reaches
            }
            How::Injected => {
                self.messenger.inject(peer, label, &body)?;
                CompletionLevel::Inject
            }
        };
        let message = world.oracle.posted(self.rank, to, label, bytes, reaches);
        if how == How::Copied {
            self.began(Kind::Send { to, message }, Vec::new());
        } else {
            world.oracle.sent(message, State::Completed);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        wants: Wants,
        bytes: usize,
        parts: usize,
        of_drain: Option<usize>,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let wanted = self.wanted(wants);
        let mut buffers = split(vec![0xaa; bytes], parts);
        let parts: Vec<Part> = buffers.iter_mut().map(|buffer| Part::into(buffer)).collect();
        let options = ReceiveOptions { context: self.next_context, ..ReceiveOptions::default() };
        // SAFETY: the buffers are kept until the receive is completed, or the messenger dropped.
        unsafe { self.messenger.receive(wanted, &parts, options)? };
        let number = world.oracle.wants(self.rank, wants, false);
        self.began(Kind::Receive { number, takes_many: false, of_drain }, buffers);
        Ok(())
    }

    fn receive_multi(
        &mut self,
        wants: Wants,
        bytes: usize,
        least: u64,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let wanted = self.wanted(wants);
        let mut buffer = vec![0xaa; bytes];
        let options = ReceiveOptions { context: self.next_context, ..ReceiveOptions::default() };
        // A message must have room for its number.
        let least = least.clamp(8, bytes as u64);
        // SAFETY: as of `receive`.
        unsafe { self.messenger.receive_multi(wanted, &[Part::into(&mut buffer)], least, options)? };
        let number = world.oracle.wants(self.rank, wants, true);
        self.began(Kind::Receive { number, takes_many: true, of_drain: None }, vec![buffer]);
        Ok(())
    }

    fn claim(&mut self, wants: Wants, discards: bool, world: &mut Shared<'_>) {
        let wanted = self.wanted(wants);
        let peeked = self.messenger.peek(wanted);
        let claimed = self.messenger.claim(wanted);
        let envelope = claimed.as_ref().map(|(_, envelope)| *envelope);
        world.oracle.require(peeked == envelope, Promise::Order, || {
            format!("{} saw {peeked:?} and claimed {envelope:?}", self.rank)
        });
        if let Some((claim, envelope)) = claimed {
            let number = world.oracle.wants(self.rank, wants, false);
            // Without a number in its label only its bytes tell which message it is.
            let discards = discards && envelope.label.data.is_some();
            self.claims.push_back((claim, envelope, number, discards));
        }
    }

    /// Receives the oldest claimed message, or throws it away.
    fn take_claimed(&mut self, world: &mut Shared<'_>) -> bool {
        let Some((claim, envelope, number, discards)) = self.claims.pop_front() else { return false };
        if discards {
            let from = self.rank_of(envelope.source);
            let what = (envelope.label, envelope.length);
            world.oracle.received(self.rank, number, from, what, &[], self.memory());
            if let Err(error) = self.messenger.discard(claim) {
                world.oracle.report(Promise::Once, || format!("{}: {error}", self.rank));
            }
            return true;
        }
        let mut buffer = vec![0xaa; envelope.length as usize];
        let options = ReceiveOptions { context: self.next_context, ..ReceiveOptions::default() };
        // SAFETY: as of `receive`.
        let taken = unsafe { self.messenger.receive_claimed(claim, &[Part::into(&mut buffer)], options) };
        if let Err(error) = taken {
            world.oracle.report(Promise::Once, || format!("{}: {error}", self.rank));
        }
        self.began(Kind::Receive { number, takes_many: false, of_drain: None }, vec![buffer]);
        true
    }

    fn cancel(
        &mut self,
        is_meant: impl Fn(&Kind) -> bool,
        cancel: impl FnOnce(&mut Messenger<SimulatedLink>, u64) -> bool,
    ) {
        let mut contexts: Vec<u64> =
            self.operations.iter().filter(|(_, one)| is_meant(&one.kind)).map(|(context, _)| *context).collect();
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
        how: How,
        world: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let (peer, context) = (self.peer(to), self.next_context);
        let bytes = if matches!(how, How::Lent(_)) { bytes } else { bytes.min(self.messenger.inject_write_max()) };
        let place = (self.rank, to, slot);
        let number = world.oracle.writes_to(self.rank, to, slot);
        let data = has_data.then_some((slot as u64) << 32 | number as u64);
        let at = RemoteAddress { key: LASTING, offset: (self.layout.slot(self.rank, slot) + offset) as u64 };
        // Something else than the writes before.
        let body = content(world.writes, bytes);
        let options = options(context, CompletionLevel::Inject);
        let mut buffers = Vec::new();
        if let How::Lent(parts) = how {
            buffers = split(body.clone(), parts);
            let parts: Vec<Part> = buffers.iter().map(|buffer| Part::of(buffer)).collect();
            // SAFETY: the buffers are kept until the write is completed, or the messenger dropped.
            unsafe { self.messenger.write(peer, at, &parts, data, options)? };
        } else {
            self.messenger.write_copy(peer, at, &body, data, options)?;
        }
        world.writes += 1;
        world.oracle.writes(place, offset, body, has_data);
        self.began(Kind::Write { at: place, number }, buffers);
        Ok(())
    }

    fn read(&mut self, from: usize, what: Readable, bytes: usize, world: &mut Shared<'_>) -> Result<(), PostError> {
        let (peer, context) = (self.peer(from), self.next_context);
        let (offset, before) = match what {
            Readable::Constant => (0, 0),
            Readable::Slot(slot) => (self.layout.slot(self.rank, slot), world.oracle.writes_to(self.rank, from, slot)),
        };
        let at = RemoteAddress { key: LASTING, offset: offset as u64 };
        let mut buffer = vec![0xaa; bytes];
        // SAFETY: the buffer is kept until the read is completed, or the messenger dropped.
        unsafe {
            self.messenger.read(peer, at, &[Part::into(&mut buffer)], options(context, CompletionLevel::Inject))?
        };
        self.began(Kind::Read { from, what, before }, vec![buffer]);
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
        let at = RemoteAddress { key: LASTING, offset: self.layout.counter(counter) as u64 };
        let operand = value.to_le_bytes();
        let mut result = vec![0; 8];
        let parts = AtomicParts {
            operand: &[Part::of(&operand)],
            compare: &[],
            result: if fetches { &[Part::into(&mut result)] } else { &[] },
        };
        let options = options(context, CompletionLevel::Inject);
        // SAFETY: the result is kept until the operation is completed, or the messenger dropped.
        unsafe { self.messenger.atomic(peer, at, AtomicOperation::Sum, AtomicType::U64, parts, options)? };
        let least = world.oracle.adds(to, counter, value);
        let least = fetches.then_some(least);
        let life = world.oracle.life(to);
        self.began(Kind::Add { to, life, counter, value, least }, vec![result]);
        Ok(())
    }

    /// From now on everything is received that comes.
    pub fn begin_to_drain(&mut self) {
        self.drains = true;
        self.cancel_receives();
    }

    /// Takes all receives back that have no message. How many have one that is on its way.
    pub fn cancel_receives(&mut self) -> usize {
        let mut left = 0;
        let mut contexts: Vec<u64> = self.operations.keys().copied().collect();
        contexts.sort_unstable();
        for context in contexts {
            let Some(operation) = self.operations.get_mut(&context) else { continue };
            let Kind::Receive { takes_many, .. } = operation.kind else { continue };
            // One of many ends with the last of its messages.
            let is_over = !operation.is_cancelled && self.messenger.cancel(context);
            operation.is_cancelled |= is_over;
            left += usize::from(!is_over || takes_many);
        }
        left
    }

    /// Stops to receive everything, when all is over.
    pub fn end_draining(&mut self) {
        self.drains = false;
        self.cancel_receives();
    }

    fn drain(&mut self, world: &mut Shared<'_>) -> bool {
        let mut did = false;
        for (which, tag) in [Some((0, u64::MAX)), None].into_iter().enumerate() {
            let wants = Wants { source: None, tag };
            // A receive that waits for its message's bytes takes no other, which may have come before those.
            while !self.drain_receives[which] || self.messenger.peek(ANY[which]).is_some() {
                if self.receive(wants, world.longest, 1, Some(which), world).is_err() {
                    break;
                }
                self.drain_receives[which] = true;
                did = true;
            }
        }
        did
    }

    fn completed(&mut self, completion: Completion, world: &mut Shared<'_>) {
        let Completion { context, outcome, .. } = completion;
        self.tell(|| format!("{context}: {outcome:?}"));
        if let Outcome::Written(written) = outcome {
            match self.rank_of(written.source) {
                Some(from) => {
                    world.oracle.write_told(self.rank, from, written.data, written.length, self.memory());
                }
                // One that was forgotten since has no address.
                None => {
                    let has_left = world.oracle.has_left_any(self.rank);
                    world.oracle.require(has_left, Promise::Access, || format!("{}: a write by nobody", self.rank));
                }
            }
            return;
        }
        if context == 0 {
            return match outcome {
                Outcome::Failed { failure: Failure::Peer { peer, .. }, .. } => {
                    if let Some(peer) = self.rank_of(peer) {
                        world.oracle.told_of_loss(self.rank, peer);
                    }
                }
                _ => world.oracle.report(Promise::Once, || format!("{}: {outcome:?} of nothing", self.rank)),
            };
        }
        let Some(operation) = self.operations.remove(&context) else {
            return world.oracle.report(Promise::Once, || format!("{}: {outcome:?} again", self.rank));
        };
        let (kind, is_cancelled) = (operation.kind, operation.is_cancelled);
        match (kind, outcome) {
            (Kind::Receive { number, takes_many, of_drain }, outcome) => {
                let buffers = operation.buffers;
                if let Some(kept) =
                    self.receive_ended((number, takes_many), of_drain, buffers, outcome, is_cancelled, world)
                {
                    self.operations.insert(context, Operation { kind, buffers: kept, is_cancelled });
                }
            }
            (Kind::Send { message, .. }, Outcome::Sent) => world.oracle.sent(message, State::Completed),
            (
                Kind::Send { to, message },
                Outcome::Failed { failure, operation: barewire_messages::Operation::Send, .. },
            ) => {
                let state = if failure == Failure::Cancelled { State::Cancelled } else { State::Failed };
                world.oracle.sent(message, state);
                self.failed(Some(to), failure, is_cancelled, false, world);
            }
            (Kind::Write { at, number }, Outcome::Done(barewire_messages::Operation::Write)) => {
                world.done_writes.push((at, number));
            }
            (Kind::WriteVolatile { .. }, Outcome::Done(barewire_messages::Operation::Write)) => {}
            (Kind::Read { from, what, before }, Outcome::Done(barewire_messages::Operation::Read)) => match what {
                Readable::Constant => world.oracle.check_constant(from, &operation.buffers[0]),
                Readable::Slot(slot) => {
                    let when = || "as it was read".to_owned();
                    world.oracle.check_bytes((self.rank, from, slot), &operation.buffers[0], before, when);
                }
            },
            (
                Kind::Add { to, life, counter, value, least: None },
                Outcome::Done(barewire_messages::Operation::Atomic),
            ) => {
                world.oracle.added(to, life, counter, value, None);
            }
            (
                Kind::Add { to, life, counter, value, least: Some(least) },
                Outcome::Done(barewire_messages::Operation::FetchAtomic),
            ) => {
                let found = u64::from_le_bytes(operation.buffers[0][..8].try_into().expect("8 bytes"));
                world.oracle.added(to, life, counter, value, Some((least, found)));
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
                world.oracle.report(Promise::Once, || format!("{}: {outcome:?} of another operation", self.rank))
            }
        }
    }

    /// A receive was completed. Its buffers, if it goes on.
    fn receive_ended(
        &mut self,
        (number, takes_many): (usize, bool),
        of_drain: Option<usize>,
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
                world.oracle.report(Promise::Once, || format!("{}: {outcome:?} of a receive", self.rank));
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
            let what = (envelope.label, envelope.length);
            world.oracle.received(self.rank, number, from, what, found, self.memory());
            let is_right = match failure {
                Some(Failure::Truncated { length, room: told }) => {
                    length == envelope.length && told == room && length > room
                }
                _ => envelope.length <= room,
            };
            world.oracle.require(is_right, Promise::Content, || format!("{}: {outcome:?} in {room} bytes", self.rank));
        } else if let Some(failure) = failure {
            let peer = match failure {
                Failure::Peer { peer, .. } => self.rank_of(peer),
                _ => None,
            };
            self.failed(peer, failure, is_cancelled, false, world);
        }
        let is_over = received.is_none_or(|received| received.is_last);
        if !is_over {
            world.oracle.require(takes_many, Promise::Once, || format!("{}: a receive of one goes on", self.rank));
            return Some(buffers);
        }
        if received.is_none() {
            world.oracle.over(number);
        }
        if let Some(which) = of_drain {
            self.drain_receives[which] = false;
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
                world.oracle.require(is_cancelled, Promise::Failure, || format!("{}: cancelled by nobody", self.rank));
            }
            Failure::Refused { refusal: Refusal::Key | Refusal::Deregistered, .. } if is_volatile => {}
            failure => world.oracle.failed(self.rank, peer, failure),
        }
    }

    /// Whether all that was posted is with the peers' endpoints.
    pub fn is_settled(&mut self, oracle: &mut Oracle) -> bool {
        let settled = self.messenger.settle();
        settled.unwrap_or_else(|error| {
            oracle.report(Promise::Failure, || format!("{}: {error}", self.rank));
            true
        })
    }

    /// The rest of the program, for the process that takes this one's place.
    pub fn into_program(self) -> VecDeque<(u64, Action)> {
        self.program
    }

    /// What must hold when all is over: nothing is held any more.
    pub fn end(&mut self, oracle: &mut Oracle) {
        let rank = self.rank;
        let held = self.messenger.unexpected_bytes();
        oracle.require(held == 0, Promise::Memory, || format!("{rank} still holds {held} bytes"));
        let left = self.operations.len();
        oracle.require(left == 0, Promise::Once, || format!("{rank}: {left} operations have no end"));
        let is_left_alone = self.former.iter().all(|(memory, then)| memory == then);
        oracle.require(is_left_alone, Promise::Access, || {
            format!("{rank}: memory was written to after it was taken back")
        });
    }
}

/// What all processes share.
pub struct Shared<'a> {
    pub oracle: &'a mut Oracle,
    /// Writes that were posted.
    pub writes: usize,
    /// Writes that were completed and are to be looked for in their targets' memory.
    pub done_writes: Vec<((usize, usize, usize), usize)>,
    /// The longest message.
    pub longest: usize,
    pub unexpected_bytes: usize,
}

fn options(context: u64, reaches: CompletionLevel) -> SendOptions {
    SendOptions { context, level: reaches, ..SendOptions::default() }
}

/// Cuts bytes into buffers of their own.
fn split(mut bytes: Vec<u8>, parts: usize) -> Vec<Vec<u8>> {
    let mut buffers = Vec::with_capacity(parts);
    for part in 1..parts {
        let rest = bytes.split_off(bytes.len() / (parts - part + 1));
        buffers.push(std::mem::replace(&mut bytes, rest));
    }
    buffers.push(bytes);
    buffers
}

/// Whom a step is for.
fn partner(action: &Action) -> Option<usize> {
    match *action {
        Action::Send { to, .. }
        | Action::Write { to, .. }
        | Action::WriteVolatile { to, .. }
        | Action::Read { from: to, .. }
        | Action::Add { to, .. } => Some(to),
        Action::Receive { wants, .. } | Action::ReceiveMany { wants, .. } => wants.source,
        _ => None,
    }
}
