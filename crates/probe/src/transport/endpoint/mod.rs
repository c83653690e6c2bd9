// SPDX-License-Identifier: Apache-2.0 OR MIT
//! U-Net endpoints, with the job token: alone, or under the message layer.
//!
//! Both sides may use the same interface; messages then go through shared memory. So their tags must differ.

mod messages;
mod window;

use std::path::PathBuf;

use barewire_endpoint::{Address, Config, Encapsulation, EndpointError, Framing, JobToken, Tuning, claim};
use barewire_link::{ETHERNET_HEADER_BYTES, Link};
use barewire_llc::extension::{CHECK, INFORMATION_FRONT};
use barewire_messages::Messenger;

use self::messages::Messages;
use self::window::Window;
use super::links::{OpenLink, usage_error};
use super::llc::{SAP_COUNT, open, sap_of};
use super::{Counters, Endpoint, LocalConfig, Transport};
use crate::protocol::{Kind, Session, Station};
use barewire_recorder::LaunchError;

/// How long to wait for a channel to open.
const CONNECT_PATIENCE_NS: u64 = 10_000_000_000;
/// Ethernet header, I PDU header and our extension.
const FRAME_HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + 4 + CHECK + INFORMATION_FRONT;
/// Most memory for messages that arrive before a receive; beyond it the endpoint applies backpressure.
const EARLY_BYTES_MAX: usize = 16 << 20;

/// Side of the pair, which selects the tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Active,
    Passive,
}

/// A link opened before the peer is known.
pub struct Listening {
    link: OpenLink,
    role: Role,
    tuning: Tuning,
    broker: Option<PathBuf>,
}

impl Listening {
    pub fn new(session: &Session, local: &LocalConfig, role: Role) -> Result<(Self, Endpoint), LaunchError> {
        let tuning = Tuning::load().map_err(usage_error)?.with(&session.tuned).map_err(usage_error)?;
        let (link, endpoint) = open(session, local, tag(session, role), tuning.ring_bytes)?;
        Ok((Self { link, role, tuning, broker: local.broker.clone() }, endpoint))
    }

    pub fn accept(self, session: &Session, peer: Station) -> Result<Box<dyn Transport>, LaunchError> {
        let Self { mut link, role, tuning, broker } = self;
        link.add_station(peer)?;
        let framing = Framing { encapsulation: Encapsulation::EtherType, token: Some(JobToken::new(session.token)) };
        let mut config = Config { channels: 4, ..Config::new(tag(session, role), framing) };
        let messages = barewire_messages::Config::tuned(&tuning);
        config.set_tuning(tuning);
        let mtu = link.mtu().min(peer.mtu);
        let claim = claim(Address::new(link.address().0, config.sap), broker.as_deref()).map_err(usage_error)?;
        let mut endpoint = barewire_endpoint::Endpoint::open(link, config, Some(mtu)).map_err(usage_error)?;
        endpoint.hold_claims(claim);
        let other = if role == Role::Active { Role::Passive } else { Role::Active };
        let peer = Address::new(peer.address, tag(session, other));
        Ok(match session.transport {
            Kind::Messages => Box::new(Messages::new(Messenger::new(endpoint, messages), peer, role, mtu)),
            _ => Box::new(Window::new(endpoint, peer, role, mtu)),
        })
    }
}

fn tag(session: &Session, role: Role) -> barewire_llc::Lsap {
    sap_of(if role == Role::Active { SAP_COUNT - 1 - session.pair } else { session.pair })
}

fn failed(error: EndpointError) -> LaunchError {
    match error {
        EndpointError::Link(error) => error.into(),
        other => LaunchError::Failed(other.to_string()),
    }
}

fn counters_of<L: Link>(endpoint: &mut barewire_endpoint::Endpoint<L>) -> Result<Counters, LaunchError> {
    let counters = endpoint.counters().map_err(failed)?;
    Ok(Counters {
        foreign: counters.foreign + counters.unauthenticated + counters.replayed + counters.damaged,
        malformed: counters.malformed,
        duplicate: counters.duplicate,
        repeated: counters.repeated,
        ring_full: counters.ring_full,
        send_busy: counters.send_busy,
        ..Counters::default()
    })
}
