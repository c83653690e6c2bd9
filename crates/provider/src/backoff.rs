// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread that waits does between polls that find nothing: it polls on, yields its core, or sleeps.
//!
//! Where ranks outnumber cores, the launcher says so: then it yields, and sleeps after some hundred polls. Otherwise the
//! thread finds out by itself whether others compete for its core: if it was preempted, it sleeps soon for a while, so that
//! they run while it waits and it is due when its message comes.

use std::time::{Duration, Instant};

/// Polls in vain between two looks at the clock, or between two yields.
const STRETCH: u32 = 8;
/// A program that takes longer for a stretch computes in between, and would have to wait for the core.
const POLLS_ONLY: Duration = Duration::from_micros(20);
/// Stretches of nothing but polls after which a crowded thread sleeps.
const STRETCHES: u32 = 32;
/// The longest sleep: the program may have other things to make progress with, of which the provider does not know.
pub(crate) const SLEEP: Duration = Duration::from_millis(1);

/// Polls in vain between two looks for preemption, so that a look costs nothing that can be measured.
const LOOK_EVERY: u32 = 64;
/// A gap between two looks from which on the thread may have been preempted: less than the scheduler's shortest slice.
const GAP: Duration = Duration::from_micros(500);
/// A thread that was preempted takes its core for contended for so long: a wrong guess costs a preemption, of 1 to 4 ms.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// How long it polls on a contended core before it sleeps: about what sleeping and waking costs.
const POLLING_CONTENDED: Duration = Duration::from_micros(20);

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
    /// Stretches in a row in which the program did nothing else.
    stretches: u32,
    watch: Watch,
}

/// Looks for preemption.
#[derive(Default)]
struct Watch {
    polls: u32,
    looked: Option<Instant>,
    /// Involuntary context switches at the last look.
    switches: u64,
    contended_until: Option<Instant>,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Nothing,
    Yield,
    /// Until something comes, or for [`SLEEP`].
    Sleep,
}

impl Backoff {
    /// A poll found something.
    #[inline]
    pub fn end(&mut self) {
        (self.polls, self.stretches) = (0, 0);
    }

    /// A poll found nothing. `switches` tells how often the thread was preempted so far.
    #[inline(always)]
    pub fn pause(&mut self, competition: Competition, now: impl Fn() -> Instant, switches: impl Fn() -> u64) -> Pause {
        match competition {
            Competition::None => Pause::Nothing,
            Competition::Crowded => self.pause_crowded(now),
            Competition::Unknown => {
                self.watch.polls += 1;
                if self.watch.polls < LOOK_EVERY && self.watch.contended_until.is_none() {
                    return Pause::Nothing;
                }
                self.pause_watching(now, switches)
            }
        }
    }

    /// On a core that others may want.
    #[cold]
    fn pause_watching(&mut self, now: impl Fn() -> Instant, switches: impl Fn() -> u64) -> Pause {
        if self.watch.polls >= LOOK_EVERY {
            self.watch.polls = 0;
            self.watch.look(now(), switches);
        }
        if self.watch.contended_until.is_none() {
            return Pause::Nothing;
        }
        self.polls += 1;
        match self.polls {
            1 => self.began = Some(now()),
            polls if polls.is_multiple_of(STRETCH) => {
                let polling = self.began.map_or(Duration::ZERO, |began| now().duration_since(began));
                if polling >= POLLING_CONTENDED {
                    return Pause::Sleep;
                }
            }
            _ => {}
        }
        Pause::Nothing
    }

    /// On a core that others certainly want.
    fn pause_crowded(&mut self, now: impl Fn() -> Instant) -> Pause {
        self.polls += 1;
        if self.polls == 1 {
            self.began = Some(now());
        }
        if self.polls < STRETCH {
            return Pause::Nothing;
        }
        self.polls = 0;
        let polls_only = self.began.is_some_and(|began| now().duration_since(began) < POLLS_ONLY);
        self.stretches = if polls_only { self.stretches + 1 } else { 0 };
        if self.stretches < STRETCHES {
            return Pause::Yield;
        }
        self.stretches = STRETCHES;
        Pause::Sleep
    }
}

