# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The shortest path or a detour, by load and hops. Source: Singh 2005 (UGAL); Kim et al. 2008 for dragonflies.

A detour uses more links, so it is worth its length only if the shortest paths are fuller in proportion. Queues, which
the paper compares, are not visible to a controller: flows are counted at placement, as by `least-loaded`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.detours import SWITCHES_MAX, detours
from barewire.sdn.strategies.load import crossing
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path, Port


@dataclass(frozen=True)
class Ugal(Static):
    """For networks with few shortest paths between some switches, such as dragonflies."""

    name: ClassVar[str] = "ugal"
    switches_max: ClassVar[int] = SWITCHES_MAX

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take the least product of hops and load on the fullest link, with this flow; the first of equals."""
        flows = crossing(view)

        load_byte_s, rate_byte_s = view.load_byte_s, view.network.rate_byte_s
        # Most ports are on several of the paths.
        known: dict[Port, float] = {}

        def used(port: Port) -> float:
            if (value := known.get(port)) is None:
                value = known[port] = flows.get(port, 0.0) + min(load_byte_s.get(port, 0.0) / rate_byte_s(port), 1.0)
            return value

        def cost(path: Path) -> float:
            # The last port leads to the host, whatever the path.
            return (1 + max(map(used, path[:-1]), default=0.0)) * len(path)

        candidates = [*paths, *detours(self.name, view, paths)]
        best = min(candidates, key=cost)
        kind = "a shortest path" if len(best) == len(paths[0]) else "a detour"
        return Placement(best, reason=f"{kind} of {len(best)} hops, cost {cost(best):.2f}")
