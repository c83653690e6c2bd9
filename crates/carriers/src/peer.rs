// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of the carriers to one peer, and what follows from it. No I/O and no clock.

use barewire_link::MacAddress;

use crate::Name;

/// Time without an answer to frames after which their carrier is suspected, in nanoseconds: longer than a busy peer takes
/// to acknowledge.
const SUSPECTED_AFTER: u64 = 10_000_000;
/// A frame after a pause of this time may be the first of a new exchange, or a repetition …
const PAUSE: u64 = SUSPECTED_AFTER;
/// … and after so many of them without an answer it is taken for a repetition.
const PAUSES_MAX: u8 = 2;
/// Intervals between two questions: the first; the longest while no carrier is known to work, and while one is.
const QUESTION_MIN: u64 = 2_000_000;
const QUESTION_MAX: u64 = 500_000_000;
const BETTER_QUESTION_MAX: u64 = 30_000_000_000;

/// A carrier; the better first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// Ethernet frames.
    Frames = 0,
    /// UDP datagrams.
    Udp = 1,
}

impl Carrier {
    /// Both, the better first.
    pub const ALL: [Self; 2] = [Self::Frames, Self::Udp];
}

/// Where to send a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To one carrier.
    One(Carrier),
    /// To all that may reach the peer, because the current one is silent.
    All,
    /// Nowhere, until a carrier is known to work.
    Hold,
}

/// The carriers to one peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub name: Name,
    /// The peer's key, of the tags of probes to it; `None` if it is known only from its own.
    pub key: Option<u64>,
    /// Address of the peer's UDP socket; `None` until it has answered.
    pub udp: Option<MacAddress>,
    /// Addresses that the socket may have.
    pub sockets: Vec<MacAddress>,
    /// By carrier: whether both ends have it.
    candidates: [bool; 2],
    /// By carrier: whether the peer has answered the current question by it.
    works: [bool; 2],
    /// By carrier: the peer's question that was answered last.
    answered: [u64; 2],
    pub current: Option<Carrier>,
    /// The current question; changes when all carriers must be asked anew.
    nonce: u64,
    /// Time of the first send of the last exchange that the current carrier has not answered; 0 if there is none.
    unanswered_since: u64,
    /// Time of the last send, and number of pauses between sends since something was heard.
    last_sent: u64,
    pauses: u8,
    /// When to ask again, and how long after that.
    question_due: u64,
    question_interval: u64,
}

impl Peer {
    /// A peer that must be asked.
    pub fn new(name: Name, key: Option<u64>, nonce: u64, now: u64) -> Self {
        Self {
            name,
            key,
            udp: None,
            sockets: Vec::new(),
            candidates: [false; 2],
            works: [false; 2],
            answered: [0; 2],
            current: None,
            nonce,
            unanswered_since: 0,
            last_sent: 0,
            pauses: 0,
            question_due: now,
            question_interval: QUESTION_MIN,
        }
    }

    /// Adds a carrier that both ends have. `is_certain`: it needs no question, because there is no other.
    pub fn add(&mut self, carrier: Carrier, is_certain: bool) {
        self.candidates[carrier as usize] = true;
        if is_certain {
            self.works[carrier as usize] = true;
            self.current = Some(carrier);
        }
    }

    /// Whether a carrier may reach the peer.
    #[inline]
    pub fn has(&self, carrier: Carrier) -> bool {
        self.candidates[carrier as usize]
    }

