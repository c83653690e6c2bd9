// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets for the LLC engine, names, the broker's messages, carriers, the message layer and the shared-memory pipe.
//! Each takes any bytes, and panics if a property is violated.
//!
//! `cargo test` replays the corpus and some thousand mutations of it (`tests/smoke.rs`); `tools/fuzz.sh` runs the
//! coverage-guided search.

#![deny(unsafe_code)]

mod broker;
mod carriers;
mod checker;
mod extension;
mod input;
mod message;
mod messenger;
mod names;
mod pair;
mod pdu;
mod pipe;
mod station;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of the target's folder in `corpus/`.
pub const TARGETS: &[(&str, Target)] = &[
    ("decode", pdu::decode),
    ("identity", pdu::identity),
    ("extension", extension::extension),
    ("station", station::station),
    ("pair", pair::pair),
    ("message", message::message),
    ("names", names::names),
    ("broker", broker::broker),
    ("carriers", carriers::carriers),
    ("messenger", messenger::messenger),
    ("pipe", pipe::pipe),
];

/// The target with this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
