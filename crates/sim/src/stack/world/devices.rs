// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ranks' devices: where their frames go, and how faults change that.

use barewire_endpoint::parse;

use super::World;
use crate::stack::link::DEVICES;
use crate::stack::network::{End, Lane};
use crate::stack::oracle::Oracle;
use crate::stack::scenario::Scenario;
use crate::stack::topology::{Failure, Topology};

impl World {
    /// The lane of a frame; `None` if it reaches no device.
    pub(super) fn lane(&self, from: End, frame: &[u8]) -> Option<Lane> {
        let Scenario { rate_bit_s, delay_ns, .. } = self.scenario;
        let lane = match &self.paths {
            None => Lane {
                from,
                to: End { rank: self.addressee(frame)?, device: 0 },
                rate_bit_s,
                delay_ns,
                label: 0,
                is_in_batch: false,
            },
            Some(paths) => paths.topology.lane(from, frame, self.named(frame))?,
        };
        (lane.to.rank != from.rank).then_some(lane)
    }

    /// The rank with a frame's DSAP.
    fn named(&self, frame: &[u8]) -> Option<usize> {
        let dsap = *parse(frame)?.llc.first()?;
        self.scenario.addresses.iter().position(|address| address.sap.byte() == dsap)
    }

    /// Applies the active faults to a rank's devices.
    pub(super) fn set_devices(&mut self, number: usize) {
        let rank = &mut self.ranks[number];
        let mut interface = rank.interface.borrow_mut();
        for device in 0..DEVICES {
            let faults = self.paths.iter().flat_map(|paths| {
                let topology = &paths.topology;
                topology.active_faults(topology.host_of[number], device, self.now_ns)
            });
            let [mut is_down, mut is_gone] = [rank.down_until_ns > self.now_ns, false];
            for fault in faults {
                is_down |= fault.failure == Failure::Down;
                is_gone |= fault.failure == Failure::Gone;
            }
            let device = &mut interface.devices[device];
            // A process that starts later finds it down, and gets no report.
            device.went_down |= is_down && !device.is_down && rank.process.is_some();
            (device.is_down, device.is_gone) = (is_down, is_gone);
        }
    }

    /// A fault of a host's device begins or ends.
    pub(super) fn path_changed(&mut self, fault: usize) {
        let Some(paths) = &self.paths else { return };
        let (host, host_of) = (paths.topology.faults[fault].host, paths.topology.host_of.clone());
        for rank in (0..self.ranks.len()).filter(|rank| host_of[*rank] == host) {
            self.set_devices(rank);
            self.run_rank(rank);
        }
    }
}

/// Tells the oracle that channels between ranks without a path may fail.
pub fn disturb_unconnected(topology: &Topology, oracle: &mut Oracle) {
    let ranks = topology.host_of.len();
    let pairs = (0..ranks).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.filter(|(a, b)| !topology.reaches(*a, *b)).for_each(|(a, b)| oracle.disturb_pair(a, b));
}
