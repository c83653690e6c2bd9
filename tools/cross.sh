#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds every native program for other architectures with Debian's compilers, runs the Rust tests in qemu-user, and for
# arm64 also what tests/boards holds: tools/cross.sh arm64 riscv64 (default: both).
# The last line has the numbers of passed, failed and skipped tests. What cannot work in qemu-user is listed with its
# reason in tests/boards/qemu-user.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- arm64 riscv64
for architecture; do
    [[ $architecture == @(arm64|riscv64) ]] || { echo "cross: say arm64 or riscv64, not '$architecture'" >&2; exit 2; }
done
setup/setup.sh cross
export PATH=$PATH:$HOME/.cargo/bin
# Its worlds are compared with the other architectures'.
cargo build --release --locked --quiet -p barewire-sim
export CARGO_TARGET_DIR=target/cross
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_RISCV64GC_UNKNOWN_LINUX_GNU_LINKER=riscv64-linux-gnu-gcc
# Emulation is slow; the same cases run natively in `make test`, with more of them.
export PROPTEST_CASES=32
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export BAREWIRE_SKIP_LOG=$scratch/skips
passed=0 failed=0 skipped=0

build() {
    local target=$1 compiler=$2 out=target/cross/$1/release
    cargo build --release --locked --quiet --target "$target" \
        -p barewire-probe -p barewire-host -p barewire-broker -p barewire-provider -p barewire-sim
    mkdir -p "$out/libfabric"
    ln -f "$out/libbarewire_fi.so" "$out/libfabric/libbarewire-fi.so"
    CC=$compiler tools/build_c.sh "$out"
}

# Sums a column of the lines in which Rust's tests give their results.
count() { awk -v what="$1" '/^test result:/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ "^" what) sum += $i } END { print sum + 0 }' "$2"; }

rust_tests() {
    local architecture=$1 target=$2 log=$scratch/rust-$1 options=(--exact) name reason listed=0 broken=0
    local test=(cargo test --profile checks --locked --offline --quiet --workspace --exclude barewire-benches --target "$target")
    "${test[@]}" --no-run
    while IFS=$'\t' read -r name reason; do
        options+=(--skip "$name")
        listed=$((listed + 1))
        echo "SKIPPED in qemu-user: $name: $reason"
    done < <(grep -v '^#' tests/boards/qemu-user.txt)
    : >"$BAREWIRE_SKIP_LOG"
    tools/emulated.sh "$architecture" "${test[@]}" --no-fail-fast -- "${options[@]}" 2>&1 | tee "$log" || broken=1
    cat "$BAREWIRE_SKIP_LOG"
    local silent left_out bad
    silent=$(wc -l <"$BAREWIRE_SKIP_LOG") left_out=$(count filtered "$log") bad=$(count failed "$log")
    # A run that ended without counting a failure, for example because it did not compile, is one.
    [ "$broken" = 0 ] || [ "$bad" != 0 ] || bad=1
    if [ "$left_out" != "$listed" ]; then
        echo "cross: tests/boards/qemu-user.txt lists $listed tests, of which $left_out exist" >&2
        bad=$((bad + 1))
    fi
    passed=$((passed + $(count passed "$log") - silent)) failed=$((failed + bad)) skipped=$((skipped + silent + left_out))
}

# Simulated worlds of the engine are this machine's, to the last frame. Those of the whole stack use process_vm_readv, which
# qemu-user lacks: here no property may be violated, and tests/boards compares them under an arm64 kernel.
worlds() {
    local architecture=$1 program=target/cross/$2/release/barewire-sim kind here there
    for kind in "" --stack "--stack --libfabric"; do
        # shellcheck disable=SC2086
        there=$(tools/emulated.sh "$architecture" "$program" --jobs "$(nproc)" $kind --seeds 0..200 | sed 's/, [0-9.]* s$//') || true
        here=$there
        [ -n "$kind" ] || here=$(target/release/barewire-sim --jobs "$(nproc)" --seeds 0..200 | sed 's/, [0-9.]* s$//') || true
        if [ "$here" = "$there" ] && [[ $there == *", 0 violations" ]]; then
            echo "cross: worlds $kind: passed"
            passed=$((passed + 1))
        else
            printf 'cross: worlds %s: FAILED\nhere:\n%s\nthere:\n%s\n' "$kind" "$here" "$there"
            failed=$((failed + 1))
        fi
    done
}

# Writes the programs of the Rust tests that make system calls of their own, for tests/boards.
list_tests() {
    local target=$1
    cargo test --profile checks --locked --offline --workspace --exclude barewire-benches --target "$target" --no-run --message-format json 2>/dev/null |
        .venv/bin/python -c '
import json, re, sys
wanted = re.compile(r"/crates/(broker|carriers|endpoint|link|messages|names|probe|provider|shm)#")
built = [json.loads(line) for line in sys.stdin]
tests = [one for one in built if one.get("executable") and one["profile"]["test"]]
print(*(one["executable"] for one in tests if wanted.search(one["package_id"])), sep="\n")
' >"target/cross/$target/tests"
}

board_tests() {
    local tests bad skips
    .venv/bin/pytest tests/boards -m boards --junit-xml="$scratch/board.xml" || true
    read -r tests bad skips < <(.venv/bin/python - "$scratch/board.xml" <<'P'
import sys
import xml.etree.ElementTree as tree
suites = list(tree.parse(sys.argv[1]).getroot().iter("testsuite"))
print(*(sum(int(suite.get(name)) for suite in suites for name in names.split()) for names in ("tests", "failures errors", "skipped")))
P
    ) || { tests=1 bad=1 skips=0; }
    passed=$((passed + tests - bad - skips)) failed=$((failed + bad)) skipped=$((skipped + skips))
}

for architecture; do
    case $architecture in
        arm64) target=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu-gcc ;;
        riscv64) target=riscv64gc-unknown-linux-gnu compiler=riscv64-linux-gnu-gcc ;;
    esac
    echo "cross: $architecture: programs"
    build $target $compiler
    echo "cross: $architecture: Rust tests in qemu-user"
    rust_tests "$architecture" $target
    worlds "$architecture" $target
    [ "$architecture" = arm64 ] || continue
    echo "cross: $architecture: on an emulated board"
    list_tests $target
    board_tests
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
