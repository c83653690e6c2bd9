// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creating and deleting small files, without waiting for the disk.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::record::Quantity;
use crate::stretch::{Effort, Subject, measure_in_order};
use barewire_recorder::LaunchError;

const SIZES: [usize; 4] = [0, 1 << 10, 4 << 10, 10 << 10];
/// Files in the directory at once.
const FILES: u64 = 100;

pub fn run(
    directory: &Path,
    random: &mut fastrand::Rng,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let folder = Folder::create(directory)?;
    let names: Vec<PathBuf> = (0..FILES).map(|number| folder.0.join(number.to_string())).collect();
    let mut sizes = SIZES;
    random.shuffle(&mut sizes);
    for bytes in sizes {
        let content = vec![0x5A; bytes];
        let create = |times: u64| names[..times as usize].iter().try_for_each(|name| create(name, &content));
        let delete = |times: u64| {
            names[..times as usize]
                .iter()
                .try_for_each(|name| fs::remove_file(name).map_err(|error| failed(name, error)))
        };
        let mut subjects = [
            Subject { name: "create", operations: 1, repeat: Box::new(create) },
            Subject { name: "delete", operations: 1, repeat: Box::new(delete) },
        ];
        measure_in_order(&mut subjects, FILES, bytes, Quantity::Time, effort, output)?;
    }
    Ok(())
}

fn create(name: &Path, content: &[u8]) -> Result<(), LaunchError> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(name);
    file.and_then(|mut file| file.write_all(content)).map_err(|error| failed(name, error))
}

fn failed(name: &Path, error: std::io::Error) -> LaunchError {
    LaunchError::system(&format!("a file in {}", name.parent().unwrap_or(name).display()), error)
}

/// A name of this process in that directory. The process's number alone may be in use: by another machine, or for what
/// a process left that was killed.
pub fn temporary(directory: &Path) -> PathBuf {
    directory.join(format!(".barewire-host-{}-{:08x}", std::process::id(), fastrand::u32(..)))
}

/// A directory of this process; removed on drop with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn create(directory: &Path) -> Result<Self, LaunchError> {
        let path = temporary(directory);
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| failed(&path, error))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Fails if somebody else has removed it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_measured_by_size_and_removed_also_after_an_error() {
        let base = Folder::create(&std::env::temp_dir()).unwrap();
        let effort = Effort { stretch_ns: 1000, seconds: 0.001 };
        let mut output = Vec::new();
        run(&base.0, &mut fastrand::Rng::with_seed(1), effort, &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        for size in SIZES {
            assert!(text.contains(&format!("\"create\",\"block_bytes\":{size},\"phase\":\"measure\"")), "{text}");
        }
        let kept = Folder::create(&base.0).unwrap();
        create(&kept.0.join("1"), b"x").unwrap();
        let second = Folder::create(&base.0).unwrap();
        assert_eq!(fs::read_dir(&second.0).unwrap().count(), 0, "nobody else's directory is used");
        drop((kept, second));
        assert_eq!(fs::read_dir(&base.0).unwrap().count(), 0);
    }
}
