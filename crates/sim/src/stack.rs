// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulation of the whole stack: ranks whose programs exchange messages, over endpoints, the engine, and a simulated link.
//!
//! In a third of the worlds, ranks share hosts. These use real pipes, within this process: a rank sleeps until the pipes'
//! own doorbells wake it, so a lost wake-up stops the world. All ranks run in one thread, so memory orderings and
//! concurrent writes are not tested here; `crates/loom` and the tests of `crates/shm` do that.
//!
//! Programs use either messengers or libfabric's functions, as the provider offers them: address vector, completion queue,
//! registered memory, counters, and the progress thread while a program computes. Not simulated: datagrams, several
//! endpoints in a domain, blocking reads of a queue, and the provider's lock (`crates/loom`).

mod link;
mod network;
mod oracle;
#[expect(unsafe_code, reason = "lends memory to the messenger")]
mod process;
mod scenario;
mod world;

pub use oracle::{Property, Violation};
pub use scenario::{Disturbance, Faults, Scenario};
pub use world::Report;

/// Runs the world of a scenario to its end.
///
/// # Errors
/// The first violation.
pub fn run(scenario: Scenario, seed: u64) -> Result<Report, Violation> {
    world::World::new(scenario, seed, false).run()
}

/// As [`run`], printing every event.
///
/// # Errors
/// As [`run`].
pub fn trace(scenario: Scenario, seed: u64) -> Result<Report, Violation> {
    world::World::new(scenario, seed, true).run()
}
