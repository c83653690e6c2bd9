// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where an endpoint is.

use std::fmt;

use barewire_link::MacAddress;
use barewire_llc::{Lsap, Mac};

/// An endpoint's address: its host's interface, and its tag there, which is its service access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The interface.
    pub mac: Mac,
    /// The tag.
    pub sap: Lsap,
}

impl Address {
    /// Length of the wire form.
    pub const BYTES: usize = 7;

    /// MAC address and service access point.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d, e, f] = self.mac;
        [a, b, c, d, e, f, self.sap.byte()]
    }

    /// The wire form back; `None` if the last byte is no individual service access point.
    #[must_use]
    pub fn from_bytes([a, b, c, d, e, f, sap]: [u8; Self::BYTES]) -> Option<Self> {
        Some(Self { mac: [a, b, c, d, e, f], sap: Lsap::new(sap)? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:#04x}", MacAddress(self.mac), self.sap.byte())
    }
}
