// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration of endpoints, and why the defaults have their values.

use std::time::Duration;

use barewire_llc::extension::Guard;
use barewire_llc::{ConnectionConfig, Lsap};
use barewire_shm::PipeConfig;

use crate::address::Address;
use crate::framing::Framing;
use crate::labels::Labels;
use crate::secret::Authentication;
use crate::token::JobToken;
use crate::tuning::Tuning;
use crate::waiting::Waiting;

/// Configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint's tag: it receives the frames for this SAP.
    pub sap: Lsap,
    /// Encapsulation and job token.
    pub framing: Framing,
    /// For endpoints without a job token: 64 random bits, part of the endpoint's address, without which no peer can
    /// connect. 0: any peer can connect.
    pub cookie: u64,
    /// Identifies this host and its network namespace. A peer whose address has another number is not local, whatever
    /// its MAC address. 0: unknown.
    pub host: u64,
    /// Whether a frame's check covers all of the frame. Otherwise it covers all headers, all of a message of one frame,
    /// and the first 64 bytes of any other frame; corruption behind Ethernet's own check is then detected for these
    /// only. Costs 4 to 6 % of the rate of long messages on two cores of 2024.
    pub checks_all: bool,
    /// Whether and how frames are authenticated, for all peers alike. Authentication always covers all of a frame.
    /// Local peers exchange no frames.
    pub authentication: Option<Authentication>,
    /// Maximum number of outstanding messages; more of normal priority are refused with
    /// [`Full`](crate::SendError::Full).
    pub send_descriptors: usize,
    /// Maximum number of outstanding frames of all messages; each slot takes the memory of a frame.
    pub slots: u16,
    /// Maximum number of channels.
    pub channels: u16,
    /// Whether peers may connect.
    pub accepts: bool,
    /// The labels that the network offers, if it does: frames to peers on the link then take several paths.
    pub labels: Option<Labels>,
    /// How [`Endpoint::wait`](crate::Endpoint::wait) waits.
    pub waiting: Waiting,
    /// Whether other threads need the core; waiters yield it then.
    pub shares_core: bool,
    /// Values measured on this machine.
    pub tuning: Tuning,
    /// Parameters of LLC connections; `information_max` follows from the link.
    pub connection: ConnectionConfig,
    /// Pipes to local peers; `None`: local peers are reached over the link.
    pub local: Option<PipeConfig>,
    /// How long connecting to a local peer is retried while the peer does not listen.
    pub connect_timeout: Duration,
    /// Injected fault, for tests of the checkers.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::Mutant>,
}

impl Config {
    /// More than the ranks of an MPI job on a small cluster. A channel takes 200 bytes.
    pub const CHANNELS: u16 = 1024;
    /// The processes of a job start within seconds of each other.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Default of [`set_dead_peer_timeout`](Self::set_dead_peer_timeout).
    pub const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(32);
    /// A peer that is descheduled for less time must not be taken for dead.
    pub const DEAD_PEER_TIMEOUT_MIN: Duration = Duration::from_millis(100);

    /// The key to present to a peer: the job token's, or the cookie of the peer's address.
    pub(crate) fn key_to(&self, peer: Address) -> u64 {
        self.framing.token.map_or(peer.cookie, JobToken::key)
    }

    /// The guard at the start of an extension.
    #[must_use]
    pub const fn guard(&self) -> Guard {
        if self.authentication.is_some() { Guard::Seal } else { Guard::Check }
    }

    /// Sets the time after which the channel to an unreachable peer on the link ends, even if nothing is sent: at most
    /// `time`, and at least [`DEAD_PEER_TIMEOUT_MIN`](Self::DEAD_PEER_TIMEOUT_MIN). A peer that makes no progress for a
    /// quarter of it may be taken for dead. The end of a local peer is noticed at once; for one that does not listen
    /// yet, [`connect_timeout`](Self::connect_timeout) applies.
    pub fn set_dead_peer_timeout(&mut self, time: Duration) {
        let time = time.max(Self::DEAD_PEER_TIMEOUT_MIN);
        // Polling starts after a quarter of the time without frames from the peer. Polls follow at intervals of T1, at
        // least N2 of them, until seven eighths of the time have passed; one T1 follows the last poll.
        self.connection.retries = Self::DEAD_AFTER_POLLS;
        self.connection.patience = time * 7 / 8;
        self.connection.inactivity = Some(time / 4);
        self.connection.t1_max = time * 5 / 8 / u32::from(Self::DEAD_AFTER_POLLS);
        self.connection.t1_initial = self.connection.t1_initial.min(self.connection.t1_max);
        self.connection.t1_min = self.connection.t1_min.min(self.connection.t1_max);
        self.connection.stall_limit = self.connection.stall_limit.max(self.connection.t1_max);
    }

    const DEAD_AFTER_POLLS: u8 = 20;

    /// Applies measured values, except that of the receive ring, which is for the caller that opens the link.
    pub fn set_tuning(&mut self, tuning: Tuning) {
        // The casts are lossless: values are checked when they are read.
        self.slots = tuning.slots as u16;
        self.send_descriptors = tuning.send_descriptors;
        self.connection.window = tuning.window as u8;
        self.connection.receive_window = tuning.window as u8;
        self.connection.acknowledge_every = tuning.acknowledge_every.min(tuning.window / 2) as u8;
        let delay = Duration::from_micros(tuning.acknowledge_delay_us as u64);
        self.connection.acknowledge_delay = delay;
        // A delayed acknowledgement must not cause a retransmission.
        self.connection.t1_min = self.connection.t1_min.max(4 * delay).min(self.connection.t1_max);
        if let Some(local) = &mut self.local {
            local.ring_bytes = tuning.pipe_ring_bytes;
        }
        self.tuning = tuning;
    }

    /// Default configuration for a SAP.
    #[must_use]
    pub fn new(sap: Lsap, framing: Framing) -> Self {
        let mut config = Self {
            sap,
            framing,
            cookie: 0,
            host: 0,
            checks_all: false,
            authentication: None,
            send_descriptors: Tuning::SEND_DESCRIPTORS,
            slots: Tuning::SLOTS,
            channels: Self::CHANNELS,
            accepts: true,
            labels: None,
            waiting: Waiting::default(),
            shares_core: false,
            tuning: Tuning::default(),
            connection: ConnectionConfig::default(),
            local: Some(PipeConfig::default()),
            connect_timeout: Self::CONNECT_TIMEOUT,
            #[cfg(feature = "mutants")]
            mutant: None,
        };
        config.set_dead_peer_timeout(Self::DEAD_PEER_TIMEOUT);
        config
    }
}
