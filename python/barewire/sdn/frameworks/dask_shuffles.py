# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Dask's P2P shuffles announced to a controller by a plug-in of the scheduler.

    BAREWIRE_SDN=http://… BAREWIRE_SDN_TOKEN=… dask scheduler --preload barewire.sdn.frameworks.dask_shuffles

Workers report with each heartbeat how much each shuffle has had to send; its outputs' workers are known when it begins.
A shuffle is announced with the first such report, again whenever its volume has doubled, and withdrawn when its last
input was sent (its barrier), or when it fails.
"""

from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from barewire.sdn.frameworks.announcer import Announcer

_PERIOD_MS = 250
_BARRIER = "shuffle-barrier-"


class ShuffleAnnouncer(SchedulerPlugin):  # type: ignore[misc]
    """Announces the shuffles of one scheduler."""

    name = "barewire-shuffles"

    def __init__(self, announcer: Announcer) -> None:
        """`announcer` is closed with the scheduler."""
        self._announcer = announcer
        # Announced shuffles: by their run, the volume in bytes.
        self._announced: dict[str, float] = {}
        self._scheduler: Scheduler | None = None
        self._timer: PeriodicCallback | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to watch the scheduler's shuffles."""
        self._scheduler = scheduler
        self._timer = PeriodicCallback(self.look, _PERIOD_MS)
        self._timer.start()

    async def close(self) -> None:
        """Withdraw everything."""
        if self._timer is not None:
            self._timer.stop()
        self._announcer.close()

    def look(self) -> None:
        """Announce what has begun or grown, withdraw what is over."""
        assert self._scheduler is not None
        shuffles = self._scheduler.plugins["shuffle"]
        sending = {}
        for number, state in shuffles.active_shuffles.items():
            barrier = self._scheduler.tasks.get(_BARRIER + number)
            if barrier is not None and barrier.state in ("waiting", "processing") and not state.archived:
                sending[f"dask {number} {state.run_id}"] = state, shuffles.heartbeats.get(number, {})
        for key in self._announced.keys() - sending.keys():
            self._announcer.withdraw(key)
            del self._announced[key]
        for key, (state, reports) in sending.items():
            sizes = {worker: report.get("comm", {}).get("total", 0) for worker, report in reports.items()}
            total = sum(sizes.values())
            if total > 0 and total >= 2 * self._announced.get(key, 0):
                self._announced[key] = total
                self._announcer.announce(key, _volumes(sizes, state.run_spec.worker_for), self._ports())

    def _ports(self) -> list[int]:
        assert self._scheduler is not None
        return [port for worker in self._scheduler.workers if (port := urlsplit(worker).port) is not None]


def _volumes(sizes: dict[str, float], worker_for: dict[Any, str]) -> dict[tuple[str, str], float]:
    """Bytes between hosts, if each worker's go to the workers of all outputs alike."""
    outputs = Counter(worker_for.values())
    volumes: Counter[tuple[str, str]] = Counter()
    for source, size in sizes.items():
        for destination, number in outputs.items():
            ends = _host(source), _host(destination)
            volumes[ends] += size * number / len(worker_for)  # type: ignore[assignment]
    return {ends: size for ends, size in volumes.items() if ends[0] != ends[1]}


def _host(worker: str) -> str:
    return urlsplit(worker).hostname or ""


async def dask_setup(scheduler: Scheduler) -> None:
    """Add the plug-in; Dask calls this for --preload."""
    plugin = ShuffleAnnouncer(Announcer.of_environment())
    scheduler.add_plugin(plugin)
    await plugin.start(scheduler)
