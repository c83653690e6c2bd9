// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios in which the network has several paths, chosen by the labels of frames: of unequal delay, and dying.

use barewire_endpoint::Labels;
use fastrand::Rng;

use super::scenario::{Faults, Scenario};
use crate::scenario::{MS, US, choose};

/// First VLAN identifier of the labels.
const FIRST: u16 = 3840;

/// The paths between any two ranks.
#[derive(Clone, Debug)]
pub struct LabelledPaths {
    /// By label.
    pub paths: Vec<LabelledPath>,
}

/// A path, which may be dead for a while.
#[derive(Clone, Debug)]
pub struct LabelledPath {
    /// Delay beyond that of the network.
    pub delay_ns: u64,
    /// When it loses all frames: from, until.
    pub dead: Option<(u64, u64)>,
}

impl LabelledPath {
    /// Whether it loses a frame that leaves at this time.
    #[must_use]
    pub fn is_dead(&self, now_ns: u64) -> bool {
        self.dead.is_some_and(|(from_ns, until_ns)| (from_ns..until_ns).contains(&now_ns))
    }
}

impl LabelledPaths {
    /// Draws paths, some of which are dead for a while before `span_ns`, but never all at once.
    fn draw(rng: &mut Rng, span_ns: u64) -> Self {
        let count = *choose(rng, &[2, 3, 4, 4, 8, 64]);
        let spread_ns = *choose(rng, &[1, 2 * US, 20 * US, 200 * US, 2 * MS]);
        let mut paths: Vec<LabelledPath> =
            (0..count).map(|_| LabelledPath { delay_ns: rng.u64(..spread_ns), dead: None }).collect();
        for path in paths.iter_mut().skip(1) {
            let from_ns = rng.u64(..span_ns);
            path.dead = (rng.u8(..3) == 0).then(|| (from_ns, from_ns + rng.u64(..span_ns)));
        }
        rng.shuffle(&mut paths);
        Self { paths }
    }

    /// The labels that these networks offer.
    fn labels(&self) -> Labels {
        let text = format!("{FIRST}-{}", usize::from(FIRST) + self.paths.len() - 1);
        text.parse().expect("2 to 64 labels")
    }

    /// Number of a frame's path: 0 without a label, else one more than the label's.
    pub(super) fn number(&self, label: u16) -> usize {
        if label == 0 { 0 } else { usize::from(label - FIRST) + 1 }
    }
}

impl Scenario {
    /// The same world, on a network on which a frame's label chooses its path. In most, paths die for no other reason
    /// and nothing else is lost.
    #[must_use]
    pub fn with_labels(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x6c61_6265);
        let rng = &mut rng;
        if rng.u8(..3) > 0 {
            self.faults = Faults { jitter_ns: self.faults.jitter_ns, ..Faults::default() };
            self.disturbances.clear();
        }
        let span_ns = self.programs.iter().flatten().map(|(time, _)| *time).max().unwrap_or(0).max(10 * MS);
        let labelled = LabelledPaths::draw(rng, 2 * span_ns);
        let connection = &mut self.endpoint.connection;
        if rng.bool() {
            (connection.window, connection.receive_window, connection.acknowledge_every) = (63, 63, 31);
            self.endpoint.slots = self.endpoint.slots.max(64);
        }
        self.endpoint.labels = Some(labelled.labels());
        let dead_until = labelled.paths.iter().filter_map(|path| path.dead).map(|(_, until_ns)| until_ns).max();
        self.faults_end_ns = self.faults_end_ns.max(dead_until.unwrap_or(0));
        Self { labelled: Some(labelled), ..self }
    }
}
