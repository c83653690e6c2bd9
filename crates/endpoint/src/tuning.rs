// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured on this machine and is better than a default: a file that `barewire tune` writes, and
//! `barewire bench host --tune`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use barewire_link::PacketConfig;
use barewire_llc::bounds;
use barewire_shm::PipeConfig;
use serde::Deserialize;
use thiserror::Error;

/// Names the file, instead of the two places where it is looked for.
pub const TUNING_VARIABLE: &str = "BAREWIRE_TUNING";
/// The machine's, for all users; under the user's own configuration folder the same name below `barewire` goes first.
const SYSTEM_FILE: &str = "/etc/barewire/tuning.toml";

/// The measured values, each with the default of the machine in `docs/performance.md`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Up to so many bytes a message costs less to copy behind its headers than to gather from where it lies.
    pub copy_crossover_bytes: usize,
    /// Up to so many bytes a message is sent before its receive is known.
    pub eager_bytes: usize,
    /// Memory of the packet link's receive ring, at least; a broker's sockets have the broker's.
    pub ring_bytes: usize,
    /// Frames to a peer that are not acknowledged, at most, either way.
    pub window: usize,
    /// Frames that one acknowledgement covers, at most.
    pub acknowledge_every: usize,
    /// Microseconds that an acknowledgement waits for a frame to ride on, at most.
    pub acknowledge_delay_us: usize,
    /// Frames under way at once, at most.
    pub slots: usize,
    /// Messages under way at once, at most.
    pub send_descriptors: usize,
    /// Bytes of the ring to a process of this host, each way.
    pub pipe_ring_bytes: usize,
    /// From so many bytes on, and above the eager limit in any case, a process of this host fetches a message itself from
    /// where it lies, in one copy, if the system lets it; 0: never.
    pub fetched_bytes: usize,
}

impl Tuning {
    /// Of all values, as the file calls them.
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
    /// A rendezvous costs a round trip in which the wire is idle and, where peers compute, a call of theirs. Four times
    /// as much streams at most a tenth faster (measured with 16 to 256 KiB, `docs/performance.md`).
    pub const EAGER_BYTES: usize = 64 << 10;
    /// Of the longest message that may be sent eagerly: a receiver keeps four for each peer.
    pub const EAGER_BYTES_MAX: usize = 1 << 20;
    /// A channel has at most its queue of 128 frames in slots for long messages, and streams no faster with more slots
    /// than that (measured with 64 to 1024, `docs/performance.md`): twice as many, so that a peer which stands still
    /// leaves another's long messages as many.
    pub const SLOTS: u16 = 256;
    /// A tenth of the largest T1. So long a delay is for tests: whatever waits for it shows.
    pub const ACKNOWLEDGE_DELAY_US_MAX: usize = 100_000;
    /// As many short messages as there are slots. Streams of them are alike with 128 to 512, and 4 % slower with 64.
    pub const SEND_DESCRIPTORS: u16 = 256;
    /// Below, the copy into the pipe and the one out of it take less than the call and the answer (`docs/performance.md`).
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
            send_descriptors: usize::from(Self::SEND_DESCRIPTORS),
            pipe_ring_bytes: PipeConfig::default().ring_bytes,
            fetched_bytes: Self::FETCHED_BYTES,
        }
    }
}

