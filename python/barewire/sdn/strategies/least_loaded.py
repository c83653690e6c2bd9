# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The path with the smallest maximum load: flows that send are counted, the measured load breaks ties.

Fixes two faults of Oliveira et al.'s `traffic`: a burst of new flows is spread, because each is counted at once, and a
full link is not outweighed by empty ones, because the maximum is compared instead of the sum. Idle connections, of
which Big Data frameworks keep many, are no load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.load import crossing, on_paths, rates_on
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path, Port
from barewire.topology.paths import PortValues


@dataclass(frozen=True)
class LeastLoaded(Static):
    """Needs no announcement and no re-placement."""

    name: ClassVar[str] = "least-loaded"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Compare paths by their ports' loads, sorted from the highest; the first of equals wins."""
        fullest_first = _fullest_first(paths, view)
        least = fullest_first.index(min(fullest_first))
        return Placement(paths[least], reason=f"fullest link {fullest_first[least][0]:.2f}")


def _fullest_first(paths: Sequence[Path], view: View) -> list[list[float]]:
    """The fullness of each path's ports, sorted from the highest."""
    flows = crossing(view)
    if isinstance(flows, PortValues):
        counts, load_byte_s = on_paths(paths, flows, view.load_byte_s)
        fullness = counts + np.minimum(load_byte_s / rates_on(paths, view), 1.0)
        found: list[list[float]] = np.sort(fullness, axis=1)[:, ::-1].tolist()
        return found
    # Without arrays, which take many times as long for a few paths; each port is looked up once for all of them.
    loads, rate_byte_s = view.load_byte_s, view.network.rate_byte_s
    known: dict[Port, float] = {}
    rows: list[list[float]] = []
    for path in paths:
        row = []
        for port in path:
            if (value := known.get(port)) is None:
                load = loads.get(port)
                value = known[port] = flows.get(port, 0) + (min(load / rate_byte_s(port), 1.0) if load else 0.0)
            row.append(value)
        row.sort(reverse=True)
        rows.append(row)
    return rows
