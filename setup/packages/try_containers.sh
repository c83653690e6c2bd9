#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# MPI between containers of podman, as root: try_containers.sh DIST BASE. BASE, a tar file of Debian 12, stands for
# docker.io's image of it. Images and containers are kept in a folder of their own; bridge, veths and containers belong
# to namespaces that end with the trial.
set -euo pipefail
dist=$(realpath "$1") base=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT

# Limits of this machine's may be below podman's own.
cat >"$scratch/containers.conf" <<END
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
END
export CONTAINERS_CONF=$scratch/containers.conf
cat >"$scratch/podman" <<END
#!/bin/sh
exec podman --root $scratch/storage --runroot $scratch/run --tmpdir $scratch/tmp "\$@"
END
# What mpirun starts daemons with in place of ssh; the containers have it at the same path because daemons look for it.
cat >"$scratch/agent" <<END
#!/bin/sh
host=\$1
shift
exec $scratch/podman exec "\$(awk -v address="\$host" '\$1 == address { print \$2 }' $scratch/hosts)" sh -c "\$*"
END
chmod +x "$scratch/podman" "$scratch/agent"
podman=$scratch/podman
$podman import "$base" docker.io/library/debian:12-slim >"$scratch/log" 2>&1 &&
    $podman run --rm --network host docker.io/library/debian:12-slim true >>"$scratch/log" 2>&1 || {
    echo "packages: containers: not tried: podman cannot start one here: $(tail -n 1 "$scratch/log")" >&2
    echo "packages: leave them out with: make packages KINDS=\"deb wheel\"" >&2
    exit 3
}
echo "packages: building two images: Containerfile, and Debian's Open MPI without Barewire"
build() { # NAME, CONTAINERFILE, CONTEXT
    $podman build --network host --tag "$1" --file "$2" "$3" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
}
build barewire setup/packages/Containerfile "$dist"
cat >"$scratch/Containerfile" <<'END'
FROM docker.io/library/debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends openmpi-bin libfabric1 python3 && rm -rf /var/lib/apt/lists/*
END
build theirs "$scratch/Containerfile" "$scratch"

mkdir "$scratch/job"
cp python/barewire/mpi/witness.py "$scratch/job"
# The host's provider, for images without.
dpkg-deb --extract "$dist"/barewire_*.deb "$scratch/deb"
cp -r "$scratch"/deb/usr/lib/*/libfabric "$scratch/job/provider"
$podman run --rm barewire barewire --version | grep -q '^wire version [0-9]'

trial() { # IMAGE, CARRIER, OPTIONS OF PODMAN …
    local image=$1 carrier=$2
    shift 2
    unshare --net --mount --pid --fork --kill-child --mount-proc bash -euo pipefail -c '
        scratch=$1 image=$2 podman=$1/podman
        shift 2
        ip link set lo up
        for host in one two; do
            $podman run --rm --detach --name $host --hostname $host "$@" --volume "$scratch/job:/job:ro" \
                --volume "$scratch/agent:$scratch/agent:ro" "$image" sleep 1000 >/dev/null
            echo "$($podman inspect --format "{{.NetworkSettings.IPAddress}}" $host) $host"
        done >"$scratch/hosts"
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        timeout 120 mpirun.openmpi --mca plm_rsh_agent "$scratch/agent" --mca plm_rsh_no_tree_spawn 1 \
            -n 2 -H "$(cut -d " " -f 1 "$scratch/hosts" | paste -s -d ,)" --mca pml cm --mca mtl ofi \
            -x FI_PROVIDER=barewire -x FI_PROVIDER_PATH python3 /job/witness.py libmpi.so.40
        $podman rm --force --time 0 one two >/dev/null
    ' trial "$scratch" "$image" "$@" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; exit 1; }
    # By frames, and by UDP as well where the interfaces have segmentation offload.
    [ "$(grep -c "\"reached\": {\"[^\"]*\": \"$carrier[+\"]" "$scratch/out")" = 2 ] || { cat "$scratch/out"; exit 1; }
    echo "packages: two containers of $image reach each other by $carrier"
}
trial barewire frames --cap-add NET_RAW
trial barewire udp --cap-drop NET_RAW
export FI_PROVIDER_PATH=/job/provider
trial theirs frames --cap-add NET_RAW
trial theirs udp --cap-drop NET_RAW
echo "packages: containers: passed"
