// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread that waits does between polls that find nothing: it polls on, yields its core, or sleeps.
//!
//! Where ranks outnumber cores, the launcher says so: then it yields, and sleeps after some hundred polls. Otherwise the
//! thread finds out by itself whether others compete for its core: if it was preempted, it sleeps soon for a while, so that
//! they run while it waits and it is due when its message comes.

use std::fs::File;
use std::io::Read;
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
/// The core is contended if the thread waited for it for more than one part in so many of two windows in a row, and got it
/// back as often in each as it takes to be no accident. One competitor takes half. The kernel's own work on frames that come,
/// for which sleeping makes no room, takes a fifth of a core where messages are long; and what runs once and for long, such as
/// the start of the job's other processes, takes one window.
const WAITED_PART: u32 = 3;
const TURNS: u64 = 2;
/// For how long the core is taken for contended then: a thread that sleeps while it waits is not preempted any more. Not for
/// long at first; twice as long each time that it happens again before a window is found in which the thread has its core.
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
    /// When the window began, and what the thread had waited until then.
    began: Option<(Instant, Queue)>,
    /// Whose it is: a program's threads may take turns with polling, and each has a core of its own.
    thread: Option<ThreadId>,
    /// In the window before this one others had the core.
    suspected: bool,
    contended_until: Option<Instant>,
    /// How long that lasts, or lasted the last time; zero once the thread had its core for a window.
    contended_for: Duration,
    /// How long it polls before the next sleep, beyond the least.
    polling: Duration,
}

/// What a thread has waited for a core so far while others had it. Not what it slept, whoever asked for that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    waited: Duration,
    /// How often it got a core.
    turns: u64,
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
        if time < longest {
            (watch.polling, self.naps) = (Duration::ZERO, 0);
        } else {
            watch.polling = (2 * watch.polling).max(POLLING_MIN).min(POLLING_MAX);
            self.naps = self.naps.saturating_add(1);
        }
        (self.polls, self.stretches) = (0, 0);
        self.stretch_end = None;
    }

    /// A poll found nothing. `used` tells what the thread has used of its core, `queue` what it has waited for one.
    #[inline(always)]
    pub fn pause(
        &mut self,
        competition: Competition,
        now: impl Fn() -> Instant,
        used: impl Fn() -> Duration,
        queue: impl Fn() -> Queue,
    ) -> Pause {
        match competition {
            Competition::None => Pause::Nothing,
            Competition::Crowded => self.pause_crowded(now, used),
            Competition::Unknown => {
                self.watch.polls += 1;
                if self.watch.polls < LOOK_EVERY && self.watch.contended_until.is_none() {
                    return Pause::Nothing;
                }
                self.pause_watching(now, queue)
            }
        }
    }

    /// On a core that others may want.
    #[cold]
    fn pause_watching(&mut self, now: impl Fn() -> Instant, queue: impl Fn() -> Queue) -> Pause {
        if self.watch.polls >= LOOK_EVERY {
            self.watch.polls = 0;
            self.watch.look(now(), queue);
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
    fn pause_crowded(&mut self, now: impl Fn() -> Instant, used: impl Fn() -> Duration) -> Pause {
        self.polls += 1;
        if self.polls < STRETCH {
            return Pause::Nothing;
        }
        self.polls = 0;
        let end = (now(), used());
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
    fn look(&mut self, now: Instant, queue: impl Fn() -> Queue) {
        let thread = thread::current().id();
        let (Some((began, before)), true) = (self.began, self.thread == Some(thread)) else {
            *self = Self { began: Some((now, queue())), thread: Some(thread), ..Self::default() };
            return;
        };
        if self.contended_until.is_some_and(|until| now >= until) {
            // A window in which it slept would say nothing.
            (self.contended_until, self.began) = (None, Some((now, queue())));
            return;
        }
        let time = now.duration_since(began);
        if time < WINDOW {
            return;
        }
        let queue = queue();
        let waited = queue.waited.saturating_sub(before.waited);
        if queue.turns.saturating_sub(before.turns) >= TURNS && waited * WAITED_PART > time {
            if self.suspected {
                self.contended_for = (2 * self.contended_for).clamp(CONTENDED_FOR_MIN, CONTENDED_FOR_MAX);
                self.contended_until = Some(now + self.contended_for);
            }
            self.suspected = true;
        } else if self.contended_until.is_none() {
            (self.suspected, self.contended_for) = (false, Duration::ZERO);
        }
        self.began = Some((now, queue));
    }
}

/// What this thread has used of its core so far, exact to this moment.
pub(crate) fn used() -> Duration {
    let mut cpu = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `cpu` is valid to be written to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut cpu) };
    Duration::from_secs(cpu.tv_sec.unsigned_abs()) + Duration::from_nanos(cpu.tv_nsec.unsigned_abs())
}

