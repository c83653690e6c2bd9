#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Pins each .in file into a .lock file with hashes, with `uv` in a throw-away environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
/usr/bin/python3 -m venv "$scratch"
"$scratch/bin/pip" install -q uv
compile() { "$scratch/bin/uv" pip compile -q --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header "$@"; }
compile uv.in -o uv.lock
compile requirements.in -o requirements.lock
compile -c requirements.lock requirements-test.in -o requirements-test.lock
compile -c requirements-test.lock requirements-bigdata.in -o requirements-bigdata.lock
compile requirements-packages.in -o requirements-packages.lock
compile docs.in -o docs.lock
compile --no-deps axe.in -o axe.lock
for library in mpi/*.in; do compile "$library" -o "${library%.in}.lock"; done
