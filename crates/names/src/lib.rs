// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host name resolution, from a hosts file or by queries on the segment.
//!
//! No I/O: the caller passes text, LLC PDUs and the time, and takes PDUs and results. No input can make it panic or
//! grow beyond [`bounds`]. There is no authentication: any station on the segment can answer to any name.

#![forbid(unsafe_code)]

pub mod bounds;

mod census;
mod hosts;
mod ignored;
mod name;
mod responder;
mod wire;

pub use census::{Census, Found};
pub use hosts::{Host, Hosts, HostsError, LineError, check_interface};
pub use ignored::Ignored;
pub use name::{Name, NameError};
pub use responder::{Responder, ResponderCounters};
pub use wire::{Malformed, Message, SAP};
