// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A second socket for the one peer with which nearly all datagrams are exchanged at present.
//!
//! It has the same port, and is connected to the peer, so that the kernel looks up no route for each datagram, neither
//! when it is sent nor when it is received: some 0.6 µs less one way. With several peers, polling several sockets would
//! cost more than that.

use std::os::fd::OwnedFd;

use super::address::SocketAddress;
use super::received::Source;
use crate::MacAddress;

/// Consecutive groups of datagrams from one peer, and sends to it, that make it the partner.
const STREAK: u32 = 64;
/// Maximum of that number, which doubles each time that a partner was left for others.
const STREAK_MAX: u32 = 1 << 16;
/// What an exchange with another peer counts, if one with the partner counts −1 …
const OTHER_WEIGHT: u32 = 4;
/// … and the sum at which the partner is left.
const OTHERS_MAX: u32 = 64;
/// Of this many polls, one is of the socket for all peers; every second one, while that finds something.
const POLLS_PER_OTHERS: u32 = 8;

/// Chooses the partner.
pub(super) struct Partnership {
    pub partner: Option<Partner>,
    /// The peer of the last exchange, and how many were with it.
    last: MacAddress,
    streak: u32,
    streak_needed: u32,
    /// Polls of the partner's socket before the next of the socket for all peers.
    polls_left: u32,
}

pub(super) struct Partner {
    pub peer: MacAddress,
    pub source: Source,
    /// Weighted number of exchanges with other peers.
    others: u32,
    /// Nothing new arrives, and the socket is closed once it is empty.
    pub is_leaving: bool,
}

/// What to do after an exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// Open a socket for the peer of the exchange.
    Take,
    /// Redirect what arrives for the partner to the socket for all peers.
    Leave,
}

impl Partnership {
    pub fn new() -> Self {
        Self { partner: None, last: MacAddress::default(), streak: 0, streak_needed: STREAK, polls_left: 0 }
    }

    /// The socket for sends to a peer, if it is the partner.
    #[inline]
    pub fn socket_to(&self, peer: MacAddress) -> Option<&OwnedFd> {
        let partner = self.partner.as_ref()?;
        (partner.peer == peer && !partner.is_leaving).then_some(&partner.source.socket)
    }

    /// Whether to poll the socket for all peers before the partner's.
    #[inline]
    pub fn is_turn_of_others(&mut self) -> bool {
        let is_turn = self.partner.is_none() || self.polls_left == 0;
        self.polls_left = self.polls_left.saturating_sub(1);
        is_turn
    }

    /// Notes whether a poll of the socket for all peers has found something.
    #[inline]
    pub fn note_others(&mut self, has_found: bool) {
        self.polls_left = if has_found { 1 } else { POLLS_PER_OTHERS - 1 };
    }

    /// Notes that something was sent to a peer or received from it.
    #[inline]
    pub fn note(&mut self, peer: MacAddress) -> Change {
        if let Some(partner) = &mut self.partner {
            if partner.peer == peer {
                partner.others = partner.others.saturating_sub(1);
                return Change::None;
            }
            partner.others += OTHER_WEIGHT;
            if partner.others < OTHERS_MAX || partner.is_leaving {
                return Change::None;
            }
            self.need_longer_streak();
            return Change::Leave;
        }
        if self.last != peer {
            (self.last, self.streak) = (peer, 0);
        }
        self.streak = self.streak.saturating_add(1);
        if self.streak == self.streak_needed { Change::Take } else { Change::None }
    }

    /// Takes a partner, with a socket that is connected to it.
    pub fn take(&mut self, peer: MacAddress, address: SocketAddress, socket: OwnedFd) {
        let source = Source::new(socket, Some(address));
        self.partner = Some(Partner { peer, source, others: 0, is_leaving: false });
    }

    /// After no socket could be opened: tries again later.
    pub fn postpone(&mut self) {
        self.streak = 0;
        self.need_longer_streak();
    }

    /// Leaves the partner, once its socket is empty.
    pub fn leave(&mut self) {
        if let Some(partner) = &mut self.partner {
            partner.is_leaving = true;
        }
        self.streak = 0;
    }

    fn need_longer_streak(&mut self) {
        self.streak_needed = self.streak_needed.saturating_mul(2).min(STREAK_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const B: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    /// Number of exchanges with `peer` until something changes.
    fn until_change(partnership: &mut Partnership, peer: MacAddress, expected: Change) -> u32 {
        (1..).find(|_| partnership.note(peer) == expected).unwrap()
    }

    #[test]
    fn only_a_peer_of_a_streak_becomes_the_partner() {
        let mut partnership = Partnership::new();
        for _ in 0..10 * STREAK {
            assert_eq!((partnership.note(A), partnership.note(B)), (Change::None, Change::None));
        }
        assert_eq!(until_change(&mut partnership, A, Change::Take), STREAK);
        partnership.take(A, SocketAddress::default(), null());
        assert!(partnership.socket_to(A).is_some() && partnership.socket_to(B).is_none());
    }

    #[test]
    fn the_partner_is_left_if_others_take_more_than_a_fifth_and_then_needs_a_longer_streak() {
        let mut partnership = Partnership::new();
        until_change(&mut partnership, A, Change::Take);
        partnership.take(A, SocketAddress::default(), null());
        for _ in 0..1000 {
            assert!((0..OTHER_WEIGHT).all(|_| partnership.note(A) == Change::None));
            assert_eq!(partnership.note(B), Change::None);
        }
        for round in 1..20 {
            let exchanges = until_change(&mut partnership, B, Change::Leave);
            assert!(exchanges <= OTHERS_MAX / OTHER_WEIGHT);
            partnership.leave();
            assert!(partnership.socket_to(A).is_none());
            partnership.partner = None;
            let needed = until_change(&mut partnership, A, Change::Take);
            assert_eq!(needed, (STREAK << round).min(STREAK_MAX));
            partnership.take(A, SocketAddress::default(), null());
        }
    }

    #[test]
    fn a_socket_that_could_not_be_opened_is_tried_again_after_a_longer_streak() {
        let mut partnership = Partnership::new();
        assert_eq!(until_change(&mut partnership, A, Change::Take), STREAK);
        partnership.postpone();
        assert_eq!(until_change(&mut partnership, A, Change::Take), 2 * STREAK);
    }
}
