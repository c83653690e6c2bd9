// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario of a seed: ranks, network faults, configuration, and each rank's program.

use core::cell::RefCell;
use core::sync::atomic::AtomicU16;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::rc::Rc;

use barewire_endpoint::{Address, Authentication, Encapsulation, Framing, JobToken, Secret, Tuning};
use barewire_link::{Locator, MacAddress};
use barewire_llc::{AfterLoss, Lsap};
use barewire_messages::{CompletionLevel, Config, Removal};
use barewire_shm::PipeConfig;
use fastrand::Rng;

use super::labelled::LabelledPaths;
use super::link::{Interface, RankLink, SimulatedLink, UDP};
use super::topology::{Host, Topology};
use crate::scenario::{MS, US, choose};

/// Parameters of a world, all determined by the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// MTU in bytes.
    pub mtu: usize,
    /// Faults of the network until `faults_end_ns`.
    pub faults: Faults,
    /// Rate of every link, in bits per second.
    pub rate_bit_s: u64,
    /// Propagation delay between two ranks.
    pub delay_ns: u64,
    /// Length of a rank's output queue; further frames are lost.
    pub queue_frames: usize,
    /// Length of a rank's receive ring.
    pub ring_frames: usize,
    /// Disturbances of ranks, with their times.
    pub disturbances: Vec<(u64, Disturbance)>,
    /// When the last fault ends.
    pub faults_end_ns: u64,
    /// Address of each rank, without a cookie. Ranks with the same MAC address share a host and exchange messages
    /// through shared memory.
    pub addresses: Vec<Address>,
    /// Configuration of every endpoint, except for its LSAP and its cookie.
    pub endpoint: barewire_endpoint::Config,
    /// How long a peer may be unreachable before it is given up.
    pub patience: Duration,
    /// Configuration of every messenger.
    pub messages: Config,
    /// By rank: whether it polls, or sleeps until something is due.
    pub polls: Vec<bool>,
    /// By rank: its steps in order, each with its earliest time.
    pub programs: Vec<Vec<(u64, Action)>>,
    /// Bytes of a slot: registered memory that one peer writes to.
    pub slot_bytes: usize,
    /// Whether the programs use libfabric's functions, as the provider offers them, or messengers.
    pub uses_libfabric: bool,
    /// Whether libfabric's endpoints have counters: then messages of local peers are received by other code.
    pub has_counters: bool,
    /// Paths of labelled frames; `None`: the network knows no labels.
    pub labelled: Option<LabelledPaths>,
    /// Networks between stations with several carriers; `None`: each station has one interface, on one segment.
    pub topology: Option<Topology>,
    /// A fault injected into the carriers.
    #[cfg(feature = "mutants")]
    pub carriers_mutant: Option<barewire_carriers::Mutant>,
}

/// Faults of the network; probabilities are per frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Probability of loss.
    pub loss: f64,
    /// Probability of duplication.
    pub duplication: f64,
    /// Probability of a delay in which later frames may overtake.
    pub reordering: f64,
    /// Maximum of that delay.
    pub reorder_delay_ns: u64,
    /// Probability of bit errors or truncation.
    pub corruption: f64,
    /// Maximum jitter.
    pub jitter_ns: u64,
    /// Probability that the sender's link is busy.
    pub send_busy: f64,
}

/// A fault of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a rank, and for how long")]
pub enum Disturbance {
    /// The process makes no call for a while.
    Pause { rank: usize, for_ns: u64 },
    /// The interface is down for a while.
    Down { rank: usize, for_ns: u64 },
    /// The interface accepts no frame for a while.
    Busy { rank: usize, for_ns: u64 },
    /// The clock jumps forward.
    Jump { rank: usize, by_ns: u64 },
    /// The process ends without closing its channels, and a new one starts at its address later.
    Restart { rank: usize, after_ns: u64 },
}

