// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of the paths to one peer, and the choice among them. No I/O and no clock.

use std::array;

use barewire_link::{Locator, MacAddress};

use crate::interface::{INTERFACES_MAX, Interface, speed_between};
use crate::mutant::mutant;
use crate::name::Name;
use crate::path_mtu::PathMtu;
use crate::spread::Spread;

/// Bounds of the time without an answer to frames after which their path is suspected, in nanoseconds. The lower one is
/// longer than a busy peer takes to acknowledge. Where frames queue, answers take longer: then it is twice as long as
/// they took lately, since frames by all paths would fill the queues further.
const PATIENCE_MIN: u64 = 10_000_000;
const PATIENCE_MAX: u64 = 100_000_000;
/// Each answer shortens the patience by one part in so many, but to no less than twice the time that it took.
const PATIENCE_LOST: u64 = 8;
/// A frame after a pause as long as the patience may be the first of a new exchange, or a repetition; after so many of
/// them without an answer it is taken for a repetition.
const PAUSES_MAX: u8 = 2;
/// Intervals between two questions: the first; the longest while no path is known to work, unless the peer is idle; and
/// the longest otherwise.
const QUESTION_MIN: u64 = 2_000_000;
const QUESTION_MAX: u64 = 500_000_000;
const RARE_QUESTION_MAX: u64 = 30_000_000_000;
/// Time without a frame to a peer after which it is idle: many times what passes between two frames of a connection,
/// which polls a silent peer after a quarter of its patience, and repeats what is not answered every second at least.
const IDLE_MIN: u64 = 30_000_000_000;
/// The peer's questions by the current path, and the time over which they come, after which this end's answers to them
/// are taken for lost: the path then works in one direction only. A pause of `QUESTIONS_PAUSE` begins anew.
const QUESTIONS_MAX: u8 = 4;
const QUESTIONS_TIME: u64 = 50_000_000;
const QUESTIONS_PAUSE: u64 = 2 * QUESTION_MAX;
/// Interval at which paths in use are checked, where there are several, and the number of successive checks that a path
/// may fail while another one passes.
const CHECK_INTERVAL: u64 = 10_000_000;
const FAILED_CHECKS_MAX: u8 = 1;
/// Time between two polls of the engine within which they concern the same loss: several times T1 where it has grown to its
/// maximum, a second by default.
const POLLS_PAUSE: u64 = 4_000_000_000;
/// Long frames that tell of datagrams behind them before any batch has come by UDP, and the value that stands for any
/// number after one has.
const HINTS_BEFORE_BATCHES: u8 = 16;
const ANY_HINTS: u8 = u8::MAX;

/// A path to a peer: by frames from one of this station's interfaces, in their order, or by UDP; the better first.
pub(crate) type Path = usize;
/// The path by UDP.
pub(crate) const UDP: Path = INTERFACES_MAX;
/// Number of paths.
pub(crate) const PATHS: usize = INTERFACES_MAX + 1;

/// What carries frames to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Ethernet frames.
    Frames,
    /// Ethernet frames; UDP datagrams for batches of long ones.
    FramesAndUdp,
    /// UDP datagrams.
    Udp,
}

/// Where to send a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// By one path.
    One(Path),
    /// By several paths: in turns, or batches by UDP.
    Spread,
    /// By all that may reach the peer, because the current one is silent.
    All,
    /// Nowhere, until a path is known to work.
    Hold,
}

