// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a seed means: how many ranks, how bad a network, how small the queues, and what each program does.

use core::time::Duration;

use barewire_endpoint::{Authentication, Encapsulation, Framing, JobToken, Secret, Tuning};
use barewire_llc::{AfterLoss, Lsap};
use barewire_messages::{CompletionLevel, Config, Removal};
use fastrand::Rng;

use crate::scenario::{MS, US, choose};

/// One world. All of it follows from the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Bytes that a frame carries.
    pub mtu: usize,
    /// Faults of the network while they last.
    pub faults: Faults,
    /// Bits a second of every link.
    pub rate_bit_s: u64,
    /// From link to link.
    pub delay_ns: u64,
    /// Frames that wait to leave a rank, at most; others are lost.
    pub queue_frames: usize,
    /// Frames that a rank's receive ring holds.
    pub ring_frames: usize,
    /// What happens to ranks, and when.
    pub disturbances: Vec<(u64, Disturbance)>,
    /// No fault happens later.
    pub quiet_from_ns: u64,
    /// Of every endpoint, but for its cookie.
    pub endpoint: barewire_endpoint::Config,
    /// How long a peer can be gone before it is given up.
    pub patience: Duration,
    /// Of every messenger.
    pub messages: Config,
    /// Whether each rank polls, or sleeps until something is due.
    pub polls: Vec<bool>,
    /// What each rank does, in its order and not before these times.
    pub programs: Vec<Vec<(u64, Action)>>,
    /// Bytes of a piece of registered memory that one peer writes to.
    pub slot_bytes: usize,
}

/// Probabilities for each frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Never arrives.
    pub loss: f64,
    /// Arrives twice.
    pub repetition: f64,
    /// Is overtaken by later ones.
    pub reordering: f64,
    /// It comes later by so much, at most.
    pub lateness_ns: u64,
    /// Arrives with other bits, or without its end.
    pub corruption: f64,
    /// Longest additional delay.
    pub jitter_ns: u64,
    /// The link is too busy to take a frame.
    pub refusal: f64,
}

/// Something that happens to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a rank, and for how long")]
pub enum Disturbance {
    /// It makes no call for so long.
    Pause { rank: usize, for_ns: u64 },
    /// Its interface is down for so long.
    Down { rank: usize, for_ns: u64 },
    /// Its interface takes no frame for so long.
    Busy { rank: usize, for_ns: u64 },
    /// Its clock jumps forward.
    Jump { rank: usize, by_ns: u64 },
    /// Its process ends without a word, and another begins at its address so much later.
    Restart { rank: usize, after_ns: u64 },
}

/// What a receive is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// The rank that must have sent it, if not any.
    pub source: Option<usize>,
    /// Tag and bits of it that do not matter, of a tagged one.
    pub tag: Option<(u64, u64)>,
}

/// How a message is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// From where it lies, in so many parts.
    Lent(usize),
    /// Copied, with a completion.
    Copied,
    /// Copied, without one.
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
        reaches: CompletionLevel,
        how: How,
    },
    Receive {
        wants: Wants,
        bytes: usize,
        parts: usize,
    },
    ReceiveMany {
        wants: Wants,
        bytes: usize,
        least: u64,
    },
    /// Looks for a message, claims it if there is one, and receives it or throws it away after the next step.
    Claim {
        wants: Wants,
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
        how: How,
    },
    Read {
        from: usize,
        what: Readable,
        bytes: usize,
    },
    /// Adds to a counter of the peer's.
    Add {
        to: usize,
        counter: usize,
        value: u64,
        fetches: bool,
    },
    /// Registered memory that nothing depends on is taken back, and registered anew.
    Register,
    /// Writes to that.
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

/// A part of a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Never changes.
    Constant,
    /// Of those that the reader writes to.
    Slot(usize),
}

/// Slots of each peer in a rank's registered memory.
pub(crate) const SLOTS: usize = 2;
/// Counters in a rank's registered memory.
pub(crate) const COUNTERS: usize = 3;
/// Bytes of registered memory that never change.
pub(crate) const CONSTANT_BYTES: usize = 3000;
/// Bytes of the memory that is taken back.
pub(crate) const VOLATILE_BYTES: usize = 2000;

