// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values measured on this machine, which replace defaults: a file written by `barewire tune` or `barewire bench host
//! --tune`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use barewire_link::PacketConfig;
use barewire_llc::bounds;
use barewire_shm::PipeConfig;
use serde::Deserialize;
use thiserror::Error;

/// Environment variable with the path of the file; overrides the two default paths.
pub const TUNING_VARIABLE: &str = "BAREWIRE_TUNING";
/// The system-wide file. `barewire/tuning.toml` in the user's configuration folder takes precedence.
const SYSTEM_FILE: &str = "/etc/barewire/tuning.toml";

/// The measured values. The defaults are those of the machine in `docs/performance.md`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Size in bytes up to which copying a message behind its headers costs less than gathering it.
    pub copy_crossover_bytes: usize,
    /// Size in bytes up to which messages are sent eagerly.
    pub eager_bytes: usize,
    /// Minimum size in bytes of the packet link's receive ring; the broker chooses that of its sockets.
    pub ring_bytes: usize,
    /// Maximum number of unacknowledged frames to a peer, in each direction.
    pub window: usize,
    /// Maximum number of frames covered by one acknowledgement, in any case at most half of the window.
    pub acknowledge_every: usize,
    /// Maximum time in microseconds that an acknowledgement waits to be piggybacked.
    pub acknowledge_delay_us: usize,
    /// Maximum number of outstanding frames.
    pub slots: usize,
    /// Maximum number of outstanding messages.
    pub send_descriptors: usize,
    /// Size in bytes of each of the two rings to a local peer.
    pub pipe_ring_bytes: usize,
    /// Size in bytes from which on, and in any case above the eager limit, a local peer copies a message directly from
    /// the sender's memory if the system allows it; 0: never.
    pub fetched_bytes: usize,
}

impl Tuning {
    /// Names of all values in the file.
    pub const NAMES: [&str; 10] = [
        "copy_crossover_bytes",
        "eager_bytes",
        "ring_bytes",
        "window",
        "acknowledge_every",
        "acknowledge_delay_us",
        "slots",
        "send_descriptors",
        "pipe_ring_bytes",
        "fetched_bytes",
    ];
    /// A rendezvous costs a round trip in which the wire is idle and, if the peer computes, a call by the peer. Longer
    /// messages take a tenth less time without it at most (measured up to 512 KiB, notebook, sends to a rank that
    /// computes).
    pub const EAGER_BYTES: usize = 128 << 10;
    /// Upper bound of the eager limit: a receiver keeps four messages of this size for each peer.
    pub const EAGER_BYTES_MAX: usize = 1 << 20;
    /// Long messages of a channel occupy at most the 128 slots of its queue, and more slots than that make no stream
    /// to one peer faster (measured with 64 to 1024, `docs/performance.md`). With seven peers at once 256 make senders
    /// wait for the most congested one, and take 1.24 times as long as 1024 (notebook, ports of a switch). Peers that
    /// compute keep theirs until they call again, and 64 of them must leave some to others. A slot takes memory only once
    /// it is used, and the last one freed is used first.
    pub const SLOTS: u16 = 8192;
    /// A tenth of the largest T1. Such long delays are for tests: they make every wait for an acknowledgement visible.
    pub const ACKNOWLEDGE_DELAY_US_MAX: usize = 100_000;
    /// As many short messages as slots: 128 to 512 make their streams equally fast, 64 make them 4 % slower.
    pub const SEND_DESCRIPTORS: usize = 256;
    /// Below, copying into the pipe and out of it takes less time than the system call and the reply
    /// (`docs/performance.md`).
    pub const FETCHED_BYTES: usize = 32 << 10;
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            copy_crossover_bytes: 8 << 10,
            eager_bytes: Self::EAGER_BYTES,
            ring_bytes: PacketConfig::DEFAULT_RING_BYTES,
            window: usize::from(bounds::WINDOW),
            acknowledge_every: usize::from(bounds::ACKNOWLEDGE_EVERY),
            acknowledge_delay_us: bounds::ACKNOWLEDGE_DELAY.as_micros() as usize,
            slots: usize::from(Self::SLOTS),
            send_descriptors: Self::SEND_DESCRIPTORS,
            pipe_ring_bytes: PipeConfig::default().ring_bytes,
            fetched_bytes: Self::FETCHED_BYTES,
        }
    }
}

/// Why an existing tuning file is not used.
#[derive(Debug, Error)]
pub enum TuningError {
    /// The file cannot be read.
    #[error("the tuning file {} cannot be read: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is malformed.
    #[error("{} is not a valid tuning file: {reason}; `barewire tune` writes one", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A value is invalid.
    #[error(transparent)]
    Value(#[from] BadValue),
}

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} must be {must_be}")]
pub struct BadValue {
    name: String,
    must_be: &'static str,
}

