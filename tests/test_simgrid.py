# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The flow simulator against SimGrid, which nobody here wrote: the same transfers over the same paths.

Random permutations of finite transfers of different sizes, so that the comparison covers every new sharing after a
transfer has ended. Once with SimGrid's plain max-min model, once with its default model of TCP (LV08), in which long
round trips get less and acknowledgements take their share. For the latter, our one parameter is fitted on a star, as in
experiments, and the networks are held out.
"""

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import pytest

from barewire.sdn.simulate import Engine, placed_hosts
from barewire.sdn.simulate.permutation import Permutation
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.workload import Connection, Transfer
from barewire.topology import Network, parse, with_rate

PYTHON = "/usr/bin/python3"
ORACLE = Path(__file__).with_name("simgrid_oracle.py")
RATE_BIT_S = 10**9
PLAIN = (
    "network/model:CM02",
    "network/crosstraffic:0",
    "network/weight-S:0",
    "network/TCP-gamma:1e12",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
)
# A link's latency as published.
LATENCY_S = 1e-4


@pytest.fixture(scope="module")
def simgrid() -> None:
    found = subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("SimGrid is not installed: apt-get install python3-simgrid")


class Transfers:
    """A permutation of transfers, each sent once; records their ends."""

    def __init__(self, hosts: Sequence[str], seed: int) -> None:
        rng = random.Random(seed)
        self.transfers = [
            Transfer(
                Connection(source, target, "mpi", active_port=rng.randrange(32768, 60768), passive_port=5001),
                source,
                rng.randrange(5_000_000, 50_000_000),
                number,
            )
            for number, (source, target) in enumerate(Permutation(hosts, seed).pairs)
        ]
        self.patterns = ({(one.source, one.key.destination): int(one.size_bytes) for one in self.transfers},)
        self.ends_s: dict[int, float] = {}

    @property
    def finished(self) -> bool:
        return len(self.ends_s) == len(self.transfers)

    def begin(self) -> list[Transfer]:
        return self.transfers

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        self.ends_s[transfer.tag] = now_s
        return []


def both_ends(
    network: Network, strategy: str, seed: int, settings: Sequence[str], latency_s: float, efficiency: float
) -> tuple[list[float], list[float], list[float]]:
    """The ends in our simulator and in SimGrid, in seconds, and the transfers' times at line rate."""
    hosts = placed_hosts(network, sum(host[0] == "h" for host in network.hosts))
    workload = Transfers(hosts, seed)
    engine = Engine(network, read_policy(strategy), efficiency=efficiency)
    engine.run(workload)
    document = {
        "settings": settings,
        "latency_s": latency_s,
        "rates_byte_s": engine.control.capacity.tolist(),
        "transfers": [
            {"links": engine.control.links(one.key).tolist(), "bytes": one.size_bytes} for one in workload.transfers
        ],
    }
    done = subprocess.run(
        [PYTHON, str(ORACLE)], input=json.dumps(document), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    ours = [workload.ends_s[number] for number in range(len(workload.transfers))]
    return ours, json.loads(done.stdout), [8 * one.size_bytes / RATE_BIT_S for one in workload.transfers]


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", ["stp", "ecmp", "least-loaded", "planned"])
@pytest.mark.parametrize("topology", ["fat-tree:4", "fat-tree:8", "leaf-spine:4x2x4", "dragonfly:4x2x2"])
def test_ends_of_transfers_agree_with_simgrid(simgrid: None, topology: str, strategy: str) -> None:
    """Every transfer within 0.1 % in the plain model; with TCP's, the mean and the last end within 5 %."""
    network = with_rate(parse(topology), RATE_BIT_S)
    ours, theirs, _ = both_ends(network, strategy, 1, PLAIN, 0, 1.0)
    assert ours == pytest.approx(theirs, rel=1e-3)
    star = with_rate(parse("star:16"), RATE_BIT_S)
    _, on_star, at_line_s = both_ends(star, strategy, 2, (), LATENCY_S, 1.0)
    efficiency = median(least / end for least, end in zip(at_line_s, on_star, strict=True))
    ours, theirs, _ = both_ends(network, strategy, 1, (), LATENCY_S, efficiency)
    errors = [our / their - 1 for our, their in zip(ours, theirs, strict=True)]
    last = max(ours) / max(theirs) - 1
    largest = max(map(abs, errors))
    print(
        f"{topology} {strategy}: mean {mean(errors):+.1%}, last {last:+.1%}, largest {largest:.1%} ({efficiency:.3f})"
    )
    assert abs(mean(errors)) < 0.05 and abs(last) < 0.05