impl Scenario {
    /// The world of a seed.
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
        let endpoint = endpoint(rng, seed, patience, mtu);
        let none = 0.0;
        let mut faults = Faults {
            loss: *choose(rng, &[none, none, 0.001, 0.01, 0.05, 0.2]),
            repetition: *choose(rng, &[none, none, 0.01, 0.1]),
            reordering: *choose(rng, &[none, none, 0.01, 0.1, 0.5]),
            lateness_ns: *choose(rng, &[20 * US, 200 * US, MS, 20 * MS]),
            corruption: *choose(rng, &[none, none, 0.001, 0.01, 0.1]),
            jitter_ns: *choose(rng, &[0, 0, 5 * US, 50 * US]),
            refusal: *choose(rng, &[none, none, none, 0.01, 0.2]),
        };
        if is_lossless {
            faults = Faults { jitter_ns: faults.jitter_ns, refusal: faults.refusal, ..Faults::default() };
        }
        let program_ns = *choose(rng, &[MS, 5 * MS, 50 * MS]);
        let patience_ns = patience.as_nanos() as u64;
        let disturbances = disturbances(rng, ranks, program_ns, patience_ns);
        let last = |(time, what): &(u64, Disturbance)| {
            *time
                + match *what {
                    Disturbance::Pause { for_ns, .. }
                    | Disturbance::Down { for_ns, .. }
                    | Disturbance::Busy { for_ns, .. } => for_ns,
                    Disturbance::Jump { .. } => 0,
                    Disturbance::Restart { after_ns, .. } => after_ns,
                }
        };
        let quiet_from_ns = disturbances.iter().map(last).max().unwrap_or(0).max(program_ns);
        let messages = messages(rng, mtu);
        // More than goes in one message of the endpoint's, where there are few slots.
        let long = if ranks == 2 { 80_000 } else { 20_000 };
        let slot_bytes = *choose(rng, &[64, 64, 64, 3000, 3000, 3000, 20_000, long]);
        let steps = *choose(rng, &[2, 5, 5, 10, 10, 20, 40]);
        let style = Style::draw(rng, ranks, &messages, slot_bytes);
        let programs = (0..ranks).map(|rank| style.program(rng, rank, steps, program_ns)).collect();
        Self {
            mtu,
            faults,
            rate_bit_s: *choose(rng, &[100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000]),
            delay_ns: *choose(rng, &[500, 5 * US, 50 * US]),
            queue_frames: *choose(rng, &[20, 100, 1000]),
            ring_frames: *choose(rng, &[16, 128, 4096]),
            disturbances,
            quiet_from_ns,
            endpoint,
            patience,
            messages,
            polls: (0..ranks).map(|_| rng.bool()).collect(),
            programs,
            slot_bytes,
        }
    }

    /// Ranks, 2 to 8.
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
    // Frames are damaged anywhere.
    config.checks_all = true;
    config.authentication = authentication(seed);
    config.channels = 16;
    config.send_descriptors = *choose(rng, &[16, 16, 64, 256]);
    config.slots = *choose(rng, &[16, 16, 64, 256]);
    // The memory of a whole ring of long frames costs more than most worlds.
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
    // A world in which somebody pauses for a minute receives nothing for so long.
    config.connection.stall_limit = Duration::from_secs(600);
    config
}

/// Of half of the worlds, one way or the other. Drawn by itself, so that it leaves all other draws as they were.
fn authentication(seed: u64) -> Option<Authentication> {
    let encrypts = *choose(&mut Rng::with_seed(!seed), &[None, None, Some(false), Some(true)]);
    let secret = Secret::new(&seed.to_be_bytes().repeat(2)).expect("of 128 bits");
    encrypts.map(|encrypts| Authentication { secret, encrypts })
}

