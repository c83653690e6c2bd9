# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which hosts a job gets. Placement changes how hard a workload is, so the published one is kept."""

from collections.abc import Sequence

from barewire.errors import WrongUse
from barewire.topology import Network

SERVER = "server"  # how a topology's file servers are named; they run no ranks


def placed_hosts(network: Network, count: int) -> list[str]:
    """Return every other host (h1, h3, h5 …) as long as these suffice, else the first ones: as Oliveira et al. 2018."""
    hosts = _workers(network)
    if not 2 <= count <= len(hosts):
        raise WrongUse(f"{count} hosts cannot be: the topology has {len(hosts)}, and a workload needs 2")
    every_other = hosts[::2]
    return every_other[:count] if count <= len(every_other) else hosts[:count]


def halves(network: Network, count: int) -> tuple[Sequence[str], Sequence[str]]:
    """Return two jobs' hosts, neighbours on the same switches: odd ones and even ones, half of `count` each."""
    hosts = _workers(network)
    if not 4 <= count <= len(hosts) or count % 2:
        raise WrongUse(f"{count} hosts cannot be shared by two jobs: an even number from 4 to {len(hosts)}")
    return hosts[::2][: count // 2], hosts[1::2][: count // 2]


def _workers(network: Network) -> list[str]:
    return [host for host in network.hosts if not host.startswith(SERVER)]
