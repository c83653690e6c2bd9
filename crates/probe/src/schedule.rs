// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedules the blocks of a launch: for each size a short one to estimate the speed, warm-up, then samples until there
//! are enough or time is up. All pairs run the same block at once; processes also start and end it together
//! ([`together`]).

mod overlap;
mod together;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};

use nix::poll::PollTimeout;

use crate::client::{BlockResult, Command, Event, Failure, Opened, ScheduleHandle, run_pair};
use crate::control::{Address, Channel};
use crate::measure::INTERRUPTED;
use crate::member;
use crate::protocol::{Block, Host, Session, Test};
use crate::rate_search::RateSearch;
use crate::record::{End, Phase, Quantity, Record, SCHEMA, Start, Values};
use crate::server::describe_host;
use crate::transport::{Counters, LocalConfig};
use barewire_recorder::clock::{Clock, now_ns};
use barewire_recorder::{LaunchError, cpu, peak_rss_kib, write};

/// One launch of the active side.
pub struct Plan {
    pub peer: Address,
    pub local: LocalConfig,
    pub cpus: Option<Vec<usize>>,
    pub test: Test,
    /// The first pair's session; the others differ in the pair's number.
    pub session: Session,
    pub sizes: Vec<u32>,
    /// Samples per size.
    pub samples: u32,
    /// Time limit per size.
    pub seconds: f64,
    pub warmup: u32,
    /// Blocks of a stream per size; each is one sample.
    pub blocks: u32,
    /// Wire rate of the link, if known: sending faster would lose messages.
    pub rate_bit_s: Option<f64>,
}

/// Most payload of a stream's block: at 25 Gb/s more than a millisecond, and it fits caches and memory.
const STREAM_BLOCK_BYTES: u32 = 4 << 20;
const STREAM_BLOCK_MESSAGES: u32 = 16_384;
/// Least messages of a stream's block.
const STREAM_MESSAGES_MIN: u32 = 4;
/// Lead-in of a stream: more than the burst allowance of a shaped link.
const STREAM_LEAD_IN_BYTES: u32 = 128 << 10;
const STREAM_LEAD_IN_MESSAGES: u32 = 2048;
/// Target maximum duration of a block, so that an interrupt is noticed soon.
const BLOCK_NS: f64 = 50e6;
const ROUND_TRIPS_PER_BLOCK: u32 = 1000;
/// Round trips of the first block of a size.
const FIRST_MESSAGES: u32 = 4;
/// If every block has loss, the search for a pace ends after this multiple of the requested blocks.
const LOSSY_BLOCKS_FACTOR: u32 = 3;
/// The time limit ends the search after at least this many blocks.
const LOSSY_BLOCKS_MIN: u32 = 30;

/// Runs the plan and writes its records. An end record is written even on failure.
pub fn run(plan: &Plan, output: &mut impl Write) -> Result<(), LaunchError> {
    let (event_sender, events) = mpsc::channel();
    let mut processes = Vec::new();
    let result = std::thread::scope(|scope| {
        let mut commands = Vec::new();
        for pair in 0..plan.session.pairs {
            let (sender, receiver) = mpsc::channel();
            commands.push(sender);
            let session = Session { pair, session: plan.session.session | u32::from(pair), ..plan.session.clone() };
            let cpu = plan.cpu_of(pair);
            let mut thread_schedule = ThreadSchedule { pair, commands: receiver, events: event_sender.clone() };
            if session.processes {
                let (process, channel) = match member::drive(&plan.peer, &session, &plan.local, cpu) {
                    Ok(started) => started,
                    Err(error) => {
                        kill_all(&mut processes);
                        return Err(error);
                    }
                };
                processes.push(process);
                scope.spawn(move || relay(channel, &mut thread_schedule));
            } else {
                scope.spawn(move || run_pair(&plan.peer, &session, &plan.local, cpu, &mut thread_schedule));
            }
        }
        drop(event_sender);
        let schedule = Schedule {
            plan,
            next_sequence: vec![0; commands.len()],
            commands,
            events,
            output,
            processes: &mut processes,
            counters: BTreeMap::new(),
            rate: RateSearch::new(plan.rate_bit_s),
        };
        // When it returns, the pairs' channels close, which ends them.
        let result = schedule.run();
        if result.is_err() {
            kill_all(&mut processes);
        }
        result
    });
    for process in &mut processes {
        // Reap it; its exit status does not matter.
        let _ = process.wait();
    }
    result
}

