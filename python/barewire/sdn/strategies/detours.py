# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Paths over an intermediate switch, longer than the shortest: what a dragonfly has besides its few minimal paths.

Source: Valiant 1982. From the source's switch the first shortest path leads to the intermediate one, and from there the
first shortest path to the destination's; paths that would enter a switch twice are left out.
"""

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from barewire.errors import WrongUse
from barewire.sdn.flow import View
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Path
from barewire.topology.paths import Paths

# Every switch is tried for every pair of switches with hosts, and a table has a rule for each flow and hop.
SWITCHES_MAX = 400

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
    numbers: Mapping[str, int] = {switch: number for number, switch in enumerate(routes.network.switches)}
    found: dict[Path, None] = {}
    for middle in routes.network.switches:
        if middle in (first, last) or first == last:
            continue
        there, back = (routes.first_across(*ends) for ends in ((numbers[first], numbers[middle]), (numbers[middle], numbers[last])))
        if there is None or back is None:
            continue
        path = (*there, *back)
        entered = [port.node for port in path]
        if len({*entered, last}) == len(entered) + 1:
            found[path] = None
    return list(found)
