# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Paths over an intermediate switch, longer than the shortest: what a dragonfly has besides its few minimal paths.

Source: Valiant 1982. A shortest path leads from the source's switch to the intermediate one, another from there to the
destination's: the first two that together enter no switch twice.
"""

from collections.abc import Sequence
from itertools import product
from weakref import WeakKeyDictionary

from barewire.errors import WrongUse
from barewire.sdn.flow import View
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Path
from barewire.topology.paths import Paths

# Every switch is tried for every pair of switches with hosts, and a table has a rule for each flow and hop.
SWITCHES_MAX = 100

_Found = dict[tuple[str, str], tuple[Path, ...]]
_known: "WeakKeyDictionary[Paths, _Found]" = WeakKeyDictionary()


def detours(name: str, view: View, paths: Sequence[Path]) -> Sequence[Path]:
    """Return the paths over one intermediate switch between the ends of these shortest paths, by switch numbers.

    Shortest paths are not among them. WrongUse for a network with more than `SWITCHES_MAX` switches.
    """
    switches = len(view.network.switches)
    if switches > SWITCHES_MAX:
        raise WrongUse(
            f"{name} tries every switch as an intermediate one, on networks of up to {SWITCHES_MAX} switches; this one "
            f"has {switches}: use least-loaded"
        )
    routes = paths_of(view.network)
    first, end = paths[0][0].node, paths[0][-1]
    known = _known.setdefault(routes, {})
    if (first, end.node) not in known:
        known[first, end.node] = tuple(_over_each(routes, first, end.node))
    shortest = len(paths[0])
    return [(*path, end) for path in known[first, end.node] if len(path) + 1 > shortest]


def _over_each(routes: Paths, first: str, last: str) -> list[Path]:
    found: dict[Path, None] = {}
    for middle in routes.network.switches if first != last else ():
        if middle not in (first, last):
            joined = (
                (*there, *back)
                for there, back in product(
                    routes.between_switches(first, middle), routes.between_switches(middle, last)
                )
            )
            path = next((path for path in joined if len({*(port.node for port in path), last}) == len(path) + 1), None)
            if path is not None:
                found[path] = None
    return list(found)
