# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Announced patterns placed as a whole before they run: by edge colouring on a fat-tree, by search elsewhere.

A pattern says who sends how much to whom. Each pair is taken to send at its volume's share of its busiest end, which
for a permutation is line rate, and puts jobs of different sizes on one scale. The plan is made anew for each pattern:
when a job announces that it steps on, flows whose pair has another path now are moved. Sources: König's theorem on
Clos networks (Beneš 1965); Pythia (Neves et al. 2014) for announced shuffles.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, FlowKey, Pattern, View
from barewire.sdn.strategies.balance import Loads, Wish
from barewire.sdn.strategies.clos import NoClosError, Pair, clos_paths
from barewire.sdn.strategies.least_loaded import LeastLoaded
from barewire.sdn.strategies.memo import paths_of, remembered
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Network, Path


@dataclass(frozen=True)
class Planned:
    """Reaches the bound where patterns are announced; flows that nobody announced go as by `least-loaded`.

    `period_s` only repairs what a missed change of pattern left behind.
    """

    period_s: float = 1.0
    name: ClassVar[str] = "planned"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take the plan's path for these two hosts."""
        path = _plan_of(view).get((flow.key.source, flow.key.destination))
        if path is not None and path in paths:
            return Placement(path, reason="planned for its announced pattern")
        unplanned = LeastLoaded().place(flow, paths, view)
        return Placement(unplanned.path, reason=f"not announced; {unplanned.reason}")

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move the flows of the present pattern onto its plan."""
        plan = _plan_of(view)
        moves: dict[FlowKey, Path] = {}
        for key, placed in view.placed.items():
            path = plan.get((key.source, key.destination))
            if path is not None and path != placed.path and key not in view.fixed:
                moves[key] = path
        return moves


def _plan_of(view: View) -> Mapping[Pair, Path]:
    return plan(view.network, view.patterns[0]) if view.patterns else {}


@remembered
def plan(network: Network, pattern: Pattern) -> Mapping[Pair, Path]:
    """Return a path for each pair that has one: the better of colouring and search, by the fullest link."""
    routes = paths_of(network)
    pairs = {pair: routes.between(*pair) for pair, volume in pattern.items() if volume > 0}
    pairs = {pair: paths for pair, paths in pairs.items() if paths}
    rates = _rates(network, {pair: pattern[pair] for pair in pairs})
    wishes = [Wish(paths, rates[pair]) for pair, paths in pairs.items()]
    searched = Loads(network, wishes)
    searched.put_all()
    plans = [searched]
    with suppress(NoClosError):  # on a network of another form the search plans alone
        coloured = clos_paths(network, rates)
        plans.insert(0, Loads(network, wishes))
        for number, (pair, paths) in enumerate(pairs.items()):
            plans[0].put(number, paths.index(coloured[pair]))
    best = min(plans, key=Loads.cost)
    best.relieve(above=0.0)
    return {
        pair: paths[path] for (pair, paths), path in zip(pairs.items(), best.chosen, strict=True) if path is not None
    }


def _rates(network: Network, pattern: Pattern) -> dict[Pair, float]:
    """Each pair's share of its busier end's rate, by volume, in bytes a second."""
    out: Counter[str] = Counter()
    into: Counter[str] = Counter()
    for (source, destination), volume in pattern.items():
        out[source] += volume
        into[destination] += volume
    rates: dict[Pair, float] = {}
    for (source, destination), volume in pattern.items():
        up, down = network.ports[source][0], network.attachment(destination)
        narrower = min(network.rate_byte_s(port) for port in (up, down) if port is not None)
        rates[source, destination] = narrower * volume / max(out[source], into[destination])
    return rates
