// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which blocks run: per size a short one to learn the speed, warm-up, and samples until there are
//! enough or the time is up. All pairs run the same block at the same time; pairs that are processes begin and end it
//! together as well ([`together`]).

mod overlap;
mod together;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::client::{BlockResult, Command, Event, Failure, Opened, Orders, run_pair};
use crate::control::{Address, Channel};
use crate::measure::INTERRUPTED;
use crate::member;
use crate::protocol::{Block, Host, Session, Test};
use crate::rate_search::RateSearch;
use crate::record::{End, Phase, Quantity, Record, SCHEMA, Start, Values};
use crate::server::describe_host;
use crate::transport::{Counters, Place};
use barewire_recorder::clock::{Clock, now_ns};
use barewire_recorder::{LaunchError, cpu, peak_rss_kib, write};

/// One launch of the active side.
pub struct Plan {
    pub peer: Address,
    pub place: Place,
    pub cpus: Option<Vec<usize>>,
    pub test: Test,
    /// The first pair's; the others differ in their number.
    pub session: Session,
    pub sizes: Vec<u32>,
    /// Samples per size, and the time they may take.
    pub samples: u32,
    pub seconds: f64,
    pub warmup: u32,
    /// Blocks of a stream per size: each is one sample.
    pub blocks: u32,
    /// Wire bits per second that the link carries, if that is known: faster sending would lose messages.
    pub rate_bit_s: Option<f64>,
}

/// Payload of a stream's block: at 25 Gb/s still a millisecond, and it fits caches and memory.
const STREAM_BLOCK_BYTES: u32 = 4 << 20;
const STREAM_BLOCK_MESSAGES: u32 = 16_384;
/// Fewer messages than this make no stream.
const STREAM_LEAST_MESSAGES: u32 = 4;
/// Sent before the clock starts: more than the burst allowance of a shaped link.
const STREAM_LEAD_IN_BYTES: u32 = 128 << 10;
const STREAM_LEAD_IN_MESSAGES: u32 = 2048;
/// Blocks last no longer than this where that is possible, so that an interrupt is soon seen.
const BLOCK_NS: f64 = 50e6;
const ROUND_TRIPS_PER_BLOCK: u32 = 1000;
/// Messages of the first block of a size.
const FIRST_MESSAGES: u32 = 4;
/// With loss in every block, stop looking for a pace without after this many times the blocks asked for.
const LOSSY_BLOCKS_FACTOR: u32 = 3;

/// Runs the plan and writes its records. Whatever ends it, an end record says so.
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
            let mut thread = Thread { pair, commands: receiver, events: event_sender.clone() };
            if session.processes {
                let (process, channel) = match member::drive(&plan.peer, &session, &plan.place, cpu) {
                    Ok(started) => started,
                    Err(error) => {
                        end_all(&mut processes);
                        return Err(error);
                    }
                };
                processes.push(process);
                scope.spawn(move || relay(channel, &mut thread));
            } else {
                scope.spawn(move || run_pair(&plan.peer, &session, &plan.place, cpu, &mut thread));
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
        // Its end ends the pairs: their channels close.
        let result = schedule.run();
        if result.is_err() {
            end_all(&mut processes);
        }
        result
    });
    for process in &mut processes {
        // It has nothing more to do; how it ends is of no interest.
        let _ = process.wait();
    }
    result
}

/// Ends processes that may be in the middle of a block.
fn end_all(processes: &mut [Child]) {
    for process in processes {
        // One that has ended needs no end.
        let _ = process.kill();
    }
}

/// A pair's thread's way to the schedule.
struct Thread {
    pair: u8,
    commands: Receiver<Command>,
    events: Sender<(u8, Event)>,
}

impl Orders for Thread {
    fn next(&mut self) -> Option<Command> {
        self.commands.recv().ok()
    }

    fn report(&mut self, event: Event) -> bool {
        self.events.send((self.pair, event)).is_ok()
    }
}

