// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared by the measuring programs: clock, core pinning, records as JSON Lines, and launch errors. These programs
//! record raw samples and compute no statistics.

pub mod clock;
pub mod cpu;
mod error;
mod lines;

pub use error::LaunchError;
pub use lines::{peak_rss_kib, write};
