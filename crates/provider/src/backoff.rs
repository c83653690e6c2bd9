// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread that waits does between polls that find nothing: it polls on, yields its core, or sleeps.
//!
//! Where ranks outnumber cores, the launcher says so: then it yields, and sleeps after some hundred polls. Otherwise the
//! thread finds out by itself whether others compete for its core: if it was preempted, it sleeps soon for a while, so that
//! they run while it waits and it is due when its message comes.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Polls in vain between two looks at the clock, or between two yields.
const STRETCH: u32 = 8;
/// A program that uses its core for longer in a stretch computes in between, and would have to wait for the core.
const POLLS_ONLY: Duration = Duration::from_micros(20);
/// Stretches of nothing but polls after which a crowded thread sleeps.
const STRETCHES: u32 = 32;
/// Without its core for so long in a stretch, a thread gave it to somebody who computes. From then on it sleeps for a while
/// instead: whoever yields waits for a slice of the scheduler's each time, and who wakes goes first. Not for long at first, as
/// where all take turns with yielding, that is several times as fast; twice as long each time that it happens again.
const GIVEN_AWAY: Duration = Duration::from_millis(1);
const GIVEN_AWAY_FOR: Duration = Duration::from_millis(25);
/// The longest sleep: the program may have other things to make progress with, of which the provider does not know.
const SLEEP: Duration = Duration::from_millis(1);
/// The first sleep of a crowded thread, which is likely to have such things: MPICH's ranks of one host speak past the provider.
/// Each one that nothing ends is followed by one of twice the time.
const NAP_MIN: Duration = Duration::from_micros(50);

/// Polls in vain between two looks for competitors, so that a look costs nothing that can be measured.
const LOOK_EVERY: u32 = 64;
/// A thread finds out for so long, at least, how much of the time it has its core: some slices of the scheduler's.
const WINDOW: Duration = Duration::from_millis(25);
/// The core is contended if the thread was without it for more than one part in so many, though it never slept, and was
/// preempted as often as it takes to be no accident. One competitor takes half.
const OFF_CORE_PART: u32 = 8;
const PREEMPTIONS: u64 = 2;
/// For how long the core is taken for contended then: a thread that sleeps while it waits is not preempted any more. Not for
/// long at first, as it may have been the start of the program's other processes; twice as long each time that it happens
/// again before a window is found in which the thread has its core.
const CONTENDED_FOR_MIN: Duration = Duration::from_millis(50);
const CONTENDED_FOR_MAX: Duration = Duration::from_secs(1);
/// How long it polls on a contended core before it sleeps: about what sleeping and waking costs. A program that computes a
/// little between its polls loses by each sleep that nothing ends, so the next comes after twice the time, up to a limit.
const POLLING_MIN: Duration = Duration::from_micros(20);
const POLLING_MAX: Duration = Duration::from_millis(50);

/// Whether others want the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Competition {
    /// To be found out.
    #[default]
    Unknown,
    /// More ranks than cores.
    Crowded,
    /// Nobody else is there, or nobody else matters.
    None,
}

/// The polls in vain since one that was not, and what is known of the core.
#[derive(Default)]
pub(crate) struct Backoff {
    polls: u32,
    began: Option<Instant>,
    /// When the last stretch of a crowded thread ended, and what it had used of its core by then.
    stretch_end: Option<(Instant, Duration)>,
    /// Stretches in a row in which the program did nothing else.
    stretches: u32,
    /// Of a crowded thread, sleeps in a row that nothing ended.
    naps: u32,
    /// Of a crowded thread, how long its core was taken for contended the last time, if it has not had it for all of a wait
    /// since.
    given_away_for: Duration,
    watch: Watch,
}

/// Looks for competitors.
#[derive(Default)]
struct Watch {
    polls: u32,
    /// When the window began, and what had been used until then.
    began: Option<(Instant, Usage)>,
    /// Whose it is: a program's threads may take turns with polling, and each has a core and a usage of its own.
    thread: Option<ThreadId>,
    /// Of the window, what it slept.
    slept: Duration,
    contended_until: Option<Instant>,
    /// How long that lasts, or lasted the last time; zero once the thread had its core for a window.
    contended_for: Duration,
    /// How long it polls before the next sleep, beyond the least.
    polling: Duration,
}

/// What a thread has used of its core so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    cpu: Duration,
    preemptions: u64,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Nothing,
    Yield,
    /// Until something comes, or for so long.
    Sleep(Duration),
}

impl Backoff {
    /// A poll found something.
    #[inline]
    pub fn end(&mut self) {
        (self.polls, self.stretches, self.naps) = (0, 0, 0);
        self.stretch_end = None;
    }