    /// Carriers to ask.
    pub fn unknown(&self) -> impl Iterator<Item = Carrier> + '_ {
        Carrier::ALL.into_iter().filter(|carrier| self.has(*carrier) && !self.works[*carrier as usize])
    }

    /// When to ask again; `None` if all is known.
    pub fn question_due(&self) -> Option<u64> {
        self.unknown().next().map(|_| self.question_due)
    }

    /// The question to ask, and the peer's that was received by this carrier.
    pub fn question(&self, carrier: Carrier) -> (u64, u64) {
        (self.nonce, self.answered[carrier as usize])
    }

    /// Notes that the question was asked.
    pub fn asked(&mut self, now: u64) {
        let most = if self.current.is_some_and(|current| self.works[current as usize]) {
            BETTER_QUESTION_MAX
        } else {
            QUESTION_MAX
        };
        self.question_due = now + self.question_interval.min(most);
        self.question_interval = (2 * self.question_interval).min(most);
    }

    /// Where to send at this time. `nonce` is the next question, if one is needed.
    #[inline]
    pub fn route(&mut self, now: u64, nonce: impl FnOnce() -> u64) -> Route {
        let Some(current) = self.current else { return Route::Hold };
        if self.candidates != [true; 2] {
            return Route::One(current);
        }
        let last_sent = std::mem::replace(&mut self.last_sent, now);
        if self.unanswered_since == 0 {
            (self.unanswered_since, self.pauses) = (now.max(1), 0);
            return Route::One(current);
        }
        if now.saturating_sub(last_sent) >= PAUSE && self.pauses < PAUSES_MAX {
            (self.unanswered_since, self.pauses) = (now, self.pauses + 1);
        }
        if self.pauses < PAUSES_MAX && now.saturating_sub(self.unanswered_since) < SUSPECTED_AFTER {
            return Route::One(current);
        }
        self.suspect(now, nonce);
        Route::All
    }

    /// Asks all carriers anew, unless that is under way.
    #[cold]
    fn suspect(&mut self, now: u64, nonce: impl FnOnce() -> u64) {
        if self.works != [false; 2] {
            self.works = [false; 2];
            self.nonce = nonce();
            (self.question_due, self.question_interval) = (now, QUESTION_MIN);
        }
    }

    /// Notes that a frame of the peer arrived by a carrier.
    #[inline]
    pub fn heard(&mut self, carrier: Carrier) {
        if self.current == Some(carrier) {
            self.unanswered_since = 0;
        }
    }

    /// Notes an authentic probe.
    pub fn probed(&mut self, carrier: Carrier, nonce: u64, echo: u64) -> Probed {
        let index = carrier as usize;
        self.candidates[index] = true;
        let is_new = std::mem::replace(&mut self.answered[index], nonce) != nonce;
        if echo != self.nonce {
            return Probed { must_answer: true, ..Probed::default() };
        }
        // An answer to a question that was answered before only shows that the peer's frames arrive, not this end's.
        if std::mem::replace(&mut self.works[index], true) {
            return Probed { must_answer: is_new, ..Probed::default() };
        }
        let is_first = self.current.is_none();
        if self.current.is_none_or(|current| carrier <= current || !self.works[current as usize]) {
            self.current = Some(carrier);
            self.unanswered_since = 0;
        }
        Probed { must_answer: is_new, is_found: true, is_first }
    }
}

