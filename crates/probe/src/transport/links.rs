// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens links for frames.

use std::net::SocketAddr;

use barewire_broker::{RequestError, Status};
use barewire_endpoint::OpenError;
use barewire_link::{
    BusyPoll, Filter, Link, PacketConfig, PacketLink, UdpConfig, UdpLink, XdpConfig, XdpLink, XdpMode,
};

use super::{Endpoint, LocalConfig};
use crate::protocol::{LinkKind, Session, Station, Wait};
use barewire_recorder::LaunchError;

/// An open link of any kind.
pub enum OpenLink {
    Packet(PacketLink),
    Xdp(Box<XdpLink>),
    Udp(Box<UdpLink>),
}

barewire_link::link_by_kind!(OpenLink: Packet | Xdp | Udp);

impl OpenLink {
    /// Gives UDP the peer's socket address: an IPv6 address does not follow from that of the station.
    pub fn add_station(&mut self, peer: Station) -> Result<(), LaunchError> {
        let Self::Udp(link) = self else { return Ok(()) };
        let known = peer.socket.and_then(|socket| link.address_of(socket.ip(), socket.port()));
        if known.is_none() {
            return Err(LaunchError::Failed("the peer has no address of this side's IP version".to_owned()));
        }
        Ok(())
    }
}

/// Opens the session's kind of link for frames that match `filter`; only the packet link uses `protocol`, and only UDP,
/// whose socket has a port of its own, no filter.
pub fn open(
    session: &Session,
    local: &LocalConfig,
    protocol: u16,
    filter: Filter,
) -> Result<(OpenLink, Endpoint), LaunchError> {
    let interface = local.interface()?;
    let mode = match session.link {
        LinkKind::Packet => {
            return Ok(packet(open_packet(interface, protocol, filter)?));
        }
        LinkKind::Xdp => XdpMode::Auto,
        LinkKind::XdpGeneric => XdpMode::Generic,
        LinkKind::XdpNative => XdpMode::Native,
        LinkKind::XdpZerocopy => XdpMode::ZeroCopy,
        LinkKind::Udp => {
            let link = UdpLink::open(&UdpConfig {
                interface: interface.to_owned(),
                others: Vec::new(),
                ports: None,
                sources: 1,
            })?;
            let endpoint = endpoint(&link);
            return Ok((OpenLink::Udp(Box::new(link)), endpoint));
        }
    };
    let busy_poll = (session.wait == Wait::Busypoll).then(BusyPoll::default);
    let config = XdpConfig { interface: interface.to_owned(), filter, queue: local.queue, mode, busy_poll };
    let link = XdpLink::open(&config)?;
    let endpoint = endpoint(&link);
    Ok((OpenLink::Xdp(Box::new(link)), endpoint))
}

/// Refuses a station with this side's address: each side would receive its own frames, too.
pub fn require_other_station(link: &impl Link, peer: Station) -> Result<(), LaunchError> {
    if link.address().0 == peer.address {
        let text = "both sides have the same interface, and receive their own frames: choose another host, or transport \
                    endpoint, messages, tcp or udp";
        return Err(LaunchError::WrongUse(text.to_owned()));
    }
    Ok(())
}

/// Wraps an open packet link.
pub fn packet(link: PacketLink) -> (OpenLink, Endpoint) {
    let endpoint = endpoint(&link);
    (OpenLink::Packet(link), endpoint)
}

/// A packet link with the default ring size.
pub fn open_packet(interface: &str, protocol: u16, filter: Filter) -> Result<PacketLink, LaunchError> {
    let ring_bytes = PacketConfig::DEFAULT_RING_BYTES;
    Ok(PacketLink::open(&PacketConfig { interface: interface.to_owned(), protocol, filter, ring_bytes })?)
}

fn endpoint(link: &impl Link) -> Endpoint {
    let locator = link.locator();
    let socket = locator.ips().next().map(|ip| SocketAddr::new(ip, locator.port));
    Endpoint::Station(Station { address: link.address().0, mtu: link.mtu(), socket })
}

/// Bytes of a frame on the wire of which the link's users know nothing: between Ethernet header and type.
pub fn hidden_bytes(peer: Station) -> usize {
    match peer.socket {
        None => 0,
        Some(SocketAddr::V4(_)) => 2 + 20 + 8,
        Some(SocketAddr::V6(_)) => 2 + 40 + 8,
    }
}

/// Maps an open error to an exit code.
pub fn launch_error(error: OpenError) -> LaunchError {
    let error = match error {
        OpenError::Link(error) => return error.into(),
        OpenError::Broker(error) => error,
    };
    let text = error.to_string();
    match error {
        RequestError::Request(_) => LaunchError::WrongUse(text),
        RequestError::Refused { status: Status::NoInterface | Status::Taken, .. } => LaunchError::WrongUse(text),
        RequestError::Refused { status: Status::NotAllowed | Status::TooMany, .. }
        | RequestError::Unreachable { .. } => LaunchError::MachineCannot(text),
        RequestError::Refused { .. } | RequestError::Broken { .. } => LaunchError::Failed(text),
    }
}

/// An error caused by a wrong parameter.
pub fn usage_error(error: impl std::fmt::Display) -> LaunchError {
    LaunchError::WrongUse(error.to_string())
}
