// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The path MTU by UDP to one peer, as packetisation-layer path MTU discovery finds it (RFC 8899). No I/O and no clock.
//!
//! A path may drop long datagrams without a report: because a router's ICMP is filtered, or because fragments are
//! dropped, or batches in one piece. So after a sign of loss a *check* sends a batch of probes as long as frames may be,
//! and a short one behind them. If the short one is answered several times, and the long ones are not, frames become as
//! short as any path must carry, and a *search* sends probes of several lengths. It is repeated from time to time, because
//! paths change.

/// Least path MTU: a frame that fits an IPv4 packet of 576 bytes, which every host accepts.
pub(crate) const MTU_MIN: usize = 576 - 30;
/// Lengths that a search probes at the same time.
const LENGTHS: u64 = 8;
/// A search ends when it knows the path MTU to so many bytes.
const PRECISION: usize = 8;
/// The lowest bits of a probe's nonce say which it is: [`SHORT`], 1 to [`LENGTHS`] in order of length, or [`BATCH`]. The
/// next ones count the tries with long probes.
const NUMBER: u64 = 0xf;
const TRY_AT: u32 = 4;
const TRY: u64 = 0xf << TRY_AT;
const SHORT: u64 = 0;
/// The only length of a check.
const SINGLE: u64 = 1;
const BATCH: u64 = LENGTHS + 1;
/// Probes in a batch.
const BATCH_PROBES: usize = 2;
/// After so many tries of which only the short probe was answered, the path does not carry the long ones.
const CHECK_TRIES: u8 = 4;
const SEARCH_TRIES: u8 = 2;
/// Time in nanoseconds after the answer to a short probe by which long ones before it are answered, or lost.
const ANSWER_TIME: u64 = 3_000_000;
/// Least time in nanoseconds after which an unanswered short probe of a check is repeated, with a poll of the engine: a
/// busy peer need not be asked more often. It is doubled each time.
const REPEAT_INTERVAL: u64 = 3_000_000;
/// Time in nanoseconds since its last probes after which a check is given up: polls that repeat a lost probe come sooner.
const CHECK_MAX: u64 = 4_000_000_000;
/// Least time in nanoseconds from the end of a check to the next one.
const CHECK_INTERVAL: u64 = 20_000_000;
/// Interval in nanoseconds between two searches: the first after a failed check, and the longest, to which it is doubled.
const SEARCH_INTERVAL: u64 = 100_000_000;
const SEARCH_INTERVAL_MAX: u64 = 30_000_000_000;

/// Probes to send in one batch: `count` with this nonce, in frames with a payload of at least `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padded {
    pub nonce: u64,
    pub bytes: usize,
    pub count: usize,
}

/// What is known of the path MTU to a peer. MTUs are payloads of frames in bytes.
#[derive(Clone, Debug)]
pub(crate) struct PathMtu {
    /// That of this station's link.
    own: usize,
    /// The longest that the path carries in one datagram.
    mtu: usize,
    /// Whether the path loses batches, so that datagrams must leave one by one.
    is_singly: bool,
    round: Option<Round>,
    /// The probes' nonce in the last round, without what is in its lowest bits.
    nonce: u64,
    checked_at: u64,
    search_due: u64,
    search_interval: u64,
}

/// A check, or a round of a search.
#[derive(Clone, Copy, Debug)]
struct Round {
    is_check: bool,
    /// The path carries `low`; how much more, up to `high`, is to be found.
    low: usize,
    high: usize,
    /// By number: whether a probe was answered; the short one in this try.
    answered: u16,
    /// Whether probes were sent, and how often a short one was answered, but not the long ones before it.
    is_begun: bool,
    failed: u8,
    sent_at: u64,
    /// Time after which an unanswered short probe is repeated: of a search by itself, of a check with the next poll.
    interval: u64,
    due: u64,
}

impl Round {
    const fn new(is_check: bool, [low, high]: [usize; 2], now: u64) -> Self {
        let interval = if is_check { REPEAT_INTERVAL } else { SEARCH_INTERVAL };
        Self { is_check, low, high, answered: 0, is_begun: false, failed: 0, sent_at: now, interval, due: now }
    }

    /// Length of the probe with this number.
    const fn length(&self, number: u64) -> usize {
        self.low + (self.high - self.low) * number as usize / LENGTHS as usize
    }

