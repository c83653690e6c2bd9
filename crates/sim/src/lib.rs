// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deterministic simulation of the LLC engine.
//!
//! A seed determines a world: hosts on a bridge; applications that connect, send, stall and disconnect; and a network
//! that loses, duplicates, reorders, damages and delays frames, whose links go down and whose hosts pause and restart.
//! After a while the faults stop. Checkers verify throughout that data arrives once, in order and intact, that no
//! window or table exceeds its bound, and that everything ends after the faults.

#![deny(unsafe_code)]

pub mod fat_tree;
pub mod goodput;
pub mod link;
pub mod model;
pub mod spray;
pub mod stack;

mod agenda;
mod application;
mod checks;
mod ends;
mod host;
mod network;
mod scenario;
mod world;

pub use checks::Violation;
pub use scenario::Scenario;
pub use world::{Report, World, run, trace};
