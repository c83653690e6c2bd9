// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive filters of service access points: IEEE 802.3 frames with a length, or EtherType 0x8870 above 1500 bytes.

use barewire_link::{ETHERNET_HEADER_BYTES, Field, Filter};
use barewire_llc::{Destination, Lsap};

/// LLC encapsulation for long PDUs (IEEE 802.1AC, annex).
const ETHER_TYPE_LLC: u16 = 0x8870;

/// Accepts LLC PDUs to one service access point.
#[must_use]
pub fn sap_filter(sap: Lsap) -> Filter {
    or_for(Filter::default(), sap.into())
}

/// As [`sap_filter`], and PDUs to the null and the global SAP.
#[must_use]
pub fn station_filter(sap: Lsap) -> Filter {
    [sap.into(), Destination::Null, Destination::Global].into_iter().fold(Filter::default(), or_for)
}

fn or_for(filter: Filter, destination: Destination) -> Filter {
    let dsap = Field::byte(ETHERNET_HEADER_BYTES as u32, destination.byte());
    // Lengths are below 0x0600, where EtherTypes begin: their upper seven bits are 0, 1 or 2.
    [0x0000, 0x0200, 0x0400]
        .into_iter()
        .fold(filter.or_all_of(&[Field::word(12, ETHER_TYPE_LLC), dsap]), |filter, length| {
            filter.or_all_of(&[Field::word(12, length).masked(0xfe00), dsap])
        })
}
