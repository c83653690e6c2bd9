// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `barewire-probe` measures one transport between two hosts: `serve` on one, a test on the other.

mod agent;
mod client;
mod control;
mod cpus;
mod lossy;
mod measure;
mod member;
mod modes;
mod names;
mod pattern;
mod protocol;
mod rate_search;
mod record;
mod schedule;
mod server;
mod sizes;
mod station;
mod transport;
mod tuning;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use barewire_names::Name;
use clap::{Args, Parser, Subcommand, ValueEnum};

use barewire_recorder::LaunchError;
use control::Address;
use measure::INTERRUPTED;
use protocol::{Kind, LinkKind, Session, Test, VERSION, Wait};
use schedule::{Plan, must_yield, random_session};
use transport::libfabric::OWN_PROVIDER;
use transport::{LocalConfig, llc};

/// Measures a transport between two hosts.
///
/// Start `barewire-probe serve` on one host, then a test on the other; samples are printed as JSON Lines.
/// Exit codes: 0 done, 1 the measured transport failed, 2 wrong use, 3 this machine lacks something, 130 interrupted.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve tests until ended
    Serve(ServeArguments),
    /// Round trips of one message: latency
    Pingpong(TestArguments),
    /// Back-to-back messages in one direction, timed at the receiver: throughput
    Stream(TestArguments),
    /// Messages in both directions at once
    Bidirectional(TestArguments),
    /// Measure for `barewire cluster check`, which sends commands to standard input
    Agent(agent::AgentCommand),
    /// List the hosts on the segment, with names
    Hosts(names::HostsCommand),
    /// Answer queries for this host's name until interrupted; serve and station echo do so too
    Announce(names::AnnounceCommand),
    /// Print the endpoints' tunable values: default, and value with this user's tuning file
    Tuning,
    /// Test which AF_XDP modes an interface supports
    XdpModes(modes::ModesCommand),
    /// Run an LLC station for a foreign peer, without measuring
    #[command(subcommand)]
    Station(station::Role),
    /// Run one pair for the probe that started this process
    #[command(hide = true)]
    Member { role: String },
    /// Print the sizes that a size list stands for, without measuring
    Sizes(SizeArguments),
}

#[derive(Args)]
struct LocalArguments {
    /// Interface for frames [default for a test: the hosts file's for the peer's name]
    #[arg(long)]
    interface: Option<String>,
    /// The interface's receive queue for AF_XDP
    #[arg(long, default_value_t = 0)]
    queue: u16,
    /// Own IP address for TCP and UDP [default: the control channel's]
    #[arg(long)]
    address: Option<IpAddr>,
    /// Broker that grants the sockets of llc1, llc2, llc3, endpoint, messages and libfabric's own provider
    ///
    /// [default: the default path, if this process may not open raw sockets]
    #[arg(long, value_name = "PATH")]
    broker: Option<PathBuf>,
    /// Cores to pin to, one pair each, such as 0,2-3 [default: not pinned]
    #[arg(long, value_parser = parse_cpus)]
    cpus: Option<Cpus>,
}

#[derive(Args)]
struct ServeArguments {
    /// Control address to listen on: HOST, HOST:PORT or unix:PATH
    #[arg(long, default_value = "0.0.0.0")]
    listen: Address,
    /// End when standard input is closed, so that this side does not outlive the process that started it
    #[arg(long)]
    until_eof: bool,
    /// Serve each session in a process of its own
    #[arg(long)]
    processes: bool,
    #[command(flatten)]
    announce: names::AnnounceArguments,
    #[command(flatten)]
    local: LocalArguments,
}

#[derive(Args)]
struct SizeArguments {
    /// Message sizes: 64,1400,4KiB or 1..64KiB (doubling)
    #[arg(long, default_value = "64")]
    sizes: String,
    /// Also measure this many bytes below and above each size of a range
    #[arg(long, default_value_t = 0)]
    perturbation: u32,
}

