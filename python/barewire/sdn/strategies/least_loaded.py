# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The path with the smallest maximum load: flows that send are counted, the measured load breaks ties.

Fixes two faults of Oliveira et al.'s `traffic`: a burst of new flows is spread, because each is counted at once, and a
full link is not outweighed by empty ones, because the maximum is compared instead of the sum. Idle connections, of
which Big Data frameworks keep many, are no load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.load import crossing
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class LeastLoaded(Static):
    """Needs no announcement and no re-placement."""

    name: ClassVar[str] = "least-loaded"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Compare paths by their ports' loads, sorted from the highest; the first of equals wins."""
        flows = crossing(view)

        def fullness(path: Path) -> list[float]:
            used = (view.load_byte_s.get(port, 0.0) / view.network.rate_byte_s(port) for port in path)
            return sorted((flows.get(port, 0) + min(share, 1.0) for port, share in zip(path, used, strict=True)))[::-1]

        path = min(paths, key=fullness)
        return Placement(path, reason=f"fullest link {max(fullness(path)):.2f}")
