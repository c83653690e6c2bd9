// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks on which stations have several carriers: interfaces on Ethernet segments, a socket on a routed network, and
//! the faults of each.

use std::net::{IpAddr, Ipv4Addr};

use barewire_endpoint::Address;
use barewire_link::{Locator, MacAddress};
use fastrand::Rng;

use super::link::{DEVICES, UDP};
use super::network::{End, Lane};
use crate::scenario::{MS, US, choose};

/// The port of the first rank of a host; those of the others follow.
const FIRST_PORT: u16 = 0x2000;
/// An address that all hosts have, for networks within each of them.
const WITHIN_HOST: Ipv4Addr = Ipv4Addr::new(172, 17, 0, 1);
/// Payload in bytes of a frame that each path by sockets carries.
const CARRIED_MIN: usize = 546;
/// Time by which ranks that greet each other have done so.
const GREETED_NS: u64 = 400 * MS;

/// Hosts, networks and their faults.
#[derive(Clone, Debug)]
pub struct Topology {
    /// By host.
    pub hosts: Vec<Host>,
    /// By rank: its host.
    pub host_of: Vec<usize>,
    /// Ethernet segments.
    pub segments: Vec<Segment>,
    /// Delay and rate of the routed network, and the MTU of sockets.
    pub routed_delay_ns: u64,
    pub routed_rate_bit_s: u64,
    pub socket_mtu: usize,
    /// Whether batches are faster by sockets than by interfaces for frames.
    pub has_fast_sockets: bool,
    /// Faults of devices.
    pub faults: Vec<PathFault>,
    /// Whether all ranks exchange messages at the start, and so learn each other's interfaces before the first fault.
    pub greets: bool,
    /// Whether held frames are released when their sequence number is used again.
    pub laps: bool,
}

/// A host's devices.
#[derive(Clone, Debug)]
pub struct Host {
    /// The station's first.
    pub interfaces: Vec<Attachment>,
    /// IP addresses of its sockets; none: it has no sockets.
    pub ips: Vec<Ipv4Addr>,
    /// Whether a packet filter drops all datagrams.
    pub filters_datagrams: bool,
}

/// An interface.
#[derive(Clone, Debug)]
pub struct Attachment {
    pub mac: MacAddress,
    pub segment: usize,
    pub rate_bit_s: u64,
    /// The speed that the station knows, in Mbit/s; 0 if none.
    pub speed: u32,
}

/// An Ethernet segment.
#[derive(Clone, Debug)]
pub struct Segment {
    pub delay_ns: u64,
    /// What passes: frames with a length, frames with an EtherType.
    pub passes: [bool; 2],
}

/// What a fault does to the frames of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Loses,
    /// Some frames arrive at this time at the earliest.
    Holds {
        until_ns: u64,
    },
    /// Longer datagrams are lost, by the length of a frame's payload in bytes.
    LosesLong {
        bytes: usize,
    },
    /// Datagrams sent in one piece are lost.
    LosesBatches,
    /// The interface is down, and reports it.
    Down,
    /// The interface is removed.
    Gone,
}

impl Failure {
    pub fn is_narrow(self) -> bool {
        matches!(self, Self::LosesLong { .. } | Self::LosesBatches)
    }
}

/// A fault of a host's device.
#[derive(Clone, Copy, Debug)]
pub struct PathFault {
    pub host: usize,
    pub device: usize,
    pub failure: Failure,
    /// Whether it concerns received frames, and sent ones.
    pub directions: [bool; 2],
    pub from_ns: u64,
    pub until_ns: u64,
}

impl PathFault {
    pub fn is_active(&self, now_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }
}

/// The address of a socket, as `UdpLink` makes it.
pub fn socket_address(ip: Ipv4Addr, port: u16) -> MacAddress {
    let ([p0, p1], [a, b, c, d]) = (port.to_be_bytes(), ip.octets());
    MacAddress([p0, p1, a, b, c, d])
}

/// Whether nobody but the host itself reaches an address.
fn is_unreached(ip: Ipv4Addr) -> bool {
    ip.octets()[..3] == [192, 168, 1]
}

