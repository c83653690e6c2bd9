// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What to do between questions that find nothing, where other processes want the core: give it away, and sleep once it is
//! plain that the program does nothing but ask.

use std::time::{Duration, Instant};

/// Questions in vain between two times that the core is given away.
const STRETCH: u32 = 8;
/// A program that takes longer for a stretch does something else in between, and would have to wait for it.
const ASKS_ONLY: Duration = Duration::from_micros(20);
/// Stretches of nothing but questions after which it sleeps.
const STRETCHES: u32 = 32;
/// The longest sleep: the program may have other things to make progress with, of which we do not know.
pub(crate) const SLEEP: Duration = Duration::from_millis(1);

/// The questions in vain since one that was not.
#[derive(Default)]
pub(crate) struct Leisure {
    questions: u32,
    began: Option<Instant>,
    /// Stretches in a row in which it did nothing else.
    stretches: u32,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Nothing,
    Yield,
    /// Until something comes, or for [`SLEEP`].
    Sleep,
}

impl Leisure {
    /// A question found something.
    #[inline]
    pub fn end(&mut self) {
        (self.questions, self.stretches) = (0, 0);
    }

    /// A question found nothing.
    #[inline]
    pub fn pause(&mut self, now: impl Fn() -> Instant) -> Pause {
        self.questions += 1;
        if self.questions == 1 {
            self.began = Some(now());
        }
        if self.questions < STRETCH {
            return Pause::Nothing;
        }
        self.questions = 0;
        let asks_only = self.began.is_some_and(|began| now().duration_since(began) < ASKS_ONLY);
        self.stretches = if asks_only { self.stretches + 1 } else { 0 };
        if self.stretches < STRETCHES {
            return Pause::Yield;
        }
        self.stretches = STRETCHES;
        Pause::Sleep
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Pauses of so many questions that are so far apart.
    fn pauses(questions: u32, apart: Duration) -> Vec<Pause> {
        let clock = Cell::new(Instant::now());
        let mut leisure = Leisure::default();
        let ask = |_| {
            clock.set(clock.get() + apart);
            leisure.pause(|| clock.get())
        };
        (0..questions).map(ask).filter(|pause| *pause != Pause::Nothing).collect()
    }

    #[test]
    fn who_only_asks_yields_for_a_while_and_sleeps_then() {
        let pauses = pauses(STRETCH * (STRETCHES + 10), Duration::from_nanos(300));
        let yields = pauses.iter().take_while(|pause| **pause == Pause::Yield).count();
        assert_eq!(yields, STRETCHES as usize - 1);
        assert!(pauses[yields..].iter().all(|pause| *pause == Pause::Sleep) && pauses.len() > yields);
    }

    #[test]
    fn who_computes_between_questions_never_sleeps() {
        let pauses = pauses(STRETCH * STRETCHES * 10, Duration::from_micros(10));
        assert!(pauses.iter().all(|pause| *pause == Pause::Yield));
    }

    #[test]
    fn news_begins_anew() {
        let now = Instant::now();
        let mut leisure = Leisure { stretches: STRETCHES, ..Leisure::default() };
        leisure.end();
        let pauses: Vec<Pause> = (0..STRETCH).map(|_| leisure.pause(|| now)).collect();
        assert_eq!(pauses.last(), Some(&Pause::Yield));
    }
}
