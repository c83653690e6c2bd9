// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The world: hosts on a bridge, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use barewire_llc::{Instant, Pdu};
use fastrand::Rng;

use crate::checks::{Checks, Violation};
use crate::host::{Host, Shared, Whim};
use crate::network::{Frame, Wire};
use crate::scenario::{Faults, MS, Scenario};

/// Longest time after the faults stopped in which all must be over: stalls, retries and the silence timer
/// of the scenarios take less.
const QUIET_NS: u64 = 20_000 * MS;
/// Longest time of the epilogue: one more connection, which must succeed.
const EPILOGUE_NS: u64 = 20_000 * MS;
const EPILOGUE_DELAY_NS: u64 = 100 * MS;
/// Loss during the epilogue: recovery must work, and N2 repetitions are enough.
const EPILOGUE_LOSS: f64 = 0.01;
/// More than any world needs.
const EVENTS: u64 = 5_000_000;

/// What happened in a world without a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Things that happened.
    pub events: u64,
    /// Frames that hosts sent.
    pub frames: u64,
    /// Streams of messages that were begun.
    pub streams: u32,
    /// Virtual time until all was over.
    pub over_ns: u64,
}

/// Runs the world of a scenario to its end.
///
/// # Errors
/// The first promise that was broken.
pub fn run(scenario: Scenario, seed: u64) -> Result<Report, Violation> {
    World::new(scenario, seed).run()
}

/// The same, printing every frame that reaches a host.
///
/// # Errors
/// As [`run`].
pub fn trace(scenario: Scenario, seed: u64) -> Result<Report, Violation> {
    let mut world = World::new(scenario, seed);
    world.is_traced = true;
    world.run()
}

/// Hosts, wires, and what is going to happen.
pub struct World {
    hosts: Vec<Host>,
    /// From each host to the bridge, and from the bridge to each host.
    up: Vec<Wire>,
    down: Vec<Wire>,
    shared: Shared,
    happenings: BinaryHeap<Reverse<(u64, u64)>>,
    what: Vec<Option<Happening>>,
    free: Vec<usize>,
    order: u64,
    now_ns: u64,
    report: Report,
    is_traced: bool,
    /// When the epilogue must be over, once it has begun.
    epilogue_until_ns: Option<u64>,
}

enum Happening {
    AtBridge(Frame),
    AtHost(usize, Frame),
    Wake(usize),
    Act(usize, Whim),
    LinkDown { host: usize, is_up: bool, for_ns: u64 },
    Pause { host: usize, for_ns: u64 },
    Restart(usize),
    Quiet,
    AbortAll,
    Epilogue,
}

impl World {
    /// A world before its first moment.
    #[must_use]
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let mut shared = Shared {
            rng: Rng::with_seed(seed ^ 0x5eed),
            checks: Checks::new(scenario.has_garbage()),
            streams: 0,
            datagrams: 0,
            incarnations: 0,
            is_quiet: false,
            is_epilogue: false,
            scenario,
        };
        let count = shared.scenario.hosts;
        let wires = |scenario: &Scenario| (0..count).map(|_| Wire::new(scenario)).collect();
        let (up, down) = (wires(&shared.scenario), wires(&shared.scenario));
        let hosts = (0..count).map(|number| Host::new(number, &mut shared, Instant::default())).collect();
        let mut world = Self {
            hosts,
            up,
            down,
            shared,
            happenings: BinaryHeap::new(),
            what: Vec::new(),
            free: Vec::new(),
            order: 0,
            now_ns: 0,
            report: Report::default(),
            is_traced: false,
            epilogue_until_ns: None,
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        let scenario = self.shared.scenario.clone();
        let (count, end) = (scenario.hosts, scenario.quiet_from_ns);
        let mut rng = self.shared.rng.fork();
        for host in 0..count {
            for _ in 0..scenario.connections {
                let peer = (host + rng.usize(1..count)) % count;
                self.at(rng.u64(..end * 3 / 4), Happening::Act(host, Whim::Connect(peer)));
            }
            for _ in 0..rng.usize(..10) {
                let peer = (host + rng.usize(1..count)) % count;
                self.at(rng.u64(end / 2..end), Happening::Act(host, Whim::Datagram(peer)));
            }
            for _ in 0..rng.usize(..3) {
                let start = rng.u64(..end);
                self.at(start, Happening::Act(host, Whim::Busy));
                self.at(start + rng.u64(..20 * MS), Happening::Act(host, Whim::Ready));
            }
            let leave = [Whim::Disconnect, Whim::Abort, Whim::Reset];
            for _ in 0..rng.usize(..3) * usize::from(rng.bool()) {
                self.at(rng.u64(..end), Happening::Act(host, leave[rng.usize(..3)]));
            }
        }
        let [downs, pauses, restarts] = scenario.outages;
        for _ in 0..downs {
            let (host, is_up, for_ns) = (rng.usize(..count), rng.bool(), rng.u64(..30 * MS));
            self.at(rng.u64(..end), Happening::LinkDown { host, is_up, for_ns });
        }
        for _ in 0..pauses {
            // Shorter than type 3 remembers its sequence bits.
            let (host, for_ns) = (rng.usize(..count), rng.u64(..20 * MS));
            self.at(rng.u64(..end), Happening::Pause { host, for_ns });
        }
        for _ in 0..restarts {
            self.at(rng.u64(..end), Happening::Restart(rng.usize(..count)));
        }
        self.at(end, Happening::Quiet);
        if scenario.has_garbage() {
            self.at(end + QUIET_NS * 3 / 4, Happening::AbortAll);
        }
    }