    const fn is_answered(&self, number: u64) -> bool {
        self.answered & 1 << number != 0
    }
}

impl PathMtu {
    /// Nothing but the MTU of this station's link is known.
    pub const fn new(own: usize) -> Self {
        Self {
            own,
            mtu: own,
            is_singly: false,
            round: None,
            nonce: 0,
            checked_at: 0,
            search_due: 0,
            search_interval: SEARCH_INTERVAL,
        }
    }

    /// The same, for a path of which nothing is known yet.
    pub const fn renewed(&self) -> Self {
        Self::new(self.own)
    }

    /// Largest payload in bytes of a frame that goes in one datagram.
    #[inline]
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    /// Whether datagrams must leave one by one.
    #[inline]
    pub const fn is_singly(&self) -> bool {
        self.is_singly
    }

    /// Whether the path carries less than this station's link does.
    pub const fn is_narrow(&self) -> bool {
        self.mtu < self.own || self.is_singly
    }

    /// After a poll of the engine: if probes wait for an answer, a short one is due again. Otherwise a check begins, if
    /// `is_suspect`, unless there was one lately. Returns whether it does.
    pub fn polled(&mut self, is_suspect: bool, now: u64) -> bool {
        if let Some(round) = &mut self.round
            && !(round.is_check && now >= round.sent_at + CHECK_MAX)
        {
            if !round.is_answered(SHORT) && now >= round.sent_at + round.interval {
                round.due = now;
            }
            return false;
        }
        let is_due = now >= self.checked_at + CHECK_INTERVAL;
        let begins = is_suspect && self.own > MTU_MIN && is_due;
        self.round = begins.then(|| Round::new(true, [self.mtu; 2], now));
        begins
    }

    /// When to send probes; `None` if nothing is to be found.
    pub fn due(&self) -> Option<u64> {
        match &self.round {
            Some(round) => (round.due != u64::MAX).then_some(round.due),
            None => self.is_narrow().then_some(self.search_due),
        }
    }

    /// The probes to send at this time, at which some are [due](Self::due). `nonce`: that of a new round.
    pub fn probes(&mut self, now: u64, nonce: u64) -> Vec<Padded> {
        let (round, has_long) = loop {
            let Some(round) = &mut self.round else {
                if !self.is_narrow() || self.search_due > now {
                    return Vec::new();
                }
                self.round = Some(Round::new(false, [self.mtu, self.own], now));
                continue;
            };
            if !round.is_begun {
                // Not 0, which is no question.
                self.nonce = nonce & !(TRY | NUMBER) | (1 << (2 * TRY_AT));
                break (round, true);
            }
            if !round.is_answered(SHORT) {
                // The peer is busy or gone.
                round.interval = (2 * round.interval).min(SEARCH_INTERVAL_MAX);
                break (round, false);
            }
            round.failed += 1;
            if round.failed < if round.is_check { CHECK_TRIES } else { SEARCH_TRIES } {
                break (round, true);
            }
            let round = *round;
            if round.is_check { self.conclude_check(round, now) } else { self.conclude_search(round, now) }
        };
        round.is_begun = true;
        round.answered &= !(1 << SHORT);
        (round.sent_at, round.due) = (now, if round.is_check { u64::MAX } else { now + round.interval });
        let try_nonce = self.nonce | u64::from(round.failed) << TRY_AT;
        let mut probes = Vec::new();
        if has_long {
            let padded = |number, bytes, count| Padded { nonce: try_nonce | number, bytes, count };
            // A batch that arrives shows that single ones do, and one of the two is needless.
            if round.is_check != self.is_singly {
                probes.push(padded(BATCH, self.mtu, BATCH_PROBES));
            }
            let last = match round.is_check {
                true => u64::from(self.is_singly || round.failed > 0),
                false => LENGTHS,
            };
            let lengths = (1..=last).rev().map(|number| (number, round.length(number)));
            let unknown = lengths.filter(|(_, bytes)| round.is_check || *bytes > self.mtu);
            probes.extend(unknown.map(|(number, bytes)| padded(number, bytes, 1)));
        }
        probes.push(Padded { nonce: try_nonce | SHORT, bytes: 0, count: 1 });
        probes
    }

