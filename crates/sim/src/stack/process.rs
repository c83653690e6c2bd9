// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank's process: its port to the network, its program, and the memory lent to the port.

mod completions;
mod libfabric;
mod operations;
mod port;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use barewire_endpoint::Address;
use barewire_messages::{Envelope, Label, Part, Pattern, PeerId, PostError, Removal, Selector};
use fastrand::Rng;
use port::{Claimed, Port};

use super::link::Interface;
use super::oracle::{Layout, Memory, Oracle, Property};
use super::scenario::{Action, Criteria, Readable, Scenario, VOLATILE_BYTES};

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
    interface: Rc<RefCell<Interface>>,
    /// The cookies of all ranks, and those of the peers that are inserted.
    cookies: Rc<RefCell<Vec<u64>>>,
    known_cookies: Vec<u64>,
    /// Peers that were removed because they have successors.
    removed: Vec<usize>,
    /// Declared before the memory lent to it, so dropped first.
    port: Port,
    /// By rank; inserted on first use.
    peers: Vec<Option<PeerId>>,
    program: VecDeque<(u64, Action)>,
    blocked_since: Option<u64>,
    is_refused: bool,
    operations: HashMap<u64, Operation>,
    next_context: u64,
    claims: VecDeque<(Claimed, Envelope, usize, bool)>,
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
    /// When the provider's progress thread runs next, while the program computes.
    progress_due_ns: u64,
    is_traced: bool,
}

