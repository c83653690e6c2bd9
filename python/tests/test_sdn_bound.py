# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The bound of any routing: cases with known results, and invalid arguments."""

import random

import pytest
from test_topology import DIAMOND, network

from barewire.errors import WrongUse
from barewire.sdn import bound
from barewire.sdn.bound import concurrent_flow, host_links
from barewire.topology import fat_tree, with_rate

RATE = 8_000_000  # bit/s, so 10^6 bytes a second


def test_two_paths_carry_as_much_as_the_hosts_link() -> None:
    assert concurrent_flow(with_rate(DIAMOND, RATE), {("h1", "h2"): 1e6}) == pytest.approx(1)


def test_one_link_between_two_switches_is_shared() -> None:
    """Two pairs cross it, so each has half; the reverse direction is free."""
    dumbbell = network(
        ("h1", 1, "s1", 1), ("h2", 1, "s1", 2), ("s1", 3, "s2", 3), ("h3", 1, "s2", 1), ("h4", 1, "s2", 2)
    )
    demand = {("h1", "h3"): 1e6, ("h2", "h4"): 1e6, ("h3", "h2"): 1e6}
    assert concurrent_flow(with_rate(dumbbell, RATE), demand) == pytest.approx(0.5)
    assert host_links(with_rate(dumbbell, RATE), demand) == pytest.approx(1)


def test_flows_split_over_unequal_paths() -> None:
    """A triangle: rate 1 directly and 1 over the third switch, so a host with a link of 2 sends at 2."""
    triangle = network(
        ("h1", 1, "s1", 1), ("h2", 1, "s2", 1), ("s1", 2, "s2", 2), ("s1", 3, "s3", 1), ("s3", 2, "s2", 3)
    )
    rates = {port: RATE for port in triangle.peers}
    for port in triangle.peers:
        if "h" in port.node or "h" in triangle.peers[port].node:
            rates[port] = 4 * RATE
    wide_hosts = type(triangle)(triangle.switches, triangle.hosts, triangle.peers, rates)
    assert concurrent_flow(wide_hosts, {("h1", "h2"): 1e6}) == pytest.approx(2)


@pytest.mark.parametrize("seed", range(3))
def test_any_permutation_of_a_fat_tree_has_line_rate(seed: int) -> None:
    tree = with_rate(fat_tree(4, servers=0), RATE)
    to = random.Random(seed).sample(tree.hosts, len(tree.hosts))
    demand = {(source, target): 1e6 for source, target in zip(tree.hosts, to, strict=True) if source != target}
    assert concurrent_flow(tree, demand) == pytest.approx(1)


def test_hosts_without_a_path_and_empty_demands_are_refused() -> None:
    apart = network(("h1", 1, "s1", 1), ("h2", 1, "s2", 1))
    with pytest.raises(WrongUse, match="no path joins"):
        concurrent_flow(apart, {("h1", "h2"): 1})
    with pytest.raises(WrongUse, match="no host 'h9'"):
        concurrent_flow(apart, {("h1", "h9"): 1})
    for demand in ({}, {("h1", "h2"): -1.0}, {("h1", "h1"): 1.0}):
        with pytest.raises(WrongUse, match="at least one demand"):
            concurrent_flow(apart, demand)


def test_a_network_too_large_for_the_solver_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "VARIABLES_MAX", 10)
    with pytest.raises(WrongUse, match="use fewer hosts"):
        concurrent_flow(fat_tree(4), {("h1", "h16"): 1})
