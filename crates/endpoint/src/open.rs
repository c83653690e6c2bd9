// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening a link for LLC PDUs: with a socket of this process, or with one from the broker.

use std::io;
use std::path::Path;

use barewire_broker::{DEFAULT_SOCKET, Request, RequestError, request_grant, sap_filter, station_filter};
use barewire_link::{Claim, Claimed, LinkError, MacAddress, PacketConfig, PacketLink};
use barewire_llc::Lsap;
use thiserror::Error;

use crate::address::Address;

/// Why a link could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Error of the link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Error of the broker.
    #[error(transparent)]
    Broker(#[from] RequestError),
}

/// Why an address could not be claimed.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Another process of this host, of any user, uses the address.
    #[error("another process of this host uses the address {0}; choose another service access point")]
    Taken(Address),
    /// The system could not determine whether another process uses the address.
    #[error("cannot find out whether another process uses the address {0}: {1}")]
    System(Address, #[source] io::Error),
}

/// Which frames a link receives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LinkScope {
    /// Frames for one SAP.
    Sap,
    /// Also frames for the station itself and for the global DSAP.
    Station,
}

/// The packet link's protocol for LLC PDUs.
///
/// Not ETH_P_802_2, the protocol of most of them: the kernel's own handler of frames with a length field would process
/// each frame first and take a copy of its head. Listeners to all protocols come before it.
pub const PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// Opens a link for the PDUs of a SAP: from `broker` if one is given, or from the default broker if it runs and this
/// process has no permission. `ring_bytes` is the size of the receive ring if this process opens the socket; the broker
/// chooses the size of its own.
///
/// # Errors
/// [`OpenError`].
pub fn open_link(
    interface: &str,
    sap: Lsap,
    scope: LinkScope,
    broker: Option<&Path>,
    ring_bytes: usize,
) -> Result<PacketLink, OpenError> {
    if let Some(broker) = broker {
        return from_broker(broker, interface, sap, scope);
    }
    let opened = PacketLink::open(&PacketConfig {
        interface: interface.to_owned(),
        protocol: PROTOCOL,
        filter: if scope == LinkScope::Station { station_filter(sap) } else { sap_filter(sap) },
        ring_bytes,
    });
    match opened {
        Err(LinkError::NotPermitted) if Path::new(DEFAULT_SOCKET).exists() => {
            from_broker(Path::new(DEFAULT_SOCKET), interface, sap, scope)
        }
        opened => {
            let mut link = opened?;
            // Optional: without XDP the kernel takes longer for batches.
            let _ = link.send_batches_by_xdp();
            Ok(link)
        }
    }
}

/// Claims an address for a link that this process opened itself; `None` for a link from the broker, which claims it.
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

fn from_broker(broker: &Path, interface: &str, sap: Lsap, scope: LinkScope) -> Result<PacketLink, OpenError> {
    let request = Request { interface: interface.to_owned(), sap, station: scope == LinkScope::Station };
    let grant = request_grant(broker, &request)?;
    Ok(PacketLink::adopt(grant.socket, interface, grant.ring, Some(grant.lease))?)
}
