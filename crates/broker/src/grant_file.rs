// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that outlives the broker: the list of grants, for the next broker, and a lock against a second one.
//!
//! The kernel lists the open sockets, but not their service access points.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde_json::json;

use crate::ledger::{Entry, Ledger};

/// How long a new broker waits for the end of one that has been killed.
const ENDING_MAX: Duration = Duration::from_secs(2);

/// The list of grants and the lock file, beside the broker's socket.
pub struct GrantFile {
    path: PathBuf,
    boot: String,
    /// Held until the process ends.
    _lock: Flock<File>,
}

impl GrantFile {
    /// # Errors
    /// `WouldBlock` if another broker is running, or the system's error.
    pub fn open(socket: &Path) -> io::Result<Self> {
        // Locking needs no right but to open the file; earlier versions let everybody read it.
        let (path, mode) = (with_suffix(socket, ".lock"), 0o600);
        let file = File::options().create(true).truncate(false).write(true).mode(mode).open(path)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        let lock = lock(file)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { path: with_suffix(socket, ".grants"), boot, _lock: lock })
    }

    /// The grants of previous brokers since boot. Ignores invalid lines, and files of earlier boots.
    ///
    /// # Errors
    /// The system's error, except that there is no file.
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

    /// Replaces the file atomically.
    ///
    /// # Errors
    /// The system's error; then nothing may be granted.
    pub fn write(&self, ledger: &Ledger) -> io::Result<()> {
        let mut text = self.head();
        text.push('\n');
        for entry in ledger.entries() {
            text.push_str(&serde_json::to_string(entry)?);
            text.push('\n');
        }
        let fresh = with_suffix(&self.path, ".new");
        File::create(&fresh)?.write_all(text.as_bytes())?;
        fs::rename(fresh, &self.path)
    }

    fn head(&self) -> String {
        json!({ "boot": self.boot }).to_string()
    }
}

/// The inodes of all AF_PACKET sockets of this network namespace.
///
/// # Errors
/// The system's error, or that the list has an unknown format.
pub fn open_packet_sockets() -> io::Result<BTreeSet<u64>> {
    let text = fs::read_to_string("/proc/self/net/packet")?;
    let numbers = text.lines().skip(1).map(|line| {
        let number = line.split_ascii_whitespace().next_back().and_then(|last| last.parse().ok());
        number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/net/packet has an unknown format"))
    });
    numbers.collect()
}

/// Locks the file. A broker that has been killed may hold it for a moment longer: the kernel closes its sockets first.
fn lock(mut file: File) -> io::Result<Flock<File>> {
    let until = Instant::now() + ENDING_MAX;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((same, Errno::EWOULDBLOCK)) if Instant::now() < until => file = same,
            Err((_, error)) => return Err(error.into()),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn with_suffix(path: &Path, holder: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(holder);
    name.into()
}
