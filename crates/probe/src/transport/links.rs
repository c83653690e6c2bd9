// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The links that frames can go over.

use barewire_broker::{RequestError, Status};
use barewire_endpoint::OpenError;
use barewire_link::{BusyPoll, Filter, Link, PacketConfig, PacketLink, XdpConfig, XdpLink, XdpMode};

use super::{Endpoint, Place};
use crate::protocol::{LinkKind, Session, Wait};
use barewire_recorder::LaunchError;

/// A link of one of the kinds.
pub enum OpenLink {
    Packet(PacketLink),
    Xdp(Box<XdpLink>),
}

/// Opens the session's kind of link for the frames that `filter` wants; `protocol` is for the packet link alone.
pub fn open(
    session: &Session,
    place: &Place,
    protocol: u16,
    filter: Filter,
) -> Result<(OpenLink, Endpoint), LaunchError> {
    let interface = place.interface()?;
    let mode = match session.link {
        LinkKind::Packet => {
            return Ok(packet(open_packet(interface, protocol, filter)?));
        }
        LinkKind::Xdp => XdpMode::Auto,
        LinkKind::XdpGeneric => XdpMode::Generic,
        LinkKind::XdpNative => XdpMode::Native,
        LinkKind::XdpZerocopy => XdpMode::ZeroCopy,
    };
    let busy_poll = (session.wait == Wait::Busypoll).then(BusyPoll::default);
    let config = XdpConfig { interface: interface.to_owned(), filter, queue: place.queue, mode, busy_poll };
    let link = XdpLink::open(&config)?;
    let endpoint = endpoint(&link);
    Ok((OpenLink::Xdp(Box::new(link)), endpoint))
}

/// A packet link that is open.
pub fn packet(link: PacketLink) -> (OpenLink, Endpoint) {
    let endpoint = endpoint(&link);
    (OpenLink::Packet(link), endpoint)
}

/// A packet link with the ring that suits measurements.
pub fn open_packet(interface: &str, protocol: u16, filter: Filter) -> Result<PacketLink, LaunchError> {
    let ring_bytes = PacketConfig::DEFAULT_RING_BYTES;
    Ok(PacketLink::open(&PacketConfig { interface: interface.to_owned(), protocol, filter, ring_bytes })?)
}

fn endpoint(link: &impl Link) -> Endpoint {
    Endpoint::Station { address: link.address().0, mtu: link.mtu() }
}

/// Whose fault it is that there is no link.
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

/// A value that does not fit.
pub fn wrong(error: impl std::fmt::Display) -> LaunchError {
    LaunchError::WrongUse(error.to_string())
}