impl Topology {
    /// A topology for ranks with these addresses, of which those with the same MAC address share a host. Faults begin
    /// within `span_ns`. `restarts`: ranks must find each other at any time. `has_fast_sockets`: all hosts have sockets
    /// that carry batches faster than their interfaces do.
    pub fn draw(
        rng: &mut Rng,
        addresses: &[Address],
        mtu: usize,
        span_ns: u64,
        restarts: bool,
        has_fast_sockets: bool,
    ) -> Self {
        let mut macs: Vec<[u8; 6]> = Vec::new();
        let host_of: Vec<usize> = addresses
            .iter()
            .map(|address| {
                let known = macs.iter().position(|mac| *mac == address.mac);
                known.unwrap_or_else(|| {
                    macs.push(address.mac);
                    macs.len() - 1
                })
            })
            .collect();
        let mut segments: Vec<Segment> = (0..rng.usize(1..=3))
            .map(|_| Segment {
                delay_ns: *choose(rng, &[500, 5 * US, 5 * US, 50 * US, 2 * MS]),
                passes: *choose(
                    rng,
                    &[[true; 2], [true; 2], [true; 2], [true; 2], [true, false], [false, true], [false; 2]],
                ),
            })
            .collect();
        let mut hosts: Vec<Host> = macs
            .iter()
            .enumerate()
            .map(|(number, mac)| {
                let shares = host_of.iter().filter(|host| **host == number).count() > 1;
                host(rng, number, *mac, segments.len(), shares)
            })
            .collect();
        if has_fast_sockets {
            for (number, host) in hosts.iter_mut().enumerate() {
                if host.ips.is_empty() {
                    host.ips.push(ip(number));
                }
                // So that frames are not spread over interfaces instead.
                host.interfaces.iter_mut().for_each(|interface| interface.speed = 0);
            }
        }
        // Hosts with nothing in common refuse each other's addresses.
        if hosts.iter().any(|host| host.interfaces.is_empty()) {
            for (number, host) in hosts.iter_mut().enumerate().filter(|(_, host)| host.ips.is_empty()) {
                host.ips.push(ip(number));
            }
        }
        // Without sockets, stations use their first interfaces without probing, whatever their segment passes.
        if hosts.iter().any(|host| host.ips.is_empty()) {
            for segment in &mut segments {
                segment.passes = [segment.passes == [true; 2]; 2];
            }
        }
        let mut topology = Self {
            hosts,
            host_of,
            segments,
            routed_delay_ns: *choose(rng, &[5 * US, 50 * US, MS]),
            routed_rate_bit_s: *choose(rng, &[100_000_000, 1_000_000_000, 10_000_000_000]),
            socket_mtu: *choose(rng, &[mtu - 30, mtu - 30, mtu, 2 * mtu]),
            has_fast_sockets,
            faults: Vec::new(),
            greets: !restarts && rng.bool(),
            laps: false,
        };
        for _ in 0..*choose(rng, &[0, 1, 2, 4, 8, 16]) {
            let fault = topology.fault(rng, span_ns);
            topology.faults.push(fault);
            if !topology.goes_on() {
                topology.faults.pop();
            }
        }
        topology
    }

    /// Two hosts with an interface on each of two segments. One after the other, these fail for short times and hold
    /// frames.
    pub fn for_laps(rng: &mut Rng, addresses: &[Address], mtu: usize) -> Self {
        let attachment = |mac: [u8; 6], device: usize| Attachment {
            mac: MacAddress([mac[0], mac[1], mac[2], mac[3], mac[4], mac[5] | (device as u8) << 4]),
            segment: device,
            rate_bit_s: 1_000_000_000,
            speed: 1000,
        };
        let hosts = addresses.iter().map(|address| Host {
            interfaces: (0..2).map(|device| attachment(address.mac, device)).collect(),
            ips: Vec::new(),
            filters_datagrams: false,
        });
        let faults = (0..12).map(|number| {
            let (from_ns, directions) = ((10 + 60 * number) * MS, [[true; 2], [true, false], [false, true]]);
            PathFault {
                host: rng.usize(..2),
                device: number as usize % 2,
                failure: Failure::Holds { until_ns: from_ns + 30 * MS },
                directions: *choose(rng, &directions),
                from_ns,
                until_ns: from_ns + 30 * MS,
            }
        });
        Self {
            hosts: hosts.collect(),
            host_of: vec![0, 1],
            segments: vec![Segment { delay_ns: 5 * US, passes: [true; 2] }; 2],
            routed_delay_ns: 0,
            routed_rate_bit_s: 0,
            socket_mtu: mtu,
            has_fast_sockets: false,
            faults: faults.collect(),
            greets: false,
            laps: true,
        }
    }

