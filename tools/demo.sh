#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The main purpose, in the lab: MPI programs over Ethernet frames compared with TCP, as a short scoreboard; then plain
# Ethernet, LLC and endpoints compared with TCP and UDP. Leaves a page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run=runs/demo-$(date +%Y%m%d-%H%M%S)
# On one host frames need root or a broker, in a lab they do not.
testbeds=pair,host
PYTHONPATH=python .venv/bin/python -c '
import os, sys
from barewire.mpi.rights import why_no_frames
reason = why_no_frames(os.environ)
sys.exit(reason and f"MPI on one host is left out: {reason}")' || testbeds=pair

echo "MPI over frames and over TCP, under every MPI library that is installed:"
status=0
bin/barewire mpi scoreboard --quick --testbeds "$testbeds" --patterns pingpong,exchange,bandwidth,collective,radix \
    --budget 180 --output "$run" >/dev/null || status=$?
# 1 means that a launch failed: the page shows which.
[ $status -le 1 ] || exit $status

echo "The transports below MPI:"
bin/barewire bench pingpong,stream --transport tcp,udp,raw,llc2,endpoint --sizes 64,1400,8KiB,64KiB --launches 6 --budget 40 \
    --output "$run/transports" || status=$?
bin/barewire report "$run/transports" >/dev/null
echo
bin/barewire mpi scoreboard "$run" --rows 10 || status=$?
echo
echo "Report: $run/scoreboard.html; of the transports: $run/transports/report.html"
echo "Open it in a browser; it needs no network. 'bin/barewire mpi scoreboard' measures all of it, in hours."
exit $status
