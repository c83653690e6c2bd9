// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came in and what became of it: the answer to "why does it not work?".

use crate::connection::ConnectionCounters;
use crate::pdu::Malformed;

/// Counts of a station since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed in.
    pub frames: u64,
    /// Frames that are no PDU, by reason.
    pub malformed: [u64; Malformed::COUNT],
    /// Frames from an address that is a group's.
    pub group_source: u64,
    /// Extended stations: PDUs without the mark that makes them believed; those of connections that are open are counted
    /// there.
    pub unauthenticated: u64,
    /// PDUs for a service access point that is not active, or a group without members.
    pub unknown_sap: u64,
    /// PDUs of a type that the station's class excludes, or that is not for the address it came to.
    pub out_of_place: u64,
    /// PDUs of type 2 that belong to no connection.
    pub no_connection: u64,
    /// SABME PDUs refused: nobody listens, or there is no room.
    pub refused: u64,
    /// UI PDUs delivered.
    pub datagrams: u64,
    /// XID and TEST commands answered.
    pub answered: u64,
    /// Type 3: commands delivered.
    pub acknowledged_datagrams: u64,
    /// Type 3: repetitions, acknowledged but not delivered.
    pub repeated_datagrams: u64,
    /// Type 3: acknowledgements of nothing.
    pub stray_acknowledgements: u64,
    /// Sum over all connections that have ended.
    pub ended_connections: ConnectionCounters,
}