    /// Long probes of a check were lost.
    fn conclude_check(&mut self, round: Round, now: u64) {
        (self.checked_at, self.round) = (now, None);
        if round.is_answered(SINGLE) {
            self.is_singly = true;
        } else if self.mtu > MTU_MIN {
            self.mtu = MTU_MIN;
            self.round = Some(Round::new(false, [self.mtu, self.own], now));
        }
        (self.search_due, self.search_interval) = (now + SEARCH_INTERVAL, SEARCH_INTERVAL);
    }

    /// Some probes of a search were answered, or none.
    fn conclude_search(&mut self, round: Round, now: u64) {
        let next = (1..=LENGTHS).map(|number| round.length(number)).find(|length| *length > self.mtu);
        match next.map(|length| length - 1).filter(|high| *high > self.mtu + PRECISION) {
            Some(high) => self.round = Some(Round::new(false, [self.mtu, high], now)),
            None => self.end_search(now),
        }
    }

    fn end_search(&mut self, now: u64) {
        // Nothing has told yet whether batches of this length pass.
        let is_first = self.search_interval == SEARCH_INTERVAL && self.is_narrow() && !self.is_singly;
        self.round = is_first.then(|| Round::new(true, [self.mtu; 2], now));
        self.search_due = now + self.search_interval;
        self.search_interval = (2 * self.search_interval).min(SEARCH_INTERVAL_MAX);
    }

