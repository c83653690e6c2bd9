// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The coverage-guided driver of one target, named by `BAREWIRE_FUZZ_TARGET`. The arguments are libFuzzer's.

#![no_main]
#![allow(missing_docs)] // What the macro makes.

use std::sync::OnceLock;

use barewire_fuzz::{TARGETS, Target, target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    CHOSEN.get_or_init(chosen)(data);
});

fn chosen() -> Target {
    let name = std::env::var("BAREWIRE_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("BAREWIRE_FUZZ_TARGET is {name:?}, not one of {}", names.join(", "));
        std::process::exit(2)
    })
}
