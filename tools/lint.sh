#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Formatting, lints and types of all languages, and a check that every source file names its licence.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
status=0

check() {
    local what=$1
    shift
    if "$@"; then echo "lint: $what: passed"; else echo "lint: $what: FAILED"; status=1; fi
}

every_source_names_its_licence() {
    local without
    without=$(git ls-files -co --exclude-standard '*.rs' '*.py' '*.c' '*.h' '*.sh' '*.toml' 'Makefile' 'bin/*' '.ci/*' |
        while read -r file; do head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0 OR MIT' || echo "$file"; done |
        grep -v '^rustfmt.toml$') || true
    [ -z "$without" ] || { echo "without an SPDX line: $without"; return 1; }
}

# What Clippy said when it compiled the tests (tools/test.sh), or what it says now.
clippy() {
    if [ -z "${CLIPPY_FOUND:-}" ]; then
        cargo clippy --release --locked --workspace --all-targets --quiet -- -D warnings
    else
        ! grep -A 12 '^warning' "$CLIPPY_FOUND"
    fi
}

check rustfmt cargo fmt --check
check clippy clippy
check clang-format clang-format --dry-run -Werror floor/*.[ch] crates/provider/preload/*.c tests/kernel_llc/*.[ch] tests/mpi/*.[ch] tests/fi/*.[ch] \
    $(git ls-files -co --exclude-standard "mpi/*.c" "mpi/*.h")
check "ruff format" .venv/bin/ruff format --check --quiet .
check ruff .venv/bin/ruff check --quiet .
check mypy .venv/bin/mypy --no-error-summary
check licences every_source_names_its_licence
exit $status