impl Disturbance {
    /// How long it lasts.
    pub(crate) fn lasts_ns(self) -> u64 {
        match self {
            Self::Pause { for_ns, .. } | Self::Down { for_ns, .. } | Self::Busy { for_ns, .. } => for_ns,
            Self::Jump { .. } => 0,
            Self::Restart { after_ns, .. } => after_ns,
        }
    }
}

/// Matching criteria of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criteria {
    /// The sending rank; `None` for any.
    pub source: Option<usize>,
    /// Tag and ignored bits; `None` for untagged messages.
    pub tag: Option<(u64, u64)>,
}

/// How a message's bytes are passed to the messenger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Lent, in this many parts.
    Lent(usize),
    /// Copied, with a completion.
    Copied,
    /// Copied, without a completion.
    Injected,
}

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Send {
        to: usize,
        tag: Option<u64>,
        has_data: bool,
        bytes: usize,
        level: CompletionLevel,
        mode: SendMode,
    },
    Receive {
        criteria: Criteria,
        bytes: usize,
        parts: usize,
    },
    ReceiveMulti {
        criteria: Criteria,
        bytes: usize,
        min: u64,
    },
    /// Claims a message if one matches, and receives or discards it later.
    Claim {
        criteria: Criteria,
        discards: bool,
    },
    CancelReceive,
    CancelSend,
    Write {
        to: usize,
        slot: usize,
        offset: usize,
        bytes: usize,
        has_data: bool,
        mode: SendMode,
    },
    Read {
        from: usize,
        target: Readable,
        bytes: usize,
    },
    /// Adds atomically to a counter of the peer.
    Add {
        to: usize,
        counter: usize,
        value: u64,
        fetches: bool,
    },
    /// Deregisters the volatile memory, and registers new memory under its key.
    Register,
    /// Writes to the volatile memory.
    WriteVolatile {
        to: usize,
        bytes: usize,
    },
    Remove {
        peer: usize,
        when: Removal,
    },
    Close {
        peer: usize,
    },
    /// Makes no call for a while.
    Compute {
        for_ns: u64,
    },
}

/// A readable part of a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Constant bytes.
    Constant,
    /// A slot that the reader writes to.
    Slot(usize),
}

/// Number of slots of each peer in a rank's registered memory.
pub(crate) const SLOTS: usize = 2;
/// Number of counters in a rank's registered memory.
pub(crate) const COUNTERS: usize = 3;
/// Constant bytes in a rank's registered memory.
pub(crate) const CONSTANT_BYTES: usize = 3000;
/// Bytes of the volatile memory.
pub(crate) const VOLATILE_BYTES: usize = 2000;

