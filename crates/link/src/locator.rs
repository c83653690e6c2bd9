// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer needs besides a MAC address to send to a link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for IP addresses.
const IP_BYTES: usize = 28;
const V4: usize = 4;
const V6: usize = 16;

/// Where a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locator {
    /// Whether Ethernet frames reach it.
    pub has_frames: bool,
    /// Its UDP port; 0 if datagrams do not reach it.
    pub port: u16,
    /// An opaque number that identifies the host and its network namespace; 0 if unknown.
    pub host: u64,
    /// Numbers of IP addresses of version 4 and 6, and these one after the other.
    v4: u8,
    v6: u8,
    ips: [u8; IP_BYTES],
}

impl Locator {
    /// Length of the wire form.
    pub const BYTES: usize = 1 + 2 + 8 + 1 + IP_BYTES;
    /// Of a link that only frames reach.
    pub const FRAMES: Self = Self { has_frames: true, port: 0, host: 0, v4: 0, v6: 0, ips: [0; IP_BYTES] };
    /// Of a link of which nothing is known but its MAC address.
    pub const UNKNOWN: Self = Self { has_frames: false, ..Self::FRAMES };

    /// Of a link that datagrams reach at this port of these addresses, the first of them if there are too many: seven
    /// of version 4 fit, or one of version 6 and three of version 4.
    #[must_use]
    pub fn of_port(port: u16, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for address in addresses {
            let bytes = V4 * v4.len() + V6 * v6.len();
            match address {
                IpAddr::V4(ip) if bytes + V4 <= IP_BYTES && !v4.contains(&ip) => v4.push(ip),
                IpAddr::V6(ip) if bytes + V6 <= IP_BYTES && !v6.contains(&ip) => v6.push(ip),
                _ => {}
            }
        }
        let mut ips = [0; IP_BYTES];
        let octets = v4.iter().flat_map(Ipv4Addr::octets).chain(v6.iter().flat_map(Ipv6Addr::octets));
        ips.iter_mut().zip(octets).for_each(|(to, octet)| *to = octet);
        Self { port, v4: v4.len() as u8, v6: v6.len() as u8, ips, ..Self::UNKNOWN }
    }

    /// The IP addresses, those of version 4 first.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let (v4, v6) = self.ips.split_at(V4 * usize::from(self.v4));
        let v4 = v4.as_chunks::<V4>().0.iter().map(|octets| IpAddr::from(*octets));
        v4.chain(v6.as_chunks::<V6>().0.iter().take(usize::from(self.v6)).map(|octets| IpAddr::from(*octets)))
    }

    /// Encodes it: whether there are frames, port, host, numbers of addresses (4 bits each), addresses; big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = u8::from(self.has_frames);
        bytes[1..3].copy_from_slice(&self.port.to_be_bytes());
        bytes[3..11].copy_from_slice(&self.host.to_be_bytes());
        bytes[11] = self.v4 << 4 | self.v6;
        bytes[12..].copy_from_slice(&self.ips);
        bytes
    }

    /// Decodes it; without addresses if their numbers are impossible.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [frames, p0, p1, h0, h1, h2, h3, h4, h5, h6, h7, counts, ips @ ..] = bytes;
        let (v4, v6) = (counts >> 4, counts & 0xf);
        let fits = V4 * usize::from(v4) + V6 * usize::from(v6) <= IP_BYTES;
        Self {
            has_frames: frames & 1 != 0,
            port: u16::from_be_bytes([p0, p1]),
            host: u64::from_be_bytes([h0, h1, h2, h3, h4, h5, h6, h7]),
            v4: if fits { v4 } else { 0 },
            v6: if fits { v6 } else { 0 },
            ips,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locator(texts: &[&str]) -> Locator {
        Locator::of_port(0x1234, texts.iter().map(|text| text.parse().unwrap()))
    }

    #[test]
    fn addresses_round_trip_as_far_as_they_fit_each_once() {
        let seven = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"];
        let cases: [(&[&str], &[&str]); 4] = [
            (&[], &[]),
            (&["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.1", "10.0.0.2"], &["10.0.0.1", "10.0.0.2", "fd00::1"]),
            (&[&seven[..], &["10.0.0.8", "fd00::1"]].concat(), &seven),
            (
                &["fd00::1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
                &["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"],
            ),
        ];
        for (given, expected) in cases {
            let given = Locator { has_frames: true, host: u64::MAX - 7, ..locator(given) };
            assert_eq!(Locator::from_bytes(given.to_bytes()), given);
            assert_eq!(given.ips().map(|ip| ip.to_string()).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn any_bytes_are_a_locator_with_no_more_addresses_than_fit() {
        for counts in 0..=255 {
            let mut bytes = locator(&["10.0.0.1"]).to_bytes();
            bytes[11] = counts;
            assert!(Locator::from_bytes(bytes).ips().count() <= 7);
        }
    }
}