struct Operation {
    kind: Kind,
    /// Lent to the port until the operation completes.
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

impl Process {
    pub fn new(
        rank: usize,
        scenario: &Scenario,
        interface: &Rc<RefCell<Interface>>,
        program: VecDeque<(u64, Action)>,
        rng: Rng,
        cookies: &Rc<RefCell<Vec<u64>>>,
        is_traced: bool,
    ) -> Self {
        let address = scenario.addresses[rank];
        let link = scenario.link(rank, interface);
        let mut config = scenario.endpoint.clone();
        config.sap = address.sap;
        config.cookie = cookies.borrow()[rank];
        // Its socket's address is no name for a listener, since other worlds have the same.
        config.local = config.local.filter(|_| address.locator.has_frames);
        let layout = Layout { ranks: scenario.ranks(), slot_bytes: scenario.slot_bytes };
        let mut process = Self {
            rank,
            addresses: scenario.addresses.clone(),
            interface: Rc::clone(interface),
            cookies: Rc::clone(cookies),
            known_cookies: vec![0; scenario.ranks()],
            removed: Vec::new(),
            port: Port::open(link, config, scenario),
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
            progress_due_ns: 0,
            is_traced,
        };
        let part = Part::into(&mut process.memory);
        // SAFETY: the memory lives as long as the process, which drops its port first.
        unsafe { process.port.register(part, PERSISTENT) };
        process.register_volatile();
        if scenario.uses_libfabric {
            // As MPI libraries do.
            for peer in (0..scenario.ranks()).filter(|peer| *peer != rank) {
                process.peer(peer);
            }
        }
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
            && !self.port.has_completions()
            && !ANY.iter().any(|any| self.port.has_unexpected(*any))
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
        self.port.is_rung()
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>15} {} {}", "", self.rank, what());
        }
    }

    /// The program begins to compute. Returns when to call [`compute`](Self::compute).
    fn begin_to_compute(&mut self, now_ns: u64) -> u64 {
        let Port::Libfabric(libfabric) = &mut self.port else { return self.computes_until_ns };
        let sleeps_ns = libfabric.progress_thread_sleeps().as_nanos() as u64;
        self.progress_due_ns = now_ns + self.rng.u64(1..=sleeps_ns);
        self.progress_due_ns.min(self.computes_until_ns)
    }

    /// While the program computes: runs the provider's progress thread if it is due. Returns when to call again.
    pub fn compute(&mut self, now_ns: u64) -> u64 {
        let Port::Libfabric(libfabric) = &mut self.port else { return self.computes_until_ns };
        let (is_due, has_frames) = (now_ns >= self.progress_due_ns, self.interface.borrow().has_frames());
        if let Some(sleep) = libfabric.run_progress_thread(is_due, has_frames) {
            let spent_ns = std::mem::take(&mut self.interface.borrow_mut().ahead_ns);
            self.progress_due_ns = now_ns + spent_ns + sleep.max(CALL_TIME).as_nanos() as u64;
        }
        self.progress_due_ns.min(self.computes_until_ns)
    }

    /// Runs until idle.
    pub fn run(&mut self, now_ns: u64, world: &mut Shared<'_>) -> Next {
        let mut idle = 0;
        self.is_refused = false;
        // A received frame may start a timer.
        if self.interface.borrow().has_frames() {
            self.poll_ns = 0;
        }
        for _ in 0..ITERATIONS_MAX {
            let is_busy = self.run_once(now_ns, world);
            if world.oracle.violation().is_some() {
                return Next::After(0);
            }
            idle = if is_busy { 0 } else { idle + 1 };
            self.interface.borrow_mut().wait(CALL_TIME);
            if self.computes_until_ns > now_ns {
                return Next::After(self.begin_to_compute(now_ns) - now_ns);
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
                match self.port.prepare_to_sleep(SLEEP_MAX) {
                    Ok(Some(patience)) => return Next::After((patience.as_nanos() as u64).min(due)),
                    Ok(None) => {}
                    Err(error) => world.oracle.report(Property::Failure, || format!("{}: {error}", self.rank)),
                }
            }
        }
        Next::Livelock
    }

    /// Makes progress once, handles completions, and runs program steps; true if there was anything to do.
    fn run_once(&mut self, now_ns: u64, world: &mut Shared<'_>) -> bool {
        let mut is_busy = match self.port.progress() {
            Ok(has) => has,
            Err(error) => {
                world.oracle.report(Property::Failure, || format!("{}: {error}", self.rank));
                return false;
            }
        };
        while let Some(completion) = self.port.poll() {
            self.completed(completion, world);
        }
        // What peers that are gone have left may exceed the limit, by as much again.
        let times = if world.oracle.is_disturbed_any(self.rank) { 2 } else { 1 };
        let (held, max) = (self.port.unexpected_bytes(), times * world.unexpected_bytes);
        world.oracle.require(held <= max, Property::Memory, || format!("{} holds {held} of {max} bytes", self.rank));
        if self.is_draining {
            is_busy |= self.drain(world);
        }
        for peer in self.removed.drain(..) {
            world.oracle.channel_closed(self.rank, peer);
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
        // What waits behind a message for which a claimed one leaves no room may be what the refused step waits for.
        let is_last_due = self.program.is_empty() || self.is_draining && self.is_refused;
        while self.claims.len() > usize::from(!is_last_due) {
            has_progressed |= self.take_claimed(world);
        }
        has_progressed
    }

    /// The peer at a rank. Its successor, which has another cookie, is another peer.
    fn peer(&mut self, rank: usize) -> PeerId {
        let cookie = self.cookies.borrow()[rank];
        if self.known_cookies[rank] != cookie
            && let Some(predecessor) = self.peers[rank].take()
        {
            self.removed.push(rank);
            self.port.remove_peer(predecessor, Removal::Abort).expect("it was inserted");
        }
        self.known_cookies[rank] = cookie;
        let address = Address { cookie, ..self.addresses[rank] };
        *self.peers[rank].get_or_insert_with(|| self.port.peer(address))
    }

    /// The rank of a peer; `None` if the peer was removed.
    fn rank_of(&self, peer: PeerId) -> Option<usize> {
        let address = self.port.address_of(peer)?;
        self.addresses.iter().position(|known| known.sap == address.sap)
    }

    /// From now on, receives every message.
    pub fn start_draining(&mut self, oracle: &mut Oracle) {
        self.is_draining = true;
        self.cancel_receives(oracle);
    }

    /// Cancels all receives without a message; returns the number of the others.
    pub fn cancel_receives(&mut self, oracle: &mut Oracle) -> usize {
        let mut left = 0;
        let mut contexts: Vec<u64> = self.operations.keys().copied().collect();
        contexts.sort_unstable();
        for context in contexts {
            let Some(operation) = self.operations.get_mut(&context) else { continue };
            let Kind::Receive { number, is_multi, .. } = operation.kind else { continue };
            // A multi-receive ends with its last message.
            let is_over = !operation.is_cancelled && self.port.cancel(context);
            operation.is_cancelled |= is_over;
            if is_over {
                oracle.receive_ended(number);
            }
            left += usize::from(!is_over || is_multi);
        }
        left
    }

    /// Stops draining at the end of the world.
    pub fn end_draining(&mut self, oracle: &mut Oracle) {
        self.is_draining = false;
        self.cancel_receives(oracle);
    }

    fn drain(&mut self, world: &mut Shared<'_>) -> bool {
        let mut has_progressed = false;
        for (index, tag) in [Some((0, u64::MAX)), None].into_iter().enumerate() {
            let criteria = Criteria { source: None, tag };
            // A receive that waits for the rest of its message cannot take another one, which may be complete before
            // it.
            while !self.drain_receives[index] || self.port.has_unexpected(ANY[index]) {
                if self.receive(criteria, world.message_bytes_max, 1, Some(index), world).is_err() {
                    break;
                }
                self.drain_receives[index] = true;
                has_progressed = true;
            }
        }
        has_progressed
    }

    /// Whether the peers' endpoints have received everything posted.
    pub fn is_settled(&mut self, oracle: &mut Oracle) -> bool {
        let settled = self.port.settle();
        settled.unwrap_or_else(|error| {
            oracle.report(Property::Failure, || format!("{}: {error}", self.rank));
            true
        })
    }

    /// Through libfabric, the loss of a message without a completion is reported by the next operation for its peer.
    fn ask_for_losses(&mut self, oracle: &mut Oracle) {
        let known = self.peers.iter().enumerate().filter(|_| self.port.is_libfabric());
        let known: Vec<(usize, PeerId)> = known.filter_map(|(rank, peer)| Some((rank, (*peer)?))).collect();
        for (peer, id) in known {
            if let Err(PostError::Lost(_)) = self.port.inject(id, Label { tag: None, data: None }, &[]) {
                oracle.loss_reported(self.rank, peer);
            }
        }
    }

    /// The rest of the program, for the process that replaces this one.
    pub fn into_program(self) -> VecDeque<(u64, Action)> {
        self.program
    }

    /// Checks that nothing is held at the end of the world.
    pub fn check_end(&mut self, oracle: &mut Oracle) {
        let rank = self.rank;
        self.ask_for_losses(oracle);
        let held = self.port.unexpected_bytes();
        oracle.require(held == 0, Property::Memory, || format!("{rank} still holds {held} bytes"));
        let left = self.operations.len();
        oracle.require(left == 0, Property::Once, || format!("{rank}: {left} operations have not completed"));
        let (posted, counted) = self.port.accesses();
        oracle.require(counted.is_none_or(|counted| counted == posted), Property::Once, || {
            format!("{rank}: {counted:?} of {posted} accesses were counted")
        });
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
