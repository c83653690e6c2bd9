// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came in and was of no use: counted, never acted upon.

use barewire_llc::Pdu;

use crate::wire::{Malformed, Message};

/// Counts of PDUs that changed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Information that is no message, in the order of [`Malformed::ALL`].
    pub malformed: [u64; Malformed::ALL.len()],
    /// Not an LLC PDU.
    pub not_llc: u64,
    /// A PDU of another kind, or between other service access points.
    pub unexpected: u64,
    /// From an address that is a group's.
    pub group_source: u64,
    /// An answer to no question of this census.
    pub stray: u64,
    /// From a station too many.
    pub no_room: u64,
}

impl Ignored {
    /// Each count with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let malformed = Malformed::ALL.map(|(reason, name)| (name, self.malformed[reason as usize]));
        malformed.into_iter().chain([
            ("not_llc", self.not_llc),
            ("unexpected", self.unexpected),
            ("group_source", self.group_source),
            ("stray", self.stray),
            ("no_room", self.no_room),
        ])
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.malformed.iter_mut().zip(other.malformed) {
            *sum += more;
        }
        self.not_llc += other.not_llc;
        self.unexpected += other.unexpected;
        self.group_source += other.group_source;
        self.stray += other.stray;
        self.no_room += other.no_room;
    }

    /// The PDU in a frame from `source`, or counted.
    pub(crate) fn pdu<'a>(&mut self, source: [u8; 6], llc: &'a [u8]) -> Option<Pdu<'a>> {
        if source[0] & 1 != 0 {
            self.group_source += 1;
            return None;
        }
        let pdu = Pdu::decode(llc).ok();
        self.not_llc += u64::from(pdu.is_none());
        pdu
    }

    /// The message in a PDU, or counted.
    pub(crate) fn message(&mut self, information: &[u8]) -> Option<Message> {
        Message::decode(information).map_err(|reason| self.malformed[reason as usize] += 1).ok()
    }
}
