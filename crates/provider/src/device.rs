// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interfaces, and endpoints on them: each takes a service access point that no other process of this host has.

use std::path::Path;
use std::time::Duration;

use barewire_broker::{AskError, DEFAULT_SOCKET, Status};
use barewire_endpoint::{
    Config, Encapsulation, Endpoint, EndpointError, Framing, Hears, OpenError, Tuning, TuningError, open_link,
};
use barewire_link::{Interface, LinkError, PacketLink};
use barewire_llc::Lsap;
use barewire_shm::ShmError;
use thiserror::Error;

use crate::parameters::Parameters;

/// Why there is no endpoint.
#[derive(Debug, Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Tuning(#[from] TuningError),
    #[error("all {} service access points of {interface} are taken on this host", saps().count())]
    NoSap { interface: String },
}

/// The loopback interface's frames are as long as a pipe's messages may be.
const LOOPBACK_MTU: usize = 9000;

/// Interfaces that endpoints can be on: the one that was chosen, or all Ethernet ones that are up, or the loopback
/// interface of a host that has none.
pub(crate) fn interfaces(parameters: &Parameters) -> Result<Vec<Interface>, LinkError> {
    let found = match &parameters.interface {
        Some(name) => vec![Interface::by_name(name)?],
        None => {
            let all = Interface::all()?;
            let ethernet: Vec<Interface> = all.iter().filter(|interface| !is_loopback(interface)).cloned().collect();
            if ethernet.is_empty() { all } else { ethernet }
        }
    };
    let limited = |interface: Interface| {
        let most = parameters.mtu.unwrap_or(if is_loopback(&interface) { LOOPBACK_MTU } else { usize::MAX });
        Interface { mtu: interface.mtu.min(most), ..interface }
    };
    Ok(found.into_iter().map(limited).collect())
}

fn is_loopback(interface: &Interface) -> bool {
    interface.address.0 == [0; 6]
}

/// Whether this process may use an interface, by itself or through the broker.
pub(crate) fn is_permitted(parameters: &Parameters) -> bool {
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket >= 0 {
        // SAFETY: made here, and known to nobody else.
        unsafe { libc::close(socket) };
        return true;
    }
    parameters.broker.is_some() || Path::new(DEFAULT_SOCKET).exists()
}

/// An endpoint with the first service access point that is free, from one on that depends on the process, so that
/// those of a job seldom try the same.
pub(crate) fn open(interface: &Interface, parameters: &Parameters) -> Result<Endpoint<PacketLink>, DeviceError> {
    let tuning = Tuning::load()?;
    let first = std::process::id() as usize % saps().count();
    for sap in saps().cycle().skip(first).take(saps().count()) {
        let link = match open_link(&interface.name, sap, Hears::Sap, parameters.broker.as_deref()) {
            Err(OpenError::Broker(AskError::Refused { status: Status::Taken | Status::NotAllowed, .. })) => continue,
            link => link?,
        };
        let framing = Framing { encapsulation: Encapsulation::EtherType, token: parameters.token };
        let mut config = Config { waiting: parameters.waiting, tuning: tuning.clone(), ..Config::new(sap, framing) };
        if let Some(patience) = parameters.patience {
            give_up_after(&mut config, patience);
        }
        match Endpoint::open(link, config, Some(interface.mtu)) {
            Err(EndpointError::Shm(ShmError::NameTaken(_))) => {}
            endpoint => return Ok(endpoint?),
        }
    }
    Err(DeviceError::NoSap { interface: interface.name.clone() })
}

/// So many times T1 as it takes.
fn give_up_after(config: &mut Config, patience: Duration) {
    config.local_patience = patience;
    config.connection.stall_limit = patience;
    let t1 = config.connection.t1_max.min(patience / 2);
    config.connection.t1_max = t1;
    config.connection.t1_initial = config.connection.t1_initial.min(t1);
    config.connection.t1_min = config.connection.t1_min.min(t1);
    let retries = (patience.as_nanos() / t1.as_nanos().max(1)).clamp(1, 255);
    config.connection.retries = retries as u8;
}

/// Service access points for programs: first those that IEEE 802 leaves to each network, then the rest; without those
/// that other protocols are known to use.
fn saps() -> impl Iterator<Item = Lsap> + Clone {
    /// SNA, XNS, VINES, IPX, NetBIOS, LAN management (2), remote program load.
    const LOCAL_ELSEWHERE: [u8; 8] = [0x04, 0x80, 0xbc, 0xe0, 0xf0, 0xf4, 0xf8, 0xfc];
    /// LLC management, IP, PROWAY (2), spanning tree, EIA RS-511, ISI IP, X.25, ARP, SNAP, ISO network layer.
    const STANDARD: [u8; 11] = [0x02, 0x06, 0x0e, 0x8e, 0x42, 0x4e, 0x5e, 0x7e, 0x98, 0xaa, 0xfe];
    let of = |low: u8| (0..64_u8).map(move |high| high << 2 | low);
    let local = of(0).filter(|sap| !LOCAL_ELSEWHERE.contains(sap));
    local.chain(of(2).filter(|sap| !STANDARD.contains(sap))).filter_map(Lsap::new)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_host_has_service_access_points_for_a_hundred_processes_and_none_twice() {
        let all: HashSet<Lsap> = saps().collect();
        assert_eq!(all.len(), saps().count());
        assert!(all.len() >= 100 && !all.contains(&Lsap::SNAP), "{}", all.len());
    }

    #[test]
    fn a_peer_is_given_up_about_when_asked() {
        let framing = Framing { encapsulation: Encapsulation::EtherType, token: None };
        for seconds in [0.05, 1.0, 10.0, 60.0] {
            let mut config = Config::new(Lsap::new(0x20).unwrap(), framing);
            let patience = Duration::from_secs_f64(seconds);
            give_up_after(&mut config, patience);
            let until = config.connection.t1_max * u32::from(config.connection.retries);
            assert!(until <= patience && until * 3 >= patience, "{seconds} s: {until:?}");
        }
    }
}
