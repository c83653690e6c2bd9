// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts found by name: from a file that an administrator writes, or by asking on the segment.
//!
//! Pure: text, LLC PDUs and the time go in, PDUs and what was found come out. Nothing here opens a file
//! or a link. Nothing that anybody sends can panic it or make it grow beyond [`bounds`]. There is no
//! authentication: whoever can send on the segment can answer to any name.

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
