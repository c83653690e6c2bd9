# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Periodic re-placement by measured flows, off the hottest links. After Smith et al. 2018 (flow-aware routing).

Their routes change every few seconds from counters of injected traffic; ours every `period_s` from the switches'
statistics of each flow. A flow moves only onto links that stay less full than the one it leaves.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.errors import WrongUse
from barewire.sdn.flow import Flow, FlowKey, View
from barewire.sdn.strategies.balance import Loads, Wish
from barewire.sdn.strategies.least_loaded import LeastLoaded
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path, Port


@dataclass(frozen=True)
class Afar:
    """Links fuller than `above` (a share of their rate) are relieved; new flows go as by `least-loaded`."""

    period_s: float = 1.0
    above: float = 0.5
    name: ClassVar[str] = "afar"

    def __post_init__(self) -> None:
        """Refuse what would never run, or move flows off empty links."""
        if not (self.period_s > 0 and 0 <= self.above < 1):
            raise WrongUse("afar needs a period_s above 0 and an above from 0 up to 1")

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take the least loaded path."""
        return LeastLoaded().place(flow, paths, view)

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move flows off links that are too full."""
        routes = paths_of(view.network)
        base: Counter[Port] = Counter()
        movable: list[FlowKey] = []
        wishes: list[Wish] = []
        for key, placed in view.placed.items():
            paths = routes.between(key.source, key.destination)
            if key in view.fixed or len(paths) < 2 or placed.path not in paths:
                for port in placed.path:
                    base[port] += placed.rate_byte_s  # type: ignore[assignment] # counts bytes a second
            elif placed.rate_byte_s > 0:
                movable.append(key)
                wishes.append(Wish(paths, placed.rate_byte_s))
        loads = Loads(view.network, wishes, base)
        for number, key in enumerate(movable):
            loads.put(number, wishes[number].paths.index(view.placed[key].path))
        loads.relieve(self.above)
        moves: dict[FlowKey, Path] = {}
        for key, wish, path in zip(movable, wishes, loads.chosen, strict=True):
            if path is not None and wish.paths[path] != view.placed[key].path:
                moves[key] = wish.paths[path]
        return moves
