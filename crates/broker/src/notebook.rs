// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What survives the broker: who has what, for the next broker, and that there is one at a time.
//!
//! The kernel knows which sockets are open, and not for which service access point.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde_json::json;

use crate::ledger::{Entry, Ledger};

/// Two files beside the socket.
pub struct Notebook {
    path: PathBuf,
    boot: String,
    /// Held until the process ends.
    _lock: Flock<File>,
}

impl Notebook {
    /// # Errors
    /// `WouldBlock` if another broker lives, or what the system says.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).open(beside(socket, ".lock"))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| io::Error::from(error))?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { path: beside(socket, ".grants"), boot, _lock: lock })
    }

    /// What a broker before us handed out since the machine started. A line that cannot be read is none of ours.
    ///
    /// # Errors
    /// What the system says, except that there is no file.
    pub fn read(&self) -> io::Result<Ledger> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ledger::default()),
            text => text?,
        };
        let mut lines = text.lines();
        if lines.next() != Some(&self.head()) {
            return Ok(Ledger::default());
        }
        Ok(Ledger::restored(lines.filter_map(|line| serde_json::from_str::<Entry>(line).ok())))
    }

    /// Whole or not at all.
    ///
    /// # Errors
    /// What the system says: then nothing may be granted.
    pub fn write(&self, ledger: &Ledger) -> io::Result<()> {
        let mut text = self.head();
        text.push('\n');
        for entry in ledger.entries() {
            text.push_str(&serde_json::to_string(entry)?);
            text.push('\n');
        }
        let fresh = beside(&self.path, ".new");
        File::create(&fresh)?.write_all(text.as_bytes())?;
        fs::rename(fresh, &self.path)
    }

    fn head(&self) -> String {
        json!({ "boot": self.boot }).to_string()
    }
}

/// The numbers of all AF_PACKET sockets of this network namespace.
///
/// # Errors
/// What the system says, or that the list is not as it should be.
pub fn open_packet_sockets() -> io::Result<BTreeSet<u64>> {
    let text = fs::read_to_string("/proc/self/net/packet")?;
    let numbers = text.lines().skip(1).map(|line| {
        let number = line.split_ascii_whitespace().next_back().and_then(|last| last.parse().ok());
        number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/net/packet has another form"))
    });
    numbers.collect()
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}
