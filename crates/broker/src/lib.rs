// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocol between programs and `barewire-broker`, and its client.
//!
//! A program connects, sends one [`Request`] and receives one [`Reply`], with the socket if it is granted. It keeps the
//! connection open as long as it uses the socket: closing the connection returns the service access point.

mod client;
mod filter;
mod message;

pub use client::{Grant, RequestError, request_grant};
pub use filter::{sap_filter, station_filter};
pub use message::{MESSAGE_BYTES_MAX, MessageError, Reply, Request, Status, VERSION};

/// Default path of the broker's socket.
pub const DEFAULT_SOCKET: &str = "/run/barewire/broker.sock";
