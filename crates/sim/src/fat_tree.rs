// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sixteen hosts of a fat-tree with k = 4: rings of MPI ranks, whose frames take one of four paths by their labels. The
//! engine at each host, and a queue at each port.

use std::collections::BTreeMap;

use barewire_llc::{
    ConnectionConfig, ConnectionEvent, ConnectionHandle, Delivery, Instant, Lsap, Peer, Station, StationConfig,
    StationEvent, StationTransmit,
};
use fastrand::Rng;

use crate::host::mac;
use crate::network::{Frame, SHORT_FRAME};
use crate::scenario::US;

/// Number of hosts.
pub const HOSTS: usize = 16;
/// Number of labels, and of paths between hosts of different pods.
pub const LABELS: u8 = 4;
/// Wire bytes of a frame with data.
const FRAME_BYTES: u64 = 1538;
/// Propagation delay of each link, and forwarding delay of the switch at its end.
const HOP_NS: u64 = 10 * US;
/// Most bytes that wait at a port; frames beyond are lost.
const QUEUE_BYTES: u64 = 256 * 1024;
const SHORT_EXCHANGES: usize = 10;
const LONG_EXCHANGES: usize = 6;
/// Limit of a run: exchanges that have not ended by then never will.
const LIMIT_NS: u64 = 1000 * 1_000_000_000;

/// A ring of ranks in random order. Each exchanges messages with both neighbours at once: ten of one frame, so that
/// round trips have been measured without queues, and then six long ones.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Rate of each link in bits per second.
    pub rate_bit_s: u64,
    /// Links between switches block nothing and take no time.
    pub is_wide: bool,
    /// Frames of a long message.
    pub frames: u64,
    /// Determines the order of the ranks.
    pub seed: u64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time of the long exchanges, from the end of the last short one to the end of the last.
    pub long_ns: u64,
    /// I PDUs retransmitted.
    pub repeated: u64,
    /// Frames lost at full queues.
    pub dropped: u64,
}

impl Ring {
    /// Frames with data that all hosts send, unless some are repeated.
    #[must_use]
    pub const fn frames_sent(&self) -> u64 {
        2 * HOSTS as u64 * total(SHORT_EXCHANGES + LONG_EXCHANGES, self.frames)
    }

    /// Runs all exchanges.
    ///
    /// # Panics
    /// If the configuration is invalid, or the exchanges do not end.
    #[must_use]
    pub fn run(&self, connection: &ConnectionConfig) -> Outcome {
        let mut order: Vec<usize> = (0..HOSTS).collect();
        Rng::with_seed(self.seed).shuffle(&mut order);
        let mut fabric = Fabric::new(self, &order, connection);
        fabric.connect();
        fabric.run();
        let ranks = fabric.ranks.iter();
        let connections = ranks.flat_map(|rank| rank.sides.iter().map(|side| rank.station.connection(side.handle?)));
        Outcome {
            long_ns: fabric.now_ns - fabric.short_end_ns,
            repeated: connections.flatten().map(|connection| connection.counters().information_repeated).sum(),
            dropped: fabric.dropped,
        }
    }
}

/// Frames of the first exchanges, from a rank to one of its neighbours.
const fn total(exchanges: usize, frames: u64) -> u64 {
    let long = exchanges.saturating_sub(SHORT_EXCHANGES);
    (exchanges - long) as u64 + long as u64 * frames
}

/// A rank's connection to one of its neighbours.
#[derive(Default)]
struct Side {
    peer: usize,
    handle: Option<ConnectionHandle>,
    sent: u64,
    received: u64,
}

struct Rank {
    station: Station<()>,
    sides: [Side; 2],
    /// Exchanges ended.
    ended: usize,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Port {
    Host(usize),
    EdgeUp { edge: usize, aggregate: usize },
    AggregateUp { pod: usize, aggregate: usize, core: usize },
    CoreDown { pod: usize, aggregate: usize, core: usize },
    AggregateDown { edge: usize, aggregate: usize },
    EdgeDown(usize),
}

/// A frame in flight.
struct Travelling {
    frame: Frame,
    to: usize,
    route: Vec<Port>,
}

struct Fabric<'r> {
    ring: &'r Ring,
    ranks: Vec<Rank>,
    free_ns: BTreeMap<Port, u64>,
    travelling: BTreeMap<(u64, u64), Travelling>,
    order: u64,
    now_ns: u64,
    /// When the last rank ended its short exchanges.
    short_end_ns: u64,
    dropped: u64,
}

impl<'r> Fabric<'r> {
    fn new(ring: &'r Ring, order: &[usize], connection: &ConnectionConfig) -> Self {
        let place = |host| order.iter().position(|other| *other == host).expect("a permutation");
        let rank = |host: usize| {
            let hash_seed = host as u64 + 1;
            let config = StationConfig { connection: connection.clone(), hash_seed, ..StationConfig::default() };
            let mut station = Station::new(&config, Instant::default()).expect("a legal configuration");
            station.activate(Lsap::SNAP);
            station.listen(Lsap::SNAP, true);
            let next = |distance| order[(place(host) + distance) % HOSTS];
            let sides = [next(1), next(HOSTS - 1)].map(|peer| Side { peer, ..Side::default() });
            Rank { station, sides, ended: 0 }
        };
        let ranks = (0..HOSTS).map(rank).collect();
        Self {
            ring,
            ranks,
            free_ns: BTreeMap::new(),
            travelling: BTreeMap::new(),
            order: 0,
            now_ns: 0,
            short_end_ns: 0,
            dropped: 0,
        }
    }

