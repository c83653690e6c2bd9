// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The audit log: JSON Lines in a file or on standard error, for systemd's journal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::bounds::REFUSALS_LOGGED;

const WINDOW: Duration = Duration::from_secs(1);

/// The audit log's writer.
pub struct Audit {
    path: Option<PathBuf>,
    file: Option<File>,
    /// Refusals per user in this window; `None`: all users that the policy does not name. Limits the log's growth under
    /// repeated refusals.
    refusals: BTreeMap<Option<u32>, u32>,
    began: Instant,
}

impl Audit {
    /// # Errors
    /// If the file cannot be opened for appending.
    pub fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let mut audit = Self { path, file: None, refusals: BTreeMap::new(), began: Instant::now() };
        audit.reopen()?;
        Ok(audit)
    }

    /// Reopens the file, after log rotation.
    ///
    /// # Errors
    /// As [`open`](Self::open); the old file stays in use.
    pub fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            self.file = Some(File::options().create(true).append(true).open(path)?);
        }
        Ok(())
    }

    /// Writes a line, with the time in milliseconds since 1970.
    ///
    /// # Errors
    /// If it cannot be written; then nothing may be granted.
    pub fn write(&mut self, event: &str, mut fields: Value) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        fields["time_ms"] = json!(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        fields["event"] = json!(event);
        let line = format!("{fields}\n");
        match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        }
    }

    /// Writes a line; ignores failures, which cannot be reported anywhere.
    pub fn note(&mut self, event: &str, fields: Value) {
        let _ = self.write(event, fields);
    }

    /// Writes a refusal. Beyond [`REFUSALS_LOGGED`] per second and user, only counts it. `user`: `None` for all users
    /// that the policy does not name.
    pub fn refuse(&mut self, user: Option<u32>, fields: Value) {
        let count = self.refusals.entry(user).or_default();
        *count = count.saturating_add(1);
        if *count <= REFUSALS_LOGGED {
            self.note("refusal", fields);
        }
    }

    /// Ends the window if it has elapsed, and reports its unlogged refusals. Otherwise returns the time left if there
    /// were refusals.
    pub fn tick(&mut self, now: Instant) -> Option<Duration> {
        let left = WINDOW.saturating_sub(now.saturating_duration_since(self.began));
        if !left.is_zero() {
            return (!self.refusals.is_empty()).then_some(left);
        }
        self.began = now;
        for (user, count) in std::mem::take(&mut self.refusals) {
            if let Some(more) = count.checked_sub(REFUSALS_LOGGED).filter(|more| *more > 0) {
                self.note("refusals not logged", json!({ "user": user, "count": more }));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_the_bound_are_counted_not_logged() {
        let path = std::env::temp_dir().join(format!("barewire-audit-{}", std::process::id()));
        let mut audit = Audit::open(Some(path.clone())).unwrap();
        for user in 0..1000 {
            audit.refuse(Some(7), json!({ "user": 7 }));
            audit.refuse(None, json!({ "user": 100_000 + user }));
        }
        audit.refuse(Some(8), json!({ "user": 8 }));
        let over = Instant::now() + WINDOW * 2;
        assert!(audit.tick(Instant::now()).is_some() && audit.tick(over).is_none());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2 * (REFUSALS_LOGGED as usize + 1) + 1);
        for (line, user) in lines.iter().rev().zip([json!(7), Value::Null]) {
            assert_eq!((&line["user"], &line["count"]), (&user, &json!(1000 - REFUSALS_LOGGED)));
        }
    }
}
