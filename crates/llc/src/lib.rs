// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IEEE 802.2 logical link control: types 1, 2 and 3.
//!
//! A pure state machine. The caller passes frames and the current time to `handle_*` and takes frames and
//! events from `poll_*`. The engine has no clock, no socket and no randomness, and stores no payload: an
//! information field to send is represented by the caller's token, a received one is a slice of the frame.
//! No input from a peer can make it panic, block or allocate without bound.
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
mod pdu;
mod peer_table;
mod slot_queue;
mod station;
mod time;

pub use acknowledged::{DatagramOutcome, DatagramRefused, Peer};
pub use address::{Destination, GroupSap, Lsap, Mac, Source};
#[cfg(feature = "mutants")]
pub use config::Mutant;
pub use config::{AfterLoss, ConfigError, ConnectionConfig, StationConfig};
pub use connection::{Cause, Connection, ConnectionCounters, ConnectionEvent, Refused, RefusedReason, State, Transmit};
pub use counters::Counters;
pub use pdu::{
    AcStatus, Body, Class, FrmrInformation, Header, Identification, Malformed, Pdu, Role, SequenceNumber, Supervisory,
};
pub use station::{ConnectError, ConnectionHandle, Delivery, Handled, Reply, Station, StationEvent, StationTransmit};
pub use time::Instant;
