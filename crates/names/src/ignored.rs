// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of ignored PDUs.

use barewire_llc::Pdu;

use crate::wire::{Malformed, Message};

/// Counts of ignored PDUs, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Invalid messages, in the order of [`Malformed::ALL`].
    pub malformed: [u64; Malformed::ALL.len()],
    /// Frames that are not LLC PDUs.
    pub not_llc: u64,
    /// PDUs of another kind, or between other service access points.
    pub unexpected: u64,
    /// PDUs with a group address as source.
    pub group_source: u64,
    /// Answers to no query of this census.
    pub stray: u64,
    /// Answers of further stations in a full census.
    pub no_room: u64,
}

impl Ignored {
    /// The counts with their names.
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

    /// Adds the counts of `other`.
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

    /// Decodes a PDU from `source`; counts it if that fails.
    pub(crate) fn pdu<'a>(&mut self, source: [u8; 6], llc: &'a [u8]) -> Option<Pdu<'a>> {
        if source[0] & 1 != 0 {
            self.group_source += 1;
            return None;
        }
        let pdu = Pdu::decode(llc).ok();
        self.not_llc += u64::from(pdu.is_none());
        pdu
    }

    /// Decodes the message in a PDU; counts it if that fails.
    pub(crate) fn message(&mut self, information: &[u8]) -> Option<Message> {
        Message::decode(information).map_err(|reason| self.malformed[reason as usize] += 1).ok()
    }
}
