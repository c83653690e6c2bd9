#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds every native program into target/release, where `barewire` looks for them, and compiles its Python modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
# Every command would compile them again where its user may not write, or with PYTHONDONTWRITEBYTECODE.
/usr/bin/python3 -m compileall -q python/barewire
cargo build --release --locked --quiet -p barewire-probe -p barewire-host -p barewire-broker -p barewire-provider
# libfabric finds providers by the end of their file names, in a separate folder.
mkdir -p target/release/libfabric
ln -f target/release/libbarewire_fi.so target/release/libfabric/libbarewire-fi.so
tools/build_c.sh target/release
