// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a waiting thread does after a poll that found nothing: it continues to poll, yields its core, or sleeps.
//!
//! If ranks outnumber cores, the launcher says so: then the thread yields, and sleeps after some hundred polls.
//! Otherwise the thread detects whether others compete for its core: if it was preempted, it sleeps early for a while,
//! so that they run while it waits and the scheduler runs it at once when its message arrives.

use std::fs::File;
use std::io::Read;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Empty polls in a batch: between two readings of the clock, or between two yields.
const BATCH: u32 = 8;
/// A program that uses more processor time in a batch computes between polls; after a sleep it would wait for its core.
const BATCH_CPU_MAX: Duration = Duration::from_micros(20);
/// Batches without computation after which a thread on an oversubscribed host sleeps. Within a wait the number halves
/// with each frame that comes after [`EARLY_SLEEPS`] or more, and doubles with each earlier one: a rank that waits for
/// the rest of a long message on a slow network leaves the core to others between its frames.
const IDLE_BATCHES_MAX: u32 = 32;
/// Down to one batch.
const HALVINGS_MAX: u32 = IDLE_BATCHES_MAX.ilog2();
const EARLY_SLEEPS: u32 = 4;
/// A thread that was without its core for this long in a batch has yielded it to one that computes. It then sleeps for
/// a while instead: each yield costs a timeslice, while a thread that wakes preempts. The time is short at first,
/// because where all threads yield, yielding is several times as fast; it doubles each time this happens again.
const DESCHEDULED_MIN: Duration = Duration::from_millis(1);
const YIELD_CONTENTION_MIN: Duration = Duration::from_millis(25);
/// The longest sleep: the program may have to make progress elsewhere, unknown to the provider.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// The first sleep on an oversubscribed host, where other progress is likely: MPICH's ranks of one host bypass the
/// provider. Each sleep that ends by its timeout doubles the next.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// Empty polls between two samples of the run delay, so that a sample has no measurable cost.
const POLLS_PER_SAMPLE: u32 = 64;
/// Shortest time over which the share of the run delay is measured: several timeslices.
const WINDOW: Duration = Duration::from_millis(25);
/// The core is contended if in two consecutive windows the thread waited for it for more than the window divided by
/// `WAITED_DIVISOR`, and got it back at least `TIMESLICES_MIN` times. One competitor takes half of the core. The
/// kernel's own processing of received frames takes a fifth of it if messages are long, and sleeping does not help
/// there. A single long activity, such as the start of the job's other processes, takes one window.
const WAITED_DIVISOR: u32 = 3;
const TIMESLICES_MIN: u64 = 2;
/// How long the core then counts as contended, since a thread that sleeps while it waits is no longer preempted. The
/// time doubles each time contention is found again before a window in which the thread has its core.
const CONTENTION_MIN: Duration = Duration::from_millis(50);
const CONTENTION_MAX: Duration = Duration::from_secs(1);
/// How long a thread polls on a contended core before it sleeps: about the cost of sleeping and waking. A program that
/// computes a little between its polls loses by each sleep that ends by its timeout, so the polling time then doubles.
const POLLING_MIN: Duration = Duration::from_micros(20);
const POLLING_MAX: Duration = Duration::from_millis(50);

/// Whether other threads compete for the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CoreSharing {
    /// To be detected.
    #[default]
    Unknown,
    /// More ranks than cores.
    Oversubscribed,
    /// No competitors, or none that matter.
    Exclusive,
}

/// Empty polls since the last one that found something, and what is known about the core.
#[derive(Default)]
pub(crate) struct Backoff {
    polls: u32,
    polling_since: Option<Instant>,
    /// Oversubscribed: end of the last batch, the processor time by then of the thread that polled, and this thread.
    batch_end: Option<(Instant, Duration, ThreadId)>,
    /// Consecutive batches in which the program did nothing but poll.
    idle_batches: u32,
    /// Oversubscribed: how often the number of idle batches before a sleep has been halved in this wait.
    halvings: u32,
    /// Oversubscribed: consecutive sleeps that ended by their timeout.
    idle_sleeps: u32,
    /// Oversubscribed: how long the core last counted as contended; zero once the thread had it for all of a wait.
    yield_contention: Duration,
    detector: ContentionDetector,
}

