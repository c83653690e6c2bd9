#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs tests/fi against a provider with a sanitizer: tools/sanitize.sh [address] [thread] (default: both).
# Needs Rust's nightly toolchain with rust-src (`setup/setup.sh checks`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:$HOME/.cargo/bin
[ $# -gt 0 ] || set -- address thread
for sanitizer; do
    [[ $sanitizer == @(address|thread) ]] || { echo "sanitize: say address or thread, not '$sanitizer'" >&2; exit 2; }
done
host=$(rustc -vV | sed -n 's/^host: //p')
runtimes=$(rustc +nightly --print target-libdir)
status=0

for sanitizer in "$@"; do
    folder=$PWD/target/sanitize/$sanitizer
    # Only the thread sanitizer needs an instrumented standard library, whose atomics order threads.
    options=() instrumented=() cases=test_case
    if [ "$sanitizer" = thread ]; then
        options=(-Zbuild-std)
        # Instruments the cases' own atomics and accesses; the runtime's functions have the same names in both compilers.
        instrumented=(-fsanitize=thread -fPIE)
        # This test bounds a time, which is twice as long here.
        cases+=" and not closed_with_an_unfinished_send_to_a_sibling"
    fi
    RUSTFLAGS=-Zsanitizer=$sanitizer CARGO_PROFILE_CHECKS_DEBUG=line-tables-only CARGO_TARGET_DIR=target/sanitize/build-$sanitizer \
        cargo +nightly build --profile checks --locked --quiet --package barewire-provider --lib --target "$host" "${options[@]}"
    mkdir -p "$folder"
    ln -f "target/sanitize/build-$sanitizer/$host/checks/libbarewire_fi.so" "$folder/libbarewire-fi.so"
    # The program links the runtime: rustc omits it from shared objects.
    objects=()
    for source in tests/fi/*.c; do
        [ "$source" != tests/fi/loaded.c ] || continue
        object=$folder/$(basename "$source" .c).o
        gcc -std=gnu17 -O1 -g -fPIE "${instrumented[@]}" -c "$source" -o "$object"
        objects+=("$object")
    done
    short=${sanitizer:0:1}san
    gcc -pie -rdynamic "${objects[@]}" -Wl,--whole-archive "$runtimes/librustc-nightly_rt.$short.a" -Wl,--no-whole-archive \
        -o "$folder/fi" -lfabric -lpthread -ldl -lm -lrt -lstdc++
    # Findings end the program with an error. Stacks are complete, as suppressions need. The quarantine is small, because a case measures memory growth.
    export ASAN_OPTIONS=exitcode=99:quarantine_size_mb=4:fast_unwind_on_malloc=0
    export LSAN_OPTIONS=suppressions=$PWD/tools/sanitizers/leak.txt:print_suppressions=0
    export TSAN_OPTIONS=exitcode=99:suppressions=$PWD/tools/sanitizers/thread.txt:die_after_fork=0
    echo "sanitize: $sanitizer"
    BAREWIRE_TEST_SANITIZED=$folder .venv/bin/pytest tests/test_provider.py -k "$cases" --tb=short || status=1
done
exit $status
