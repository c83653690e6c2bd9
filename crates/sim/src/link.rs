// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link of a goodput run.

use crate::network::SHORT_FRAME;
use crate::scenario::{MS, US};

/// A link between two hosts, and the duration of a run.
#[derive(Clone, Debug)]
pub struct Link {
    /// Rate in bits per second.
    pub rate_bit_s: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Additional delay of each path behind the sender's interface; each frame takes a random one. Empty: one path.
    pub paths_ns: Vec<u64>,
    /// Probability of losing a frame, in both directions.
    pub loss: f64,
    /// Wire bytes of a frame with data.
    pub frame_bytes: u64,
    /// Wire bytes of a frame without data.
    pub short_bytes: u64,
    /// Duration of a run, in virtual time.
    pub duration_ns: u64,
}

impl Link {
    /// 1 Gb/s, 5 µs, full frames, 200 ms.
    #[must_use]
    pub fn gigabit(loss: f64) -> Self {
        let (frame_bytes, short_bytes) = (1538, SHORT_FRAME);
        Self {
            rate_bit_s: 1_000_000_000,
            delay_ns: 5 * US,
            paths_ns: Vec::new(),
            loss,
            frame_bytes,
            short_bytes,
            duration_ns: 200 * MS,
        }
    }

    /// Transmission time of a frame.
    #[must_use]
    pub fn time_ns(&self, bytes: u64) -> u64 {
        bytes * 8 * 1_000_000_000 / self.rate_bit_s
    }

    /// Share of the wire limit, in thousandths.
    #[must_use]
    pub fn share(&self, delivered: u64) -> u64 {
        let max = self.duration_ns / self.time_ns(self.frame_bytes);
        (delivered * 1000 + max / 2) / max
    }
}
