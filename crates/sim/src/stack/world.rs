// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated world: ranks on a network, in virtual time.

mod devices;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use barewire_endpoint::parse;
use barewire_link::{Clock, MacAddress};
use barewire_llc::Pdu;
use fastrand::Rng;

use super::link::{Interface, Outbound};
use super::network::{End, Lane, Network};
use super::oracle::{Oracle, Property, Violation};
use super::paths::{Fate, Paths};
use super::process::{Next, Process, Shared};
use super::scenario::{Action, Disturbance, Scenario};
use super::topology::Topology;
use super::watch::{self, Watch};
use crate::agenda::Agenda;
use crate::scenario::{MS, US};

/// More events than any world needs, besides those of each second: ranks that wait for each other poll, and with several
/// carriers check their paths, for as long as a world lasts.
const EVENTS_MAX: u64 = 2_000_000;
const EVENTS_PER_S: u64 = 200_000;
/// Initial interval of checks whether everything has ended.
const CHECK_INTERVAL_NS: u64 = MS / 2;
/// Extra room in receives for any message.
const SLACK: usize = 64;
/// Longest time between the end of the faults and the begin of draining.
const GRACE_NS: u64 = 20 * MS;
/// Longest time from a doorbell to the run of the rank that slept.
const WAKE_MAX_NS: u64 = 20 * US;

/// Summary of a world without a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events processed.
    pub events: u64,
    /// Frames sent by ranks.
    pub frames: u64,
    /// Messages posted.
    pub messages: u64,
    /// Virtual time at the end.
    pub over_ns: u64,
    /// With several carriers: longest time for which a rank sent in vain to another though a path worked.
    pub stall_ns_max: u64,
    /// Longest time for which a rank sent datagrams to another that were too long for their path, or batches.
    pub narrow_ns_max: u64,
}

/// Octets of a frame's guard.
const CHECK_OCTETS: usize = 4;
const SEAL_OCTETS: usize = 24;
/// Longest time for which nothing that a rank sends may reach another, though a path works.
const STALL_MAX_NS: u64 = 1000 * MS;

enum Event {
    Frame {
        from: usize,
        to: End,
        frame: Vec<u8>,
    },
    /// A fault of a path begins or ends.
    Path(usize),
    Wake(usize),
    Disturb(Disturbance),
    Up(usize),
    Start(usize),
    FaultsEnd,
    Drain(usize),
}

struct Rank {
    process: Option<Process>,
    interface: Rc<RefCell<Interface>>,
    /// Offset of its clock from the world's.
    offset_ns: u64,
    paused_until_ns: u64,
    down_until_ns: u64,
    wake_ns: u64,
    /// Remaining program while the rank has no process.
    program: VecDeque<(u64, Action)>,
    is_draining: bool,
}

/// Ranks, network, oracle and pending events.
pub struct World {
    scenario: Scenario,
    ranks: Vec<Rank>,
    network: Network,
    /// With several carriers: the fate of frames on their paths, and the watch over the paths that ranks choose.
    paths: Option<Paths>,
    watch: Watch,
    /// By rank: the cookie of its process.
    cookies: Rc<RefCell<Vec<u64>>>,
    oracle: Oracle,
    rng: Rng,
    agenda: Agenda<Event>,
    now_ns: u64,
    /// Frames in flight.
    in_flight: usize,
    faults_over: bool,
    /// Time of the next check whether everything has ended.
    next_check_ns: u64,
    check_interval_ns: u64,
    message_bytes_max: usize,
    writes: usize,
    report: Report,
    is_traced: bool,
}

