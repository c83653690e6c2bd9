#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs what tests need, builds, lints, runs every test. The last line has the numbers of passed, failed and skipped
# tests; a skipped test that is not in tests/skips.txt is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
scratch=$(mktemp -d)
packages= programs= pure= lint=
trap '[ -z "$packages$programs$pure$lint" ] || kill $packages $programs $pure $lint 2>/dev/null || true; rm -rf "$scratch"' EXIT
setup/setup.sh debian
# Python's packages are installed during compilation. Programs and tests are compiled at once, programs first: the last
# minute of their compilation is one crate on one core.
setup/setup.sh test &
packages=$!
tools/build.sh &
programs=$!
# With mutants of the engine and of the stack above it, which the simulator must catch; no program contains them.
cargo=(cargo test --profile checks --locked --workspace --exclude barewire-benches --features barewire-sim/mutants --quiet)
nice "${cargo[@]}" --no-run
wait "$programs"
programs=
wait "$packages"
packages=
export BAREWIRE_SKIP_LOG=$scratch/skips
touch "$BAREWIRE_SKIP_LOG"
passed=0 failed=0 skipped=0

# Tests without a lab run beside the others.
.venv/bin/pytest python/tests --junit-xml="$scratch/pure.xml" >"$scratch/pure" 2>&1 &
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
nice -n 19 tools/lint.sh >"$scratch/lint" 2>&1 &
lint=$!
# Two files at a time, each of which manages only its own labs: beside the other tests and the lints both cores are full,
# and with three, processes waited for half a second and more, which tests took for failures.
.venv/bin/pytest tests --numprocesses 2 --dist loadfile --no-loadscope-reorder --junit-xml="$scratch/lab.xml" 2>&1 | tee "$scratch/lab" || true

wait "$pure" || true
pure=
cat "$scratch/pure"
wait "$lint" || true
lint=
# Lints count as one test each.
cat "$scratch/lint"
passed=$((passed + $(grep -c ': passed$' "$scratch/lint" || true)))
failed=$((failed + $(grep -c ': FAILED$' "$scratch/lint" || true)))
# A lint that ended without saying so is a failure.
grep -q ': passed$' "$scratch/lint" || failed=$((failed + 1))
count() { awk -v what="$1" '/^test result:/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ "^" what) sum += $i } END { print sum + 0 }' "$scratch/cargo"; }
passed=$((passed + $(count passed) - silent)) failed=$((failed + $(count failed))) skipped=$((skipped + silent))
# A run that ended without counting a failure, for example because it did not compile, is one.
if [ "$failed" = 0 ] && grep -q '^cargo test: broken' "$scratch/cargo"; then failed=1; fi
read -r tests bad skips < <(.venv/bin/python - "$scratch/pure.xml" "$scratch/lab.xml" <<'P'
import sys
import xml.etree.ElementTree as tree
suites = [suite for file in sys.argv[1:] for suite in tree.parse(file).getroot().iter("testsuite")]
totals = [(int(s.get("tests")), int(s.get("failures")) + int(s.get("errors")), int(s.get("skipped"))) for s in suites]
print(*map(sum, zip(*totals)))
P
) || { tests=0 bad=1 skips=0; }
passed=$((passed + tests - bad - skips)) failed=$((failed + bad)) skipped=$((skipped + skips))

cat "$BAREWIRE_SKIP_LOG"
# A new skip is a failure: something is no longer tested.
.venv/bin/python tools/skips.py "$BAREWIRE_SKIP_LOG" "$scratch/pure.xml" "$scratch/lab.xml" || failed=$((failed + 1))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
