// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulation of the whole stack: ranks whose programs exchange messages, over endpoints, the engine, and a simulated
//! link.
//!
//! In a third of the worlds, ranks share hosts. These use real pipes, within this process: a rank sleeps until the
//! pipes' own doorbells wake it, so a lost wake-up stops the world. All ranks run in one thread, so memory orderings
//! and concurrent writes are not tested here; `crates/loom` and the tests of `crates/shm` do that.
//!
//! In worlds with carriers, stations have up to four interfaces on Ethernet segments and a socket on a routed network,
//! below `crates/carriers`. Devices fail in one direction or both, frames that they held arrive much later, also when
//! the sequence numbers have come round, and a process that restarts has another cookie. `topology` draws these
//! networks such that ranks keep a path to each other; `watch` looks at the frames alone, and knows which paths are
//! dead.
//!
//! In worlds with labels, the network has up to 64 paths of unequal delay, chosen by the labels of frames; some die for
//! a while. `labelled` draws them.
//!
//! Programs use either messengers or libfabric's functions, as the provider offers them: address vector, completion
//! queue, registered memory, counters, and the progress thread while a program computes. Not simulated: datagrams,
//! several endpoints in a domain, blocking reads of a queue, and the provider's lock (`crates/loom`).

mod carriers;
mod labelled;
mod link;
mod network;
mod oracle;
mod paths;
#[expect(unsafe_code, reason = "lends memory to the messenger")]
mod process;
mod scenario;
mod topology;
mod watch;
mod world;

pub use labelled::{LabelledPath, LabelledPaths};
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
