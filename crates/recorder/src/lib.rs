// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs that measure share: a clock, cores, records as lines of JSON, and why a launch stops early.
//! They record and do not judge.

pub mod clock;
pub mod cpu;
mod error;
mod lines;

pub use error::LaunchError;
pub use lines::{peak_rss_kib, write};
