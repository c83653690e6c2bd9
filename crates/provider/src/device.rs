// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interfaces, and opening of endpoints on them, each with a service access point that no other process of the host
//! uses.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barewire_broker::{DEFAULT_SOCKET, RequestError, Status, sap_filter};
use barewire_endpoint::{
    Address, ClaimError, Config, Encapsulation, Endpoint, EndpointError, Framing, Labels, LinkScope, OpenError, Tuning,
    TuningError, claim, is_taken, mtu_min, open_link,
};
use barewire_link::{
    Claim, Interface, IpInterface, Link, LinkError, MacAddress, UdpConfig, UdpLink, XdpConfig, XdpLink, XdpMode,
    interface_speed,
};
use barewire_llc::Lsap;
use barewire_shm::ShmError;
use thiserror::Error;

use crate::address::{IpVersion, Reach};
use crate::companions::{companions, is_stacked};
use crate::edge::Errno;
use crate::link::{AnyLink, FrameLink};
use crate::log::{info, warning};
use crate::parameters::{LinkKind, Parameters};

/// Why an endpoint cannot be opened.
#[derive(Debug, Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Tuning(#[from] TuningError),
    #[error("FI_BAREWIRE_LINK={0} and FI_BAREWIRE_BROKER: the broker provides only packet sockets; unset one of them")]
    NotByBroker(&'static str),
    #[error("FI_BAREWIRE_MTU={mtu}: frames would have no room for a message header; expected {min} or more")]
    Mtu { mtu: usize, min: usize },
    #[error("all {} service access points of {interface} are taken on this host", saps().count())]
    NoSap { interface: String },
    #[error("{taken} service access points of {interface} are taken on this host, and of the others {refusal}")]
    NoneAllowed { interface: String, taken: usize, refusal: String },
}

impl DeviceError {
    /// Whether the broker's policy does not allow it.
    fn is_forbidden(&self) -> bool {
        let Self::Open(OpenError::Broker(RequestError::Refused { status, .. })) = self else { return false };
        *status == Status::NotAllowed
    }

    /// The system's errno, if a resource of this process or host is exhausted.
    pub fn exhausted(&self) -> Option<Errno> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let number = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
            if let Some(number @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC)) = number {
                return Some(Errno(number as u32));
            }
            cause = error.source();
        }
        None
    }
}

/// A network interface to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// The interface's name.
    pub name: String,
    /// Payload in bytes of a frame to any peer, and of one to those that are reached by frames.
    pub mtu: usize,
    pub mtu_max: usize,
    pub reach: Reach,
}

/// MTU used on the loopback interface: the longest message of a pipe.
const LOOPBACK_MTU: usize = 9000;
/// The loopback interface's MAC address.
const LOOPBACK: MacAddress = MacAddress([0; 6]);

/// The interfaces to offer: the selected one, or all that are up, or the loopback interface if there are none; those
/// that frames or UDP, as selected, can use.
pub(crate) fn devices(parameters: &Parameters) -> Result<Vec<Device>, DeviceError> {
    let min = mtu_min(parameters.guard());
    if let Some(mtu) = parameters.mtu.filter(|mtu| *mtu < min) {
        return Err(DeviceError::Mtu { mtu, min });
    }
    // Long messages go by all selected interfaces, so no frame may be longer than any of them takes.
    let mut mtu_of_all = usize::MAX;
    if let [_, others @ ..] = &parameters.selected[..] {
        for name in others {
            mtu_of_all = mtu_of_all.min(Interface::by_name(name)?.mtu);
        }
    }
    let selected = parameters.interface.as_deref();
    let frames = match selected {
        _ if !parameters.link.may_use_frames() || !may_open_frames(parameters) => Ok(Vec::new()),
        Some(name) => Interface::by_name(name).map(|found| vec![found]),
        None => Interface::all(),
    };
    let ip = match selected {
        _ if !parameters.link.may_use_udp() => Ok(Vec::new()),
        Some(name) => IpInterface::by_name(name).map(|found| vec![found]),
        None => IpInterface::all(),
    };
    // One of them is enough, if both may be used.
    let (frames, ip) = match (frames, ip) {
        (Ok(frames), Ok(ip)) => (frames, ip),
        (Ok(frames), Err(_)) if !frames.is_empty() => (frames, Vec::new()),
        (Err(_), Ok(ip)) if !ip.is_empty() => (Vec::new(), ip),
        (Err(error), _) | (_, Err(error)) => return Err(error.into()),
    };
    let mut found: Vec<(bool, i32, Device)> = Vec::new();
    for Interface { name, index, address, mtu } in frames {
        let device = Device { name, mtu, mtu_max: mtu, reach: Reach::FRAMES };
        found.push((address == LOOPBACK, index, device));
    }
    for interface in ip {
        let mtu = UdpLink::mtu_on(&interface);
        let udp = Some(if interface.ip.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 });
        let is_link_local = matches!(interface.ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if let Some((_, _, device)) = found.iter_mut().find(|(_, index, _)| *index == interface.index) {
            // A link-local address reaches no further than frames.
            if !is_link_local {
                (device.mtu, device.reach.udp) = (mtu, udp);
            }
        } else {
            let device = Device { name: interface.name, mtu, mtu_max: mtu, reach: Reach { frames: false, udp } };
            found.push((interface.ip.is_loopback(), interface.index, device));
        }
    }
    // MPI libraries take the first, and short messages go by it, so it is the fastest. Bridges, such as those of
    // containers, and interfaces without a carrier or an address mostly lead to no other host.
    found.sort_by_cached_key(|(is_loopback, index, Device { name, reach, .. })| {
        let about = Path::new("/sys/class/net").join(name);
        let has_carrier = std::fs::read(about.join("carrier")).map_or(true, |carrier| carrier.starts_with(b"1"));
        let ranks = [*is_loopback, !has_carrier, !reach.frames, reach.udp.is_none(), about.join("bridge").exists()];
        (ranks, Reverse(likely_speed(&about, interface_speed(name))), *index)
    });
    let has_network = found.iter().any(|(is_loopback, _, _)| !is_loopback);
    let limited = |(is_loopback, _, device): (bool, i32, Device)| {
        let max = parameters.mtu.unwrap_or(if is_loopback { LOOPBACK_MTU } else { usize::MAX }).min(mtu_of_all);
        Device { mtu: device.mtu.min(max), mtu_max: device.mtu_max.min(max), ..device }
    };
    Ok(found.into_iter().filter(|(is_loopback, _, _)| !(has_network && *is_loopback)).map(limited).collect())
}

