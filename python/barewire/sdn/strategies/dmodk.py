# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The path by the destination's number: all flows to a host come down one path. Source: Zahavi 2010 (D-mod-K).

With d hosts before the destination, a switch with n next hops takes hop d mod n, the next one continues with d div n.
On a fat-tree no two destinations of a shift share a link; other permutations depend on placement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.steps import walk
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Dmodk(Static):
    """Static and without state; for cluster networks without load information."""

    name: ClassVar[str] = "dmodk"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take the next hop at each switch by the rest of the destination's number."""
        hosts = view.network.host_numbers
        remaining = hosts.get(flow.key.destination, 0)

        def choose(switch: str, hops: int) -> int:
            nonlocal remaining
            remaining, hop = divmod(remaining, hops)
            return hop

        return Placement(walk(paths, choose), reason=f"destination {flow.key.destination}")
