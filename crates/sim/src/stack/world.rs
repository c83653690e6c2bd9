// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The world: ranks on a network, in virtual time.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use barewire_endpoint::parse;
use barewire_link::Clock;
use barewire_llc::Pdu;
use fastrand::Rng;

use super::link::Interface;
use super::network::Network;
use super::oracle::{Broken, Oracle, Promise};
use super::process::{Next, Process, Shared, mac};
use super::scenario::{Action, Disturbance, Scenario};
use crate::scenario::MS;

/// More than any world needs.
const EVENTS: u64 = 2_000_000;
/// Between two looks whether all is over.
const LOOK_EVERY_NS: u64 = MS / 2;
/// Room for any message of the scenarios'.
const SLACK: usize = 64;
/// Faults have stopped, and receives still match as the programs posted them, for so long at most.
const GRACE_NS: u64 = 20 * MS;

/// What happened in a world in which no promise was broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Things that happened.
    pub events: u64,
    /// Frames that ranks sent.
    pub frames: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// Virtual time until all was over.
    pub over_ns: u64,
}

enum Happening {
    Frame { to: usize, frame: Vec<u8> },
    Wake(usize),
    Disturb(Disturbance),
    Up(usize),
    Begin(usize),
    Quiet,
    Drain(usize),
}

struct Rank {
    process: Option<Process>,
    interface: Rc<RefCell<Interface>>,
    /// What its clock is ahead of the world's.
    offset_ns: u64,
    paused_until_ns: u64,
    down_until_ns: u64,
    wake_ns: u64,
    /// Of a rank that has no process.
    program: VecDeque<(u64, Action)>,
    drains: bool,
}

/// See the module.
pub struct World {
    scenario: Scenario,
    ranks: Vec<Rank>,
    network: Network,
    oracle: Oracle,
    rng: Rng,
    happenings: BinaryHeap<Reverse<(u64, u64)>>,
    what: Vec<Option<Happening>>,
    free: Vec<usize>,
    order: u64,
    now_ns: u64,
    /// Frames on their way.
    travelling: usize,
    is_quiet: bool,
    /// When it is looked next whether all is over.
    look_ns: u64,
    look_every_ns: u64,
    longest: usize,
    writes: usize,
    report: Report,
    is_traced: bool,
}

impl World {
    pub fn new(scenario: Scenario, seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x0057_ac4b);
        let network = Network::new(&scenario, rng.fork());
        let longest = scenario.programs.iter().flatten().map(|(_, action)| match action {
            Action::Send { bytes, .. } => *bytes,
            _ => 0,
        });
        let longest = longest.max().unwrap_or(0) + SLACK;
        let oracle = Oracle::new(scenario.ranks());
        let ranks = scenario.programs.iter().map(|program| {
            let refusal = scenario.faults.refusal;
            Rank {
                process: None,
                interface: Interface::new(Clock::simulated(), refusal, rng.fork()),
                offset_ns: 0,
                paused_until_ns: 0,
                down_until_ns: 0,
                wake_ns: u64::MAX,
                program: program.iter().copied().collect(),
                drains: false,
            }
        });
        let ranks = ranks.collect();
        let mut world = Self {
            ranks,
            network,
            oracle,
            rng,
            happenings: BinaryHeap::new(),
            what: Vec::new(),
            free: Vec::new(),
            order: 0,
            now_ns: 0,
            travelling: 0,
            is_quiet: false,
            look_ns: 0,
            look_every_ns: 0,
            longest,
            writes: 0,
            report: Report::default(),
            is_traced,
            scenario,
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        for rank in 0..self.ranks.len() {
            // Some begin later than others speak to them.
            let begins = if self.rng.bool() { 0 } else { self.rng.u64(..5 * MS) };
            self.at(begins, Happening::Begin(rank));
            let drains = self.scenario.quiet_from_ns + self.rng.u64(1..GRACE_NS);
            self.at(drains, Happening::Drain(rank));
        }
        for (time, what) in self.scenario.disturbances.clone() {
            self.at(time, Happening::Disturb(what));
        }
        self.at(self.scenario.quiet_from_ns, Happening::Quiet);
    }

