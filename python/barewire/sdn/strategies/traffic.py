# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The path with the least traffic in the last interval of statistics. Source: Oliveira et al. 2018.

Flows that begin within one interval see the same statistics, so a burst of them takes one path. In the paper the last
of equal paths wins, in the published program the first: `ties`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from barewire.errors import WrongUse
from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.load import on_paths
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Traffic(Static):
    """As in the paper (`ties=last`), or as in its program (`ties=first`)."""

    ties: str = "last"
    name: ClassVar[str] = "traffic"

    def __post_init__(self) -> None:
        """Validate the parameter."""
        if self.ties not in ("first", "last"):
            raise WrongUse(f"traffic's ties is first or last, not '{self.ties}'")

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Choose the smallest sum of rates sent and received by the ports between switches, in bytes a second."""
        sent, received = on_paths(paths, view.load_byte_s, view.received_byte_s)
        carried = sent + received
        sums = np.zeros(len(paths))
        for hop in range(carried.shape[1] - 1):  # one after another, so that equal numbers have equal sums
            sums += carried[:, hop]
        equals = np.flatnonzero(sums == sums.min())
        path = paths[int(equals[-1 if self.ties == "last" else 0])]
        return Placement(path, reason=f"{sums.min():.0f} bytes/s on its ports, {len(equals)} such")
