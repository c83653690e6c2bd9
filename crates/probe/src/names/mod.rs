// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds hosts by name: in the hosts file, then by queries on the segment.

mod announce;
mod listing;
mod segment;

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use barewire_link::{Interface, MacAddress};
use barewire_names::bounds::LOOKUP_TIMEOUT;
use barewire_names::{Census, Found, Host, Hosts, Name, NameError};
use clap::Args;

use self::segment::{Segment, now};
use crate::control::{Address, DEFAULT_PORT};
use barewire_recorder::LaunchError;

pub use announce::{AnnounceArguments, AnnounceCommand, run as announce};
pub use listing::{HostsCommand, run as list};

const DEFAULT_PATH: &str = "/etc/barewire/hosts";
/// Environment variable with another path.
const PATH_VARIABLE: &str = "BAREWIRE_HOSTS";

#[derive(Args)]
pub struct FileArguments {
    /// Hosts file: lines of name, MAC address and interface [default: $BAREWIRE_HOSTS, else /etc/barewire/hosts]
    #[arg(long)]
    hosts_file: Option<PathBuf>,
}

/// A peer station, which has no control channel.
#[derive(Args)]
pub struct PeerArguments {
    /// The peer's station: a name or a MAC address
    #[arg(long)]
    peer: Peer,
    /// Own interface to the peer [default: the hosts file's]
    #[arg(long)]
    interface: Option<String>,
    #[command(flatten)]
    file: FileArguments,
}

/// A peer as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    Name(Name),
    Mac(MacAddress),
}

/// A station's MAC address, and the interface to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationAddress {
    pub mac: MacAddress,
    pub interface: String,
}

impl FromStr for Peer {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        text.parse().map(Self::Mac).or_else(|_| text.parse().map(Self::Name))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Mac(mac) => mac.fmt(f),
        }
    }
}

impl PeerArguments {
    /// Finds the peer: in the hosts file, then on the segment of --interface.
    ///
    /// # Errors
    /// [`LaunchError::WrongUse`] if no station or several have the name, with the places searched.
    pub fn find(&self) -> Result<StationAddress, LaunchError> {
        let station = self.resolve()?;
        if Interface::by_name(&station.interface)?.address == station.mac {
            return Err(LaunchError::WrongUse(format!("{} is this host itself, which no frame can reach", self.peer)));
        }
        Ok(station)
    }

    fn resolve(&self) -> Result<StationAddress, LaunchError> {
        if let (Peer::Mac(mac), Some(interface)) = (&self.peer, &self.interface) {
            return Ok(StationAddress { mac: *mac, interface: interface.clone() });
        }
        let file = HostsFile::read(&self.file)?;
        if let Some(host) = file.host(&self.peer, self.interface.as_deref())? {
            return Ok(StationAddress { mac: host.mac, interface: host.interface.clone() });
        }
        let searched = [file.to_string()];
        match (&self.peer, &self.interface) {
            (Peer::Name(name), Some(interface)) => {
                let found = query_name(name, interface, &searched)?;
                Ok(StationAddress { mac: found.mac, interface: interface.clone() })
            }
            _ => Err(not_found(&self.peer, None, &searched)),
        }
    }
}

/// The serving probe's control address, and the interface to its host.
pub struct Route {
    pub control: Address,
    pub interface: Option<String>,
}

