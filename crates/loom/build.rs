// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sources included leave their own tests out.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=loom");
}