/// Kills processes that may be in the middle of a block.
fn kill_all(processes: &mut [Child]) {
    for process in processes {
        // Fails if it has already exited.
        let _ = process.kill();
    }
}

/// The schedule, as a pair's thread reaches it.
struct ThreadSchedule {
    pair: u8,
    commands: Receiver<Command>,
    events: Sender<(u8, Event)>,
}

impl ScheduleHandle for ThreadSchedule {
    fn next(&mut self) -> Option<Command> {
        self.commands.recv().ok()
    }

    fn report(&mut self, event: Event) -> bool {
        self.events.send((self.pair, event)).is_ok()
    }
}

/// Relays between the schedule and a process, which answers each command with one event.
fn relay(mut process: Channel, schedule: &mut impl ScheduleHandle) {
    loop {
        process.wait_readable(PollTimeout::NONE);
        let event = process.receive().ok().flatten().unwrap_or(Event::Lost);
        let is_last = matches!(event, Event::Failed(_) | Event::Lost);
        if !schedule.report(event) || is_last {
            return;
        }
        let Some(command) = schedule.next() else { return };
        // If the process is gone, the next receive fails.
        let _ = process.send(&command);
    }
}

impl Plan {
    fn cpu_of(&self, pair: u8) -> Option<usize> {
        self.cpus.as_ref().map(|cpus| cpus[usize::from(pair) % cpus.len()])
    }
}

struct Schedule<'a, W> {
    plan: &'a Plan,
    commands: Vec<Sender<Command>>,
    events: Receiver<(u8, Event)>,
    output: &'a mut W,
    /// By pair; empty if pairs are threads.
    processes: &'a mut [Child],
    /// By pair: latest counters of its active and passive side.
    counters: BTreeMap<u8, (Counters, Counters)>,
    /// By pair.
    next_sequence: Vec<u32>,
    rate: RateSearch,
}