impl Scenario {
    /// The scenario of a seed.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let ranks = *choose(rng, &[2, 2, 2, 3, 3, 4, 5, 8]);
        let mtu = *choose(rng, &[200, 576, 1500, 1500, 1500, 9000]);
        let is_lossless = rng.u8(..4) == 0;
        let patience = Duration::from_millis(*choose(rng, &[1_000, 4_000, 32_000]));
        let mut endpoint = endpoint(rng, seed, patience, mtu);
        let addresses = addresses(seed, ranks);
        if (1..ranks).any(|rank| addresses[..rank].iter().any(|other| other.mac == addresses[rank].mac)) {
            endpoint.local = Some(pipes(seed, mtu));
        }
        let none = 0.0;
        let mut faults = Faults {
            loss: *choose(rng, &[none, none, 0.001, 0.01, 0.05, 0.2]),
            duplication: *choose(rng, &[none, none, 0.01, 0.1]),
            reordering: *choose(rng, &[none, none, 0.01, 0.1, 0.5]),
            reorder_delay_ns: *choose(rng, &[20 * US, 200 * US, MS, 20 * MS]),
            corruption: *choose(rng, &[none, none, 0.001, 0.01, 0.1]),
            jitter_ns: *choose(rng, &[0, 0, 5 * US, 50 * US]),
            send_busy: *choose(rng, &[none, none, none, 0.01, 0.2]),
        };
        if is_lossless {
            faults = Faults { jitter_ns: faults.jitter_ns, send_busy: faults.send_busy, ..Faults::default() };
        }
        let program_ns = *choose(rng, &[MS, 5 * MS, 50 * MS]);
        let patience_ns = patience.as_nanos() as u64;
        let disturbances = disturbances(rng, ranks, program_ns, patience_ns);
        let end_ns = |(time, disturbance): &(u64, Disturbance)| time + disturbance.lasts_ns();
        let faults_end_ns = disturbances.iter().map(end_ns).max().unwrap_or(0).max(program_ns);
        let messages = messages(rng, mtu);
        // With two ranks, longer than one message of the endpoint.
        let long = if ranks == 2 { 80_000 } else { 20_000 };
        let slot_bytes = *choose(rng, &[64, 64, 64, 3000, 3000, 3000, 20_000, long]);
        let steps = *choose(rng, &[2, 5, 5, 10, 10, 20, 40]);
        let workload = Workload::draw(rng, ranks, &messages, slot_bytes);
        let programs = (0..ranks).map(|rank| workload.program(rng, rank, steps, program_ns)).collect();
        Self {
            mtu,
            faults,
            rate_bit_s: *choose(rng, &[100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000]),
            delay_ns: *choose(rng, &[500, 5 * US, 50 * US]),
            queue_frames: *choose(rng, &[20, 100, 1000]),
            ring_frames: *choose(rng, &[16, 128, 4096]),
            disturbances,
            faults_end_ns,
            addresses,
            endpoint,
            patience,
            messages,
            polls: (0..ranks).map(|_| rng.bool()).collect(),
            programs,
            slot_bytes,
            uses_libfabric: false,
            has_counters: seed.is_multiple_of(2),
            labelled: None,
            topology: None,
            #[cfg(feature = "mutants")]
            carriers_mutant: None,
        }
    }

    /// The same world, with programs that use libfabric's functions. Some compute for longer, so that the progress
    /// thread runs; the first time perhaps for longer than the patience, in which it must answer their peers.
    #[must_use]
    pub fn with_libfabric(mut self) -> Self {
        for program in &mut self.programs {
            let computations = program.iter_mut().filter_map(|(_, action)| match action {
                Action::Compute { for_ns } => Some(for_ns),
                _ => None,
            });
            for (number, for_ns) in computations.enumerate() {
                let longest = if number == 0 { 5000 } else { 10 };
                *for_ns *= [1, 100, longest][*for_ns as usize % 3];
            }
        }
        Self { uses_libfabric: true, ..self }
    }

    /// The link of a rank.
    pub(crate) fn link(&self, rank: usize, interface: &Rc<RefCell<Interface>>) -> RankLink {
        let link = |device, mac, mtu, locator| SimulatedLink::new(interface, device, mac, mtu, locator);
        let Some(topology) = &self.topology else {
            let mac = MacAddress(self.addresses[rank].mac);
            return RankLink::new(vec![(link(0, mac, self.mtu, Locator::FRAMES), 0)], None);
        };
        let Host { interfaces, ips, .. } = &topology.hosts[topology.host_of[rank]];
        let frames = interfaces.iter().enumerate();
        let frames = frames.map(|(device, of)| (link(device, of.mac, self.mtu, Locator::FRAMES), of.speed)).collect();
        let socket = || {
            link(UDP, topology.source(rank, rank), topology.socket_mtu, topology.socket(rank))
                .with_batches(topology.has_fast_sockets)
        };
        let link = RankLink::new(frames, (!ips.is_empty()).then(socket));
        #[cfg(feature = "mutants")]
        let link = {
            let mut link = link;
            link.mutant = self.carriers_mutant;
            link
        };
        link
    }

    /// Number of ranks, 2 to 8.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.programs.len()
    }
}