    /// It slept for so long, of `longest` at most.
    pub fn slept(&mut self, time: Duration, longest: Duration) {
        let watch = &mut self.watch;
        watch.slept += time;
        if time < longest {
            (watch.polling, self.naps) = (Duration::ZERO, 0);
        } else {
            watch.polling = (2 * watch.polling).max(POLLING_MIN).min(POLLING_MAX);
            self.naps = self.naps.saturating_add(1);
        }
        (self.polls, self.stretches) = (0, 0);
        self.stretch_end = None;
    }

    /// A poll found nothing. `usage` is the thread's.
    #[inline(always)]
    pub fn pause(&mut self, competition: Competition, now: impl Fn() -> Instant, usage: impl Fn() -> Usage) -> Pause {
        match competition {
            Competition::None => Pause::Nothing,
            Competition::Crowded => self.pause_crowded(now, usage),
            Competition::Unknown => {
                self.watch.polls += 1;
                if self.watch.polls < LOOK_EVERY && self.watch.contended_until.is_none() {
                    return Pause::Nothing;
                }
                self.pause_watching(now, usage)
            }
        }
    }

    /// On a core that others may want.
    #[cold]
    fn pause_watching(&mut self, now: impl Fn() -> Instant, usage: impl Fn() -> Usage) -> Pause {
        if self.watch.polls >= LOOK_EVERY {
            self.watch.polls = 0;
            self.watch.look(now(), usage);
        }
        if self.watch.contended_until.is_none() {
            return Pause::Nothing;
        }
        self.polls += 1;
        match self.polls {
            1 => self.began = Some(now()),
            polls if polls.is_multiple_of(STRETCH) => {
                let polling = self.began.map_or(Duration::ZERO, |began| now().duration_since(began));
                if polling >= POLLING_MIN + self.watch.polling {
                    return Pause::Sleep(SLEEP);
                }
            }
            _ => {}
        }
        Pause::Nothing
    }

    /// On a core that others certainly want.
    fn pause_crowded(&mut self, now: impl Fn() -> Instant, usage: impl Fn() -> Usage) -> Pause {
        self.polls += 1;
        if self.polls < STRETCH {
            return Pause::Nothing;
        }
        self.polls = 0;
        let end = (now(), usage().cpu);
        let is_contended = self.watch.contended_until.is_some_and(|until| end.0 < until);
        let Some((time_before, cpu_before)) = self.stretch_end.replace(end) else {
            return if is_contended { Pause::Nothing } else { Pause::Yield };
        };
        let (time, cpu) = (end.0.duration_since(time_before), end.1.saturating_sub(cpu_before));
        let nap = Pause::Sleep(SLEEP.min(NAP_MIN * 2_u32.pow(self.naps.min(10))));
        if cpu >= POLLS_ONLY {
            (self.stretches, self.naps) = (0, 0);
            return Pause::Yield;
        }
        if time >= cpu + GIVEN_AWAY {
            self.given_away_for = (2 * self.given_away_for).clamp(GIVEN_AWAY_FOR, CONTENDED_FOR_MAX);
            self.watch.contended_until = Some(end.0 + self.given_away_for);
            return nap;
        }
        self.stretches += 1;
        if is_contended {
            return nap;
        }
        if self.stretches < STRETCHES {
            return Pause::Yield;
        }
        self.given_away_for = Duration::ZERO;
        nap
    }
}

impl Watch {
    fn look(&mut self, now: Instant, usage: impl Fn() -> Usage) {
        let thread = thread::current().id();
        let (Some((began, before)), true) = (self.began, self.thread == Some(thread)) else {
            *self = Self { began: Some((now, usage())), thread: Some(thread), ..Self::default() };
            return;
        };
        if self.contended_until.is_some_and(|until| now >= until) {
            // A window in which it slept would say nothing.
            (self.contended_until, self.began, self.slept) = (None, Some((now, usage())), Duration::ZERO);
            return;
        }
        let time = now.duration_since(began);
        if time < WINDOW {
            return;
        }
        let usage = usage();
        let off_core = time.saturating_sub(usage.cpu.saturating_sub(before.cpu) + self.slept);
        if usage.preemptions.saturating_sub(before.preemptions) >= PREEMPTIONS && off_core * OFF_CORE_PART > time {
            self.contended_for = (2 * self.contended_for).clamp(CONTENDED_FOR_MIN, CONTENDED_FOR_MAX);
            self.contended_until = Some(now + self.contended_for);
        } else if self.contended_until.is_none() {
            self.contended_for = Duration::ZERO;
        }
        (self.began, self.slept) = (Some((now, usage)), Duration::ZERO);
    }
}