/// The speed of an interface in Mbit/s, of what /sys has `about` it: 1 Gbit/s if its driver reports none, as in many
/// virtual machines, and if there is no hardware below it, as below tunnels, whose speed is fictitious.
fn likely_speed(about: &Path, reported: u32) -> u32 {
    let has_hardware = about.join("device").exists() || is_stacked(about);
    if reported == 0 || !has_hardware { 1000 } else { reported }
}

/// MPI sets no time limit on receiving a message, and the peer's buffers may be full until then.
const STALL_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Whether this process may send frames on an interface, directly or through the broker.
pub(crate) fn may_open_frames(parameters: &Parameters) -> bool {
    /// MPI libraries call `fi_getinfo` a dozen times.
    static HAS_RIGHT: AtomicBool = AtomicBool::new(false);
    if HAS_RIGHT.load(Ordering::Relaxed) {
        return true;
    }
    // A raw IP socket needs the same capability as a packet socket, which takes the kernel 30 ms to close.
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW) };
    if socket >= 0 {
        // SAFETY: opened above, and not shared.
        unsafe { libc::close(socket) };
        HAS_RIGHT.store(true, Ordering::Relaxed);
        return true;
    }
    parameters.broker.is_some() || Path::new(DEFAULT_SOCKET).exists()
}

/// Opens an endpoint on an interface.
pub(crate) fn open(device: &Device, parameters: &Parameters) -> Result<Endpoint<AnyLink>, DeviceError> {
    let tuning = Tuning::load()?.with(&parameters.tuned).map_err(TuningError::from)?;
    if device.reach.frames {
        return match open_at_free_sap(device, parameters, &tuning) {
            Err(
                error @ (DeviceError::Open(OpenError::Broker(_))
                | DeviceError::NoneAllowed { .. }
                | DeviceError::NoSap { .. }),
            ) if may_do_without_frames(device, parameters) => {
                warning!(FI_LOG_EP_CTRL, "{}: UDP instead of frames: {error}", device.name);
                let reach = Reach { frames: false, ..device.reach };
                open(&Device { mtu_max: device.mtu, reach, ..device.clone() }, parameters)
            }
            opened => opened,
        };
    }
    if parameters.broker.is_some() {
        return Err(DeviceError::NotByBroker("udp"));
    }
    // The port distinguishes the endpoints of a host.
    let sap = saps().next().expect("there are service access points");
    endpoint(Vec::new(), sap, device, parameters, &tuning)
}

/// Whether UDP is used if the default broker gives no sockets, or no service access point is free: the user has not
/// asked for frames.
fn may_do_without_frames(device: &Device, parameters: &Parameters) -> bool {
    parameters.link == LinkKind::Auto && parameters.broker.is_none() && device.reach.udp.is_some()
}