    /// Runs the world to its end.
    pub fn run(mut self) -> Result<Report, Broken> {
        let patience_ns = self.scenario.patience.as_nanos() as u64;
        let end_ns = self.scenario.quiet_from_ns + 4 * patience_ns + 10_000 * MS;
        while let Some(Reverse((time, slot))) = self.happenings.pop() {
            self.now_ns = time;
            let slot = slot as u32 as usize;
            self.free.push(slot);
            let Some(happening) = self.what[slot].take() else { continue };
            self.report.events += 1;
            self.happen(happening);
            if let Some(broken) = self.oracle.verdict() {
                return Err(broken.clone());
            }
            if self.is_quiet && self.is_over() {
                return self.end();
            }
            if time > end_ns || self.report.events > EVENTS {
                break;
            }
        }
        let open: Vec<String> = self.ranks.iter().filter_map(|rank| Some(rank.process.as_ref()?.open())).collect();
        self.oracle.report(Promise::Progress, || format!("not over in time: {}", open.join("; ")));
        self.oracle.verdict().map_or(Ok(self.report), |broken| Err(broken.clone()))
    }

    fn happen(&mut self, happening: Happening) {
        if self.is_traced {
            self.tell(&happening);
        }
        match happening {
            Happening::Frame { to, frame } => {
                self.travelling -= 1;
                let rank = &mut self.ranks[to];
                let mut interface = rank.interface.borrow_mut();
                let is_lost = rank.process.is_none() || interface.is_down;
                if is_lost {
                } else if interface.inbound.len() >= self.scenario.ring_frames {
                    interface.counters.receive_dropped += 1;
                } else {
                    interface.inbound.push_back(frame);
                    drop(interface);
                    self.run_rank(to);
                }
            }
            Happening::Wake(rank) => {
                if self.ranks[rank].wake_ns <= self.now_ns {
                    self.run_rank(rank);
                }
            }
            Happening::Begin(rank) => self.begin(rank),
            Happening::Disturb(disturbance) => self.disturb(disturbance),
            Happening::Up(rank) => {
                if self.ranks[rank].down_until_ns <= self.now_ns {
                    self.ranks[rank].interface.borrow_mut().is_down = false;
                }
            }
            Happening::Quiet => {
                self.is_quiet = true;
                self.network.quiet();
                for rank in &self.ranks {
                    let mut interface = rank.interface.borrow_mut();
                    (interface.refusal, interface.busy_until) = (0.0, Duration::ZERO);
                }
            }
            Happening::Drain(rank) => {
                self.ranks[rank].drains = true;
                if let Some(process) = &mut self.ranks[rank].process {
                    process.begin_to_drain();
                    self.run_rank(rank);
                }
            }
        }
    }

