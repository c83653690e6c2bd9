#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Coverage-guided fuzzing of input from peers and unauthenticated senders: tools/fuzz.sh [SECONDS] [TARGET]
# SECONDS for each target (default 3600); without TARGET all, one after the other. Results are in target/fuzz/TARGET;
# a failing input, target/fuzz/TARGET/crash-…, ends the run.
# `tools/fuzz.sh minimise` rewrites fuzz/corpus from the results: the fewest inputs that reach the same branches.
# Inputs there that are not named by libFuzzer are kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
all=(decode identity extension station pair message names broker carriers messenger pipe)
seconds=${1:-3600}
targets=("${all[@]}")
[ $# -lt 2 ] || targets=("$2")
[[ $seconds =~ ^(minimise|[1-9][0-9]*)$ ]] || { echo "fuzz: say seconds or minimise, not '$seconds'" >&2; exit 2; }
[[ " ${all[*]} " == *" ${targets[0]} "* ]] || { echo "fuzz: no target '${targets[0]}'; there are: ${all[*]}" >&2; exit 2; }

# Stable flags only: the pass and its options are LLVM's own. No address sanitizer: most of the code has no unsafe
# blocks, and `make sanitize` covers the rest.
# No -Clink-dead-code: unused monomorphisations would count as unreached code.
flags=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=yes -Coverflow-checks=yes -Ccodegen-units=1)
host=$(rustc -vV | sed -n 's/^host: //p')
# --target keeps the flags from build scripts, which cannot be linked with them.
RUSTFLAGS="${flags[*]}" CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR=target/fuzz/build \
    cargo build --release --locked --quiet --package barewire-fuzz --features libfuzzer --target "$host"
program=target/fuzz/build/$host/release/barewire-fuzz
# Value profiling finds branches by compared values; longer inputs only slow it down.
options=(-max_len=512 -timeout=10 -rss_limit_mb=1024 -use_value_profile=1)

for target in "${targets[@]}"; do
    export BAREWIRE_FUZZ_TARGET=$target
    found=target/fuzz/$target
    mkdir -p "$found/corpus" "fuzz/corpus/$target"
    if [ "$seconds" = minimise ]; then
        merged=$(mktemp -d)
        "$program" -merge=1 -use_counters=0 -max_len=512 "$merged" "fuzz/corpus/$target" "$found/corpus" 2>"$found/merge.log"
        # Inputs with names of our own are kept.
        find "fuzz/corpus/$target" -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
        cp "$merged"/* "fuzz/corpus/$target/"
        rm -r "$merged"
        echo "fuzz: $target: $(find "fuzz/corpus/$target" -type f | wc -l) inputs"
    else
        echo "fuzz: $target, $seconds s"
        "$program" "${options[@]}" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$found/" \
            -print_funcs=0 "$found/corpus" "fuzz/corpus/$target" 2>&1 | tee "$found/log" | grep -vE '^(#[0-9]+\s+(NEW|REDUCE|pulse|RELOAD)|\s+NEW_FUNC|###|")'
    fi
done