/// Finds the serving probe: by the system's resolver, else by asking the station of that name for its control address.
/// Without a given interface, the hosts file's is used if frames need one.
///
/// # Errors
/// [`LaunchError::WrongUse`] if no station or several have the name, with the places searched;
/// [`LaunchError::Failed`] if the station has no probe.
pub fn route(
    control: Address,
    interface: Option<String>,
    needs_frames: bool,
    file: &FileArguments,
) -> Result<Route, LaunchError> {
    let Address::Tcp(text) = &control else { return Ok(Route { control, interface }) };
    let is_mac = text.parse::<MacAddress>().is_ok();
    let (host, port) = text.rsplit_once(':').filter(|_| !is_mac).unwrap_or((text, ""));
    let Ok(peer) = host.parse::<Peer>() else { return Ok(Route { control, interface }) };
    let resolved = if let Peer::Name(_) = peer { Some(text.to_socket_addrs()) } else { None };
    if let Some(Ok(_)) = resolved {
        let interface = match interface {
            None if needs_frames => HostsFile::read(file)?.host(&peer, None)?.map(|host| host.interface.clone()),
            given => given,
        };
        return Ok(Route { control, interface });
    }
    let file = HostsFile::read(file)?;
    let unresolved = resolved.and_then(Result::err).map(|error| format!("the system's names ({error})"));
    let searched: Vec<String> = unresolved.into_iter().chain([file.to_string()]).collect();
    let entry = file.host(&peer, interface.as_deref())?;
    let interface = entry.map(|host| host.interface.clone()).or(interface);
    let Some(interface) = interface else { return Err(not_found(&peer, None, &searched)) };
    let found = match (entry.map(|host| host.mac), &peer) {
        (Some(mac), _) => query_station(&peer, mac, &interface)?,
        (None, Peer::Mac(mac)) => query_station(&peer, *mac, &interface)?,
        (None, Peer::Name(name)) => query_name(name, &interface, &searched)?,
    };
    let Some(control) = found.control else {
        return Err(LaunchError::Failed(format!(
            "{} answers on {interface}, but no probe listens there: start `barewire-probe serve --interface …` \
             there first, where an IP address leads to it",
            describe_peer(&peer, found.mac)
        )));
    };
    let wanted_port = port.parse().ok().filter(|port| *port != DEFAULT_PORT);
    let control = Address::Tcp(dialled(control, wanted_port, &interface)?.to_string());
    Ok(Route { control, interface: Some(interface) })
}

/// The address to dial for an announced one: with the scope of a link-local address, and with the user's port.
fn dialled(mut control: SocketAddr, port: Option<u16>, interface: &str) -> Result<SocketAddr, LaunchError> {
    control.set_port(port.unwrap_or(control.port()));
    if let SocketAddr::V6(v6) = &mut control
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(Interface::by_name(interface)?.index.unsigned_abs());
    }
    Ok(control)
}

/// The only station of the segment with this name.
fn query_name(name: &Name, interface: &str, searched: &[String]) -> Result<Found, LaunchError> {
    let mut segment = Segment::open(interface)?;
    let mut census = Census::of_name(name.clone(), fastrand::u32(..), LOOKUP_TIMEOUT, now());
    segment.run_census(&mut census)?;
    let mut found = census.found();
    if found.len() > 1 {
        let all: Vec<String> = found.iter().map(|station| station.mac.to_string()).collect();
        return Err(LaunchError::WrongUse(format!(
            "{} stations on {interface} answer to '{name}': {}; give the MAC address, or a line in the hosts file",
            all.len(),
            all.join(", ")
        )));
    }
    found.pop().ok_or_else(|| not_found(&Peer::Name(name.clone()), Some(interface), searched))
}

/// Queries one station. If it answers with several names, prefers the one with a probe.
fn query_station(peer: &Peer, mac: MacAddress, interface: &str) -> Result<Found, LaunchError> {
    let mut segment = Segment::open(interface)?;
    let mut census = Census::of_station(mac, fastrand::u32(..), LOOKUP_TIMEOUT, now());
    segment.run_census(&mut census)?;
    census.found().into_iter().max_by_key(|found| found.control.is_some()).ok_or_else(|| {
        LaunchError::Failed(format!(
            "{} does not answer on {interface}: start `barewire-probe serve --interface …` there first",
            describe_peer(peer, mac)
        ))
    })
}

/// The peer as the user named it, with its MAC address.
fn describe_peer(peer: &Peer, mac: MacAddress) -> String {
    match peer {
        Peer::Name(name) => format!("{name} ({mac})"),
        Peer::Mac(_) => mac.to_string(),
    }
}

fn not_found(peer: &Peer, interface: Option<&str>, searched: &[String]) -> LaunchError {
    let segment = match interface {
        Some(interface) => {
            format!("nor on the segment of {interface} (no answer in {} ms)", LOOKUP_TIMEOUT.as_millis())
        }
        None => "and no segment was queried (give --interface)".to_owned(),
    };
    LaunchError::WrongUse(format!("'{peer}' was not found: not in {}, {segment}", searched.join(", not in ")))
}

