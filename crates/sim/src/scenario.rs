// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario of a seed: hosts, network faults, and the engine's configuration.

use core::time::Duration;

use barewire_llc::{AfterLoss, ConnectionConfig, StationConfig};
use fastrand::Rng;

/// Nanoseconds per microsecond and per millisecond.
pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// Parameters of a world, all determined by the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Hosts on the bridge, 2 to 4.
    pub hosts: usize,
    /// Faults of every wire until `faults_end_ns`.
    pub faults: Faults,
    /// When the faults stop; applications begin nothing new afterwards.
    pub faults_end_ns: u64,
    /// Rate of every wire, in bits per second.
    pub rate_bit_s: u64,
    /// Propagation delay of every wire.
    pub delay_ns: u64,
    /// Length of the queue of a bridge port, or of a paused host, in frames.
    pub queue_frames: usize,
    /// Wire bytes of a frame with data.
    pub frame_bytes: u64,
    /// Largest number of messages of a stream.
    pub messages: u32,
    /// Number of link outages, host pauses, and host restarts.
    pub outages: [usize; 3],
    /// Connections that each host initiates.
    pub connections: usize,
    /// Configuration of the stations.
    pub station: StationConfig,
}

/// Faults of a wire; probabilities are per frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Probability of loss, including damage that the FCS detects.
    pub loss: f64,
    /// Probability of duplication.
    pub duplication: f64,
    /// Probability of being overtaken by later frames.
    pub reordering: f64,
    /// Most frames that overtake one. Each may acknowledge a window, and N(S) and N(R) must not wrap meanwhile.
    pub reorder_distance: u8,
    /// Probability of a duplicate long after. Only between extended stations, which can detect it.
    pub late_duplication: f64,
    /// Probability of damage to the PDU that the FCS does not detect. An extended station's check does.
    pub undetected_corruption: f64,
    /// Maximum jitter.
    pub jitter_ns: u64,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let window = *choose(&mut rng, &[1, 2, 7, 16, 63, 63]);
        let connection = ConnectionConfig {
            window,
            receive_window: window.max(8),
            queue: 128,
            acknowledge_every: rng.u8(1..=(window / 2).max(1)),
            acknowledge_delay: Duration::from_micros(rng.u64(0..100)),
            t1_initial: Duration::from_millis(5),
            t1_max: Duration::from_millis(50),
            retries: rng.u8(8..20),
            busy_poll: Duration::from_millis(rng.u64(1..10)),
            stall_limit: Duration::from_secs(2),
            inactivity: Some(Duration::from_millis(500)),
            after_loss: *choose(&mut rng, &[AfterLoss::Keep, AfterLoss::Halve, AfterLoss::One]),
            grow_after: rng.u16(1..10),
            ..ConnectionConfig::default()
        };
        let none = 0.0;
        let faults = Faults {
            loss: *choose(&mut rng, &[none, 0.001, 0.01, 0.05, 0.2]),
            duplication: *choose(&mut rng, &[none, none, 0.01, 0.1]),
            reordering: *choose(&mut rng, &[none, none, 0.01, 0.1]),
            reorder_distance: (63 / window).min(6),
            undetected_corruption: *choose(&mut rng, &[none, none, none, 0.02]),
            jitter_ns: *choose(&mut rng, &[0, 0, 5 * US, 50 * US]),
            late_duplication: none,
        };
        let mut times = |max: usize| rng.usize(0..=max) * usize::from(rng.bool());
        let outages = [times(3), times(3), times(2)];
        let rate_bit_s = *choose(&mut rng, &[100_000_000, 1_000_000_000, 10_000_000_000]);
        let frame_bytes = *choose(&mut rng, &[84, 1538, 9038]);
        let queue_frames = *choose(&mut rng, &[8, 20, 100, 1000]);
        // Type 3 remembers datagrams for 100 ms: a longer queueing delay would make a duplicate look new.
        let is_extended = rng.bool();
        let connection = ConnectionConfig { is_extended, ..connection };
        let late_duplication = if is_extended { *choose(&mut rng, &[none, 0.02, 0.1]) } else { none };
        let reorder_distance = if is_extended { *choose(&mut rng, &[3, 30, 200]) } else { faults.reorder_distance };
        let longest_queue = 10 * MS * rate_bit_s / 8 / 1_000_000_000 / frame_bytes;
        let mut scenario = Self {
            hosts: *choose(&mut rng, &[2, 2, 2, 3, 4]),
            faults: Faults { late_duplication, reorder_distance, ..faults },
            faults_end_ns: 400 * MS,
            rate_bit_s,
            delay_ns: *choose(&mut rng, &[500, 5 * US, 50 * US]),
            queue_frames: queue_frames.min(longest_queue as usize),
            frame_bytes,
            messages: *choose(&mut rng, &[10, 100, 100, 600]),
            outages,
            connections: rng.usize(1..=3),
            station: StationConfig {
                connection,
                connections: 16,
                backlog: 8,
                datagram_peers: 8,
                hash_seed: seed,
                ..StationConfig::default()
            },
        };
        // Drawn last, so that all other draws of a seed stay the same.
        scenario.station.connection.patience = Duration::from_millis(*choose(&mut rng, &[0, 0, 300, 1500]));
        scenario
    }

    /// Whether a live peer may be given up: with go-back-N a window that exceeds the network's queues keeps them full
    /// of frames that are repeated, and N2 answers to polls in a row may be lost in them. Without a patience, which is
    /// the standard, nothing else shows that the peer is alive.
    #[must_use]
    pub fn may_starve(&self) -> bool {
        let connection = &self.station.connection;
        let is_overrun = usize::from(connection.window) > self.queue_frames;
        is_overrun && !connection.is_extended && connection.patience.is_zero()
    }

    /// Whether damage can go undetected: then only the engine's internal invariants are checked.
    #[must_use]
    pub fn has_undetected_corruption(&self) -> bool {
        self.faults.undetected_corruption > 0.0 && !self.station.connection.is_extended
    }
}

pub(crate) fn choose<'a, V>(rng: &mut Rng, values: &'a [V]) -> &'a V {
    &values[rng.usize(..values.len())]
}
