#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# libfabric's own tests (fabtests, any version from 1.17 on) against the provider: tools/fabtests.sh DIR [loopback|wire]
# DIR contains the programs as built by `make`, with or without the prefix fi_. They run in a separate network namespace:
# over its loopback interface, then with server and client on the two ends of a veth pair.
# The last line has the numbers of passed and failed tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Tests with a server and a client, and their options.
PAIRS="
rdm -U
rdm_pingpong -I 10 -v
rdm_pingpong -I 10 -U
rdm_tagged_pingpong -I 10 -v
rdm_tagged_pingpong -I 10 -U
rdm_tagged_bw -I 10 -v
rdm_cntr_pingpong -I 10
bw -I 10 -v
msg_inject -I 10 -v
rdm_tagged_peek
recv_cancel
unexpected_msg
unexpected_msg -c sread
unexpected_msg -c fd
cq_data
multi_recv
rdm_multi_client
multi_ep
av_xfer
resmgmt_test
rma_bw -o write -I 10
rma_bw -o writedata -I 10
rma_bw -o read -I 10
rdm_atomic -o all -I 10
rdm_rma_event
multi_mr
rdm_multi_domain
unmap_mem
dgram
dgram_pingpong -I 10
dgram_pingpong -I 10 -v
"
# Tests with a single process.
ALONE="cq_test eq_test cntr_test dom_test mr_test"
# Limit for each test; a test that hangs fails.
SECONDS_MAX=90

usage() {
    echo "usage: tools/fabtests.sh DIR [loopback|wire]: DIR has fabtests' programs (libfabric's repository, fabtests/)" >&2
    exit 2
}

program() {
    local name
    # libfabric 2 renamed two of them.
    case "$1" in
    bw) set -- bw rdm_bw ;;
    msg_inject) set -- msg_inject inject_test ;;
    esac
    for name; do
        [ -x "$directory/$name" ] || name=fi_$name
        if [ -x "$directory/$name" ]; then
            echo "$directory/$name"
            return
        fi
    done
    echo "no $1 in $directory" >&2
    return 1
}

# Records the result of a test, and prints the reason of a failure.
tell() {
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
        echo "$links: $2: passed"
    else
        failed=$((failed + 1))
        echo "$links: $2: FAILED ($1)"
        tail -n 5 "$scratch"/* || true
    fi
}

# Runs all tests over one kind of link, in the namespace.
run() {
    local server=lo client=lo passed=0 failed=0 status words executable name line
    ip link set lo up
    if [ "$links" = wire ]; then
        server=va client=vb
        ip link add va type veth peer name vb
        ip link set va up
        ip link set vb up
    fi
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    while read -r line; do
        [ -n "$line" ] || continue
        read -ra words <<<"$line"
        status=0
        if executable=$(program "${words[0]}" 2>"$scratch/server"); then
            # -E: addresses and synchronisation are exchanged over TCP on the loopback interface.
            words=(timeout -k 5 "$SECONDS_MAX" "$executable" "${words[@]:1}" -p barewire -E)
            FI_BAREWIRE_INTERFACE=$server "${words[@]}" >"$scratch/server" 2>&1 &
            sleep 1
            FI_BAREWIRE_INTERFACE=$client "${words[@]}" 127.0.0.1 >"$scratch/client" 2>&1 || status=$?
            wait $! || status=$?
        else
            status=127
        fi
        tell "$status" "$line"
    done <<<"$PAIRS"
    for name in $ALONE; do
        status=0
        if executable=$(program "$name" 2>"$scratch/server"); then
            FI_BAREWIRE_INTERFACE=$server timeout -k 5 "$SECONDS_MAX" "$executable" -p barewire >"$scratch/server" 2>&1 ||
                status=$?
        else
            status=127
        fi
        tell "$status" "$name"
    done
    echo "$links: $passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

[ $# -ge 1 ] && [ $# -le 2 ] && [ -d "$1" ] || usage
directory=$(realpath "$1")
case "${2-}" in
loopback | wire) every=$2 ;;
"") every="loopback wire" ;;
*) usage ;;
esac
export FI_PROVIDER_PATH=$PWD/target/release/libfabric FI_PROVIDER=barewire
if [ ! -f "$FI_PROVIDER_PATH/libbarewire-fi.so" ]; then
    echo "no libbarewire-fi.so in $FI_PROVIDER_PATH: make build" >&2
    exit 3
fi
namespace=(unshare --net)
[ "$(id -u)" = 0 ] || namespace=(unshare --user --map-root-user --net)
export directory PAIRS ALONE SECONDS_MAX links
export -f program tell run
result=0
for links in $every; do
    "${namespace[@]}" bash -euo pipefail -c run || result=1
done
exit "$result"
