# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller on networks that are no fat-trees, on real Open vSwitch: every host reaches every other one over the
paths of its strategy."""

import subprocess
import sys
import time
from itertools import permutations

import pytest
from conftest import stand_up

from barewire.lab import LinkSpec
from barewire.sdn.bench.controlled import controlled
from barewire.topology import Port

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")
RATE_BIT_S = 25_000_000

ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 5000))
print("ready", flush=True)
while True:
    server.sendto(*server.recvfrom(100))
"""
# Asks each address until it answers, at most 5 s; prints how many answered.
ASK = """
import socket, sys
answered = 0
for address in sys.argv[1:]:
    asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asker.settimeout(1)
    for _ in range(5):
        asker.sendto(b"there?", (address, 5000))
        try:
            answered += asker.recv(100) == b"there?"
            break
        except TimeoutError:
            pass
print(answered)
"""


@pytest.mark.parametrize(
    ("topology", "strategy", "lengths"),
    [
        ("leaf-spine:2x2x2", "least-loaded", {1, 3}),
        pytest.param("dragonfly:2x1x1", "ugal", {2, 3, 4, 5, 6}, marks=pytest.mark.matrix),
        pytest.param("dragonfly:2x1x1", "valiant", {2, 3, 4, 5, 6}, marks=pytest.mark.matrix),
        pytest.param("dragonfly:2x1x2", "ecmp", {1, 2, 3, 4}, marks=pytest.mark.matrix),
    ],
)
def test_hosts_reach_each_other_over_the_paths_of_a_strategy(topology: str, strategy: str, lengths: set[int]) -> None:
    """A datagram there and back for each pair; the paths in the controller join the pair and have expected lengths."""
    with (
        stand_up(topology, LinkSpec(RATE_BIT_S)) as lab,
        controlled(lab, [f"default={strategy}", f"mpi={strategy}"], RATE_BIT_S) as controller,
    ):
        network = lab.network
        assert network is not None
        pairs = list(permutations(network.hosts, 2))
        servers = [
            lab.popen(host, [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True) for host in network.hosts
        ]
        try:
            assert all(server.stdout.readline() == "ready\n" for server in servers)
            for source in network.hosts:
                others = [lab.host(target).address for target in network.hosts if target != source]
                done = lab.run(source, [sys.executable, "-c", ASK, *others], capture_output=True, text=True, timeout=60)
                assert done.stdout == f"{len(others)}\n", (source, done.stdout, done.stderr)
        finally:
            for server in servers:
                server.kill()
                server.communicate()
        # The switches send the controller copies: the last answers may have come before them.
        deadline = time.monotonic() + 5
        found: dict[tuple[str, str], list[str]] = {}
        while not set(found) >= set(pairs) and time.monotonic() < deadline:
            flows = controller.client.get("flows")["flows"]
            found = {(flow["source"], flow["destination"]): flow["path"] for flow in flows}
        assert set(found) >= set(pairs)
        for (source, target), texts in found.items():
            path = [Port(node, int(number)) for node, number in (text.split(":") for text in texts)]
            nodes = [port.node for port in path]
            first, last = network.attachment(source), network.attachment(target)
            assert first and last and nodes[0] == first.node and path[-1] == last
            assert [network.peers[port].node for port in path] == [*nodes[1:], target]
            assert len(set(nodes)) == len(nodes)
        assert {len(path) for path in found.values()} <= lengths
        if topology.startswith("leaf-spine"):
            spines = {path[1].split(":")[0] for path in found.values() if len(path) == 3}
            assert spines == {"s1", "s2"}, "both equal paths are used"
        if strategy in ("ugal", "valiant"):
            assert any(len(path) > 3 for path in found.values()), "some take a detour"
