#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs a command in namespaces of its own, in which the kernel starts programs of another architecture in qemu-user:
#   tools/emulated.sh arm64|riscv64 COMMAND…
# The kernel knows of the emulator in this user namespace only, and forgets it with the command (Linux 6.7 and later).
set -euo pipefail
if [ "$1" != --inside ]; then
    exec unshare --user --map-root-user --net --mount "$0" --inside "$@"
fi
architecture=$2
shift 2
# The number of the machine in an ELF header, and the emulator's name.
case $architecture in
    arm64) machine='\xb7\x00' name=aarch64 ;;
    riscv64) machine='\xf3\x00' name=riscv64 ;;
    *) echo "emulated.sh: say arm64 or riscv64, not '$architecture'" >&2; exit 2 ;;
esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
emulator=$(command -v "qemu-$name") || {
    echo "emulated.sh: no qemu-$name. Fix: setup/setup.sh cross" >&2
    exit 3
}
registry=/proc/sys/fs/binfmt_misc
mount -t binfmt_misc none $registry 2>/dev/null || {
    echo "emulated.sh: this kernel has no binfmt_misc for user namespaces. Fix: a kernel from Linux 6.7 on" >&2
    exit 3
}
# 64 bits, little-endian, an executable or a shared object, of this machine.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00'$machine
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":$name:M::$magic:$mask:$emulator:F" >$registry/register
export QEMU_LD_PREFIX=/usr/$name-linux-gnu
exec "$here/../.venv/bin/python" "$here/with_loopback.py" "$@"