/// What this thread has waited for a core so far. Nothing where the kernel does not tell: then no core is contended.
pub(crate) fn queue() -> Queue {
    read_queue().unwrap_or_default()
}

/// Nanoseconds that it ran, nanoseconds that it waited to, and how often it got a core: sched-stats.rst of the kernel.
fn read_queue() -> Option<Queue> {
    let mut text = [0; 96];
    let length = File::open("/proc/thread-self/schedstat").ok()?.read(&mut text).ok()?;
    let mut numbers = str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().skip(1).map(str::parse);
    Some(Queue { waited: Duration::from_nanos(numbers.next()?.ok()?), turns: numbers.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Pauses of so many polls that are so far apart, on a thread that is preempted at each n-th of them for so long.
    fn pauses(competition: Competition, polls: u32, apart: Duration, (each, preempted): (u32, Duration)) -> Vec<Pause> {
        let (clock, used) = (Cell::new(Instant::now()), Cell::new(Duration::ZERO));
        let queue = Cell::new(Queue { waited: Duration::from_secs(3), turns: 7 });
        let mut backoff = Backoff::default();
        let poll = |number: u32| {
            clock.set(clock.get() + apart);
            used.set(used.get() + apart);
            if number.is_multiple_of(each) {
                clock.set(clock.get() + preempted);
                let Queue { waited, turns } = queue.get();
                queue.set(Queue { waited: waited + preempted, turns: turns + 1 });
            }
            backoff.pause(competition, || clock.get(), || used.get(), || queue.get())
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
            let mut pause = || backoff.pause(Competition::Crowded, || start, Duration::default, Queue::default);
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
        let mut pause = || backoff.pause(Competition::Crowded, || start, Duration::default, Queue::default);
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
                backoff.pause(Competition::Crowded, || clock.get(), || cpu.get(), Queue::default);
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
        let pauses: Vec<Pause> = (0..STRETCH)
            .map(|_| backoff.pause(Competition::Crowded, || now, Duration::default, Queue::default))
            .collect();
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
        let (mut now, mut queue) = (Instant::now(), Queue::default());
        // For how many ms the core is contended after a window of which the thread had its core for half, or for all.
        let mut window = |has_core: bool| {
            now = watch.contended_until.unwrap_or(now);
            watch.look(now, || queue);
            now += WINDOW;
            queue.waited += if has_core { Duration::ZERO } else { WINDOW / 2 };
            queue.turns += TURNS;
            watch.look(now, || queue);
            watch.contended_until.map(|until| until.duration_since(now).as_millis())
        };
        let contended: Vec<Option<u128>> = (0..8).map(|_| window(false)).collect();
        let expected = [50, 100, 200, 400, 800, 1000, 1000].map(Some);
        assert_eq!((contended[0], &contended[1..]), (None, &expected[..]), "one window is no sign yet");
        let again = [window(true), window(false), window(true), window(false), window(false), window(false)];
        assert_eq!(again, [None, None, None, None, Some(50), Some(100)]);
    }

    #[test]
    fn threads_that_take_turns_are_not_taken_for_one() {
        let start = Instant::now();
        let mut watch = Watch::default();
        let waited = |windows: u32| move || Queue { waited: windows * WINDOW, turns: u64::from(windows) * TURNS };
        watch.look(start, waited(100));
        thread::scope(|scope| {
            scope.spawn(|| watch.look(start + 2 * WINDOW, waited(1000)));
        });
        watch.look(start + 4 * WINDOW, waited(100));
        watch.look(start + 6 * WINDOW, waited(90));
        assert!(watch.contended_until.is_none() && !watch.suspected);
        watch.look(start + 8 * WINDOW, waited(92));
        watch.look(start + 10 * WINDOW, waited(94));
        assert!(watch.contended_until.is_some());
    }

    #[test]
    fn what_a_thread_waits_for_a_core_is_told_and_what_it_sleeps_is_not() {
        let before = read_queue().expect("a kernel with CONFIG_SCHED_INFO, as distributions have it");
        let sleep = Duration::from_millis(200);
        thread::sleep(sleep);
        let after = read_queue().expect("as before");
        assert!(after.turns > before.turns && after.waited >= before.waited && after.waited < before.waited + sleep);
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
