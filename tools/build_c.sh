#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds what is written in C into a folder, with the compiler $CC: build_c.sh target/release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath "$1")
read -ra compiler <<<"${CC:-cc}"
# Preloaded into ranks before the MPI library: yield for MPICH ranks with a core each, start for Open MPI.
preload() {
    "${compiler[@]}" -O2 -Wall -Wextra -Werror -shared -fPIC "crates/provider/preload/$2.c" -ldl \
        -o "$out/libfabric/libbarewire-$1.so" "${@:3}"
}
preload yield yield
preload start start
for library in psm_infinipath.so.1 psm2.so.2; do
    preload "${library%%.*}" cards -Wl,-soname,lib$library -Wl,--version-script=crates/provider/preload/cards.map
done
make --no-print-directory --silent -C floor BIN="$out" CC="${CC:-cc}"
