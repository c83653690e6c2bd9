// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated world: hosts on a bridge, in virtual time.

use barewire_llc::{Instant, Pdu};
use fastrand::Rng;

use crate::agenda::Agenda;
use crate::checks::{Checks, Violation};
use crate::host::{Action, Host, Shared};
use crate::network::{Frame, Wire};
use crate::scenario::{Faults, MS, Scenario};

/// Time limit for all connections to end after the faults: stalls, retries and the inactivity timer take less.
const END_LIMIT_NS: u64 = 20_000 * MS;
/// Time limit of the epilogue: one more connection, which must succeed.
const EPILOGUE_LIMIT_NS: u64 = 20_000 * MS;
const EPILOGUE_DELAY_NS: u64 = 100 * MS;
/// Loss during the epilogue: recovery is exercised, and N2 retries suffice.
const EPILOGUE_LOSS: f64 = 0.01;
/// More events than any world needs.
const EVENTS_MAX: u64 = 5_000_000;

/// Summary of a world without a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events processed.
    pub events: u64,
    /// Frames sent by hosts.
    pub frames: u64,
    /// Message streams begun.
    pub streams: u32,
    /// Virtual time at the end.
    pub over_ns: u64,
}

/// Runs the world of a scenario to its end.
///
/// # Errors
/// The first violation.
pub fn run(scenario: Scenario, seed: u64) -> Result<Report, Violation> {
    World::new(scenario, seed).run()
}

/// As [`run`], printing every frame that reaches a host.
///
/// # Errors
/// As [`run`].
pub fn trace(scenario: Scenario, seed: u64) -> Result<Report, Violation> {
    let mut world = World::new(scenario, seed);
    world.is_traced = true;
    world.run()
}

/// Hosts, wires, and pending events.
pub struct World {
    hosts: Vec<Host>,
    /// From each host to the bridge.
    up: Vec<Wire>,
    /// From the bridge to each host.
    down: Vec<Wire>,
    shared: Shared,
    agenda: Agenda<Event>,
    now_ns: u64,
    report: Report,
    is_traced: bool,
    /// Deadline of the epilogue, once it is scheduled.
    epilogue_until_ns: Option<u64>,
}

enum Event {
    AtBridge(Frame),
    AtHost(usize, Frame),
    Wake(usize),
    Act(usize, Action),
    LinkDown { host: usize, is_up: bool, for_ns: u64 },
    Pause { host: usize, for_ns: u64 },
    Restart(usize),
    FaultsEnd,
    AbortAll,
    Epilogue,
}

impl World {
    /// A world at time 0, with all planned events scheduled.
    #[must_use]
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let mut shared = Shared {
            rng: Rng::with_seed(seed ^ 0x5eed),
            checks: Checks::new(scenario.has_undetected_corruption()),
            streams: 0,
            datagrams: 0,
            incarnations: 0,
            faults_over: false,
            in_epilogue: false,
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
            agenda: Agenda::new(),
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
        let (count, end) = (scenario.hosts, scenario.faults_end_ns);
        let mut rng = self.shared.rng.fork();
        for host in 0..count {
            for _ in 0..scenario.connections {
                let peer = (host + rng.usize(1..count)) % count;
                self.agenda.schedule(rng.u64(..end * 3 / 4), Event::Act(host, Action::Connect(peer)));
            }
            for _ in 0..rng.usize(..10) {
                let peer = (host + rng.usize(1..count)) % count;
                self.agenda.schedule(rng.u64(end / 2..end), Event::Act(host, Action::Datagram(peer)));
            }
            for _ in 0..rng.usize(..3) {
                let start = rng.u64(..end);
                self.agenda.schedule(start, Event::Act(host, Action::Busy));
                self.agenda.schedule(start + rng.u64(..20 * MS), Event::Act(host, Action::Ready));
            }
            let leave = [Action::Disconnect, Action::Abort, Action::Reset];
            for _ in 0..rng.usize(..3) * usize::from(rng.bool()) {
                self.agenda.schedule(rng.u64(..end), Event::Act(host, leave[rng.usize(..3)]));
            }
        }
        let [downs, pauses, restarts] = scenario.outages;
        for _ in 0..downs {
            let (host, is_up, for_ns) = (rng.usize(..count), rng.bool(), rng.u64(..30 * MS));
            self.agenda.schedule(rng.u64(..end), Event::LinkDown { host, is_up, for_ns });
        }
        for _ in 0..pauses {
            // Shorter than the lifetime of type 3's sequence bits.
            let (host, for_ns) = (rng.usize(..count), rng.u64(..20 * MS));
            self.agenda.schedule(rng.u64(..end), Event::Pause { host, for_ns });
        }
        for _ in 0..restarts {
            self.agenda.schedule(rng.u64(..end), Event::Restart(rng.usize(..count)));
        }
        self.agenda.schedule(end, Event::FaultsEnd);
        if scenario.has_undetected_corruption() {
            self.agenda.schedule(end + END_LIMIT_NS * 3 / 4, Event::AbortAll);
        }
    }

