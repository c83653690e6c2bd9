// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration. Defaults and limits, with their reasons, are in [`crate::bounds`].

use core::fmt;
use core::time::Duration;

use crate::bounds;
use crate::extension::Guard;
use crate::pdu::Class;
use crate::time::nanos;

/// Parameters of connections. The two ends may differ, but the peer's `acknowledge_every` should not
/// exceed half of this end's `window`; XID announces the peer's window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// k, the largest number of unacknowledged I PDUs: 1 to 127. Above 63, a reordered N(R) can be
    /// mistaken for a new one: use it only on networks that preserve order.
    pub window: u8,
    /// Largest number of unacknowledged I PDUs that the peer may send: 1 to 127. Above 63, an I PDU
    /// retransmitted by the peer can be mistaken for one ahead of sequence, which costs a needless REJ.
    pub receive_window: u8,
    /// Capacity of the send queue in PDUs, unacknowledged ones included: a power of two, at least `window`.
    pub queue: u16,
    /// N2, the number of unanswered retransmissions after which the connection is abandoned.
    pub retries: u8,
    /// An established connection is not abandoned before the peer has been silent for this long, however many
    /// retransmissions that takes: the peer may be stopped, or its link be down. Zero: N2 alone decides, as in IEEE
    /// 802.2.
    pub patience: Duration,
    /// Largest number of I PDUs covered by one acknowledgement.
    pub acknowledge_every: u8,
    /// Longest delay of an acknowledgement, during which an I PDU may piggyback it.
    pub acknowledge_delay: Duration,
    /// T1 before the first round-trip measurement.
    pub t1_initial: Duration,
    /// Lower bound of T1.
    pub t1_min: Duration,
    /// Upper bound of T1.
    pub t1_max: Duration,
    /// Interval between polls of a busy peer.
    pub busy_poll: Duration,
    /// Longest time without progress in acknowledgements while data is unacknowledged.
    pub stall_limit: Duration,
    /// Time without a PDU from the peer after which it is polled; `None`: never, and a receiver may wait for a dead
    /// peer.
    pub inactivity: Option<Duration>,
    /// How loss changes the window.
    pub after_loss: AfterLoss,
    /// Number of acknowledged PDUs after which a shrunk window grows by one.
    pub grow_after: u16,
    /// Longest information field that is accepted, in bytes; a longer one is answered with FRMR.
    pub information_max: u16,
    /// Whether PDUs carry the [extension](crate::extension); both ends must agree. With it, PDUs of earlier connections
    /// are recognised and ignored, sequence numbers are 14 bits long, and PDUs received early are kept instead of
    /// retransmitted.
    pub is_extended: bool,
    /// Number of labels, up to 64, of which the network lets a PDU's label choose its path: see
    /// [`StationTransmit::label`](crate::StationTransmit::label). 0 or 1: PDUs have none. Extended connections only.
    pub labels: u8,
    /// An injected fault, for tests of the tests.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

/// A fault that tests of the tests inject.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Every N(R) is considered valid.
    NrUnchecked,
    /// An N(R) acknowledges one PDU too many, if there is one.
    NrOffByOne,
    /// The ack timer never starts.
    NoAckTimer,
    /// Retransmission skips the first PDU.
    ResendsFromSecond,
    /// One PDU beyond the window is sent.
    WindowOffByOne,
    /// Duplicates are delivered.
    DeliversAgain,
    /// PDUs ahead of sequence are delivered.
    DeliversAhead,
    /// REJ is never sent.
    NoRej,
    /// Rounds are ignored.
    RoundUnchecked,
    /// Marks do not depend on how often numbers have wrapped: a late PDU whose numbers have come round is taken for a
    /// current one.
    MultipleUnchecked,
    /// Labels whose PDUs are lost or late stay in use.
    LabelsKept,
}

/// Capabilities and capacities of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationConfig {
    /// Supported types of operation.
    pub class: Class,
    /// Parameters of its connections.
    pub connection: ConnectionConfig,
    /// Largest number of simultaneous connections.
    pub connections: u16,
    /// Largest number of incoming connections that the user has not answered, for each service access point.
    pub backlog: u16,
    /// Largest number of type 3 peers, in each direction.
    pub datagram_peers: u16,
    /// Type 3: largest number of retransmissions of a datagram. `(datagram_retries + 1) * datagram_timeout` must be
    /// below `datagram_memory`.
    pub datagram_retries: u8,
    /// Type 3: retransmission interval.
    pub datagram_timeout: Duration,
    /// Type 3: how long a receiver recognises retransmissions; a sender waits two and a half times as long after a
    /// failure and before its first datagram. Must be equal at all stations, and longer than the network and pauses
    /// of both hosts can delay a retransmission, or the datagram is delivered twice.
    pub datagram_memory: Duration,
    /// A secret number; seeds the hash tables and the nonces of extended connections.
    pub hash_seed: u64,
    /// Extended stations: the key that peers must know to connect or to send datagrams; 0 if any peer may.
    pub key: u64,
    /// Whether this station announces its key to the peers that it connects to or accepts, so that they can connect
    /// back.
    pub sends_key: bool,
    /// Extended stations: the guard at the start of each extension.
    pub guard: Guard,
}

impl Default for StationConfig {
    fn default() -> Self {
        Self {
            class: Class::Iv,
            connection: ConnectionConfig::default(),
            connections: bounds::CONNECTIONS,
            backlog: bounds::BACKLOG,
            datagram_peers: bounds::DATAGRAM_PEERS,
            datagram_retries: bounds::DATAGRAM_RETRIES,
            datagram_timeout: bounds::DATAGRAM_TIMEOUT,
            datagram_memory: bounds::DATAGRAM_MEMORY,
            hash_seed: 0,
            key: 0,
            sends_key: false,
            guard: Guard::default(),
        }
    }
}

