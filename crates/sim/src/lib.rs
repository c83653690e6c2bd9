// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deterministic simulated network for the LLC engine.
//!
//! One seed makes one world: hosts on a bridge, applications that connect, send, stall and leave, and a
//! network that loses, repeats, reorders, damages and delays frames, whose links go down and whose hosts
//! pause and restart. After a while the faults stop. Checkers watch all the time that data arrives once, in
//! order and intact, that no window or table exceeds its bound, and that in the end everything is over.

#![deny(unsafe_code)]

pub mod goodput;
pub mod link;
pub mod model;
pub mod stack;

mod application;
mod checks;
mod host;
mod network;
mod scenario;
mod world;

pub use checks::Violation;
pub use scenario::Scenario;
pub use world::{Report, World, run, trace};
