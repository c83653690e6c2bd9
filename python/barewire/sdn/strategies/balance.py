# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Placement of flows with known rates on any network: each on its least loaded path, then off the most loaded links.

Has no proven bound, but works on irregular networks: for plans where colouring does not apply, and for re-placement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from barewire.topology import Network, Path, Port

_PASSES = 4
_EQUAL = 1e-9


@dataclass(frozen=True)
class FlowDemand:
    """A flow to place: its candidate paths, of equal length, and its rate."""

    paths: Sequence[Path]
    rate_byte_s: float


@dataclass
class Loads:
    """Loads of ports as shares of their rates, while flows are placed and moved."""

    network: Network
    flows: Sequence[FlowDemand]
    base_byte_s: Mapping[Port, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Number the ports, and store each flow's paths as rows of port numbers."""
        numbers: dict[Port, int] = {}
        self._rows: list[NDArray[np.intp]] = [
            np.array([[numbers.setdefault(port, len(numbers)) for port in path] for path in flow.paths], dtype=np.intp)
            for flow in self.flows
        ]
        self._rate = np.array([self.network.rate_byte_s(port) for port in numbers])
        self._share = np.array([self.base_byte_s.get(port, 0.0) for port in numbers]) / self._rate
        self.chosen: list[int | None] = [None] * len(self.flows)
        self._on: list[set[int]] = [set() for _ in numbers]

    def put(self, flow: int, path: int) -> None:
        """Place or move a flow onto a path."""
        rows, rate = self._rows[flow], self.flows[flow].rate_byte_s
        before = self.chosen[flow]
        if before is not None:
            self._share[rows[before]] -= rate / self._rate[rows[before]]
            for port in rows[before]:
                self._on[port].discard(flow)
        self.chosen[flow] = path
        self._share[rows[path]] += rate / self._rate[rows[path]]
        for port in rows[path]:
            self._on[port].add(flow)

    def put_all(self) -> None:
        """Place all unplaced flows, highest rates first, on the path with the smallest maximum load."""
        for flow in sorted(range(len(self.flows)), key=lambda flow: -self.flows[flow].rate_byte_s):
            if self.chosen[flow] is None:
                rows = self._rows[flow]
                after = np.sort(self._share[rows] + self.flows[flow].rate_byte_s / self._rate[rows], axis=1)[:, ::-1]
                self.put(flow, int(np.lexsort(after.T[::-1])[0]))

    def relieve(self, above: float) -> None:
        """Move flows off links loaded above `above`, most loaded first, onto paths that stay below that link's load.

        Each move decreases the sorted list of loads, so this terminates; it stops after some passes over all links.
        """
        for _ in range(_PASSES):
            moved = False
            for link in np.argsort(-self._share, kind="stable"):
                while self._share[link] > above + _EQUAL and self._relieve(int(link)):
                    moved = True
            if not moved:
                return

    def overload(self) -> float:
        """The largest load of a port that some flow could avoid, as a share of its rate; at least 1."""
        avoidable = [
            np.setdiff1d(rows, rows[0][np.all(rows == rows[0], axis=0)]) for rows in self._rows if len(rows) > 1
        ]
        if not avoidable:
            return 1.0
        return max(1.0, round(float(self._share[np.concatenate(avoidable)].max(initial=0.0)), 9))

    def _relieve(self, link: int) -> bool:
        """Move the flow off a link whose move leaves the smallest maximum load; False if there is none."""
        best: tuple[float, int, int] | None = None
        for flow in sorted(self._on[link]):
            rows, path = self._rows[flow], self.chosen[flow]
            elsewhere = ~(rows == link).any(axis=1)
            if path is None or not elsewhere.any():
                continue
            entered = ~np.isin(rows, rows[path])
            after = self._share[rows] + self.flows[flow].rate_byte_s / self._rate[rows]
            fullest = np.where(elsewhere, after.max(axis=1, initial=0.0, where=entered), np.inf)
            least = int(np.argmin(fullest))
            if fullest[least] < self._share[link] * (1 - _EQUAL) and (best is None or fullest[least] < best[0]):
                best = (float(fullest[least]), flow, least)
        if best is None:
            return False
        self.put(best[1], best[2])
        return True
