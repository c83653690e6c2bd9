# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The hosts of a job. Placement affects the difficulty of a workload, so the published one is used."""

from collections.abc import Sequence

from barewire.errors import WrongUse
from barewire.topology import Network

SERVER = "server"  # name prefix of file servers; they run no ranks


def placed_hosts(network: Network, count: int) -> list[str]:
    """Return every other host (h1, h3, h5 …) if these suffice, else the first hosts, as in Oliveira et al. 2018."""
    hosts = workers(network)
    if not 2 <= count <= len(hosts):
        raise WrongUse(f"{count} hosts are impossible: the topology has {len(hosts)}, and a workload needs 2")
    every_other = hosts[::2]
    return every_other[:count] if count <= len(every_other) else hosts[:count]


def halves(network: Network, count: int) -> tuple[Sequence[str], Sequence[str]]:
    """Return the hosts of two jobs on the same switches: odd hosts and even hosts, half of `count` each."""
    hosts = workers(network)
    if not 4 <= count <= len(hosts) or count % 2:
        raise WrongUse(f"{count} hosts cannot be shared by two jobs: an even number from 4 to {len(hosts)}")
    return hosts[::2][: count // 2], hosts[1::2][: count // 2]


def quarters(network: Network, count: int) -> Sequence[Sequence[str]]:
    """Return the hosts of four jobs, each with every fourth of the first `count` hosts."""
    hosts = workers(network)
    if not 8 <= count <= len(hosts) or count % 4:
        raise WrongUse(f"{count} hosts cannot be shared by four jobs: a multiple of 4 from 8 to {len(hosts)}")
    return [hosts[first:count:4] for first in range(4)]


def workers(network: Network) -> list[str]:
    """Return the hosts that can run ranks, in order: all but servers."""
    return [host for host in network.hosts if not host.startswith(SERVER)]