fn endpoint(rng: &mut Rng, seed: u64, patience: Duration, mtu: usize) -> barewire_endpoint::Config {
    let window = *choose(rng, &[1, 2, 7, 16, 63, 63]);
    let framing = Framing {
        encapsulation: *choose(rng, &[Encapsulation::Length, Encapsulation::EtherType]),
        token: rng.bool().then(|| JobToken::new(seed)),
    };
    let has_cookie = rng.bool();
    let mut config = barewire_endpoint::Config::new(Lsap::new(0x20).expect("an individual LSAP"), framing);
    config.set_dead_peer_timeout(patience);
    config.local = None;
    config.cookie = if has_cookie { seed | 1 } else { 0 };
    // Damage may be anywhere in a frame.
    config.checks_all = true;
    config.authentication = authentication(seed);
    config.channels = 16;
    config.send_descriptors = *choose(rng, &[16, 16, 64, 256]);
    config.slots = *choose(rng, &[16, 16, 64, 256]);
    // Allocating many long slots would take longer than running most worlds.
    if mtu > 1500 {
        config.slots = config.slots.min(64);
    }
    config.tuning = Tuning { copy_crossover_bytes: *choose(rng, &[0, 300, 8192]), ..Tuning::default() };
    config.connection.window = window;
    config.connection.receive_window = window.max(8);
    config.connection.acknowledge_every = rng.u8(1..=(window / 2).max(1));
    config.connection.acknowledge_delay = Duration::from_micros(rng.u64(0..100));
    config.connection.queue = *choose(rng, &[64, 128]);
    config.connection.after_loss = *choose(rng, &[AfterLoss::Keep, AfterLoss::Halve, AfterLoss::One]);
    config.connection.grow_after = rng.u16(1..40);
    // A rank may pause for a minute.
    config.connection.stall_limit = Duration::from_secs(600);
    config
}

/// In two thirds of the worlds each rank has a host of its own; in the others, ranks share hosts. Drawn from its own
/// generator, so that all other draws of a seed stay the same.
///
/// Listeners of pipes are named after addresses, in a namespace that all worlds on this machine share: process and a
/// count keep the MAC addresses of concurrent worlds apart.
fn addresses(seed: u64, ranks: usize) -> Vec<Address> {
    let mut rng = Rng::with_seed(seed ^ 0x686f_7374);
    let hosts = if rng.u8(..3) == 0 { rng.usize(1..=ranks / 2) } else { 0 };
    static WORLDS: AtomicU16 = AtomicU16::new(0);
    let ([.., p0, p1], [s0, s1]) = (std::process::id().to_be_bytes(), WORLDS.fetch_add(1, Relaxed).to_be_bytes());
    let address = |rank: usize| {
        let host = if hosts == 0 { rank } else { rng.usize(..hosts) };
        let sap = Lsap::new(0x20 + 4 * rank as u8).expect("an individual LSAP");
        Address { locator: Locator::FRAMES, ..Address::new([0x02, p0, p1, s0, s1, host as u8], sap) }
    };
    (0..ranks).map(address).collect()
}

/// Pipes between ranks of one host, with room for a frame's information.
fn pipes(seed: u64, mtu: usize) -> PipeConfig {
    let sizes = if mtu > 1500 { [64 << 10, 256 << 10] } else { [8 << 10, 64 << 10] };
    PipeConfig { ring_bytes: *choose(&mut Rng::with_seed(seed ^ 0x7069_7065), &sizes) }
}

/// Authentication, in half of the worlds. Drawn from its own generator, so that all other draws of a seed stay the
/// same.
fn authentication(seed: u64) -> Option<Authentication> {
    let encrypts = *choose(&mut Rng::with_seed(!seed), &[None, None, Some(false), Some(true)]);
    let secret = Secret::new(&seed.to_be_bytes().repeat(2)).expect("of 128 bits");
    encrypts.map(|encrypts| Authentication { secret, encrypts })
}