fn messages(rng: &mut Rng, mtu: usize) -> Config {
    let eager_bytes = *choose(rng, &[0, 100, 1000, 8192, 65_536]);
    let inject_bytes = *choose(rng, &[0, 3000, 8192]);
    // There must be room for one message of any kind that is not announced.
    let least = eager_bytes.max(inject_bytes).max(mtu);
    Config {
        eager_bytes,
        sends: *choose(rng, &[4, 64, 4096]),
        // Enough for all that come: a message's bytes may lie behind others, which are to be received first.
        receives: *choose(rng, &[400, 4096]),
        unexpected_bytes: least.max(*choose(rng, &[200, 4000, 65_536, 1 << 20])),
        unexpected_messages: *choose(rng, &[2, 8, 4096]),
        descriptors_per_peer: *choose(rng, &[4, 4, 16, 64]),
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
    // All of them together are shorter than a peer is waited for, but for some.
    let short = (patience_ns / 100).max(1);
    let is_fatal = rng.u8(..4) == 0;
    for _ in 0..rng.usize(1..=3) {
        let (rank, time) = (rng.usize(..ranks), rng.u64(..program_ns * 2));
        let most = if rng.bool() { short } else { program_ns.min(short) };
        let for_ns = rng.u64(..most);
        let what = match rng.u8(..5) {
            0 => Disturbance::Down { rank, for_ns },
            1 => Disturbance::Busy { rank, for_ns: for_ns.min(100 * MS) },
            2 => Disturbance::Jump { rank, by_ns: for_ns },
            _ => Disturbance::Pause { rank, for_ns },
        };
        disturbances.push((time, what));
    }
    if is_fatal {
        let (rank, time) = (rng.usize(..ranks), rng.u64(..program_ns * 2));
        let long = patience_ns + rng.u64(..patience_ns);
        let after_ns = *choose(rng, &[0, 50 * US, MS, patience_ns / 2, long]);
        let restart = Disturbance::Restart { rank, after_ns };
        let what = [
            restart,
            restart,
            Disturbance::Pause { rank, for_ns: long },
            Disturbance::Down { rank, for_ns: long },
            Disturbance::Jump { rank, by_ns: long },
        ];
        disturbances.push((time, *choose(rng, &what)));
        if rng.bool() {
            let rank = rng.usize(..ranks);
            disturbances.push((rng.u64(..program_ns * 2), Disturbance::Restart { rank, after_ns: rng.u64(..MS) }));
        }
    }
    disturbances
}

/// What the programs of a world are like.
struct Style {
    ranks: usize,
    tags: u64,
    ignored: Vec<u64>,
    lengths: Vec<usize>,
    slot_bytes: usize,
    /// Of 16 steps, those that access memory.
    accesses: u8,
    has_leaving: bool,
    /// Of 16 receives, those that name no source.
    wild: u8,
}

impl Style {
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
            has_leaving: rng.u8(..6) == 0,
            wild: *choose(rng, &[0, 4, 12]),
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
        if self.has_leaving && rng.u8(..12) == 0 {
            return match rng.u8(..3) {
                0 => Action::Remove { peer, when: Removal::Drain },
                1 => Action::Remove { peer, when: Removal::Abort },
                _ => Action::Close { peer },
            };
        }
        if rng.u8(..16) < self.accesses {
            return self.access(rng, peer);
        }
        let wants = self.wants(rng, peer);
        match rng.u8(..32) {
            0..14 => {
                let how = [How::Lent(1), How::Lent(1), How::Lent(3), How::Copied, How::Injected];
                Action::Send {
                    to: peer,
                    tag: (rng.u8(..4) > 0).then(|| rng.u64(..self.tags)),
                    has_data: rng.bool(),
                    bytes: self.length(rng),
                    reaches: *choose(
                        rng,
                        &[
                            CompletionLevel::Inject,
                            CompletionLevel::Inject,
                            CompletionLevel::Transmit,
                            CompletionLevel::Delivery,
                        ],
                    ),
                    how: *choose(rng, &how),
                }
            }
            14..27 => {
                let bytes = if rng.u8(..4) == 0 { self.length(rng).max(8) } else { usize::MAX };
                Action::Receive { wants, bytes, parts: *choose(rng, &[1, 1, 1, 3]) }
            }
            27 => Action::ReceiveMany { wants, bytes: rng.usize(8..=8000), least: rng.u64(..3000) },
            28 => Action::Claim { wants, discards: rng.u8(..3) == 0 },
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
                let how = *choose(rng, &[How::Lent(1), How::Lent(3), How::Copied, How::Injected]);
                let bytes = rng.usize(..=self.slot_bytes - offset);
                Action::Write { to: peer, slot, offset, bytes, has_data: rng.bool(), how }
            }
            4..7 => {
                let (what, most) =
                    *choose(rng, &[(Readable::Constant, CONSTANT_BYTES), (Readable::Slot(slot), self.slot_bytes)]);
                Action::Read { from: peer, what, bytes: rng.usize(..=most) }
            }
            7..9 => {
                let counter = rng.usize(..COUNTERS);
                Action::Add { to: peer, counter, value: rng.u64(1..100), fetches: rng.bool() }
            }
            _ => *choose(rng, &[Action::Register, Action::WriteVolatile { to: peer, bytes: 1500 }]),
        }
    }

    fn wants(&self, rng: &mut Rng, peer: usize) -> Wants {
        let source = (rng.u8(..16) >= self.wild).then_some(peer);
        let tag = (rng.u8(..4) > 0).then(|| (rng.u64(..self.tags), *choose(rng, &self.ignored)));
        Wants { source, tag }
    }

    fn length(&self, rng: &mut Rng) -> usize {
        *choose(rng, &self.lengths) + usize::from(rng.u8(..4) == 0) * rng.usize(..10)
    }
}
