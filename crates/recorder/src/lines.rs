// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records as JSON Lines, and the process's peak memory.

use std::io::{self, Write};

use serde::Serialize;

use crate::LaunchError;

/// Writes one record as a line.
///
/// # Errors
/// [`LaunchError::Failed`] if the output cannot be written, for instance because the disk is full.
pub fn write(output: &mut dyn Write, record: &impl Serialize) -> Result<(), LaunchError> {
    let line = serde_json::to_string(record).map_err(io::Error::from);
    line.and_then(|line| {
        output.write_all(line.as_bytes())?;
        output.write_all(b"\n")?;
        output.flush()
    })
    .map_err(|error| LaunchError::system("samples cannot be written", error))
}

/// Peak resident memory of this process, in KiB.
#[must_use]
pub fn peak_rss_kib() -> i64 {
    nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss())
}