/// Detects competitors by the thread's run delay.
#[derive(Default)]
struct ContentionDetector {
    polls: u32,
    /// Start of the window, and the thread's run delay by then.
    began: Option<(Instant, RunDelay)>,
    /// The sampled thread: a program's threads may alternate in polling, each on its own core.
    thread: Option<ThreadId>,
    /// The core was contended in the previous window.
    is_suspected: bool,
    contended_until: Option<Instant>,
    /// Length of the current or last contention; zero once the thread had its core for a window.
    contention: Duration,
    /// Polling time before the next sleep, in addition to [`POLLING_MIN`].
    extra_polling: Duration,
}

/// How long a thread has been runnable without running, in total. Excludes sleep, voluntary or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunDelay {
    waited: Duration,
    /// Number of times it got a core.
    timeslices: u64,
}

/// What to do after an empty poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Nothing,
    Yield,
    /// Sleep until something arrives, at most for this long.
    Sleep(Duration),
}

impl Backoff {
    /// A poll found something.
    #[inline]
    pub fn reset(&mut self) {
        (self.polls, self.idle_batches, self.idle_sleeps) = (0, 0, 0);
        self.halvings = 0;
        self.batch_end = None;
    }

    /// Reports a sleep of `time` with timeout `longest`.
    pub fn slept(&mut self, time: Duration, longest: Duration) {
        let detector = &mut self.detector;
        if time < longest {
            self.halvings = if self.idle_sleeps < EARLY_SLEEPS {
                self.halvings.saturating_sub(1)
            } else {
                HALVINGS_MAX.min(self.halvings + 1)
            };
            (detector.extra_polling, self.idle_sleeps) = (Duration::ZERO, 0);
        } else {
            detector.extra_polling = (2 * detector.extra_polling).max(POLLING_MIN).min(POLLING_MAX);
            self.idle_sleeps = self.idle_sleeps.saturating_add(1);
        }
        (self.polls, self.idle_batches) = (0, 0);
        self.batch_end = None;
    }

    /// A poll found nothing. `cpu_time` and `run_delay` read the calling thread's totals.
    #[inline(always)]
    pub fn pause(
        &mut self,
        core_sharing: CoreSharing,
        now: impl Fn() -> Instant,
        cpu_time: impl Fn() -> Duration,
        run_delay: impl Fn() -> RunDelay,
    ) -> Pause {
        match core_sharing {
            CoreSharing::Exclusive => Pause::Nothing,
            CoreSharing::Oversubscribed => self.pause_oversubscribed(now, cpu_time),
            CoreSharing::Unknown => {
                self.detector.polls += 1;
                if self.detector.polls < POLLS_PER_SAMPLE && self.detector.contended_until.is_none() {
                    return Pause::Nothing;
                }
                self.pause_detecting(now, run_delay)
            }
        }
    }

    /// Pauses on a core that may have competitors.
    #[cold]
    fn pause_detecting(&mut self, now: impl Fn() -> Instant, run_delay: impl Fn() -> RunDelay) -> Pause {
        if self.detector.polls >= POLLS_PER_SAMPLE {
            self.detector.polls = 0;
            self.detector.sample(now(), run_delay);
        }
        if self.detector.contended_until.is_none() {
            return Pause::Nothing;
        }
        self.polls += 1;
        match self.polls {
            1 => self.polling_since = Some(now()),
            polls if polls.is_multiple_of(BATCH) => {
                let polling = self.polling_since.map_or(Duration::ZERO, |began| now().duration_since(began));
                if polling >= POLLING_MIN + self.detector.extra_polling {
                    return Pause::Sleep(SLEEP_MAX);
                }
            }
            _ => {}
        }
        Pause::Nothing
    }

