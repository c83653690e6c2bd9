#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds every native program into target/release, where `barewire` looks for them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
cargo build --release --locked --quiet --workspace
# libfabric finds providers by the end of their file names, in a separate folder.
mkdir -p target/release/libfabric
ln -f target/release/libbarewire_fi.so target/release/libfabric/libbarewire-fi.so
tools/build_c.sh target/release
