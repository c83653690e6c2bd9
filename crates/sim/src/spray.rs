// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection over several paths, chosen by labels: paths of unequal delay, slow ones, dead ones. The engine at
//! both ends; what arrives when, and over which path.

use barewire_llc::{ConnectionConfig, Instant, StationTransmit};

use crate::ends::{Ends, Network};
use crate::host::mac;
use crate::network::{Frame, SHORT_FRAME};
use crate::scenario::{MS, US};

/// Wire bytes of a frame with data.
const FRAME_BYTES: u64 = 1538;

/// The networks between two hosts.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Rate of each host's link in bits per second.
    pub rate_bit_s: u64,
    /// By label.
    pub paths: Vec<Path>,
    /// Most frames that wait for a path; further ones are lost.
    pub queue_frames: u64,
    /// Duration of a run, in virtual time.
    pub duration_ns: u64,
}

/// A path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// What other traffic leaves of its rate, in bits per second.
    pub rate_bit_s: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// When it loses all frames that the first and the second end send: from, until. A label may take other links in
    /// the other direction.
    pub dead: [(u64, u64); 2],
}

impl Paths {
    /// Four paths of 1 Gb/s and 10 µs, for 200 ms.
    #[must_use]
    pub fn equal() -> Self {
        let path = Path { rate_bit_s: 1_000_000_000, delay_ns: 10 * US, dead: [(0, 0); 2] };
        Self { rate_bit_s: 1_000_000_000, paths: vec![path; 4], queue_frames: 200, duration_ns: 200 * MS }
    }

    /// The same at a hundredth of the rate and a hundred times the delay, for a hundred times as long: an emulated
    /// network.
    #[must_use]
    pub fn slow() -> Self {
        let mut slow = Self::equal();
        slow.rate_bit_s /= 100;
        slow.duration_ns *= 20;
        for path in &mut slow.paths {
            (path.rate_bit_s, path.delay_ns) = (path.rate_bit_s / 100, path.delay_ns * 100);
        }
        slow
    }

    /// Transmission time of a frame by a host's link.
    #[must_use]
    pub fn frame_ns(&self) -> u64 {
        FRAME_BYTES * 8 * 1_000_000_000 / self.rate_bit_s
    }
}

/// What one end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// As much as the window permits.
    Stream,
    /// A message of this many frames, answered by one of the same length.
    PingPong(u64),
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Deliveries at both ends, of messages if these are answered and of frames otherwise.
    pub delivered: u64,
    /// I PDUs retransmitted.
    pub repeated: u64,
    /// Longest time without a delivery of a message, after the first.
    pub silence_ns: u64,
    /// Frames with data sent with each label, by both ends.
    pub sent: Vec<u64>,
    /// The number of those of them sent in the last half of the run.
    pub sent_late: Vec<u64>,
}

impl Outcome {
    /// Share of what one direction of the hosts' links can carry.
    #[must_use]
    pub fn share(&self, paths: &Paths) -> f64 {
        self.delivered as f64 * paths.frame_ns() as f64 / paths.duration_ns as f64
    }
}

/// Runs one connection.
///
/// # Panics
/// If the configuration is invalid.
#[must_use]
pub fn run(paths: &Paths, connection: &ConnectionConfig, traffic: Traffic) -> Outcome {
    run_seeded(paths, connection, traffic, [7, 8])
}

/// The same, with these nonces of the ends, from which their random labels follow.
///
/// # Panics
/// If the configuration is invalid.
#[must_use]
pub fn run_seeded(paths: &Paths, connection: &ConnectionConfig, traffic: Traffic, nonces: [u64; 2]) -> Outcome {
    Run::new(paths, traffic).run(connection, nonces)
}

/// The engine's configuration for these paths.
#[must_use]
pub fn config(paths: &Paths) -> ConnectionConfig {
    ConnectionConfig { is_extended: true, labels: paths.paths.len() as u8, ..ConnectionConfig::default() }
}

