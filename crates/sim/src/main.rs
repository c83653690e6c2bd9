// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs simulated worlds: `barewire-sim --seed 7` one of them, `barewire-sim --seeds 0..100000` many; of the protocol engine
//! alone, or with `--stack` of everything up to the messages of many ranks.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use barewire_sim::stack;
use barewire_sim::{Scenario, run, trace};
use clap::Parser;

/// Runs simulated worlds and says which promise one broke.
#[derive(Parser)]
struct Arguments {
    /// One world, told in detail.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Tell of every frame that arrives.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Worlds FIRST..LAST, without the last.
    #[arg(long, value_name = "FIRST..LAST", value_parser = range, default_value = "0..1000")]
    seeds: (u64, u64),
    /// Worlds of the whole stack: ranks with messengers, and what programs do with them.
    #[arg(long)]
    stack: bool,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

impl Arguments {
    /// Frames that were sent in a world, or what it broke.
    fn run(&self, seed: u64) -> Result<u64, String> {
        if self.stack {
            let report = stack::run(stack::Scenario::from_seed(seed), seed);
            return report.map(|report| report.frames).map_err(|broken| broken.to_string());
        }
        run(Scenario::from_seed(seed), seed).map(|report| report.frames).map_err(|violation| violation.to_string())
    }

    /// One world, told in detail.
    fn tell(&self, seed: u64) -> Result<String, String> {
        if self.stack {
            let scenario = stack::Scenario::from_seed(seed);
            println!("seed {seed}: {scenario:#?}");
            let told = if self.trace { stack::trace(scenario, seed) } else { stack::run(scenario, seed) };
            return told.map(|report| format!("{report:?}")).map_err(|broken| broken.to_string());
        }
        let scenario = Scenario::from_seed(seed);
        println!("seed {seed}: {scenario:#?}");
        let told = if self.trace { trace(scenario, seed) } else { run(scenario, seed) };
        told.map(|report| format!("{report:?}")).map_err(|violation| violation.to_string())
    }

    /// The command that shows one world.
    fn again(&self, seed: u64) -> String {
        format!("barewire-sim{} --seed {seed} --trace", if self.stack { " --stack" } else { "" })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        return match arguments.tell(seed) {
            Ok(report) => {
                println!("{report}");
                ExitCode::SUCCESS
            }
            Err(broken) => {
                println!("broken: {broken}");
                ExitCode::FAILURE
            }
        };
    }
    let (first, last) = arguments.seeds;
    println!("seeds {first}..{last}");
    let start = Instant::now();
    let (next, frames, broken) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
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
                        Err(what) => {
                            broken.fetch_add(1, Ordering::Relaxed);
                            println!("broken: {what}; again: {}", arguments.again(seed));
                        }
                    }
                }
            });
        }
    });
    let (frames, broken) = (frames.into_inner(), broken.into_inner());
    let seconds = start.elapsed().as_secs_f64();
    println!("{} worlds, {frames} frames, {broken} broken, {seconds:.1} s", last - first);
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parse = |part: &str| part.parse::<u64>().map_err(|error| format!("{part}: {error}"));
    let (first, last) = text.split_once("..").ok_or("two numbers with .. in between")?;
    let (first, last) = (parse(first)?, parse(last)?);
    if first < last { Ok((first, last)) } else { Err("the first must be below the last".into()) }
}
