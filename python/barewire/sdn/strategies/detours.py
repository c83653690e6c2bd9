# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Paths over an intermediate switch, longer than the shortest: what a dragonfly has besides its few minimal paths.

Source: Valiant 1982. A shortest path leads from the source's switch to the intermediate one, another from there to the
destination's: the first two that together enter no switch twice, of the first `THERE_MAX` to the intermediate one.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from weakref import WeakKeyDictionary
from zlib import crc32

from barewire.errors import WrongUse
from barewire.sdn.flow import View
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Path
from barewire.topology.paths import Paths

# Intermediate switches that are tried for two switches with hosts. Of a larger network it is every second one, third …,
# others for each two: some milliseconds for the first flow between them, and half of one for each later flow.
TRIED_MAX = 100
# Shortest paths to each of these that are tried: in a grid, or over parallel links, there may be millions from which no
# way leads on.
THERE_MAX = 64
# Distances to all switches are computed at last.
SWITCHES_MAX = 1000
# Pairs of switches whose detours are remembered, of 10 kB each.
_REMEMBERED = 4096

_Found = OrderedDict[tuple[str, str], Sequence[Path]]
_known: "WeakKeyDictionary[Paths, _Found]" = WeakKeyDictionary()


def detours(name: str, view: View, paths: Sequence[Path]) -> Sequence[Path]:
    """Return the paths over one intermediate switch between the ends of these shortest paths, by switch numbers.

    Shortest paths are not among them. WrongUse for a network with more than `SWITCHES_MAX` switches.
    """
    switches = len(view.network.switches)
    if switches > SWITCHES_MAX:
        raise WrongUse(
            f"{name} needs the distances between all switches, of up to {SWITCHES_MAX}; this network has {switches}: "
            "use least-loaded"
        )
    routes = paths_of(view.network)
    first, end = paths[0][0].node, paths[0][-1]
    known = _known.setdefault(routes, OrderedDict())
    if (found := known.get((first, end.node))) is None:
        found = known[first, end.node] = tuple(dict.fromkeys(_over_each(routes, first, end.node, len(paths[0]))))
        if len(known) > _REMEMBERED:
            known.popitem(last=False)
    return [(*path, end) for path in found]


def _over_each(routes: Paths, first: str, last: str, shortest: int) -> Iterator[Path]:
    """The first loop-free path over each intermediate switch, as far as it is longer than a shortest one to a host."""
    switches = routes.network.switches
    step = -(-len(switches) // TRIED_MAX)
    middles = switches[crc32(f"{first} {last}".encode()) % step :: step] if first != last else ()
    routes.expect_switches(middles)
    for middle in middles:
        if middle not in (first, last):
            path = next(_joined(routes, first, middle, last), ())
            if len(path) >= shortest:
                yield path


def _joined(routes: Paths, first: str, middle: str, last: str) -> Iterator[Path]:
    for there in islice(routes.between_switches(first, middle, (last,)), THERE_MAX):
        for back in routes.between_switches(middle, last, {port.node for port in there}):
            yield (*there, *back)