    fn begin(&mut self, number: usize) {
        if self.ranks[number].process.is_some() {
            return;
        }
        let rng = self.rng.fork();
        let rank = &mut self.ranks[number];
        let clock = Clock::simulated();
        let refusal = if self.is_quiet { 0.0 } else { self.scenario.faults.refusal };
        let is_down = rank.down_until_ns > self.now_ns;
        rank.interface = Interface::new(clock.clone(), refusal, rng.clone());
        rank.interface.borrow_mut().is_down = is_down;
        // Its clock began with it, or runs for long.
        rank.offset_ns = if self.rng.bool() { 0 } else { self.rng.u64(..1 << 50) };
        clock.set(Duration::from_nanos(self.now_ns + rank.offset_ns));
        let program = std::mem::take(&mut rank.program);
        let mut process = Process::new(number, &self.scenario, &rank.interface, program, rng, self.is_traced);
        if rank.drains {
            process.begin_to_drain();
        }
        rank.process = Some(process);
        self.run_rank(number);
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        let long_ns = self.scenario.patience.as_nanos() as u64 / 4;
        let now_ns = self.now_ns;
        match disturbance {
            Disturbance::Pause { rank, for_ns } => {
                self.disturb_if(rank, for_ns > long_ns);
                let rank = &mut self.ranks[rank];
                rank.paused_until_ns = rank.paused_until_ns.max(now_ns + for_ns);
            }
            Disturbance::Down { rank, for_ns } => {
                self.disturb_if(rank, for_ns > long_ns);
                let entry = &mut self.ranks[rank];
                entry.down_until_ns = entry.down_until_ns.max(now_ns + for_ns);
                let mut interface = entry.interface.borrow_mut();
                (interface.is_down, interface.went_down) = (true, true);
                drop(interface);
                let until_ns = entry.down_until_ns;
                self.at(until_ns, Happening::Up(rank));
                self.run_rank(rank);
            }
            Disturbance::Busy { rank, for_ns } => {
                let entry = &mut self.ranks[rank];
                let until = Duration::from_nanos(now_ns + entry.offset_ns + for_ns);
                entry.interface.borrow_mut().busy_until = until;
            }
            Disturbance::Jump { rank, by_ns } => {
                self.disturb_if(rank, by_ns > long_ns);
                self.ranks[rank].offset_ns += by_ns;
                self.run_rank(rank);
            }
            Disturbance::Restart { rank, after_ns } => {
                let entry = &mut self.ranks[rank];
                if let Some(process) = entry.process.take() {
                    entry.program = process.into_program();
                    self.oracle.restart(rank);
                }
                entry.wake_ns = u64::MAX;
                entry.paused_until_ns = 0;
                self.at(now_ns + after_ns, Happening::Begin(rank));
            }
        }
    }

    fn disturb_if(&mut self, rank: usize, is_long: bool) {
        if is_long {
            self.oracle.disturb(rank);
        }
    }

    fn run_rank(&mut self, number: usize) {
        let rank = &mut self.ranks[number];
        let Some(process) = &mut rank.process else { return };
        if rank.paused_until_ns.max(process.computes_until_ns) > self.now_ns {
            let until = rank.paused_until_ns.max(process.computes_until_ns);
            if rank.wake_ns > until || rank.wake_ns <= self.now_ns {
                rank.wake_ns = until;
                self.at(until, Happening::Wake(number));
            }
            return;
        }
        {
            let mut interface = rank.interface.borrow_mut();
            interface.ahead_ns = 0;
            interface.clock.set(Duration::from_nanos(self.now_ns + rank.offset_ns));
        }
        let mut shared = Shared {
            oracle: &mut self.oracle,
            writes: self.writes,
            done_writes: Vec::new(),
            longest: self.longest,
            unexpected_bytes: self.scenario.messages.unexpected_bytes,
        };
        let next = process.run(self.now_ns, &mut shared);
        self.writes = shared.writes;
        let done_writes = shared.done_writes;
        self.look_for(done_writes);
        self.send_from(number);
        match next {
            Next::After(time_ns) => {
                let rank = &mut self.ranks[number];
                let ahead_ns = std::mem::take(&mut rank.interface.borrow_mut().ahead_ns);
                rank.paused_until_ns = self.now_ns + ahead_ns;
                rank.wake_ns = rank.paused_until_ns.saturating_add(time_ns.max(1));
                let wake_ns = rank.wake_ns;
                self.at(wake_ns, Happening::Wake(number));
            }
            Next::Endless => {
                self.oracle.report(Promise::Progress, || format!("{number} always has something to do"));
            }
        }
    }

    /// Writes that were completed must be in their targets' memory.
    fn look_for(&mut self, done: Vec<((usize, usize, usize), usize)>) {
        for (at, number) in done {
            let process = self.ranks[at.1].process.as_ref();
            self.oracle.write_done(at, number, process.map(Process::memory));
        }
    }

    /// Moves what a rank has sent to the network.
    fn send_from(&mut self, from: usize) {
        let sent = std::mem::take(&mut self.ranks[from].interface.borrow_mut().outbound);
        let mut arrivals = Vec::new();
        for (after_ns, frame) in sent {
            self.report.frames += 1;
            let to = (0..self.ranks.len()).find(|rank| frame.starts_with(&mac(*rank)));
            // Others are on no link of this network.
            let Some(to) = to.filter(|to| *to != from) else { continue };
            let arrive = &mut |time, frame| arrivals.push((to, time, frame));
            self.network.carry(from, to, frame, self.now_ns + after_ns, arrive);
        }
        self.arrive(arrivals);
    }

