# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs in a clean root; try.sh calls it. The package: installed, used, put over an older one, removed during a job.
. /sources/job.sh
deb=$(echo /packages/barewire_*.deb)
apt-get update -qq
start_s=$EPOCHREALTIME
apt-get install -y -qq "$deb" >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }
installed_s=$EPOCHREALTIME
first_message
awk -v a="$start_s" -v b="$installed_s" -v c="$EPOCHREALTIME" \
    'BEGIN { printf "packages: from apt install to the first MPI message %.0f s, %.0f of them apt install\n", c - a, b - a }'

what_is_inside
barewire-broker check --policy /etc/barewire/broker.toml
getent group barewire
getent passwd barewire-broker
apt-get install -y -qq --no-install-recommends libfabric-bin gcc libc6-dev libopenmpi-dev make man-db >/dev/null 2>&1
fi_info -p barewire | grep -m1 "provider: barewire"
man -w barewire barewire-run barewire-lab-up barewire-probe barewire-broker
for shell in bash-completion/completions/barewire zsh/vendor-completions/_barewire fish/vendor_completions.d/barewire.fish; do
    [ -s "/usr/share/$shell" ]
done
barewire mpi pingpong --library openmpi --fabric barewire --lab pair -n 2 --sizes 8 --launches 2 --budget 20
[ -x ~/.cache/barewire/mpi/openmpi/pingpong ]
plain_job

# Libfabric offers the provider to everybody now; a launcher that does not ask for it works as before.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -n 2 /tmp/pingpong 10 64

echo "packages: over an older version, with a changed policy"
dpkg-deb --raw-extract "$deb" /tmp/older
sed -i 's/^Version: .*/Version: 0.0.1-1/' /tmp/older/DEBIAN/control
touch /tmp/older/usr/bin/barewire-of-yore
dpkg-deb -Znone --build /tmp/older /tmp/older.deb >/dev/null
dpkg -i --force-downgrade /tmp/older.deb >/dev/null 2>&1
echo "# mine" >>/etc/barewire/broker.toml
dpkg -i "$deb" >/dev/null
[ ! -e /usr/bin/barewire-of-yore ]
grep -qx "# mine" /etc/barewire/broker.toml
[ "$(dpkg-query -W -f '${Version}' barewire)" != 0.0.1-1 ]

echo "packages: removed during a job, and enabled"
barewire enable --system --library openmpi
grep -q FI_PROVIDER /etc/openmpi/openmpi-mca-params.conf
barewire run -n 2 --lab pair -- /tmp/pingpong 100000 8192 >/tmp/out 2>/tmp/err &
job=$!
until [ -s /tmp/out ]; do kill -0 "$job"; sleep 0.1; done
dpkg --remove barewire >/dev/null
[ ! -e /usr/bin/barewire ]
! grep -q barewire /etc/openmpi/openmpi-mca-params.conf
kill -0 "$job" || { echo "the job ended before the package was removed: it shows nothing" >&2; exit 1; }
wait "$job" || { cat /tmp/out /tmp/err; exit 1; }
[ "$(wc -l </tmp/out)" = 15 ] # of 0, 1, 2 … 8192 bytes
dpkg --purge barewire >/dev/null
# Of the user: a cache. Of the running system, until it is started anew: names of labs.
left=$(find / -xdev -path '*barewire*' ! -path '/packages/*' ! -path '/root/.cache/*' ! -path '/run/*' ! -path '/tmp/*' -print)
[ -z "$left" ] || { echo "left after the removal: $left" >&2; exit 1; }
