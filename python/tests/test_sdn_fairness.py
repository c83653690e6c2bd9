# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Max-min fair rates: cases solved by hand, and a linear programme per level as an independent oracle."""

import time

import numpy as np
import pytest
from scipy.optimize import linprog

from barewire.sdn.fairness import max_min


def rates(flows: list[list[int]], capacity: list[float]) -> list[float]:
    return [round(float(rate), 9) for rate in max_min([np.array(links) for links in flows], np.array(capacity))]


def by_levels(flows: list[list[int]], capacity: list[float]) -> list[float]:
    """Raise all open flows together as far as possible; flows that cannot grow are finished (lexicographic)."""
    crosses = np.zeros((len(capacity), len(flows)))
    for flow, links in enumerate(flows):
        crosses[links, flow] = 1
    fixed: dict[int, float] = {}
    while len(fixed) < len(flows):
        rest = [flow for flow in range(len(flows)) if flow not in fixed]
        spare = np.array(capacity) - sum(
            (crosses[:, flow] * rate for flow, rate in fixed.items()), np.zeros(len(capacity))
        )
        level = linprog([-1], crosses[:, rest].sum(axis=1, keepdims=True), spare).x[0]
        for flow in rest:
            remaining = [candidate for candidate in rest if candidate != flow]
            room = spare - crosses[:, remaining].sum(axis=1) * level
            if linprog([-1], crosses[:, [flow]], room).x[0] <= level * (1 + 1e-7):
                fixed[flow] = level
    return [fixed[flow] for flow in range(len(flows))]


def test_flows_share_their_one_link_evenly() -> None:
    assert rates([[0], [0], [0]], [9]) == [3, 3, 3]


def test_unused_capacity_is_left_to_other_flows() -> None:
    """Link 0 carries 10 for two flows, but one of them is held to 2 by link 1: the other gets 8."""
    assert rates([[0, 1], [0]], [10, 2]) == [2, 8]


def test_the_textbook_chain_of_links() -> None:
    """A long flow over three links and one flow on each, with capacities 1, 2 and 3: the first link limits it."""
    assert rates([[0, 1, 2], [0], [1], [2]], [1, 2, 3]) == [0.5, 0.5, 1.5, 2.5]


def test_distant_bottlenecks_are_found_one_after_another() -> None:
    assert rates([[0, 1], [0], [1, 2], [2]], [2, 3, 6]) == [1, 1, 2, 4]


def test_a_flow_without_links_or_without_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="crosses no link"):
        rates([[]], [1])
    with pytest.raises(ValueError, match="without capacity"):
        rates([[0]], [0])
    assert rates([], [1]) == []


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_those_of_a_linear_programme_for_each_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    links = int(rng.integers(2, 7))
    flows = [
        sorted(rng.choice(links, size=rng.integers(1, links), replace=False).tolist())
        for _ in range(rng.integers(1, 9))
    ]
    capacity = rng.integers(1, 10, size=links).astype(float).tolist()
    assert rates(flows, capacity) == pytest.approx(by_levels(flows, capacity), rel=1e-6)


def test_thousands_of_flows_take_less_than_a_second() -> None:
    """The result is max-min fair: every flow has a full link on which no flow gets more."""
    rng = np.random.default_rng(1)
    flows = [rng.choice(6000, size=6, replace=False) for _ in range(4000)]
    capacity = rng.uniform(1, 10, size=6000)
    begin = time.process_time()
    found = max_min(flows, capacity)
    assert time.process_time() - begin < 1
    used, most = np.zeros(6000), np.zeros(6000)
    for links, rate in zip(flows, found, strict=True):
        used[links] += rate
        most[links] = np.maximum(most[links], rate)
    assert (used <= capacity * (1 + 1e-6)).all()
    for links, rate in zip(flows, found, strict=True):
        assert ((used[links] >= capacity[links] * (1 - 1e-6)) & (rate >= most[links] * (1 - 1e-6))).any()
