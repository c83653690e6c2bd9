// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IEEE 802.2 logical link control: types 1, 2 and 3.
//!
//! A pure state machine. Frames and the time go in with `handle_*`, frames and events come out with
//! `poll_*`; there is no clock, no socket and no randomness inside. The engine stores no payload: an
//! information field to be sent is the caller's token, a received one is a slice of the frame itself.
//! Nothing that a peer sends can panic it, block it or make it grow.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

pub mod bounds;
pub mod extension;
pub mod message;

mod acknowledged;
mod address;
mod config;
mod connection;
mod counters;
mod deadlines;
mod keyed;
mod pdu;
mod station;
mod time;
mod turns;

pub use acknowledged::{DatagramOutcome, DatagramRefused, Peer};
pub use address::{Destination, GroupSap, Lsap, Mac, Source};
#[cfg(feature = "mutants")]
pub use config::Mutant;
pub use config::{AfterLoss, ConfigError, ConnectionConfig, StationConfig};
pub use connection::{Cause, Connection, ConnectionCounters, ConnectionEvent, Refused, RefusedReason, State, Transmit};
pub use counters::Counters;
pub use pdu::{
    AcStatus, Body, Class, FrmrInformation, Header, Identification, Malformed, Pdu, Role, SequenceNumber, Snap,
    Supervisory,
};
pub use station::{ConnectError, ConnectionHandle, Delivery, Handled, Reply, Station, StationEvent, StationTransmit};
pub use time::Instant;
