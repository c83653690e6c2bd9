// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Service access point addresses (IEEE 802.2, clause 3.3.1). Invalid ones cannot be constructed.
//!
//! ```text
//!           bit  8 7 6 5 4 3 2 1
//! DSAP byte      D D D D D D D I/G      I/G 0: individual, 1: group
//! SSAP byte      S S S S S S S C/R      C/R 0: command,    1: response
//! ```

/// A MAC address; the engine only compares it.
pub type Mac = [u8; 6];

/// An individual service access point: even and not null, 2 to 254.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsap(u8);

impl Lsap {
    /// Subnetwork access protocol: UI PDUs between two such SAPs carry an EtherType.
    pub const SNAP: Self = Self(0xaa);

    /// `None` for the null address and for group addresses.
    #[must_use]
    pub const fn new(byte: u8) -> Option<Self> {
        if byte & GROUP_BIT == 0 && byte != NULL { Some(Self(byte)) } else { None }
    }

    /// The value of the DSAP byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }
}

/// A group of service access points: odd and not the global one, 1 to 253.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSap(u8);

impl GroupSap {
    /// `None` for individual addresses and for the global address.
    #[must_use]
    pub const fn new(byte: u8) -> Option<Self> {
        if byte & GROUP_BIT != 0 && byte != GLOBAL { Some(Self(byte)) } else { None }
    }

    /// The value of the DSAP byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }
}

/// Destination of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// The station itself.
    Null,
    /// One service access point.
    Individual(Lsap),
    /// The members of a group.
    Group(GroupSap),
    /// Every active service access point.
    Global,
}

impl Destination {
    /// The value of the DSAP byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Null => NULL,
            Self::Individual(sap) => sap.0,
            Self::Group(group) => group.0,
            Self::Global => GLOBAL,
        }
    }
}

impl From<u8> for Destination {
    fn from(byte: u8) -> Self {
        match byte {
            NULL => Self::Null,
            GLOBAL => Self::Global,
            _ if byte & GROUP_BIT != 0 => Self::Group(GroupSap(byte)),
            _ => Self::Individual(Lsap(byte)),
        }
    }
}

impl From<Lsap> for Destination {
    fn from(sap: Lsap) -> Self {
        Self::Individual(sap)
    }
}

/// Source of a PDU, without the C/R bit of the SSAP byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The station itself.
    Null,
    /// One service access point.
    Individual(Lsap),
}

impl Source {
    /// The value of the SSAP byte of a command.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Null => NULL,
            Self::Individual(sap) => sap.0,
        }
    }

    /// From an SSAP byte; ignores the C/R bit.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        match Lsap::new(byte & !GROUP_BIT) {
            Some(sap) => Self::Individual(sap),
            None => Self::Null,
        }
    }
}

impl From<Lsap> for Source {
    fn from(sap: Lsap) -> Self {
        Self::Individual(sap)
    }
}

impl From<Source> for Destination {
    fn from(source: Source) -> Self {
        match source {
            Source::Null => Self::Null,
            Source::Individual(sap) => Self::Individual(sap),
        }
    }
}

/// Whether a MAC address is a group address.
pub(crate) const fn is_group_mac(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

const NULL: u8 = 0x00;
const GLOBAL: u8 = 0xff;
const GROUP_BIT: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_exactly_one_kind_of_destination() {
        for byte in 0..=u8::MAX {
            let kinds = [byte == 0, Lsap::new(byte).is_some(), GroupSap::new(byte).is_some(), byte == 255];
            assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{byte}");
            assert_eq!(Destination::from(byte).byte(), byte);
        }
    }
}