impl World {
    pub fn new(scenario: Scenario, seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x0057_ac4b);
        let network = Network::new(&scenario, rng.fork());
        let message_bytes_max = scenario.programs.iter().flatten().map(|(_, action)| match action {
            Action::Send { bytes, .. } => *bytes,
            _ => 0,
        });
        let message_bytes_max = message_bytes_max.max().unwrap_or(0) + SLACK;
        let hosts = scenario.addresses.iter().map(|address| MacAddress(address.mac));
        let mut oracle = Oracle::new(hosts.collect(), scenario.uses_libfabric);
        oracle.buffered_max = scenario.messages.eager_bytes.max(scenario.messages.inject_bytes).max(scenario.mtu);
        let guard_octets = if scenario.endpoint.authentication.is_some() { SEAL_OCTETS } else { CHECK_OCTETS };
        let paths = scenario.topology.clone().map(|topology| {
            oracle.has_lives = scenario.endpoint.framing.token.is_none() && scenario.endpoint.cookie != 0;
            devices::disturb_unconnected(&topology, &mut oracle);
            Paths::new(topology, guard_octets, rng.fork())
        });
        let cookie = |rank| if scenario.endpoint.cookie == 0 { 0 } else { scenario.endpoint.cookie ^ rank << 8 };
        let cookies = (0..scenario.ranks() as u64).map(cookie).collect();
        let ranks = scenario.programs.iter().map(|program| {
            let send_busy = scenario.faults.send_busy;
            Rank {
                process: None,
                interface: Interface::new(Clock::simulated(), send_busy, rng.fork()),
                offset_ns: 0,
                paused_until_ns: 0,
                down_until_ns: 0,
                wake_ns: u64::MAX,
                program: program.iter().copied().collect(),
                is_draining: false,
            }
        });
        let ranks = ranks.collect();
        let mut world = Self {
            ranks,
            network,
            paths,
            watch: Watch::new(STALL_MAX_NS),
            cookies: Rc::new(RefCell::new(cookies)),
            oracle,
            rng,
            agenda: Agenda::new(),
            now_ns: 0,
            in_flight: 0,
            faults_over: false,
            next_check_ns: 0,
            check_interval_ns: 0,
            message_bytes_max,
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
            // Some ranks start after their peers have sent to them.
            let starts = if self.rng.bool() { 0 } else { self.rng.u64(..5 * MS) };
            self.agenda.schedule(starts, Event::Start(rank));
            let is_draining = self.scenario.faults_end_ns + self.rng.u64(1..GRACE_NS);
            self.agenda.schedule(is_draining, Event::Drain(rank));
        }
        for (time, disturbance) in self.scenario.disturbances.clone() {
            self.agenda.schedule(time, Event::Disturb(disturbance));
        }
        if let Some(paths) = &self.paths {
            for (number, fault) in paths.topology.faults.iter().enumerate() {
                self.agenda.schedule(fault.from_ns, Event::Path(number));
                self.agenda.schedule(fault.until_ns, Event::Path(number));
            }
        }
        self.agenda.schedule(self.scenario.faults_end_ns, Event::FaultsEnd);
    }

    /// Runs the world to its end.
    pub fn run(mut self) -> Result<Report, Violation> {
        let patience_ns = self.scenario.patience.as_nanos() as u64;
        // Steps for a peer that is never reached fail one after the other.
        let is_complete = self.scenario.topology.as_ref().is_none_or(Topology::is_complete);
        let steps = self.scenario.programs.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let patiences = if is_complete { 4 } else { 4 + steps };
        // With a window of 1 each frame takes a round trip.
        let round_trips_ns = 10_000 * self.scenario.topology.as_ref().map_or(0, Topology::delay_ns_max);
        let end_ns = self.scenario.faults_end_ns + patiences * patience_ns + round_trips_ns + 10_000 * MS;
        while let Some((time, event)) = self.agenda.next() {
            self.now_ns = time;
            self.report.events += 1;
            self.handle(event);
            if let Some(violation) = self.oracle.violation() {
                return Err(violation.clone());
            }
            if self.faults_over && self.is_over() {
                return self.end();
            }
            if time > end_ns || self.report.events > EVENTS_MAX + time / (1000 * MS) * EVENTS_PER_S {
                break;
            }
        }
        let unfinished: Vec<String> =
            self.ranks.iter().filter_map(|rank| Some(rank.process.as_ref()?.unfinished())).collect();
        let (events, now_ms) = (self.report.events, self.now_ns / MS);
        let limit = if self.now_ns > end_ns { "in time" } else { "with so many events" };
        self.oracle.report(Property::Progress, || {
            format!("not finished {limit} ({events} events in {now_ms} ms): {}", unfinished.join("; "))
        });
        self.oracle.violation().map_or(Ok(self.report), |violation| Err(violation.clone()))
    }

    fn handle(&mut self, event: Event) {
        if self.is_traced {
            self.print_event(&event);
        }
        match event {
            Event::Frame { from, to, frame } => {
                self.in_flight -= usize::from(!watch::is_probe(&frame));
                let rank = &mut self.ranks[to.rank];
                let mut interface = rank.interface.borrow_mut();
                let device = &mut interface.devices[to.device];
                let is_lost = rank.process.is_none() || device.is_down || device.is_gone;
                if is_lost {
                } else if device.inbound.len() >= self.scenario.ring_frames {
                    interface.counters.receive_dropped += 1;
                } else {
                    if self.paths.is_some() {
                        self.watch.arrived(from, to, &frame);
                    }
                    device.inbound.push_back(frame);
                    drop(interface);
                    self.run_rank(to.rank);
                }
            }
            Event::Path(number) => self.path_changed(number),
            Event::Wake(rank) => {
                if self.ranks[rank].wake_ns <= self.now_ns {
                    self.run_rank(rank);
                }
            }
            Event::Start(rank) => self.start(rank),
            Event::Disturb(disturbance) => self.disturb(disturbance),
            Event::Up(rank) => {
                if self.ranks[rank].down_until_ns <= self.now_ns {
                    self.set_devices(rank);
                }
            }
            Event::FaultsEnd => {
                self.faults_over = true;
                self.network.stop_faults();
                for rank in &self.ranks {
                    let mut interface = rank.interface.borrow_mut();
                    (interface.send_busy, interface.busy_until) = (0.0, Duration::ZERO);
                }
            }
            Event::Drain(rank) => {
                self.ranks[rank].is_draining = true;
                if let Some(process) = &mut self.ranks[rank].process {
                    process.start_draining(&mut self.oracle);
                    self.run_rank(rank);
                }
            }
        }
    }

    fn start(&mut self, number: usize) {
        if self.ranks[number].process.is_some() {
            return;
        }
        let rng = self.rng.fork();
        let rank = &mut self.ranks[number];
        let clock = Clock::simulated();
        let send_busy = if self.faults_over { 0.0 } else { self.scenario.faults.send_busy };
        rank.interface = Interface::new(clock.clone(), send_busy, rng.clone());
        self.set_devices(number);
        let rank = &mut self.ranks[number];
        // The host's clock: it has just started, or has run for long.
        rank.offset_ns = if self.rng.bool() { 10 * MS } else { self.rng.u64(10 * MS..1 << 50) };
        clock.set(Duration::from_nanos(self.now_ns + rank.offset_ns));
        let program = std::mem::take(&mut rank.program);
        let (scenario, interface, cookies) = (&self.scenario, &rank.interface, &self.cookies);
        let mut process = Process::new(number, scenario, interface, program, rng, cookies, self.is_traced);
        if rank.is_draining {
            process.start_draining(&mut self.oracle);
        }
        rank.process = Some(process);
        for peer in (0..self.ranks.len()).filter(|peer| *peer != number) {
            let is_undisturbed = |rank: &Rank| rank.paused_until_ns <= self.now_ns && rank.down_until_ns <= self.now_ns;
            let is_there = self.ranks[peer].process.is_some() && is_undisturbed(&self.ranks[peer]);
            let topology = self.scenario.topology.as_ref();
            if is_there
                && is_undisturbed(&self.ranks[number])
                && topology.is_none_or(|topology| topology.reaches(number, peer))
            {
                self.oracle.renewed(number, peer);
            }
        }
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
                entry.interface.borrow_mut().go_down(None);
                let until_ns = entry.down_until_ns;
                self.agenda.schedule(until_ns, Event::Up(rank));
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
                    self.watch.ended(rank);
                    if self.oracle.has_lives {
                        self.cookies.borrow_mut()[rank] = self.rng.u64(1..);
                    }
                }
                entry.wake_ns = u64::MAX;
                entry.paused_until_ns = 0;
                self.agenda.schedule(now_ns + after_ns, Event::Start(rank));
                self.wake_local_peers(rank);
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
        let mut until = rank.paused_until_ns;
        let is_paused = until > self.now_ns;
        if !is_paused {
            let mut interface = rank.interface.borrow_mut();
            interface.ahead_ns = 0;
            interface.clock.set(Duration::from_nanos(self.now_ns + rank.offset_ns));
        }
        if !is_paused && process.computes_until_ns > self.now_ns {
            until = process.compute(self.now_ns);
        }
        if until > self.now_ns {
            self.watch.was_absent(number);
            if rank.wake_ns > until || rank.wake_ns <= self.now_ns {
                rank.wake_ns = until;
                self.agenda.schedule(until, Event::Wake(number));
            }
            if !is_paused {
                self.transmit_from(number);
                self.wake_local_peers(number);
            }
            return;
        }
        let mut shared = Shared {
            oracle: &mut self.oracle,
            writes: self.writes,
            done_writes: Vec::new(),
            message_bytes_max: self.message_bytes_max,
            unexpected_bytes: self.scenario.messages.unexpected_bytes,
        };
        let next = process.run(self.now_ns, &mut shared);
        self.writes = shared.writes;
        let done_writes = shared.done_writes;
        self.check_completed_writes(done_writes);
        self.transmit_from(number);
        self.wake_local_peers(number);
        match next {
            Next::After(time_ns) => {
                let rank = &mut self.ranks[number];
                let ahead_ns = std::mem::take(&mut rank.interface.borrow_mut().ahead_ns);
                rank.paused_until_ns = self.now_ns + ahead_ns;
                // A sleep on a readable descriptor ends at once.
                let has_frames = self.paths.is_some() && rank.interface.borrow().has_frames();
                let time_ns = if has_frames { US } else { time_ns };
                rank.wake_ns = rank.paused_until_ns.saturating_add(time_ns.max(1));
                let wake_ns = rank.wake_ns;
                self.agenda.schedule(wake_ns, Event::Wake(number));
            }
            Next::Livelock => {
                self.oracle.report(Property::Progress, || format!("{number} never becomes idle"));
            }
        }
    }

    /// Checks that completed writes are in their targets' memory.
    fn check_completed_writes(&mut self, done: Vec<((usize, usize, usize), usize)>) {
        for (schedule, number) in done {
            let process = self.ranks[schedule.1].process.as_ref();
            self.oracle.write_completed(schedule, number, process.map(Process::memory));
        }
    }

    /// Moves a rank's sent frames to the network.
    fn transmit_from(&mut self, from: usize) {
        let sent = std::mem::take(&mut self.ranks[from].interface.borrow_mut().outbound);
        let mut arrivals = Vec::new();
        let mut lanes = Vec::new();
        for Outbound { after_ns, device, label, is_in_batch, frame } in sent {
            self.report.frames += 1;
            // A frame to any other destination leaves the network.
            let lane = self.lane(End { rank: from, device }, &frame).map(|lane| Lane { label, is_in_batch, ..lane });
            lanes.extend(lane.map(|lane| (self.now_ns + after_ns, lane, frame)));
        }
        if let Some(paths) = &self.paths {
            self.watch.sent(&paths.topology, &mut self.oracle, &lanes);
        }
        for (time, lane, mut frame) in lanes {
            if let Some(paths) = &mut self.paths {
                let released = paths.released_by(from, lane.to.rank, &frame);
                let to = lane.to.rank;
                arrivals.extend(
                    released.map(|(device, frame)| (from, End { rank: to, device }, time + lane.delay_ns, frame)),
                );
                paths.readdress(&lane, &mut frame);
                match paths.fate(&lane, &frame, time) {
                    Fate::Passes => {}
                    Fate::Lost => continue,
                    Fate::LostAsLong => {
                        self.watch.lost_long(&mut self.oracle, &lane, &frame, time);
                        continue;
                    }
                    Fate::Held { until_ns } => {
                        arrivals.push((from, lane.to, until_ns.max(time) + lane.delay_ns, frame));
                        continue;
                    }
                }
            }
            let arrive = &mut |time, frame| arrivals.push((from, lane.to, time, frame));
            self.network.transmit(&lane, frame, time, arrive);
        }
        self.arrive(arrivals);
    }

    /// The rank that receives a frame: the one on the destination host with the frame's DSAP.
    fn addressee(&self, frame: &[u8]) -> Option<usize> {
        let dsap = *parse(frame)?.llc.first()?;
        let addresses = &self.scenario.addresses;
        addresses.iter().position(|address| frame.starts_with(&address.mac) && address.sap.byte() == dsap)
    }

    /// Schedules the ranks on the same host whose doorbells were rung.
    fn wake_local_peers(&mut self, of: usize) {
        if self.scenario.endpoint.local.is_none() {
            return;
        }
        for number in 0..self.ranks.len() {
            let addresses = &self.scenario.addresses;
            if number == of || addresses[number].mac != addresses[of].mac {
                continue;
            }
            let rank = &mut self.ranks[number];
            if rank.process.as_mut().is_some_and(Process::is_rung) {
                // A paused rank hears it afterwards, once.
                let time_ns = (self.now_ns + self.rng.u64(..WAKE_MAX_NS)).max(rank.paused_until_ns);
                if time_ns < rank.wake_ns {
                    rank.wake_ns = time_ns;
                    self.agenda.schedule(time_ns, Event::Wake(number));
                }
            }
        }
    }

    fn arrive(&mut self, arrivals: Vec<(usize, End, u64, Vec<u8>)>) {
        for (from, to, time, frame) in arrivals {
            // Probes are sent for as long as stations exist, so they are not waited for.
            self.in_flight += usize::from(!watch::is_probe(&frame));
            self.agenda.schedule(time, Event::Frame { from, to, frame });
        }
    }

    /// Whether everything has ended.
    fn is_over(&mut self) -> bool {
        if self.now_ns < self.next_check_ns || !self.is_quiescent() {
            return false;
        }
        // Back off: `is_settled` requests acknowledgements from all peers.
        self.check_interval_ns = (self.check_interval_ns * 2).clamp(CHECK_INTERVAL_NS, 100 * CHECK_INTERVAL_NS);
        self.next_check_ns = self.now_ns + self.check_interval_ns;
        let mut is_settled = true;
        // What a rank puts into a pipe, the ranks before it see in their next run. A message over a new pipe to a peer
        // takes three more: the pipe is accepted, the end of the old one is read, and then what is in the new one.
        let ranks = self.ranks.len();
        for rank in (0..4 * ranks).map(|run| run % ranks) {
            if let Some(process) = &mut self.ranks[rank].process {
                is_settled &= process.is_settled(&mut self.oracle);
            }
            self.transmit_from(rank);
            self.run_rank(rank);
        }
        if !is_settled || !self.is_quiescent() {
            return false;
        }
        // A dead peer is noticed after its last message: a matched receive may still complete or fail. The processes
        // post new drain receives in place of the cancelled ones.
        let mut processes = self.ranks.iter_mut().filter_map(|rank| rank.process.as_mut());
        processes.all(|process| process.cancel_receives(&mut self.oracle) == 0)
    }

    /// Whether no frame is in flight and all processes are done.
    fn is_quiescent(&mut self) -> bool {
        let is_done = |rank: &mut Rank| {
            !rank.interface.borrow().has_frames()
                && rank
                    .process
                    .as_mut()
                    .is_some_and(|process| process.is_draining() && process.is_done() && !process.is_rung())
        };
        self.in_flight == 0 && self.ranks.iter_mut().all(is_done)
    }

    fn end(mut self) -> Result<Report, Violation> {
        for rank in 0..self.ranks.len() {
            self.now_ns = self.now_ns.max(self.ranks[rank].paused_until_ns);
            if let Some(process) = &mut self.ranks[rank].process {
                process.end_draining(&mut self.oracle);
                self.now_ns = self.now_ns.max(process.computes_until_ns);
            }
            self.run_rank(rank);
        }
        for rank in &mut self.ranks {
            if let Some(process) = &mut rank.process {
                process.check_end(&mut self.oracle);
            }
        }
        let memories: Vec<_> = self.ranks.iter().map(|rank| Some(rank.process.as_ref()?.memory())).collect();
        self.oracle.check_end(&memories);
        self.report.messages = self.oracle.messages.len() as u64;
        self.report.over_ns = self.now_ns;
        self.report.stall_ns_max = self.watch.stall_ns_max;
        self.report.narrow_ns_max = self.watch.narrow_ns_max;
        self.oracle.violation().map_or(Ok(self.report), |violation| Err(violation.clone()))
    }

    fn print_event(&self, event: &Event) {
        let time_us = self.now_ns as f64 / 1000.0;
        match event {
            Event::Frame { from, to, frame } => {
                let text = match parse(frame).map(|frame| Pdu::decode(frame.llc)) {
                    Some(Ok(pdu)) => format!("{:?}", pdu.body),
                    other => format!("{other:?}"),
                };
                let text = watch::described(frame).unwrap_or(text);
                let text = text.split(", information").next().unwrap_or_default();
                println!("{time_us:12.1} us {from} -> {}.{}  {} bytes, {text}", to.rank, to.device, frame.len());
            }
            Event::Wake(_) => {}
            Event::Path(number) => {
                let fault = self.paths.as_ref().map(|paths| paths.topology.faults[*number]);
                println!("{time_us:12.1} us {fault:?}");
            }
            Event::Disturb(disturbance) => println!("{time_us:12.1} us {disturbance:?}"),
            Event::Up(rank) => println!("{time_us:12.1} us {rank} up"),
            Event::Start(rank) => println!("{time_us:12.1} us {rank} begins"),
            Event::FaultsEnd => println!("{time_us:12.1} us faults stop"),
            Event::Drain(rank) => println!("{time_us:12.1} us {rank} drains"),
        }
    }
}
