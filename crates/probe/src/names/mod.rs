// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts by name: the hosts file first, then whoever answers on the segment.

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

const DEFAULT_FILE: &str = "/etc/barewire/hosts";
/// Names another file.
const FILE_VARIABLE: &str = "BAREWIRE_HOSTS";

#[derive(Args)]
pub struct FileArguments {
    /// Lines 'name MAC interface' [default: $BAREWIRE_HOSTS, else /etc/barewire/hosts]
    #[arg(long)]
    hosts_file: Option<PathBuf>,
}

/// A station that is spoken to without any control channel.
#[derive(Args)]
pub struct PeerArguments {
    /// The peer's station: a name or a MAC address
    #[arg(long)]
    peer: Peer,
    /// Own interface that leads there [default: the hosts file's]
    #[arg(long)]
    interface: Option<String>,
    #[command(flatten)]
    file: FileArguments,
}

/// Who is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    Name(Name),
    Mac(MacAddress),
}

/// Where a station is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationPlace {
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
    /// [`LaunchError::WrongUse`] if nobody has the name, with where was looked, or several have.
    pub fn find(&self) -> Result<StationPlace, LaunchError> {
        let place = self.place()?;
        if Interface::by_name(&place.interface)?.address == place.mac {
            return Err(LaunchError::WrongUse(format!("{} is this host itself: no frame leads there", self.peer)));
        }
        Ok(place)
    }

    fn place(&self) -> Result<StationPlace, LaunchError> {
        if let (Peer::Mac(mac), Some(interface)) = (&self.peer, &self.interface) {
            return Ok(StationPlace { mac: *mac, interface: interface.clone() });
        }
        let file = HostsFile::read(&self.file)?;
        if let Some(host) = file.host(&self.peer, self.interface.as_deref())? {
            return Ok(StationPlace { mac: host.mac, interface: host.interface.clone() });
        }
        let looked = [file.to_string()];
        match (&self.peer, &self.interface) {
            (Peer::Name(name), Some(interface)) => {
                let found = find_named(name, interface, &looked)?;
                Ok(StationPlace { mac: found.mac, interface: interface.clone() })
            }
            _ => Err(nowhere(&self.peer, None, &looked)),
        }
    }
}

/// Where the other side's probe listens for control, and the interface that leads there.
pub struct Route {
    pub control: Address,
    pub interface: Option<String>,
}

/// Finds the other side's probe: by the system's resolver; else the station of that name says where its probe listens.
/// The interface is the hosts file's where none is given and frames need one.
///
/// # Errors
/// [`LaunchError::WrongUse`] if nobody has the name, with where was looked, or several have;
/// [`LaunchError::Failed`] if no probe is there.
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
    let looked: Vec<String> = unresolved.into_iter().chain([file.to_string()]).collect();
    let listed = file.host(&peer, interface.as_deref())?;
    let interface = listed.map(|host| host.interface.clone()).or(interface);
    let Some(interface) = interface else { return Err(nowhere(&peer, None, &looked)) };
    let found = match (listed.map(|host| host.mac), &peer) {
        (Some(mac), _) => ask_station(&peer, mac, &interface)?,
        (None, Peer::Mac(mac)) => ask_station(&peer, *mac, &interface)?,
        (None, Peer::Name(name)) => find_named(name, &interface, &looked)?,
    };
    let Some(control) = found.control else {
        return Err(LaunchError::Failed(format!(
            "{} answers on {interface}, but no probe listens there: start `barewire-probe serve --interface …` \
             there first, where an IP address leads to it",
            both(&peer, found.mac)
        )));
    };
    let wanted_port = port.parse().ok().filter(|port| *port != DEFAULT_PORT);
    let control = Address::Tcp(reach(control, wanted_port, &interface)?.to_string());
    Ok(Route { control, interface: Some(interface) })
}

/// What a station said, from here: an address of the link needs the interface, a port of the user's choice goes first.
fn reach(mut control: SocketAddr, port: Option<u16>, interface: &str) -> Result<SocketAddr, LaunchError> {
    control.set_port(port.unwrap_or(control.port()));
    if let SocketAddr::V6(v6) = &mut control
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(Interface::by_name(interface)?.index.unsigned_abs());
    }
    Ok(control)
}

