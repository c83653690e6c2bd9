// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets `cfg(loom)`, with which the included sources omit their own tests.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=loom");
}