/// The paths, and what both ends send over them.
struct Run<'p> {
    paths: &'p Paths,
    traffic: Traffic,
    /// When each host's link, and each path in each direction, has transmitted all frames so far.
    hosts_free_ns: [u64; 2],
    paths_free_ns: Vec<[u64; 2]>,
    /// PDUs that each end may send, and those of a message that it has received in part.
    granted: [u64; 2],
    received: [u64; 2],
    last_ns: u64,
    outcome: Outcome,
}

impl<'p> Run<'p> {
    fn new(paths: &'p Paths, traffic: Traffic) -> Self {
        let labels = paths.paths.len();
        let outcome =
            Outcome { delivered: 0, repeated: 0, silence_ns: 0, sent: vec![0; labels], sent_late: vec![0; labels] };
        let granted = if let Traffic::PingPong(frames) = traffic { [frames, 0] } else { [0; 2] };
        Self {
            paths,
            traffic,
            hosts_free_ns: [0; 2],
            paths_free_ns: vec![[0; 2]; labels],
            granted,
            received: [0; 2],
            last_ns: 0,
            outcome,
        }
    }

    fn run(mut self, connection: &ConnectionConfig, nonces: [u64; 2]) -> Outcome {
        let mut ends = Ends::new(connection, nonces);
        let duration_ns = self.paths.duration_ns;
        ends.run(&mut self, duration_ns);
        self.outcome.repeated = ends.repeated();
        self.outcome.silence_ns = self.outcome.silence_ns.max(duration_ns - self.last_ns);
        self.outcome
    }
}

impl Network for Run<'_> {
    fn deliver(&mut self, end: usize, messages: u64, now_ns: u64) {
        if let Traffic::PingPong(frames) = self.traffic {
            self.received[end] += messages;
            if self.received[end] < frames {
                return;
            }
            self.received[end] = 0;
            self.granted[end] += frames;
        }
        if self.outcome.delivered > 0 {
            self.outcome.silence_ns = self.outcome.silence_ns.max(now_ns - self.last_ns);
        }
        self.last_ns = now_ns;
        self.outcome.delivered += messages;
    }

    fn send(&mut self, ends: &mut Ends, end: usize, now: Instant) {
        let Some(handle) = ends.handles[end] else { return };
        if self.traffic == Traffic::Stream {
            while end == 0 && ends.stations[0].send(handle, (), now).is_ok() {}
        }
        while self.granted[end] > 0 && ends.stations[end].send(handle, (), now).is_ok() {
            self.granted[end] -= 1;
        }
    }

    fn transmit(&mut self, ends: &mut Ends, end: usize, now: Instant) {
        while let Some(transmit) = ends.stations[end].poll_transmit(now) {
            let StationTransmit { destination, header, token, extra, label, .. } = transmit;
            let wire_bytes = if token.is_some() { FRAME_BYTES } else { SHORT_FRAME };
            let information = token.map(|()| &[][..]);
            let frame = Frame::new(mac(end), destination, header.as_bytes(), extra, information, wire_bytes);
            // Frames without a label take a path that the network chooses.
            let number = usize::from(label.unwrap_or(0));
            if token.is_some() {
                self.outcome.sent[number] += 1;
                self.outcome.sent_late[number] += u64::from(now.as_nanos() > self.paths.duration_ns / 2);
            }
            let bits = wire_bytes * 8 * 1_000_000_000;
            let host_ns = &mut self.hosts_free_ns[end];
            *host_ns = (*host_ns).max(now.as_nanos()) + bits / self.paths.rate_bit_s;
            let (path, free_ns) = (&self.paths.paths[number], &mut self.paths_free_ns[number][end]);
            let (from_ns, until_ns) = path.dead[end];
            let path_ns = bits / path.rate_bit_s;
            let is_full = free_ns.saturating_sub(*host_ns) > self.paths.queue_frames * path_ns;
            if is_full || (from_ns..until_ns).contains(host_ns) {
                continue;
            }
            *free_ns = (*free_ns).max(*host_ns) + path_ns;
            ends.arrive(*free_ns + path.delay_ns, 1 - end, frame);
        }
    }
}
