#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Process 1 of the board: loads the modules, names the interface ($INTERFACE) and gives it $ADDRESS, both from the
# kernel's command line, and starts sshd. Its last line on the console is "board: ready".
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /bin
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /run/sshd
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
chmod 1777 /tmp
for module in /modules/*; do insmod "$module" || echo "board: no $module"; done
hostname board
ip link set lo up
ip link set eth0 name "$INTERFACE"
ip address add "$ADDRESS" dev "$INTERFACE"
ip link set "$INTERFACE" up
# Keeps the launcher's names of hosts within the two that there are.
echo "127.0.0.1 localhost board" >/etc/hosts
/usr/sbin/sshd -e && echo "board: ready"
# Adopts and buries what others leave; with panic=-1 the end of this shell would end the machine.
while true; do sleep 3600; done
