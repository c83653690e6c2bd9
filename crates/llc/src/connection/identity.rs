// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which connection a PDU belongs to: nonces of both ends and the marks that are made of them ([`crate::extension`]).

use crate::extension::{self, Extension};
use crate::pdu::{Body, Pdu};

/// What an extended connection knows of itself and its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// This end's nonce: another one for each set-up.
    nonce: u64,
    /// The peer's; 0 until it is known.
    peer: u64,
    /// The peer's in a SABME that waits for the user, or for the answer to a poll.
    held: u64,
    /// What the peer wants to know to be connected to.
    key: u64,
    /// The mark of what this end sends, and of what it receives; 0 before both nonces are known.
    sends: u64,
    receives: u64,
    /// The mark of the next UA or DM: of what it answers.
    answers: u64,
}

impl Identity {
    pub fn new(nonce: u64, key: u64) -> Self {
        Self { nonce, key, ..Self::default() }
    }

    /// Whether an I or S PDU is of this connection.
    #[inline]
    pub fn is_of_connection(&self, mark: u64) -> bool {
        mark == self.receives && self.receives != 0
    }

    /// Whether a PDU of the connection's two service access points is of this connection, or answers this end. A SABME
    /// that does not know this end's key comes no further than the station.
    pub fn believes(&self, pdu: &Pdu<'_>, mark: u64) -> bool {
        let is_one_of = |known: &[u64]| mark != 0 && known.contains(&mark);
        match pdu.body {
            Body::Sabme { .. } => true,
            // To a SABME; or to a DISC.
            Body::Ua { .. } => is_one_of(&[self.nonce, self.sends]),
            // Those answers, or unasked: from a peer that may not have known both nonces yet.
            Body::Dm { .. } | Body::Disc { .. } => {
                is_one_of(&[self.receives, self.nonce, self.sends, self.peer, self.held])
            }
            _ => self.is_of_connection(mark),
        }
    }

    /// Whether a SABME is the one again that set the connection up.
    pub fn is_known(&self, nonce: u64) -> bool {
        nonce == self.peer
    }

    /// A UA came: if it answers this end's SABME, the peer's nonce is known.
    pub fn answered(&mut self, extension: &Extension) {
        if extension.mark == self.nonce {
            self.agree(extension.nonce);
        }
    }

    /// What the next UA or DM answers.
    pub fn answer(&mut self, extension: &Extension) {
        self.answers = if extension.nonce != 0 { extension.nonce } else { extension.mark };
    }

    /// The next UA accepts the set-up that a SABME asked for.
    pub fn accept(&mut self, nonce: u64) {
        self.agree(nonce);
        self.answers = nonce;
    }

    pub fn hold(&mut self, nonce: u64) {
        self.held = nonce;
    }

    pub fn accept_held(&mut self) {
        self.accept(self.held);
    }

    pub fn refuse_held(&mut self) {
        self.answers = self.held;
    }

    /// The next DM answers nothing.
    pub fn leave(&mut self) {
        self.answers = if self.sends == 0 { self.nonce } else { self.sends };
    }

    /// This end sets up anew: nothing of before is believed after the peer's consent.
    pub fn renew(&mut self) {
        self.nonce = extension::next_nonce(self.nonce, 1).max(1);
    }

    pub fn set_up_mark(&self) -> u64 {
        extension::set_up_mark(self.key, self.nonce)
    }

    #[inline]
    pub fn sends(&self) -> u64 {
        self.sends
    }

    pub fn peer_key(&self) -> u64 {
        self.key
    }

    pub fn answers(&self) -> u64 {
        self.answers
    }

    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    fn agree(&mut self, peer: u64) {
        self.peer = peer;
        self.sends = extension::connection_mark(self.nonce, peer);
        self.receives = extension::connection_mark(peer, self.nonce);
    }
}
