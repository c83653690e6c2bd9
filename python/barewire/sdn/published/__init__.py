# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Published measurements for comparison."""

import csv
from functools import cache
from importlib.resources import files

from barewire.topology import Network, fat_tree

# Our names of strategies with other names in Oliveira et al.
_COLUMNS = {"stp": "stp", "traffic": "traffic", "ecmp-published": "ecmp", "isolated": "isolated"}


# Numbers of hosts that were measured.
PUBLISHED_COUNTS = (4, 8, 16)


def is_published(network: Network) -> bool:
    """Return whether this is the published network, apart from its rates: the fat-tree with k = 4 and its hosts."""
    published = fat_tree(4)
    return network.peers == published.peers and network.hosts == published.hosts


def ring_mbyte_s(strategy: str, hosts: int) -> float | None:
    """Return the published mean b_eff throughput in MB/s; None if not published. Source: Oliveira et al. 2018."""
    return _figure_3().get((_COLUMNS.get(strategy, ""), hosts))


@cache
def _figure_3() -> dict[tuple[str, int], float]:
    text = files(__package__).joinpath("oliveira2018_throughput.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {(column, int(row["hosts"])): float(row[column]) for row in rows for column in row if column != "hosts"}
