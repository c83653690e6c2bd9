// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goodput by window and loss: the engine over one link, compared with the wire limit and with a model.

use std::fmt::Write;

use barewire_llc::{AfterLoss, ConnectionConfig, Instant, StationTransmit, bounds};
use fastrand::Rng;

use crate::ends::{Ends, Network};
use crate::host::mac;
use crate::link::Link;
use crate::model;
use crate::network::{Frame, Wire};
use crate::scenario::{Faults, MS, Scenario, US};

const WINDOWS: [u8; 5] = [1, 4, 16, 63, 127];
const LOSSES: [f64; 4] = [0.0, 0.001, 0.01, 0.05];
/// Additional delays of four paths, from almost equal to more than the transmission time of a window of 63 frames.
const PATHS_US: [[u64; 4]; 4] = [[0, 2, 4, 6], [0, 10, 20, 40], [0, 50, 100, 200], [0, 100, 300, 1000]];

/// The golden table, in thousandths of the wire limit.
#[must_use]
pub fn table() -> String {
    let mut text = String::from(
        "Goodput over 1 Gb/s with 5 us delay, in thousandths of the wire limit.\n\
         keep, halve, one: effect of loss on the window. model: textbook go-back-N, timeout 1 ms. extended: halve, with\n\
         out-of-order I PDUs buffered.\n\n\
         loss %   window   keep  halve    one  model extended\n",
    );
    for loss in LOSSES {
        for window in WINDOWS {
            let link = Link::gigabit(loss);
            let engine = |after_loss| link.share(delivered(&link, window, after_loss, 7));
            let [keep, halve, one] = [AfterLoss::Keep, AfterLoss::Halve, AfterLoss::One].map(engine);
            let model = link.share(model::delivered(&link, window.into(), MS, 7));
            let extended = ConnectionConfig { is_extended: true, ..config(window, AfterLoss::Halve) };
            let extended = link.share(delivered_with(&link, &extended, 7));
            let percent = loss * 100.0;
            writeln!(text, "{percent:6.1} {window:8} {keep:6} {halve:6} {one:6} {model:6} {extended:8}")
                .expect("a String");
        }
    }
    text.push_str(
        "\nFour paths of unequal delay, a random one for each frame; one path: the slowest only.\n\n\
         further delay, us   window  halve extended one path\n",
    );
    for delays in PATHS_US {
        let paths_ns = delays.map(|delay| delay * US).to_vec();
        let slowest = Link { paths_ns: paths_ns[3..].to_vec(), ..Link::gigabit(0.0) };
        let sprayed = Link { paths_ns, ..slowest.clone() };
        for window in [16, 63, 127] {
            let standard = config(window, AfterLoss::Halve);
            let extended = ConnectionConfig { is_extended: true, ..standard.clone() };
            let [standard, extended, one] = [(&sprayed, standard), (&sprayed, extended.clone()), (&slowest, extended)]
                .map(|(link, connection)| link.share(delivered_with(link, &connection, 7)));
            let [a, b, c, d] = delays;
            writeln!(text, "{a:4} {b:3} {c:4} {d:5} {window:8} {standard:6} {extended:8} {one:8}").expect("a String");
        }
    }
    text
}

/// Messages delivered within the link's duration, with the engine at both ends.
#[must_use]
pub fn delivered(link: &Link, window: u8, after_loss: AfterLoss, seed: u64) -> u64 {
    delivered_with(link, &config(window, after_loss), seed)
}

/// The engine's configuration for the table.
#[must_use]
pub fn config(window: u8, after_loss: AfterLoss) -> ConnectionConfig {
    let receive_window = window.max(8);
    let acknowledge_every = (window / 2).clamp(1, bounds::ACKNOWLEDGE_EVERY);
    ConnectionConfig { window, receive_window, acknowledge_every, after_loss, ..ConnectionConfig::default() }
}

/// As [`delivered`], with any configuration.
#[must_use]
pub fn delivered_with(link: &Link, connection: &ConnectionConfig, seed: u64) -> u64 {
    Run::new(link, seed, [u64::MAX, 0]).run(connection).delivered[1]
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Messages delivered at each end.
    pub delivered: [u64; 2],
    /// I PDUs retransmitted, at both ends together.
    pub repeated: u64,
}

/// Both ends send bursts of `burst` messages at once; each sends its next one after receiving the peer's. So
/// acknowledgements queue behind data of their own direction.
#[must_use]
pub fn exchange_bursts(link: &Link, connection: &ConnectionConfig, burst: u64, seed: u64) -> Outcome {
    Run::new(link, seed, [burst; 2]).run(connection)
}

/// One link, which loses and delays frames, and what both ends send over it.
struct Run<'l> {
    link: &'l Link,
    /// Messages in a burst, by end.
    bursts: [u64; 2],
    /// Messages that each end may have sent so far.
    granted: [u64; 2],
    sent: [u64; 2],
    delivered: [u64; 2],
    wires: [Wire; 2],
    faults: Faults,
    rng: Rng,
}

impl<'l> Run<'l> {
    fn new(link: &'l Link, seed: u64, bursts: [u64; 2]) -> Self {
        let (rate_bit_s, delay_ns) = (link.rate_bit_s, link.delay_ns);
        let scenario = Scenario { rate_bit_s, delay_ns, queue_frames: 1000, ..Scenario::from_seed(0) };
        Self {
            link,
            bursts,
            granted: bursts,
            sent: [0; 2],
            delivered: [0; 2],
            wires: [Wire::new(&scenario), Wire::new(&scenario)],
            faults: Faults { loss: link.loss, ..Faults::default() },
            rng: Rng::with_seed(seed),
        }
    }

    fn run(mut self, connection: &ConnectionConfig) -> Outcome {
        let mut ends = Ends::new(connection, [0; 2]);
        let duration_ns = self.link.duration_ns;
        ends.run(&mut self, duration_ns);
        Outcome { delivered: self.delivered, repeated: ends.repeated() }
    }
}

impl Network for Run<'_> {
    /// An end that has received the peer's whole burst may send its next.
    fn deliver(&mut self, end: usize, messages: u64, _now_ns: u64) {
        for _ in 0..messages {
            self.delivered[end] += 1;
            if self.delivered[end].is_multiple_of(self.bursts[1 - end]) {
                self.granted[end] += self.bursts[end];
            }
        }
    }

    fn send(&mut self, ends: &mut Ends, end: usize, now: Instant) {
        let Some(handle) = ends.handles[end] else { return };
        while self.sent[end] < self.granted[end] && ends.stations[end].send(handle, (), now).is_ok() {
            self.sent[end] += 1;
        }
    }

    fn transmit(&mut self, ends: &mut Ends, end: usize, now: Instant) {
        while let Some(transmit) = ends.stations[end].poll_transmit(now) {
            let wire_bytes = if transmit.token.is_some() { self.link.frame_bytes } else { self.link.short_bytes };
            let StationTransmit { destination, header, token, extra, .. } = transmit;
            let information = token.map(|()| &[][..]);
            let frame = Frame::new(mac(end), destination, header.as_bytes(), extra, information, wire_bytes);
            let path_ns = self.rng.choice(&self.link.paths_ns).copied().unwrap_or_default();
            let mut arrive = |time, frame| ends.arrive(time + path_ns, 1 - end, frame);
            self.wires[end].send(frame, now.as_nanos(), &self.faults, &mut self.rng, &mut arrive);
        }
    }
}
