# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Announced patterns planned as a whole before they run: by edge colouring on a fat-tree, by search elsewhere.

A pattern has the volumes between hosts. The assumed rate of a pair is its volume's share of its busier end, which for a
permutation is line rate, and normalises jobs of different sizes. Each pattern has its own plan: when a job steps to the
next pattern, flows whose pair has another path are moved. Sources: König's theorem on
Clos networks (Beneš 1965); Pythia (Neves et al. 2014) for announced shuffles.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from barewire.errors import WrongUse
from barewire.sdn.flow import Flow, FlowKey, Pattern, View
from barewire.sdn.strategies.balance import FlowDemand, Loads
from barewire.sdn.strategies.clos import NoClosError, Pair, clos_paths
from barewire.sdn.strategies.lanes import Lanes
from barewire.sdn.strategies.memo import memoized, paths_of
from barewire.sdn.strategies.recognised import recognised
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Network, Path

# Pairs of hosts above which there is no plan: 300 hosts that all exchange with all take minutes.
PAIRS_MAX = 100_000
_NOTHING: Pattern = {}


@dataclass(frozen=True)
class Planned:
    """Reaches the bound for announced patterns; unannounced flows are placed as by `lanes`.

    `period_s` only corrects flows after a missed change of pattern, and recognises. `turns`: whether jobs that ask take
    turns where no plan helps (`sdn/coflow.py`). `recognise`: whether unannounced jobs whose pattern is recognised are
    planned, too.
    """

    period_s: float = 1.0
    turns: str = "no"
    recognise: str = "no"
    name: ClassVar[str] = "planned"

    def __post_init__(self) -> None:
        """Validate the parameters."""
        for name in ("turns", "recognise"):
            if getattr(self, name) not in ("yes", "no"):
                raise WrongUse(f"planned's {name} is yes or no, not '{getattr(self, name)}'")
        if not self.period_s > 0:
            raise WrongUse(f"planned's period_s is above 0, not {self.period_s}")

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Return the path of these two hosts by the plan, if that is made; `rearrange` moves flows that came before."""
        pattern = self._pattern(view)
        made = plan.known(view.network, pattern) if pattern else {}
        path = None if made is None else made.get((flow.key.source, flow.key.destination))
        if path is not None and path in paths:
            return Placement(path, reason="planned for its announced pattern")
        unplanned = Lanes().place(flow, paths, view)
        why = "its plan is being made" if made is None else "not announced"
        return Placement(unplanned.path, reason=f"{why}; {unplanned.reason}")

    def prepare(self, network: Network, patterns: tuple[Pattern, ...]) -> None:
        """Make the plan before it is needed."""
        if patterns:
            plan(network, patterns[0])

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move the flows of the current pattern onto its plan, and others into their lane."""
        pattern = self._pattern(view)
        made = plan(view.network, pattern) if pattern else {}
        planned = {key for key in view.placed if (key.source, key.destination) in made} if made else set()
        moves = dict(Lanes().rearrange(replace(view, fixed=view.fixed | planned)))
        for key in planned - view.fixed:
            path = made[key.source, key.destination]
            if path != view.placed[key].path:
                moves[key] = path
        return moves

    def _pattern(self, view: View) -> Pattern:
        announced = view.patterns[0] if view.patterns else _NOTHING
        found = recognised(view) if self.recognise == "yes" else _NOTHING
        return _together(announced, found) if found else announced


@memoized
def _together(announced: Pattern, found: Pattern) -> Pattern:
    """An announced pattern, and what was recognised between other hosts."""
    known = {host for pair in announced for host in pair}
    return {**announced, **{pair: volume for pair, volume in found.items() if known.isdisjoint(pair)}}


@memoized
def plan(network: Network, pattern: Pattern) -> Mapping[Pair, Path]:
    """Return a path for each pair that has one: the better of colouring and search, by maximum load.

    Pairs of a pattern that is too large have none.
    """
    if len(pattern) > PAIRS_MAX:
        return {}
    routes = paths_of(network)
    routes.expect([destination for _, destination in pattern])
    pairs = {pair: routes.between(*pair) for pair, volume in pattern.items() if volume > 0}
    pairs = {pair: paths for pair, paths in pairs.items() if paths}
    rates = _rates(network, {pair: pattern[pair] for pair in pairs})
    flows = [FlowDemand(paths, rates[pair]) for pair, paths in pairs.items()]
    plans: list[Loads] = []
    # The first of equals wins: separate jobs, then separate steps; only the search works on other networks.
    steps, together = _steps(rates), dict.fromkeys(rates, 0)
    for groups, jobs in ((steps, _jobs(rates)), (steps, together), (together, together)):
        with suppress(NoClosError):
            coloured = clos_paths(network, groups, jobs)
            plans.append(Loads(network, flows))
            for number, pair in enumerate(pairs):
                plans[-1].put(number, coloured[pair])
            if plans[-1].overload() <= 1:
                break
    else:
        plans.append(Loads(network, flows))
        plans[-1].put_all()
    best = min(plans, key=Loads.overload)
    best.relieve(above=1.0)
    return {pair: path for pair, path in zip(pairs, best.chosen, strict=True) if path is not None}


def _jobs(pairs: Iterable[Pair]) -> dict[Pair, int]:
    """Number the jobs: the connected components of communicating hosts."""
    import networkx as nx  # imported late: most commands do not need it

    graph = nx.Graph(list(pairs))
    number_of = {host: number for number, hosts in enumerate(nx.connected_components(graph)) for host in hosts}
    return {pair: number_of[pair[0]] for pair in pairs}


def _steps(rates: Mapping[Pair, float]) -> dict[Pair, int]:
    """Split a pattern into partial permutations: the largest first, else in announced order, the order in time.

    An exchange's messages to the right are one permutation, those to the left another: so a program gets line rate
    whether it sends them one after another or at once.
    """
    sends: list[set[str]] = []
    receives: list[set[str]] = []
    steps: dict[Pair, int] = {}
    for source, destination in sorted(rates, key=lambda pair: -rates[pair]):
        step = 0
        while step < len(sends) and (source in sends[step] or destination in receives[step]):
            step += 1
        if step == len(sends):
            sends.append(set())
            receives.append(set())
        sends[step].add(source)
        receives[step].add(destination)
        steps[source, destination] = step
    return steps


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
