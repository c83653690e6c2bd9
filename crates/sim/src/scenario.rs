// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a seed means: how many hosts, how bad a network, how the engine is set.

use core::time::Duration;

use barewire_llc::{AfterLoss, ConnectionConfig, StationConfig};
use fastrand::Rng;

/// Nanoseconds of a microsecond and of a millisecond.
pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// One world. All of it follows from the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Hosts on the bridge, 2 to 4.
    pub hosts: usize,
    /// Faults of every wire while they last.
    pub faults: Faults,
    /// When faults begin to stop; nothing new is begun afterwards.
    pub quiet_from_ns: u64,
    /// Bits a second of every wire.
    pub rate_bit_s: u64,
    /// Propagation delay of every wire.
    pub delay_ns: u64,
    /// Frames that wait in a port of the bridge, or at a paused host, at most.
    pub queue_frames: usize,
    /// Length that a frame with data has on the wire, in bytes.
    pub frame_bytes: u64,
    /// Largest message count of a stream.
    pub messages: u32,
    /// Times that links go down, hosts pause, and hosts restart.
    pub outages: [usize; 3],
    /// Connections that each host begins.
    pub connections: usize,
    /// How the stations are set.
    pub station: StationConfig,
}

/// Probabilities for each frame on each wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Never arrives. Frames damaged so that the check sequence shows it count here.
    pub loss: f64,
    /// Arrives twice.
    pub repetition: f64,
    /// Is overtaken by later ones.
    pub reordering: f64,
    /// By so many at most: each may acknowledge a window, and no number may come round.
    pub overtaken_by: u8,
    /// Arrives again, long after; between extended stations only, whose numbers tell.
    pub lateness: f64,
    /// Arrives damaged although the check sequence is right: the LLC bytes are garbage. An extended station's check shows it.
    pub garbage: f64,
    /// Longest additional delay.
    pub jitter_ns: u64,
}

impl Scenario {
    /// The world of a seed.
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
            repetition: *choose(&mut rng, &[none, none, 0.01, 0.1]),
            reordering: *choose(&mut rng, &[none, none, 0.01, 0.1]),
            overtaken_by: (63 / window).min(6),
            garbage: *choose(&mut rng, &[none, none, none, 0.02]),
            jitter_ns: *choose(&mut rng, &[0, 0, 5 * US, 50 * US]),
            lateness: none,
        };
        let mut times = |most: usize| rng.usize(0..=most) * usize::from(rng.bool());
        let outages = [times(3), times(3), times(2)];
        let rate_bit_s = *choose(&mut rng, &[100_000_000, 1_000_000_000, 10_000_000_000]);
        let frame_bytes = *choose(&mut rng, &[84, 1538, 9038]);
        let queue_frames = *choose(&mut rng, &[8, 20, 100, 1000]);
        // Type 3 knows a repetition for 100 ms: frames that wait longer in the network would be new to it.
        let is_extended = rng.bool();
        let connection = ConnectionConfig { is_extended, ..connection };
        let lateness = if is_extended { *choose(&mut rng, &[none, 0.02, 0.1]) } else { none };
        let overtaken_by = if is_extended { *choose(&mut rng, &[3, 30, 200]) } else { faults.overtaken_by };
        let longest_queue = 10 * MS * rate_bit_s / 8 / 1_000_000_000 / frame_bytes;
        let mut scenario = Self {
            hosts: *choose(&mut rng, &[2, 2, 2, 3, 4]),
            faults: Faults { lateness, overtaken_by, ..faults },
            quiet_from_ns: 400 * MS,
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
        // Drawn last, so that it leaves all other draws as they were.
        scenario.station.connection.patience = Duration::from_millis(*choose(&mut rng, &[0, 0, 300, 1500]));
        scenario
    }

    /// Whether payload can be changed without anybody noticing: then only what concerns the engine's own
    /// safety is checked.
    #[must_use]
    pub fn has_garbage(&self) -> bool {
        self.faults.garbage > 0.0 && !self.station.connection.is_extended
    }
}

pub(crate) fn choose<'a, V>(rng: &mut Rng, values: &'a [V]) -> &'a V {
    &values[rng.usize(..values.len())]
}
