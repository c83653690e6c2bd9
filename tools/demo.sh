#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The main job in the lab: what plain Ethernet, LLC on it, and endpoints, give a program beside what TCP and UDP give. Leaves a report.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run=runs/demo-$(date +%Y%m%d-%H%M%S)

bin/barewire bench pingpong,stream --transport tcp,udp,raw,llc1,llc2,llc3,endpoint --sizes 64,1400,8KiB,64KiB --budget 60 --output "$run"
report=$(bin/barewire report "$run")
echo
echo "Report: $report"
echo "Open it in a browser; it needs no network. 'bin/barewire compare $run' says how sure the differences are."
