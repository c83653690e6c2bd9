#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Process 1 of an emulated machine: loads the modules, sets up its interface if it has one, mounts the file system of the
# machine that runs it, read-only, and becomes a shell's command in it. ADDRESS and PROGRAM are on the kernel's command line.
/bin/busybox mkdir -p /bin /proc /root
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
for module in /modules/*; do insmod "$module" || echo "guest: no $module"; done
ip link set lo up
if [ -n "$ADDRESS" ]; then
    ip address add "$ADDRESS/24" dev eth0 || echo "guest: no interface"
    ip link set eth0 up
fi
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 machine /root || echo "guest: no file system"
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t devtmpfs devtmpfs /root/dev
mkdir -p /root/dev/shm
mount -t tmpfs tmpfs /root/dev/shm
mount -t tmpfs tmpfs /root/tmp
mount -t tmpfs tmpfs /root/run
chmod 1777 /root/tmp
exec switch_root /root /bin/sh -c "$PROGRAM"