#[derive(Args)]
struct TestArguments {
    /// Control address of the serving probe: HOST, HOST:PORT or unix:PATH
    ///
    /// A HOST that the system cannot resolve is looked up in the hosts file, then queried on the segment of its
    /// interface or of --interface. HOST may be a MAC address.
    #[arg(long)]
    peer: Address,
    #[command(flatten)]
    file: names::FileArguments,
    #[arg(long, value_enum, default_value = "tcp")]
    transport: Kind,
    /// Link for the frames of raw, llc, endpoint and messages [default: packet; for transport xdp: xdp]
    #[arg(long, value_enum)]
    link: Option<LinkKind>,
    /// For libfabric: its provider, with layered providers, such as tcp;ofi_rxm [default: barewire]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// How to wait for a message
    #[arg(long, value_enum, default_value = "spin")]
    wait: Wait,
    #[command(flatten)]
    sizes: SizeArguments,
    /// Concurrent pairs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pairs: u8,
    /// Concurrent processes, one pair each; the other side must serve with --processes
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(llc::SAP_COUNT)), conflicts_with = "pairs")]
    processes: Option<u8>,
    /// Keep messages in the cache, or walk through a larger buffer
    #[arg(long, value_enum, default_value = "on")]
    cache: Cache,
    /// Bytes to walk through with --cache off [default: twice the last-level cache, at most 256 MiB]
    #[arg(long)]
    walk_bytes: Option<usize>,
    /// Round trips per size
    #[arg(long, default_value_t = 3000)]
    samples: u32,
    /// Time limit per size, in seconds
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Round trips before the samples, recorded as warm-up
    #[arg(long, default_value_t = 200)]
    warmup: u32,
    /// Timed blocks of a stream per size
    #[arg(long, default_value_t = 10)]
    blocks: u32,
    /// Wire rate in bits per second: transports without flow control send no faster
    #[arg(long)]
    rate: Option<f64>,
    /// Seed of the payloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For endpoint and messages: NAME=NUMBER, such as eager_bytes=4096, overrides both sides' tuning files; may be
    /// repeated
    #[arg(long, value_parser = parse_tuned)]
    tuned: Vec<(String, usize)>,
    /// Yield the core while waiting; implied with more pairs than cores
    #[arg(long)]
    give_way: bool,
    #[command(flatten)]
    local: LocalArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cache {
    On,
    Off,
}

#[derive(Clone)]
struct Cpus(Vec<usize>);

