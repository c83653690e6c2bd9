#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Process 1 of the guest: loads the modules, mounts this machine's file system, read-only, and runs $PROGRAM in it.
/bin/busybox mkdir -p /bin /proc /root
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
for module in /modules/*; do insmod "$module" || echo "guest: no $module"; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 machine /root || echo "guest: no file system"
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t devtmpfs devtmpfs /root/dev
mkdir -p /root/dev/shm
mount -t tmpfs tmpfs /root/dev/shm
mount -t tmpfs tmpfs /root/tmp
mount -t tmpfs tmpfs /root/run
chmod 1777 /root/tmp
ip link set lo up
exec switch_root /root /bin/sh -c "($PROGRAM) >/dev/ttyS1 2>&1
    echo 'guest: done' >/dev/ttyS0
    echo o >/proc/sysrq-trigger
    sleep 60"
