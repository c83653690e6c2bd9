# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The reserved paths, kept so that a new flow looks at none of the others. No clock, no I/O.

A reservation with an end may outlive its flow; an endless one is its flow's own, and goes with it.
"""

import heapq
import math
from collections import Counter

from barewire.sdn.strategies.isolated import switches_of
from barewire.topology import Path

_Switches = tuple[str, ...]


class Reservations:
    """Paths with the ends of their reservations, and lists of switches with their latest ones, also endless."""

    def __init__(self) -> None:
        """Begin without reservations."""
        self.paths: dict[Path, float] = {}
        self.switches: dict[_Switches, float] = {}
        # Each reserved path once, with an end that may have been put off since.
        self._ends: list[tuple[float, Path]] = []
        self._latest: dict[_Switches, float] = {}
        self._endless: Counter[_Switches] = Counter()

    def add(self, path: Path, until_s: float) -> None:
        """Reserve a path until a time, or longer if it is already."""
        if path not in self.paths:
            heapq.heappush(self._ends, (until_s, path))
        self.paths[path] = max(until_s, self.paths.get(path, 0.0))
        switches = switches_of(path)
        self._latest[switches] = max(until_s, self._latest.get(switches, 0.0))
        self._show(switches)

    def change_endless(self, path: Path, change: int) -> None:
        """Count a flow that reserves a path for as long as it keeps it (1), or does so no more (-1)."""
        switches = switches_of(path)
        self._endless[switches] += change
        if not self._endless[switches]:
            del self._endless[switches]
        self._show(switches)

    def expire(self, now: float) -> None:
        """Remove the reservations that are over."""
        while self._ends and self._ends[0][0] <= now:
            _, path = heapq.heappop(self._ends)
            if self.paths[path] > now:
                heapq.heappush(self._ends, (self.paths[path], path))
                continue
            del self.paths[path]
            switches = switches_of(path)
            if self._latest.get(switches, math.inf) <= now:
                del self._latest[switches]
                self._show(switches)

    def _show(self, switches: _Switches) -> None:
        until_s = math.inf if self._endless[switches] else self._latest.get(switches)
        if until_s is None:
            self.switches.pop(switches, None)
        else:
            self.switches[switches] = until_s
