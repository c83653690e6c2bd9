// SPDX-License-Identifier: Apache-2.0 OR MIT
//! T1 from measured round-trip times: smoothed mean and deviation, as in RFC 6298. Samples are polls, and PDUs sent
//! only once, two at a time. A peer that polls only between its computations is usually prompt but occasionally late:
//! spurious timeouts raise a floor of T1.

use crate::bounds;
use crate::config::Parameters;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// Smoothed round-trip time and its mean deviation, in ns; both 0 before the first measurement.
    smoothed_ns: u64,
    deviation_ns: u64,
    /// T1 before backoff.
    t1_ns: u64,
    /// Lower bound of T1: twice the delay of the peer's last late answer.
    t1_floor_ns: u64,
    /// The two PDUs being timed and when they were sent, `NEVER` if none: the first after the last measurement, and
    /// the newest. The first PDU of a burst meets empty queues, the last one full queues.
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
            t1_floor_ns: parameters.t1_min_ns,
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

    /// Estimate of a round trip, also before the first measurement.
    pub(crate) const fn estimate_ns(&self) -> u64 {
        if self.smoothed_ns == 0 { self.t1_ns } else { self.smoothed_ns }
    }

    /// Age at which a PDU is overdue if later ones have arrived: a round trip and some more, as in RFC 8985.
    pub(crate) fn overdue_ns(&self) -> u64 {
        self.estimate_ns().saturating_add((2 * self.deviation_ns).max(self.smoothed_ns / 4))
    }

    /// Records the first transmission of a PDU.
    #[inline]
    pub(crate) fn sent(&mut self, index: u32, now: Instant) {
        if self.sent == Instant::NEVER {
            (self.index, self.sent) = (index, now);
        } else {
            (self.newest, self.newest_sent) = (index, now);
        }
    }

    /// Measures the timed PDUs that lie before `acknowledged`.
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

    /// Stops the measurements: after a retransmission they would be ambiguous.
    pub(crate) fn cancel(&mut self) {
        (self.sent, self.newest_sent) = (Instant::NEVER, Instant::NEVER);
    }

    /// T1 after the given number of retransmissions.
    #[inline]
    pub(crate) fn timeout_ns(&self, parameters: &Parameters, retries: u8) -> u64 {
        self.t1_ns.saturating_mul(1 << retries.min(32)).min(parameters.t1_max_ns)
    }

    /// Adds a round-trip sample.
    pub(crate) fn measure(&mut self, sample_ns: u64, parameters: &Parameters) {
        let sample_ns = sample_ns.max(1);
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.deviation_ns) = (sample_ns, sample_ns / 2);
        } else {
            let deviation = self.smoothed_ns.abs_diff(sample_ns);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + deviation / 4;
            self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + sample_ns / 8).max(1);
        }
        // The peer may delay its acknowledgement as long as this end would.
        let spread = self.deviation_ns.saturating_mul(4).max(parameters.t1_min_ns / 4);
        let t1_ns = self.smoothed_ns.saturating_add(spread).saturating_add(parameters.acknowledge_delay_ns);
        self.t1_ns = t1_ns.max(self.t1_floor_ns);
    }

    /// T1 expired although no PDU was lost: raises the floor of T1. If the poll was answered promptly, only an
    /// acknowledgement was lost and the peer was not late.
    pub(crate) fn timeout_was_spurious(&mut self, poll_round_trip_ns: Option<u64>, parameters: &Parameters) {
        if poll_round_trip_ns.is_some_and(|after_ns| after_ns <= self.smoothed_ns.saturating_mul(2)) {
            return;
        }
        let most = (bounds::T1_FLOOR_MAX.as_nanos() as u64).clamp(parameters.t1_min_ns, parameters.t1_max_ns);
        let late_ns = poll_round_trip_ns.map_or(self.t1_floor_ns, |after_ns| self.t1_ns.saturating_add(after_ns));
        self.t1_floor_ns = late_ns.saturating_mul(2).clamp(self.t1_floor_ns, most);
        self.t1_ns = self.t1_ns.max(self.t1_floor_ns);
    }

    /// A PDU was lost: drops the floor of T1, since slow recovery costs more than a needless poll.
    pub(crate) fn lost(&mut self, parameters: &Parameters) {
        self.t1_floor_ns = parameters.t1_min_ns;
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
    fn t1_follows_the_round_trip_within_bounds_and_doubles() {
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
    fn spurious_timeouts_raise_t1_until_a_loss() {
        let parameters = parameters();
        let mut round_trip = RoundTrip::new(&parameters);
        let prompt = |round_trip: &mut RoundTrip| {
            for _ in 0..100 {
                round_trip.measure(30_000, &parameters);
            }
            round_trip.timeout_ns(&parameters, 0)
        };
        assert_eq!(prompt(&mut round_trip), parameters.t1_min_ns);
        round_trip.timeout_was_spurious(Some(30_000), &parameters);
        assert_eq!(prompt(&mut round_trip), parameters.t1_min_ns, "an acknowledgement was lost");
        round_trip.timeout_was_spurious(Some(300_000), &parameters);
        assert_eq!(prompt(&mut round_trip), 2 * (parameters.t1_min_ns + 300_000));
        for _ in 0..100 {
            round_trip.timeout_was_spurious(None, &parameters);
        }
        assert_eq!(prompt(&mut round_trip), bounds::T1_FLOOR_MAX.as_nanos() as u64);
        round_trip.lost(&parameters);
        assert_eq!(prompt(&mut round_trip), parameters.t1_min_ns);
    }

    #[test]
    fn retransmitted_pdu_is_not_measured() {
        let parameters = parameters();
        let mut round_trip = RoundTrip::new(&parameters);
        round_trip.sent(7, Instant::from_nanos(0));
        round_trip.cancel();
        round_trip.acknowledged(8, Instant::from_nanos(5), &parameters);
        assert_eq!(round_trip.smoothed_ns(), None);
    }
}