/// The paths to one peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub name: Name,
    /// The peer's key, of the tags of probes to it; `None` if it is known only from its own.
    pub key: Option<u64>,
    /// Whether the peer's last probe had this station's key. Its sender knows that, and may be a successor, which does not
    /// have `key`.
    pub uses_station_key: bool,
    /// The locator with which the peer was named last; `None` if it is known only from its own probes.
    pub locator: Option<Locator>,
    /// Address of the peer's UDP socket; `None` until it has answered.
    pub udp: Option<MacAddress>,
    /// Addresses that the socket may have.
    pub sockets: Vec<MacAddress>,
    /// Whether datagrams may leave from several addresses of this station.
    pub has_several_sources: bool,
    /// The peer's interfaces for frames; the first is its station's.
    pub interfaces: Vec<Interface>,
    /// By path: whether both ends have it.
    candidates: [bool; PATHS],
    /// By path: whether the peer has answered the current question by it, and from which of its interfaces.
    works: [bool; PATHS],
    ends: [u8; PATHS],
    /// By path by frames: another of the peer's interfaces from which frames came while this one was silent.
    heard_ends: [Option<Name>; INTERFACES_MAX],
    /// By path and by the peer's interface: the peer's question that was answered last.
    answered: [[u64; INTERFACES_MAX]; PATHS],
    pub current: Option<Path>,
    /// The peer's questions by the current path: their number, and the times of the first and of the last one.
    questions: (u8, u64, u64),
    /// Speeds of this station's interfaces.
    speeds: [u32; INTERFACES_MAX],
    /// Whether UDP carries batches of long frames faster than frames do.
    has_fast_udp: bool,
    /// Whether several paths by frames work, and how long frames are spread over them, if that is worth while.
    has_several: bool,
    spread: Option<Spread>,
    /// Whether batches go by UDP, and whether some did that no passed check has followed.
    pub batches_by_udp: bool,
    pub has_unproved_batches: bool,
    /// Until then the peer polls for batches by UDP, because one was sent.
    pub awaits_batches_until: u64,
    /// The path MTU by UDP, and whether batches went by UDP since it was checked last.
    pub path_mtu: PathMtu,
    has_unchecked_batches: bool,
    /// When the engine polled last, whether frames have come since, and whether datagrams have left that a path may drop
    /// though it carries others: long ones, or several at once.
    polled_at: u64,
    has_heard_since_poll: bool,
    pub has_risked_since_poll: bool,
    /// Number of long frames that still tell of datagrams behind them: any, once batches have come by UDP.
    hints_left: u8,
    /// The current question; changes when paths must be asked anew.
    nonce: u64,
    /// The current check of all paths by frames that work, the one before, when it was sent last, and by path: whether
    /// it was passed, and how many were failed in succession.
    check: u64,
    last_check: u64,
    checked_at: u64,
    passed: [bool; PATHS],
    failed: [u8; PATHS],
    /// Whether frames have come since the last check was sent, and how often they have though no path passed it.
    has_heard: bool,
    unanswered_checks: u8,
    /// Time of the first send of the last exchange that the current path has not answered; 0 if there is none.
    unanswered_since: u64,
    /// Time without an answer after which the current path is suspected.
    patience: u64,
    /// The path that was suspected last, until one answers, and since when it had not answered.
    suspected: Option<(Path, u64)>,
    /// Time of the last send, and number of pauses between sends since something was heard.
    last_sent: u64,
    pauses: u8,
    /// Whether nothing was sent to the peer for [`IDLE_MIN`], as when its process has ended.
    pub is_idle: bool,
    /// When the question was asked last, when to ask again, and how long after that.
    asked_at: u64,
    question_due: u64,
    question_interval: u64,
    /// Injected fault.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::Mutant>,
}

