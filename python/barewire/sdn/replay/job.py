# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays a shuffle on the hosts of a lab: the same parts, orders and parallel copies as `simulate.shuffle`."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from barewire.errors import MeasurementFailed
from barewire.lab import Lab
from barewire.sdn.replay import worker
from barewire.sdn.replay.repeated import Fetched, RepeatedJob, Replayed
from barewire.sdn.simulate.shuffle import SERVER_PORT, Shape, Shuffle


class Replay(RepeatedJob):
    """A repeatable shuffle; as a context manager it stops its workers at the end of the block."""

    def __init__(self, lab: Lab, hosts: Sequence[str], seed: int, shape: Shape) -> None:
        """Initialise without starting. WrongUse for hosts that the lab does not have."""
        super().__init__()
        self._lab = lab
        self._addresses = {host: lab.host(host).address for host in hosts}
        self._reducers = self._share(Shuffle(hosts, seed, shape))
        self._workers: dict[str, subprocess.Popen[str]] = {}
        self._said: dict[str, IO[str]] = {}
        self._resources = ExitStack()

    def run(self) -> Replayed:
        """Run one job to completion. MeasurementFailed if a worker is lost."""
        busy = [host for host in self._addresses if self._reducers[host]]
        for host in busy:
            self._tell(host, "begin")
        fetched = [line for host in busy for line in self._result(host)]
        if not fetched:
            return Replayed(0.0, ())
        first_s, last_s = min(fetch[2] for fetch in fetched), max(fetch[3] for fetch in fetched)
        parts = (Fetched(number, size, began - first_s, ended - first_s) for number, size, began, ended in fetched)
        return Replayed(last_s - first_s, tuple(sorted(parts, key=lambda fetch: fetch.began_s)))

    def _begin(self) -> None:
        for host in self._addresses:
            self._start_worker(host)
        for host in self._addresses:
            if self._read(host) != "ready\n":
                raise self._lost(host)

    def _share(self, shuffle: Shuffle) -> dict[str, list[dict[str, Any]]]:
        """Each host's reducers in the format of its worker."""
        shares: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for number, (here, parts) in enumerate(shuffle.wanted()):
            addressed = [[self._addresses[there], size] for there, size in parts]
            shares[here].append({"number": number, "copies": shuffle.shape.copies, "parts": addressed})
        return shares

    def _start_worker(self, host: str) -> None:
        errors = self._resources.enter_context((self._lab.directory / f"shuffle-{host}").open("w+"))
        process = self._lab.popen(
            host,
            [sys.executable, "-I", "-S", str(Path(worker.__file__)), str(SERVER_PORT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        self._workers[host], self._said[host] = process, errors
        self._tell(host, json.dumps({"reducers": self._reducers[host]}))

    def _tell(self, host: str, line: str) -> None:
        stdin = self._workers[host].stdin
        assert stdin is not None
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._lost(host) from None

    def _read(self, host: str) -> str:
        stdout = self._workers[host].stdout
        assert stdout is not None
        return stdout.readline()

    def _result(self, host: str) -> list[worker.Fetch]:
        line = self._read(host)
        if not line:
            raise self._lost(host)
        fetched: list[worker.Fetch] = json.loads(line)["fetched"]
        return fetched

    def _lost(self, host: str) -> MeasurementFailed:
        errors = self._said[host]
        errors.seek(0)
        reason = errors.read().strip().splitlines()
        return MeasurementFailed(f"the shuffle's worker in {host} ended: {reason[-1] if reason else 'no output'}")

    def _end(self) -> None:
        self._end_processes(self._workers)
        self._workers.clear()
        self._resources.close()