    /// Lets it all happen.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn run(mut self) -> Result<Report, Violation> {
        let quiet_until_ns = self.shared.scenario.quiet_from_ns + QUIET_NS;
        while let Some(Reverse((time, key))) = self.happenings.pop() {
            self.now_ns = time;
            self.report.events += 1;
            let slot = (key & 0xffff_ffff) as usize;
            self.free.push(slot);
            if let Some(happening) = self.what[slot].take() {
                self.happen(happening);
            }
            if let Some(violation) = self.shared.checks.violation.take() {
                return Err(violation);
            }
            if self.shared.is_epilogue && self.hosts.iter().all(Host::is_over) {
                break;
            }
            if self.shared.is_quiet && self.epilogue_until_ns.is_none() && self.hosts.iter().all(Host::is_over) {
                // When nothing of the last connections is on the wires any more.
                self.epilogue_until_ns = Some(time + EPILOGUE_NS);
                self.at(time + EPILOGUE_DELAY_NS, Happening::Epilogue);
            }
            if time > self.epilogue_until_ns.unwrap_or(quiet_until_ns) || self.report.events > EVENTS {
                if self.is_traced {
                    self.hosts.iter().for_each(|host| println!("{}", host.describe()));
                }
                return Err(Violation::NoProgress { what: "connections that do not end" });
            }
        }
        if !self.hosts.iter().all(Host::is_over) || !self.shared.is_epilogue {
            return Err(Violation::NoProgress { what: "connections that nothing drives" });
        }
        self.report.streams = self.shared.streams;
        self.report.over_ns = self.now_ns;
        Ok(self.report)
    }

    fn happen(&mut self, happening: Happening) {
        let now = Instant::from_nanos(self.now_ns);
        if self.is_traced {
            self.tell(&happening);
        }
        match happening {
            Happening::AtBridge(frame) => {
                // Addresses are the hosts' numbers: the bridge has learnt them all.
                let host = usize::from(frame.destination[5]);
                if host < self.hosts.len() {
                    self.transmit(host, false, frame);
                }
            }
            Happening::AtHost(host, frame) => {
                let entry = &mut self.hosts[host];
                if entry.paused_until_ns > self.now_ns {
                    if entry.waiting.len() < self.shared.scenario.queue_frames {
                        entry.waiting.push_back(frame);
                    }
                    return;
                }
                let reply = entry.receive(&frame, &mut self.shared, now);
                reply.into_iter().for_each(|reply| self.transmit(host, true, reply));
                self.run_host(host);
            }
            Happening::Wake(host) => {
                let entry = &mut self.hosts[host];
                if entry.wake_ns != self.now_ns {
                    return;
                }
                entry.wake_ns = u64::MAX;
                while let Some(frame) = self.hosts[host].waiting.pop_front() {
                    let reply = self.hosts[host].receive(&frame, &mut self.shared, now);
                    reply.into_iter().for_each(|reply| self.transmit(host, true, reply));
                }
                self.hosts[host].station.handle_timeout(now);
                self.run_host(host);
            }
            Happening::Act(host, whim) => {
                if self.hosts[host].paused_until_ns <= self.now_ns {
                    self.hosts[host].act(whim, &mut self.shared, now);
                    self.run_host(host);
                } else if matches!(whim, Whim::Ready) {
                    self.at(self.hosts[host].paused_until_ns + 1, Happening::Act(host, whim));
                }
            }
            Happening::LinkDown { host, is_up, for_ns } => {
                let wire = if is_up { &mut self.up[host] } else { &mut self.down[host] };
                wire.take_down(self.now_ns + for_ns);
            }
            Happening::Pause { host, for_ns } => {
                self.hosts[host].paused_until_ns = self.now_ns + for_ns;
                self.hosts[host].wake_ns = self.now_ns + for_ns;
                self.at(self.now_ns + for_ns, Happening::Wake(host));
            }
            Happening::Restart(host) => {
                self.hosts[host] = Host::new(host, &mut self.shared, now);
                self.run_host(host);
            }
            Happening::AbortAll if self.shared.is_epilogue => {}
            Happening::AbortAll => {
                for host in 0..self.hosts.len() {
                    self.hosts[host].abort_all(now);
                    self.run_host(host);
                }
            }
            Happening::Epilogue => {
                self.shared.is_epilogue = true;
                self.shared.scenario.faults.loss = EPILOGUE_LOSS;
                self.happen(Happening::Act(0, Whim::Connect(1)));
            }
            Happening::Quiet => {
                self.shared.is_quiet = true;
                self.shared.scenario.faults = Faults::default();
                for host in 0..self.hosts.len() {
                    for is_up in [true, false] {
                        self.release(host, is_up);
                    }
                }
            }
        }
    }

    fn tell(&self, happening: &Happening) {
        let time_us = self.now_ns as f64 / 1000.0;
        match happening {
            Happening::AtHost(host, frame) => {
                let text = match Pdu::decode(&frame.bytes) {
                    Ok(pdu) => format!("{:?}", pdu.body),
                    Err(malformed) => format!("{malformed:?} {:02x?}", frame.bytes),
                };
                println!("{time_us:12.1} us  {} -> {host}  {text}", frame.source[5]);
            }
            Happening::Act(host, whim) => println!("{time_us:12.1} us  {host} {whim:?}"),
            Happening::Pause { host, for_ns } => println!("{time_us:12.1} us  {host} pauses for {for_ns} ns"),
            Happening::Restart(host) => println!("{time_us:12.1} us  {host} restarts"),
            Happening::LinkDown { host, is_up, for_ns } => {
                println!("{time_us:12.1} us  link of {host} down (up {is_up}) for {for_ns} ns");
            }
            Happening::Quiet => println!("{time_us:12.1} us  faults stop"),
            Happening::AbortAll => println!("{time_us:12.1} us  all abort"),
            Happening::Epilogue => println!("{time_us:12.1} us  epilogue"),
            Happening::AtBridge(_) | Happening::Wake(_) => {}
        }
    }

    fn run_host(&mut self, host: usize) {
        let now = Instant::from_nanos(self.now_ns);
        for frame in self.hosts[host].run(&mut self.shared, now) {
            self.transmit(host, true, frame);
        }
        let entry = &mut self.hosts[host];
        if let Some(deadline) = entry.station.next_deadline() {
            let deadline = deadline.as_nanos().max(self.now_ns).max(entry.paused_until_ns);
            if deadline < entry.wake_ns {
                entry.wake_ns = deadline;
                self.at(deadline, Happening::Wake(host));
            }
        }
    }

    fn transmit(&mut self, host: usize, is_up: bool, frame: Frame) {
        self.report.frames += u64::from(is_up);
        let wire = if is_up { &mut self.up[host] } else { &mut self.down[host] };
        let faults = self.shared.scenario.faults;
        let mut arrivals = Vec::new();
        let mut arrive = |time, frame| arrivals.push((time, frame));
        wire.send(frame, self.now_ns, &faults, &mut self.shared.rng, &mut arrive);
        self.arrive(host, is_up, arrivals);
    }

    fn release(&mut self, host: usize, is_up: bool) {
        let wire = if is_up { &mut self.up[host] } else { &mut self.down[host] };
        let mut arrivals = Vec::new();
        wire.release(self.now_ns, &mut self.shared.rng, &mut |time, frame| arrivals.push((time, frame)));
        self.arrive(host, is_up, arrivals);
    }

    fn arrive(&mut self, host: usize, is_up: bool, arrivals: Vec<(u64, Frame)>) {
        for (time, frame) in arrivals {
            self.at(time, if is_up { Happening::AtBridge(frame) } else { Happening::AtHost(host, frame) });
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
