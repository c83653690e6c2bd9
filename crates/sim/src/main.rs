// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs simulated worlds: `barewire-sim --seed 7` one of them, `barewire-sim --seeds 0..100000` many.

use std::process::ExitCode;
use std::time::Instant;

use barewire_sim::{Report, Scenario, run, trace};
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        let scenario = Scenario::from_seed(seed);
        println!("seed {seed}: {scenario:#?}");
        return match if arguments.trace { trace(scenario, seed) } else { run(scenario, seed) } {
            Ok(report) => {
                println!("{report:?}");
                ExitCode::SUCCESS
            }
            Err(violation) => {
                println!("broken: {violation}");
                ExitCode::FAILURE
            }
        };
    }
    let (first, last) = arguments.seeds;
    println!("seeds {first}..{last}");
    let start = Instant::now();
    let (mut broken, mut sum) = (0u64, Report::default());
    for seed in first..last {
        match run(Scenario::from_seed(seed), seed) {
            Ok(report) => {
                sum.events += report.events;
                sum.frames += report.frames;
            }
            Err(violation) => {
                broken += 1;
                println!("broken: {violation}; again: barewire-sim --seed {seed}");
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{} worlds, {} frames, {broken} broken, {seconds:.1} s", last - first, sum.frames);
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parse = |part: &str| part.parse::<u64>().map_err(|error| format!("{part}: {error}"));
    let (first, last) = text.split_once("..").ok_or("two numbers with .. in between")?;
    let (first, last) = (parse(first)?, parse(last)?);
    if first < last { Ok((first, last)) } else { Err("the first must be below the last".into()) }
}
