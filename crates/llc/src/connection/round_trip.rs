// SPDX-License-Identifier: Apache-2.0 OR MIT
//! T1 from measured round trips: smoothed mean and deviation, as in RFC 6298. Only PDUs sent once are
//! measured, two at a time, and polls. A peer that answers only between its own computations is mostly prompt, and late
//! now and then: T1 learns from that as well.

use crate::bounds;
use crate::config::Parameters;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// Smoothed round trip and its mean deviation, in ns; both 0 before the first measurement.
    smoothed_ns: u64,
    deviation_ns: u64,
    /// T1 before any repetition.
    t1_ns: u64,
    /// The least that it may be: twice as long as the peer took when it was late the last time.
    least_ns: u64,
    /// The PDUs being timed and when they were sent, never if none is: one from its time on until it is acknowledged, and
    /// the newest. Of a burst the first meets empty queues, and the last one all that lies between.
    index: u32,
    sent: Instant,
    newest: u32,
    newest_sent: Instant,
}

impl RoundTrip {
    pub(crate) fn new(parameters: &Parameters) -> Self {
        let t1_ns = parameters.t1_initial_ns.max(parameters.t1_min_ns);
        Self {
            smoothed_ns: 0,
            deviation_ns: 0,
            t1_ns,
            least_ns: parameters.t1_min_ns,
            index: 0,
            sent: Instant::NEVER,
            newest: 0,
            newest_sent: Instant::NEVER,
        }
    }

    /// `None` before the first measurement.
    pub(crate) const fn smoothed_ns(&self) -> Option<u64> {
        if self.smoothed_ns == 0 { None } else { Some(self.smoothed_ns) }
    }

    /// A PDU goes out for the first time.
    #[inline]
    pub(crate) fn sent(&mut self, index: u32, now: Instant) {
        if self.sent == Instant::NEVER {
            (self.index, self.sent) = (index, now);
        } else {
            (self.newest, self.newest_sent) = (index, now);
        }
    }

    /// All PDUs before `acknowledged` have arrived.
    #[inline]
    pub(crate) fn acknowledged(&mut self, acknowledged: u32, now: Instant, parameters: &Parameters) {
        if self.sent != Instant::NEVER && acknowledged.wrapping_sub(self.index).wrapping_sub(1) < u32::MAX / 2 {
            self.measure(now.nanos_since(self.sent), parameters);
            self.sent = Instant::NEVER;
        }
        if self.newest_sent != Instant::NEVER && acknowledged == self.newest.wrapping_add(1) {
            self.measure(now.nanos_since(self.newest_sent), parameters);
            self.newest_sent = Instant::NEVER;
        }
    }

    /// Something goes out again: what is being timed would be ambiguous.
    pub(crate) fn cancel(&mut self) {
        (self.sent, self.newest_sent) = (Instant::NEVER, Instant::NEVER);
    }

    /// T1 for the given number of repetitions so far.
    #[inline]
    pub(crate) fn timeout_ns(&self, parameters: &Parameters, repetitions: u8) -> u64 {
        self.t1_ns.saturating_mul(1 << repetitions.min(32)).min(parameters.t1_max_ns)
    }

    /// A round trip took so long.
    pub(crate) fn measure(&mut self, sample_ns: u64, parameters: &Parameters) {
        let sample_ns = sample_ns.max(1);
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.deviation_ns) = (sample_ns, sample_ns / 2);
        } else {
            let deviation = self.smoothed_ns.abs_diff(sample_ns);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + deviation / 4;
            self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + sample_ns / 8).max(1);
        }
        // The peer may wait for a PDU to put its acknowledgement on, as long as this end would.
        let spread = self.deviation_ns.saturating_mul(4).max(parameters.t1_min_ns / 4);
        let t1_ns = self.smoothed_ns.saturating_add(spread).saturating_add(parameters.acknowledge_delay_ns);
        self.t1_ns = t1_ns.max(self.least_ns);
    }

    /// T1 was over and nothing lost: the peer was late. The poll was answered after so long, if that is known; if that was
    /// prompt, the peer was not, and only its acknowledgement was lost.
    pub(crate) fn was_impatient(&mut self, answered_after_ns: Option<u64>, parameters: &Parameters) {
        if answered_after_ns.is_some_and(|after_ns| after_ns <= self.smoothed_ns.saturating_mul(2)) {
            return;
        }
        let most = (bounds::T1_LEAST_MAX.as_nanos() as u64).clamp(parameters.t1_min_ns, parameters.t1_max_ns);
        let late_ns = answered_after_ns.map_or(self.least_ns, |after_ns| self.t1_ns.saturating_add(after_ns));
        self.least_ns = late_ns.saturating_mul(2).clamp(self.least_ns, most);
        self.t1_ns = self.t1_ns.max(self.least_ns);
    }

    /// Something was lost: where that happens, patience costs more than a poll in vain.
    pub(crate) fn lost(&mut self, parameters: &Parameters) {
        self.least_ns = parameters.t1_min_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnectionConfig;

    fn parameters() -> Parameters {
        ConnectionConfig::default().check().unwrap()
    }

    #[test]
    fn t1_follows_the_round_trip_within_its_bounds_and_doubles() {
        let parameters = parameters();
        let mut round_trip = RoundTrip::new(&parameters);
        assert_eq!(round_trip.timeout_ns(&parameters, 0), parameters.t1_initial_ns);
        for index in 0..100 {
            round_trip.sent(index, Instant::from_nanos(1_000));
            round_trip.acknowledged(index + 1, Instant::from_nanos(31_000), &parameters);
        }
        assert!((29_000..31_000).contains(&round_trip.smoothed_ns().unwrap()));
        assert_eq!(round_trip.timeout_ns(&parameters, 0), parameters.t1_min_ns);
        assert_eq!(round_trip.timeout_ns(&parameters, 3), 8 * parameters.t1_min_ns);
        assert_eq!(round_trip.timeout_ns(&parameters, 200), parameters.t1_max_ns);
    }

    #[test]
    fn t1_learns_from_a_peer_that_is_late_and_forgets_where_frames_are_lost() {
        let parameters = parameters();
        let mut round_trip = RoundTrip::new(&parameters);
        let prompt = |round_trip: &mut RoundTrip| {
            for _ in 0..100 {
                round_trip.measure(30_000, &parameters);
            }
            round_trip.timeout_ns(&parameters, 0)
        };
        assert_eq!(prompt(&mut round_trip), parameters.t1_min_ns);
        round_trip.was_impatient(Some(30_000), &parameters);
        assert_eq!(prompt(&mut round_trip), parameters.t1_min_ns, "an acknowledgement was lost");
        round_trip.was_impatient(Some(300_000), &parameters);
        assert_eq!(prompt(&mut round_trip), 2 * (parameters.t1_min_ns + 300_000));
        for _ in 0..100 {
            round_trip.was_impatient(None, &parameters);
        }
        assert_eq!(prompt(&mut round_trip), bounds::T1_LEAST_MAX.as_nanos() as u64);
        round_trip.lost(&parameters);
        assert_eq!(prompt(&mut round_trip), parameters.t1_min_ns);
    }

    #[test]
    fn a_pdu_sent_again_is_not_measured() {
        let parameters = parameters();
        let mut round_trip = RoundTrip::new(&parameters);
        round_trip.sent(7, Instant::from_nanos(0));
        round_trip.cancel();
        round_trip.acknowledged(8, Instant::from_nanos(5), &parameters);
        assert_eq!(round_trip.smoothed_ns(), None);
    }
}