/// What follows from a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probed {
    /// The peer does not know the answer to its question.
    pub must_answer: bool,
    /// The carrier works, which was unknown.
    pub is_found: bool,
    /// None worked before.
    pub is_first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name::new([2, 0, 0, 0, 0, 1], 8);
    const MS: u64 = 1_000_000;

    fn peer() -> Peer {
        let mut peer = Peer::new(NAME, None, 1, 1);
        Carrier::ALL.into_iter().for_each(|carrier| peer.add(carrier, false));
        peer
    }

    fn next() -> u64 {
        2
    }

    /// Whether a probe must be answered, and whether it found the first carrier.
    fn probed(peer: &mut Peer, carrier: Carrier, nonce: u64, echo: u64) -> (bool, bool) {
        let Probed { must_answer, is_first, .. } = peer.probed(carrier, nonce, echo);
        (must_answer, is_first)
    }

    #[test]
    fn frames_wait_until_a_carrier_has_answered_and_then_take_the_better() {
        let mut peer = peer();
        assert_eq!(peer.route(5, next), Route::Hold);
        assert_eq!(probed(&mut peer, Carrier::Udp, 70, 0), (true, false));
        assert_eq!(peer.route(5, next), Route::Hold, "a question is no answer");
        assert_eq!(probed(&mut peer, Carrier::Udp, 70, 9), (true, false), "the answer to another question");
        assert_eq!(probed(&mut peer, Carrier::Udp, 70, 1), (false, true));
        assert_eq!(peer.route(5, next), Route::One(Carrier::Udp));
        assert_eq!(probed(&mut peer, Carrier::Frames, 70, 1), (true, false));
        assert_eq!(peer.route(5, next), Route::One(Carrier::Frames));
        assert_eq!(probed(&mut peer, Carrier::Udp, 70, 1), (false, false));
        assert_eq!(peer.route(5, next), Route::One(Carrier::Frames), "the worse does not replace it");
        assert_eq!(peer.question_due(), None);
    }

    #[test]
    fn a_silent_carrier_is_replaced_and_asked_until_it_works_again() {
        let mut peer = peer();
        peer.probed(Carrier::Udp, 70, 1);
        peer.probed(Carrier::Frames, 70, 1);
        for now in (1..100).map(|number| number * 20 * MS) {
            assert_eq!(peer.route(now, next), Route::One(Carrier::Frames));
            assert_eq!(peer.route(now + 9 * MS, next), Route::One(Carrier::Frames));
            peer.heard(Carrier::Frames);
        }
        // An acknowledgement has no answer, and the next exchange begins later.
        assert_eq!(peer.route(2500 * MS, next), Route::One(Carrier::Frames));
        assert_eq!(peer.route(3000 * MS, next), Route::One(Carrier::Frames));
        assert_eq!(peer.route(3009 * MS, next), Route::One(Carrier::Frames));
        peer.heard(Carrier::Udp);
        assert_eq!(peer.route(3010 * MS, next), Route::All, "what other carriers bring does not count");
        assert_eq!((peer.question_due(), peer.question(Carrier::Udp)), (Some(3010 * MS), (2, 70)));
        assert_eq!(probed(&mut peer, Carrier::Frames, 70, 1), (true, false), "an answer to the last question");
        assert_eq!(peer.route(3011 * MS, next), Route::All);
        assert_eq!(probed(&mut peer, Carrier::Udp, 71, 2), (true, false));
        assert_eq!(peer.route(3012 * MS, next), Route::One(Carrier::Udp));
        assert_eq!(peer.unknown().collect::<Vec<_>>(), [Carrier::Frames]);
        assert_eq!(probed(&mut peer, Carrier::Frames, 71, 2), (true, false));
        assert_eq!(peer.route(3013 * MS, next), Route::One(Carrier::Frames));
    }

    #[test]
    fn repetitions_after_long_times_are_suspicious() {
        let mut peer = peer();
        peer.probed(Carrier::Udp, 70, 1);
        peer.probed(Carrier::Frames, 70, 1);
        for (now, expected) in [
            (100, Route::One(Carrier::Frames)),
            (120, Route::One(Carrier::Frames)),
            (160, Route::All),
            (240, Route::All),
            (241, Route::All),
        ] {
            assert_eq!(peer.route(now * MS, next), expected, "{now}");
        }
        peer.heard(Carrier::Frames);
        assert_eq!(peer.route(242 * MS, next), Route::One(Carrier::Frames));
    }

    #[test]
    fn the_only_carrier_is_used_unasked_and_never_suspected() {
        let mut peer = Peer::new(NAME, None, 1, 1);
        peer.add(Carrier::Udp, true);
        for now in [1, 100 * MS, 10_000 * MS] {
            assert_eq!(peer.route(now, next), Route::One(Carrier::Udp));
        }
        assert_eq!(peer.question_due(), None);
    }

    #[test]
    fn questions_become_rarer() {
        let mut peer = peer();
        let mut now = 1;
        let mut asked = 0;
        while now < 10_000 * MS {
            asked += 1;
            peer.asked(now);
            now = peer.question_due().unwrap();
        }
        assert!((20..30).contains(&asked), "{asked} in ten seconds");
        peer.probed(Carrier::Udp, 70, 1);
        let since = now;
        while now < since + 1_000_000 * MS {
            asked += 1;
            peer.asked(now);
            now = peer.question_due().unwrap();
        }
        assert!(asked < 70, "{asked} in a thousand seconds more");
    }
}
