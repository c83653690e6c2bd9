// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of UDP stations, as MAC addresses and as the system's socket addresses.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::MacAddress;

/// Peers whose IPv6 addresses are remembered because they sent a datagram; the oldest is forgotten first.
const UNNAMED_MAX: usize = 4096;

/// The station of a socket: its port, then its IPv4 address or 32 bits of a hash of its IPv6 address. The port's high
/// byte is even, because that bit would denote a group of stations.
pub(super) fn station(ip: IpAddr, port: u16) -> MacAddress {
    let [p0, p1] = port.to_be_bytes();
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => hash(ip),
    };
    MacAddress([p0, p1, a, b, c, d])
}

/// Whether a station address is possible for a port.
pub(super) const fn is_usable(port: u16) -> bool {
    port != 0 && port & 0x100 == 0
}

/// FNV-1a, folded: the same in every build.
fn hash(ip: Ipv6Addr) -> [u8; 4] {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = ip.octets().into_iter().fold(0xcbf2_9ce4_8422_2325, step);
    (((hash >> 32) ^ hash) as u32).to_be_bytes()
}

/// The system's form of a socket address, of either family.
#[derive(Clone, Copy)]
pub(super) union SocketAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl SocketAddress {
    /// `scope` is the index of the interface, which link-local addresses need.
    pub fn new(ip: IpAddr, port: u16, scope: u32) -> Self {
        let mut address = Self::default();
        match ip {
            IpAddr::V4(ip) => {
                address.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: port.to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                    sin_zero: [0; 8],
                };
            }
            IpAddr::V6(ip) => {
                address.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    sin6_scope_id: if ip.is_unicast_link_local() { scope } else { 0 },
                };
            }
        }
        address
    }

    /// Address and port; `None` if it is of another family.
    #[inline]
    pub fn parts(&self) -> Option<(IpAddr, u16)> {
        // SAFETY: all members start with the family, which tells which of them is valid; any bytes are valid integers.
        unsafe {
            match libc::c_int::from(self.family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                    Some((ip.into(), u16::from_be(self.v4.sin_port)))
                }
                libc::AF_INET6 => {
                    let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                    Some((ip.into(), u16::from_be(self.v6.sin6_port)))
                }
                _ => None,
            }
        }
    }

    /// Length of the member in use.
    pub fn bytes(&self) -> libc::socklen_t {
        // SAFETY: all members start with the family.
        let is_v4 = libc::c_int::from(unsafe { self.family }) == libc::AF_INET;
        (if is_v4 { size_of::<libc::sockaddr_in>() } else { size_of::<libc::sockaddr_in6>() }) as libc::socklen_t
    }
}

impl Default for SocketAddress {
    fn default() -> Self {
        // SAFETY: zeros are valid for all members.
        unsafe { mem::zeroed() }
    }
}

/// The socket addresses of stations.
#[derive(Default)]
pub(super) struct Peers {
    /// Of stations with IPv6 addresses.
    known: HashMap<MacAddress, Ipv6Addr>,
    /// Of them those known only from a datagram, the oldest first.
    unnamed: VecDeque<MacAddress>,
    /// Index of the interface, for link-local addresses.
    pub scope: u32,
}

impl Peers {
    pub fn new(scope: u32) -> Self {
        Self { scope, ..Self::default() }
    }

    /// Remembers the address of a station that the user of the link has named.
    pub fn add(&mut self, peer: MacAddress, ip: Ipv6Addr) {
        self.known.insert(peer, ip);
        self.unnamed.retain(|unnamed| *unnamed != peer);
    }

    /// Remembers the address of a station that has sent a datagram.
    pub fn add_unnamed(&mut self, peer: MacAddress, ip: Ipv6Addr) {
        if self.known.contains_key(&peer) {
            return;
        }
        if self.unnamed.len() == UNNAMED_MAX
            && let Some(oldest) = self.unnamed.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(peer, ip);
        self.unnamed.push_back(peer);
    }

    /// The socket address of a station; `None` if it is unknown, or a group of stations.
    #[inline]
    pub fn find(&self, peer: MacAddress, is_v4: bool) -> Option<SocketAddress> {
        let [p0, p1, a, b, c, d] = peer.0;
        let port = u16::from_be_bytes([p0, p1]);
        let ip = if is_v4 { Ipv4Addr::new(a, b, c, d).into() } else { IpAddr::from(*self.known.get(&peer)?) };
        is_usable(port).then(|| SocketAddress::new(ip, port, self.scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_and_its_socket_address_determine_each_other() {
        let mut peers = Peers::new(7);
        for text in ["10.77.0.1", "255.255.255.254", "fd00::1:2", "fe80::5"] {
            let ip: IpAddr = text.parse().unwrap();
            let peer = station(ip, 0x9cfe);
            if let IpAddr::V6(ip) = ip {
                assert!(peers.find(peer, false).is_none());
                peers.add(peer, ip);
            }
            let found = peers.find(peer, ip.is_ipv4()).unwrap();
            assert_eq!(found.parts(), Some((ip, 0x9cfe)), "{text}");
        }
        assert!(peers.find(MacAddress::BROADCAST, true).is_none(), "a group of stations has no socket");
    }

    #[test]
    fn datagrams_from_anywhere_fill_a_bounded_table_and_replace_no_peer() {
        let mut peers = Peers::new(0);
        let address = |number: u32| Ipv6Addr::from(u128::from(number) | 0xfd00 << 112);
        let peer = |number: u32| MacAddress([2, 0, 0, (number >> 16) as u8, (number >> 8) as u8, number as u8]);
        peers.add(peer(1), address(1));
        peers.add_unnamed(peer(1), address(99));
        for number in 2..20_000 {
            peers.add_unnamed(peer(number), address(number));
        }
        assert_eq!(peers.known.len(), UNNAMED_MAX + 1);
        assert_eq!(peers.find(peer(1), false).unwrap().parts().unwrap().0, address(1));
        assert!(peers.find(peer(2), false).is_none(), "the oldest is forgotten");
        assert!(peers.find(peer(19_999), false).is_some());
    }
}
