# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A second interface, eth1, on each host of a lab, in a network of its own or at the same switch; ends with the lab."""

import subprocess

from barewire.errors import MachineCannot
from barewire.lab import Lab

# 5 ms at 1 Gbit/s, as on the lab's own links.
SHAPER = "burst 64kb limit 640kb"
BRIDGE = """
ip link add switch2 type bridge mcast_snooping 0
ip link set switch2 mtu {mtu} up
"""
PORT = """
ip link add also-{host} mtu {mtu} type veth peer name eth1 mtu {mtu} netns {pid}
ip link set also-{host} master {bridge} up
"""
HOST = """
ip link set eth1 up
ip address add 10.79.0.{number}/24 dev eth1
"""


def add_second_network(lab: Lab, *, rate_bit_s: int | None = None, same_switch: bool = False) -> None:
    """Add the interfaces; MachineCannot if the commands fail.

    `rate_bit_s` limits what each host receives by its new interface.
    """
    bridge, mtu = ("switch" if same_switch else "switch2"), lab.link.mtu
    commands = "" if same_switch else BRIDGE.format(mtu=mtu)
    for host in lab.hosts:
        commands += PORT.format(host=host.name, pid=host.inner_pid, bridge=bridge, mtu=mtu)
        if rate_bit_s is not None:
            commands += f"tc qdisc add dev also-{host.name} root tbf rate {rate_bit_s}bit {SHAPER}\n"
    _run(lab.switch_command(["sh", "-ec", commands]))
    for number, host in enumerate(lab.hosts, start=1):
        _run(lab.command(host.name, ["sh", "-ec", HOST.format(number=number)]))


def set_second_carrier(lab: Lab, host: str, up: bool) -> None:
    """Pull a host's second cable out, or in again: the interface loses its carrier, its peers' interfaces do not."""
    _run(lab.switch_command(["ip", "link", "set", f"also-{host}", "up" if up else "down"]))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MachineCannot(f"no second network in the lab: {done.stderr.strip()}")
