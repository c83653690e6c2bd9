# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Flows of known rates on any network: each onto the path with the least full links, then off the fullest ones.

No bound is proved for it, but it needs no regular network: planning where colouring does not fit, and re-placement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from barewire.topology import Network, Path, Port

_PASSES = 4
_EQUAL = 1e-9


@dataclass(frozen=True)
class Wish:
    """A flow: the shortest paths that it may take, of equal length, and its rate."""

    paths: Sequence[Path]
    rate_byte_s: float


@dataclass
class Loads:
    """How full ports are, as shares of their rates, while flows are put on paths and moved."""

    network: Network
    wishes: Sequence[Wish]
    base_byte_s: Mapping[Port, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Number the ports, and write each wish's paths as rows of numbers."""
        numbers: dict[Port, int] = {}
        self._rows: list[NDArray[np.intp]] = [
            np.array([[numbers.setdefault(port, len(numbers)) for port in path] for path in wish.paths], dtype=np.intp)
            for wish in self.wishes
        ]
        self._rate = np.array([self.network.rate_byte_s(port) for port in numbers])
        self._share = np.array([self.base_byte_s.get(port, 0.0) for port in numbers]) / self._rate
        self.chosen: list[int | None] = [None] * len(self.wishes)
        self._on: list[set[int]] = [set() for _ in numbers]

    def put(self, wish: int, path: int) -> None:
        """Put a flow on a path, or move it there."""
        rows, rate = self._rows[wish], self.wishes[wish].rate_byte_s
        before = self.chosen[wish]
        if before is not None:
            self._share[rows[before]] -= rate / self._rate[rows[before]]
            for port in rows[before]:
                self._on[port].discard(wish)
        self.chosen[wish] = path
        self._share[rows[path]] += rate / self._rate[rows[path]]
        for port in rows[path]:
            self._on[port].add(wish)

    def put_all(self) -> None:
        """Put each flow that has no path, those of the highest rate first, where the fullest link stays least full."""
        for wish in sorted(range(len(self.wishes)), key=lambda one: -self.wishes[one].rate_byte_s):
            if self.chosen[wish] is None:
                rows = self._rows[wish]
                after = np.sort(self._share[rows] + self.wishes[wish].rate_byte_s / self._rate[rows], axis=1)[:, ::-1]
                self.put(wish, int(np.lexsort(after.T[::-1])[0]))

    def relieve(self, above: float) -> None:
        """Move flows off links fuller than `above`, fullest first, onto paths that stay less full than that link was.

        Each move makes the sorted list of loads smaller, so this ends; it stops after some passes over all links.
        """
        for _ in range(_PASSES):
            moved = False
            for link in np.argsort(-self._share, kind="stable"):
                while self._share[link] > above and self._relieve(int(link)):
                    moved = True
            if not moved:
                return

    def cost(self) -> tuple[float, float]:
        """How full the fullest port is that some flow could avoid, then how uneven all are; less is better."""
        avoidable = [
            np.setdiff1d(rows, rows[0][np.all(rows == rows[0], axis=0)]) for rows in self._rows if len(rows) > 1
        ]
        ports = np.unique(np.concatenate(avoidable)) if avoidable else np.zeros(0, dtype=np.intp)
        share = self._share[ports]
        return (round(float(share.max(initial=0.0)), 9), float((share**2).sum()))

    def _relieve(self, link: int) -> bool:
        """Move one flow off a link, the one whose move leaves the least; False if none can."""
        best: tuple[float, int, int] | None = None
        for wish in sorted(self._on[link]):
            rows, path = self._rows[wish], self.chosen[wish]
            elsewhere = ~(rows == link).any(axis=1)
            if path is None or not elsewhere.any():
                continue
            entered = ~np.isin(rows, rows[path])
            after = self._share[rows] + self.wishes[wish].rate_byte_s / self._rate[rows]
            fullest = np.where(elsewhere, after.max(axis=1, initial=0.0, where=entered), np.inf)
            least = int(np.argmin(fullest))
            if fullest[least] < self._share[link] * (1 - _EQUAL) and (best is None or fullest[least] < best[0]):
                best = (float(fullest[least]), wish, least)
        if best is None:
            return False
        self.put(best[1], best[2])
        return True
