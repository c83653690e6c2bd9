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
from barewire.sdn.strategies.load import crossing, first_smallest, on_paths, rates_on
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class LeastLoaded(Static):
    """Needs no announcement and no re-placement."""

    name: ClassVar[str] = "least-loaded"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Compare paths by their ports' loads, sorted from the highest; the first of equals wins."""
        flows, load_byte_s = on_paths(paths, crossing(view), view.load_byte_s)
        fullness = flows + np.minimum(load_byte_s / rates_on(paths, view), 1.0)
        fullest_first = np.sort(fullness, axis=1)[:, ::-1]
        least = first_smallest(fullest_first)
        return Placement(paths[least], reason=f"fullest link {fullest_first[least, 0]:.2f}")
