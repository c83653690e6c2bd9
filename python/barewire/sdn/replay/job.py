# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays a shuffle on the hosts of a lab: the same parts, orders and parallel copies as `simulate.shuffle`."""

import contextlib
import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from barewire.errors import MeasurementFailed
from barewire.lab import Lab
from barewire.sdn.replay import worker
from barewire.sdn.simulate.shuffle import SERVER_PORT, Shape, Shuffle

_END_S = 5.0


@dataclass(frozen=True)
class Fetched:
    """One fetched part: its reducer, size, and times in seconds since the job's first fetch began."""

    reducer: int
    size_bytes: int
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class Replayed:
    """One job, from the start of the first fetch to the end of the last."""

    duration_s: float
    fetched: tuple[Fetched, ...]


class Replay:
    """A repeatable shuffle; as a context manager it stops its workers at the end of the block."""

    def __init__(self, lab: Lab, hosts: Sequence[str], seed: int, shape: Shape) -> None:
        """Initialise without starting. WrongUse for hosts that the lab does not have."""
        self._lab = lab
        self._addresses = {host: lab.host(host).address for host in hosts}
        self._reducers = self._share(Shuffle(hosts, seed, shape))
        self._workers: dict[str, subprocess.Popen[str]] = {}
        self._said: dict[str, IO[str]] = {}
        self._resources = ExitStack()
        self._background: threading.Thread | None = None
        self._is_over = threading.Event()
        self._done: list[Replayed] = []
        self._failure: MeasurementFailed | None = None

    def __enter__(self) -> "Replay":
        """Start a worker in each host, and wait until all serve."""
        try:
            for host in self._addresses:
                self._start_worker(host)
            for host in self._addresses:
                if self._read(host) != "ready\n":
                    raise self._lost(host)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all workers, also during a job."""
        self._end()

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

    def start(self) -> None:
        """Run jobs one after another in another thread, until `stop`."""

        def repeat() -> None:
            try:
                while not self._is_over.is_set():
                    self._done.append(self.run())
            except MeasurementFailed as error:
                if not self._is_over.is_set():
                    self._failure = error

        self._is_over.clear()
        self._done, self._failure = [], None
        self._background = threading.Thread(target=repeat, name="shuffle", daemon=True)
        self._background.start()

    def stop(self) -> list[Replayed]:
        """Stop the thread and the workers; return the completed jobs."""
        self._is_over.set()
        self._end()
        if self._failure is not None:
            raise self._failure
        return self._done

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
        for process in self._workers.values():
            process.terminate()
        if self._background is not None:
            self._background.join(_END_S)
            self._background = None
        for process in self._workers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self._workers.clear()
        self._resources.close()
