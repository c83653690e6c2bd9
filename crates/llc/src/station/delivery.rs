// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of a received frame.

use super::ConnectionHandle;
use crate::acknowledged::Peer;
use crate::address::{Destination, Mac, Source};
use crate::extension::Extra;
use crate::pdu::{Header, Identification};

/// Result of processing a frame; both fields may be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled<'a> {
    /// Data for the user.
    pub delivery: Option<Delivery<'a>>,
    /// A reply to be sent at once.
    pub reply: Option<Reply<'a>>,
}

/// Data for the user. Every slice borrows from the received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery<'a> {
    /// Type 2: the next information field of a connection, in sequence, exactly once.
    Data {
        /// The connection.
        connection: ConnectionHandle,
        /// The information field.
        information: &'a [u8],
        /// Whether kept fields may be next: poll [`Station::next_kept`](crate::Station::next_kept).
        has_kept: bool,
    },
    /// Type 2, extended: an information field ahead of sequence. The caller may copy and [keep](crate::Station::keep)
    /// it; otherwise the peer retransmits it.
    Early {
        /// The connection.
        connection: ConnectionHandle,
        /// Its number, which [`Station::next_kept`](crate::Station::next_kept) returns when it is next in sequence.
        number: u16,
        /// The information field.
        information: &'a [u8],
    },
    /// Type 1: a UI PDU to an active service access point, or to all.
    Datagram {
        /// The sending station.
        from: Mac,
        /// The sending service access point.
        source: Source,
        /// The destination.
        destination: Destination,
        /// The information field.
        information: &'a [u8],
    },
    /// Type 3: an acknowledged datagram, exactly once.
    AcknowledgedDatagram {
        /// Sender and receiver.
        peer: Peer,
        /// The information field.
        information: &'a [u8],
    },
    /// An XID response.
    Identification {
        /// The responding station.
        from: Mac,
        /// The responding service access point.
        source: Source,
        /// The information field.
        identification: Identification<'a>,
    },
    /// A TEST response.
    Test {
        /// The responding station.
        from: Mac,
        /// The responding service access point.
        source: Source,
        /// The returned information field.
        information: &'a [u8],
    },
}

/// A reply to be sent at once; the engine does not store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Destination MAC address.
    pub destination: Mac,
    /// The PDU up to its information field.
    pub header: Header,
    /// The information field: a slice of the received frame, or empty.
    pub information: &'a [u8],
    /// Extension of an extended station, for the trailer.
    pub extra: Extra,
}
