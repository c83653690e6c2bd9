#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Which lines the tests execute: of Rust by the tests of all crates and by tests/fi, of Python by all of pytest's tests.
# tools/coverage.sh [rust] [python] (default: both); pages in target/coverage. Needs `setup/setup.sh checks`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/target/tools/bin:$PATH:$HOME/.cargo/bin
[ $# -gt 0 ] || set -- rust python
folder=$PWD/target/coverage
mkdir -p "$folder"

of_rust() {
    local namespace=(unshare --net) build=(--profile checks --locked --quiet) provider=$folder/provider
    [ "$(id -u)" = 0 ] || namespace=(unshare --user --map-root-user --net)
    export CARGO_TARGET_DIR=$folder/build
    # shellcheck disable=SC1090
    source <(cargo llvm-cov show-env --sh)
    cargo llvm-cov clean --workspace
    "${namespace[@]}" .venv/bin/python tools/with_loopback.py \
        cargo test "${build[@]}" --workspace --exclude barewire-benches --features barewire-sim/mutants \
        -- --skip crate_builds_for_a_target_without_std --skip _caught # no runtime that counts; injected faults
    cargo build "${build[@]}" --package barewire-provider --lib
    mkdir -p "$provider"
    ln -f "$CARGO_TARGET_DIR/checks/libbarewire_fi.so" "$provider/libbarewire-fi.so"
    local sources
    mapfile -t sources < <(find tests/fi -name '*.c' ! -name loaded.c) # loaded.c is a program of its own
    gcc -std=gnu17 -O1 -g -o "$provider/fi" "${sources[@]}" -lfabric -lpthread -ldl
    BAREWIRE_TEST_SANITIZED=$provider .venv/bin/pytest tests/test_provider.py -k test_case
    cargo llvm-cov report --profile checks --html --output-dir "$folder/rust"
    cargo llvm-cov report --profile checks --summary-only
}

of_python() {
    local status=0
    .venv/bin/coverage erase
    # The tables are of value even if a test fails, be it for being observed: an ordinary user cannot write what was
    # counted, and its program says so.
    .venv/bin/coverage run -m pytest python/tests || status=1
    .venv/bin/coverage run -m pytest tests --numprocesses 2 --dist loadfile || status=1
    .venv/bin/coverage combine --quiet
    .venv/bin/coverage html --quiet --directory "$folder/python"
    .venv/bin/coverage report
    return $status
}

for language; do
    case $language in
        rust | python) "of_$language" ;;
        *) echo "coverage: say rust or python, not '$language'" >&2; exit 2 ;;
    esac
done
