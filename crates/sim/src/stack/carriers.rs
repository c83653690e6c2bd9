// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios in which stations have several carriers.

use barewire_messages::CompletionLevel;
use fastrand::Rng;

use super::scenario::{Action, Criteria, Disturbance, Faults, Scenario, SendMode};
use super::topology::Topology;
use crate::scenario::{MS, choose};

/// One in this many worlds lasts until sequence numbers wrap.
const LAPS_EVERY: u64 = 64;
/// In one in this many worlds long messages leave in batches, which sockets carry faster.
const BATCHES_EVERY: u64 = 4;
/// In one in this many worlds sockets lose long datagrams or batches.
const NARROW_EVERY: u8 = 3;
/// Bytes of a frame that suffice for all headers.
const SMALL_MTU: usize = 200;

impl Scenario {
    /// The same world, on networks on which stations have several carriers: interfaces and a socket. Programs take
    /// longer, so that paths fail and return meanwhile.
    #[must_use]
    pub fn with_carriers(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x6361_7272);
        let rng = &mut rng;
        if seed % LAPS_EVERY == LAPS_EVERY - 1 {
            return self.with_laps(rng);
        }
        let has_batches = seed % BATCHES_EVERY == BATCHES_EVERY - 1;
        if has_batches {
            self.mtu = self.mtu.max(1500);
            self.messages.unexpected_bytes = self.messages.unexpected_bytes.max(self.mtu);
            let connection = &mut self.endpoint.connection;
            (connection.window, connection.receive_window) = (63, 63);
            connection.acknowledge_every = 31;
            self.endpoint.slots = self.endpoint.slots.max(64);
        }
        let factor = *choose(rng, &[1, 5, 20, 100]);
        for (time, _) in self.programs.iter_mut().flatten() {
            *time *= factor;
        }
        for (time, _) in &mut self.disturbances {
            *time *= factor;
        }
        // Most worlds have no other faults, so that paths fail for one reason.
        if rng.u8(..3) > 0 {
            self.faults = Faults { jitter_ns: self.faults.jitter_ns, ..Faults::default() };
        }
        if rng.bool() {
            self.disturbances.clear();
        }
        let span_ns = self.programs.iter().flatten().map(|(time, _)| *time).max().unwrap_or(0).max(10 * MS);
        let restarts = self.disturbances.iter().any(|(_, what)| matches!(what, Disturbance::Restart { .. }));
        let mut topology = Topology::draw(rng, &self.addresses, self.mtu, 2 * span_ns, restarts, has_batches);
        let mut own = Rng::with_seed(seed ^ 0x006e_6172);
        if own.u8(..NARROW_EVERY) == 0 {
            topology.narrow(&mut own, 2 * span_ns);
        }
        if topology.greets {
            self.greet();
        }
        if rng.bool() || has_batches {
            let (count, bytes) = if has_batches { (40, 60_000) } else { (60, 20_000) };
            self.stream(rng, &topology, span_ns, count, bytes);
        }
        self.on(topology)
    }

    /// Two ranks on two segments that exchange more frames than there are sequence numbers, while a path fails now and
    /// then, and its frames arrive when their numbers are in use again.
    fn with_laps(mut self, rng: &mut Rng) -> Self {
        self.mtu = SMALL_MTU;
        self.programs = vec![Vec::new(); 2];
        self.polls.truncate(2);
        self.disturbances.clear();
        self.faults = Faults::default();
        self.rate_bit_s = 1_000_000_000;
        self.endpoint.local = None;
        self.addresses = self.addresses[..1].iter().flat_map(|first| [*first; 2]).collect();
        for (rank, address) in self.addresses.iter_mut().enumerate() {
            address.mac[5] = rank as u8;
            address.sap = barewire_llc::Lsap::new(0x20 + 4 * rank as u8).expect("an individual LSAP");
        }
        let topology = Topology::for_laps(rng, &self.addresses, self.mtu);
        self.stream(rng, &topology, 1000 * MS, 60, 60_000);
        self.on(topology)
    }

    fn on(mut self, topology: Topology) -> Self {
        let ranks = self.programs.len();
        self.addresses = (0..ranks).map(|rank| topology.address(rank, self.addresses[rank])).collect();
        // Room for a frame of any carrier: what follows a request that is refused cannot pass it.
        self.messages.unexpected_bytes = self.messages.unexpected_bytes.max(topology.socket_mtu);
        self.faults_end_ns = self.programs.iter().flatten().map(|(time, _)| *time).max().unwrap_or(0);
        let disturbed = self.disturbances.iter().map(|(time, what)| time + what.lasts_ns()).max().unwrap_or(0);
        self.faults_end_ns = self.faults_end_ns.max(disturbed).max(topology.faults_end_ns());
        Self { topology: Some(topology), ..self }
    }

    /// All ranks send each other a message at the start.
    fn greet(&mut self) {
        let ranks = self.programs.len();
        for rank in 0..ranks {
            let others = (0..ranks).filter(|other| *other != rank);
            let greetings = others.map(|to| (0, send(to, 8)));
            self.programs[rank].splice(0..0, greetings.collect::<Vec<_>>());
        }
    }

    /// Rank 0 and perhaps others send long messages to their successors all the time.
    fn stream(&mut self, rng: &mut Rng, topology: &Topology, span_ns: u64, count: u64, bytes: usize) {
        let ranks = self.programs.len();
        let senders = rng.usize(1..=2.min(ranks));
        for from in 0..senders {
            let to = (from + 1) % ranks;
            if !topology.reaches(from, to) {
                continue;
            }
            let receive = Action::Receive {
                criteria: Criteria { source: Some(from), tag: Some((0, u64::MAX)) },
                bytes: usize::MAX,
                parts: 1,
            };
            for number in 0..count {
                let time = number * span_ns / count;
                self.programs[from].push((time, send(to, rng.usize(bytes / 2..bytes))));
                self.programs[to].push((time, receive));
            }
        }
        for program in &mut self.programs {
            program.sort_by_key(|(time, _)| *time);
        }
    }
}

fn send(to: usize, bytes: usize) -> Action {
    let (level, mode) = (CompletionLevel::Transmit, SendMode::Lent(1));
    Action::Send { to, tag: Some(0), has_data: true, bytes, level, mode }
}