impl Tuning {
    /// Loads the file that [`TUNING_VARIABLE`] names, or the user's, or the system's; without a file, the defaults.
    ///
    /// # Errors
    /// [`TuningError`]: a file named by the variable must exist, and a file that exists and is readable must be valid.
    pub fn load() -> Result<Self, TuningError> {
        if let Some(named) = env::var_os(TUNING_VARIABLE) {
            return Self::read(Path::new(&named))
                .and_then(|found| found.ok_or_else(|| unreadable(Path::new(&named), io::ErrorKind::NotFound.into())));
        }
        let folder = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let folder = folder.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")));
        for path in [folder.map(|folder| folder.join("barewire/tuning.toml")), Some(SYSTEM_FILE.into())] {
            match path.map_or(Ok(None), |path| Self::read(&path)) {
                // The home of another user, for example after setpriv or sudo.
                Err(TuningError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {}
                Ok(None) => {}
                Ok(Some(found)) => return Ok(found),
                Err(error) => return Err(error),
            }
        }
        Ok(Self::default())
    }

    /// Replaces values, by their names in the file.
    ///
    /// # Errors
    /// [`BadValue`] for an unknown name or an invalid value.
    pub fn with<S: AsRef<str>>(mut self, values: &[(S, usize)]) -> Result<Self, BadValue> {
        for (name, value) in values {
            let name = name.as_ref();
            let must_be = "left out: the tuning file has no value of this name";
            *self.value_mut(name).ok_or_else(|| BadValue { name: name.to_owned(), must_be })? = *value;
        }
        self.check().map(|()| self)
    }

    /// A value, by its name in the file.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<usize> {
        self.clone().value_mut(name).map(|value| *value)
    }

    fn value_mut(&mut self, name: &str) -> Option<&mut usize> {
        Some(match name {
            "copy_crossover_bytes" => &mut self.copy_crossover_bytes,
            "eager_bytes" => &mut self.eager_bytes,
            "ring_bytes" => &mut self.ring_bytes,
            "window" => &mut self.window,
            "acknowledge_every" => &mut self.acknowledge_every,
            "acknowledge_delay_us" => &mut self.acknowledge_delay_us,
            "slots" => &mut self.slots,
            "send_descriptors" => &mut self.send_descriptors,
            "pipe_ring_bytes" => &mut self.pipe_ring_bytes,
            "fetched_bytes" => &mut self.fetched_bytes,
            _ => return None,
        })
    }

    fn check(&self) -> Result<(), BadValue> {
        let require = |is_valid: bool, name: &str, must_be| {
            if is_valid { Ok(()) } else { Err(BadValue { name: name.to_owned(), must_be }) }
        };
        let within = |value: usize, min: usize, max: usize| (min..=max).contains(&value);
        require(
            self.eager_bytes <= Self::EAGER_BYTES_MAX,
            "eager_bytes",
            "at most 1 MiB, of which a receiver keeps four for each peer",
        )?;
        require(within(self.ring_bytes, 64 << 10, 256 << 20), "ring_bytes", "64 KiB to 256 MiB")?;
        // With a larger window, a retransmitted frame could be taken for a new one.
        require(within(self.window, 2, usize::from(bounds::WINDOW)), "window", "2 to 63")?;
        let every_max = usize::from(bounds::WINDOW) / 2;
        require(within(self.acknowledge_every, 1, every_max), "acknowledge_every", "1 to 31")?;
        require(self.acknowledge_delay_us <= Self::ACKNOWLEDGE_DELAY_US_MAX, "acknowledge_delay_us", "at most 100000")?;
        require(within(self.slots, 16, 1 << 14), "slots", "16 to 16384")?;
        require(within(self.send_descriptors, 16, 1 << 14), "send_descriptors", "16 to 16384")?;
        let pipe = self.pipe_ring_bytes;
        let is_ring = pipe.is_power_of_two() && within(pipe, 4096, barewire_shm::RING_BYTES_MAX);
        require(is_ring, "pipe_ring_bytes", "a power of two, 4 KiB to 16 MiB")
    }

    /// Reads a file; `None` if it does not exist.
    fn read(path: &Path) -> Result<Option<Self>, TuningError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(unreadable(path, source)),
        };
        let malformed = |error: toml::de::Error| TuningError::Malformed {
            path: path.to_owned(),
            reason: error.message().to_owned(),
        };
        let found: Self = toml::from_str(&text).map_err(malformed)?;
        let wrong = |error: BadValue| TuningError::Malformed { path: path.to_owned(), reason: error.to_string() };
        found.check().map(|()| Some(found)).map_err(wrong)
    }
}

fn unreadable(path: &Path, source: io::Error) -> TuningError {
    TuningError::Unreadable { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_an_invalid_one_is_refused_with_its_path() {
        let path = env::temp_dir().join(format!("barewire-tuning-{}.toml", std::process::id()));
        let written = |text: &str| {
            fs::write(&path, text).unwrap();
            Tuning::read(&path)
        };
        assert_eq!(
            written("# measured\ncopy_crossover_bytes = 4000\n").unwrap(),
            Some(Tuning { copy_crossover_bytes: 4000, ..Tuning::default() })
        );
        assert_eq!(written("").unwrap(), Some(Tuning::default()));
        let values = ["window = 64", "acknowledge_every = 32", "pipe_ring_bytes = 5000", "slots = 0"];
        let texts = ["copy_crossover_bytes = -1", "copy_crossover = 3", "nonsense", "copy_crossover_bytes = 'x'"];
        for wrong in values.into_iter().chain(texts) {
            let error = written(wrong).unwrap_err().to_string();
            assert!(error.contains("barewire tune") && error.contains("barewire-tuning"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(Tuning::read(&path).unwrap(), None);
    }

    #[test]
    fn a_value_is_set_by_name_within_its_bounds() {
        let changed = Tuning::default().with(&[("window", 20), ("acknowledge_every", 10)]).unwrap();
        assert_eq!((changed.window, changed.get("window")), (20, Some(20)));
        assert!(changed.clone().with(&[("acknowledge_every", 32)]).unwrap_err().to_string().contains("1 to 31"));
        assert!(changed.with(&[("windows", 1)]).is_err());
        assert!(Tuning::NAMES.iter().all(|name| Tuning::default().get(name).is_some()));
        assert_eq!(Tuning::default().check(), Ok(()));
    }
}
