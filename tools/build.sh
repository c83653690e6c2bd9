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
# Preloaded into ranks before the MPI library: yield for MPICH ranks with a core each, start for Open MPI.
preload() {
    cc -O2 -Wall -Wextra -Werror -shared -fPIC "crates/provider/preload/$2.c" -ldl \
        -o "target/release/libfabric/libbarewire-$1.so" "${@:3}"
}
preload yield yield
preload start start
for library in psm_infinipath.so.1 psm2.so.2; do
    preload "${library%%.*}" cards -Wl,-soname,lib$library -Wl,--version-script=crates/provider/preload/cards.map
done
make --no-print-directory -C floor
