// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Egress rules. A locked receive filter does not restrict transmission: the holder of a descriptor can send any frame.
//! Its frames carry a mark that it cannot change, so rules at the interface's egress can restrict them to the grant.
//! Loading rules needs CAP_NET_ADMIN, which the broker does not have: an administrator loads the rules printed here.

use std::fmt::Write;

use barewire_link::Interface;
use barewire_llc::Lsap;

/// Upper half of the marks, "BW"; the lower half is the service access point.
const MARK: u32 = 0x4257_0000;

/// A VLAN tag of a label: identifiers 3840 to 3903, priority 0.
const LABELLED: &str = "@ll,96,16 == 0x8100 @ll,112,16 & 0xffc0 == 0xf00";

/// The mark of frames from a socket for this service access point.
pub fn mark_of(sap: Lsap) -> u32 {
    MARK | u32::from(sap.byte())
}

/// Rules for nft(8), at the egress hook of nftables: `PACKET_QDISC_BYPASS` bypasses tc.
///
/// On an interface of the policy, marked frames must have its source address, be LLC, and have the granted SSAP, as a
/// command or a response; they may have a label's VLAN tag. On other interfaces marked frames are dropped.
pub fn rules(granted: &[Interface], others: &[String]) -> String {
    let mut text = String::from("table netdev barewire\ndelete table netdev barewire\ntable netdev barewire {\n");
    // Length or 0x8870, then DSAP and SSAP. Offsets are in bits from the destination address.
    text.push_str("  set granted {\n    typeof meta mark . @ll,120,8\n    elements = {\n");
    for sap in (2..=0xfe).filter_map(Lsap::new) {
        let (mark, sap) = (mark_of(sap), sap.byte());
        let _ = writeln!(text, "      {mark:#x} . {sap:#x}, {mark:#x} . {:#x},", sap | 1);
    }
    text.push_str("    }\n  }\n");
    for (number, interface) in granted.iter().enumerate() {
        let (name, address) = (&interface.name, interface.address);
        let _ = writeln!(
            text,
            "  chain granted{number} {{\n    type filter hook egress device \"{name}\" priority 0; policy accept;\n    \
             meta mark & 0xffff0000 != {MARK:#x} accept\n    @ll,48,48 != {address} counter drop\n    \
             {LABELLED} @ll,128,16 <= 1500 meta mark . @ll,152,8 @granted counter accept\n    \
             {LABELLED} @ll,128,16 == 0x8870 meta mark . @ll,152,8 @granted counter accept\n    \
             @ll,96,16 > 1500 @ll,96,16 != 0x8870 counter drop\n    \
             meta mark . @ll,120,8 @granted counter accept\n    counter drop\n  }}",
            address = u64::from_be_bytes(zero_extended(address.0)),
        );
    }
    for (number, name) in others.iter().enumerate() {
        let _ = writeln!(
            text,
            "  chain other{number} {{\n    type filter hook egress device \"{name}\" priority 0; policy accept;\n    \
             meta mark & 0xffff0000 == {MARK:#x} counter drop\n  }}"
        );
    }
    text.push_str("}\n");
    text
}

fn zero_extended(address: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = address;
    [0, 0, a, b, c, d, e, f]
}
