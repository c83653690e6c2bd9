// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens links for frames.

use barewire_broker::{RequestError, Status};
use barewire_endpoint::OpenError;
use barewire_link::{BusyPoll, Filter, Link, PacketConfig, PacketLink, XdpConfig, XdpLink, XdpMode};

use super::{Endpoint, LocalConfig};
use crate::protocol::{LinkKind, Session, Wait};
use barewire_recorder::LaunchError;

/// An open link of either kind.
pub enum OpenLink {
    Packet(PacketLink),
    Xdp(Box<XdpLink>),
}

/// Opens the session's kind of link for frames that match `filter`; only the packet link uses `protocol`.
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
    };
    let busy_poll = (session.wait == Wait::Busypoll).then(BusyPoll::default);
    let config = XdpConfig { interface: interface.to_owned(), filter, queue: local.queue, mode, busy_poll };
    let link = XdpLink::open(&config)?;
    let endpoint = endpoint(&link);
    Ok((OpenLink::Xdp(Box::new(link)), endpoint))
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
    Endpoint::Station { address: link.address().0, mtu: link.mtu() }
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
