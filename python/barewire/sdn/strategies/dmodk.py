# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The path by the destination's number: everything for one host comes down one path. Source: Zahavi 2010 (D-mod-K).

With d hosts before the destination, a switch that has n next hops takes hop d mod n, the next one goes on with d div n.
On a fat-tree no two destinations of a shift share a link; which placement meets which permutation is left to luck.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.steps import walk
from barewire.sdn.strategies.still import Still
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Dmodk(Still):
    """Static and without state; the first choice of cluster networks that know nothing of their load."""

    name: ClassVar[str] = "dmodk"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take one next hop at each switch by what is left of the destination's number."""
        hosts = view.network.host_numbers
        left = hosts.get(flow.key.destination, 0)

        def choose(switch: str, hops: int) -> int:
            nonlocal left
            left, hop = divmod(left, hops)
            return hop

        return Placement(walk(paths, choose), reason=f"destination {flow.key.destination}")