fn parse_cpus(text: &str) -> Result<Cpus, String> {
    cpus::parse_list(text).map(Cpus)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("barewire-probe: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<(), LaunchError> {
    match command {
        Command::Serve(arguments) => serve(arguments),
        Command::Sizes(arguments) => {
            let sizes: Vec<String> = parse_sizes(&arguments)?.iter().map(ToString::to_string).collect();
            println!("{}", sizes.join(","));
            Ok(())
        }
        Command::Agent(command) => {
            interrupt_on_signals()?;
            agent::run(&command)
        }
        Command::Hosts(command) => {
            interrupt_on_signals()?;
            names::list(&command)
        }
        Command::Announce(command) => {
            interrupt_on_signals()?;
            names::announce(&command)
        }
        Command::Station(role) => {
            interrupt_on_signals()?;
            station::run(&role)
        }
        Command::Tuning => {
            println!("{}", tuning::describe()?);
            Ok(())
        }
        Command::XdpModes(command) => modes::run(&command),
        Command::Member { role } => {
            interrupt_on_signals()?;
            member::run(&role)
        }
        Command::Pingpong(arguments) => measure(Test::Pingpong, arguments),
        Command::Stream(arguments) => measure(Test::Stream, arguments),
        Command::Bidirectional(arguments) => measure(Test::Bidirectional, arguments),
    }
}

fn serve(arguments: ServeArguments) -> Result<(), LaunchError> {
    if arguments.until_eof {
        std::thread::spawn(|| {
            // Input is discarded; an error counts as end of file.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(0);
        });
    }
    let (local, announce) = (arguments.local, arguments.announce);
    let config = server::Config {
        listen: arguments.listen,
        local: LocalConfig {
            interface: local.interface,
            queue: local.queue,
            ip: local.address,
            scope_id: 0,
            broker: local.broker,
        },
        cpus: local.cpus.map(|cpus| cpus.0),
        processes: arguments.processes,
    };
    server::serve(&config, |address| {
        let name = announce.start(config.local.interface.as_deref(), address.parse().ok());
        let name = name.as_ref().map(Name::as_str);
        println!("{}", serde_json::json!({"record": "ready", "listen": address, "name": name}));
    })
}

fn measure(test: Test, arguments: TestArguments) -> Result<(), LaunchError> {
    if test == Test::Bidirectional && arguments.processes.is_some() {
        let text = "--processes is for pingpong and stream, where one side alone decides when a block ends";
        return Err(LaunchError::WrongUse(text.to_owned()));
    }
    let pairs = arguments.processes.unwrap_or(arguments.pairs);
    let has_provider = arguments.provider.as_deref().is_some_and(|provider| provider != OWN_PROVIDER);
    let needs_frames = !matches!(arguments.transport, Kind::Tcp | Kind::Udp) && !has_provider;
    let link = choose_link(&arguments)?;
    reject_inapplicable_options(&arguments)?;
    if needs_frames && !link.is_xdp() && arguments.wait == Wait::Busypoll {
        return Err(LaunchError::WrongUse(
            "only tcp, udp and AF_XDP have busypoll: choose --wait spin or block, or --link xdp".to_owned(),
        ));
    }
    if arguments.samples == 0 || arguments.blocks == 0 || arguments.seconds.is_nan() || arguments.seconds <= 0.0 {
        return Err(LaunchError::WrongUse("--samples, --blocks and --seconds must be more than 0".to_owned()));
    }
    if arguments.rate.is_some_and(|rate| rate.is_nan() || rate < 1000.0) {
        return Err(LaunchError::WrongUse("--rate is in bits per second, at least 1000".to_owned()));
    }
    if arguments.walk_bytes.is_some_and(|bytes| bytes == 0 || arguments.cache == Cache::On) {
        return Err(LaunchError::WrongUse("--walk-bytes is more than 0, and for --cache off".to_owned()));
    }
    interrupt_on_signals()?;
    let route = names::route(arguments.peer, arguments.local.interface, needs_frames, &arguments.file)?;
    let cpus = arguments.local.cpus.map(|cpus| cpus.0);
    let walk_bytes = match arguments.cache {
        Cache::On => 0,
        Cache::Off => arguments.walk_bytes.unwrap_or_else(default_walk_bytes),
    };
    let plan = Plan {
        peer: route.control,
        local: LocalConfig {
            interface: route.interface,
            queue: arguments.local.queue,
            ip: arguments.local.address,
            scope_id: 0,
            broker: arguments.local.broker,
        },
        test,
        session: Session {
            version: VERSION,
            transport: arguments.transport,
            link,
            wait: arguments.wait,
            seed: arguments.seed,
            session: random_session(),
            pairs,
            pair: 0,
            processes: arguments.processes.is_some(),
            walk_bytes,
            give_way: arguments.give_way || must_yield(pairs, cpus.as_deref()),
            token: fastrand::u64(..),
            provider: arguments.provider,
            tuned: arguments.tuned,
        },
        cpus,
        sizes: parse_sizes(&arguments.sizes)?,
        samples: arguments.samples,
        seconds: arguments.seconds,
        warmup: arguments.warmup,
        blocks: arguments.blocks,
        rate_bit_s: arguments.rate,
    };
    schedule::run(&plan, &mut std::io::stdout().lock())
}

fn parse_tuned(text: &str) -> Result<(String, usize), String> {
    let parsed = text.split_once('=').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    parsed.ok_or_else(|| "write NAME=NUMBER, such as window=31".to_owned())
}

/// The link for a transport; incompatible combinations are refused.
fn choose_link(arguments: &TestArguments) -> Result<LinkKind, LaunchError> {
    let refuse = |text: &str| Err(LaunchError::WrongUse(text.to_owned()));
    let link = match (arguments.transport, arguments.link) {
        (Kind::Xdp, None) => LinkKind::Xdp,
        (Kind::Xdp, Some(link)) if !link.is_xdp() => {
            return refuse("transport xdp is raw over AF_XDP: choose transport raw for another --link");
        }
        (Kind::Tcp | Kind::Udp, Some(_)) => {
            return refuse("tcp and udp have no --link: they are the kernel's. Transport raw over --link udp is ours");
        }
        (Kind::KernelLlc2, Some(_)) => {
            return refuse(
                "kernel-llc2 has no --link: its frames are the kernel's. Transport llc2 over --link packet is ours",
            );
        }
        (Kind::Libfabric, Some(_)) => {
            return refuse("libfabric has no --link: its own provider takes FI_BAREWIRE_LINK");
        }
        (_, link) => link.unwrap_or_default(),
    };
    if link.is_xdp() && arguments.processes.unwrap_or(arguments.pairs) > 1 {
        let option = if arguments.processes.is_some() { "--processes 1" } else { "--pairs 1" };
        return refuse(&format!("AF_XDP takes an interface's queue for one pair: use {option}, or --link packet"));
    }
    Ok(link)
}

/// Refuses options that this transport would ignore.
fn reject_inapplicable_options(arguments: &TestArguments) -> Result<(), LaunchError> {
    let kind = arguments.transport;
    if arguments.provider.is_some() && kind != Kind::Libfabric {
        return Err(LaunchError::WrongUse("--provider is libfabric's: choose --transport libfabric".to_owned()));
    }
    if !arguments.tuned.is_empty() && !matches!(kind, Kind::Endpoint | Kind::Messages) {
        let text =
            "--tuned is for endpoint and messages; libfabric's own provider takes FI_BAREWIRE_… and the tuning file";
        return Err(LaunchError::WrongUse(text.to_owned()));
    }
    Ok(())
}

fn parse_sizes(arguments: &SizeArguments) -> Result<Vec<u32>, LaunchError> {
    sizes::parse(&arguments.sizes, arguments.perturbation).map_err(LaunchError::WrongUse)
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

/// Twice the largest cache, bounded by the memory that both sides can be expected to have.
fn default_walk_bytes() -> usize {
    const BYTES_MAX: usize = 256 << 20;
    const UNKNOWN_CACHE_BYTES: usize = 64 << 20;
    let caches = (0..8).filter_map(|index| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()
    });
    caches.max().map_or(UNKNOWN_CACHE_BYTES, |kib| kib * 1024 * 2).min(BYTES_MAX)
}
