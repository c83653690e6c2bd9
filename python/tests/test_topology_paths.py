# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Cached paths are the same, in the same order, as those computed one by one."""

from itertools import permutations

import pytest
from test_topology import DIAMOND, network

from barewire.topology import Network, Port, fat_tree, shortest_paths
from barewire.topology.paths import Paths


def test_cached_paths_are_all_shortest_paths_in_order() -> None:
    tree = fat_tree(4)
    paths = Paths(tree)
    for source, destination in permutations([*tree.hosts[:6], tree.hosts[15], "server1"], 2):
        assert list(paths.between(source, destination)) == shortest_paths(tree, source, destination)


def test_parallel_links_and_hosts_with_two_links_have_all_their_paths() -> None:
    both = network(("h1", 1, "s1", 1), ("s1", 2, "s2", 2), ("s1", 3, "s2", 3), ("h2", 1, "s2", 1))
    two_homed = network(
        ("h1", 1, "s1", 1), ("h1", 2, "s2", 1), ("s1", 2, "s3", 1), ("s2", 2, "s3", 2), ("h2", 1, "s3", 3)
    )
    for one in (both, two_homed, DIAMOND):
        assert list(Paths(one).between("h1", "h2")) == shortest_paths(one, "h1", "h2") != []


def test_there_is_no_path_to_nowhere_to_a_switch_or_to_itself() -> None:
    apart = network(("h1", 1, "s1", 1), ("h2", 1, "s2", 1))
    for ends in (("h1", "h2"), ("h1", "h1"), ("h1", "h9"), ("h1", "s1")):
        assert Paths(apart).between(*ends) == ()


def test_a_network_with_another_host_needs_no_distances_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = fat_tree(4, servers=0)
    peers = {port: peer for port, peer in tree.peers.items() if "h16" not in (port.node, peer.node)}
    paths = Paths(Network(tree.switches, tree.hosts[:-1], peers))
    for destination in tree.hosts[:15]:
        paths.between("h2" if destination == "h1" else "h1", destination)
    moved = {Port("h16", 1): tree.peers[Port("h16", 1)], tree.peers[Port("h16", 1)]: Port("h16", 1)}
    larger, same = Network(tree.switches, tree.hosts, {**peers, **moved}), Paths(tree)
    monkeypatch.setattr(Paths, "_measure", None)
    found = Paths(larger, paths)
    for source, destination in permutations(tree.hosts, 2):
        assert list(found.between(source, destination)) == shortest_paths(tree, source, destination)
    assert found.ports == same.ports
    other = Paths(Network(("s1",), (), {}), paths)
    assert not other._hops_to