fn messages(rng: &mut Rng, mtu: usize) -> Config {
    let eager_bytes = *choose(rng, &[0, 100, 1000, 8192, 65_536]);
    let inject_bytes = *choose(rng, &[0, 3000, 8192]);
    // Room for at least one message of any kind that is sent without a request.
    let min = eager_bytes.max(inject_bytes).max(mtu);
    Config {
        eager_bytes,
        sends: *choose(rng, &[4, 64, 4096]),
        // Enough for all messages: one message's bytes may be queued behind others, which must be received first.
        receives: *choose(rng, &[400, 4096]),
        unexpected_bytes: min.max(*choose(rng, &[200, 4000, 65_536, 1 << 20])),
        unexpected_messages: {
            let messages = *choose(rng, &[2, 8, 4096]);
            // Drawn for a choice that no longer exists: without the draw, each seed would give another world.
            choose(rng, &[(); 4]);
            messages
        },
        write_chunk_bytes: *choose(rng, &[500, 5000, 1 << 30]),
        rendezvous_chunk_frames: *choose(rng, &[1, 3, 64]),
        inject_bytes,
        ..Config::default()
    }
}

fn disturbances(rng: &mut Rng, ranks: usize, program_ns: u64, patience_ns: u64) -> Vec<(u64, Disturbance)> {
    let mut disturbances = Vec::new();
    if rng.u8(..3) == 0 {
        return disturbances;
    }
    // Most disturbances together stay shorter than the patience.
    let short = (patience_ns / 100).max(1);
    let is_fatal = rng.u8(..4) == 0;
    for _ in 0..rng.usize(1..=3) {
        let (rank, time) = (rng.usize(..ranks), rng.u64(..program_ns * 2));
        let limit_ns = if rng.bool() { short } else { program_ns.min(short) };
        let for_ns = rng.u64(..limit_ns);
        let disturbance = match rng.u8(..5) {
            0 => Disturbance::Down { rank, for_ns },
            1 => Disturbance::Busy { rank, for_ns: for_ns.min(100 * MS) },
            2 => Disturbance::Jump { rank, by_ns: for_ns },
            _ => Disturbance::Pause { rank, for_ns },
        };
        disturbances.push((time, disturbance));
    }
    if is_fatal {
        let (rank, time) = (rng.usize(..ranks), rng.u64(..program_ns * 2));
        let long = patience_ns + rng.u64(..patience_ns);
        let after_ns = *choose(rng, &[0, 50 * US, MS, patience_ns / 2, long]);
        let restart = Disturbance::Restart { rank, after_ns };
        let choices = [
            restart,
            restart,
            Disturbance::Pause { rank, for_ns: long },
            Disturbance::Down { rank, for_ns: long },
            Disturbance::Jump { rank, by_ns: long },
        ];
        disturbances.push((time, *choose(rng, &choices)));
        if rng.bool() {
            let rank = rng.usize(..ranks);
            disturbances.push((rng.u64(..program_ns * 2), Disturbance::Restart { rank, after_ns: rng.u64(..MS) }));
        }
    }
    disturbances
}

/// Distribution of the program steps of a world.
struct Workload {
    ranks: usize,
    tags: u64,
    ignored: Vec<u64>,
    lengths: Vec<usize>,
    slot_bytes: usize,
    /// Memory accesses per 16 steps.
    accesses: u8,
    closes_channels: bool,
    /// Receives from any source per 16.
    wildcards: u8,
}

impl Workload {
    fn draw(rng: &mut Rng, ranks: usize, messages: &Config, slot_bytes: usize) -> Self {
        let eager = messages.eager_bytes.min(65_536);
        let small = vec![0, 1, 7, 8, 20, 60, 100];
        let all = vec![0, 1, 8, 60, 150, 600, 1400, 1500, 4000, eager, eager + 1, 3 * eager.min(10_000), 20_000];
        let long = vec![0, 8, 5000, eager + 1, 30_000, 70_000];
        let few = vec![0, u64::MAX];
        let many = vec![0, 1, 2, 3, 4, 5, 0xff, u64::MAX];
        Self {
            ranks,
            tags: *choose(rng, &[1, 3, 8]),
            ignored: choose(rng, &[few, many]).clone(),
            lengths: choose(rng, &[small.clone(), small, all.clone(), all, long]).clone(),
            slot_bytes,
            accesses: *choose(rng, &[0, 0, 4, 8, 14]),
            closes_channels: rng.u8(..6) == 0,
            wildcards: *choose(rng, &[0, 4, 12]),
        }
    }

