// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a launch prints: JSON Lines, raw samples and no statistics. `docs/method.md` describes the schema; a change
//! of meaning raises its version.

use serde::Serialize;

pub const SCHEMA: &str = "barewire-host-records/1";

#[derive(Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record<'a> {
    Start(Start<'a>),
    Samples(Values<'a>),
    End(End),
}

/// Parameters and environment.
#[derive(Serialize)]
pub struct Start<'a> {
    pub schema: &'a str,
    pub version: &'a str,
    pub test: &'a str,
    pub seed: u64,
    /// Own core, and the one of who answers across cores.
    pub cpu: usize,
    pub other_cpu: Option<usize>,
    pub clock_read_ns: u64,
    pub clock_step_ns: u64,
    /// No timed stretch is shorter, except in warm-up.
    pub stretch_ns: u64,
    pub seconds: f64,
    /// Data caches of the own core, smallest first.
    pub cache_bytes: Vec<usize>,
    /// Width of the vectors that memory is read and written with.
    pub vector_bytes: usize,
    /// How much of the measured memory lies in huge pages; null where nobody asked.
    pub huge_page_bytes: Option<usize>,
}

/// Timed stretches of one subject at one block size, each of the same number of operations.
#[derive(Serialize)]
pub struct Values<'a> {
    pub subject: &'a str,
    /// 0 where an operation has no size.
    pub block_bytes: usize,
    pub phase: Phase,
    pub quantity: Quantity,
    pub unit: &'a str,
    /// In each stretch.
    pub operations: u64,
    /// Time of each stretch, in the order of measurement.
    pub values: &'a [u64],
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Warmup,
    Measure,
}

/// What readers make of a stretch.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Bytes of the block, times operations, per time.
    Bandwidth,
    /// Time of one operation.
    Time,
}

/// The last line of a launch that ended by itself, well or not.
#[derive(Serialize)]
pub struct End {
    pub complete: bool,
    pub error: Option<String>,
    pub peak_rss_kib: i64,
    /// Sends that the system refused for the moment and that were tried again.
    pub send_busy: u64,
}