    /// Adds faults in which sockets lose long datagrams, or batches, from the start or later, for a time or for good.
    pub fn narrow(&mut self, rng: &mut Rng, span_ns: u64) {
        let with_sockets: Vec<usize> = (0..self.hosts.len()).filter(|host| !self.hosts[*host].ips.is_empty()).collect();
        if with_sockets.is_empty() || self.socket_mtu <= CARRIED_MIN {
            return;
        }
        for _ in 0..rng.usize(1..=3) {
            let bytes = rng.usize(CARRIED_MIN..self.socket_mtu);
            let from_ns = if rng.bool() { 0 } else { rng.u64(..span_ns) };
            let for_ns = *choose(rng, &[20 * MS, 200 * MS, 1500 * MS, u64::MAX]);
            self.faults.push(PathFault {
                host: *choose(rng, &with_sockets),
                device: UDP,
                failure: *choose(
                    rng,
                    &[Failure::LosesLong { bytes }, Failure::LosesLong { bytes }, Failure::LosesBatches],
                ),
                directions: *choose(rng, &[[true; 2], [true, false], [false, true]]),
                from_ns,
                until_ns: from_ns.saturating_add(for_ns),
            });
        }
    }

    fn fault(&self, rng: &mut Rng, span_ns: u64) -> PathFault {
        let host = rng.usize(..self.hosts.len());
        let devices: Vec<usize> = self.hosts[host].devices().collect();
        let device = *choose(rng, &devices);
        let from_ns = rng.u64(..span_ns);
        let for_ns = *choose(rng, &[MS, 15 * MS, 40 * MS, 200 * MS, 1500 * MS]) + rng.u64(..20 * MS);
        let until_ns = from_ns + for_ns;
        let held_ns = *choose(rng, &[0, 0, 10 * MS, 100 * MS, 2000 * MS]);
        let failures = [
            Failure::Loses,
            Failure::Loses,
            Failure::Holds { until_ns: until_ns + held_ns },
            Failure::Holds { until_ns: until_ns + held_ns },
            Failure::Holds { until_ns: from_ns + rng.u64(..for_ns) },
            Failure::Down,
            Failure::Gone,
        ];
        let failure = *choose(rng, &failures[..if device == UDP { 5 } else { 7 }]);
        let directions = match failure {
            Failure::Down | Failure::Gone => [true; 2],
            _ => *choose(rng, &[[true; 2], [true; 2], [true, false], [false, true]]),
        };
        let until_ns = if failure == Failure::Gone { u64::MAX } else { until_ns };
        PathFault { host, device, failure, directions, from_ns, until_ns }
    }

    /// Whether every pair that has a path at the start has one at each time, and can find it.
    fn goes_on(&self) -> bool {
        let hosts = self.hosts.len();
        let pairs = (0..hosts).flat_map(|a| (0..a).map(move |b| (a, b))).filter(|(a, b)| self.is_connected(*a, *b));
        let greeted = self.greets.then_some(GREETED_NS);
        let times: Vec<u64> = self.faults.iter().map(|fault| fault.from_ns).chain(greeted).collect();
        let has_device = |host: usize| self.hosts[host].devices().any(|device| !self.is_gone(host, device));
        (0..hosts).all(has_device)
            && pairs.into_iter().all(|(a, b)| times.iter().all(|time| self.has_path(a, b, *time)))
    }

    /// Whether two ranks can find each other at the start.
    pub fn reaches(&self, a: usize, b: usize) -> bool {
        let [a, b] = [a, b].map(|rank| self.host_of[rank]);
        a == b || self.is_connected(a, b)
    }

    /// Whether all pairs of ranks can find each other at the start.
    pub fn is_complete(&self) -> bool {
        let ranks = self.host_of.len();
        (0..ranks).all(|a| (0..a).all(|b| self.reaches(a, b)))
    }

    fn is_connected(&self, a: usize, b: usize) -> bool {
        let without_faults = Self { faults: Vec::new(), greets: false, ..self.clone() };
        without_faults.has_path(a, b, 0)
    }

    /// Whether there is a path that works in both directions, and that both ends know of or can find.
    fn has_path(&self, a: usize, b: usize, now_ns: u64) -> bool {
        if [a, b].iter().any(|host| self.hosts[*host].is_single()) {
            return self.pairs_that_work(a, b, now_ns).any(|pair| pair == (0, 0));
        }
        if !self.greets || now_ns < GREETED_NS {
            return self.has_findable_path(a, b, now_ns);
        }
        self.datagrams_pass(a, b, now_ns) || self.pairs_that_work(a, b, now_ns).next().is_some()
    }

