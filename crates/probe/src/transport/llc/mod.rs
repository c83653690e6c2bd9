// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IEEE 802.2 LLC over a link: datagrams (type 1), a connection (type 2), acknowledged datagrams (type 3).

mod datagram;
pub mod reliable;

use barewire_broker::sap_filter;
use barewire_link::{Link, PacketConfig};
use barewire_llc::{Lsap, Peer};

use self::datagram::Datagrams;
use self::reliable::Reliable;
use super::links::{self, OpenLink, launch_error};
use super::{Endpoint, LocalConfig, Transport};
use crate::protocol::{Kind, LinkKind, Session, Station};
use barewire_endpoint::{Encapsulation, LinkScope, PROTOCOL, open_link};
use barewire_recorder::LaunchError;

/// Both ends are stations of ours.
const ENCAPSULATION: Encapsulation = Encapsulation::EtherType;

/// The SAP of a pair, the same on both sides.
///
/// Individual addresses for users start at 0x10. Assigned ones are left out: 0x42 spanning tree, 0x7e, 0x80, 0x8e,
/// 0xaa SNAP, 0xba our name service, 0xe0 IPX, 0xf0 NetBIOS, 0xfe OSI.
pub fn sap_of(pair: u8) -> Lsap {
    let mut numbers = sap_numbers();
    numbers.nth(usize::from(pair)).and_then(Lsap::new).expect("there are more numbers than pairs")
}

fn sap_numbers() -> impl Iterator<Item = u8> {
    const ASSIGNED: [u8; 9] = [0x42, 0x7e, 0x80, 0x8e, 0xaa, 0xba, 0xe0, 0xf0, 0xfe];
    (0x10..=0xfc_u8).step_by(2).filter(|number| !ASSIGNED.contains(number))
}

/// Number of available SAPs, and so of concurrent pairs.
pub const SAP_COUNT: u8 = 111;

/// A link opened before the peer is known.
pub struct Listening {
    link: OpenLink,
}

/// Opens the session's kind of link for the frames of a SAP.
pub fn open(
    session: &Session,
    local: &LocalConfig,
    sap: Lsap,
    ring_bytes: usize,
) -> Result<(OpenLink, Endpoint), LaunchError> {
    match (session.link, local.broker.as_deref()) {
        (LinkKind::Packet, broker) => {
            let link = open_link(local.interface()?, sap, LinkScope::Sap, broker, ring_bytes);
            Ok(links::packet(link.map_err(launch_error)?))
        }
        (_, None) => links::open(session, local, PROTOCOL, sap_filter(sap)),
        (_, Some(_)) => {
            let text = "the broker grants sockets for the packet link only: omit --link or --broker";
            Err(LaunchError::WrongUse(text.to_owned()))
        }
    }
}

impl Listening {
    pub fn new(session: &Session, local: &LocalConfig) -> Result<(Self, Endpoint), LaunchError> {
        let (link, endpoint) = open(session, local, sap_of(session.pair), PacketConfig::DEFAULT_RING_BYTES)?;
        Ok((Self { link }, endpoint))
    }

    /// Opens the passive side's end; type 2 waits for the peer's connection.
    pub fn accept(self, session: &Session, peer: Station) -> Result<Box<dyn Transport>, LaunchError> {
        self.open(session, peer, false)
    }

    /// Opens the active side's end; type 2 connects to the peer.
    pub fn connect(self, session: &Session, peer: Station) -> Result<Box<dyn Transport>, LaunchError> {
        self.open(session, peer, true)
    }

    fn open(self, session: &Session, station: Station, connects: bool) -> Result<Box<dyn Transport>, LaunchError> {
        let mut link = self.link;
        links::require_other_station(&link, station)?;
        link.add_station(station)?;
        let sap = sap_of(session.pair);
        let peer = Peer { local: sap, mac: station.address, remote: sap };
        let mtu = link.mtu().min(station.mtu);
        Ok(match session.transport {
            Kind::Llc1 => Box::new(Datagrams::new(link, session.session, peer, mtu, links::hidden_bytes(station))?),
            Kind::Llc2 => Box::new(Reliable::connection(link, peer, mtu, connects)?),
            _ => Box::new(Reliable::acknowledged(link, peer, mtu)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sap_count_is_the_number_of_available_saps() {
        assert_eq!(sap_numbers().count(), usize::from(SAP_COUNT));
    }
}