    fn program(&self, rng: &mut Rng, rank: usize, steps: usize, program_ns: u64) -> Vec<(u64, Action)> {
        let steps = rng.usize(1..=2 * steps);
        let mut times: Vec<u64> =
            (0..steps).map(|_| if rng.u8(..3) == 0 { 0 } else { rng.u64(..program_ns) }).collect();
        times.sort_unstable();
        times.into_iter().map(|time| (time, self.action(rng, rank))).collect()
    }

    fn action(&self, rng: &mut Rng, rank: usize) -> Action {
        let peer = (rank + rng.usize(1..self.ranks)) % self.ranks;
        if self.closes_channels && rng.u8(..12) == 0 {
            return match rng.u8(..3) {
                0 => Action::Remove { peer, when: Removal::Drain },
                1 => Action::Remove { peer, when: Removal::Abort },
                _ => Action::Close { peer },
            };
        }
        if rng.u8(..16) < self.accesses {
            return self.access(rng, peer);
        }
        let criteria = self.criteria(rng, peer);
        match rng.u8(..32) {
            0..14 => {
                let mode =
                    [SendMode::Lent(1), SendMode::Lent(1), SendMode::Lent(3), SendMode::Copied, SendMode::Injected];
                Action::Send {
                    to: peer,
                    tag: (rng.u8(..4) > 0).then(|| rng.u64(..self.tags)),
                    has_data: rng.bool(),
                    bytes: self.length(rng),
                    level: *choose(
                        rng,
                        &[
                            CompletionLevel::Inject,
                            CompletionLevel::Inject,
                            CompletionLevel::Transmit,
                            CompletionLevel::Delivery,
                        ],
                    ),
                    mode: *choose(rng, &mode),
                }
            }
            14..27 => {
                let bytes = if rng.u8(..4) == 0 { self.length(rng).max(8) } else { usize::MAX };
                Action::Receive { criteria, bytes, parts: *choose(rng, &[1, 1, 1, 3]) }
            }
            27 => Action::ReceiveMulti { criteria, bytes: rng.usize(8..=8000), min: rng.u64(..3000) },
            28 => Action::Claim { criteria, discards: rng.u8(..3) == 0 },
            29 => Action::CancelReceive,
            30 => Action::CancelSend,
            _ => Action::Compute { for_ns: rng.u64(..500 * US) },
        }
    }

    fn access(&self, rng: &mut Rng, peer: usize) -> Action {
        let slot = rng.usize(..SLOTS);
        match rng.u8(..10) {
            0..4 => {
                let offset = *choose(rng, &[0, rng.clone().usize(..self.slot_bytes)]);
                let mode = *choose(rng, &[SendMode::Lent(1), SendMode::Lent(3), SendMode::Copied, SendMode::Injected]);
                let bytes = rng.usize(..=self.slot_bytes - offset);
                Action::Write { to: peer, slot, offset, bytes, has_data: rng.bool(), mode }
            }
            4..7 => {
                let (target, max) =
                    *choose(rng, &[(Readable::Constant, CONSTANT_BYTES), (Readable::Slot(slot), self.slot_bytes)]);
                Action::Read { from: peer, target, bytes: rng.usize(..=max) }
            }
            7..9 => {
                let counter = rng.usize(..COUNTERS);
                Action::Add { to: peer, counter, value: rng.u64(1..100), fetches: rng.bool() }
            }
            _ => *choose(rng, &[Action::Register, Action::WriteVolatile { to: peer, bytes: 1500 }]),
        }
    }

    fn criteria(&self, rng: &mut Rng, peer: usize) -> Criteria {
        let source = (rng.u8(..16) >= self.wildcards).then_some(peer);
        let tag = (rng.u8(..4) > 0).then(|| (rng.u64(..self.tags), *choose(rng, &self.ignored)));
        Criteria { source, tag }
    }

    fn length(&self, rng: &mut Rng) -> usize {
        *choose(rng, &self.lengths) + usize::from(rng.u8(..4) == 0) * rng.usize(..10)
    }
}
