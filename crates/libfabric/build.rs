// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generates Rust bindings from libfabric's headers.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use bindgen::callbacks::{IntKind, ParseCallbacks};

/// Flags and capabilities are 64 bits wide wherever libfabric passes them.
#[derive(Debug)]
struct Wide;

impl ParseCallbacks for Wide {
    fn int_macro(&self, name: &str, _: i64) -> Option<IntKind> {
        (name.starts_with("FI_") && (!name.starts_with("FI_E") || name == "FI_EVENT")).then_some(IntKind::U64)
    }
}

fn main() {
    println!("cargo::rerun-if-changed=wrapper.h");
    println!("cargo::rerun-if-env-changed=BAREWIRE_LIBFABRIC_INCLUDE");
    let mut bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .allowlist_item("(fi|FI|fid|iovec).*")
        .blocklist_function(".*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .parse_callbacks(Box::new(Wide));
    // The libclang library ships no stddef.h; the C compiler's is used instead.
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if let Ok(told) = Command::new(&compiler).arg("-print-file-name=include").output() {
        bindings = bindings.clang_arg(format!("-isystem{}", String::from_utf8_lossy(&told.stdout).trim()));
    }
    // One or several folders with colons between them.
    let folders = env::var_os("BAREWIRE_LIBFABRIC_INCLUDE").unwrap_or_default();
    for folder in env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()) {
        bindings = bindings.clang_arg(format!("-I{}", folder.display()));
    }
    let bindings = bindings.generate().unwrap_or_else(|error| {
        panic!(
            "libfabric's headers cannot be read: {error}; install libfabric-dev and libclang1-14, or run `make setup`"
        )
    });
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("bindings.rs");
    bindings.write_to_file(&to).expect("cargo's own folder can be written");
}