    /// Pauses on a core that has competitors.
    fn pause_oversubscribed(&mut self, now: impl Fn() -> Instant, cpu_time: impl Fn() -> Duration) -> Pause {
        self.polls += 1;
        if self.polls < BATCH {
            return Pause::Nothing;
        }
        self.polls = 0;
        let end = (now(), cpu_time(), thread::current().id());
        let is_contended = self.detector.contended_until.is_some_and(|until| end.0 < until);
        let Some((time_before, cpu_before, _)) = self.batch_end.replace(end).filter(|before| before.2 == end.2) else {
            return if is_contended { Pause::Nothing } else { Pause::Yield };
        };
        let (time, cpu) = (end.0.duration_since(time_before), end.1.saturating_sub(cpu_before));
        let sleep = Pause::Sleep(SLEEP_MAX.min(SLEEP_MIN * 2_u32.pow(self.idle_sleeps.min(10))));
        if cpu >= BATCH_CPU_MAX {
            (self.idle_batches, self.idle_sleeps) = (0, 0);
            return Pause::Yield;
        }
        if time >= cpu + DESCHEDULED_MIN {
            self.yield_contention = (2 * self.yield_contention).clamp(YIELD_CONTENTION_MIN, CONTENTION_MAX);
            self.detector.contended_until = Some(end.0 + self.yield_contention);
            return sleep;
        }
        self.idle_batches += 1;
        if is_contended {
            return sleep;
        }
        if self.idle_batches < IDLE_BATCHES_MAX >> self.halvings {
            return Pause::Yield;
        }
        self.yield_contention = Duration::ZERO;
        sleep
    }
}

impl ContentionDetector {
    fn sample(&mut self, now: Instant, run_delay: impl Fn() -> RunDelay) {
        let thread = thread::current().id();
        let (Some((began, before)), true) = (self.began, self.thread == Some(thread)) else {
            *self = Self { began: Some((now, run_delay())), thread: Some(thread), ..Self::default() };
            return;
        };
        if self.contended_until.is_some_and(|until| now >= until) {
            // A window in which the thread slept shows nothing.
            (self.contended_until, self.began) = (None, Some((now, run_delay())));
            return;
        }
        let time = now.duration_since(began);
        if time < WINDOW {
            return;
        }
        let run_delay = run_delay();
        let waited = run_delay.waited.saturating_sub(before.waited);
        if run_delay.timeslices.saturating_sub(before.timeslices) >= TIMESLICES_MIN && waited * WAITED_DIVISOR > time {
            if self.is_suspected {
                self.contention = (2 * self.contention).clamp(CONTENTION_MIN, CONTENTION_MAX);
                self.contended_until = Some(now + self.contention);
            }
            self.is_suspected = true;
        } else if self.contended_until.is_none() {
            (self.is_suspected, self.contention) = (false, Duration::ZERO);
        }
        self.began = Some((now, run_delay));
    }
}

/// The processor time of this thread, up to this moment.
pub(crate) fn cpu_time() -> Duration {
    let mut cpu = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `cpu` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut cpu) };
    Duration::from_secs(cpu.tv_sec.unsigned_abs()) + Duration::from_nanos(cpu.tv_nsec.unsigned_abs())
}

/// The run delay of this thread; zero, so that no core is contended, if the kernel does not account for it.
pub(crate) fn run_delay() -> RunDelay {
    read_run_delay().unwrap_or_default()
}

