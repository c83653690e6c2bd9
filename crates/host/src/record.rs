// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of a launch: JSON Lines with raw samples, no statistics. `docs/method.md` describes the schema; a change of
//! meaning raises its version.

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
    /// Own core.
    pub cpu: usize,
    /// Core of the answering process across cores.
    pub other_cpu: Option<usize>,
    pub clock_read_ns: u64,
    pub clock_step_ns: u64,
    /// Minimum duration of a stretch, except in warm-up.
    pub stretch_ns: u64,
    pub seconds: f64,
    /// Data caches of the own core, smallest first.
    pub cache_bytes: Vec<usize>,
    /// Vector width of the memory kernels.
    pub vector_bytes: usize,
    /// Bytes of the measured memory in huge pages; null for other tests.
    pub huge_page_bytes: Option<usize>,
}

/// Timed stretches of one subject at one block size, with equal numbers of operations.
#[derive(Serialize)]
pub struct Values<'a> {
    pub subject: &'a str,
    /// 0 where an operation has no size.
    pub block_bytes: usize,
    pub phase: Phase,
    pub quantity: Quantity,
    pub unit: &'a str,
    /// Operations per stretch.
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

/// How to interpret a stretch.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Block bytes times operations per time.
    Bandwidth,
    /// Time of one operation.
    Time,
}

/// Last line of a launch, successful or not.
#[derive(Serialize)]
pub struct End {
    pub complete: bool,
    pub error: Option<String>,
    pub peak_rss_kib: i64,
    /// Sends that were refused and retried.
    pub send_busy: u64,
}
