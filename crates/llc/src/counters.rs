// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of received frames, for diagnosis.

use crate::connection::ConnectionCounters;
use crate::pdu::Malformed;

/// Counters of a station since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub frames: u64,
    /// Frames that are not valid PDUs, by reason.
    pub malformed: [u64; Malformed::COUNT],
    /// Frames with a group address as source.
    pub group_source: u64,
    /// Extended stations: PDUs without a valid mark, except those counted by an open connection.
    pub unauthenticated: u64,
    /// PDUs for an inactive service access point or a group without members.
    pub unknown_sap: u64,
    /// PDUs of a type that the station's class excludes, or that is invalid for the destination address.
    pub not_applicable: u64,
    /// Type 2 PDUs that belong to no connection.
    pub no_connection: u64,
    /// SABME PDUs refused because the SAP is not listening or there is no room.
    pub refused: u64,
    /// UI PDUs delivered.
    pub datagrams: u64,
    /// XID and TEST commands answered.
    pub answered: u64,
    /// Type 3: commands delivered.
    pub acknowledged_datagrams: u64,
    /// Type 3: retransmissions, acknowledged but not delivered.
    pub repeated_datagrams: u64,
    /// Type 3: unexpected acknowledgements.
    pub stray_acknowledgements: u64,
    /// Sum over all ended connections.
    pub ended_connections: ConnectionCounters,
}