    /// Records that the peer has received the probe with this nonce, if it is one of these. Returns whether it is.
    pub fn answered(&mut self, echo: u64, now: u64) -> bool {
        if self.nonce == 0 || echo & !(TRY | NUMBER) != self.nonce {
            return false;
        }
        let number = echo & NUMBER;
        let Some(round) = self.round.as_mut().filter(|round| round.is_begun) else { return true };
        if number == SHORT {
            // Long probes of this try, sent before it, are answered by now or lost.
            if echo & TRY == u64::from(round.failed) << TRY_AT {
                round.answered |= 1 << SHORT;
                round.due = round.due.min(now + ANSWER_TIME);
            }
            return true;
        }
        round.answered |= 1 << number;
        if round.is_check {
            if number == BATCH || number == SINGLE && self.is_singly {
                (self.checked_at, self.round) = (now, None);
            }
            return true;
        }
        match number {
            1..=LENGTHS => self.mtu = self.mtu.max(round.length(number)),
            _ => self.is_singly = false,
        }
        if !self.is_narrow() {
            self.end_search(now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: usize = 1470;
    const MS: u64 = 1_000_000;

    /// A path that carries frames with a payload of up to `carries` bytes, and batches or not.
    struct World {
        path: PathMtu,
        carries: usize,
        carries_batches: bool,
        /// Loses each probe with this probability.
        loss: f64,
        random: u64,
        now: u64,
        /// Bytes of all probes.
        sent: usize,
    }

    impl World {
        fn new(carries: usize, carries_batches: bool) -> Self {
            let path = PathMtu::new(OWN);
            Self { path, carries, carries_batches, loss: 0.0, random: 1, now: 1000 * MS, sent: 0 }
        }

        fn is_lost(&mut self) -> bool {
            // xorshift
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            (self.random >> 11) as f64 / (1_u64 << 53) as f64 <= self.loss
        }

        /// Time passes, in steps of half a millisecond, with an answer after one step.
        fn pass(&mut self, time: u64) {
            let until = self.now + time;
            while self.now < until {
                let mut answers = Vec::new();
                if self.path.due().is_some_and(|due| due <= self.now) {
                    for Padded { nonce, bytes, count } in self.path.probes(self.now, 0xabc << 40 | self.now << 8) {
                        assert!(bytes <= OWN);
                        self.sent += count * bytes.max(86);
                        let passes = bytes <= self.carries && (count == 1 || self.carries_batches);
                        answers.extend((0..count).filter(|_| passes && !self.is_lost()).map(|_| nonce));
                    }
                    assert!(self.path.due().is_none_or(|due| due > self.now));
                }
                self.now += MS / 2;
                for nonce in answers {
                    assert!(self.path.answered(nonce, self.now));
                }
            }
        }

        /// Something is lost, again and again, for a time.
        fn lose(&mut self, time: u64) {
            let until = self.now + time;
            while self.now < until {
                self.path.polled(true, self.now);
                self.pass(MS);
            }
        }
    }

    #[test]
    fn the_path_mtu_is_found_to_eight_bytes_and_frames_are_short_before() {
        for carries in (MTU_MIN..OWN).step_by(7) {
            let mut world = World::new(carries, true);
            world.lose(18 * MS);
            assert!(world.path.mtu() <= carries, "{carries}: {}", world.path.mtu());
            world.lose(24 * MS);
            let found = world.path.mtu();
            assert!(found <= carries && found + PRECISION >= carries, "{carries}: {found}");
            assert!(!world.path.is_singly());
        }
    }

    #[test]
    fn a_path_that_loses_batches_gets_datagrams_one_by_one() {
        for carries in [OWN, 1000] {
            let mut world = World::new(carries, false);
            world.lose(60 * MS);
            let found = world.path.mtu();
            assert!(world.path.is_singly() && found <= carries && found + PRECISION >= carries, "{carries}: {found}");
            world.carries = OWN;
            world.carries_batches = true;
            world.pass(1000 * MS);
            assert!(!world.path.is_narrow(), "{carries}");
        }
    }

    #[test]
    fn a_path_that_changes_is_followed() {
        let mut world = World::new(1200, true);
        world.lose(40 * MS);
        world.carries = 600;
        world.lose(60 * MS);
        assert!((592..=600).contains(&world.path.mtu()), "{}", world.path.mtu());
        world.carries = 1400;
        world.pass(200 * MS);
        assert!((1392..=1400).contains(&world.path.mtu()), "{}", world.path.mtu());
        world.carries = OWN;
        world.pass(31_000 * MS);
        assert!(!world.path.is_narrow() && world.path.due().is_none());
    }

    #[test]
    fn searches_become_rare() {
        let mut world = World::new(1000, true);
        world.lose(40 * MS);
        world.pass(100_000 * MS);
        let before = world.sent;
        world.pass(1_000_000 * MS);
        let per_second = (world.sent - before) / 1000;
        assert!(per_second < 2000, "{per_second} bytes");
    }

    #[test]
    fn chance_does_not_narrow_a_path() {
        for loss in [0.01, 0.05] {
            let mut world = World::new(OWN, true);
            world.loss = loss;
            for _ in 0..20_000 {
                world.lose(MS);
                assert!(!world.path.is_narrow(), "{loss}, after {} ms", world.now / MS);
            }
            assert!(world.sent as u64 / (world.now / 1_000_000_000) < 200_000, "{} bytes", world.sent);
        }
    }

    /// Proves that with 30 % loss, of which chance narrows a path, it does not stay narrow.
    #[test]
    fn a_path_that_chance_has_narrowed_is_soon_as_before() {
        let mut world = World::new(OWN, true);
        world.loss = 0.3;
        let mut narrow = 0;
        for _ in 0..20_000 {
            world.lose(MS);
            narrow += u32::from(world.path.is_narrow());
        }
        assert!(narrow < 1000, "for {narrow} of 20000 ms");
    }

    #[test]
    fn a_peer_that_is_busy_is_sent_no_more_long_probes() {
        let mut world = World::new(OWN, true);
        world.loss = 1.0;
        for _ in 0..200 {
            world.path.polled(true, world.now);
            world.pass(100 * MS);
        }
        assert!(!world.path.is_narrow());
        assert!(world.sent < 3 * OWN + 300 * 86, "{} bytes", world.sent);
        world.loss = 0.0;
        world.lose(1000 * MS);
        assert!(!world.path.is_narrow() && world.sent < 60 * 3 * OWN);
    }

    #[test]
    fn what_is_no_answer_changes_nothing() {
        let mut path = PathMtu::new(OWN);
        assert!(!path.answered(0, 1) && !path.answered(256, 1));
        path.polled(true, CHECK_INTERVAL);
        assert_eq!(path.probes(CHECK_INTERVAL, 0).len(), 2);
        assert!(!path.answered(512, CHECK_INTERVAL) && path.answered(256 | TRY, CHECK_INTERVAL));
        assert!(!path.is_narrow());
    }

    #[test]
    fn a_link_that_carries_little_has_nothing_to_find() {
        let mut path = PathMtu::new(MTU_MIN);
        path.polled(true, 1000 * MS);
        assert_eq!(path.due(), None);
    }
}
