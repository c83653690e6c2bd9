# SPDX-License-Identifier: Apache-2.0 OR MIT
"""CPU use of the machine, the switches and the controller during a measurement."""

from collections.abc import Iterable
from typing import Any

from barewire.lab import load
from barewire.lab.kernel import Process


class Meter:
    """Use between the first and the last `tick`."""

    def __init__(self, switches: Iterable[Process], controller: Process) -> None:
        """`switches` are the processes of a lab's switches."""
        self._groups = {"switches_cores": tuple(switches), "controller_cores": (controller,)}
        self._first: dict[str, load.Moment] = {}
        self._last: dict[str, load.Moment] = {}

    def tick(self) -> None:
        """Read the clocks."""
        now = {name: load.moment(processes) for name, processes in self._groups.items()}
        self._first = self._first or now
        self._last = now

    def used(self) -> dict[str, Any]:
        """Seconds, the busy share of all cores, and cores used by each group. ValueError before two ticks."""
        if not self._first:
            raise ValueError("nothing was measured: tick at the first and at the last moment")
        loads = {name: load.between(self._first[name], self._last[name]) for name in self._groups}
        switches_load = loads["switches_cores"]
        return {
            "seconds": switches_load.seconds,
            "busy_share": switches_load.busy_share,
            "saturated": switches_load.saturated,
            **{name: load.switches_cores for name, load in loads.items()},
        }