impl Watch {
    fn look(&mut self, now: Instant, switches: impl Fn() -> u64) {
        if self.looked.is_some_and(|looked| now.duration_since(looked) >= GAP) {
            let switches = switches();
            if switches > self.switches {
                self.switches = switches;
                self.contended_until = Some(now + CONTENDED_FOR);
            }
        } else if self.looked.is_none() {
            self.switches = switches();
        }
        self.looked = Some(now);
        self.contended_until = self.contended_until.filter(|until| now < *until);
    }
}

/// How often this thread was preempted so far.
pub(crate) fn preemptions() -> u64 {
    // SAFETY: plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid to be written to.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Pauses of so many polls that are so far apart, on a thread that is preempted at each n-th of them for 3 ms.
    fn pauses(competition: Competition, polls: u32, apart: Duration, preempted_each: u32) -> Vec<Pause> {
        let (clock, switches) = (Cell::new(Instant::now()), Cell::new(7));
        let mut backoff = Backoff::default();
        let poll = |number: u32| {
            clock.set(clock.get() + apart);
            if number.is_multiple_of(preempted_each) {
                clock.set(clock.get() + Duration::from_millis(3));
                switches.set(switches.get() + 1);
            }
            backoff.pause(competition, || clock.get(), || switches.get())
        };
        (1..=polls).map(poll).filter(|pause| *pause != Pause::Nothing).collect()
    }

    const SHORT: Duration = Duration::from_nanos(300);

    #[test]
    fn a_crowded_thread_that_only_polls_yields_for_a_while_and_then_sleeps() {
        let pauses = pauses(Competition::Crowded, STRETCH * (STRETCHES + 10), SHORT, u32::MAX);
        let yields = pauses.iter().take_while(|pause| **pause == Pause::Yield).count();
        assert_eq!(yields, STRETCHES as usize - 1);
        assert!(pauses[yields..].iter().all(|pause| *pause == Pause::Sleep) && pauses.len() > yields);
    }

    #[test]
    fn a_crowded_thread_that_computes_between_polls_never_sleeps() {
        let pauses = pauses(Competition::Crowded, STRETCH * STRETCHES * 10, Duration::from_micros(10), u32::MAX);
        assert!(pauses.iter().all(|pause| *pause == Pause::Yield));
    }

    #[test]
    fn news_begins_anew() {
        let now = Instant::now();
        let mut backoff = Backoff { stretches: STRETCHES, ..Backoff::default() };
        backoff.end();
        let pauses: Vec<Pause> = (0..STRETCH).map(|_| backoff.pause(Competition::Crowded, || now, || 0)).collect();
        assert_eq!(pauses.last(), Some(&Pause::Yield));
    }

    #[test]
    fn a_thread_that_has_its_core_polls_on() {
        assert!(pauses(Competition::Unknown, 1_000_000, SHORT, u32::MAX).is_empty());
        assert!(pauses(Competition::None, 1_000_000, SHORT, 100).is_empty());
    }

    #[test]
    fn a_thread_that_computes_between_polls_is_not_taken_for_preempted() {
        assert!(pauses(Competition::Unknown, 10_000, Duration::from_millis(1), u32::MAX).is_empty());
    }

    #[test]
    fn a_preempted_thread_sleeps_when_it_has_polled_for_a_while_and_forgets_it_after_a_second() {
        let pauses = pauses(Competition::Unknown, 5_000_000, SHORT, 10_000);
        assert!(pauses.len() > 1000 && pauses.iter().all(|pause| *pause == Pause::Sleep));
        let mut backoff = Backoff::default();
        let start = Instant::now();
        backoff.watch = Watch { contended_until: Some(start + CONTENDED_FOR), ..Watch::default() };
        backoff.watch.look(start + CONTENDED_FOR, || 0);
        assert_eq!(backoff.watch.contended_until, None);
    }
}
