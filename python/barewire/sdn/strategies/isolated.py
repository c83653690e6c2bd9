# SPDX-License-Identifier: Apache-2.0 OR MIT
"""As `ecmp-published`, but a chosen path is reserved and a reserved one skipped. Source: Oliveira et al. 2018.

A reservation covers the exact list of switches between two edge switches: flows between other edge switches may share
its links. If every path is reserved, the last candidate is used and its reservation does not change. The paper reserves
a path for its flow's lifetime (`seconds=inf`), its program for 60 s regardless of the flow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.errors import WrongUse
from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.strategy import RESERVE_MAX_S, Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Isolated(Static):
    """As in the published program, or with `seconds=inf` as in the paper."""

    seconds: float = 60.0
    name: ClassVar[str] = "isolated"

    def __post_init__(self) -> None:
        """Validate the parameter."""
        if not (0 < self.seconds <= RESERVE_MAX_S or self.seconds == math.inf):
            most = f"at most {RESERVE_MAX_S}, or inf: as long as the flow lives"
            raise WrongUse(f"isolated's seconds are above 0 and {most}; not {self.seconds:g}")

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Choose among the remaining paths by the identification, until one is free."""
        reserved = _reserved(view) if view.reserved is None else view.reserved
        candidates = list(range(len(paths)))
        while True:
            number = candidates[flow.identification % len(candidates)]
            path = paths[number]
            if reserved.get(switches_of(path), 0.0) <= view.now_s:
                return Placement(path, self.seconds, f"free, after {len(paths) - len(candidates)} that were taken")
            if len(candidates) == 1:
                return Placement(path, reason=f"the last candidate, all {len(paths)} are taken")
            candidates.remove(number)


def switches_of(path: Path) -> tuple[str, ...]:
    """Return what a reservation covers: the switches of a path."""
    return tuple(port.node for port in path)


def _reserved(view: View) -> Mapping[tuple[str, ...], float]:
    """The latest end of the reservations of each list of switches."""
    reserved: dict[tuple[str, ...], float] = {}
    placed = ((each.path, each.reserved_until_s) for each in view.placed.values())
    for path, until_s in (*view.reservations.items(), *placed):
        switches = switches_of(path)
        reserved[switches] = max(until_s, reserved.get(switches, 0.0))
    return reserved
