# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Always the first shortest path, as if a spanning tree blocked the others. Source: Oliveira et al. 2018."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Stp(Static):
    """As published."""

    name: ClassVar[str] = "stp"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take the first path."""
        return Placement(paths[0], reason="the first path")
