// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole stack in one world: ranks whose messengers speak over endpoints, the engine, and a simulated link.
//!
//! Not simulated: shared memory between processes of one host, whose pipes are sockets and memory of the system; it would
//! take a pipe behind a trait, as the link is. Nor libfabric's objects, which begin where the messenger ends.

mod link;
mod network;
mod oracle;
#[expect(unsafe_code, reason = "the messenger is lent memory")]
mod process;
mod scenario;
mod world;

pub use oracle::{Broken, Promise};
pub use scenario::{Disturbance, Faults, Scenario};
pub use world::Report;

/// Runs the world of a scenario to its end.
///
/// # Errors
/// The first promise that was broken.
pub fn run(scenario: Scenario, seed: u64) -> Result<Report, Broken> {
    world::World::new(scenario, seed, false).run()
}

/// The same, printing what happens.
///
/// # Errors
/// As [`run`].
pub fn trace(scenario: Scenario, seed: u64) -> Result<Report, Broken> {
    world::World::new(scenario, seed, true).run()
}
