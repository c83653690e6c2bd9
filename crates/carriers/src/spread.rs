// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long frames to one peer, spread over several paths in turns. No I/O and no clock.

use crate::interface::{INTERFACES_MAX, is_fast_enough};

/// Bytes of a turn on the fastest path: few enough to spread a message of 64 KiB, and enough for one system call to
/// send several frames.
const TURN_BYTES: u32 = 12_000;

/// Whose turn it is among paths by frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    /// Bytes of each path's turn; 0: it does not take part.
    shares: [u32; INTERFACES_MAX],
    /// The path whose turn it is.
    path: usize,
    /// Bytes left of each path's turn; negative after a last frame that was longer.
    left: [i64; INTERFACES_MAX],
}

impl Spread {
    /// A spread over paths of these speeds, in Mbit/s; 0: none. `None` unless there are several that are fast enough.
    pub fn over(speeds: [u32; INTERFACES_MAX]) -> Option<Self> {
        let fastest = speeds.into_iter().max().unwrap_or(0);
        let share = |speed: u32| {
            if speed > 0 && is_fast_enough(speed, fastest) {
                (u64::from(TURN_BYTES) * u64::from(speed) / u64::from(fastest)) as u32
            } else {
                0
            }
        };
        let shares = speeds.map(share);
        let count = shares.iter().filter(|share| **share > 0).count();
        (count > 1).then_some(Self { shares, path: 0, left: [0; INTERFACES_MAX] })
    }

    /// The path of the next frame, of this length.
    #[inline]
    pub fn next(&mut self, bytes: usize) -> usize {
        while self.left[self.path] <= 0 {
            self.path = (self.path + 1) % INTERFACES_MAX;
            self.left[self.path] += i64::from(self.shares[self.path]);
        }
        self.left[self.path] -= bytes as i64;
        self.path
    }

    /// Whether a path takes part.
    pub fn has(&self, path: usize) -> bool {
        self.shares[path] > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spread_by_speed_in_turns() {
        for (speeds, frame, tolerance) in [
            ([1000, 1000, 0, 0], 1500, 0.01),
            ([0, 10_000, 5000, 2500], 1500, 0.02),
            ([1000, 1000, 1000, 1000], 9000, 0.01),
            ([25_000, 10_000, 0, 0], 9000, 0.02),
        ] {
            let mut spread = Spread::over(speeds).unwrap();
            let (mut bytes, mut longest, mut run, mut last) = ([0_usize; INTERFACES_MAX], 0, 0, usize::MAX);
            for _ in 0..10_000 {
                let path = spread.next(frame);
                bytes[path] += frame;
                run = if path == last { run + frame } else { frame };
                (last, longest) = (path, longest.max(run));
            }
            let total = f64::from(speeds.iter().sum::<u32>());
            for (bytes, speed) in bytes.into_iter().zip(speeds) {
                let (share, expected) = (bytes as f64 / (10_000 * frame) as f64, f64::from(speed) / total);
                assert!((share - expected).abs() < tolerance, "{speeds:?}: {share}, not {expected}");
            }
            assert!(longest <= 3 * frame.max(TURN_BYTES as usize), "{longest} bytes in a row");
        }
    }

    #[test]
    fn slow_paths_do_not_take_part_and_one_path_is_no_spread() {
        for speeds in [[0; 4], [1000, 0, 0, 0], [10_000, 100, 0, 0], [0, 0, 0, 7]] {
            assert!(Spread::over(speeds).is_none(), "{speeds:?}");
        }
        let mut spread = Spread::over([100, 10_000, 10_000, 0]).unwrap();
        assert!((0..100).all(|_| spread.next(1500) != 0));
    }
}
