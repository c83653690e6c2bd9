# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays a shuffle on the hosts of a lab: the same parts, orders and parallel copies as `simulate.shuffle`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from barewire.lab import Lab
from barewire.sdn.replay import worker
from barewire.sdn.replay.repeated import PATIENCE_S, Fetched, Replayed
from barewire.sdn.replay.workers import Ask, HostJob
from barewire.sdn.simulate.shuffle import SERVER_PORT, Shuffle


class Replay(HostJob):
    """A repeatable shuffle; as a context manager it stops its workers at the end of the block."""

    def __init__(
        self,
        lab: Lab,
        shuffle: Shuffle,
        ask: Ask | None = None,
        port: int = SERVER_PORT,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Initialise without starting. Shuffles at the same time have different ports. Errors as of `HostJob`."""
        super().__init__(lab, shuffle.hosts, f"shuffle-{port}", str(worker.__file__), ask, patience_s)
        self._port = port
        self._reducers = self._share(shuffle)

    def run(self) -> Replayed:
        """Run one job to completion. MeasurementFailed if a worker is lost."""
        busy = [host for host in self._addresses if self._reducers[host]]
        with self._in_turn(busy):
            self._tell_all(busy, "begin")
            fetched: list[worker.Fetch] = [fetch for host in busy for fetch in self._result(host)["fetched"]]
        if not fetched:
            return Replayed(0.0, ())
        first_s, last_s = min(fetch[2] for fetch in fetched), max(fetch[3] for fetch in fetched)
        parts = (Fetched(number, size, began - first_s, ended - first_s) for number, size, began, ended in fetched)
        return Replayed(last_s - first_s, tuple(sorted(parts, key=lambda fetch: fetch.began_s)))

    def _part(self, host: str) -> tuple[Sequence[str], Mapping[str, Any]]:
        return [str(self._port)], {"reducers": self._reducers[host]}

    def _share(self, shuffle: Shuffle) -> dict[str, list[dict[str, Any]]]:
        """Each host's reducers in the format of its worker."""
        shares: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for number, (here, parts) in enumerate(shuffle.wanted()):
            addressed = [[self._addresses[there], size] for there, size in parts]
            shares[here].append({"number": number, "copies": shuffle.shape.copies, "parts": addressed})
        return shares
