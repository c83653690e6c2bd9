// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `barewire-host` characterises this machine: one launch of one test, with raw samples as output.

mod capacity;
mod context;
mod distance;
mod file;
mod filesystem;
mod load;
mod memory;
mod peer;
mod process;
mod record;
mod region;
mod send;
mod stretch;
mod syscall;
mod transfer;
mod wakeup;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::{Args, Parser, Subcommand};

use barewire_recorder::clock::Clock;
use barewire_recorder::{LaunchError, cpu, peak_rss_kib, write};
use record::{End, Record, SCHEMA, Start};
use stretch::{Effort, INTERRUPTED};

/// Characterises this machine; samples are printed as JSON Lines.
///
/// Exit codes: 0 done, 1 the measurement failed, 2 wrong use, 3 this machine lacks something, 130 interrupted.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bandwidth of reading, writing and copying memory, by block size
    Memory {
        #[command(flatten)]
        block: Block,
        #[command(flatten)]
        common: Common,
    },
    /// Latency of reading memory, by block size: loads that depend on each other
    Load {
        #[command(flatten)]
        block: Block,
        #[command(flatten)]
        common: Common,
    },
    /// Time of system calls
    Syscall {
        #[command(flatten)]
        common: Common,
    },
    /// Time to create a process: fork, with a small program, with a shell that starts it
    Process {
        #[command(flatten)]
        common: Common,
    },
    /// Time of a context switch in a ring of processes, by their number and working set
    Context {
        #[command(flatten)]
        common: Common,
    },
    /// Time to wake another process: pipe, Unix socket, TCP, UDP, futex; on the same core and across cores
    Wakeup {
        #[command(flatten)]
        common: Common,
    },
    /// Time for a cache line to get from one core to another
    Distance {
        #[command(flatten)]
        common: Common,
    },
    /// Bandwidth between two processes: pipe, Unix socket, TCP; on the same core and across cores
    Transfer {
        #[command(flatten)]
        common: Common,
    },
    /// Time to create and to delete files of 0 to 10 KiB
    Filesystem {
        /// Directory of the temporary files
        #[arg(long, default_value = ".")]
        directory: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Bandwidth of a file in the page cache: read against map
    File {
        /// Directory of the temporary file
        #[arg(long, default_value = ".")]
        directory: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Time to send a frame: copied into one piece, or gathered from two
    Send {
        /// Interface to send through, to an unused address; needs CAP_NET_RAW
        #[arg(long)]
        interface: String,
        #[command(flatten)]
        common: Common,
    },
    /// Answer another process of this program
    #[command(hide = true)]
    Answer {
        channel: wakeup::Channel,
        #[command(flatten)]
        place: peer::Place,
    },
    /// Write the blocks that another process of this program asks for
    #[command(hide = true)]
    Source {
        channel: transfer::Channel,
        #[command(flatten)]
        place: peer::Place,
    },
    /// Hand a cache line back to another process of this program
    #[command(hide = true)]
    Bounce {
        #[command(flatten)]
        place: peer::Place,
    },
    /// Take part in a ring of processes
    #[command(hide = true)]
    Member {
        bytes: usize,
        #[command(flatten)]
        place: peer::Place,
    },
}

#[derive(Args)]
struct Block {
    /// Largest block in bytes [default: four times the last-level cache, at most an eighth of the available memory]
    #[arg(long)]
    largest_block: Option<usize>,
}

impl Block {
    /// The largest of `blocks` blocks.
    fn largest(&self, launch: &Launch, blocks: usize) -> Result<usize, LaunchError> {
        let available = capacity::available_memory();
        let Some(bytes) = self.largest_block else {
            return Ok(memory::default_largest_block(&capacity::caches(launch.cpu), available));
        };
        if available > 0 && bytes.saturating_mul(blocks) > available {
            return Err(LaunchError::WrongUse(format!(
                "--largest-block {bytes}: of the memory {available} bytes are available, for {blocks} such blocks"
            )));
        }
        Ok(bytes)
    }
}

#[derive(Args)]
struct Common {
    /// Core to run on [default: the first allowed one]
    #[arg(long)]
    cpu: Option<usize>,
    /// Core of the answering process across cores [default: the next allowed one]
    #[arg(long)]
    other_cpu: Option<usize>,
    /// Time for each subject and size, in seconds
    #[arg(long, default_value_t = 0.03)]
    seconds: f64,
    /// Seed of the measurement order
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == process::HELLO) {
        return process::hello();
    }
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("barewire-host: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<(), LaunchError> {
    match command {
        Command::Answer { channel, place } => wakeup::answer(channel, &place),
        Command::Source { channel, place } => transfer::source(channel, &place),
        Command::Bounce { place } => distance::bounce(&place),
        Command::Member { bytes, place } => context::member(bytes, &place),
        Command::Memory { block, common } => {
            let launch = Launch::prepare(common)?;
            let largest = block.largest(&launch, 2)?;
            let mut blocks = memory::Blocks::new(largest)?;
            launch.record("memory", capacity::huge_page_bytes(), |launch, random, output| {
                memory::run(&mut blocks, largest, random, launch.effort, output).map(|()| 0)
            })
        }
        Command::Load { block, common } => {
            let launch = Launch::prepare(common)?;
            let largest = block.largest(&launch, 1)?;
            let mut memory = load::block(largest)?;
            launch.record("load", capacity::huge_page_bytes(), |launch, random, output| {
                load::run(&mut memory, largest, random, launch.effort, output).map(|()| 0)
            })
        }
        Command::Process { common } => Launch::prepare(common)?
            .record("process", None, |launch, _, output| process::run(launch.effort, output).map(|()| 0)),
        Command::Context { common } => Launch::prepare(common)?.record("context", None, |launch, random, output| {
            context::run(launch.cpu, random, launch.effort, output).map(|()| 0)
        }),
        Command::Transfer { common } => Launch::prepare(common)?.record("transfer", None, |launch, random, output| {
            transfer::run(launch.cpu, launch.other_cpu, random, launch.effort, output).map(|()| 0)
        }),
        Command::Filesystem { directory, common } => {
            Launch::prepare(common)?.record("filesystem", None, |launch, random, output| {
                filesystem::run(&directory, random, launch.effort, output).map(|()| 0)
            })
        }
        Command::Syscall { common } => Launch::prepare(common)?
            .record("syscall", None, |launch, _, output| syscall::run(launch.effort, output).map(|()| 0)),
        Command::Wakeup { common } => Launch::prepare(common)?.record("wakeup", None, |launch, _, output| {
            wakeup::run(launch.cpu, launch.other_cpu, launch.effort, output).map(|()| 0)
        }),
        Command::Distance { common } => Launch::prepare(common)?.record("distance", None, |launch, _, output| {
            distance::run(launch.other_cpu, launch.effort, output).map(|()| 0)
        }),
        Command::File { directory, common } => {
            Launch::prepare(common)?.record("file", None, |launch, random, output| {
                file::run(&directory, random, launch.effort, output).map(|()| 0)
            })
        }
        Command::Send { interface, common } => {
            Launch::prepare(common)?
                .record("send", None, |launch, random, output| send::run(&interface, random, launch.effort, output))
        }
    }
}

/// Settings of all tests.
struct Launch {
    cpu: usize,
    other_cpu: Option<usize>,
    clock: Clock,
    effort: Effort,
    seconds: f64,
    seed: u64,
}

impl Launch {
    fn prepare(common: Common) -> Result<Self, LaunchError> {
        if common.seconds.is_nan() || common.seconds <= 0.0 || common.seconds > 3600.0 {
            return Err(LaunchError::WrongUse("--seconds must be more than 0, and an hour at most".to_owned()));
        }
        interrupt_on_signals()?;
        let allowed = cpu::allowed();
        let cpu = common.cpu.or(allowed.first().copied()).unwrap_or(0);
        let other_cpu = common.other_cpu.or_else(|| allowed.iter().copied().find(|other| *other != cpu));
        if let Some(other) = common.other_cpu
            && (other == cpu || !allowed.contains(&other))
        {
            let text = format!("--other-cpu {other} must be one of {allowed:?}, and not {cpu}, this process's own");
            return Err(LaunchError::WrongUse(text));
        }
        cpu::pin(cpu)?;
        let clock = Clock::measure();
        let effort = Effort::new(clock, common.seconds);
        Ok(Self { cpu, other_cpu, clock, effort, seconds: common.seconds, seed: common.seed })
    }

    /// Prints start, samples and end records; `measure` returns the number of sends that were refused and retried.
    fn record(
        &self,
        test: &str,
        huge_page_bytes: Option<usize>,
        measure: impl FnOnce(&Self, &mut fastrand::Rng, &mut dyn std::io::Write) -> Result<u64, LaunchError>,
    ) -> Result<(), LaunchError> {
        let mut output = std::io::stdout().lock();
        let start = Start {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            test,
            seed: self.seed,
            cpu: self.cpu,
            other_cpu: self.other_cpu,
            clock_read_ns: self.clock.read_ns,
            clock_step_ns: self.clock.step_ns,
            stretch_ns: self.effort.stretch_ns,
            seconds: self.seconds,
            cache_bytes: capacity::caches(self.cpu),
            vector_bytes: memory::vector_bytes(),
            huge_page_bytes,
        };
        write(&mut output, &Record::Start(start))?;
        let mut result = measure(self, &mut fastrand::Rng::with_seed(self.seed), &mut output);
        // The signal may have ended the answering process first, which causes a different error.
        if result.is_err() && INTERRUPTED.load(Ordering::Relaxed) {
            result = Err(LaunchError::Interrupted);
        }
        let end = End {
            complete: result.is_ok(),
            error: result.as_ref().err().map(ToString::to_string),
            peak_rss_kib: peak_rss_kib(),
            send_busy: result.as_ref().copied().unwrap_or(0),
        };
        write(&mut output, &Record::End(end))?;
        result.map(|_| ())
    }
}

/// The first SIGINT or SIGTERM ends the launch cleanly; a second one exits immediately.
fn interrupt_on_signals() -> Result<(), LaunchError> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&INTERRUPTED))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED)))
            .map_err(|error| LaunchError::system("signal handler", error))?;
    }
    Ok(())
}
