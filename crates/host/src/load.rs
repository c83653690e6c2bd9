// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory read latency by block size: each load needs the value of the previous one.
//!
//! In strides the prefetchers help, in random order they cannot; neither can the processor overlap the loads.

use std::hint::black_box;
use std::io::Write;

use crate::memory::block_sizes;
use crate::record::Quantity;
use crate::region::Region;
use crate::stretch::{Effort, Subject, measure};
use barewire_recorder::LaunchError;

/// Distance between loads: two lines, because some processors fetch lines in pairs.
const STRIDE_BYTES: usize = 128;
const STRIDE: usize = STRIDE_BYTES / size_of::<u64>();
/// Loads per repetition.
const LOADS: u64 = 256;

/// Most loads before the first timed one.
const WARM_UP_LOADS: usize = 1 << 20;

#[derive(Clone, Copy)]
enum Order {
    Strides,
    Random,
}

/// Memory for [`run`].
pub fn block(largest: usize) -> Result<Region, LaunchError> {
    Region::anonymous(*block_sizes(largest).last().expect("there is always a size"))
}

pub fn run(
    block: &mut Region,
    largest: usize,
    random: &mut fastrand::Rng,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let orders = [(Order::Strides, "stride-128"), (Order::Random, "random")];
    let mut points: Vec<_> =
        block_sizes(largest).into_iter().flat_map(|bytes| orders.map(|order| (bytes, order))).collect();
    random.shuffle(&mut points);
    for (bytes, (order, name)) in points {
        let words = &mut block.words_mut()[..bytes / size_of::<u64>()];
        chain(words, order, random);
        // Larger blocks are in no cache anyway.
        let mut at = follow(words, 0, (words.len() / STRIDE).min(WARM_UP_LOADS) as u64);
        let repeat = |times| {
            at = black_box(follow(words, at, times * LOADS));
            Ok(())
        };
        let mut subjects = [Subject { name, operations: LOADS, repeat: Box::new(repeat) }];
        measure(&mut subjects, bytes, Quantity::Time, effort, output)?;
    }
    Ok(())
}

/// Writes into every `STRIDE`th word the index of the next one, in one cycle over all of them.
fn chain(words: &mut [u64], order: Order, random: &mut fastrand::Rng) {
    let mut places: Vec<usize> = (0..words.len() / STRIDE).map(|number| number * STRIDE).collect();
    if matches!(order, Order::Random) {
        random.shuffle(&mut places);
    }
    for (number, place) in places.iter().enumerate() {
        words[*place] = places[(number + 1) % places.len()] as u64;
    }
}

/// Follows the chain from a word for `loads` loads; returns the last value.
#[inline(never)]
fn follow(words: &[u64], mut at: u64, loads: u64) -> u64 {
    for _ in 0..loads {
        at = words[at as usize];
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_cycle_over_all_strides() {
        let mut words = [u64::MAX; 100 * STRIDE];
        for order in [Order::Strides, Order::Random] {
            chain(&mut words, order, &mut fastrand::Rng::with_seed(7));
            let mut seen = [false; 100];
            let mut at = 0;
            for _ in 0..100 {
                at = follow(&words, at, 1);
                assert!(!std::mem::replace(&mut seen[at as usize / STRIDE], true), "{at} twice");
            }
            assert_eq!(at, 0, "the chain is closed");
        }
    }
}
