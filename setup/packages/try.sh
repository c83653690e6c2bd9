#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs each package in a clean Debian 12 of its own, and in containers, and runs MPI there, as root: try.sh FOLDER [deb|wheel|containers].
# Exit code 3 if this machine cannot.
# Mounts and processes belong to namespaces that end with the trial; the root's folder is removed in any case.
set -euo pipefail
dist=$(realpath "$1") kinds=${2:-deb wheel containers}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
made=$PWD/target/packages mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
[ "$(id -u)" = 0 ] || { echo "packages: clean roots need root: sudo $0 $dist" >&2; exit 3; }

scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
# Made anew after a day: mirrors drop packages that have newer versions.
find "$made" -maxdepth 1 -name base.tar -mtime +0 -delete
# Under another name until it is whole, which it is not after an interrupt.
[ -e "$made/base.tar" ] || {
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$made/new-base.tar" "$mirror"
    mv "$made/new-base.tar" "$made/base.tar"
}

try() {
    local kind=$1 root=$scratch/$1
    mkdir "$root"
    tar -C "$root" -xf "$made/base.tar"
    mkdir "$root/packages" "$root/wheels" "$root/sources"
    cp "setup/packages/try_$kind.sh" setup/packages/job.sh "$root/sources"
    cp tests/mpi/{pingpong.c,check.h} "$root/sources"
    cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"
    unshare --mount --propagation private --pid --fork --kill-child bash -euc '
        root=$1
        mount --bind "$root" "$root"
        mount --bind "$2" "$root/packages"
        mount --bind "$3" "$root/wheels"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs shm "$root/dev/shm"
        cd "$root"
        pivot_root . .
        umount --lazy .
        exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            DEBIAN_FRONTEND=noninteractive bash -euo pipefail "/sources/try_$4.sh"
    ' try "$root" "$dist" "$made/wheels" "$kind"
    rm -rf --one-file-system "$root"
    echo "packages: $kind: passed"
}
for kind in $kinds; do
    if [ "$kind" = containers ]; then setup/packages/try_containers.sh "$dist" "$made/base.tar"; else try "$kind"; fi
done