/// Why there is a file and nothing of it is used.
#[derive(Debug, Error)]
pub enum TuningError {
    /// It cannot be read.
    #[error("the tuning file {} cannot be read: {source}", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is none.
    #[error("{} is no tuning file: {reason}; `barewire tune` writes one", path.display())]
    Malformed {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A value that cannot be.
    #[error(transparent)]
    Value(#[from] BadValue),
}

/// A value that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} must be {must_be}")]
pub struct BadValue {
    name: String,
    must_be: &'static str,
}

impl Tuning {
    /// This machine's and user's: of the file that [`TUNING_VARIABLE`] names, or the user's, or the system's, or the
    /// defaults.
    ///
    /// # Errors
    /// [`TuningError`]: a file that is named must be there, and one that is there and may be read must be one.
    pub fn load() -> Result<Self, TuningError> {
        if let Some(named) = env::var_os(TUNING_VARIABLE) {
            return Self::read(Path::new(&named))
                .and_then(|found| found.ok_or_else(|| unreadable(Path::new(&named), io::ErrorKind::NotFound.into())));
        }
        let folder = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let folder = folder.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")));
        for path in [folder.map(|folder| folder.join("barewire/tuning.toml")), Some(SYSTEM_FILE.into())] {
            match path.map_or(Ok(None), |path| Self::read(&path)) {
                // Somebody else's home, as after setpriv or sudo.
                Err(TuningError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {}
                Ok(None) => {}
                Ok(Some(found)) => return Ok(found),
                Err(error) => return Err(error),
            }
        }
        Ok(Self::default())
    }

    /// With other values, by their names in the file.
    ///
    /// # Errors
    /// [`BadValue`] if there is none of a name, or it cannot be so.
    pub fn with<S: AsRef<str>>(mut self, values: &[(S, usize)]) -> Result<Self, BadValue> {
        for (name, value) in values {
            let name = name.as_ref();
            let must_be = "left out: the tuning file has no value of this name";
            *self.place(name).ok_or_else(|| BadValue { name: name.to_owned(), must_be })? = *value;
        }
        self.check().map(|()| self)
    }

    /// A value, by its name in the file.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<usize> {
        self.clone().place(name).map(|value| *value)
    }

    fn place(&mut self, name: &str) -> Option<&mut usize> {
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
        let require = |is_right: bool, name: &str, must_be| {
            if is_right { Ok(()) } else { Err(BadValue { name: name.to_owned(), must_be }) }
        };
        let within = |value: usize, least: usize, most: usize| (least..=most).contains(&value);
        require(
            self.eager_bytes <= Self::EAGER_BYTES_MAX,
            "eager_bytes",
            "at most 1 MiB, of which a receiver keeps four for each peer",
        )?;
        require(within(self.ring_bytes, 64 << 10, 256 << 20), "ring_bytes", "64 KiB to 256 MiB")?;
        // Above, a repeated frame can be taken for a new one.
        require(within(self.window, 2, usize::from(bounds::WINDOW)), "window", "2 to 63")?;
        let every = within(self.acknowledge_every, 1, self.window / 2);
        require(every, "acknowledge_every", "1 to half of the window")?;
        require(self.acknowledge_delay_us <= Self::ACKNOWLEDGE_DELAY_US_MAX, "acknowledge_delay_us", "at most 100000")?;
        require(within(self.slots, 16, 1 << 14), "slots", "16 to 16384")?;
        require(within(self.send_descriptors, 16, 1 << 14), "send_descriptors", "16 to 16384")?;
        let pipe = self.pipe_ring_bytes;
        let is_ring = pipe.is_power_of_two() && within(pipe, 4096, barewire_shm::RING_BYTES_MAX);
        require(is_ring, "pipe_ring_bytes", "a power of two, 4 KiB to 16 MiB")
    }

    /// Of a file, if it is there.
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
    fn a_file_is_read_and_what_is_none_is_refused_with_its_place() {
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
    fn a_value_is_changed_by_its_name_and_within_its_bounds() {
        let changed = Tuning::default().with(&[("window", 20), ("acknowledge_every", 10)]).unwrap();
        assert_eq!((changed.window, changed.get("window")), (20, Some(20)));
        assert!(
            changed.clone().with(&[("acknowledge_every", 11)]).unwrap_err().to_string().contains("half of the window")
        );
        assert!(changed.with(&[("windows", 1)]).is_err());
        assert!(Tuning::NAMES.iter().all(|name| Tuning::default().get(name).is_some()));
        assert_eq!(Tuning::default().check(), Ok(()));
    }
}
