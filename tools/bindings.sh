#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Generates Rust's declarations of libfabric from the installed headers: of the oldest version that is supported, since
# later ones take what was compiled for it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/bindings"
export PATH=$PATH:$HOME/.cargo/bin
to=../../crates/libfabric/src/bindings.rs
cargo run --quiet --locked --target-dir ../../target/bindings >"$to.new"
mv "$to.new" "$to"
