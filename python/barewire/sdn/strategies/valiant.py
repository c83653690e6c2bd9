# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Over an intermediate switch chosen by a hash: any pattern becomes two random ones. Source: Valiant 1982.

In a dragonfly all traffic from one group to another has one link; over random intermediate switches it has all of them,
at the price of twice the hops.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.detours import SWITCHES_MAX, detours
from barewire.sdn.strategies.ecmp import Ecmp, hashed
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Valiant(Static):
    """Static and without state; `basis` changes all choices. Where there is no detour, as `ecmp`."""

    basis: int = 0
    name: ClassVar[str] = "valiant"
    switches_max: ClassVar[int] = SWITCHES_MAX

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take a detour by the hash of the 5-tuple."""
        longer = detours(self.name, view, paths)
        if not longer:
            return Ecmp(self.basis).place(flow, paths, view)
        number = hashed(self.basis, "", flow.key) % len(longer)
        return Placement(longer[number], reason=f"detour {number} of {len(longer)}, by hash")
