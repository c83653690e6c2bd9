#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs what tests need, builds, lints, runs every test. The last line has the numbers of passed, failed and skipped
# tests; a skipped test that is not in tests/skips.txt is a failure. A test that failed beside the others runs again
# alone, and fails if it fails again (docs/decisions/0057-failed-tests-run-again-alone.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
# Where it is set, each process of pytest compiles pytest, hypothesis and the tests again, which takes it seconds.
unset PYTHONDONTWRITEBYTECODE
scratch=$(mktemp -d)
compiler= packages= programs= pure= lint=
end() {
    local leader
    for leader in $compiler $packages $programs $pure $lint; do kill -- "-$leader" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap end EXIT
# Starts a command beside this script in a process group of its own, in which `end` also finds what the command starts.
start() {
    set -m
    "$@" </dev/null &
    set +m
}
# Clippy compiles the tests, since it is a compiler too: linting by itself would read all sources once more. It skips
# optimisations of MIR, so it compiles no program. The benchmarks, which are not compiled here, are linted by `make lint`.
linting=()
clippy-driver --version >/dev/null 2>&1 && linting=(RUSTC_WORKSPACE_WRAPPER=clippy-driver)
# With mutants of the engine and of the stack above it, which the simulator must catch; no program contains them.
cargo=(env "${linting[@]}" cargo test --profile checks --locked --workspace --exclude barewire-benches --features barewire-sim/mutants --quiet)
# Where compilers are already, tests are compiled while packages are installed, Debian's and then Python's; programs as
# well from when make is there, and before the tests: the last minute of their compilation is one crate on one core.
if command -v cc >/dev/null && command -v cargo >/dev/null; then
    start nice "${cargo[@]}" --no-run
    compiler=$!
fi
setup/setup.sh debian
start setup/setup.sh test
packages=$!
start tools/build.sh
programs=$!
# If that failed, it fails again, or finds what it lacked.
[ -z "$compiler" ] || wait "$compiler" || true
compiler=
nice "${cargo[@]}" --no-run 2>&1 | tee "$scratch/clippy"
wait "$programs"
programs=
# For a test that has cargo compile an example.
[ ${#linting[@]} = 0 ] || export "${linting[@]}" CLIPPY_FOUND=$scratch/clippy
wait "$packages"
packages=
export BAREWIRE_SKIP_LOG=$scratch/skips
touch "$BAREWIRE_SKIP_LOG"
# With more failures something is broken, and none runs again.
AGAIN_MAX=5
tests() { # folder, name, pytest's options
    .venv/bin/pytest "$1" -o cache_dir="$scratch/cache-$2" --junit-xml="$scratch/$2.xml" "${@:3}"
}
count() { .venv/bin/python tools/count_tests.py "$scratch"; }

# Tests without a lab run beside the others.
start tests python/tests pure >"$scratch/pure" 2>&1
pure=$!

# Raw frames on a separate loopback interface: as root directly, otherwise in a user namespace.
namespace=(unshare --net)
[ "$(id -u)" = 0 ] || namespace=(unshare --user --map-root-user --net)
"${namespace[@]}" true 2>/dev/null || namespace=()
[ ${#namespace[@]} -gt 0 ] && namespace+=(.venv/bin/python tools/with_loopback.py)
{
    "${namespace[@]}" "${cargo[@]}" --offline --no-fail-fast || echo "cargo test: broken"
} 2>&1 | tee "$scratch/cargo"
silent=$(wc -l <"$BAREWIRE_SKIP_LOG")
# Beside the tests in the lab.
start nice -n 19 tools/lint.sh >"$scratch/lint" 2>&1
lint=$!
# Two files at a time, each of which manages only its own labs: beside the other tests and the lints both cores are full,
# and with three, processes waited for half a second and more, which tests took for failures.
tests tests lab --numprocesses 2 --dist loadfile --no-loadscope-reorder 2>&1 || true

wait "$pure" || true
pure=
cat "$scratch/pure"
wait "$lint" || true
lint=
cat "$scratch/lint"

read -r _ failed _ < <(count)
if [ "$failed" -gt 0 ] && [ "$failed" -le "$AGAIN_MAX" ]; then
    echo "tests: $failed failed; those run again alone"
    mapfile -t names < <(.venv/bin/python tools/count_tests.py "$scratch" --failed-rust)
    if [ -n "${names[*]}" ]; then
        "${namespace[@]}" "${cargo[@]}" --offline --no-fail-fast -- --exact "${names[@]}" 2>&1 | tee "$scratch/cargo.again" || true
    fi
    last_failed=(--last-failed --last-failed-no-failures none)
    tests python/tests pure "${last_failed[@]}" --junit-xml="$scratch/pure.again.xml" || true
    tests tests lab "${last_failed[@]}" --junit-xml="$scratch/lab.again.xml" || true
    read -r _ again _ < <(count)
    echo "tests: $((failed - again)) of $failed passed alone; above is how they failed beside the others"
fi
read -r passed failed skipped < <(count)
passed=$((passed - silent)) skipped=$((skipped + silent))

cat "$BAREWIRE_SKIP_LOG"
# A new skip is a failure: something is no longer tested.
.venv/bin/python tools/skips.py "$BAREWIRE_SKIP_LOG" "$scratch/pure.xml" "$scratch/lab.xml" || failed=$((failed + 1))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
