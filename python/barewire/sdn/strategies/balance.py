# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Placement of flows with known rates on any network: each on its least loaded path, then off the most loaded links.

Has no proven bound, but works on irregular networks: for plans where colouring does not apply, and for re-placement.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from barewire.sdn.strategies.load import first_smallest
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Network, Path, Port
from barewire.topology.paths import PathSet

_PASSES = 4
_EQUAL = 1e-9


@dataclass(frozen=True)
class FlowDemand:
    """A flow to place: its candidate paths, of equal length, and its rate."""

    paths: Sequence[Path]
    rate_byte_s: float


class Rows:
    """The ports of paths as numbers, each path set found when it is needed: all together may not fit into memory."""

    def __init__(self, network: Network) -> None:
        """Number the network's ports."""
        self._paths = paths_of(network)
        self.rate_byte_s = self._paths.rate_byte_s

    def of(self, paths: Sequence[Path]) -> NDArray[np.int32]:
        """Return port numbers of shape (paths, hops)."""
        if isinstance(paths, PathSet) and paths.paths is self._paths:
            return paths.rows()
        return np.array([[self._paths.numbers[port] for port in path] for path in paths], dtype=np.int32)

    def of_path(self, path: Path) -> NDArray[np.int32]:
        """Return the port numbers of one path."""
        return np.array([self._paths.numbers[port] for port in path], dtype=np.int32)

    def of_ports(self, values: Mapping[Port, float]) -> NDArray[np.float64]:
        """Return values of ports as an array, of shape (ports,)."""
        array = np.zeros(len(self._paths.ports))
        for port, value in values.items():
            array[self._paths.numbers[port]] = value
        return array

    def path(self, row: NDArray[np.int32]) -> Path:
        """Return the path with these port numbers."""
        return self._paths.path_of(row)


class Loads:
    """Loads of ports as shares of their rates, while flows are placed and moved.

    `chosen` is each flow's path, None before it is placed.
    """

    def __init__(
        self, network: Network, flows: Sequence[FlowDemand], base_byte_s: Mapping[Port, float] | None = None
    ) -> None:
        """Begin with all flows unplaced; `base_byte_s` is what other flows send through each port."""
        self.flows = flows
        self._rows = Rows(network)
        self._rate = self._rows.rate_byte_s
        self._fastest = float(self._rate.max(initial=0.0))
        self._share = self._rows.of_ports(base_byte_s or {}) / self._rate
        self.chosen: list[Path | None] = [None] * len(flows)
        self._chosen_row: list[NDArray[np.int32] | None] = [None] * len(flows)
        self._on: defaultdict[int, set[int]] = defaultdict(set)

    def put(self, flow: int, path: Path) -> None:
        """Place or move a flow onto one of its paths."""
        self._put(flow, path, self._rows.of_path(path))

    def put_all(self) -> None:
        """Place all unplaced flows, highest rates first, on the path with the smallest maximum load."""
        for flow in sorted(range(len(self.flows)), key=lambda flow: -self.flows[flow].rate_byte_s):
            if self.chosen[flow] is None:
                rows = self._rows.of(self.flows[flow].paths)
                after = np.sort(self._share[rows] + self.flows[flow].rate_byte_s / self._rate[rows], axis=1)[:, ::-1]
                least = first_smallest(after)
                self._put(flow, self._rows.path(rows[least]), rows[least])

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
        if round(float(self._share.max(initial=0.0)), 9) <= 1:
            return 1.0
        largest = 1.0
        for flow in self.flows:
            rows = self._rows.of(flow.paths)
            common = np.all(rows == rows[0], axis=0)
            largest = max(largest, float(self._share[rows[:, ~common]].max(initial=0.0)))
        return round(largest, 9)

    def _relieve(self, link: int) -> bool:
        """Move the flow off a link whose move leaves the smallest maximum load; False if there is none."""
        best: tuple[float, int, NDArray[np.int32]] | None = None
        bound = self._share[link] * (1 - _EQUAL)
        for flow in sorted(self._on[link]):
            present, rate = self._chosen_row[flow], self.flows[flow].rate_byte_s
            # Alone it fills any other link as much.
            if present is None or rate / self._fastest >= bound:
                continue
            rows = self._rows.of(self.flows[flow].paths)
            elsewhere = ~(rows == link).any(axis=1)
            if not elsewhere.any():
                continue
            entered = ~(rows[:, :, np.newaxis] == present).any(axis=2)
            after = self._share[rows] + rate / self._rate[rows]
            fullest = np.where(elsewhere, after.max(axis=1, initial=0.0, where=entered), np.inf)
            least = int(np.argmin(fullest))
            if fullest[least] < bound and (best is None or fullest[least] < best[0]):
                best = (float(fullest[least]), flow, rows[least])
        if best is None:
            return False
        self._put(best[1], self._rows.path(best[2]), best[2])
        return True

    def _put(self, flow: int, path: Path, row: NDArray[np.int32]) -> None:
        rate, before = self.flows[flow].rate_byte_s, self._chosen_row[flow]
        if before is not None:
            self._share[before] -= rate / self._rate[before]
            for port in before.tolist():
                self._on[port].discard(flow)
        self.chosen[flow], self._chosen_row[flow] = path, row
        self._share[row] += rate / self._rate[row]
        for port in row.tolist():
            self._on[port].add(flow)
