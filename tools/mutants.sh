#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Mutates the code in one place after the other; a test must fail each time. tools/mutants.sh [OPTIONS OF cargo mutants]
# Without options: all of crates/messages, broker and shm. .cargo/mutants.toml lists the survivors, with reasons.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/target/tools/bin:$PATH:$HOME/.cargo/bin
[ $# -gt 0 ] || set -- -p barewire-messages -p barewire-broker -p barewire-shm
exec cargo mutants --output target "$@"
