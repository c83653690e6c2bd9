#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs Miri, an interpreter that detects undefined behaviour, on the tests that make no system calls.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
# Proptest reads its seeds from files. Miri is some hundred times slower than a processor, so each test has few cases.
export MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 CARGO_TARGET_DIR=target/miri
run() { cargo +nightly miri test --locked --quiet "$@"; }
run -p barewire-copy --lib
# Only the ring over plain memory; listeners and pipes need sockets and mappings.
run -p barewire-shm --lib ring::
run -p barewire-messages --lib -- --skip matching::tests::the_oldest_that_fits --skip matching::tests::threads
# Its tests leak what they draw, on purpose.
MIRIFLAGS="$MIRIFLAGS -Zmiri-ignore-leaks" run -p barewire-llc --lib -- --skip connection::tests --skip station::tests
