// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a user of endpoints may choose, and why the defaults are what they are.

use std::time::Duration;

use barewire_llc::extension::Guard;
use barewire_llc::{ConnectionConfig, Lsap};
use barewire_shm::PipeConfig;

use crate::address::Address;
use crate::framing::Framing;
use crate::secret::Authentication;
use crate::token::JobToken;
use crate::tuning::Tuning;
use crate::waiting::Waiting;

/// How an endpoint is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The tag: frames for it, and no others, come in.
    pub sap: Lsap,
    /// Encapsulation, and the job's token.
    pub framing: Framing,
    /// Without a token: 64 random bits that peers learn from the endpoint's address, and that keep out who has it not; 0:
    /// all may connect.
    pub cookie: u64,
    /// Whether the check of a frame is over all it carries of a message of several frames. Without, it is over all headers,
    /// over messages of one frame, and over the first 64 bytes of others; a network that changes bits
    /// behind Ethernet's own check is then noticed for these only. Costs a stream of long messages 4 to 6 % on two cores
    /// of 2024.
    pub checks_all: bool,
    /// Whether and how frames are authenticated: of all peers alike; they cover all of each frame then. Peers of this host do
    /// without.
    pub authentication: Option<Authentication>,
    /// Messages under way at once, at most; more are refused as [`Full`](crate::SendError::Full).
    pub send_descriptors: u16,
    /// Frames under way at once, at most, of all messages; each takes as much memory as a frame.
    pub slots: u16,
    /// Peers at once, at most.
    pub channels: u16,
    /// Whether peers may connect.
    pub accepts: bool,
    /// How [`Endpoint::wait`](crate::Endpoint::wait) waits.
    pub waiting: Waiting,
    /// Whether others want the core: then a waiter gives it away.
    pub shares_core: bool,
    /// What was measured on this machine.
    pub tuning: Tuning,
    /// How connections behave; `information_max` follows from the link.
    pub connection: ConnectionConfig,
    /// How to reach processes of this host: through shared memory, or not at all.
    pub local: Option<PipeConfig>,
    /// How long a process of this host that is not there yet is waited for.
    pub local_patience: Duration,
    /// A fault to have, for the tests of tests.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::Mutant>,
}

impl Config {
    /// More than a job of MPI has ranks on a small cluster, at 200 bytes each.
    pub const CHANNELS: u16 = 1024;
    /// The processes of a job start within seconds of each other.
    pub const LOCAL_PATIENCE: Duration = Duration::from_secs(10);

    /// Default of [`notice_the_dead_within`](Self::notice_the_dead_within).
    pub const NOTICE_THE_DEAD_WITHIN: Duration = Duration::from_secs(32);
    /// A peer that loses its core for less is not dead.
    pub const NOTICE_THE_DEAD_WITHIN_MIN: Duration = Duration::from_millis(100);

    /// The key that a peer must be shown: the job's token, or the cookie of its address.
    pub(crate) fn key_to(&self, peer: Address) -> u64 {
        self.framing.token.map_or(peer.cookie, JobToken::key)
    }

    /// What frames begin their extension with.
    #[must_use]
    pub const fn guard(&self) -> Guard {
        if self.authentication.is_some() { Guard::Seal } else { Guard::Check }
    }

    /// Sets everything that decides how long a peer over the link can be gone before its channel ends, also if nothing is
    /// sent to it: `time` at most, and at least [`NOTICE_THE_DEAD_WITHIN_MIN`](Self::NOTICE_THE_DEAD_WITHIN_MIN). A peer
    /// that makes no progress for a quarter of it may be taken for dead. A process of this host that is gone is noticed at
    /// once; one that is not there yet is waited for for [`local_patience`](Self::local_patience).
    pub fn notice_the_dead_within(&mut self, time: Duration) {
        let time = time.max(Self::NOTICE_THE_DEAD_WITHIN_MIN);
        // A quarter of it may pass in silence. Then there are polls, T1 apart, N2 at least, and as many as it takes until
        // the peer has said nothing for seven eighths of it; the last one is followed by one T1.
        self.connection.retries = Self::DEAD_AFTER_POLLS;
        self.connection.patience = time * 7 / 8;
        self.connection.inactivity = Some(time / 4);
        self.connection.t1_max = time * 5 / 8 / u32::from(Self::DEAD_AFTER_POLLS);
        self.connection.t1_initial = self.connection.t1_initial.min(self.connection.t1_max);
        self.connection.t1_min = self.connection.t1_min.min(self.connection.t1_max);
        self.connection.stall_limit = self.connection.stall_limit.max(self.connection.t1_max);
    }

    const DEAD_AFTER_POLLS: u8 = 20;

    /// Takes what was measured on this machine. Its ring is for whoever opens the link.
    pub fn follow(&mut self, tuning: Tuning) {
        // The casts lose nothing: bounded where they come in.
        self.slots = tuning.slots as u16;
        self.send_descriptors = tuning.send_descriptors as u16;
        self.connection.window = tuning.window as u8;
        self.connection.receive_window = tuning.window as u8;
        self.connection.acknowledge_every = tuning.acknowledge_every as u8;
        let delay = Duration::from_micros(tuning.acknowledge_delay_us as u64);
        self.connection.acknowledge_delay = delay;
        // An acknowledgement that waits must not look like a loss.
        self.connection.t1_min = self.connection.t1_min.max(4 * delay).min(self.connection.t1_max);
        if let Some(local) = &mut self.local {
            local.ring_bytes = tuning.pipe_ring_bytes;
        }
        self.tuning = tuning;
    }

    /// The defaults for a tag.
    #[must_use]
    pub fn new(sap: Lsap, framing: Framing) -> Self {
        let mut config = Self {
            sap,
            framing,
            cookie: 0,
            checks_all: false,
            authentication: None,
            send_descriptors: Tuning::SEND_DESCRIPTORS,
            slots: Tuning::SLOTS,
            channels: Self::CHANNELS,
            accepts: true,
            waiting: Waiting::default(),
            shares_core: false,
            tuning: Tuning::default(),
            connection: ConnectionConfig::default(),
            local: Some(PipeConfig::default()),
            local_patience: Self::LOCAL_PATIENCE,
            #[cfg(feature = "mutants")]
            mutant: None,
        };
        config.notice_the_dead_within(Self::NOTICE_THE_DEAD_WITHIN);
        config
    }
}