    /// As `has_path`, for stations that do not know each other: they probe by the first interface.
    fn has_findable_path(&self, a: usize, b: usize, now_ns: u64) -> bool {
        let found_by = |mut by: Box<dyn Iterator<Item = (usize, usize)> + '_>| by.any(|(_, of_peer)| of_peer == 0);
        self.datagrams_pass(a, b, now_ns)
            || found_by(Box::new(self.pairs_that_work(a, b, now_ns)))
                && found_by(Box::new(self.pairs_that_work(b, a, now_ns)))
    }

    fn datagrams_pass(&self, a: usize, b: usize, now_ns: u64) -> bool {
        [a, b].iter().all(|host| {
            let Host { ips, filters_datagrams, .. } = &self.hosts[*host];
            !ips.is_empty() && !filters_datagrams && !self.is_faulty(*host, UDP, now_ns)
        })
    }

    /// Pairs of interfaces between which frames pass.
    fn pairs_that_work(&self, a: usize, b: usize, now_ns: u64) -> impl Iterator<Item = (usize, usize)> + '_ {
        let works = move |host: usize, device: usize, segment: usize| {
            self.hosts[host].interfaces[device].segment == segment && !self.is_faulty(host, device, now_ns)
        };
        (0..self.hosts[a].interfaces.len()).flat_map(move |own| {
            let segment = self.hosts[a].interfaces[own].segment;
            let passes = self.segments[segment].passes == [true; 2] && works(a, own, segment);
            let ends = 0..if passes { self.hosts[b].interfaces.len() } else { 0 };
            ends.filter(move |end| works(b, *end, segment)).map(move |end| (own, end))
        })
    }

    fn is_gone(&self, host: usize, device: usize) -> bool {
        let is_it = |fault: &PathFault| (fault.host, fault.device, fault.failure) == (host, device, Failure::Gone);
        self.faults.iter().any(is_it)
    }

    /// Whether a device carries nothing, or nothing for certain; one that carries short datagrams one by one works.
    fn is_faulty(&self, host: usize, device: usize, now_ns: u64) -> bool {
        self.active_faults(host, device, now_ns).any(|fault| !fault.failure.is_narrow())
    }

    /// Faults of a device at this time.
    pub fn active_faults(&self, host: usize, device: usize, now_ns: u64) -> impl Iterator<Item = &PathFault> {
        let concerns =
            move |fault: &&PathFault| (fault.host, fault.device) == (host, device) && fault.is_active(now_ns);
        self.faults.iter().filter(concerns)
    }

    /// The longest delay of a network.
    pub fn delay_ns_max(&self) -> u64 {
        self.segments.iter().map(|segment| segment.delay_ns).fold(self.routed_delay_ns, u64::max)
    }

    /// When the last fault that ends has ended, and the last held frame has arrived.
    pub fn faults_end_ns(&self) -> u64 {
        let end_ns = |fault: &PathFault| match fault.failure {
            Failure::Gone => fault.from_ns,
            _ if fault.failure.is_narrow() && fault.until_ns == u64::MAX => fault.from_ns,
            Failure::Holds { until_ns } => until_ns.max(fault.until_ns),
            _ => fault.until_ns,
        };
        self.faults.iter().map(end_ns).max().unwrap_or(0)
    }

    /// The address of a rank, whose service access point is known.
    pub fn address(&self, rank: usize, known: Address) -> Address {
        let host = &self.hosts[self.host_of[rank]];
        let mut locator = self.socket(rank);
        locator.has_frames = !host.interfaces.is_empty();
        let mac = host.interfaces.first().map(|interface| interface.mac).or_else(|| Some(self.source(rank, rank)));
        Address { mac: mac.expect("one of both").0, locator, ..known }
    }

    /// The locator of a rank's socket.
    pub fn socket(&self, rank: usize) -> Locator {
        let ips = &self.hosts[self.host_of[rank]].ips;
        if ips.is_empty() {
            return Locator::FRAMES;
        }
        Locator::of_port(self.port(rank), ips.iter().copied().map(IpAddr::V4))
    }

    fn port(&self, rank: usize) -> u16 {
        let before = self.host_of[..rank].iter().filter(|host| **host == self.host_of[rank]);
        FIRST_PORT + before.count() as u16
    }

    /// The address that datagrams from one rank to another come from: a host with a second address uses both.
    pub fn source(&self, from: usize, to: usize) -> MacAddress {
        let ips = &self.hosts[self.host_of[from]].ips;
        let second = ips.get(1).filter(|ip| **ip != WITHIN_HOST && (from + to) % 2 == 1);
        socket_address(*second.unwrap_or(&ips[0]), self.port(from))
    }

    /// The lane of a frame that a rank sends by a device; `None` if it reaches no device. `named`: the rank with its
    /// DSAP.
    pub fn lane(&self, from: End, frame: &[u8], named: Option<usize>) -> Option<Lane> {
        let to = MacAddress(*frame.first_chunk()?);
        let host = self.host_of[from.rank];
        if from.device == UDP {
            let has = |rank: &usize| {
                let ips = &self.hosts[self.host_of[*rank]].ips;
                ips.iter().any(|ip| {
                    let is_reached = match *ip {
                        WITHIN_HOST => self.host_of[*rank] == host,
                        ip => !is_unreached(ip),
                    };
                    is_reached && socket_address(*ip, self.port(*rank)) == to
                })
            };
            let rank = (0..self.host_of.len()).find(has)?;
            let filters = |host: usize| self.hosts[host].filters_datagrams;
            let passes = !filters(host) && !filters(self.host_of[rank]);
            let (delay_ns, rate_bit_s) = (self.routed_delay_ns, self.routed_rate_bit_s);
            return passes.then_some(Lane {
                from,
                to: End { rank, device: UDP },
                rate_bit_s,
                delay_ns,
                label: 0,
                is_in_batch: false,
            });
        }
        let own = &self.hosts[host].interfaces[from.device];
        let segment = &self.segments[own.segment];
        let is_length = frame.get(12).is_some_and(|high| *high < 0x06);
        if !segment.passes[usize::from(!is_length)] {
            return None;
        }
        let interfaces = &self.hosts[self.host_of[named?]].interfaces;
        let device = interfaces.iter().position(|end| end.mac == to && end.segment == own.segment)?;
        let rate_bit_s = own.rate_bit_s.min(interfaces[device].rate_bit_s);
        Some(Lane {
            from,
            to: End { rank: named?, device },
            rate_bit_s,
            delay_ns: segment.delay_ns,
            label: 0,
            is_in_batch: false,
        })
    }
}

