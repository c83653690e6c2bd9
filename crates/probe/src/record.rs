// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of the active side: JSON Lines with raw samples, no statistics. `docs/method.md` describes the schema; a
//! change of meaning raises its version.

use serde::Serialize;

use crate::protocol::{Host, Kind, LinkKind, Test, Wait};
use crate::transport::Counters;

pub const SCHEMA: &str = "barewire-probe/1";

#[derive(Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record<'a> {
    Start(Box<Start<'a>>),
    Samples(Values<'a>),
    End(End),
}

/// Parameters and environment.
#[derive(Serialize)]
pub struct Start<'a> {
    pub schema: &'a str,
    pub version: &'a str,
    pub test: Test,
    pub transport: Kind,
    pub link: LinkKind,
    pub wait: Wait,
    pub pairs: u8,
    pub processes: u8,
    pub seed: u64,
    pub session: u32,
    pub sizes: &'a [u32],
    pub walk_bytes: usize,
    pub give_way: bool,
    pub rate_bit_s: Option<f64>,
    /// Largest payload of a frame or packet.
    pub mtu: Option<usize>,
    /// Library, provider and domain, where a library selects the path.
    pub path: Option<String>,
    pub clock_read_ns: u64,
    pub clock_step_ns: u64,
    pub host: Host,
    pub peer: Host,
}

/// Samples of one block of one pair, or of one process.
#[derive(Serialize)]
pub struct Values<'a> {
    pub pair: u8,
    pub message_bytes: u32,
    pub phase: Phase,
    pub block: u32,
    pub quantity: Quantity,
    pub unit: &'a str,
    pub values: &'a [u64],
    /// Stream: timed messages, interpolated between marks.
    pub messages: f64,
    pub lost: u32,
    pub corrupt: u32,
    pub pace_bit_s: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Warmup,
    Measure,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Time of a message and its answer.
    RoundTrip,
    /// Time of one message in each direction at once.
    Exchange,
    /// Time of all messages of the block, in one direction.
    Stream,
}

/// Last line of a launch, successful or not.
#[derive(Serialize)]
pub struct End {
    pub complete: bool,
    pub error: Option<String>,
    pub counters: Counters,
    pub peer_counters: Counters,
    pub peak_rss_kib: i64,
}
