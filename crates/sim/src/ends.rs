// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stations with one connection, the engine at both ends, and the frames between them in virtual time. The
//! [`Network`] decides how long each takes and whether it arrives.

use std::collections::BTreeMap;

use barewire_llc::{
    ConnectionConfig, ConnectionEvent, ConnectionHandle, Delivery, Instant, Lsap, Peer, Station, StationConfig,
    StationEvent,
};

use crate::host::mac;
use crate::network::Frame;

/// What lies between both ends, and what these send.
pub trait Network {
    /// Lets an end send the messages that it may send now.
    fn send(&mut self, ends: &mut Ends, end: usize, now: Instant);

    /// Takes an end's frames, and passes on to [`Ends::arrive`] what will arrive.
    fn transmit(&mut self, ends: &mut Ends, end: usize, now: Instant);

    /// Records that messages were delivered at an end.
    fn deliver(&mut self, end: usize, messages: u64, now_ns: u64);
}

/// Both ends.
pub struct Ends {
    /// The station of each end.
    pub stations: [Station<()>; 2],
    /// The connection, once each end knows it.
    pub handles: [Option<ConnectionHandle>; 2],
    /// By time and order: receiving end, and frame.
    arrivals: BTreeMap<(u64, u64), (usize, Frame)>,
    order: u64,
}

impl Ends {
    /// Both ends without a connection; `hash_seeds` also seed its nonces.
    ///
    /// # Panics
    /// If the configuration is invalid.
    pub fn new(connection: &ConnectionConfig, hash_seeds: [u64; 2]) -> Self {
        let stations = [0, 1].map(|host| {
            let hash_seed = hash_seeds[host];
            let config = StationConfig { connection: connection.clone(), hash_seed, ..StationConfig::default() };
            let mut station = Station::new(&config, Instant::default()).expect("a legal configuration");
            station.activate(Lsap::SNAP);
            station.listen(Lsap::SNAP, true);
            station
        });
        Self { stations, handles: [None; 2], arrivals: BTreeMap::new(), order: 0 }
    }

    /// Lets a frame arrive at an end; frames of equal times in the order of the calls.
    pub fn arrive(&mut self, time_ns: u64, end: usize, frame: Frame) {
        self.order += 1;
        self.arrivals.insert((time_ns, self.order), (end, frame));
    }

    /// Connects, and runs both ends for this time.
    pub fn run(&mut self, network: &mut impl Network, duration_ns: u64) {
        let mut now_ns = 0;
        let peer = Peer { local: Lsap::SNAP, mac: mac(1), remote: Lsap::SNAP };
        self.handles[0] = Some(self.stations[0].connect(peer, 0, Instant::default()).expect("room"));
        loop {
            let now = Instant::from_nanos(now_ns);
            for end in 0..2 {
                while let Some(event) = self.stations[end].poll_event() {
                    if let StationEvent::Connection(handle, ConnectionEvent::Incoming) = event {
                        self.stations[end].accept(handle, now);
                        self.handles[end] = Some(handle);
                    }
                }
                network.send(self, end, now);
                network.transmit(self, end, now);
            }
            let next = self.arrivals.keys().next().map(|(time, _)| *time);
            let deadlines = self.stations.iter().filter_map(Station::next_deadline).map(Instant::as_nanos);
            let Some(time) = deadlines.chain(next).min().filter(|time| *time <= duration_ns) else { return };
            now_ns = time.max(now_ns);
            let now = Instant::from_nanos(now_ns);
            while let Some(entry) = self.arrivals.first_entry()
                && entry.key().0 <= now_ns
            {
                let (end, frame) = entry.remove();
                let station = &mut self.stations[end];
                let handled = station.handle_frame(frame.source, frame.destination, &frame.bytes, &frame.trailer, now);
                match handled.delivery {
                    Some(Delivery::Data { connection, .. }) => {
                        let kept = std::iter::from_fn(|| station.next_kept(connection, now)).count();
                        network.deliver(end, 1 + kept as u64, now_ns);
                    }
                    Some(Delivery::Early { connection, number, .. }) => station.keep(connection, number),
                    _ => {}
                }
            }
            self.stations.iter_mut().for_each(|station| station.handle_timeout(now));
        }
    }

    /// I PDUs retransmitted by both ends.
    pub fn repeated(&self) -> u64 {
        let ends = self.stations.iter().zip(self.handles);
        let connections = ends.filter_map(|(station, handle)| station.connection(handle?));
        connections.map(|connection| connection.counters().information_repeated).sum()
    }
}