impl Host {
    /// Whether it has one interface and nothing else: then it neither sends nor answers probes, and knows only the
    /// first interfaces of its peers.
    fn is_single(&self) -> bool {
        self.interfaces.len() == 1 && self.ips.is_empty()
    }

    /// Numbers of its devices.
    fn devices(&self) -> impl Iterator<Item = usize> + '_ {
        (0..DEVICES).filter(|device| *device < self.interfaces.len() || *device == UDP && !self.ips.is_empty())
    }
}

/// The first address of a host.
fn ip(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1)
}

/// A host; one with several ranks has an interface.
fn host(rng: &mut Rng, number: usize, mac: [u8; 6], segments: usize, has_several_ranks: bool) -> Host {
    let mut count = *choose(rng, &[0, 1, 1, 2, 2, 2, 3, 4]);
    if has_several_ranks {
        count = count.max(1);
    }
    let is_equal = rng.bool();
    let mut interfaces: Vec<Attachment> = (0..count)
        .map(|device| {
            let [a, b, c, d, e, f] = mac;
            let mbit_s = if is_equal { 1000 } else { *choose(rng, &[100, 1000, 1000, 2500, 10_000]) };
            Attachment {
                mac: MacAddress([a, b, c, d, e, f | (device as u8) << 4]),
                segment: if rng.bool() { device % segments } else { rng.usize(..segments) },
                rate_bit_s: u64::from(mbit_s) * 1_000_000,
                speed: if rng.u8(..8) == 0 { 0 } else { mbit_s },
            }
        })
        .collect();
    interfaces.sort_by_key(|interface| std::cmp::Reverse(interface.speed));
    let last = number as u8 + 1;
    let second = *choose(rng, &[WITHIN_HOST, Ipv4Addr::new(10, 1, 0, last), Ipv4Addr::new(192, 168, 0, last)]);
    let all = [ip(number), second, Ipv4Addr::new(192, 168, 1, last)];
    let ips = if count > 0 && rng.u8(..6) == 0 { 0 } else { rng.usize(1..=3) };
    Host { interfaces, ips: all[..ips].to_vec(), filters_datagrams: rng.u8(..6) == 0 }
}