/// The link for datagrams, if the interface has one. An error is only logged if there are frames. Unless the user has
/// selected the interface, peers may use all addresses of the host, and probe which of them they reach.
fn udp_link(device: &Device, parameters: &Parameters) -> Result<Option<UdpLink>, LinkError> {
    let open = || {
        let mut others = if parameters.selected.is_empty() { IpInterface::all()? } else { Vec::new() };
        others.retain(|other| !other.ip.is_loopback() && other.name != device.name);
        UdpLink::open(&UdpConfig {
            interface: device.name.clone(),
            others,
            ports: parameters.ports.clone(),
            sources: parameters.labels.map_or(1, Labels::ports),
        })
    };
    match device.reach.udp.map(|_| open()).transpose() {
        Err(error) if device.reach.frames => {
            warning!(FI_LOG_EP_CTRL, "{}: no UDP beside frames: {error}", device.name);
            Ok(None)
        }
        opened => opened,
    }
}

/// Opens an endpoint at the first free service access point. The search starts at one that depends on the process
/// number, so that the processes of a job seldom collide.
fn open_at_free_sap(
    device: &Device,
    parameters: &Parameters,
    tuning: &Tuning,
) -> Result<Endpoint<AnyLink>, DeviceError> {
    let mac = Interface::by_name(&device.name)?.address;
    let first = std::process::id() as usize % saps().count();
    let (mut taken, mut refused) = (0, None);
    for sap in saps().cycle().skip(first).take(saps().count()) {
        let address = Address::new(mac.0, sap);
        if is_taken(address) {
            taken += 1;
            continue;
        }
        let claim = match claim(address, parameters.broker.as_deref()) {
            Err(ClaimError::Taken(_)) => {
                taken += 1;
                continue;
            }
            claim => claim?,
        };
        let link = match link_at(&device.name, sap, parameters, tuning) {
            Ok(Some(link)) => link,
            Ok(None) => {
                taken += 1;
                continue;
            }
            // Others may be allowed.
            Err(error) if error.is_forbidden() => {
                refused = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        // Interfaces that the user has selected are equals if their speeds are unknown.
        let speed = |name: &str| interface_speed(name).max(u32::from(!parameters.selected.is_empty()));
        let mut links = vec![(link, speed(&device.name))];
        let mut claims: Vec<Claim> = claim.into_iter().collect();
        for name in others(device, parameters) {
            match other_link_at(&name, sap, parameters, tuning) {
                Ok(Some((link, claim))) => {
                    links.push((link, speed(&name)));
                    claims.extend(claim);
                }
                Ok(None) => info!(FI_LOG_EP_CTRL, "{name}: not used: service access point {:#x} is taken", sap.byte()),
                Err(error) if parameters.selected.is_empty() || error.is_forbidden() => {
                    info!(FI_LOG_EP_CTRL, "{name}: not used: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        match endpoint(links, sap, device, parameters, tuning) {
            Err(DeviceError::Endpoint(EndpointError::Shm(ShmError::NameTaken(_)))) => {}
            endpoint => {
                let mut endpoint = endpoint?;
                endpoint.hold_claims(claims);
                return Ok(endpoint);
            }
        }
    }
    let interface = device.name.clone();
    Err(match refused {
        Some(refusal) => DeviceError::NoneAllowed { interface, taken, refusal: refusal.to_string() },
        None => DeviceError::NoSap { interface },
    })
}

/// The names of the interfaces besides the device's that may carry frames.
fn others(device: &Device, parameters: &Parameters) -> Vec<String> {
    match &parameters.selected[..] {
        // XDP dedicates a queue of the interface to the process.
        _ if parameters.link == LinkKind::Xdp => Vec::new(),
        [] => companions(&device.name, device.mtu_max),
        selected => selected.iter().filter(|name| **name != device.name).cloned().collect(),
    }
}

/// A link at a service access point of another interface, with its claim; `None` if that is in use.
fn other_link_at(
    name: &str,
    sap: Lsap,
    parameters: &Parameters,
    tuning: &Tuning,
) -> Result<Option<(FrameLink, Option<Claim>)>, DeviceError> {
    let address = Address::new(Interface::by_name(name)?.address.0, sap);
    let claim = match claim(address, parameters.broker.as_deref()) {
        Err(ClaimError::Taken(_)) => return Ok(None),
        claim => claim?,
    };
    Ok(link_at(name, sap, parameters, tuning)?.map(|link| (link, claim)))
}

/// A number of this host and its network namespace: the same for all processes that can reach each other's listeners.
fn host() -> u64 {
    use std::os::unix::fs::MetadataExt;
    // 0 identifies no host: peers then compare MAC addresses.
    let Ok(boot) = std::fs::read("/proc/sys/kernel/random/boot_id") else { return 0 };
    let Ok(namespace) = std::fs::metadata("/proc/self/ns/net") else { return 0 };
    // FNV-1a: the same in every build.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    boot.iter().chain(&namespace.ino().to_be_bytes()).fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

/// An endpoint, configured by the parameters.
fn endpoint(
    frames: Vec<(FrameLink, u32)>,
    sap: Lsap,
    device: &Device,
    parameters: &Parameters,
    tuning: &Tuning,
) -> Result<Endpoint<AnyLink>, DeviceError> {
    let mut link = AnyLink::new(frames, udp_link(device, parameters)?);
    let framing = Framing { encapsulation: Encapsulation::EtherType, token: parameters.token };
    let mut config = Config { waiting: parameters.waiting, ..Config::new(sap, framing) };
    // Without a token, only processes that have the endpoint's address may communicate with it.
    config.cookie = if parameters.token.is_none() { link.random_bits().max(1) } else { 0 };
    config.host = host();
    config.checks_all = parameters.checks_all;
    config.labels = parameters.labels;
    config.authentication = parameters.authentication();
    config.set_tuning(tuning.clone());
    if let Some(patience) = parameters.patience {
        config.set_dead_peer_timeout(patience);
        config.connect_timeout = patience;
    }
    config.channels = parameters.peers.unwrap_or(config.channels);
    // A peer that answers is alive, however long its program computes and receives nothing.
    config.connection.stall_limit = STALL_LIMIT;
    Ok(Endpoint::open(link, config, Some(device.mtu_max))?)
}

/// Opens a link at a service access point; `None` if that is in use.
fn link_at(name: &str, sap: Lsap, parameters: &Parameters, tuning: &Tuning) -> Result<Option<FrameLink>, DeviceError> {
    let broker = parameters.broker.as_deref();
    if parameters.link == LinkKind::Xdp {
        if broker.is_some() {
            return Err(DeviceError::NotByBroker("xdp"));
        }
        let (filter, mode) = (sap_filter(sap), XdpMode::Auto);
        let config = XdpConfig { interface: name.to_owned(), filter, queue: 0, mode, busy_poll: None };
        return Ok(Some(FrameLink::Xdp(Box::new(XdpLink::open(&config).map_err(OpenError::from)?))));
    }
    match open_link(name, sap, LinkScope::Sap, broker, tuning.ring_bytes) {
        Err(OpenError::Broker(RequestError::Refused { status: Status::Taken, .. })) => Ok(None),
        link => Ok(Some(FrameLink::Packet(link?))),
    }
}

/// Service access points for programs: first the locally administered ones of IEEE 802, then the rest; except those
/// used by known protocols.
fn saps() -> impl Iterator<Item = Lsap> + Clone {
    /// SNA, XNS, ARP, VINES, IPX, NetBIOS, LAN management (2), remote program load.
    const LOCAL_USED: [u8; 9] = [0x04, 0x80, 0x98, 0xbc, 0xe0, 0xf0, 0xf4, 0xf8, 0xfc];
    /// LLC management, IP, PROWAY (2), spanning tree, EIA RS-511, ISI IP, X.25, SNAP, ISO network layer.
    const STANDARD: [u8; 10] = [0x02, 0x06, 0x0e, 0x8e, 0x42, 0x4e, 0x5e, 0x7e, 0xaa, 0xfe];
    let with_low_bits = |low: u8| (0..64_u8).map(move |high| high << 2 | low);
    let local = with_low_bits(0).filter(|sap| !LOCAL_USED.contains(sap));
    local.chain(with_low_bits(2).filter(|sap| !STANDARD.contains(sap))).filter_map(Lsap::new)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn only_interfaces_with_hardware_have_a_speed() {
        let folder = std::env::temp_dir().join(format!("barewire-speeds-{}", std::process::id()));
        for (file, reported, expected) in [
            ("device", 10_000, 10_000),
            ("device", 100, 100),
            ("device", 0, 1000),
            ("lower_eth0", 25_000, 25_000),
            ("mtu", 10_000, 1000),
        ] {
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(file), "").unwrap();
            let found = likely_speed(&folder, reported);
            std::fs::remove_dir_all(&folder).unwrap();
            assert_eq!(found, expected, "{file}, {reported}");
        }
    }

    #[test]
    fn there_are_at_least_a_hundred_distinct_service_access_points() {
        let all: HashSet<Lsap> = saps().collect();
        assert_eq!(all.len(), saps().count());
        assert!(all.len() >= 100 && !all.contains(&Lsap::SNAP), "{}", all.len());
    }

    #[test]
    fn service_access_points_of_other_protocols_are_not_used() {
        // Each list applies to its own half only.
        let known = [0x02, 0x04, 0x06, 0x0e, 0x42, 0x4e, 0x5e, 0x7e, 0x80, 0x8e, 0x98, 0xaa, 0xbc, 0xe0, 0xf0, 0xf4];
        for number in known.into_iter().chain([0xf8, 0xfc, 0xfe]) {
            let sap = Lsap::new(number).unwrap();
            assert!(saps().all(|offered| offered != sap), "{number:#x}");
        }
    }
}