    /// Each rank connects to the next one of its ring.
    fn connect(&mut self) {
        for rank in &mut self.ranks {
            let side = &mut rank.sides[0];
            let peer = Peer { local: Lsap::SNAP, mac: mac(side.peer), remote: Lsap::SNAP };
            side.handle = Some(rank.station.connect(peer, 0, Instant::default()).expect("room"));
        }
    }

    fn run(&mut self) {
        loop {
            (0..HOSTS).for_each(|host| self.serve(host));
            if self.ranks.iter().all(|rank| rank.ended == SHORT_EXCHANGES + LONG_EXCHANGES) {
                return;
            }
            let next = self.travelling.keys().next().map(|(time, _)| *time);
            let deadlines = self.ranks.iter().filter_map(|rank| rank.station.next_deadline());
            let time_ns = deadlines.map(Instant::as_nanos).chain(next).min().expect("something is due");
            assert!(time_ns < LIMIT_NS, "the exchanges do not end");
            self.now_ns = self.now_ns.max(time_ns);
            while let Some(entry) = self.travelling.first_entry()
                && entry.key().0 <= self.now_ns
            {
                let travelling = entry.remove();
                self.forward(travelling);
            }
            let now = Instant::from_nanos(self.now_ns);
            self.ranks.iter_mut().for_each(|rank| rank.station.handle_timeout(now));
        }
    }

    /// Sends what a rank may send, and transmits its frames.
    fn serve(&mut self, host: usize) {
        let now = Instant::from_nanos(self.now_ns);
        let rank = &mut self.ranks[host];
        while let Some(event) = rank.station.poll_event() {
            if let StationEvent::Connection(handle, ConnectionEvent::Incoming) = event {
                rank.station.accept(handle, now);
                rank.sides[1].handle = Some(handle);
            }
        }
        // A rank starts the next exchange once both messages of this one have arrived, and its own have left.
        let all = SHORT_EXCHANGES + LONG_EXCHANGES;
        let through = |side: &Side| side.received.min(side.sent);
        while rank.ended < all && rank.sides.iter().all(|side| through(side) >= total(rank.ended + 1, self.ring.frames))
        {
            rank.ended += 1;
            if rank.ended == SHORT_EXCHANGES {
                self.short_end_ns = self.now_ns;
            }
        }
        let granted = total((rank.ended + 1).min(all), self.ring.frames);
        for side in &mut rank.sides {
            let Some(handle) = side.handle else { continue };
            while side.sent < granted && rank.station.send(handle, (), now).is_ok() {
                side.sent += 1;
            }
        }
        while let Some(transmit) = self.ranks[host].station.poll_transmit(now) {
            let StationTransmit { destination, header, token, extra, label, .. } = transmit;
            let wire_bytes = if token.is_some() { FRAME_BYTES } else { SHORT_FRAME };
            let information = token.map(|()| &[][..]);
            let frame = Frame::new(mac(host), destination, header.as_bytes(), extra, information, wire_bytes);
            let to = (0..HOSTS).find(|to| mac(*to) == destination).expect("a host");
            let mut route = self.route(host, to, label);
            route.reverse();
            self.forward(Travelling { frame, to, route });
        }
    }

    /// The ports of a frame's path. A frame without a label takes one path for each pair of hosts.
    fn route(&self, from: usize, to: usize, label: Option<u8>) -> Vec<Port> {
        if self.ring.is_wide {
            return vec![Port::Host(from), Port::EdgeDown(to)];
        }
        let label = label.map_or(31 * from + 17 * to, usize::from);
        let (aggregate, core) = (label % 2, label / 2 % 2);
        let (from_edge, to_edge) = (from / 2, to / 2);
        let (from_pod, to_pod) = (from / 4, to / 4);
        let mut route = vec![Port::Host(from)];
        if from_edge != to_edge {
            route.push(Port::EdgeUp { edge: from_edge, aggregate });
            if from_pod != to_pod {
                route.push(Port::AggregateUp { pod: from_pod, aggregate, core });
                route.push(Port::CoreDown { pod: to_pod, aggregate, core });
            }
            route.push(Port::AggregateDown { edge: to_edge, aggregate });
        }
        route.push(Port::EdgeDown(to));
        route
    }

    /// Queues a frame at its next port, or delivers it.
    fn forward(&mut self, mut travelling: Travelling) {
        let Some(port) = travelling.route.pop() else { return self.deliver(travelling) };
        let free_ns = self.free_ns.entry(port).or_default();
        let byte_ns = |bytes: u64| bytes * 8 * 1_000_000_000 / self.ring.rate_bit_s;
        if free_ns.saturating_sub(self.now_ns) > byte_ns(QUEUE_BYTES) {
            self.dropped += 1;
            return;
        }
        *free_ns = (*free_ns).max(self.now_ns) + byte_ns(travelling.frame.wire_bytes);
        self.order += 1;
        self.travelling.insert((*free_ns + HOP_NS, self.order), travelling);
    }

    fn deliver(&mut self, Travelling { frame, to, .. }: Travelling) {
        let now = Instant::from_nanos(self.now_ns);
        let rank = &mut self.ranks[to];
        let handled = rank.station.handle_frame(frame.source, frame.destination, &frame.bytes, &frame.trailer, now);
        match handled.delivery {
            Some(Delivery::Data { connection, .. }) => {
                let kept = std::iter::from_fn(|| rank.station.next_kept(connection, now)).count() as u64;
                let side = rank.sides.iter_mut().find(|side| side.handle == Some(connection));
                side.expect("a known connection").received += 1 + kept;
            }
            Some(Delivery::Early { connection, number, .. }) => rank.station.keep(connection, number),
            _ => {}
        }
    }
}
