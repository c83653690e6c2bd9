// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured on this machine and is better than a default: a file that `barewire bench host --tune` writes.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

/// Names the file, instead of the two places where it is looked for.
pub const TUNING_VARIABLE: &str = "BAREWIRE_TUNING";
/// The machine's, for all users; under the user's own configuration folder the same name below `barewire` goes first.
const SYSTEM_FILE: &str = "/etc/barewire/tuning.toml";

/// The measured values.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Up to so many bytes a message costs less to copy behind its headers than to gather from where it lies.
    pub copy_crossover_bytes: usize,
}

impl Default for Tuning {
    /// Of the machine in `docs/performance.md`.
    fn default() -> Self {
        Self { copy_crossover_bytes: 8 << 10 }
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
    #[error("{} is no tuning file: {reason}; `barewire bench host --tune` writes one", path.display())]
    Malformed {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
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
        toml::from_str(&text).map(Some).map_err(malformed)
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
            Some(Tuning { copy_crossover_bytes: 4000 })
        );
        assert_eq!(written("").unwrap(), Some(Tuning::default()));
        for wrong in ["copy_crossover_bytes = -1", "copy_crossover = 3", "nonsense", "copy_crossover_bytes = 'x'"] {
            let error = written(wrong).unwrap_err().to_string();
            assert!(error.contains("bench host --tune") && error.contains("barewire-tuning"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(Tuning::read(&path).unwrap(), None);
    }
}
