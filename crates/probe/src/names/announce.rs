// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Announces this host's name: during `serve` and `station echo`, or as a command of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use barewire_names::{Name, Responder};
use clap::Args;
use nix::ifaddrs::getifaddrs;
use serde_json::{Map, Value, json};

use super::segment::Segment;
use crate::measure::INTERRUPTED;
use barewire_recorder::LaunchError;

/// Delay before retrying an interface that does not work.
const RETRY: Duration = Duration::from_secs(1);
/// Interval at which the command checks the interrupt flag.
const SLEEP: Duration = Duration::from_millis(20);

/// For commands that also announce.
#[derive(Args)]
pub struct AnnounceArguments {
    /// Name to answer to on the segment of --interface [default: the host's]
    #[arg(long, conflicts_with = "no_announce")]
    name: Option<Name>,
    /// Answer no queries for names, so that only measurement traffic is on the interface
    #[arg(long)]
    no_announce: bool,
}

/// For the command `announce`.
#[derive(Args)]
pub struct AnnounceCommand {
    /// Interface on whose segment to answer
    #[arg(long)]
    interface: String,
    /// Name to answer to [default: the host's]
    #[arg(long)]
    name: Option<Name>,
}

/// Answers until interrupted, then prints counters.
///
/// # Errors
/// [`LaunchError::Interrupted`] at the end; others if the interface cannot be opened or fails.
pub fn run(command: &AnnounceCommand) -> Result<(), LaunchError> {
    let mut segment = Segment::open(&command.interface)?;
    let name = own_name(command.name.as_ref())?;
    let interface = segment.interface();
    println!(
        "{}",
        json!({"record": "ready", "name": name.as_str(), "mac": interface.address.to_string(),
            "interface": interface.name})
    );
    let mut responder = Responder::new(name, None);
    while !INTERRUPTED.load(Ordering::Relaxed) {
        segment.answer(&mut responder, SLEEP)?;
    }
    let counters = responder.counters();
    let ignored: Map<String, Value> =
        counters.ignored.iter().map(|(reason, count)| (reason.into(), count.into())).collect();
    println!(
        "{}",
        json!({"record": "end", "answered": counters.answered, "refused": counters.refused, "ignored": ignored})
    );
    Err(LaunchError::Interrupted)
}

impl AnnounceArguments {
    /// Answers on a thread for the rest of the process; returns the name. Failure is only a warning and `None`, since
    /// the command itself may need no frames. `listen` is the probe's control address.
    pub fn start(&self, interface: Option<&str>, listen: Option<SocketAddr>) -> Option<Name> {
        if self.no_announce {
            return None;
        }
        let started = match interface {
            Some(interface) => self.start_on(interface, listen),
            None => Err(LaunchError::WrongUse("no --interface was given".to_owned())),
        };
        started.map_err(|error| eprintln!("barewire-probe: this host is not found by name: {error}")).ok()
    }

    fn start_on(&self, interface: &str, listen: Option<SocketAddr>) -> Result<Name, LaunchError> {
        let name = own_name(self.name.as_ref())?;
        let mut segment = Segment::open(interface)?;
        let control = listen.and_then(|listen| reachable(listen, interface));
        let mut responder = Responder::new(name.clone(), control);
        let answer = move || {
            loop {
                if let Err(error) = segment.answer(&mut responder, Duration::from_secs(60)) {
                    eprintln!("barewire-probe: queries for names go unanswered: {error}");
                    std::thread::sleep(RETRY);
                }
            }
        };
        let thread = std::thread::Builder::new().name("names".to_owned()).spawn(answer);
        thread.map_err(|error| LaunchError::system("thread", error))?;
        Ok(name)
    }
}

/// The name given, or the host's.
pub fn own_name(given: Option<&Name>) -> Result<Name, LaunchError> {
    if let Some(name) = given {
        return Ok(name.clone());
    }
    let system = nix::sys::utsname::uname().map_err(|error| LaunchError::system("uname", error))?;
    let parsed = system.nodename().to_string_lossy().parse();
    parsed.map_err(|error| LaunchError::WrongUse(format!("{error}; give another with --name")))
}

/// The address of `listen` for peers on the interface's segment. An unspecified address becomes the interface's first,
/// IPv4 preferred.
fn reachable(listen: SocketAddr, interface: &str) -> Option<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return Some(listen);
    }
    let addresses = getifaddrs().ok()?.filter(|entry| entry.interface_name == interface).filter_map(|entry| {
        let address = entry.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    let listens_at = |ip: &IpAddr| ip.is_ipv4() || listen.is_ipv6();
    let ip = addresses.filter(listens_at).min_by_key(IpAddr::is_ipv6)?;
    Some(SocketAddr::new(ip, listen.port()))
}
