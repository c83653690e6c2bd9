# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How busy the machine, the switches and the controller are while something is measured."""

from collections.abc import Iterable
from typing import Any

from barewire.lab import load
from barewire.lab.kernel import Process


class Meter:
    """Read at the first and at the last `tick`."""

    def __init__(self, switches: Iterable[Process], controller: Process) -> None:
        """`switches` are a lab's servers."""
        self._groups = {"switches_cores": tuple(switches), "controller_cores": (controller,)}
        self._first: dict[str, load.Moment] = {}
        self._last: dict[str, load.Moment] = {}

    def tick(self) -> None:
        """Read the clocks."""
        now = {name: load.moment(processes) for name, processes in self._groups.items()}
        self._first = self._first or now
        self._last = now

    def used(self) -> dict[str, Any]:
        """Seconds, the share of all cores that was busy, and each group's cores' worth. ValueError before two ticks."""
        if not self._first:
            raise ValueError("nothing was measured: tick at the first and at the last moment")
        loads = {name: load.between(self._first[name], self._last[name]) for name in self._groups}
        whole = loads["switches_cores"]
        return {
            "seconds": whole.seconds,
            "busy_share": whole.busy_share,
            "saturated": whole.saturated,
            **{name: one.switches_cores for name, one in loads.items()},
        }
