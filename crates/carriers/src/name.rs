// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of stations.

/// A station: MAC address and service access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(u64);

impl Name {
    pub const fn new(mac: [u8; 6], sap: u8) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([0, a, b, c, d, e, f, sap]))
    }

    /// The station in a frame whose MAC address and service access point are there; bit 0 of the latter is ignored.
    #[inline]
    pub fn in_frame(frame: &[u8], mac_at: usize, sap_at: usize) -> Self {
        let mac =
            frame.get(mac_at..).and_then(|bytes| bytes.first_chunk()).copied().map_or(0, u64::from_be_bytes) >> 16;
        Self(mac << 8 | u64::from(frame.get(sap_at).copied().unwrap_or_default() & !1))
    }

    pub fn mac(self) -> [u8; 6] {
        let [_, a, b, c, d, e, f, _] = self.0.to_be_bytes();
        [a, b, c, d, e, f]
    }

    pub const fn sap(self) -> u8 {
        self.0 as u8
    }

    pub fn to_bytes(self) -> [u8; 7] {
        let [_, bytes @ ..] = self.0.to_be_bytes();
        bytes
    }

    pub const fn from_bytes(bytes: [u8; 7]) -> Self {
        let [a, b, c, d, e, f, sap] = bytes;
        Self::new([a, b, c, d, e, f], sap)
    }
}