impl<W: Write> Schedule<'_, W> {
    fn run(mut self) -> Result<(), LaunchError> {
        let result = self.measure();
        let (mut own, mut peers) = (Counters::default(), Counters::default());
        for (counters, peer_counters) in self.counters.values() {
            own.add(counters);
            peers.add(peer_counters);
        }
        let end = End {
            complete: result.is_ok(),
            error: result.as_ref().err().map(ToString::to_string),
            counters: own,
            peer_counters: peers,
            peak_rss_kib: peak_rss_kib(),
        };
        // If the output itself failed, report the first error.
        result.and(write(self.output, &Record::End(end)))
    }

    fn measure(&mut self) -> Result<(), LaunchError> {
        let opened = self.wait_until_open()?;
        self.write_start(opened)?;
        for &message_bytes in &self.plan.sizes {
            // All pairs share the link's rate.
            self.rate = RateSearch::new(self.plan.rate_bit_s.map(|rate| rate / self.commands.len() as f64));
            match self.plan.test {
                _ if self.plan.session.processes => self.measure_together(message_bytes)?,
                Test::Stream => self.measure_stream(message_bytes)?,
                Test::Pingpong | Test::Bidirectional => self.measure_round_trips(message_bytes)?,
            }
        }
        Ok(())
    }

    fn wait_until_open(&mut self) -> Result<Opened, LaunchError> {
        let mut first = None;
        for _ in 0..self.commands.len() {
            match self.next_event()? {
                (_, Event::Open(opened)) => first = first.or(Some(opened)),
                (pair, _) => return Err(self.unexpected_event(pair)),
            }
        }
        first.ok_or_else(|| LaunchError::WrongUse("there must be at least one pair".to_owned()))
    }

    fn write_start(&mut self, opened: Opened) -> Result<(), LaunchError> {
        let plan = self.plan;
        let Clock { read_ns: clock_read_ns, step_ns: clock_step_ns } = Clock::measure();
        let host: Host = describe_host(plan.cpu_of(0), &plan.local);
        let start = Start {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            test: plan.test,
            transport: plan.session.transport,
            link: plan.session.link,
            wait: plan.session.wait,
            // Per process.
            pairs: if plan.session.processes { 1 } else { plan.session.pairs },
            processes: if plan.session.processes { plan.session.pairs } else { 1 },
            seed: plan.session.seed,
            session: plan.session.session,
            sizes: &plan.sizes,
            walk_bytes: plan.session.walk_bytes,
            give_way: plan.session.give_way,
            rate_bit_s: plan.rate_bit_s,
            mtu: opened.mtu,
            path: opened.path,
            clock_read_ns,
            clock_step_ns,
            host,
            peer: opened.peer,
        };
        write(self.output, &Record::Start(Box::new(start)))
    }

    fn measure_round_trips(&mut self, message_bytes: u32) -> Result<(), LaunchError> {
        let (plan, budget_ns, mut number) = (self.plan, self.plan.seconds * 1e9, 0);
        let mut per_message_ns = self.round_trips(message_bytes, Phase::Warmup, &mut number, FIRST_MESSAGES)?;
        for (phase, count, budget_ns) in
            [(Phase::Warmup, plan.warmup, budget_ns / 4.0), (Phase::Measure, plan.samples, budget_ns)]
        {
            let (mut left, began) = (count, now_ns());
            while left > 0 {
                let time_left = budget_ns - (now_ns() - began) as f64;
                if time_left < per_message_ns && left < count {
                    break;
                }
                let messages = clamp(time_left.min(BLOCK_NS) / per_message_ns, 1, ROUND_TRIPS_PER_BLOCK).min(left);
                per_message_ns = self.round_trips(message_bytes, phase, &mut number, messages)?;
                left -= messages;
            }
        }
        Ok(())
    }

    /// Runs one block of round trips or exchanges; returns the slowest pair's median, in ns.
    fn round_trips(
        &mut self,
        message_bytes: u32,
        phase: Phase,
        number: &mut u32,
        messages: u32,
    ) -> Result<f64, LaunchError> {
        let quantity = if self.plan.test == Test::Pingpong { Quantity::RoundTrip } else { Quantity::Exchange };
        let mut slowest_ns = 1.0_f64;
        for (pair, mut result) in self.run_block(message_bytes, 0, messages, 0)? {
            let samples = &mut result.samples;
            let values = Values {
                pair,
                message_bytes,
                phase,
                block: *number,
                quantity,
                unit: "ns",
                values: &samples.values_ns,
                messages: messages.into(),
                lost: samples.lost,
                corrupt: samples.corrupt + result.outcome.corrupt,
                pace_bit_s: self.rate.pace_bit_s(),
            };
            write(self.output, &Record::Samples(values))?;
            samples.values_ns.sort_unstable();
            let median_ns = samples.values_ns.get(samples.values_ns.len() / 2).map_or(BLOCK_NS, |ns| *ns as f64);
            slowest_ns = slowest_ns.max(median_ns);
        }
        *number += 1;
        Ok(slowest_ns)
    }

    fn measure_stream(&mut self, message_bytes: u32) -> Result<(), LaunchError> {
        let max = (STREAM_BLOCK_BYTES / message_bytes).clamp(STREAM_MESSAGES_MIN, STREAM_BLOCK_MESSAGES);
        let mut number = 0;
        let (_, first_ns) = self.stream_block(message_bytes, Phase::Warmup, &mut number, STREAM_MESSAGES_MIN)?;
        let messages = clamp(BLOCK_NS / first_ns, STREAM_MESSAGES_MIN, max);
        self.stream_block(message_bytes, Phase::Warmup, &mut number, messages)?;
        let (mut good, mut tried) = (0, 0);
        let (budget_ns, began) = (self.plan.seconds * 1e9, now_ns());
        while good < self.plan.blocks && tried < self.plan.blocks.saturating_mul(LOSSY_BLOCKS_FACTOR) {
            let (is_good, _) = self.stream_block(message_bytes, Phase::Measure, &mut number, messages)?;
            tried += 1;
            good += u32::from(is_good);
            if (now_ns() - began) as f64 > budget_ns && (good >= 3 || tried >= LOSSY_BLOCKS_MIN) {
                break;
            }
        }
        Ok(())
    }

    /// Runs one block of a stream; returns whether it gave each pair a rate without loss, and the slowest pair's time
    /// per message in ns.
    fn stream_block(
        &mut self,
        message_bytes: u32,
        phase: Phase,
        number: &mut u32,
        messages: u32,
    ) -> Result<(bool, f64), LaunchError> {
        let lead_in = (STREAM_LEAD_IN_BYTES / message_bytes).clamp(1, STREAM_LEAD_IN_MESSAGES);
        let (mut is_good, mut slowest_ns, mut slowest_bit_s) = (true, 1.0_f64, None::<f64>);
        for (pair, BlockResult { samples, outcome, wire_bytes, .. }) in
            self.run_block(message_bytes, lead_in, messages, 0)?
        {
            let lost = messages.saturating_sub(outcome.received);
            let values: &[u64] = if outcome.duration_ns > 0 { &[outcome.duration_ns] } else { &[] };
            let values = Values {
                pair,
                message_bytes,
                phase,
                block: *number,
                quantity: Quantity::Stream,
                unit: "ns",
                values,
                messages: messages.into(),
                lost,
                corrupt: outcome.corrupt,
                pace_bit_s: self.rate.pace_bit_s(),
            };
            write(self.output, &Record::Samples(values))?;
            let per_message_ns = outcome.duration_ns as f64 / f64::from(outcome.received.max(1));
            if lost > 0 {
                let sent_bytes = wire_bytes as f64 * f64::from(lead_in + messages);
                let sent_bit_s = sent_bytes * 8e9 / samples.sending_ns.max(1) as f64;
                let delivered_bit_s = sent_bit_s * f64::from(outcome.received.max(1)) / f64::from(messages);
                slowest_bit_s = Some(delivered_bit_s.min(slowest_bit_s.unwrap_or(f64::INFINITY)));
            }
            is_good &= lost == 0 && outcome.duration_ns > 0;
            slowest_ns = slowest_ns.max(per_message_ns);
        }
        match slowest_bit_s {
            Some(delivered_bit_s) => self.rate.lost(delivered_bit_s),
            None => self.rate.succeeded(),
        }
        *number += 1;
        Ok((is_good, slowest_ns))
    }

    fn run_block(
        &mut self,
        message_bytes: u32,
        lead_in: u32,
        messages: u32,
        lasts_ns: u64,
    ) -> Result<Vec<(u8, BlockResult)>, LaunchError> {
        for (sender, &first_sequence) in self.commands.iter().zip(&self.next_sequence) {
            let block = Block {
                test: self.plan.test,
                message_bytes,
                first_sequence,
                lead_in,
                messages,
                lasts_ns,
                pace_bit_s: self.rate.pace_bit_s(),
            };
            // Fails if the pair has ended; its event is read below.
            let _ = sender.send(Command::Block(block));
        }
        if lasts_ns > 0 {
            self.start_together()?;
        }
        let mut results = Vec::new();
        while results.len() < self.commands.len() {
            match self.next_event()? {
                (pair, Event::Block(result)) => {
                    self.counters.insert(pair, (result.counters, result.outcome.counters));
                    let next = &mut self.next_sequence[usize::from(pair)];
                    *next = next.wrapping_add(result.samples.sent);
                    results.push((pair, result));
                }
                (pair, _) => return Err(self.unexpected_event(pair)),
            }
        }
        if INTERRUPTED.load(Ordering::Relaxed) { Err(LaunchError::Interrupted) } else { Ok(results) }
    }

    /// The next event of any pair; a pair's failure becomes an error.
    fn next_event(&mut self) -> Result<(u8, Event), LaunchError> {
        match self.events.recv() {
            Ok((pair, Event::Failed(Failure { reason, exit_code }))) => {
                Err(Failure { reason: self.prefix(pair) + &reason, exit_code }.into())
            }
            Ok((pair, Event::Lost)) => {
                let status = self.processes.get_mut(usize::from(pair)).and_then(|process| process.wait().ok());
                let status =
                    status.map_or_else(|| "for an unknown reason".to_owned(), |status| format!("with {status}"));
                Err(LaunchError::Failed(format!("{}ended prematurely, {status}", self.prefix(pair))))
            }
            Ok(event) => Ok(event),
            Err(_) => Err(LaunchError::Failed("all pairs ended prematurely".to_owned())),
        }
    }

    /// Prefix of an error message: which of several processes it is about.
    fn prefix(&self, pair: u8) -> String {
        if self.processes.is_empty() {
            return String::new();
        }
        format!("process {} of {}: ", pair + 1, self.commands.len())
    }

    fn unexpected_event(&self, pair: u8) -> LaunchError {
        LaunchError::Failed(format!("{}unexpected event", self.prefix(pair)))
    }
}

fn clamp(value: f64, min: u32, max: u32) -> u32 {
    value.clamp(f64::from(min), f64::from(max)) as u32
}

/// A random session number, with a zero lowest byte for the pair.
pub fn random_session() -> u32 {
    fastrand::u32(..) & !0xff
}

/// Whether there are more pairs than cores: then a spinning pair would keep its core from another.
pub fn must_yield(pairs: u8, cpus: Option<&[usize]>) -> bool {
    usize::from(pairs) > cpus.map_or_else(|| cpu::allowed().len(), <[usize]>::len)
}
