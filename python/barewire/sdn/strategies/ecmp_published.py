# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The path by the IPv4 identification of the flow's first packet, modulo their number. Source: Oliveira et al. 2018.

Linux answers a connection's opening with identification 0, so the passive side's direction takes the first path. This
is not the usual ECMP, which is `ecmp`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class EcmpPublished(Static):
    """As published."""

    name: ClassVar[str] = "ecmp-published"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Choose the path by the identification."""
        path = paths[flow.identification % len(paths)]
        return Placement(path, reason=f"identification {flow.identification} modulo {len(paths)}")