/// Reads schedstat: nanoseconds running, nanoseconds waiting to run, number of timeslices (sched-stats.rst of the
/// kernel).
fn read_run_delay() -> Option<RunDelay> {
    let mut text = [0; 96];
    let length = File::open("/proc/thread-self/schedstat").ok()?.read(&mut text).ok()?;
    let mut numbers = str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().skip(1).map(str::parse);
    Some(RunDelay { waited: Duration::from_nanos(numbers.next()?.ok()?), timeslices: numbers.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The pauses of `polls` polls, one each `interval`, in a thread that is preempted for a time at every n-th poll.
    fn pauses(
        core_sharing: CoreSharing,
        polls: u32,
        interval: Duration,
        (each, preempted): (u32, Duration),
    ) -> Vec<Pause> {
        let (clock, cpu_time) = (Cell::new(Instant::now()), Cell::new(Duration::ZERO));
        let run_delay = Cell::new(RunDelay { waited: Duration::from_secs(3), timeslices: 7 });
        let mut backoff = Backoff::default();
        let poll = |number: u32| {
            clock.set(clock.get() + interval);
            cpu_time.set(cpu_time.get() + interval);
            if number.is_multiple_of(each) {
                clock.set(clock.get() + preempted);
                let RunDelay { waited, timeslices } = run_delay.get();
                run_delay.set(RunDelay { waited: waited + preempted, timeslices: timeslices + 1 });
            }
            backoff.pause(core_sharing, || clock.get(), || cpu_time.get(), || run_delay.get())
        };
        (1..=polls).map(poll).filter(|pause| *pause != Pause::Nothing).collect()
    }

    const NEVER: (u32, Duration) = (u32::MAX, Duration::ZERO);
    /// A competitor that computes: it has half of the core.
    const HALF: (u32, Duration) = (10_000, Duration::from_millis(3));
    const SHORT: Duration = Duration::from_nanos(300);

    #[test]
    fn an_oversubscribed_thread_that_only_polls_first_yields_then_sleeps() {
        let pauses = pauses(CoreSharing::Oversubscribed, BATCH * (IDLE_BATCHES_MAX + 10), SHORT, NEVER);
        let yields = pauses.iter().take_while(|pause| **pause == Pause::Yield).count();
        assert_eq!(yields, IDLE_BATCHES_MAX as usize);
        assert!(pauses[yields..].iter().all(|pause| *pause == Pause::Sleep(SLEEP_MIN)) && pauses.len() > yields);
    }

    #[test]
    fn oversubscribed_sleeps_double_on_timeout_and_reset_on_events() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.detector.contended_until = Some(start + CONTENTION_MAX);
        let mut sleep = |is_woken: bool| {
            let mut pause =
                || backoff.pause(CoreSharing::Oversubscribed, || start, Duration::default, RunDelay::default);
            let slept = (0..4 * BATCH).map(|_| pause()).find_map(|pause| match pause {
                Pause::Sleep(longest) => Some(longest),
                _ => None,
            });
            let longest = slept.expect("it sleeps");
            backoff.slept(if is_woken { Duration::ZERO } else { longest }, longest);
            longest.as_micros()
        };
        let idle_sleeps: Vec<u128> = (0..8).map(|_| sleep(false)).collect();
        assert_eq!(idle_sleeps, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!((sleep(true), sleep(false)), (1000, 50));
        sleep(false);
        backoff.reset();
        assert_eq!(backoff.idle_sleeps, 0);
    }

    #[test]
    fn an_oversubscribed_thread_polls_less_after_late_frames_and_more_after_early_ones() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let yields_before_sleep = |backoff: &mut Backoff| {
            let pause = || backoff.pause(CoreSharing::Oversubscribed, || now, Duration::default, RunDelay::default);
            let pauses = std::iter::repeat_with(pause).filter(|pause| *pause != Pause::Nothing);
            pauses.take_while(|pause| *pause == Pause::Yield).count() as u32
        };
        // A frame after this many sleeps.
        let yields_after = |backoff: &mut Backoff, sleeps: u32| {
            (0..sleeps).for_each(|_| backoff.slept(SLEEP_MIN, SLEEP_MIN));
            backoff.slept(Duration::ZERO, SLEEP_MIN);
            yields_before_sleep(backoff)
        };
        let late: Vec<u32> = (0..7).map(|_| yields_after(&mut backoff, EARLY_SLEEPS)).collect();
        assert_eq!(late, [16, 8, 4, 2, 1, 1, 1]);
        let early: Vec<u32> = (0..2).map(|_| yields_after(&mut backoff, EARLY_SLEEPS - 1)).collect();
        assert_eq!(early, [2, 4]);
        (0..10).for_each(|_| backoff.slept(SLEEP_MAX, SLEEP_MAX));
        assert_eq!(yields_before_sleep(&mut backoff), 4, "the program may make progress elsewhere");
        backoff.reset();
        assert_eq!(yields_before_sleep(&mut backoff), IDLE_BATCHES_MAX, "another wait");
    }

    #[test]
    fn an_oversubscribed_thread_that_computes_between_polls_never_sleeps() {
        let pauses =
            pauses(CoreSharing::Oversubscribed, BATCH * IDLE_BATCHES_MAX * 10, Duration::from_micros(10), NEVER);
        assert!(pauses.iter().all(|pause| *pause == Pause::Yield));
    }

    /// Each yield, by the program or by the provider, gives a competitor the core for a timeslice.
    #[test]
    fn an_oversubscribed_thread_that_loses_its_core_by_yielding_sleeps_at_once() {
        let pauses = pauses(CoreSharing::Oversubscribed, 10 * BATCH, SHORT, (BATCH, Duration::from_millis(3)));
        assert_eq!((pauses[0], &pauses[1..]), (Pause::Yield, &[Pause::Sleep(SLEEP_MIN); 9][..]));
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.detector.contended_until = Some(start + CONTENTION_MAX);
        let mut pause = || backoff.pause(CoreSharing::Oversubscribed, || start, Duration::default, RunDelay::default);
        let pauses: Vec<Pause> = (0..2 * BATCH).map(|_| pause()).filter(|pause| *pause != Pause::Nothing).collect();
        assert_eq!(pauses, [Pause::Sleep(SLEEP_MIN)], "also after an event, and without a preceding yield");
    }

    #[test]
    fn oversubscribed_contention_doubles_until_a_wait_keeps_its_core() {
        let (clock, cpu) = (Cell::new(Instant::now()), Cell::new(Duration::ZERO));
        // A batch with `descheduled` time without the core; the resulting milliseconds of contention.
        let batch = |backoff: &mut Backoff, descheduled: Duration| {
            clock.set(clock.get() + SHORT + descheduled);
            cpu.set(cpu.get() + SHORT);
            for _ in 0..BATCH {
                backoff.pause(CoreSharing::Oversubscribed, || clock.get(), || cpu.get(), RunDelay::default);
            }
            let until = backoff.detector.contended_until.filter(|until| clock.get() < *until);
            until.map(|until| until.duration_since(clock.get()).as_millis())
        };
        let mut backoff = Backoff::default();
        batch(&mut backoff, Duration::ZERO);
        let contended: Vec<u128> = (0..8).filter_map(|_| batch(&mut backoff, Duration::from_secs(2))).collect();
        assert_eq!(contended, [25, 50, 100, 200, 400, 800, 1000, 1000]);
        clock.set(clock.get() + CONTENTION_MAX);
        backoff.slept(Duration::ZERO, SLEEP_MAX);
        (0..=IDLE_BATCHES_MAX).for_each(|_| _ = batch(&mut backoff, Duration::ZERO));
        assert_eq!(batch(&mut backoff, DESCHEDULED_MIN * 2), Some(25), "the thread had its core for a whole wait");
    }

    #[test]
    fn an_event_restarts_the_backoff() {
        let now = Instant::now();
        let mut backoff = Backoff { idle_batches: IDLE_BATCHES_MAX, ..Backoff::default() };
        backoff.reset();
        let pauses: Vec<Pause> = (0..BATCH)
            .map(|_| backoff.pause(CoreSharing::Oversubscribed, || now, Duration::default, RunDelay::default))
            .collect();
        assert_eq!(pauses.last(), Some(&Pause::Yield));
    }

    #[test]
    fn a_thread_with_its_own_core_keeps_polling() {
        assert!(pauses(CoreSharing::Unknown, 1_000_000, SHORT, NEVER).is_empty());
        assert!(pauses(CoreSharing::Exclusive, 1_000_000, SHORT, HALF).is_empty());
    }

    #[test]
    fn a_thread_that_is_preempted_briefly_or_rarely_keeps_polling() {
        let briefly = (1000, Duration::from_micros(20));
        assert!(pauses(CoreSharing::Unknown, 1_000_000, SHORT, briefly).is_empty());
        let rarely = (200_000, Duration::from_millis(3));
        assert!(pauses(CoreSharing::Unknown, 10_000_000, SHORT, rarely).is_empty());
    }

    #[test]
    fn computing_between_polls_does_not_count_as_preemption() {
        assert!(pauses(CoreSharing::Unknown, 10_000, Duration::from_millis(1), NEVER).is_empty());
    }

    #[test]
    fn a_preempted_thread_sleeps_after_polling_for_a_while() {
        let pauses = pauses(CoreSharing::Unknown, 5_000_000, SHORT, HALF);
        assert!(pauses.len() > 1000 && pauses.iter().all(|pause| *pause == Pause::Sleep(SLEEP_MAX)));
    }

    #[test]
    fn detected_contention_doubles_until_the_thread_has_its_core() {
        let mut detector = ContentionDetector::default();
        let (mut now, mut run_delay) = (Instant::now(), RunDelay::default());
        // The milliseconds of contention after a window in which the thread had its core for all, or for half, of the
        // time.
        let mut window = |has_core: bool| {
            now = detector.contended_until.unwrap_or(now);
            detector.sample(now, || run_delay);
            now += WINDOW;
            run_delay.waited += if has_core { Duration::ZERO } else { WINDOW / 2 };
            run_delay.timeslices += TIMESLICES_MIN;
            detector.sample(now, || run_delay);
            detector.contended_until.map(|until| until.duration_since(now).as_millis())
        };
        let contended: Vec<Option<u128>> = (0..8).map(|_| window(false)).collect();
        let expected = [50, 100, 200, 400, 800, 1000, 1000].map(Some);
        assert_eq!((contended[0], &contended[1..]), (None, &expected[..]), "one window is not enough");
        let again = [window(true), window(false), window(true), window(false), window(false), window(false)];
        assert_eq!(again, [None, None, None, None, Some(50), Some(100)]);
    }

    #[test]
    fn threads_that_poll_alternately_are_told_apart() {
        let start = Instant::now();
        let mut detector = ContentionDetector::default();
        let waited = |windows: u32| {
            move || RunDelay { waited: windows * WINDOW, timeslices: u64::from(windows) * TIMESLICES_MIN }
        };
        detector.sample(start, waited(100));
        thread::scope(|scope| {
            scope.spawn(|| detector.sample(start + 2 * WINDOW, waited(1000)));
        });
        detector.sample(start + 4 * WINDOW, waited(100));
        detector.sample(start + 6 * WINDOW, waited(90));
        assert!(detector.contended_until.is_none() && !detector.is_suspected);
        detector.sample(start + 8 * WINDOW, waited(92));
        detector.sample(start + 10 * WINDOW, waited(94));
        assert!(detector.contended_until.is_some());
    }

    #[test]
    fn the_run_delay_excludes_sleep() {
        let before = read_run_delay().expect("needs a kernel with CONFIG_SCHED_INFO");
        let sleep = Duration::from_millis(200);
        thread::sleep(sleep);
        let after = read_run_delay().expect("as before");
        assert!(
            after.timeslices > before.timeslices
                && after.waited >= before.waited
                && after.waited < before.waited + sleep
        );
    }

    #[test]
    fn sleeps_that_time_out_become_rare() {
        let mut backoff = Backoff::default();
        (0..20).for_each(|_| backoff.slept(SLEEP_MAX, SLEEP_MAX));
        assert_eq!(backoff.detector.extra_polling, POLLING_MAX);
        backoff.slept(SLEEP_MAX / 2, SLEEP_MAX);
        assert_eq!(backoff.detector.extra_polling, Duration::ZERO);
    }
}
