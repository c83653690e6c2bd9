#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Mutates the code in one place after the other; a test must fail each time. tools/mutants.sh [OPTIONS OF cargo mutants]
# Without options: all of crates/messages, broker and shm. .cargo/mutants.toml lists the survivors, with reasons.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/target/tools/bin:$PATH:$HOME/.cargo/bin
# Some tests need raw frames: as root directly, otherwise in a user namespace.
namespace=(unshare --net)
[ "$(id -u)" = 0 ] || namespace=(unshare --user --map-root-user --net)
[ $# -gt 0 ] || set -- -p barewire-messages -p barewire-broker -p barewire-shm
exec "${namespace[@]}" .venv/bin/python tools/with_loopback.py cargo mutants --output target "$@"
