// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs simulated worlds: `barewire-sim --seed 7` one, `barewire-sim --seeds 0..100000` many; of the LLC engine alone,
//! or with `--stack` of the whole stack up to the messages of many ranks, with `--libfabric` through the provider.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use barewire_sim::stack;
use barewire_sim::{Scenario, run, trace};
use clap::Parser;

/// Runs simulated worlds and reports violated properties.
#[derive(Parser)]
struct Arguments {
    /// Run one world and print its scenario and report.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Print every event.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run the worlds FIRST..LAST, excluding LAST.
    #[arg(long, value_name = "FIRST..LAST", value_parser = range, default_value = "0..1000")]
    seeds: (u64, u64),
    /// Simulate the whole stack: ranks whose programs use messengers.
    #[arg(long)]
    stack: bool,
    /// The same worlds, with programs that use libfabric's functions.
    #[arg(long, requires = "stack")]
    libfabric: bool,
    /// The same worlds, on networks on which stations have several interfaces and sockets, some of which fail.
    #[arg(long, requires = "stack")]
    carriers: bool,
    /// The same worlds, on a network where the labels of frames choose among paths, some of which die.
    #[arg(long, requires = "stack", conflicts_with = "carriers")]
    labels: bool,
    /// Number of threads.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

impl Arguments {
    fn scenario(&self, seed: u64) -> stack::Scenario {
        let mut scenario = stack::Scenario::from_seed(seed);
        if self.carriers {
            scenario = scenario.with_carriers(seed);
        }
        if self.labels {
            scenario = scenario.with_labels(seed);
        }
        if self.libfabric { scenario.with_libfabric() } else { scenario }
    }

    /// Runs a world; returns the number of frames sent, or the violation.
    fn run(&self, seed: u64) -> Result<u64, String> {
        if self.stack {
            let report = stack::run(self.scenario(seed), seed);
            return report.map(|report| report.frames).map_err(|violation| violation.to_string());
        }
        run(Scenario::from_seed(seed), seed).map(|report| report.frames).map_err(|violation| violation.to_string())
    }

    /// Runs a world, printing its scenario; returns the report.
    fn run_verbose(&self, seed: u64) -> Result<String, String> {
        if self.stack {
            let scenario = self.scenario(seed);
            println!("seed {seed}: {scenario:#?}");
            let result = if self.trace { stack::trace(scenario, seed) } else { stack::run(scenario, seed) };
            return result.map(|report| format!("{report:?}")).map_err(|violation| violation.to_string());
        }
        let scenario = Scenario::from_seed(seed);
        println!("seed {seed}: {scenario:#?}");
        let result = if self.trace { trace(scenario, seed) } else { run(scenario, seed) };
        result.map(|report| format!("{report:?}")).map_err(|violation| violation.to_string())
    }

    /// The command line that replays a world.
    fn replay_command(&self, seed: u64) -> String {
        let options = [
            (self.stack, " --stack"),
            (self.libfabric, " --libfabric"),
            (self.carriers, " --carriers"),
            (self.labels, " --labels"),
        ];
        let options: String = options.iter().filter(|(is_set, _)| *is_set).map(|(_, option)| *option).collect();
        format!("barewire-sim{options} --seed {seed} --trace")
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        return match arguments.run_verbose(seed) {
            Ok(report) => {
                println!("{report}");
                ExitCode::SUCCESS
            }
            Err(violation) => {
                println!("violation: {violation}");
                ExitCode::FAILURE
            }
        };
    }
    let (first, last) = arguments.seeds;
    println!("seeds {first}..{last}");
    let start = Instant::now();
    let (next, frames, violations) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        break;
                    }
                    match arguments.run(seed) {
                        Ok(sent) => _ = frames.fetch_add(sent, Ordering::Relaxed),
                        Err(violation) => {
                            violations.fetch_add(1, Ordering::Relaxed);
                            println!("violation: {violation}; replay: {}", arguments.replay_command(seed));
                        }
                    }
                }
            });
        }
    });
    let (frames, violations) = (frames.into_inner(), violations.into_inner());
    let seconds = start.elapsed().as_secs_f64();
    println!("{} worlds, {frames} frames, {violations} violations, {seconds:.1} s", last - first);
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parse = |part: &str| part.parse::<u64>().map_err(|error| format!("{part}: {error}"));
    let (first, last) = text.split_once("..").ok_or("expected FIRST..LAST")?;
    let (first, last) = (parse(first)?, parse(last)?);
    if first < last { Ok((first, last)) } else { Err("FIRST must be less than LAST".into()) }
}
