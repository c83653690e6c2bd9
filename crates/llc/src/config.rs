// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a caller may choose. Defaults and limits, with their reasons, are in [`crate::bounds`].

use core::fmt;
use core::time::Duration;

use crate::bounds;
use crate::extension::Guard;
use crate::pdu::Class;
use crate::time::nanos;

/// How connections behave. Both ends may differ, except that the peer's `acknowledge_every` should not
/// exceed half of this end's `window`: XID tells the peer's window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// k, the largest number of unacknowledged I PDUs: 1 to 127. Above 63, an N(R) that was overtaken can be
    /// taken for a new one: only for a network that keeps the order.
    pub window: u8,
    /// The largest number of unacknowledged I PDUs that the peer may send: 1 to 127. Above 63, an I PDU
    /// repeated by the peer can be taken for one that lies ahead, which costs a needless REJ.
    pub receive_window: u8,
    /// Capacity of the send queue in PDUs, unacknowledged ones included: a power of two, at least `window`.
    pub queue: u16,
    /// N2, the number of unanswered repetitions after which the connection is given up.
    pub retries: u8,
    /// A connection that was set up is not given up before it has heard nothing for so long, however many repetitions
    /// that takes: a peer may be stopped, or its link be down. Zero: N2 alone decides, as in IEEE 802.2.
    pub patience: Duration,
    /// I PDUs that one acknowledgement covers, at most.
    pub acknowledge_every: u8,
    /// Longest wait of an acknowledgement for an I PDU to ride on.
    pub acknowledge_delay: Duration,
    /// T1 before the first measured round trip, and its bounds afterwards.
    pub t1_initial: Duration,
    /// See `t1_initial`.
    pub t1_min: Duration,
    /// See `t1_initial`.
    pub t1_max: Duration,
    /// Time between two polls of a busy peer.
    pub busy_poll: Duration,
    /// Longest time for which data may wait without any of it being acknowledged.
    pub stall_limit: Duration,
    /// Silence after which the peer is polled; `None`: never, and a receiver may wait for a dead peer.
    pub inactivity: Option<Duration>,
    /// The window after loss.
    pub after_loss: AfterLoss,
    /// Acknowledged PDUs after which a shrunk window grows by one.
    pub grow_after: u16,
    /// Longest information field that is accepted, in bytes; a longer one is answered with FRMR.
    pub information_max: u16,
    /// Whether PDUs carry [what stations of ours add](crate::extension): both ends must. Nothing of an earlier connection is
    /// believed then, a number is told from one that has come round, and what comes early is kept instead of sent again.
    pub is_extended: bool,
    /// A fault to have, for the tests of tests.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

/// A fault that a test of the tests switches on.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Any N(R) is taken for valid.
    NrUnchecked,
    /// An N(R) acknowledges one PDU too many, if there is one.
    NrOffByOne,
    /// The ack timer never starts.
    NoAckTimer,
    /// Retransmission leaves out the first PDU.
    ResendsFromSecond,
    /// One PDU more than the window admits.
    WindowOffByOne,
    /// A PDU received again is delivered again.
    DeliversAgain,
    /// A PDU that lies ahead is delivered.
    DeliversAhead,
    /// REJ is never sent.
    NoRej,
    /// Rounds are not looked at.
    RoundUnchecked,
}

/// What a station supports and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationConfig {
    /// The types of operation.
    pub class: Class,
    /// How its connections behave.
    pub connection: ConnectionConfig,
    /// Connections at once, at most.
    pub connections: u16,
    /// Of these, ones that peers opened and the user has not answered, at most, for each service access point.
    pub backlog: u16,
    /// Peers with type 3 datagrams, at most, in each direction.
    pub datagram_peers: u16,
    /// Type 3: repetitions of a datagram that is not acknowledged; with `datagram_timeout` less than
    /// `datagram_memory` in all.
    pub datagram_retries: u8,
    /// Type 3: time between two repetitions.
    pub datagram_timeout: Duration,
    /// Type 3: how long a receiver knows a repetition; a sender waits two and a half times as long after a
    /// failure, and before its first datagram. The same at all stations. Longer than the network and pauses
    /// of both hosts can delay a repetition, or it is delivered again.
    pub datagram_memory: Duration,
    /// Any number that nobody else knows; of extended connections also what their nonces are drawn from.
    pub hash_seed: u64,
    /// Of extended stations: what peers must know to connect or to send datagrams; 0, which everybody knows, if all may.
    pub key: u64,
    /// Whether the key is told to those who are connected to, so that they can connect back: one that is this station's own.
    pub tells_key: bool,
    /// Of extended stations: what their PDUs' extensions begin with.
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
            tells_key: false,
            guard: Guard::default(),
        }
    }
}

/// What a retransmission does to the window (IEEE 802.2, annex C: the dynamic window).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Nothing: for a path where frames are lost by accident, not by congestion.
    Keep,
    /// Halves it, down to four.
    Halve,
    /// Sets it to one, as the annex says.
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
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// A value outside its range, with the field's name and what to choose instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it must be.
    pub must_be: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.must_be)
    }
}

impl core::error::Error for ConfigError {}

/// A checked configuration in the units of the hot path.
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
    /// Of extended connections: this station's key, and again if it is told to peers.
    pub key: u64,
    pub cookie: u64,
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
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
    fn the_defaults_are_legal() {
        assert!(ConnectionConfig::default().check().is_ok());
    }

    #[test]
    fn an_error_names_the_field() {
        let config = ConnectionConfig { window: 128, ..Default::default() };
        assert_eq!(config.check().unwrap_err().field, "window");
        let config = ConnectionConfig { queue: 100, ..Default::default() };
        assert_eq!(config.check().unwrap_err().field, "queue");
    }
}
