// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nonces of both ends and the marks derived from them, which identify the PDUs of a connection ([`crate::extension`]).

use crate::extension::{self, Extension};
use crate::pdu::{Body, Pdu};

/// Nonces, key and marks of an extended connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// This end's nonce, a new one for each set-up.
    nonce: u64,
    /// The peer's nonce; 0 until it is known.
    peer_nonce: u64,
    /// The peer's nonce in a SABME that waits for the user's answer or for verification polls.
    held_nonce: u64,
    /// The key of that SABME's station.
    held_key: u64,
    /// The key with which the peer accepts connections.
    peer_key: u64,
    /// The mark of transmitted PDUs; 0 until both nonces are known.
    send_mark: u64,
    /// The mark of received PDUs; 0 until both nonces are known.
    receive_mark: u64,
    /// The mark of the next UA or DM.
    response_mark: u64,
}

impl Identity {
    pub fn new(nonce: u64, peer_key: u64) -> Self {
        Self { nonce, peer_key, ..Self::default() }
    }

    /// Whether a PDU belongs to this connection, by its mark without the bits that depend on its numbers.
    #[inline]
    pub fn is_of_connection(&self, mark: u64) -> bool {
        mark == self.receive_mark && self.receive_mark != 0
    }

    /// Whether an I or S PDU with this mark may belong to this connection: its numbers, which change the mark, are
    /// unknown.
    #[inline]
    pub fn may_be_of_connection(&self, mark: u64) -> bool {
        extension::is_mark_of(mark, self.receive_mark)
    }

    /// Whether a PDU between the connection's two service access points belongs to this connection or answers this end.
    /// The station drops a SABME without this end's key.
    pub fn is_authentic(&self, pdu: &Pdu<'_>, mark: u64) -> bool {
        let is_one_of = |marks: &[u64]| mark != 0 && marks.contains(&mark);
        match pdu.body {
            Body::Sabme { .. } => true,
            // Answers a SABME or a DISC.
            Body::Ua { .. } => is_one_of(&[self.nonce, self.send_mark]),
            // Answers a PDU, or is unsolicited; the peer may not know both nonces yet.
            Body::Dm { .. } | Body::Disc { .. } => {
                is_one_of(&[self.receive_mark, self.nonce, self.peer_nonce, self.held_nonce])
                    || extension::is_mark_of(mark, self.send_mark)
            }
            _ => self.is_of_connection(mark),
        }
    }

    /// Whether a SABME's nonce is that of the set-up, so that it is a duplicate.
    pub fn is_peer_nonce(&self, nonce: u64) -> bool {
        nonce == self.peer_nonce
    }

    /// Learns the peer's nonce from a UA if that answers this end's SABME.
    pub fn handle_ua(&mut self, extension: &Extension) {
        if extension.mark == self.nonce {
            self.set_peer_nonce(extension.nonce);
        }
    }

    /// Sets the mark of the next UA or DM to answer the PDU with this extension.
    pub fn respond_to(&mut self, extension: &Extension) {
        self.response_mark = if extension.nonce != 0 { extension.nonce } else { extension.mark };
    }

    /// Accepts the set-up that a SABME requested; the next UA says so.
    pub fn accept(&mut self, nonce: u64) {
        self.set_peer_nonce(nonce);
        self.response_mark = nonce;
    }

    pub fn hold(&mut self, nonce: u64, key: u64) {
        (self.held_nonce, self.held_key) = (nonce, key);
    }

    /// Whether the held SABME is of another station at the peer's address.
    pub fn holds_successor(&self) -> bool {
        self.held_nonce != 0 && self.held_key != self.peer_key
    }

    pub fn accept_held(&mut self) {
        self.accept(self.held_nonce);
    }

    pub fn refuse_held(&mut self) {
        self.response_mark = self.held_nonce;
    }

    /// Sets the mark of an unsolicited DM.
    pub fn abandon(&mut self) {
        self.response_mark = if self.send_mark == 0 { self.nonce } else { self.send_mark };
    }

    /// Draws a new nonce for a reset: PDUs sent before it are ignored once the peer accepts.
    pub fn renew_nonce(&mut self) {
        self.nonce = extension::next_nonce(self.nonce, 1).max(1);
    }

    pub fn set_up_mark(&self) -> u64 {
        extension::set_up_mark(self.peer_key, self.nonce)
    }

    #[inline]
    pub fn send_mark(&self) -> u64 {
        self.send_mark
    }

    pub fn peer_key(&self) -> u64 {
        self.peer_key
    }

    pub fn response_mark(&self) -> u64 {
        self.response_mark
    }

    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    fn set_peer_nonce(&mut self, peer_nonce: u64) {
        self.peer_nonce = peer_nonce;
        self.send_mark = extension::connection_mark(self.nonce, peer_nonce);
        self.receive_mark = extension::connection_mark(peer_nonce, self.nonce);
    }
}