/// Passes on between the schedule and a process: it answers each command with one event.
fn relay(mut process: Channel, schedule: &mut impl Orders) {
    loop {
        process.wait_for_news();
        let event = process.receive().ok().flatten().unwrap_or(Event::Lost);
        let is_last = matches!(event, Event::Failed(_) | Event::Lost);
        if !schedule.report(event) || is_last {
            return;
        }
        let Some(command) = schedule.next() else { return };
        // If it is gone, reading tells.
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
    /// By pair, if pairs are processes.
    processes: &'a mut [Child],
    /// The last that each pair said of its own and its peer's counters.
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
        // If the output is what failed, the first error is the one to tell.
        result.and(write(self.output, &Record::End(end)))
    }

    fn measure(&mut self) -> Result<(), LaunchError> {
        let opened = self.wait_until_open()?;
        let lossy = opened.lossy;
        self.write_start(opened)?;
        for &message_bytes in &self.plan.sizes {
            self.rate = RateSearch::new(self.plan.rate_bit_s);
            match self.plan.test {
                _ if self.plan.session.processes => self.measure_together(message_bytes)?,
                Test::Stream => self.measure_stream(message_bytes, lossy)?,
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
                (pair, _) => return Err(self.out_of_turn(pair)),
            }
        }
        first.ok_or_else(|| LaunchError::WrongUse("there must be at least one pair".to_owned()))
    }

    fn write_start(&mut self, opened: Opened) -> Result<(), LaunchError> {
        let plan = self.plan;
        let Clock { read_ns: clock_read_ns, step_ns: clock_step_ns } = Clock::examine();
        let host: Host = describe_host(plan.cpu_of(0), &plan.place);
        let start = Start {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            test: plan.test,
            transport: plan.session.transport,
            link: plan.session.link,
            wait: plan.session.wait,
            // Of each process.
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
        let mut number = 0;
        let mut per_message_ns = self.round_trips(message_bytes, Phase::Warmup, &mut number, FIRST_MESSAGES)?;
        let budget_ns = self.plan.seconds * 1e9;
        let affordable = |ns: f64, per_message_ns: f64| clamp(ns / per_message_ns, 1, ROUND_TRIPS_PER_BLOCK);
        let warmup = self.plan.warmup.min(affordable(budget_ns / 4.0, per_message_ns));
        per_message_ns = self.round_trips(message_bytes, Phase::Warmup, &mut number, warmup)?;
        let (mut left, began) = (self.plan.samples, now_ns());
        while left > 0 {
            let time_left = budget_ns - (now_ns() - began) as f64;
            if time_left < per_message_ns && left < self.plan.samples {
                break;
            }
            let messages = left.min(affordable(time_left.min(BLOCK_NS), per_message_ns));
            per_message_ns = self.round_trips(message_bytes, Phase::Measure, &mut number, messages)?;
            left -= messages;
        }
        Ok(())
    }

    /// One block of round trips or exchanges; the median time of one, in ns.
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

    fn measure_stream(&mut self, message_bytes: u32, lossy: bool) -> Result<(), LaunchError> {
        let most = (STREAM_BLOCK_BYTES / message_bytes).clamp(STREAM_LEAST_MESSAGES, STREAM_BLOCK_MESSAGES);
        let mut number = 0;
        let (_, first_ns) = self.stream_block(message_bytes, Phase::Warmup, &mut number, STREAM_LEAST_MESSAGES)?;
        let messages = clamp(BLOCK_NS / first_ns, STREAM_LEAST_MESSAGES, most);
        self.stream_block(message_bytes, Phase::Warmup, &mut number, messages)?;
        let (mut good, mut tried) = (0, 0);
        let (budget_ns, began) = (self.plan.seconds * 1e9, now_ns());
        while good < self.plan.blocks && tried < self.plan.blocks * LOSSY_BLOCKS_FACTOR {
            let (lost, _) = self.stream_block(message_bytes, Phase::Measure, &mut number, messages)?;
            tried += 1;
            good += u32::from(lost == 0 || !lossy);
            if (now_ns() - began) as f64 > budget_ns && good >= 3 {
                break;
            }
        }
        Ok(())
    }

    /// One block of a stream; how many messages were lost, and the time per message in ns.
    fn stream_block(
        &mut self,
        message_bytes: u32,
        phase: Phase,
        number: &mut u32,
        messages: u32,
    ) -> Result<(u32, f64), LaunchError> {
        let lead_in = (STREAM_LEAD_IN_BYTES / message_bytes).clamp(1, STREAM_LEAD_IN_MESSAGES);
        let (mut total_lost, mut slowest_ns, mut slowest_bit_s) = (0, 1.0_f64, None::<f64>);
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
                let got_through = sent_bit_s * f64::from(outcome.received.max(1)) / f64::from(messages);
                slowest_bit_s = Some(got_through.min(slowest_bit_s.unwrap_or(f64::INFINITY)));
            }
            total_lost += lost;
            slowest_ns = slowest_ns.max(per_message_ns);
        }
        match slowest_bit_s {
            Some(got_through) => self.rate.lost(got_through),
            None => self.rate.succeeded(),
        }
        *number += 1;
        Ok((total_lost, slowest_ns))
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
            // A pair that has ended has said why; that is read below.
            let _ = sender.send(Command::Block(block));
        }
        if lasts_ns > 0 {
            self.begin_together()?;
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
                (pair, _) => return Err(self.out_of_turn(pair)),
            }
        }
        if INTERRUPTED.load(Ordering::Relaxed) { Err(LaunchError::Interrupted) } else { Ok(results) }
    }

    /// The next that a pair has to tell; its failure is the schedule's.
    fn next_event(&mut self) -> Result<(u8, Event), LaunchError> {
        match self.events.recv() {
            Ok((pair, Event::Failed(Failure { reason, exit_code }))) => {
                Err(Failure { reason: self.name(pair) + &reason, exit_code }.into())
            }
            Ok((pair, Event::Lost)) => {
                let status = self.processes.get_mut(usize::from(pair)).and_then(|process| process.wait().ok());
                let status = status.map_or_else(|| "without a word".to_owned(), |status| format!("with {status}"));
                Err(LaunchError::Failed(format!("{}ended in the middle, {status}", self.name(pair))))
            }
            Ok(event) => Ok(event),
            Err(_) => Err(LaunchError::Failed("a pair ended without a word".to_owned())),
        }
    }

    /// Which of several processes something is about.
    fn name(&self, pair: u8) -> String {
        if self.processes.is_empty() {
            return String::new();
        }
        format!("process {} of {}: ", pair + 1, self.commands.len())
    }

    fn out_of_turn(&self, pair: u8) -> LaunchError {
        LaunchError::Failed(format!("{}it told something out of turn", self.name(pair)))
    }
}

fn clamp(value: f64, least: u32, most: u32) -> u32 {
    value.clamp(f64::from(least), f64::from(most)) as u32
}

/// Draws the session: three random bytes, and room for the pair.
pub fn draw_session() -> u32 {
    fastrand::u32(..) & !0xff
}

/// More pairs than cores, and one would wait for a core that another one spins on.
pub fn must_give_way(pairs: u8, cpus: Option<&[usize]>) -> bool {
    usize::from(pairs) > cpus.map_or_else(|| cpu::allowed().len(), <[usize]>::len)
}
