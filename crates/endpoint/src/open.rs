// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link for LLC PDUs: a socket of our own, or the broker's where we may not have one.

use std::io;
use std::path::Path;

use barewire_broker::{DEFAULT_SOCKET, Request, RequestError, request_grant, sap_filter, station_filter};
use barewire_link::{Claim, Claimed, LinkError, MacAddress, PacketConfig, PacketLink};
use barewire_llc::Lsap;
use thiserror::Error;

use crate::address::Address;

/// Why there is no link.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The link itself.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The broker, who was asked for it.
    #[error(transparent)]
    Broker(#[from] RequestError),
}

/// Why an address is not this process's.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Another program of this host, of any user, has it.
    #[error("the address {0} is taken by another process of this host; choose another service access point")]
    Taken(Address),
    /// Whether one has it cannot be found out.
    #[error("whether another process has the address {0} cannot be found out: {1}")]
    System(Address, #[source] io::Error),
}

/// Which frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hears {
    /// Those for one service access point.
    Sap,
    /// And those for the station itself and for all of its service access points.
    Station,
}

/// The packet link's protocol for LLC PDUs.
///
/// Not ETH_P_802_2, although that is where most of them are: the kernel's own handler of length frames would get
/// each frame first, and a copy of its head. Who listens to all protocols comes before it.
pub const PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// A link for a service access point's PDUs: by `broker` if one is named, or if this process may not open one itself
/// and a broker runs. `ring_bytes` are of a receive ring of its own; a broker's sockets have the broker's.
///
/// # Errors
/// [`OpenError`].
pub fn open_link(
    interface: &str,
    sap: Lsap,
    hears: Hears,
    broker: Option<&Path>,
    ring_bytes: usize,
) -> Result<PacketLink, OpenError> {
    if let Some(broker) = broker {
        return from_broker(broker, interface, sap, hears);
    }
    let opened = PacketLink::open(&PacketConfig {
        interface: interface.to_owned(),
        protocol: PROTOCOL,
        filter: if hears == Hears::Station { station_filter(sap) } else { sap_filter(sap) },
        ring_bytes,
    });
    match opened {
        Err(LinkError::NotPermitted) if Path::new(DEFAULT_SOCKET).exists() => {
            from_broker(Path::new(DEFAULT_SOCKET), interface, sap, hears)
        }
        opened => {
            let mut link = opened?;
            // Without it batches take the kernel longer, and all else is the same.
            let _ = link.send_batches_by_xdp();
            Ok(link)
        }
    }
}

/// Claims an address for a link of this process's own; `None` if the broker gives the link, who has claimed it then.
///
/// # Errors
/// [`ClaimError`].
pub fn claim(address: Address, broker: Option<&Path>) -> Result<Option<Claim>, ClaimError> {
    if broker.is_some() {
        return Ok(None);
    }
    match Claim::take(MacAddress(address.mac), address.sap.byte()) {
        Ok(Claimed::Acquired(claim)) => Ok(Some(claim)),
        Ok(Claimed::NotPermitted) => Ok(None),
        Ok(Claimed::Taken) => Err(ClaimError::Taken(address)),
        Err(error) => Err(ClaimError::System(address, error)),
    }
}

fn from_broker(broker: &Path, interface: &str, sap: Lsap, hears: Hears) -> Result<PacketLink, OpenError> {
    let request = Request { interface: interface.to_owned(), sap, station: hears == Hears::Station };
    let grant = request_grant(broker, &request)?;
    Ok(PacketLink::adopt(grant.socket, interface, grant.ring, Some(grant.lease))?)
}