    fn arrive(&mut self, arrivals: Vec<(usize, u64, Vec<u8>)>) {
        for (to, time, frame) in arrivals {
            self.travelling += 1;
            self.at(time, Happening::Frame { to, frame });
        }
    }

    /// Whether everything has ended that was begun.
    fn is_over(&mut self) -> bool {
        if self.now_ns < self.look_ns || !self.is_still() {
            return false;
        }
        // Each look asks all peers for an answer.
        self.look_every_ns = (self.look_every_ns * 2).clamp(LOOK_EVERY_NS, 100 * LOOK_EVERY_NS);
        self.look_ns = self.now_ns + self.look_every_ns;
        let mut is_settled = true;
        for rank in 0..self.ranks.len() {
            if let Some(process) = &mut self.ranks[rank].process {
                is_settled &= process.is_settled(&mut self.oracle);
            }
            self.send_from(rank);
            self.run_rank(rank);
        }
        if !is_settled || !self.is_still() {
            return false;
        }
        // A peer that is gone is noticed later than its last message. What is received anew meanwhile is what comes still.
        let mut processes = self.ranks.iter_mut().filter_map(|rank| rank.process.as_mut());
        processes.all(|process| process.cancel_receives() == 0)
    }

    /// Whether nothing is under way that can be seen.
    fn is_still(&mut self) -> bool {
        let is_done = |rank: &mut Rank| {
            rank.interface.borrow().inbound.is_empty()
                && rank.process.as_mut().is_some_and(|process| process.drains() && process.is_done())
        };
        self.travelling == 0 && self.ranks.iter_mut().all(is_done)
    }

    fn end(mut self) -> Result<Report, Broken> {
        for rank in 0..self.ranks.len() {
            if let Some(process) = &mut self.ranks[rank].process {
                process.end_draining();
            }
            self.now_ns = self.now_ns.max(self.ranks[rank].paused_until_ns);
            self.run_rank(rank);
        }
        for rank in &mut self.ranks {
            if let Some(process) = &mut rank.process {
                process.end(&mut self.oracle);
            }
        }
        let memories: Vec<_> = self.ranks.iter().map(|rank| Some(rank.process.as_ref()?.memory())).collect();
        self.oracle.end(&memories);
        self.report.messages = self.oracle.messages.len() as u64;
        self.report.over_ns = self.now_ns;
        self.oracle.verdict().map_or(Ok(self.report), |broken| Err(broken.clone()))
    }

    fn tell(&self, happening: &Happening) {
        let time_us = self.now_ns as f64 / 1000.0;
        match happening {
            Happening::Frame { to, frame } => {
                let text = match parse(frame).map(|frame| Pdu::decode(frame.llc)) {
                    Some(Ok(pdu)) => format!("{:?}", pdu.body),
                    other => format!("{other:?}"),
                };
                let text = text.split(", information").next().unwrap_or_default();
                println!("{time_us:12.1} us {} -> {to}  {} bytes, {text}", frame[11], frame.len());
            }
            Happening::Wake(_) => {}
            Happening::Disturb(what) => println!("{time_us:12.1} us {what:?}"),
            Happening::Up(rank) => println!("{time_us:12.1} us {rank} up"),
            Happening::Begin(rank) => println!("{time_us:12.1} us {rank} begins"),
            Happening::Quiet => println!("{time_us:12.1} us faults stop"),
            Happening::Drain(rank) => println!("{time_us:12.1} us {rank} receives all"),
        }
    }

    /// Of two happenings at one time, the one planned first comes first.
    fn at(&mut self, time_ns: u64, happening: Happening) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.what.push(None);
            self.what.len() - 1
        });
        self.what[slot] = Some(happening);
        self.order += 1;
        self.happenings.push(Reverse((time_ns, self.order << 32 | slot as u64)));
    }
}
