// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of endpoints.

use std::fmt;
use std::hash::{Hash, Hasher};

use barewire_link::{Locator, MacAddress};
use barewire_llc::{Lsap, Mac};

/// An endpoint's address: its link's MAC address and its SAP there. It is all that a peer needs to connect: it
/// includes the cookie that an endpoint without a job token requires, and what the link needs to reach it. Comparison
/// ignores both.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The link's MAC address.
    pub mac: Mac,
    /// The endpoint's tag.
    pub sap: Lsap,
    /// 64 random bits, or 0 if the endpoint has a job token or accepts any peer.
    pub cookie: u64,
    /// [`Link::locator`](barewire_link::Link::locator) of the link; [`Locator::UNKNOWN`] if the sender's link knows it.
    pub locator: Locator,
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        (self.mac, self.sap) == (other.mac, other.sap)
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.mac, self.sap).hash(state);
    }
}

impl Address {
    /// Length of the wire form.
    pub const BYTES: usize = 15 + Locator::BYTES;

    /// An address without a cookie, whose locator the sender's link knows.
    #[must_use]
    pub fn new(mac: Mac, sap: Lsap) -> Self {
        Self { mac, sap, cookie: 0, locator: Locator::UNKNOWN }
    }

    /// Encodes MAC address, SAP, cookie and locator, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6] = self.sap.byte();
        bytes[7..15].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[15..].copy_from_slice(&self.locator.to_bytes());
        bytes
    }

    /// Decodes the wire form; `None` if the seventh byte is not an individual SAP.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, sap, c0, c1, c2, c3, c4, c5, c6, c7, locator @ ..] = bytes;
        Some(Self {
            mac: [a, b, c, d, e, f],
            sap: Lsap::new(sap)?,
            cookie: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            locator: Locator::from_bytes(locator),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:#04x}", MacAddress(self.mac), self.sap.byte())
    }
}
