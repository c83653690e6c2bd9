// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `barewire-broker`: the one process with CAP_NET_RAW. It hands programs of allowed users a socket for one LLC service
//! access point of one interface.

mod audit;
mod bounds;
mod egress;
mod groups;
mod ledger;
mod notebook;
mod peer;
mod policy;
mod privileges;
mod server;
mod signals;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barewire_broker::DEFAULT_SOCKET;
use barewire_link::{Interface, LinkError};
use clap::{Args, Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::User;
use serde_json::json;
use thiserror::Error;

use audit::Audit;
use groups::Groups;
use notebook::Notebook;
use policy::Policy;
use server::{Server, claims_of, connections_max};
use signals::Signals;

const DEFAULT_POLICY: &str = "/etc/barewire/broker.toml";

/// Hands programs without privileges sockets for LLC, by a policy.
///
/// Exit codes: 0 ended as asked, 1 failed, 2 wrong use or policy, 3 this machine cannot.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until ended; SIGHUP reads the policy and opens the audit log anew
    Serve(ServeArguments),
    /// Read the policy, say what is wrong with it, and end
    Check(PolicyArguments),
    /// Print nftables rules that hold what descriptors send to what was granted; load them with `nft -f -` as root
    Egress(PolicyArguments),
}

#[derive(Args)]
struct PolicyArguments {
    /// Who may have what
    #[arg(long, default_value = DEFAULT_POLICY)]
    policy: PathBuf,
}

#[derive(Args)]
struct ServeArguments {
    #[command(flatten)]
    policy: PolicyArguments,
    /// Where to listen; beside it are the list of grants and a lock
    #[arg(long, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// File to append the audit log to [default: standard error]
    #[arg(long)]
    audit: Option<PathBuf>,
    /// User to become, who may write the socket's directory
    #[arg(long)]
    user: Option<String>,
}

/// Why the broker does not begin; each is an exit code.
#[derive(Debug, Error)]
enum BrokerError {
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    WrongUse(String),
    #[error("{0}")]
    MachineCannot(String),
}

impl BrokerError {
    fn system(operation: &str, error: &io::Error) -> Self {
        Self::Failed(format!("{operation}: {error}"))
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve(arguments) => serve(arguments),
        Command::Check(arguments) => read_policy(&arguments.policy).map(|_| ()).map_err(BrokerError::WrongUse),
        Command::Egress(arguments) => print_egress(&arguments.policy),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("barewire-broker: {error}");
    ExitCode::from(match error {
        BrokerError::Failed(_) => 1,
        BrokerError::WrongUse(_) => 2,
        BrokerError::MachineCannot(_) => 3,
    })
}

fn serve(arguments: ServeArguments) -> Result<(), BrokerError> {
    privileges::keep_net_raw_only(arguments.user.as_deref())?;
    let (path, socket) = (arguments.policy.policy, arguments.socket);
    let policy = read_policy(&path).map_err(BrokerError::WrongUse)?;
    let signals = Signals::catch().map_err(|error| BrokerError::system("signals", &error))?;
    let descriptors = raise_descriptors().map_err(|error| BrokerError::system("RLIMIT_NOFILE", &error))?;
    let notebook = Notebook::open(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => BrokerError::WrongUse(format!("another broker serves {}", socket.display())),
        _ => BrokerError::WrongUse(format!("beside {}: {error}; does its directory exist?", socket.display())),
    })?;
    let ledger = notebook.read().map_err(|error| BrokerError::system("the list of grants", &error))?;
    let log = arguments.audit;
    let mut audit = Audit::open(log).map_err(|error| BrokerError::WrongUse(format!("--audit: {error}")))?;
    let listener = peer::listen_at(&socket)
        .map_err(|error| BrokerError::WrongUse(format!("cannot listen at {}: {error}", socket.display())))?;
    let start = json!({ "socket": socket.display().to_string(), "held": ledger.entries().count() });
    audit.write("start", start).map_err(|error| BrokerError::system("the audit log", &error))?;
    println!("{}", json!({ "record": "ready", "socket": socket.display().to_string() }));
    let policy_path = path.clone();
    let server = Server {
        listener,
        signals,
        policy,
        reload: Box::new(move || read_policy(&path)),
        audit,
        notebook,
        claims: claims_of(&ledger),
        ledger,
        groups: Groups::default(),
        endings: vec![],
        connections_max: connections_max(descriptors),
        policy_path,
    };
    server.run().map_err(|error| BrokerError::system("poll", &error))
}

/// The policy, or FILE:LINE and what is wrong.
fn read_policy(path: &Path) -> Result<Policy, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("the policy {}: {error}", path.display()))?;
    let number = |name: &str| User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    Policy::parse(&text, number).map_err(|error| format!("{}:{error}", path.display()))
}

fn print_egress(path: &Path) -> Result<(), BrokerError> {
    let policy = read_policy(path).map_err(BrokerError::WrongUse)?;
    let there = fs::read_dir("/sys/class/net").map_err(|error| BrokerError::system("/sys/class/net", &error))?;
    let named = policy.interfaces();
    let (mut granted, mut others) = (vec![], vec![]);
    for entry in there.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match Interface::by_name(&name) {
            Ok(interface) if named.contains(&name.as_str()) => granted.push(interface),
            Err(LinkError::NoSuchInterface(_)) => {}
            _ => others.push(name),
        }
    }
    if let Some(missing) = named.iter().find(|name| !granted.iter().any(|one| one.name == **name)) {
        return Err(BrokerError::WrongUse(format!("{missing}, of {}, is not here", path.display())));
    }
    print!("{}", egress::rules(&granted, &others));
    Ok(())
}

fn raise_descriptors() -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