/// The hosts file, if there is one.
struct HostsFile {
    path: PathBuf,
    hosts: Option<Hosts>,
}

impl HostsFile {
    fn read(arguments: &FileArguments) -> Result<Self, LaunchError> {
        let variable = std::env::var_os(PATH_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = arguments.hosts_file.clone().or(variable);
        let is_named = named.is_some();
        let path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
        let hosts = match std::fs::read(&path) {
            Ok(bytes) => {
                Some(Hosts::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| file_error(&path, &error))?)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => None,
            Err(error) => return Err(LaunchError::WrongUse(format!("the hosts file {}: {error}", path.display()))),
        };
        Ok(Self { path, hosts })
    }

    /// The entry of a name, or of an address on `interface` (any interface if `None`).
    fn host(&self, peer: &Peer, interface: Option<&str>) -> Result<Option<&Host>, LaunchError> {
        let mut hosts = self.hosts.iter().flat_map(Hosts::iter);
        let is_on_interface = |host: &Host| interface.is_none_or(|interface| interface == host.interface);
        let found = match peer {
            Peer::Name(name) => hosts.find(|(_, host)| host.name == *name),
            Peer::Mac(mac) => hosts.find(|(_, host)| host.mac == *mac && is_on_interface(host)),
        };
        match found {
            Some((line, host)) if !is_on_interface(host) => Err(LaunchError::WrongUse(format!(
                "{}:{line}: {peer} is reached through {}; leave --interface out, or correct the line",
                self.path.display(),
                host.interface
            ))),
            found => Ok(found.map(|(_, host)| host)),
        }
    }
}

/// For the list of places searched.
impl fmt::Display for HostsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Some(hosts) => write!(f, "{} ({} hosts)", self.path.display(), hosts.iter().count()),
            None => write!(f, "{} (there is none)", self.path.display()),
        }
    }
}

fn file_error(path: &Path, error: &barewire_names::HostsError) -> LaunchError {
    LaunchError::WrongUse(format!("{}:{error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> HostsFile {
        HostsFile { path: "hosts".into(), hosts: Some(Hosts::parse(text).unwrap()) }
    }

    #[test]
    fn a_peer_is_an_address_or_a_name() {
        assert_eq!("02:00:00:00:00:01".parse(), Ok(Peer::Mac(MacAddress([2, 0, 0, 0, 0, 1]))));
        assert!(matches!("H2".parse(), Ok(Peer::Name(name)) if name.as_str() == "h2"));
        assert!("02:00:00:00:00".parse::<Peer>().is_err());
    }

    #[test]
    fn a_host_is_found_by_name_and_by_address_on_its_interface() {
        let file = file("h2 02:00:00:00:00:02 eth0\nh2-b 02:00:00:00:00:02 eth1\n");
        let name = |text: &str| Peer::Name(text.parse().unwrap());
        let mac = Peer::Mac(MacAddress([2, 0, 0, 0, 0, 2]));
        for (peer, interface, expected) in [
            (name("h2-b"), None, Some("eth1")),
            (name("h2"), Some("eth0"), Some("eth0")),
            (name("h3"), None, None),
            (mac.clone(), None, Some("eth0")),
            (mac.clone(), Some("eth1"), Some("eth1")),
            (mac, Some("eth2"), None),
        ] {
            let found = file.host(&peer, interface).unwrap();
            assert_eq!(found.map(|host| host.interface.as_str()), expected, "{peer} {interface:?}");
        }
        let error = file.host(&name("h2"), Some("eth1")).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().starts_with("hosts:1: h2 is reached through eth0"));
    }

    #[test]
    fn a_link_local_address_gets_its_scope_and_a_given_port_takes_precedence() {
        let index = Interface::by_name("lo").unwrap().index;
        let reached = |text: &str, port| dialled(text.parse().unwrap(), port, "lo").unwrap().to_string();
        assert_eq!(reached("[fe80::1]:5", None), format!("[fe80::1%{index}]:5"));
        assert_eq!(reached("10.0.0.2:5", Some(7)), "10.0.0.2:7");
    }
}