impl Peer {
    /// A peer to which no path is known. `speeds` are those of this station's interfaces; `has_fast_udp`: UDP carries
    /// batches faster than they do.
    pub fn new(
        name: Name,
        key: Option<u64>,
        (speeds, has_fast_udp): ([u32; INTERFACES_MAX], bool),
        nonce: u64,
        now: u64,
    ) -> Self {
        Self {
            name,
            key,
            uses_station_key: false,
            locator: None,
            udp: None,
            sockets: Vec::new(),
            has_several_sources: false,
            interfaces: vec![Interface { mac: MacAddress(name.mac()), speed: 0 }],
            candidates: [false; PATHS],
            works: [false; PATHS],
            ends: [0; PATHS],
            heard_ends: [None; INTERFACES_MAX],
            answered: [[0; INTERFACES_MAX]; PATHS],
            current: None,
            questions: (0, 0, 0),
            speeds,
            has_fast_udp,
            has_several: false,
            spread: None,
            batches_by_udp: false,
            has_unproved_batches: false,
            awaits_batches_until: 0,
            path_mtu: PathMtu::new(0),
            has_unchecked_batches: false,
            polled_at: 0,
            has_heard_since_poll: false,
            has_risked_since_poll: false,
            hints_left: HINTS_BEFORE_BATCHES,
            nonce,
            check: 0,
            last_check: 0,
            checked_at: 0,
            passed: [false; PATHS],
            failed: [0; PATHS],
            has_heard: false,
            unanswered_checks: 0,
            unanswered_since: 0,
            patience: PATIENCE_MIN,
            suspected: None,
            last_sent: now,
            pauses: 0,
            is_idle: false,
            asked_at: 0,
            question_due: now,
            question_interval: QUESTION_MIN,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Adds a path that both ends may have.
    pub fn add(&mut self, path: Path) {
        self.candidates[path] = true;
    }

    /// Uses a path, although the peer may not answer questions. If it is the only one, it is not asked at all.
    pub fn assume(&mut self, path: Path) {
        self.works[path] = self.candidates().count() == 1;
        self.current = Some(path);
    }

    /// Records the peer's interfaces, as listed in a probe. Returns whether they have changed.
    pub fn learn(&mut self, interfaces: &[Interface], now: u64) -> bool {
        if interfaces.is_empty() || self.interfaces == interfaces {
            return false;
        }
        self.interfaces = interfaces.to_vec();
        (self.question_due, self.question_interval) = (now, QUESTION_MIN);
        // A new process at the same address may have fewer.
        for path in 0..INTERFACES_MAX {
            if usize::from(self.ends[path]) >= interfaces.len() {
                (self.ends[path], self.works[path]) = (0, false);
            }
        }
        if !self.current.is_some_and(|current| self.works[current]) {
            self.choose_current();
        }
        self.spread_anew();
        true
    }

    /// Whether a path may reach the peer.
    #[inline]
    pub fn has(&self, path: Path) -> bool {
        self.candidates[path]
    }

    /// Whether the peer is reached by UDP, or may be, and is not idle.
    pub fn may_need_udp(&self) -> bool {
        self.has(UDP) && self.current.is_none_or(|path| path == UDP) && !self.is_idle
    }

    /// Paths that may reach the peer.
    pub fn candidates(&self) -> impl Iterator<Item = Path> + use<> {
        let candidates = self.candidates;
        (0..PATHS).filter(move |path| candidates[*path])
    }

    /// Paths to ask.
    pub fn unknown(&self) -> impl Iterator<Item = Path> + use<> {
        let works = self.works;
        self.candidates().filter(move |path| !works[*path])
    }

    /// Paths by frames that work.
    pub fn working_frames(&self) -> impl Iterator<Item = Path> + use<> {
        let works = self.works;
        (0..INTERFACES_MAX).filter(move |path| works[*path])
    }

    /// The address to send to by a path.
    #[inline]
    pub fn address(&self, path: Path) -> MacAddress {
        if path == UDP { self.udp.unwrap_or_default() } else { self.interfaces[usize::from(self.ends[path])].mac }
    }

    /// The number of the peer's interface with this address.
    pub fn interface(&self, mac: MacAddress) -> usize {
        self.interfaces.iter().position(|interface| interface.mac == mac).unwrap_or(0)
    }

    /// When to ask again; `None` if all is known.
    pub fn question_due(&self) -> Option<u64> {
        self.unknown().next().map(|_| self.question_due)
    }

    /// When to send the next probes of the path MTU by UDP; `None` if none are to be sent.
    pub fn mtu_due(&self) -> Option<u64> {
        self.path_mtu.due().filter(|_| self.works[UDP] && !self.is_idle)
    }

    /// When to ask again, or to send the next probes of the path MTU; `None` if all is known.
    pub fn due(&self) -> Option<u64> {
        self.question_due().into_iter().chain(self.mtu_due()).min()
    }

    /// Notes a poll of the engine, which it sends if something was not acknowledged in time, or to a silent peer. If the
    /// last one was not long ago, and the peer was heard since, it is not busy: something is lost, and the path MTU by UDP is
    /// checked if datagrams left that it concerns.
    pub fn polled(&mut self, now: u64) {
        if mutant!(self, KeepsLength) {
            return;
        }
        let was_polled = now.saturating_sub(self.polled_at) < POLLS_PAUSE;
        let has_heard = std::mem::take(&mut self.has_heard_since_poll);
        let has_risked = std::mem::take(&mut self.has_risked_since_poll);
        self.polled_at = now;
        if self.current == Some(UDP) || self.has_unchecked_batches {
            self.has_unchecked_batches &= !self.path_mtu.polled(was_polled && has_heard && has_risked, now);
        }
    }

    /// The question to ask.
    pub fn question(&self) -> u64 {
        self.nonce
    }

    /// Whether the question was not asked yet.
    pub fn is_first_question(&self) -> bool {
        self.question_interval == QUESTION_MIN
    }

    /// Notes that the question was asked.
    pub fn asked(&mut self, now: u64) {
        let is_reached = self.current.is_some_and(|current| self.works[current]);
        let most = if is_reached || self.is_idle { RARE_QUESTION_MAX } else { QUESTION_MAX };
        (self.asked_at, self.question_due) = (now, now + self.question_interval.min(most));
        self.question_interval = (2 * self.question_interval).min(most);
    }

    /// A frame is held because no path to the peer is known. If the peer's questions or frames have arrived, it may have a
    /// path and wait for this frame, and is asked again.
    pub fn held(&mut self) {
        let is_there = self.has_heard || self.answered.iter().flatten().any(|question| *question != 0);
        if is_there && !mutant!(self, AnswersOnce) {
            self.question_due = self.question_due.min(self.asked_at + QUESTION_MIN);
        }
    }

    /// Notes whether the peer is idle: then it is asked more and more rarely, until it is [resumed](Self::resume).
    pub fn note_idle(&mut self, now: u64) {
        self.is_idle = now.saturating_sub(self.last_sent) >= IDLE_MIN;
    }

    /// Asks an idle peer as often as any other again: something is to be sent to it, or it has answered.
    #[cold]
    pub fn resume(&mut self, now: u64) {
        self.is_idle = false;
        (self.question_due, self.question_interval) = (now, QUESTION_MIN);
    }

    /// Where to send at this time. `nonce` is the next question, if one is needed.
    #[inline]
    pub fn route(&mut self, now: u64, nonce: impl FnOnce() -> u64) -> Route {
        let last_sent = std::mem::replace(&mut self.last_sent, now);
        let Some(current) = self.current else { return Route::Hold };
        let is_spread = self.spread.is_some() || self.batches_by_udp;
        let by_current = if is_spread { Route::Spread } else { Route::One(current) };
        if self.unanswered_since == 0 {
            (self.unanswered_since, self.pauses) = (now.max(1), 0);
            return by_current;
        }
        if now.saturating_sub(last_sent) >= self.patience && self.pauses < PAUSES_MAX {
            (self.unanswered_since, self.pauses) = (now, self.pauses + 1);
        }
        if self.pauses < PAUSES_MAX && now.saturating_sub(self.unanswered_since) < self.patience {
            return by_current;
        }
        if !self.has_choice() || mutant!(self, NeverSuspects) {
            return by_current;
        }
        self.suspected.get_or_insert((current, self.unanswered_since));
        self.suspect(now, nonce);
        Route::All
    }

    /// Whether all frames go by the first interface, unless it is silent.
    pub fn has_one_path(&self) -> bool {
        self.current == Some(0) && self.spread.is_none() && !self.batches_by_udp && !self.has_several
    }

    /// Records that the current path has answered, which it had not since `since`.
    #[inline]
    fn answered(&mut self, since: u64, now: u64) {
        let took = now.saturating_sub(since);
        self.patience = (self.patience - self.patience / PATIENCE_LOST).max(2 * took).clamp(PATIENCE_MIN, PATIENCE_MAX);
        self.unanswered_since = 0;
    }

    /// Whether there is another path to the peer, or another address of it, or of this station for datagrams.
    fn has_choice(&self) -> bool {
        let is_listed = self.udp.is_none_or(|udp| self.sockets.contains(&udp));
        let sockets = self.sockets.len() + usize::from(!is_listed);
        let has_other_address = sockets > 1 || self.has_several_sources && self.has(UDP);
        self.candidates().count() > 1 || self.interfaces.len() > 1 || has_other_address
    }

    /// Asks by all paths again, unless that is under way.
    #[cold]
    pub fn suspect(&mut self, now: u64, nonce: impl FnOnce() -> u64) {
        if self.works != [false; PATHS] {
            self.works = [false; PATHS];
            self.ask_anew(now, nonce());
        }
    }

    fn ask_anew(&mut self, now: u64, nonce: u64) {
        self.nonce = nonce;
        (self.question_due, self.question_interval) = (now, QUESTION_MIN);
        self.spread_anew();
    }

    /// The path for a long frame of this length.
    #[inline]
    pub fn next_in_spread(&mut self, bytes: usize) -> Path {
        self.spread.as_mut().map_or(self.current.unwrap_or(0), |spread| spread.next(bytes))
    }

    /// Whether long frames go by this path, among others.
    pub fn spreads_over(&self, path: Path) -> bool {
        if path == UDP { self.batches_by_udp } else { self.spread.is_some_and(|spread| spread.has(path)) }
    }

    /// Spreads long frames over the paths that work now, or sends batches of them by UDP, where that is worth while.
    pub fn spread_anew(&mut self) {
        let is_by_frames = self.current.is_some_and(|current| current != UDP);
        self.has_several = is_by_frames && self.working_frames().nth(1).is_some();
        let mut is_taken = [false; INTERFACES_MAX];
        let speeds = array::from_fn(|path| {
            let end = usize::from(self.ends[path]);
            // A second interface that sends to the same one adds no speed.
            if !self.works[path] || std::mem::replace(&mut is_taken[end], true) {
                return 0;
            }
            speed_between(self.speeds[path], self.interfaces[end].speed)
        });
        self.spread = if self.has_several { Spread::over(speeds) } else { None };
        let has_fast_udp = self.has_fast_udp && self.works[UDP] && !self.path_mtu.is_narrow();
        self.batches_by_udp = is_by_frames && self.spread.is_none() && has_fast_udp;
    }

    /// Records a batch by UDP. Returns whether the peer polls for it already. Otherwise the first long frame must go by
    /// Ethernet, which makes the peer poll for a time, and shows it from time to time that frames arrive.
    #[inline]
    pub fn is_batch_awaited(&mut self, now: u64) -> bool {
        (self.has_unproved_batches, self.has_unchecked_batches) = (true, true);
        now < self.awaits_batches_until
    }

    /// Whether the paths must be checked: several are used, so that one that died would not be noticed by its silence.
    #[inline]
    pub fn must_check(&self, now: u64) -> bool {
        (self.has_several || self.batches_by_udp && self.has_unproved_batches)
            && now.saturating_sub(self.checked_at) >= CHECK_INTERVAL
    }

    /// Paths that are used at the same time, and therefore checked.
    pub fn checked(&self) -> impl Iterator<Item = Path> + use<> {
        self.working_frames().chain(self.batches_by_udp.then_some(UDP))
    }

    /// The check to send by all [`checked`](Self::checked) paths: the current one again while no path has passed it,
    /// since the peer is then busy or gone; otherwise the new one, `check`. Drops paths that have failed too many
    /// checks, and all of them if the peer sends although no path passes; `nonce` is then the next question.
    pub fn next_check(&mut self, now: u64, check: u64, nonce: u64) -> u64 {
        self.checked_at = now;
        let has_heard = std::mem::take(&mut self.has_heard);
        if self.check != 0 && !self.passed.contains(&true) {
            self.unanswered_checks += u8::from(has_heard);
            if self.unanswered_checks > FAILED_CHECKS_MAX && !mutant!(self, TrustsAnyFrame) {
                (self.check, self.unanswered_checks) = (0, 0);
                self.suspect(now, || nonce);
            }
            return self.check;
        }
        self.unanswered_checks = 0;
        let mut has_dropped = false;
        for path in self.checked().filter(|_| self.check != 0) {
            self.failed[path] = if self.passed[path] { 0 } else { self.failed[path].saturating_add(1) };
            if self.failed[path] > FAILED_CHECKS_MAX && !mutant!(self, KeepsDeadPaths) {
                self.works[path] = false;
                has_dropped = true;
            }
        }
        if has_dropped {
            self.choose_current();
            self.ask_anew(now, nonce);
        }
        (self.last_check, self.check, self.passed) = (self.check, check, [false; PATHS]);
        check
    }

    /// Drops a path whose interface is down.
    #[cold]
    pub fn drop_path(&mut self, path: Path, now: u64, nonce: u64) {
        self.works[path] = false;
        self.choose_current();
        self.ask_anew(now, nonce);
    }

    /// Takes the best path that works, if any does.
    fn choose_current(&mut self) {
        if let Some(best) = (0..PATHS).find(|path| self.works[*path]) {
            (self.current, self.unanswered_since) = (Some(best), 0);
        }
    }

    /// Records that an Ethernet frame of the peer arrived by a path, from the interface of this name. Where several
    /// paths by frames work, the peer may prefer another one, and checks detect which of them died. A single path is
    /// silent unless frames arrive from the interface to which it leads: the peer may have changed to another, because
    /// this one died.
    #[inline]
    pub fn heard(&mut self, path: Path, from: Name, now: u64) {
        (self.has_heard, self.has_heard_since_poll) = (true, true);
        let Some(current) = self.current.filter(|_| self.unanswered_since != 0 && self.current != Some(UDP)) else {
            return;
        };
        if self.has_several || path == current && self.address(path).0 == from.mac() || mutant!(self, HeardFromAny) {
            self.answered(self.unanswered_since, now);
        } else {
            self.heard_ends[path] = Some(from);
        }
    }

    /// Whether a long frame of the peer may be the first of a batch by UDP. Polling for the rest in vain would delay a
    /// peer that never sends batches, so only its first long frames count.
    #[inline]
    pub fn takes_hint(&mut self) -> bool {
        let counts = self.hints_left == ANY_HINTS || self.hints_left > 0 && self.batches_by_udp;
        self.hints_left -= u8::from(counts && self.hints_left != ANY_HINTS);
        counts
    }

    /// Records that a frame of the peer arrived as a datagram from this address. Only a datagram from the address to
    /// which this station sends shows that the peer is there.
    #[inline]
    pub fn heard_datagram(&mut self, from: MacAddress, now: u64) {
        (self.has_heard, self.has_heard_since_poll) = (true, true);
        if self.current != Some(UDP) {
            self.hints_left = ANY_HINTS;
        } else if self.unanswered_since != 0 && (self.udp == Some(from) || mutant!(self, HeardFromAny)) {
            self.answered(self.unanswered_since, now);
        }
    }

    /// Records an authentic probe from one of the peer's interfaces.
    pub fn probed(&mut self, path: Path, interface: usize, nonce: u64, echo: u64, now: u64) -> Probed {
        self.candidates[path] = true;
        let is_new = std::mem::replace(&mut self.answered[path][interface], nonce) != nonce;
        if echo != 0 && (echo == self.check || echo == self.last_check) {
            self.passed[path] |= echo == self.check;
            self.has_unproved_batches &= path != UDP;
            // Late is not dead.
            self.failed[path] = 0;
            return Probed { must_answer: is_new, ..Probed::default() };
        }
        if echo != 0 && path == UDP && self.path_mtu.answered(echo, now) {
            self.spread_anew();
            return Probed { must_answer: is_new, ..Probed::default() };
        }
        if echo != self.nonce {
            let lacks_answers = echo == 0 && self.current == Some(path) && self.is_asked_in_vain(is_new, now);
            let must_answer = is_new || !mutant!(self, AnswersOnce);
            return Probed { must_answer, lacks_answers, ..Probed::default() };
        }
        if self.current == Some(path) {
            self.questions = (0, 0, 0);
        }
        // An answer to a question that was answered before only shows that the peer's frames arrive, not this end's.
        if std::mem::replace(&mut self.works[path], true) {
            self.prefer_end(path, interface);
            return Probed { must_answer: is_new, ..Probed::default() };
        }
        let suspected = self.suspected.take();
        if let Some((suspected, since)) = suspected
            && (suspected, self.current) == (path, Some(path))
        {
            // No other path has answered before it: it was slow, not dead.
            self.answered(since, now);
        }
        self.ends[path] = interface as u8;
        self.failed[path] = 0;
        let is_first = self.current.is_none();
        if self.current.is_none_or(|current| path <= current || !self.works[current]) {
            self.current = Some(path);
            self.unanswered_since = 0;
        }
        self.spread_anew();
        // A peer that did not answer frames may know no path, because the answer to its question was lost.
        let must_answer = is_new || suspected.is_some() && !mutant!(self, AnswersOnce);
        Probed { must_answer, is_found: true, is_first, ..Probed::default() }
    }

    /// Counts a question of the peer by the current path. Whether it has asked this so often that the answers must be lost,
    /// although its frames arrive. A new question shows that the last one was answered, or is a probe of another kind.
    fn is_asked_in_vain(&mut self, is_new: bool, now: u64) -> bool {
        let (count, first, last) = self.questions;
        let is_continued = count > 0 && !is_new && now.saturating_sub(last) <= QUESTIONS_PAUSE;
        let (count, first) = if is_continued { (count.saturating_add(1), first) } else { (1, now) };
        let is_in_vain = count >= QUESTIONS_MAX && now.saturating_sub(first) >= QUESTIONS_TIME;
        self.questions = if is_in_vain { (0, 0, 0) } else { (count, first, now) };
        is_in_vain && self.has_choice() && !mutant!(self, TrustsAnyFrame) && !mutant!(self, HeardFromAny)
    }

    /// Moves a path to another interface of the peer if that interface has no path, and either the old one has several
    /// or the peer sends from the new one.
    fn prefer_end(&mut self, path: Path, interface: usize) {
        let uses = |end: usize| self.working_frames().filter(|other| usize::from(self.ends[*other]) == end).count();
        if path == UDP || uses(interface) > 0 {
            return;
        }
        let is_used_by_peer = self.heard_ends[path].is_some_and(|from| self.interfaces[interface].mac.0 == from.mac());
        if is_used_by_peer && !self.has_several || uses(usize::from(self.ends[path])) > 1 {
            self.ends[path] = interface as u8;
            self.spread_anew();
        }
    }
}

/// What follows from a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probed {
    /// The peer does not know the answer to its question.
    pub must_answer: bool,
    /// The path works, which was unknown.
    pub is_found: bool,
    /// None worked before.
    pub is_first: bool,
    /// The current path does not seem to carry the answers to the peer's questions.
    pub lacks_answers: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name::new([2, 0, 0, 0, 0, 1], 8);
    const MS: u64 = 1_000_000;
    const SPEEDS: [u32; INTERFACES_MAX] = [0; INTERFACES_MAX];
    const FRAMES: Path = 0;

    fn peer() -> Peer {
        let mut peer = Peer::new(NAME, None, (SPEEDS, false), 1, 1);
        [FRAMES, UDP].into_iter().for_each(|path| peer.add(path));
        peer
    }

    fn next() -> u64 {
        2
    }

    /// Whether a probe must be answered, and whether it found the first carrier.
    fn probed(peer: &mut Peer, path: Path, nonce: u64, echo: u64) -> (bool, bool) {
        let Probed { must_answer, is_first, .. } = peer.probed(path, 0, nonce, echo, 0);
        (must_answer, is_first)
    }

    #[test]
    fn frames_wait_until_a_carrier_has_answered_and_then_take_the_better() {
        let mut peer = peer();
        assert_eq!(peer.route(5, next), Route::Hold);
        assert_eq!(probed(&mut peer, UDP, 70, 0), (true, false));
        assert_eq!(peer.route(5, next), Route::Hold, "a question is no answer");
        assert_eq!(probed(&mut peer, UDP, 70, 9), (true, false), "the answer to another question");
        assert_eq!(probed(&mut peer, UDP, 70, 1), (false, true));
        assert_eq!(peer.route(5, next), Route::One(UDP));
        assert_eq!(probed(&mut peer, FRAMES, 70, 1), (true, false));
        assert_eq!(peer.route(5, next), Route::One(FRAMES));
        assert_eq!(probed(&mut peer, UDP, 70, 1), (false, false));
        assert_eq!(peer.route(5, next), Route::One(FRAMES), "the worse does not replace it");
        assert_eq!(peer.question_due(), None);
    }

    #[test]
    fn a_silent_carrier_is_replaced_and_asked_until_it_works_again() {
        let mut peer = peer();
        peer.probed(UDP, 0, 70, 1, 0);
        peer.probed(FRAMES, 0, 70, 1, 0);
        for now in (1..100).map(|number| number * 20 * MS) {
            assert_eq!(peer.route(now, next), Route::One(FRAMES));
            assert_eq!(peer.route(now + 4 * MS, next), Route::One(FRAMES));
            peer.heard(FRAMES, NAME, now + 5 * MS);
        }
        // An acknowledgement has no answer, and the next exchange begins later.
        assert_eq!(peer.route(2500 * MS, next), Route::One(FRAMES));
        assert_eq!(peer.route(3000 * MS, next), Route::One(FRAMES));
        assert_eq!(peer.route(3009 * MS, next), Route::One(FRAMES));
        peer.heard_datagram(MacAddress::default(), 3009 * MS);
        assert_eq!(peer.route(3010 * MS, next), Route::All, "what other carriers bring does not count");
        assert_eq!((peer.question_due(), peer.question()), (Some(3010 * MS), 2));
        assert_eq!(probed(&mut peer, FRAMES, 70, 1), (true, false), "an answer to the last question");
        assert_eq!(peer.route(3011 * MS, next), Route::All);
        assert_eq!(probed(&mut peer, UDP, 71, 2), (true, false));
        assert_eq!(peer.route(3012 * MS, next), Route::One(UDP));
        assert_eq!(peer.unknown().collect::<Vec<_>>(), [FRAMES]);
        assert_eq!(probed(&mut peer, FRAMES, 71, 2), (true, false));
        assert_eq!(peer.route(3013 * MS, next), Route::One(FRAMES));
    }

    /// Proves that a path by which the peer's frames arrive, but not this end's, is asked again, and that questions which
    /// an answer ends, or rare ones, cast no doubt on it.
    #[test]
    fn questions_that_are_repeated_for_long_show_that_answers_are_lost() {
        let mut peer = peer();
        peer.probed(FRAMES, 0, 70, 1, 0);
        let lacks = |peer: &mut Peer, path, ms| peer.probed(path, 0, 71, 0, ms * MS).lacks_answers;
        for ms in [10, 12, 16, 24, 40, 59] {
            assert!(!lacks(&mut peer, FRAMES, ms), "{ms}");
        }
        peer.probed(FRAMES, 0, 71, 1, 59 * MS);
        assert!(!lacks(&mut peer, FRAMES, 72), "an answer has shown that both directions work");
        for ms in [2000, 4000, 6000, 8000, 10_000] {
            assert!(!lacks(&mut peer, FRAMES, ms), "{ms}");
        }
        for ms in [20_000, 20_010, 20_020, 20_040] {
            assert!(!lacks(&mut peer, UDP, ms) && !lacks(&mut peer, FRAMES, ms), "{ms}");
        }
        assert!(lacks(&mut peer, FRAMES, 20_060));
        peer.suspect(20_060 * MS, next);
        assert_eq!(peer.unknown().collect::<Vec<_>>(), [FRAMES, UDP]);
        assert_eq!(probed(&mut peer, UDP, 72, 2), (true, false));
        assert_eq!(peer.route(20_062 * MS, next), Route::One(UDP));
    }

    /// Proves that a silent peer's question is answered again when a path is found anew, but once.
    #[test]
    fn a_peer_that_is_silent_may_lack_the_last_answer() {
        let mut peer = peer();
        assert_eq!(probed(&mut peer, UDP, 70, 1), (true, true));
        for (now, expected) in [(1, Route::One(UDP)), (5, Route::One(UDP)), (11, Route::All)] {
            assert_eq!(peer.route(now * MS, next), expected);
        }
        assert_eq!([0; 2].map(|_| probed(&mut peer, UDP, 70, 2)), [(true, false), (false, false)]);
    }

    #[test]
    fn repetitions_after_long_times_are_suspicious() {
        let mut peer = peer();
        peer.probed(UDP, 0, 70, 1, 0);
        peer.probed(FRAMES, 0, 70, 1, 0);
        for (now, expected) in [
            (100, Route::One(FRAMES)),
            (120, Route::One(FRAMES)),
            (160, Route::All),
            (240, Route::All),
            (241, Route::All),
        ] {
            assert_eq!(peer.route(now * MS, next), expected, "{now}");
        }
        peer.heard(FRAMES, NAME, 242 * MS);
        assert_eq!(peer.route(242 * MS, next), Route::One(FRAMES));
    }

    #[test]
    fn the_only_carrier_is_suspected_if_the_peer_may_have_another_address() {
        let [listed, other] = [1, 2].map(|last| MacAddress([0x80, 0, 10, 0, 0, last]));
        for (sockets, udp) in [(vec![listed, other], listed), (vec![listed], other)] {
            let mut peer = Peer::new(NAME, None, (SPEEDS, false), 1, 1);
            peer.add(UDP);
            peer.assume(UDP);
            (peer.sockets, peer.udp) = (sockets, Some(udp));
            for (now, expected) in [(1, Route::One(UDP)), (5, Route::One(UDP)), (11, Route::All)] {
                assert_eq!(peer.route(now * MS, next), expected);
            }
            assert_eq!(peer.question_due(), Some(11 * MS));
        }
    }

    #[test]
    fn the_only_carrier_is_suspected_if_datagrams_may_leave_from_another_address() {
        let mut peer = Peer::new(NAME, None, (SPEEDS, false), 1, 1);
        peer.add(UDP);
        peer.has_several_sources = true;
        assert_eq!(probed(&mut peer, UDP, 70, 1), (true, true));
        for (now, expected) in [(1, Route::One(UDP)), (5, Route::One(UDP)), (11, Route::All)] {
            assert_eq!(peer.route(now * MS, next), expected);
        }
        assert_eq!((peer.question_due(), peer.question()), (Some(11 * MS), 2));
    }

    #[test]
    fn the_only_carrier_is_used_unasked_and_never_suspected() {
        let mut peer = Peer::new(NAME, None, (SPEEDS, false), 1, 1);
        peer.add(UDP);
        peer.assume(UDP);
        for now in [1, 100 * MS, 10_000 * MS] {
            assert_eq!(peer.route(now, next), Route::One(UDP));
        }
        assert_eq!(peer.question_due(), None);
    }

    /// Proves that a path to an interface that the peer no longer has is asked again, and that unknown interfaces count
    /// as the first.
    #[test]
    fn a_peer_may_have_fewer_interfaces_than_before() {
        let interfaces = [1, 2, 3].map(|last| Interface { mac: MacAddress([2, 0, 0, 0, 0, last]), speed: 1000 });
        let mut peer = peer();
        peer.add(1);
        assert!(peer.learn(&interfaces, 1) && !peer.learn(&interfaces, 1));
        peer.probed(FRAMES, 0, 70, 1, 0);
        peer.probed(1, 2, 70, 1, 0);
        assert_eq!((peer.address(1), peer.route(2, next)), (interfaces[2].mac, Route::Spread));
        assert!(peer.learn(&interfaces[..1], 3));
        assert_eq!((peer.address(1), peer.route(4, next)), (interfaces[0].mac, Route::One(FRAMES)));
        assert_eq!(peer.unknown().collect::<Vec<_>>(), [1, UDP]);
        assert_eq!(peer.interface(interfaces[2].mac), 0);
    }

    /// Proves that polls as rare as T1 may become show that a path drops long datagrams, that those of an idle connection do
    /// not, nor those to a peer that is busy.
    #[test]
    fn rare_polls_have_the_path_mtu_checked_if_something_long_is_missing() {
        for (has_risked, has_heard, is_checked) in
            [(true, true, true), (false, true, false), (true, false, false), (false, false, false)]
        {
            let mut peer = peer();
            peer.path_mtu = PathMtu::new(1470);
            peer.probed(UDP, 0, 70, 1, 0);
            for number in 1..3 {
                assert_eq!(peer.mtu_due(), None);
                peer.polled(1001 * number * MS);
                if has_heard {
                    peer.heard_datagram(MacAddress::default(), 1001 * number * MS);
                }
                peer.has_risked_since_poll |= has_risked;
            }
            peer.polled(3003 * MS);
            assert_eq!(peer.mtu_due().is_some(), is_checked, "{has_risked}, {has_heard}");
        }
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
        peer.probed(UDP, 0, 70, 1, 0);
        let since = now;
        while now < since + 1_000_000 * MS {
            asked += 1;
            peer.asked(now);
            now = peer.question_due().unwrap();
        }
        assert!(asked < 70, "{asked} in a thousand seconds more");
    }

    /// Proves that a peer that does not answer is asked twice a second while something is sent to it, ever more rarely
    /// afterwards, and at once when something is to be sent again.
    #[test]
    fn an_idle_peer_is_asked_rarely_until_it_is_resumed() {
        let mut peer = peer();
        peer.probed(FRAMES, 0, 70, 1, 0);
        // It exits.
        for (now, expected) in [(1, Route::One(FRAMES)), (5, Route::One(FRAMES)), (11, Route::All)] {
            assert_eq!(peer.route(now * MS, next), expected);
        }
        let asked = |peer: &mut Peer, until: u64| {
            let mut asked = 0;
            while let Some(now) = peer.question_due().filter(|due| *due < until) {
                peer.asked(now);
                asked += 1;
            }
            asked
        };
        let mut now = 30_000 * MS;
        assert!((60..75).contains(&asked(&mut peer, now)));
        peer.note_idle(now);
        assert!(!peer.is_idle, "a connection may still wait for it");
        for _ in 0..2 {
            let _ = peer.route(now, next);
            now += 30_000 * MS;
            assert!((58..=62).contains(&asked(&mut peer, now)));
        }
        peer.note_idle(now);
        assert!(peer.is_idle && !peer.may_need_udp());
        now += 1_000_000 * MS;
        let rarely = asked(&mut peer, now);
        assert!((30..45).contains(&rarely), "{rarely} in a thousand seconds");
        peer.resume(now);
        assert!(!peer.is_idle && peer.is_first_question());
        assert_eq!((peer.question_due(), peer.route(now, next)), (Some(now), Route::All));
        let soon = asked(&mut peer, now + 10_000 * MS);
        assert!((20..30).contains(&soon), "{soon} in ten seconds");
        assert_eq!(probed(&mut peer, UDP, 71, 2), (true, false));
        assert_eq!(peer.route(now + 10_000 * MS, next), Route::One(UDP));
    }
}
