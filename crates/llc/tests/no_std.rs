// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crate does not use `std`: it builds for a target without it, and its sources do not name it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

const TARGET: &str = "x86_64-unknown-none";

/// Needs the target's `core` and `alloc`, which `setup/setup.sh test` installs with rustup.
#[test]
fn crate_builds_for_a_target_without_std() {
    let rustc = || Command::new("rustc");
    let library = rustc().args(["--print", "target-libdir", "--target", TARGET]).output().unwrap();
    if !library.status.success() || !Path::new(String::from_utf8_lossy(&library.stdout).trim()).exists() {
        return skip(&format!("no libraries for {TARGET}; `rustup target add {TARGET}` installs them"));
    }
    let built = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline", "--target", TARGET, "--target-dir", env!("CARGO_TARGET_TMPDIR")])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Reports and records a skipped test.
fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("BAREWIRE_SKIP_LOG") {
        let mut log = OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(log, "barewire-llc: {why}").unwrap();
    }
}

/// Outside tests, no source names `std` or prints.
#[test]
fn only_core_and_alloc_are_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    assert!(library.contains("#![no_std]") && library.contains("#![forbid(unsafe_code)]"));
    let mut folders = vec![root.join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_stem().unwrap() == "tests" {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                for word in ["std::", "extern crate std", "println!"] {
                    assert!(!code.contains(word), "{word} in {}", path.display());
                }
                files += 1;
            }
        }
    }
    assert!(files > 10);
}
