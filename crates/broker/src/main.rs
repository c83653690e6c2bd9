// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `barewire-broker`: the only process with CAP_NET_RAW. It gives programs of authorised users a socket for one LLC
//! service access point of one interface.

mod audit;
mod bounds;
mod egress;
mod grant_file;
mod groups;
mod ledger;
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
use nix::unistd::{Group, User};
use serde_json::json;
use thiserror::Error;

use audit::Audit;
use grant_file::GrantFile;
use groups::Groups;
use policy::Policy;
use server::{Server, claims_of, connections_max};
use signals::Signals;

const DEFAULT_POLICY: &str = "/etc/barewire/broker.toml";

/// Gives unprivileged programs sockets for LLC, according to a policy.
///
/// Exit codes: 0 success, 1 failure, 2 usage or policy error, 3 unsupported machine.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until terminated; SIGHUP reloads the policy and reopens the audit log
    Serve(ServeArguments),
    /// Validate the policy and exit
    Check(PolicyArguments),
    /// Print nftables rules that restrict transmission to what was granted; load them with `nft -f -` as root
    Egress(PolicyArguments),
}

#[derive(Args)]
struct PolicyArguments {
    /// The policy file
    #[arg(long, default_value = DEFAULT_POLICY)]
    policy: PathBuf,
}

#[derive(Args)]
struct ServeArguments {
    #[command(flatten)]
    policy: PolicyArguments,
    /// Path of the listening socket; the list of grants and a lock file are beside it
    #[arg(long, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// File to append the audit log to [default: standard error]
    #[arg(long)]
    audit: Option<PathBuf>,
    /// User to switch to; must be able to write to the socket's directory
    #[arg(long)]
    user: Option<String>,
}

/// Why the broker cannot start; each variant has an exit code.
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
    let grant_file = GrantFile::open(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => BrokerError::WrongUse(format!("another broker serves {}", socket.display())),
        _ => BrokerError::WrongUse(format!("beside {}: {error}; does its directory exist?", socket.display())),
    })?;
    let ledger = grant_file.read().map_err(|error| BrokerError::system("the list of grants", &error))?;
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
        grant_file,
        claims: claims_of(&ledger),
        ledger,
        groups: Groups::default(),
        exiting_holders: vec![],
        connections_max: connections_max(descriptors),
        policy_path,
    };
    server.run().map_err(|error| BrokerError::system("poll", &error))
}

/// Reads the policy; the error begins with FILE:LINE.
fn read_policy(path: &Path) -> Result<Policy, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("the policy {}: {error}", path.display()))?;
    Policy::parse(&text, members).map_err(|error| format!("{}:{error}", path.display()))
}

/// The ID of a user, or those of the users that `/etc/group` lists for `@GROUP`; `None` if there is no such name.
fn members(name: &str) -> Option<Vec<u32>> {
    let id = |name: &str| User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    let Some(group) = name.strip_prefix('@') else { return Some(vec![id(name)?]) };
    let group = Group::from_name(group).ok().flatten()?;
    Some(group.mem.iter().filter_map(|name| id(name)).collect())
}

fn print_egress(path: &Path) -> Result<(), BrokerError> {
    let policy = read_policy(path).map_err(BrokerError::WrongUse)?;
    let entries = fs::read_dir("/sys/class/net").map_err(|error| BrokerError::system("/sys/class/net", &error))?;
    let named = policy.interfaces();
    let (mut granted, mut others) = (vec![], vec![]);
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match Interface::by_name(&name) {
            Ok(interface) if named.contains(&name.as_str()) => granted.push(interface),
            Err(LinkError::NoSuchInterface(_)) => {}
            _ => others.push(name),
        }
    }
    if let Some(missing) = named.iter().find(|name| !granted.iter().any(|interface| interface.name == **name)) {
        return Err(BrokerError::WrongUse(format!("{}: there is no interface {missing}", path.display())));
    }
    for Interface { name, .. } in &granted {
        if let Some(lower) = lower_of(name) {
            return Err(BrokerError::WrongUse(format!(
                "{}: the frames of {name} leave through {lower}, where the rules would drop them: allow {lower} instead, \
                 or load no rules",
                path.display()
            )));
        }
    }
    print!("{}", egress::rules(&granted, &others));
    Ok(())
}

/// An interface through which another one sends: below a bridge, bond, VLAN or macvlan.
fn lower_of(name: &str) -> Option<String> {
    let entries = fs::read_dir(Path::new("/sys/class/net").join(name)).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).min()
}

fn raise_descriptors() -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
