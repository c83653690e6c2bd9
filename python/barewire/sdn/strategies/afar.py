# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Periodic re-placement of measured flows off the most loaded links. After Smith et al. 2018 (flow-aware routing).

Their routes change every few seconds by counters of injected traffic; here every `period_s` by the switches' statistics
of each flow. A flow moves only onto links that stay less loaded than the one it leaves.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.errors import WrongUse
from barewire.sdn.flow import Flow, FlowKey, View
from barewire.sdn.strategies.balance import FlowDemand, Loads
from barewire.sdn.strategies.least_loaded import LeastLoaded
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path, Port


@dataclass(frozen=True)
class Afar:
    """Links fuller than `above` (a share of their rate) are relieved; new flows are placed as by `least-loaded`."""

    period_s: float = 1.0
    above: float = 0.5
    name: ClassVar[str] = "afar"

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if not (self.period_s > 0 and 0 <= self.above < 1):
            raise WrongUse("afar needs a period_s above 0 and an above from 0 up to 1")

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take the least loaded path."""
        return LeastLoaded().place(flow, paths, view)

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move flows off links loaded above `above`."""
        routes = paths_of(view.network)
        base: defaultdict[Port, float] = defaultdict(float)
        movable: list[FlowKey] = []
        flows: list[FlowDemand] = []
        for key, placed in view.placed.items():
            paths = routes.between(key.source, key.destination)
            if key in view.fixed or not paths or placed.path not in paths:
                for port in placed.path:
                    base[port] += placed.rate_byte_s
            elif placed.rate_byte_s > 0:
                movable.append(key)
                flows.append(FlowDemand(paths, placed.rate_byte_s))
        loads = Loads(view.network, flows, base)
        for number, key in enumerate(movable):
            loads.put(number, view.placed[key].path)
        loads.relieve(self.above)
        moves: dict[FlowKey, Path] = {}
        for key, path in zip(movable, loads.chosen, strict=True):
            if path is not None and path != view.placed[key].path:
                moves[key] = path
        return moves
