// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a frame that came in leads to.

use super::ConnectionHandle;
use crate::acknowledged::Peer;
use crate::address::{Destination, Mac, Source};
use crate::extension::Extra;
use crate::pdu::{Header, Identification};

/// What to do with a frame that was handed in: both may be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled<'a> {
    /// For a user.
    pub delivery: Option<Delivery<'a>>,
    /// To be sent back, now.
    pub reply: Option<Reply<'a>>,
}

/// Something for a user. Every slice is of the frame handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery<'a> {
    /// Type 2: the next information field of a connection, in order, exactly once.
    Data {
        /// Of which.
        connection: ConnectionHandle,
        /// The field.
        information: &'a [u8],
        /// Whether some that came early may be next: to be asked for with [`Station::next_kept`](crate::Station::next_kept).
        has_kept: bool,
    },
    /// Type 2, extended: an information field of a connection that belongs behind others that have not come. It can be
    /// copied and [kept](crate::Station::keep); else it will be sent again.
    Early {
        /// Of which.
        connection: ConnectionHandle,
        /// Its number, by which it is asked for when its turn has come.
        number: u16,
        /// The field.
        information: &'a [u8],
    },
    /// Type 1: a UI PDU, for an active service access point, or for a group with [`Station::members`].
    Datagram {
        /// The sending station.
        from: Mac,
        /// The service access point there.
        source: Source,
        /// For whom.
        destination: Destination,
        /// The field.
        information: &'a [u8],
    },
    /// Type 3: an acknowledged datagram, once.
    AcknowledgedDatagram {
        /// From whom, for whom.
        peer: Peer,
        /// The field.
        information: &'a [u8],
    },
    /// An XID response.
    Identification {
        /// The answering station.
        from: Mac,
        /// The service access point there.
        source: Source,
        /// What it says.
        identification: Identification<'a>,
    },
    /// A TEST response.
    Test {
        /// The answering station.
        from: Mac,
        /// The service access point there.
        source: Source,
        /// What came back.
        information: &'a [u8],
    },
}

/// An answer that the caller sends at once; none is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// To whom.
    pub destination: Mac,
    /// The PDU up to its information field.
    pub header: Header,
    /// That follows: a slice of the frame handed in, or nothing.
    pub information: &'a [u8],
    /// What an extended station adds, behind it.
    pub extra: Extra,
}
