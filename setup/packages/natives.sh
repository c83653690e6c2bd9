#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds the native files of all packages into target/packages/native, for any Linux with glibc 2.28 or later.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=$PWD/target/tools/packages/bin out=$PWD/target/packages/native
glibc=2.28
export PATH=$tools:$PATH:$HOME/.cargo/bin

# No path of the builder in a program: a panic's message would print it.
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
export RUSTFLAGS="--remap-path-prefix=$PWD=/usr/src/barewire --remap-path-prefix=$sources=/usr/src/cargo"
CARGO_TARGET_DIR=target/packages/cargo cargo zigbuild --release --locked --quiet --target "x86_64-unknown-linux-gnu.$glibc" \
    -p barewire-probe -p barewire-host -p barewire-broker -p barewire-provider

rm -rf "$out"
mkdir -p "$out/libfabric"
built=target/packages/cargo/x86_64-unknown-linux-gnu/release
cp "$built"/barewire-{probe,host,broker} "$out"
cp "$built/libbarewire_fi.so" "$out/libfabric/libbarewire-fi.so"
CC="python-zig cc -target x86_64-linux-gnu.$glibc" tools/build_c.sh "$out"
strip --strip-all "$out"/barewire-*
strip --strip-unneeded "$out"/libfabric/*.so

newest=$(readelf -VW "$out"/barewire-* "$out"/libfabric/*.so | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
[ "$(printf '%s\n' "GLIBC_$glibc" "$newest" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] || {
    echo "packages: a native file needs $newest, newer than glibc $glibc" >&2
    exit 1
}
if grep -rlaF -e "$PWD" -e "$HOME/.cargo" "$out"; then
    echo "packages: these files contain paths of this machine" >&2
    exit 1
fi
