# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs in a clean root without a compiler; try.sh calls it. The wheel in a fresh environment; its dependencies from a folder.
. /sources/job.sh
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv openmpi-bin libfabric1 >/dev/null 2>&1
start_s=$EPOCHREALTIME
python3 -m venv /opt/barewire
/opt/barewire/bin/pip install -q --disable-pip-version-check --no-index --find-links /packages --find-links /wheels barewire
PATH=$PATH:/opt/barewire/bin
first_message
awk -v a="$start_s" -v b="$EPOCHREALTIME" \
    'BEGIN { printf "packages: from pip install to the first MPI message %.0f s\n", b - a }'
! command -v cc
for file in man/man1/barewire-bench.1 bash-completion/completions/barewire; do [ -s "/opt/barewire/share/$file" ]; done
what_is_inside
barewire lab up --topology pair
barewire lab list
barewire lab down --all
barewire bench pingpong --transport tcp,raw,endpoint --sizes 64 --launches 2 --budget 20
/opt/barewire/bin/pip uninstall -q -y barewire
[ ! -e /opt/barewire/bin/barewire ] && [ ! -e /opt/barewire/share/man/man1/barewire-bench.1 ]
