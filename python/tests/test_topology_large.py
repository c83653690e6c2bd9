# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Leaf-spine networks, dragonflies, failures, and path sets that are not listed."""

from itertools import permutations

import networkx as nx
import pytest

from barewire.errors import WrongUse
from barewire.lab import LinkSpec
from barewire.lab.spec import parse_topology
from barewire.lab.switched import switched_plan
from barewire.topology import Network, Port, dragonfly, fat_tree, leaf_spine, parse, shortest_paths
from barewire.topology.failures import failed, without
from barewire.topology.paths import Paths, PathSet


@pytest.mark.parametrize(("leaves", "spines", "hosts"), [(2, 1, 1), (4, 2, 4), (3, 5, 2)])
def test_a_leaf_spine_network_joins_every_leaf_to_every_spine(leaves: int, spines: int, hosts: int) -> None:
    network = leaf_spine(leaves, spines, hosts)
    assert len(network.hosts) == leaves * hosts and len(network.switches) == leaves + spines
    assert len(network.peers) == 2 * (leaves * hosts + leaves * spines)
    assert len(shortest_paths(network, "h1", network.hosts[-1])) == spines
    for leaf in network.switches[spines:]:
        assert [port.number for port in network.ports[leaf]] == list(range(1, hosts + spines + 1))
        assert {network.peers[port].node for port in network.ports[leaf][hosts:]} == set(network.switches[:spines])


@pytest.mark.parametrize(("switches", "global_links", "hosts"), [(2, 1, 1), (4, 2, 2), (3, 1, 2), (1, 4, 1)])
def test_a_dragonfly_joins_all_switches_of_a_group_and_any_two_groups_once(
    switches: int, global_links: int, hosts: int
) -> None:
    network = dragonfly(switches, global_links, hosts)
    groups = switches * global_links + 1
    assert len(network.switches) == groups * switches and len(network.hosts) == groups * switches * hosts
    group_of = {switch: number // switches for number, switch in enumerate(network.switches)}
    between = [
        (group_of[port.node], group_of[peer.node])
        for port, peer in network.peers.items()
        if port.node in group_of and peer.node in group_of
    ]
    assert sorted(pair for pair in between if pair[0] != pair[1]) == sorted(permutations(range(groups), 2))
    assert sum(first == second for first, second in between) == groups * switches * (switches - 1)
    for switch in network.switches:
        assert [port.number for port in network.ports[switch]] == list(range(1, hosts + switches + global_links))
    assert nx.diameter(nx.Graph(network.graph.subgraph(network.switches))) <= 3


@pytest.mark.parametrize("text", ["leaf-spine:4x2x4", "dragonfly:2x1x2"])
def test_a_lab_can_be_planned_on_them(text: str) -> None:
    topology = parse_topology(text)
    assert topology.network == parse(text)
    plan = switched_plan("1f2e3d4c", parse(text), LinkSpec(10**7), range(2))
    assert [host.name for host in plan.hosts] == list(topology.hosts) == list(topology.workers)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("leaf-spine:4x2", "leaf-spine takes leaves x spines x hosts at a leaf, not '4x2'"),
        ("leaf-spine:4", "leaf-spine takes"),
        ("leaf-spine:0x2x4", "is impossible"),
        ("leaf-spine:1x2x1", "at least 2 hosts"),
        ("dragonfly:4x2x0", "is impossible"),
        ("dragonfly:4,2,2", "unknown topology"),
        ("dragonfly:99x99x9", "take smaller sizes"),
        ("fat-tree:9998", "take smaller sizes"),
        ("fat-tree:4x4", "fat-tree takes ports"),
        ("leafspine:4x2x4", "unknown topology"),
    ],
)
def test_impossible_sizes_are_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        parse(text)


@pytest.mark.parametrize("network", [fat_tree(4), leaf_spine(3, 2, 2), dragonfly(2, 1, 2), dragonfly(4, 2, 1)], ids=str)
def test_a_path_set_is_the_sequence_of_all_shortest_paths(network: Network) -> None:
    """Its members, their places, its rows of port numbers and what is not in it, against networkx's paths."""
    paths = Paths(network)
    for source, destination in list(permutations(network.hosts, 2))[::7]:
        found = paths.between(source, destination)
        listed = shortest_paths(network, source, destination)
        assert isinstance(found, PathSet) and list(found) == listed and len(found) == len(listed) and found == listed
        assert [found[number] for number in range(len(listed))] == listed and found[-1] == listed[-1]
        assert found[1:] == tuple(listed[1:])
        assert [found.index(path) for path in listed] == list(range(len(listed)))
        assert [paths.path_of(row) for row in found.rows()] == listed
        assert all(path in found and paths.leads(source, destination, path) for path in listed)
        for wrong in ((), listed[0][:-1], (*listed[0], listed[0][-1]), listed[0][::-1] if len(listed[0]) > 1 else ()):
            assert wrong not in found
        with pytest.raises(ValueError, match="not one of"):
            found.index(listed[0][:-1])


def test_a_path_that_enters_a_switch_twice_or_leads_elsewhere_is_none() -> None:
    """h1 is on s3 port 1, s3's port 3 leads to s1, s1's ports 1 and 2 to s3 and s4, which has h3 on port 1."""
    network = leaf_spine(2, 2, 2)
    paths = Paths(network)
    good = (Port("s3", 3), Port("s1", 2), Port("s4", 1))
    assert paths.leads("h1", "h3", good) and not paths.leads("h1", "h4", good) and not paths.leads("h3", "h3", good)
    twice = (Port("s3", 3), Port("s1", 1), Port("s3", 3), Port("s1", 2), Port("s4", 1))
    for wrong in (twice, good[1:], good[:2], (Port("s3", 9), *good[1:]), ()):
        assert not paths.leads("h1", "h3", wrong)


def test_failures_take_switches_links_and_the_hosts_behind_them() -> None:
    tree = fat_tree(4)
    left = failed(tree, ["s5", "s14:3"])
    assert "s5" not in left.switches and Port("s14", 3) not in left.peers and len(left.hosts) == 17
    assert shortest_paths(left, "h1", "h5") and all(port.node != "s5" for port in left.peers)
    cut = failed(tree, ["s13"])
    assert {"h1", "h2"}.isdisjoint(cut.hosts) and len(cut.hosts) == 15
    drawn = failed(tree, ["10%"])
    assert len(tree.peers) - len(drawn.peers) == 2 * 3 and failed(tree, ["10%"]) == drawn
    assert failed(tree, ["10%"], seed=2) != drawn


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["s99"], "no switch of this network"),
        (["h1"], "no switch of this network"),
        (["s1:9"], "no link at port s1:9"),
        (["100%"], "up to 100%"),
        (["s5", "s6"], "have no path to"),
    ],
)
def test_impossible_failures_are_refused(texts: list[str], says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        failed(fat_tree(4), texts)


def test_without_all_links_no_host_is_left() -> None:
    network = leaf_spine(2, 1, 1)
    with pytest.raises(WrongUse, match="no host has a link"):
        without(network, network.switches, ())
