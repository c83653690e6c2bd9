// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crate needs no `std`. A build for a target without it proves that where such a target is installed
//! (`cargo build -p barewire-llc --target x86_64-unknown-none`); here the sources are searched.

use std::fs;
use std::path::Path;

/// Proves that, outside tests, nothing names `std`, prints, or declares a dependency.
#[test]
fn nothing_but_core_and_alloc_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    assert!(library.contains("#![no_std]") && library.contains("#![forbid(unsafe_code)]"));
    assert!(!fs::read_to_string(root.join("Cargo.toml")).unwrap().contains("\n[dependencies]"));
    let mut folders = vec![root.join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap() != "tests.rs" {
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
