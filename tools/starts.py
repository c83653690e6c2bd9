# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Jobs that start where frames, UDP or addresses are in the way: each must succeed. Counts those that do.

    starts.py [--runs 200] [--library openmpi,mpich-5] [--folder F] [OBSTACLE …]        make starts OBSTACLES="…"

duplicates         five more interfaces on each host, with the same addresses on all
duplicates_no_frames   the same, and a packet filter passes only IP
no_frames          a packet filter passes only IP
one_way            it does so for what one host sends
no_udp             it passes no UDP
six_interfaces     six interfaces on each host: the first passes only TCP, four lead nowhere, the last is right
mixed              two hosts on a segment, a third beyond a filter that passes only IP
mixed_routed       two hosts on a segment, a third behind a router, and each in a subnet of its own
routed             each host in a subnet of its own
unprivileged       the ranks of one host have no right to frames

Three or four ranks on two or three hosts send messages of many kinds and check every byte (tests/mpi/messages.c).
Nobody selects interface or carrier. Exit code 1 if a job failed; its output is printed. In a folder that is given the
program stays, for the next time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common import BAREWIRE, exit_code
from second_network import add_second_network
from survival import built, libraries_over_barewire

from barewire.errors import MachineCannot
from barewire.lab import Lab
from barewire.mpi import Library

MORE_INTERFACES = """
for number in 0 1 2; do
  ip link add br$number type bridge
  ip address add 172.1$number.0.1/16 dev br$number
  ip link set br$number up
done
ip link add w0 type veth peer name w1
for number in 0 1; do ip address add 192.168.$number.1/24 dev w$number; ip link set w$number up; done
"""
# Cables whose other ends are in no network.
CABLES = """
for number in 0 1 2 3; do
  ip link add {host}-$number type veth peer name nowhere$number netns {pid}
  ip link set {host}-$number up
done
"""
CABLES_AT_HOST = """
for number in 0 1 2 3; do
  ip address add 172.2$number.{number}.1/24 dev nowhere$number
  ip link set nowhere$number up
done
"""
# The router becomes the segment's switch as well.
SEGMENT = """
ip link add segment type bridge
ip link set segment up
for number in 1 2; do
  ip address delete 10.77.$number.254/24 dev to-h$number
  ip link set to-h$number master segment
  ip address add 10.77.$number.254/24 dev segment
done
"""
ONLY_IP = "ether type { ip, arp } accept; drop;"
NO_UDP = "ip protocol udp drop;"
ONLY_TCP = "ether type arp accept; ip protocol tcp accept; drop;"
BARE = 'case $(hostname) in h2) exec setpriv --bounding-set=-all --inh-caps=-all "$@";; esac; exec "$@"'
# Topology, ranks, and the ports at which the switch filters what it receives, with the rule.
OBSTACLES = {
    "duplicates": ("star:2", 3, (), ""),
    "duplicates_no_frames": ("star:2", 3, ("to-h1", "to-h2"), ONLY_IP),
    "no_frames": ("star:2", 3, ("to-h1", "to-h2"), ONLY_IP),
    "one_way": ("star:2", 3, ("to-h2",), ONLY_IP),
    "no_udp": ("star:2", 3, ("to-h1", "to-h2"), NO_UDP),
    "six_interfaces": ("star:2", 3, ("to-h1", "to-h2"), ONLY_TCP),
    "mixed": ("star:3", 4, ("to-h3",), ONLY_IP),
    "mixed_routed": ("routed:3", 4, (), ""),
    "routed": ("routed:3", 4, (), ""),
    "unprivileged": ("star:2", 3, (), ""),
}
TIMEOUT_S = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the series; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--library", default="")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("obstacles", nargs="*", metavar="OBSTACLE")
    options = parser.parse_args(arguments)
    if unknown := set(options.obstacles) - set(OBSTACLES):
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(OBSTACLES)}")
    if options.runs < 1:
        parser.error("--runs must be 1 or more")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="barewire-starts-") as folder:
        for obstacle in options.obstacles or OBSTACLES:
            for library in libraries_over_barewire(options.library):
                failed += _series(obstacle, library, options.runs, options.folder or Path(folder))
    return int(failed > 0)


def _series(obstacle: str, library: Library, runs: int, folder: Path) -> int:
    """Run jobs under one library; return the number of failures."""
    topology, ranks, ports, rule = OBSTACLES[obstacle]
    durations, succeeded = [], 0
    with Lab.up(topology) as lab:
        _build(lab, obstacle)
        if ports:
            chain = f"type filter hook ingress devices = {{ {', '.join(ports)} }} priority 0; {rule}"
            rules = lab.switch_command(["nft", f"table netdev t {{ chain c {{ {chain} }}; }}"])
            if subprocess.run(rules, check=False).returncode != 0:
                raise MachineCannot("no packet filters on this kernel's interfaces (CONFIG_NF_TABLES_NETDEV)")
        program = [built(library, "messages", folder)]
        if obstacle == "unprivileged":
            program = ["sh", "-c", BARE, "sh", *program]
        command = [BAREWIRE, "run", "-n", str(ranks), "--lab", lab.id, "--library", library.name, "--", *program, "1"]
        # The lab would select its interface.
        environment = os.environ | {"FI_BAREWIRE_INTERFACE": ""}
        for number in range(runs):
            started = time.monotonic()
            ended = _run(command, environment)
            durations.append(time.monotonic() - started)
            is_right = ended is not None and ended.returncode == 0 and '"test": "messages"' in ended.stdout
            succeeded += is_right
            if not is_right:
                said = "it hung"
                if ended is not None:
                    said = f"{ended.returncode}\n{ended.stdout[-1000:]}{ended.stderr[-3000:]}"
                print(f"FAILED {obstacle} {library.name} {number}: {said}", flush=True)
    spent = f"median {median(durations):.2f} s, longest {max(durations):.2f} s"
    print(f"{obstacle:20} {library.name:10} {succeeded} of {runs} jobs succeeded, {spent}", flush=True)
    return runs - succeeded


def _build(lab: Lab, obstacle: str) -> None:
    """Change the lab's interfaces."""
    if obstacle.startswith("duplicates"):
        for host in lab.hosts:
            lab.run(host.name, ["sh", "-ec", MORE_INTERFACES], check=True)
    if obstacle == "six_interfaces":
        for number, host in enumerate(lab.hosts, start=1):
            cables = CABLES.format(host=host.name, pid=host.inner_pid)
            subprocess.run(lab.switch_command(["sh", "-ec", cables]), check=True)
            lab.run(host.name, ["sh", "-ec", CABLES_AT_HOST.format(number=number)], check=True)
        add_second_network(lab)
    if obstacle == "mixed_routed":
        subprocess.run(lab.switch_command(["sh", "-ec", SEGMENT]), check=True)


def _run(command: list[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[str] | None":
    """Run a job; None if it hangs."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    sys.exit(exit_code(main))