/// The one station of the segment that has a name.
fn find_named(name: &Name, interface: &str, looked: &[String]) -> Result<Found, LaunchError> {
    let mut segment = Segment::open(interface)?;
    let mut census = Census::of_name(name.clone(), fastrand::u32(..), LOOKUP_TIMEOUT, now());
    segment.ask(&mut census)?;
    let mut found = census.found();
    if found.len() > 1 {
        let all: Vec<String> = found.iter().map(|one| one.mac.to_string()).collect();
        return Err(LaunchError::WrongUse(format!(
            "{} stations on {interface} answer to '{name}': {}; give the MAC address, or a line in the hosts file",
            all.len(),
            all.join(", ")
        )));
    }
    found.pop().ok_or_else(|| nowhere(&Peer::Name(name.clone()), Some(interface), looked))
}

/// What one station says of itself; the one with a probe, if it has several names.
fn ask_station(peer: &Peer, mac: MacAddress, interface: &str) -> Result<Found, LaunchError> {
    let mut segment = Segment::open(interface)?;
    let mut census = Census::of_station(mac, fastrand::u32(..), LOOKUP_TIMEOUT, now());
    segment.ask(&mut census)?;
    census.found().into_iter().max_by_key(|found| found.control.is_some()).ok_or_else(|| {
        LaunchError::Failed(format!(
            "{} does not answer on {interface}: start `barewire-probe serve --interface …` there first",
            both(peer, mac)
        ))
    })
}

/// A peer as the user called it, and its address.
fn both(peer: &Peer, mac: MacAddress) -> String {
    match peer {
        Peer::Name(name) => format!("{name} ({mac})"),
        Peer::Mac(_) => mac.to_string(),
    }
}

fn nowhere(peer: &Peer, interface: Option<&str>, looked: &[String]) -> LaunchError {
    let segment = match interface {
        Some(interface) => {
            format!("nor on the segment of {interface} (no answer in {} ms)", LOOKUP_TIMEOUT.as_millis())
        }
        None => "and no segment was asked (give --interface)".to_owned(),
    };
    LaunchError::WrongUse(format!("'{peer}' was not found: not in {}, {segment}", looked.join(", not in ")))
}

/// The hosts file, if there is one.
struct HostsFile {
    path: PathBuf,
    hosts: Option<Hosts>,
}

impl HostsFile {
    fn read(arguments: &FileArguments) -> Result<Self, LaunchError> {
        let variable = std::env::var_os(FILE_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = arguments.hosts_file.clone().or(variable);
        let is_named = named.is_some();
        let path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let hosts = match std::fs::read(&path) {
            Ok(bytes) => Some(Hosts::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| at(&path, &error))?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => None,
            Err(error) => return Err(LaunchError::WrongUse(format!("the hosts file {}: {error}", path.display()))),
        };
        Ok(Self { path, hosts })
    }

    /// The line of a name or an address; one with an address is looked for on `interface` if that is given.
    fn host(&self, peer: &Peer, interface: Option<&str>) -> Result<Option<&Host>, LaunchError> {
        let mut hosts = self.hosts.iter().flat_map(Hosts::iter);
        let is_there = |host: &Host| interface.is_none_or(|interface| interface == host.interface);
        let found = match peer {
            Peer::Name(name) => hosts.find(|(_, host)| host.name == *name),
            Peer::Mac(mac) => hosts.find(|(_, host)| host.mac == *mac && is_there(host)),
        };
        match found {
            Some((line, host)) if !is_there(host) => Err(LaunchError::WrongUse(format!(
                "{}:{line}: {peer} is reached through {}; leave --interface out, or correct the line",
                self.path.display(),
                host.interface
            ))),
            found => Ok(found.map(|(_, host)| host)),
        }
    }
}

/// For the list of where was looked.
impl fmt::Display for HostsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Some(hosts) => write!(f, "{} ({} hosts)", self.path.display(), hosts.iter().count()),
            None => write!(f, "{} (there is none)", self.path.display()),
        }
    }
}

fn at(path: &Path, error: &barewire_names::HostsError) -> LaunchError {
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
    fn an_address_of_the_link_gets_the_interface_and_a_given_port_goes_first() {
        let index = Interface::by_name("lo").unwrap().index;
        let reached = |text: &str, port| reach(text.parse().unwrap(), port, "lo").unwrap().to_string();
        assert_eq!(reached("[fe80::1]:5", None), format!("[fe80::1%{index}]:5"));
        assert_eq!(reached("10.0.0.2:5", Some(7)), "10.0.0.2:7");
    }
}