/// Effect of a retransmission on the window (IEEE 802.2, annex C: dynamic window).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Unchanged: for a path where loss does not indicate congestion.
    Keep,
    /// Halved, down to four.
    Halve,
    /// Set to one, as in the annex.
    One,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            window: bounds::WINDOW,
            receive_window: bounds::WINDOW,
            queue: bounds::QUEUE,
            retries: bounds::RETRIES,
            patience: Duration::ZERO,
            acknowledge_every: bounds::ACKNOWLEDGE_EVERY,
            acknowledge_delay: bounds::ACKNOWLEDGE_DELAY,
            t1_initial: bounds::T1_INITIAL,
            t1_min: bounds::T1_MIN,
            t1_max: bounds::T1_MAX,
            busy_poll: bounds::BUSY_POLL,
            stall_limit: bounds::STALL_LIMIT,
            inactivity: Some(bounds::INACTIVITY),
            after_loss: AfterLoss::Halve,
            grow_after: bounds::GROW_AFTER,
            information_max: bounds::INFORMATION_MAX,
            is_extended: false,
            labels: 0,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// A configuration value outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// Its valid range.
    pub must_be: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.must_be)
    }
}

impl core::error::Error for ConfigError {}

/// A validated configuration in the units of the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub window: u8,
    pub receive_window: u8,
    pub queue: u16,
    pub retries: u8,
    pub patience_ns: u64,
    pub acknowledge_every: u8,
    pub acknowledge_delay_ns: u64,
    pub t1_initial_ns: u64,
    pub t1_min_ns: u64,
    pub t1_max_ns: u64,
    pub busy_poll_ns: u64,
    pub stall_limit_ns: u64,
    pub inactivity_ns: Option<u64>,
    pub after_loss: AfterLoss,
    pub grow_after: u16,
    pub information_max: u16,
    pub is_extended: bool,
    pub labels: u8,
    /// Extended connections: this station's key.
    pub key: u64,
    /// The key if it is announced to peers, else 0.
    pub cookie: u64,
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl Parameters {
    /// The key of a peer that sent this cookie: the cookie itself, or the key shared with this station.
    pub(crate) fn key_to(&self, cookie: u64) -> u64 {
        match cookie {
            0 if self.cookie == 0 => self.key,
            cookie => cookie,
        }
    }
}

impl ConnectionConfig {
    pub(crate) fn check(&self) -> Result<Parameters, ConfigError> {
        let window = 1..=bounds::WINDOW_MAX;
        require(window.contains(&self.window), "window", "1 to 127")?;
        require(window.contains(&self.receive_window), "receive_window", "1 to 127")?;
        require(
            self.queue.is_power_of_two() && self.queue >= u16::from(self.window) && self.queue <= bounds::QUEUE_MAX,
            "queue",
            "a power of two, at least the window and at most 4096",
        )?;
        require(self.retries >= 1, "retries", "at least 1")?;
        require(
            (1..=self.receive_window).contains(&self.acknowledge_every),
            "acknowledge_every",
            "1 to receive_window",
        )?;
        require(self.t1_min > Duration::ZERO && self.t1_min <= self.t1_max, "t1_min", "above 0 and at most t1_max")?;
        require(
            self.t1_initial > Duration::ZERO && self.t1_initial <= self.t1_max,
            "t1_initial",
            "above 0 and at most t1_max",
        )?;
        require(self.acknowledge_delay <= self.t1_min, "acknowledge_delay", "at most t1_min")?;
        require(self.busy_poll > Duration::ZERO, "busy_poll", "above 0")?;
        require(self.stall_limit >= self.t1_max, "stall_limit", "at least t1_max")?;
        require(self.inactivity != Some(Duration::ZERO), "inactivity", "above 0, or None")?;
        require(self.grow_after >= 1, "grow_after", "at least 1")?;
        require(self.labels <= bounds::LABELS_MAX, "labels", "0 to 64")?;
        Ok(Parameters {
            window: self.window,
            receive_window: self.receive_window,
            queue: self.queue,
            retries: self.retries,
            patience_ns: nanos(self.patience),
            acknowledge_every: self.acknowledge_every,
            acknowledge_delay_ns: nanos(self.acknowledge_delay),
            t1_initial_ns: nanos(self.t1_initial),
            t1_min_ns: nanos(self.t1_min),
            t1_max_ns: nanos(self.t1_max),
            busy_poll_ns: nanos(self.busy_poll),
            stall_limit_ns: nanos(self.stall_limit),
            inactivity_ns: self.inactivity.map(nanos),
            after_loss: self.after_loss,
            grow_after: self.grow_after,
            information_max: self.information_max,
            is_extended: self.is_extended,
            labels: if self.is_extended { self.labels } else { 0 },
            key: 0,
            cookie: 0,
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
        })
    }
}

pub(crate) fn require(condition: bool, field: &'static str, must_be: &'static str) -> Result<(), ConfigError> {
    if condition { Ok(()) } else { Err(ConfigError { field, must_be }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert!(ConnectionConfig::default().check().is_ok());
    }

    #[test]
    fn config_error_names_the_field() {
        let config = ConnectionConfig { window: 128, ..Default::default() };
        assert_eq!(config.check().unwrap_err().field, "window");
        let config = ConnectionConfig { queue: 100, ..Default::default() };
        assert_eq!(config.check().unwrap_err().field, "queue");
    }
}
