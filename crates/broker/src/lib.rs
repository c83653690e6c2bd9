// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program and `barewire-broker` say to each other, and the program's side of it.
//!
//! A program connects, sends one [`Request`] and gets one [`Reply`], with the socket if that grants it. It keeps the
//! connection for as long as it uses the socket: the end of the connection gives the service access point back.

mod client;
mod filter;
mod message;

pub use client::{AskError, Grant, ask};
pub use filter::{sap_filter, station_filter};
pub use message::{MESSAGE_BYTES_MAX, MessageError, Reply, Request, Status, VERSION};

/// Where the broker listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/barewire/broker.sock";
