# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Networks as values: rejections, and the order of the shortest paths."""

import pytest

from barewire.errors import WrongUse
from barewire.topology import Network, Port, shortest_paths


def network(*links: tuple[str, int, str, int]) -> Network:
    peers = {}
    for node, number, other, other_number in links:
        peers[Port(node, number)] = Port(other, other_number)
        peers[Port(other, other_number)] = Port(node, number)
    nodes = sorted({port.node for port in peers})
    switches = tuple(node for node in nodes if node.startswith("s"))
    return Network(switches, tuple(node for node in nodes if node.startswith("h")), peers)


DIAMOND = network(
    ("h1", 1, "s1", 1),
    ("s1", 2, "s2", 1),
    ("s1", 3, "s10", 1),
    ("s2", 2, "s3", 2),
    ("s10", 2, "s3", 3),
    ("h2", 1, "s3", 1),
)


def test_all_shortest_paths_are_sorted_by_numbers() -> None:
    """Via s2 before via s10, each as output ports that end at the destination."""
    assert [" ".join(map(str, path)) for path in shortest_paths(DIAMOND, "h1", "h2")] == [
        "s1:2 s2:2 s3:1",
        "s1:3 s10:2 s3:1",
    ]


def test_parallel_links_are_separate_paths() -> None:
    both = network(("h1", 1, "s1", 1), ("s1", 2, "s2", 2), ("s1", 3, "s2", 3), ("h2", 1, "s2", 1))
    assert [path[0].number for path in shortest_paths(both, "h1", "h2")] == [2, 3]


def test_no_path_leads_through_a_host_or_to_nowhere() -> None:
    apart = network(("h1", 1, "s1", 1), ("h2", 1, "s2", 1))
    assert shortest_paths(apart, "h1", "h2") == [] == shortest_paths(apart, "h1", "h1")
    assert shortest_paths(apart, "h1", "h9") == []


def test_inconsistent_networks_are_rejected() -> None:
    with pytest.raises(WrongUse, match="two links, or linked to itself"):
        Network(("s1",), (), {Port("s1", 1): Port("s1", 1)})
    with pytest.raises(WrongUse, match="does not have"):
        Network(("s1",), (), {Port("s1", 1): Port("s2", 1), Port("s2", 1): Port("s1", 1)})
    with pytest.raises(WrongUse, match="twice"):
        Network(("s1", "s1"), (), {})
