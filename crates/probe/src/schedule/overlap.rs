// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time in which all processes were active. Only work within it shows how they share resources.

use crate::measure::Samples;
use crate::protocol::Mark;

/// A time span, in `CLOCK_MONOTONIC` of the machine that the processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Overlap {
    /// Intersection of all spans; `None` if one is missing or the intersection is empty.
    pub fn of(spans: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let mut common = Self { from_ns: 0, to_ns: u64::MAX };
        for span in spans {
            let span = span?;
            common = Self { from_ns: common.from_ns.max(span.from_ns), to_ns: common.to_ns.min(span.to_ns) };
        }
        (common.from_ns < common.to_ns).then_some(common)
    }

    /// From the start of the first round trip to the end of the last.
    pub fn of_round_trips(samples: &Samples) -> Option<Self> {
        let (from_ns, last) = (*samples.began_ns.first()?, *samples.began_ns.last()?);
        Some(Self { from_ns, to_ns: last + samples.values_ns.last()? })
    }

    /// From the first mark to the last.
    pub fn of_marks(marks: &[Mark]) -> Option<Self> {
        Some(Self { from_ns: marks.first()?.at_ns, to_ns: marks.last()?.at_ns })
    }

    pub fn duration_ns(self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// Times of the round trips that lie entirely within.
    pub fn round_trips(self, samples: &Samples) -> Vec<u64> {
        let within =
            |(began_ns, &ns): (&u64, &u64)| (*began_ns >= self.from_ns && began_ns + ns <= self.to_ns).then_some(ns);
        samples.began_ns.iter().zip(&samples.values_ns).filter_map(within).collect()
    }

    /// Messages received within, by linear interpolation between marks.
    pub fn messages(self, marks: &[Mark]) -> f64 {
        (messages_at(marks, self.to_ns) - messages_at(marks, self.from_ns)).max(0.0)
    }
}

fn messages_at(marks: &[Mark], at_ns: u64) -> f64 {
    let next = marks.partition_point(|mark| mark.at_ns <= at_ns);
    let Some(before) = next.checked_sub(1).map(|before| marks[before]) else { return 0.0 };
    let Some(after) = marks.get(next) else { return before.messages.into() };
    let share = (at_ns - before.at_ns) as f64 / (after.at_ns - before.at_ns) as f64;
    f64::from(before.messages) + share * f64::from(after.messages - before.messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ns: u64, to_ns: u64) -> Option<Overlap> {
        Some(Overlap { from_ns, to_ns })
    }

    fn marks(points: &[(u64, u32)]) -> Vec<Mark> {
        points.iter().map(|&(at_ns, messages)| Mark { at_ns, messages }).collect()
    }

    #[test]
    fn the_overlap_is_the_intersection_of_all_spans() {
        assert_eq!(Overlap::of([span(10, 100), span(30, 120), span(20, 90)]), span(30, 90));
        assert_eq!(Overlap::of([span(10, 100)]), span(10, 100));
    }

    #[test]
    fn disjoint_or_missing_spans_leave_no_overlap() {
        assert_eq!(Overlap::of([span(10, 20), span(20, 30)]), None);
        assert_eq!(Overlap::of([span(10, 20), None]), None);
    }

    #[test]
    fn a_round_trip_partly_outside_the_overlap_does_not_count() {
        let samples = Samples { began_ns: vec![0, 10, 20, 30], values_ns: vec![9, 8, 7, 6], ..Samples::default() };
        assert_eq!(Overlap::of_round_trips(&samples), span(0, 36));
        assert_eq!(span(10, 30).unwrap().round_trips(&samples), [8, 7]);
        assert_eq!(span(11, 26).unwrap().round_trips(&samples), [0; 0]);
    }

    #[test]
    fn messages_are_interpolated_between_marks() {
        let marks = marks(&[(100, 0), (200, 10), (400, 20)]);
        assert_eq!(Overlap::of_marks(&marks), span(100, 400));
        for (from_ns, to_ns, expected) in [(100, 400, 20.0), (150, 300, 10.0), (0, 1000, 20.0), (200, 300, 5.0)] {
            assert!((Overlap { from_ns, to_ns }.messages(&marks) - expected).abs() < 1e-9, "{from_ns} to {to_ns}");
        }
    }
}