    /// Runs the world to its end.
    ///
    /// # Errors
    /// The first violation.
    pub fn run(mut self) -> Result<Report, Violation> {
        let quiet_until_ns = self.shared.scenario.faults_end_ns + END_LIMIT_NS;
        while let Some((time, event)) = self.agenda.next() {
            self.now_ns = time;
            self.report.events += 1;
            self.handle(event);
            if let Some(violation) = self.shared.checks.violation.take() {
                return Err(violation);
            }
            if self.shared.in_epilogue && self.hosts.iter().all(Host::is_over) {
                break;
            }
            if self.shared.faults_over && self.epilogue_until_ns.is_none() && self.hosts.iter().all(Host::is_over) {
                // After a delay in which the last frames leave the wires.
                self.epilogue_until_ns = Some(time + EPILOGUE_LIMIT_NS);
                self.agenda.schedule(time + EPILOGUE_DELAY_NS, Event::Epilogue);
            }
            if time > self.epilogue_until_ns.unwrap_or(quiet_until_ns) || self.report.events > EVENTS_MAX {
                if self.is_traced {
                    self.hosts.iter().for_each(|host| println!("{}", host.describe()));
                }
                return Err(Violation::NoProgress { what: "connections that do not end" });
            }
        }
        if !self.hosts.iter().all(Host::is_over) || !self.shared.in_epilogue {
            return Err(Violation::NoProgress { what: "connections that nothing drives" });
        }
        self.report.streams = self.shared.streams;
        self.report.over_ns = self.now_ns;
        Ok(self.report)
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::from_nanos(self.now_ns);
        if self.is_traced {
            self.print_event(&event);
        }
        match event {
            Event::AtBridge(frame) => {
                // The last octet of an address is the host's number.
                let host = usize::from(frame.destination[5]);
                if host < self.hosts.len() {
                    self.transmit(host, false, frame);
                }
            }
            Event::AtHost(host, frame) => {
                let entry = &mut self.hosts[host];
                if entry.paused_until_ns > self.now_ns {
                    if entry.queued.len() < self.shared.scenario.queue_frames {
                        entry.queued.push_back(frame);
                    }
                    return;
                }
                let reply = entry.receive(&frame, &mut self.shared, now);
                reply.into_iter().for_each(|reply| self.transmit(host, true, reply));
                self.run_host(host);
            }
            Event::Wake(host) => {
                let entry = &mut self.hosts[host];
                if entry.wake_ns != self.now_ns {
                    return;
                }
                entry.wake_ns = u64::MAX;
                while let Some(frame) = self.hosts[host].queued.pop_front() {
                    let reply = self.hosts[host].receive(&frame, &mut self.shared, now);
                    reply.into_iter().for_each(|reply| self.transmit(host, true, reply));
                }
                self.hosts[host].station.handle_timeout(now);
                self.run_host(host);
            }
            Event::Act(host, action) => {
                if self.hosts[host].paused_until_ns <= self.now_ns {
                    self.hosts[host].act(action, &mut self.shared, now);
                    self.run_host(host);
                } else if matches!(action, Action::Ready) {
                    self.agenda.schedule(self.hosts[host].paused_until_ns + 1, Event::Act(host, action));
                }
            }
            Event::LinkDown { host, is_up, for_ns } => {
                let wire = if is_up { &mut self.up[host] } else { &mut self.down[host] };
                wire.take_down(self.now_ns + for_ns);
            }
            Event::Pause { host, for_ns } => {
                self.hosts[host].paused_until_ns = self.now_ns + for_ns;
                self.hosts[host].wake_ns = self.now_ns + for_ns;
                self.agenda.schedule(self.now_ns + for_ns, Event::Wake(host));
            }
            Event::Restart(host) => {
                self.hosts[host] = Host::new(host, &mut self.shared, now);
                self.run_host(host);
            }
            Event::AbortAll if self.shared.in_epilogue => {}
            Event::AbortAll => {
                for host in 0..self.hosts.len() {
                    self.hosts[host].abort_all(now);
                    self.run_host(host);
                }
            }
            Event::Epilogue => {
                self.shared.in_epilogue = true;
                self.shared.scenario.faults.loss = EPILOGUE_LOSS;
                self.handle(Event::Act(0, Action::Connect(1)));
            }
            Event::FaultsEnd => {
                self.shared.faults_over = true;
                self.shared.scenario.faults = Faults::default();
                for host in 0..self.hosts.len() {
                    for is_up in [true, false] {
                        self.release(host, is_up);
                    }
                }
            }
        }
    }

    fn print_event(&self, event: &Event) {
        let time_us = self.now_ns as f64 / 1000.0;
        match event {
            Event::AtHost(host, frame) => {
                let text = match Pdu::decode(&frame.bytes) {
                    Ok(pdu) => format!("{:?}", pdu.body),
                    Err(malformed) => format!("{malformed:?} {:02x?}", frame.bytes),
                };
                println!("{time_us:12.1} us  {} -> {host}  {text}", frame.source[5]);
            }
            Event::Act(host, action) => println!("{time_us:12.1} us  {host} {action:?}"),
            Event::Pause { host, for_ns } => println!("{time_us:12.1} us  {host} pauses for {for_ns} ns"),
            Event::Restart(host) => println!("{time_us:12.1} us  {host} restarts"),
            Event::LinkDown { host, is_up, for_ns } => {
                println!("{time_us:12.1} us  link of {host} down (up {is_up}) for {for_ns} ns");
            }
            Event::FaultsEnd => println!("{time_us:12.1} us  faults stop"),
            Event::AbortAll => println!("{time_us:12.1} us  all abort"),
            Event::Epilogue => println!("{time_us:12.1} us  epilogue"),
            Event::AtBridge(_) | Event::Wake(_) => {}
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
                self.agenda.schedule(deadline, Event::Wake(host));
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
            self.agenda.schedule(time, if is_up { Event::AtBridge(frame) } else { Event::AtHost(host, frame) });
        }
    }
}