/// What this thread has used of its core so far.
pub(crate) fn usage() -> Usage {
    // SAFETY: plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid to be written to.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let mut cpu = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Exact to this moment; what `getrusage` says is as old as the last tick of the scheduler's.
    // SAFETY: `cpu` is valid to be written to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut cpu) };
    let cpu = Duration::from_secs(cpu.tv_sec.unsigned_abs()) + Duration::from_nanos(cpu.tv_nsec.unsigned_abs());
    Usage { cpu, preemptions: usage.ru_nivcsw.unsigned_abs() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Pauses of so many polls that are so far apart, on a thread that is preempted at each n-th of them for so long.
    fn pauses(competition: Competition, polls: u32, apart: Duration, (each, preempted): (u32, Duration)) -> Vec<Pause> {
        let (clock, used) = (Cell::new(Instant::now()), Cell::new(Usage { cpu: Duration::ZERO, preemptions: 7 }));
        let mut backoff = Backoff::default();
        let poll = |number: u32| {
            clock.set(clock.get() + apart);
            let Usage { mut cpu, mut preemptions } = used.get();
            cpu += apart;
            if number.is_multiple_of(each) {
                clock.set(clock.get() + preempted);
                preemptions += 1;
            }
            used.set(Usage { cpu, preemptions });
            backoff.pause(competition, || clock.get(), || used.get())
        };
        (1..=polls).map(poll).filter(|pause| *pause != Pause::Nothing).collect()
    }

    const NEVER: (u32, Duration) = (u32::MAX, Duration::ZERO);
    /// A competitor that computes: it has half of the core.
    const HALF: (u32, Duration) = (10_000, Duration::from_millis(3));
    const SHORT: Duration = Duration::from_nanos(300);

    #[test]
    fn a_crowded_thread_that_only_polls_yields_for_a_while_and_then_sleeps() {
        let pauses = pauses(Competition::Crowded, STRETCH * (STRETCHES + 10), SHORT, NEVER);
        let yields = pauses.iter().take_while(|pause| **pause == Pause::Yield).count();
        assert_eq!(yields, STRETCHES as usize);
        assert!(pauses[yields..].iter().all(|pause| *pause == Pause::Sleep(NAP_MIN)) && pauses.len() > yields);
    }

    #[test]
    fn a_crowded_threads_sleeps_that_nothing_ends_grow_and_news_begins_anew() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.watch.contended_until = Some(start + CONTENDED_FOR_MAX);
        let mut nap = |is_ended: bool| {
            let mut pause = || backoff.pause(Competition::Crowded, || start, Usage::default);
            let slept = (0..4 * STRETCH).map(|_| pause()).find_map(|pause| match pause {
                Pause::Sleep(longest) => Some(longest),
                _ => None,
            });
            let longest = slept.expect("it sleeps");
            backoff.slept(if is_ended { Duration::ZERO } else { longest }, longest);
            longest.as_micros()
        };
        let naps: Vec<u128> = (0..8).map(|_| nap(false)).collect();
        assert_eq!(naps, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!((nap(true), nap(false)), (1000, 50));
        nap(false);
        backoff.end();
        assert_eq!(backoff.naps, 0);
    }

    #[test]
    fn a_crowded_thread_that_computes_between_polls_never_sleeps() {
        let pauses = pauses(Competition::Crowded, STRETCH * STRETCHES * 10, Duration::from_micros(10), NEVER);
        assert!(pauses.iter().all(|pause| *pause == Pause::Yield));
    }

    /// Each yield, the program's own or ours, gives the core to a competitor for a slice.
    #[test]
    fn a_crowded_thread_whose_yields_are_taken_sleeps_at_once() {
        let pauses = pauses(Competition::Crowded, 10 * STRETCH, SHORT, (STRETCH, Duration::from_millis(3)));
        assert_eq!((pauses[0], &pauses[1..]), (Pause::Yield, &[Pause::Sleep(NAP_MIN); 9][..]));
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.watch.contended_until = Some(start + CONTENDED_FOR_MAX);
        let mut pause = || backoff.pause(Competition::Crowded, || start, Usage::default);
        let pauses: Vec<Pause> = (0..2 * STRETCH).map(|_| pause()).filter(|pause| *pause != Pause::Nothing).collect();
        assert_eq!(pauses, [Pause::Sleep(NAP_MIN)], "also after news, and without a yield before");
    }

    #[test]
    fn a_crowded_core_is_contended_for_twice_as_long_each_time_until_yields_are_given_back() {
        let (clock, cpu) = (Cell::new(Instant::now()), Cell::new(Duration::ZERO));
        // A stretch in which it is without its core for so long; for how many ms the core is contended then.
        let stretch = |backoff: &mut Backoff, without: Duration| {
            clock.set(clock.get() + SHORT + without);
            cpu.set(cpu.get() + SHORT);
            for _ in 0..STRETCH {
                backoff.pause(Competition::Crowded, || clock.get(), || Usage { cpu: cpu.get(), preemptions: 0 });
            }
            let until = backoff.watch.contended_until.filter(|until| clock.get() < *until);
            until.map(|until| until.duration_since(clock.get()).as_millis())
        };
        let mut backoff = Backoff::default();
        stretch(&mut backoff, Duration::ZERO);
        let contended: Vec<u128> = (0..8).filter_map(|_| stretch(&mut backoff, Duration::from_secs(2))).collect();
        assert_eq!(contended, [25, 50, 100, 200, 400, 800, 1000, 1000]);
        clock.set(clock.get() + CONTENDED_FOR_MAX);
        backoff.slept(Duration::ZERO, SLEEP);
        (0..=STRETCHES).for_each(|_| _ = stretch(&mut backoff, Duration::ZERO));
        assert_eq!(stretch(&mut backoff, GIVEN_AWAY * 2), Some(25), "a whole wait had its core");
    }

    #[test]
    fn news_begins_anew() {
        let now = Instant::now();
        let mut backoff = Backoff { stretches: STRETCHES, ..Backoff::default() };
        backoff.end();
        let pauses: Vec<Pause> =
            (0..STRETCH).map(|_| backoff.pause(Competition::Crowded, || now, Usage::default)).collect();
        assert_eq!(pauses.last(), Some(&Pause::Yield));
    }

    #[test]
    fn a_thread_that_has_its_core_polls_on() {
        assert!(pauses(Competition::Unknown, 1_000_000, SHORT, NEVER).is_empty());
        assert!(pauses(Competition::None, 1_000_000, SHORT, HALF).is_empty());
    }

    #[test]
    fn a_thread_that_is_preempted_for_moments_or_seldom_polls_on() {
        let moments = (1000, Duration::from_micros(20));
        assert!(pauses(Competition::Unknown, 1_000_000, SHORT, moments).is_empty());
        let seldom = (200_000, Duration::from_millis(3));
        assert!(pauses(Competition::Unknown, 10_000_000, SHORT, seldom).is_empty());
    }

    #[test]
    fn a_thread_that_computes_between_polls_is_not_taken_for_preempted() {
        assert!(pauses(Competition::Unknown, 10_000, Duration::from_millis(1), NEVER).is_empty());
    }

    #[test]
    fn a_preempted_thread_sleeps_when_it_has_polled_for_a_while_and_forgets_it_after_a_while() {
        let pauses = pauses(Competition::Unknown, 5_000_000, SHORT, HALF);
        assert!(pauses.len() > 1000 && pauses.iter().all(|pause| *pause == Pause::Sleep(SLEEP)));
    }

    #[test]
    fn a_core_is_contended_for_twice_as_long_each_time_until_the_thread_has_it() {
        let mut watch = Watch::default();
        let (mut now, mut used) = (Instant::now(), Usage::default());
        // For how many ms the core is contended after a window of which the thread had its core for half, or for all.
        let mut window = |has_core: bool| {
            now = watch.contended_until.unwrap_or(now);
            watch.look(now, || used);
            now += WINDOW;
            used.cpu += if has_core { WINDOW } else { WINDOW / 2 };
            used.preemptions += if has_core { 0 } else { PREEMPTIONS };
            watch.look(now, || used);
            watch.contended_until.map(|until| until.duration_since(now).as_millis())
        };
        let contended: Vec<u128> = (0..7).filter_map(|_| window(false)).collect();
        assert_eq!(contended, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!([window(true), window(false), window(false)], [None, Some(50), Some(100)]);
    }

    #[test]
    fn threads_that_take_turns_are_not_taken_for_one() {
        let start = Instant::now();
        let mut watch = Watch::default();
        let preempted = |preemptions| move || Usage { cpu: Duration::ZERO, preemptions };
        watch.look(start, preempted(100));
        thread::scope(|scope| {
            scope.spawn(|| watch.look(start + 2 * WINDOW, preempted(1000)));
        });
        assert_eq!(watch.contended_until, None);
        watch.look(start + 4 * WINDOW, preempted(100));
        watch.look(start + 6 * WINDOW, preempted(90));
        assert_eq!(watch.contended_until, None);
        watch.look(start + 8 * WINDOW, preempted(100));
        assert!(watch.contended_until.is_some());
    }

    #[test]
    fn sleeps_that_nothing_ends_become_rare() {
        let mut backoff = Backoff::default();
        (0..20).for_each(|_| backoff.slept(SLEEP, SLEEP));
        assert_eq!(backoff.watch.polling, POLLING_MAX);
        backoff.slept(SLEEP / 2, SLEEP);
        assert_eq!(backoff.watch.polling, Duration::ZERO);
    }
}
