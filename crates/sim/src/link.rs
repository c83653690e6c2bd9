// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link that goodput is measured on.

use crate::network::SHORT_FRAME;
use crate::scenario::{MS, US};

/// One link between two hosts, and how long it is watched.
#[derive(Clone, Debug)]
pub struct Link {
    /// Bits a second.
    pub rate_bit_s: u64,
    /// From end to end.
    pub delay_ns: u64,
    /// Further delay of each path behind the sender's interface; each frame takes one of them at random. Empty: one path.
    pub paths_ns: Vec<u64>,
    /// Probability that a frame is lost, either way.
    pub loss: f64,
    /// A frame with data, and one without, on the wire.
    pub frame_bytes: u64,
    /// See `frame_bytes`.
    pub short_bytes: u64,
    /// Virtual time.
    pub duration_ns: u64,
}

impl Link {
    /// 1 Gb/s, 5 µs, full frames, for a fifth of a second.
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

    /// How long a frame takes.
    #[must_use]
    pub fn time_ns(&self, bytes: u64) -> u64 {
        bytes * 8 * 1_000_000_000 / self.rate_bit_s
    }

    /// The share of what the wire could carry, in thousandths.
    #[must_use]
    pub fn share(&self, delivered: u64) -> u64 {
        let most = self.duration_ns / self.time_ns(self.frame_bytes);
        (delivered * 1000 + most / 2) / most
    }
}
